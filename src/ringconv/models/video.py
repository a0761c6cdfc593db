"""Residual networks of volumes (R3D-9) and of video (R(2+1)D: convolutions in space, then in time).

R3D-9 is symmetric in all three axes. R(2+1)D takes (B, C, T, H, W) and is symmetric in the image's axes H and W; time
keeps its direction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv.models.factories import (
    Layers,
    PlainLayers,
    RingLayers,
    Size,
    after_downsampling,
    check_odd,
    per_stage,
    plain_conv,
    split_layer_options,
)
from ringconv.models.registry import register_model
from ringconv.models.resnet import (
    BasicBlock,
    ResNet,
    RingResNetOptions,
    SkeletonOptions,
    resnet_of_depth,
)
from ringconv.pooling import Downsampling, LowPass, Pooling

_SYMMETRIC = "rotations and reflections"


def r3d_9_of(layers: Layers, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """R3D-9 made of the given layers: one block per stage, no stem pooling, voxels of one channel, width 24."""
    options: dict[str, Any] = {"width": 24, "in_chans": 1, "stem_pool": False, **skeleton}
    return ResNet(layers, BasicBlock, (1, 1, 1, 1), **options)


@register_model(
    "r3d_9",
    "r3d",
    dimensions=(3,),
    parameters=2_019_586,
    paper="2.02M",
    paper_options=(("stem_kernel_size", (3, 7, 7)),),
    paper_parameters=2_022_466,
)
def r3d_9(
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: Size = 3,
    pooling: Pooling = "average",
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """The plain network of volumes, with the stem of the ring one; the paper's has a stem of (3, 7, 7)."""
    return r3d_9_of(PlainLayers(per_stage("kernel_size", kernel_size, 4), stem_kernel_size, 3, pooling), **skeleton)


@register_model("gmr_r3d_9", "r3d", dimensions=(3,), symmetry=_SYMMETRIC, parameters=175_804, paper="0.17M")
def gmr_r3d_9(
    *,
    kernel_size: int | Sequence[int] = 3,
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: Size = 3,
    **options: Unpack[RingResNetOptions],
) -> ResNet:
    """The ring network of volumes. Its stem is a cube: a flat one, such as (3, 7, 7), would favour an axis."""
    skeleton, of_layers = split_layer_options(options)
    layers = RingLayers(
        per_stage("kernel_size", kernel_size, 4),
        stem_kernel_size,
        3,
        rings=per_stage("rings", rings, 4),
        **of_layers,
    )
    return r3d_9_of(layers, **skeleton)


class _DownsampleFrames(nn.Module):
    """Halves the axes H and W of (B, C, T, H, W) as :class:`ringconv.Downsample` does."""

    def __init__(self, mode: Downsampling = "average") -> None:
        super().__init__()
        self.lowpass = LowPass((1, 2, 2)) if mode == "lowpass" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.lowpass(x)
        frames, height, width = x.shape[2:]
        return F.adaptive_avg_pool3d(x, (frames, -(-height // 2), -(-width // 2)))


@dataclass(frozen=True)
class PlainVideoLayers(PlainLayers):
    """Convolutions (1, k, k) in space, then (t, 1, 1) in time, with norm and activation between them."""

    dimensions: int = 3
    time_kernel_size: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_odd("time_kernel_size", [self.time_kernel_size])

    @property
    def turned_axes(self) -> int:
        return 2

    def spatial(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> nn.Module:  # fmt: skip
        middle = _middle_channels(in_channels, out_channels, groups)
        space = plain_conv(3, in_channels, middle, _in_frame(kernel_size), (1, stride, stride), dilation, groups)
        time = plain_conv(3, middle, out_channels, (self.time_kernel_size, 1, 1), (stride, 1, 1))
        return _space_then_time(self, space, middle, time)

    def stem_pool(self, channels: int) -> nn.Module:
        return _DownsampleFrames()


@dataclass(frozen=True)
class RingVideoLayers(RingLayers):
    """Ring convolutions (1, k, k) in space, then plain (t, 1, 1) in time, with norm and activation between them."""

    dimensions: int = 3
    time_kernel_size: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_odd("time_kernel_size", [self.time_kernel_size])

    @property
    def turned_axes(self) -> int:
        return 2

    def ring_conv(
        self, in_channels: int, out_channels: int, kernel_size: Size, rings: int | None, stride: int, dilation: int,
        groups: int,
    ) -> nn.Module:  # fmt: skip
        middle = _middle_channels(in_channels, out_channels, groups)
        space = super().ring_conv(in_channels, middle, _in_frame(kernel_size), rings, 1, dilation, groups)
        time = plain_conv(3, middle, out_channels, (self.time_kernel_size, 1, 1))
        return after_downsampling(_space_then_time(self, space, middle, time), stride, 3, self.downsampling)

    def stem_pool(self, channels: int) -> nn.Module:
        return _DownsampleFrames(self.downsampling)


def _middle_channels(in_channels: int, out_channels: int, groups: int) -> int:
    """Channels between space and time: plain kernels of 3x3 and 3 then have as many weights as one of 3x3x3."""
    middle = 27 * in_channels * out_channels // (9 * in_channels + 3 * out_channels)
    return max(groups, middle // groups * groups)


def _in_frame(kernel_size: Size) -> tuple[int, int, int]:
    if not isinstance(kernel_size, int):
        raise ValueError(f"a kernel in space is square, so its size is one int, got {kernel_size!r}")
    return 1, kernel_size, kernel_size


def _space_then_time(layers: Layers, space: nn.Module, middle: int, time: nn.Module) -> nn.Module:
    norm, act = layers.norm(middle), layers.activation(middle)
    return nn.Sequential(OrderedDict(space=space, norm=norm, act=act, time=time))


@register_model("r2plus1d", "r2plus1d", dimensions=(3,), parameters=33_161_611, note="suggested by the paper")
def r2plus1d(
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 5,
    time_kernel_size: int = 3,
    pooling: Pooling = "average",
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """R(2+1)D-18 of plain convolutions, with the stem of the ring network."""
    layers = PlainVideoLayers(
        per_stage("kernel_size", kernel_size, 4),
        stem_kernel_size,
        head_pooling=pooling,
        time_kernel_size=time_kernel_size,
    )
    return resnet_of_depth(18, layers, **skeleton)


@register_model(
    "gmr_r2plus1d",
    "r2plus1d",
    dimensions=(3,),
    symmetry=_SYMMETRIC,
    symmetric_axes=2,
    parameters=17_472_480,
    note="suggested by the paper",
)
def gmr_r2plus1d(
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5, 5),
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: int = 5,
    time_kernel_size: int = 3,
    **options: Unpack[RingResNetOptions],
) -> ResNet:
    """R(2+1)D-18 of ring convolutions in space and plain ones in time.

    Args:
        time_kernel_size: 1 for 1x1x1 convolutions instead, which leave all mixing in time to the pooling.
    """
    skeleton, of_layers = split_layer_options(options)
    layers = RingVideoLayers(
        per_stage("kernel_size", kernel_size, 4),
        stem_kernel_size,
        rings=per_stage("rings", rings, 4),
        **of_layers,
        time_kernel_size=time_kernel_size,
    )
    return resnet_of_depth(18, layers, **skeleton)
