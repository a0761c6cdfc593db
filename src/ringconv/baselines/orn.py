"""Oriented response networks (Zhou et al. 2017): filters that turn actively, and features aligned before the head.

A filter has N orientation channels of k x k taps. Its turned version j puts orientation channel i at (i + j) mod N and
moves the outer ring of the 3x3 taps clockwise by 8 j / N cells; a 1x1 filter only rolls its channels.

Kept exactly: quarter turns, by every layer at stride 1. Turns by 45 degrees (N = 8) only nearly: moving the ring by one
cell is not a turn of the grid. Not kept: reflections; and quarter turns by a strided layer on an even map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv._computed_weights import of_weight
from ringconv.baselines._kernel_conv import KernelConv
from ringconv.baselines.fields import FieldLayers, FieldPool, split_fields
from ringconv.models.factories import GlobalAverage, Size, per_stage
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet_of_depth

Encoding = Literal["pool", "align"]
Norm = Literal["orientation", "feature"]

RING = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
"""The outer cells of a 3x3 filter, clockwise from the upper left."""


def turned_cells(steps: int, kernel_size: int) -> list[int]:
    """Where each cell of the filter, in C order, moves when the ring turns clockwise by ``steps`` cells."""
    if kernel_size == 1:
        return [0]
    target = list(range(9))
    for position, (row, column) in enumerate(RING):
        new_row, new_column = RING[(position + steps) % 8]
        target[3 * row + column] = 3 * new_row + new_column
    return target


class ORConv2d(KernelConv):
    """(B, in_channels * N, H, W) -> (B, out_channels * N, H', W').

    Channels and groups count features of N orientations.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in ``nn.Conv2d``; the kernel is 1x1 or 3x3.
        orientations: N, 4 or 8.
        lifting: the input is an image, (B, in_channels, H, W), without orientations.
    """

    def __init__(self, *conv: Any, orientations: int = 4, lifting: bool = False, **options: Any) -> None:
        if orientations not in (4, 8):
            raise ValueError(f"orientations must be 4 or 8, got {orientations}")
        super().__init__(*conv, **options, orders=(1 if lifting else orientations, orientations))

    def weight_shape(self) -> tuple[int, ...]:
        if self.kernel_size not in ((1, 1), (3, 3)):
            raise ValueError(f"the ring of an active rotating filter is that of 3x3 (or 1x1), got {self.kernel_size}")
        return (*self.pair_shape, self.orders[0], *self.kernel_size)

    def new_tables(self) -> dict[str, Tensor]:
        """For each turn j, which of the filter's values stands at each orientation and tap."""
        channels, turns = self.orders
        taps = self.kernel_size[0] ** 2
        source = np.empty((turns, channels, taps), dtype=np.int64)
        for turn in range(turns):
            cells = turned_cells(8 * turn // turns, self.kernel_size[0])
            for channel in range(channels):
                source[turn, (channel + turn) % channels, cells] = channel * taps + np.arange(taps)
        return {"_source": torch.tensor(source.reshape(-1), device=of_weight(self).device)}

    def kernel(self) -> Tensor:
        out_channels, in_channels = self.pair_shape
        channels, turns = self.orders
        turned = self.weight.flatten(2).index_select(2, self.table("_source"))
        turned = turned.view(out_channels, in_channels, turns, channels, *self.kernel_size)
        return turned.transpose(1, 2).reshape(out_channels * turns, in_channels * channels, *self.kernel_size)


class ORPool(FieldPool):
    """The strongest orientation of every feature: (B, C * N, *S) -> (B, C, *S)."""


class ORAlign(nn.Module):
    """Roll the orientations of every feature so that its strongest response comes first: (B, C * N, *S), same shape.

    After global pooling a quarter turn of the image rolls every feature alike, so the aligned ones do not change.
    """

    def __init__(self, orientations: int) -> None:
        super().__init__()
        self.orientations = orientations

    def forward(self, input: Tensor) -> Tensor:
        features = split_fields(input, self.orientations)
        strongest = features.argmax(2, keepdim=True)
        steps = torch.arange(self.orientations, device=input.device).view(1, 1, -1, *[1] * (input.dim() - 2))
        return features.gather(2, (strongest + steps) % self.orientations).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"orientations={self.orientations}"


@dataclass(frozen=True)
class ORLayers(FieldLayers):
    orientations: int = 4
    encoding: Encoding = "align"
    norm_over: Norm = "orientation"

    @property
    def order(self) -> int:
        return self.orientations

    def field_conv(self, in_fields: int, out_fields: int, kernel_size: Size, **options: Any) -> nn.Module:
        return ORConv2d(in_fields, out_fields, kernel_size, orientations=self.orientations, **options)

    def norm(self, channels: int) -> nn.Module:
        return super().norm(channels) if self.norm_over == "feature" else nn.BatchNorm2d(self.map_channels(channels))

    def global_pool(self, channels: int) -> nn.Module:
        encode = ORPool(self.orientations) if self.encoding == "pool" else ORAlign(self.orientations)
        return nn.Sequential(GlobalAverage(), encode)

    def pooled_channels(self, channels: int) -> int:
        return self.fields(channels) if self.encoding == "pool" else self.map_channels(channels)


@register_model(
    "orn_resnet18",
    "resnet",
    parameters=11_187_818,
    paper="11.2M",
    note='batch norm per orientation, as published, is not symmetric once trained; norm="feature" is',
)
def orn_resnet18(
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 3,
    orientations: int = 4,
    encoding: Encoding = "align",
    norm: Norm = "orientation",
    strided: bool = False,
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """A residual network of active rotating filters.

    Args:
        kernel_size: of the spatial convolutions, one or one per stage: 1 or 3.
        orientations: N, 4 or 8.
        encoding: what the head sees of the globally pooled orientations: all, rolled so that the strongest comes first
            (``"align"``, ORAlign), or the strongest alone (``"pool"``, ORPool).
        norm: batch norm with statistics of each ``"orientation"``, as published, or of each ``"feature"``, all
            orientations alike; only the second stays equivariant to quarter turns when trained.
        strided: stride the convolutions, which breaks quarter turns on even maps.
        skeleton: the other options are those of :class:`ResNet`; ``width`` counts channels of the plain network, of
            which 1 / sqrt(N) become features of N orientations.
    """
    for name, value, allowed in (("encoding", encoding, ("pool", "align")), ("norm", norm, ("orientation", "feature"))):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    layers = ORLayers(
        per_stage("kernel_size", kernel_size, 4),
        stem_kernel_size,
        strided=strided,
        orientations=orientations,
        encoding=encoding,
        norm_over=norm,
    )
    return resnet_of_depth(18, layers, **skeleton)
