"""Which method is cheapest: a cost rule in multiply-adds per output pixel.

It knows channels, kernel, rings and stride only, never the image's size, so that a compiled or exported graph
has no branch on it.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Method = Literal["auto", "dense", "factored", "fused"]
METHODS: tuple[Method, ...] = ("auto", "dense", "factored", "fused")

# A torch ring pass does little arithmetic for every value it moves. Its cost per response, in multiply-adds of a
# matrix product, was fitted to timings of this rule's two sides on two cores: a part per tap, and a part per value.
_PASS_PER_TAP = 5
_PASS_PER_VALUE = 600


class LayerShape(NamedTuple):
    """What the cost of a ring convolution depends on."""

    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    rings: int
    stride: tuple[int, ...]

    @property
    def mixing(self) -> int:
        """Multiply-adds of the mixing product, per pixel."""
        return self.rings * self.in_channels * self.out_channels // self.groups


def mixes_first(shape: LayerShape) -> bool:
    """Whether "factored" should mix the channels before the ring pass: the pass then runs over the outputs."""
    before_stride = math.prod(shape.stride)
    ring_first = shape.mixing + _pass_cost(shape, shape.in_channels)
    mix_first = shape.mixing * before_stride + _pass_cost(shape, shape.out_channels)
    return mix_first < ring_first


def cheapest_method(shape: LayerShape) -> Literal["dense", "factored"]:
    """The cheaper of "dense" and "factored"."""
    taps = math.prod(shape.kernel_size)
    dense = taps * shape.in_channels * shape.out_channels // shape.groups
    if mixes_first(shape):
        factored = shape.mixing * math.prod(shape.stride) + _pass_cost(shape, shape.out_channels)
    else:
        factored = shape.mixing + _pass_cost(shape, shape.in_channels)
    return "factored" if factored < dense else "dense"


def _pass_cost(shape: LayerShape, channels: int) -> int:
    return shape.rings * channels * (_PASS_PER_TAP * math.prod(shape.kernel_size) + _PASS_PER_VALUE)
