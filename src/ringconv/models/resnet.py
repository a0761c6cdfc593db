"""One residual skeleton; a method is a pair of factories for its convolutions.

The skeleton decides widths, strides and shortcuts. What a strided convolution is, whether a strided layer or a
down-sampling before a layer of stride 1, is up to the factory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ringconv.layers import Downsample, GMRConv2d


class ConvFactory(Protocol):
    """Builds a convolution (B, in, H, W) -> (B, out, ceil(H / stride), ceil(W / stride)) without a bias."""

    def __call__(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module: ...


def _check_odd(kernel_size: int) -> None:
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd, so that maps keep their size, got {kernel_size}")


@dataclass(frozen=True)
class PlainConv:
    """torch's convolution, strided where the skeleton asks for it."""

    kernel_size: int

    def __post_init__(self) -> None:
        _check_odd(self.kernel_size)

    def __call__(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        k = self.kernel_size
        return nn.Conv2d(in_channels, out_channels, k, stride, padding=k // 2, bias=False)


@dataclass(frozen=True)
class RingConv:
    """A ring convolution of stride 1, after a down-sampling where the skeleton asks for a stride.

    A 1x1 convolution is torch's, whatever the options: there is no ring to choose.
    """

    kernel_size: int
    options: dict[str, Any]

    def __post_init__(self) -> None:
        _check_odd(self.kernel_size)

    def __call__(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        k = self.kernel_size
        conv: nn.Module
        if k == 1:
            conv = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        else:
            conv = GMRConv2d(in_channels, out_channels, k, padding=k // 2, bias=False, **self.options)
        return conv if stride == 1 else nn.Sequential(Downsample(stride), conv)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int, conv: ConvFactory, pointwise: ConvFactory) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(in_channels, width, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width),
            nn.BatchNorm2d(width),
        )
        self.shortcut = _shortcut(in_channels, width, stride, pointwise)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, conv: ConvFactory, pointwise: ConvFactory) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.body = nn.Sequential(
            pointwise(in_channels, width),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            pointwise(width, out_channels),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut = _shortcut(in_channels, out_channels, stride, pointwise)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x) + self.shortcut(x))


def _shortcut(in_channels: int, out_channels: int, stride: int, pointwise: ConvFactory) -> nn.Module:
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(pointwise(in_channels, out_channels, stride), nn.BatchNorm2d(out_channels))


class ResNet(nn.Module):
    """Stem, four stages of residual blocks, global average pooling, linear head.

    Args:
        block: BasicBlock or Bottleneck.
        depths: blocks per stage.
        stem: builds the first convolution.
        stages: builds the spatial convolutions of each stage.
        pointwise: builds the 1x1 convolutions.
        stem_pool: halve the map after the stem; the paper leaves it out for small images.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        *,
        stem: ConvFactory,
        stages: Sequence[ConvFactory],
        pointwise: ConvFactory,
        stem_pool: bool = True,
        width: int = 64,
        in_chans: int = 3,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            stem(in_chans, width),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            Downsample(2) if stem_pool else nn.Identity(),
        )
        channels = width
        built = []
        for stage, (depth, conv) in enumerate(zip(depths, stages, strict=True)):
            blocks = []
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, width * 2**stage, stride, conv, pointwise))
                channels = width * 2**stage * block.expansion
            built.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*built)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) -> logits (B, num_classes)."""
        logits: Tensor = self.head(self.stages(self.stem(x)).mean((2, 3)))
        return logits


_RESNETS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def resnet(
    depth: int = 18, *, kernel_size: Sequence[int] = (3, 3, 3, 3), stem_kernel_size: int = 5, **skeleton: Any
) -> ResNet:
    """The plain network, with the stem of the ring one."""
    block, depths = _resnet_of_depth(depth)
    stages = [PlainConv(size) for size in kernel_size]
    return ResNet(block, depths, stem=PlainConv(stem_kernel_size), stages=stages, pointwise=PlainConv(1), **skeleton)


def gmr_resnet(
    depth: int = 18,
    *,
    kernel_size: Sequence[int] = (9, 9, 5, 5),
    rings: Sequence[int | None] = (None, None, None, None),
    stem_kernel_size: int = 5,
    stem_pool: bool = True,
    width: int = 64,
    in_chans: int = 3,
    num_classes: int = 10,
    **layer_options: Any,
) -> ResNet:
    """The paper's network: kernel size and rings per stage, and the keyword options of :class:`GMRConv2d`."""
    block, depths = _resnet_of_depth(depth)
    stages = [RingConv(size, layer_options | {"rings": n}) for size, n in zip(kernel_size, rings, strict=True)]
    return ResNet(
        block,
        depths,
        stem=RingConv(stem_kernel_size, layer_options),
        stages=stages,
        pointwise=RingConv(1, {}),
        stem_pool=stem_pool,
        width=width,
        in_chans=in_chans,
        num_classes=num_classes,
    )


def _resnet_of_depth(depth: int) -> tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]:
    if depth not in _RESNETS:
        raise ValueError(f"depth must be one of {', '.join(map(str, _RESNETS))}, got {depth}")
    return _RESNETS[depth]
