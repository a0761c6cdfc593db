"""The two networks of the comparison: one architecture, two kinds of convolution."""

from __future__ import annotations

from typing import Literal

from torch import nn

from ringconv.layers import Downsample, GMRConv2d

Kind = Literal["plain", "ring"]
KINDS: tuple[Kind, ...] = ("plain", "ring")


def small_network(kind: Kind, classes: int, width: int = 16) -> nn.Sequential:
    """Three stages of two 3x3 convolutions, average pooling between them and at the end: (B, 1, H, W) -> (B, classes).

    Only the convolution differs. A ring kernel of 3x3 has two free weights, its centre and the ring around it, where a
    plain one has nine.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    layers: list[nn.Module] = []
    channels = 1
    for stage in range(3):
        if stage:
            layers.append(Downsample())
        for _ in range(2):
            wider = width * 2**stage
            layers += [_conv(kind, channels, wider), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def _conv(kind: Kind, in_channels: int, out_channels: int) -> nn.Module:
    if kind == "plain":
        return nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
    return GMRConv2d(in_channels, out_channels, 3, padding=1, bias=False)
