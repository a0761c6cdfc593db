"""Which method computes a layer: what the compiled kernel covers, and a rule for what is cheapest.

The rule knows channels, kernel, rings and stride only, never the image's size, so that a compiled or exported graph
has no branch on it.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ringconv.ops import fused

Method = Literal["auto", "dense", "factored", "fused"]
METHODS: tuple[Method, ...] = ("auto", "dense", "factored", "fused")

# Looked up once: a compiler cannot trace the search for a library.
_FUSED_IS_THERE = fused.available()

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


def prefers_fused(shape: LayerShape) -> bool:
    """Whether the compiled kernel, where it covers the input, beats torch's operators."""
    return math.prod(shape.kernel_size) > 1


def fused_covers(x: Tensor, weight: Tensor) -> bool:
    """Whether the compiled kernel can compute this input; says once if it could but was not installed."""
    if x.device.type != "cpu":
        return False
    if torch.is_autocast_enabled("cpu"):
        covered = torch.get_autocast_dtype("cpu") in fused.DTYPES
    else:
        covered = x.dtype in fused.DTYPES and weight.dtype == x.dtype
    if covered and not _FUSED_IS_THERE and not torch.compiler.is_compiling():
        _say_why_unavailable()
    return covered and _FUSED_IS_THERE


@functools.cache
def _say_why_unavailable() -> None:
    warnings.warn(f'method="fused" falls back to "factored", which is slower: {fused.why_unavailable()}', stacklevel=2)
