"""RAD and RSDW convolutions (Fuhl & Kasneci 2021), as far as they are described.

Their paper links to code that we have not seen, and the description leaves much open, so these are **our reading**:

- RAD-n has n radii with one weight each: hard rings of one pixel, on a kernel of 2n - 1.
- RSDW-n is a depthwise RAD-n and a 1x1 convolution after it.

RING, the third method (rotated rings), is not described well enough to be built; only its reported figures can be
shown.

Kept exactly: quarter turns and reflections, by every layer at stride 1. Not kept: angles in between, to which hard
rings are only roughly symmetric; and quarter turns by a strided layer on an even map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from typing_extensions import Unpack

from ringconv.layers import GMRConv2d
from ringconv.models.factories import PlainLayers, Size, after_downsampling, plain_conv
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet_of_depth
from ringconv.rings import as_tuple

OUR_READING = "our reading of a short description, without its authors' code"

REPORTED = {
    "RAD 3-ResNet34": (69.83, 65.92),
    "RSDW 3-ResNet34": (65.82, 58.97),
    "RING 5x5-ResNet34": (79.96, 75.79),
}
"""Accuracy in % on CIFAR-10 that their paper reports: over quarter turns (4ROT), and every 20 degrees (ALLROT)."""


def rad_conv(in_channels: int, out_channels: int, radii: int = 3, **options: Any) -> GMRConv2d:
    """A convolution with one weight per radius 0..radii - 1: (B, C, H, W) -> (B, O, H', W').

    The options are those of :class:`ringconv.GMRConv2d`; by default ``padding`` keeps the size at stride 1.
    """
    _check_radii(radii)
    dilation = as_tuple(options.get("dilation", 1), 2, "dilation")
    padding = tuple((radii - 1) * step for step in dilation)
    options = {"preset": "paper", "padding": padding, "sigma": None} | options
    return GMRConv2d(in_channels, out_channels, 2 * radii - 1, rings=radii, **options)


def rsdw_conv(in_channels: int, out_channels: int, radii: int = 3, *, bias: bool = True, **options: Any) -> nn.Module:
    """A depthwise RAD convolution, then a 1x1 convolution, which has the bias."""
    depthwise = rad_conv(in_channels, in_channels, radii, groups=in_channels, bias=False, **options)
    return nn.Sequential(depthwise, nn.Conv2d(in_channels, out_channels, 1, bias=bias))


def _check_radii(radii: int) -> None:
    if radii < 1:
        raise ValueError(f"radii must be at least 1, got {radii}")


@dataclass(frozen=True)
class RadialLayers(PlainLayers):
    """Kernel sizes come from the radii; a stride is an equivariant down-sampling before the layer."""

    kind: Literal["rad", "rsdw"] = "rad"

    def spatial(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> nn.Module:  # fmt: skip
        assert isinstance(kernel_size, int)
        radii = kernel_size // 2 + 1
        if self.kind == "rad":
            conv: nn.Module = rad_conv(in_channels, out_channels, radii, dilation=dilation, groups=groups, bias=False)
        elif groups > 1:
            raise ValueError(f"a depthwise separable convolution has no groups to choose, got groups={groups}")
        else:
            conv = rsdw_conv(in_channels, out_channels, radii, dilation=dilation, bias=False)
        return after_downsampling(conv, stride, 2)

    def pointwise(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        return after_downsampling(plain_conv(2, in_channels, out_channels, 1), stride, 2)


@register_model("rad_resnet34", "resnet", symmetry="rotations and reflections", parameters=7_223_498, note=OUR_READING)
def rad_resnet34(*, radii: int = 3, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """A residual network of RAD convolutions (our reading).

    Args:
        radii: weights of a kernel, which has 2 radii - 1 taps to a side; also of the stem.
        skeleton: the other options are those of :class:`ResNet`.
    """
    return _radial_resnet34("rad", radii, skeleton)


@register_model("rsdw_resnet34", "resnet", symmetry="rotations and reflections", parameters=2_558_611, note=OUR_READING)
def rsdw_resnet34(*, radii: int = 3, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """A residual network of RSDW convolutions (our reading).

    Args:
        radii: weights of a depthwise kernel, which has 2 radii - 1 taps to a side; also of the stem.
        skeleton: the other options are those of :class:`ResNet`.
    """
    return _radial_resnet34("rsdw", radii, skeleton)


def _radial_resnet34(kind: Literal["rad", "rsdw"], radii: int, skeleton: SkeletonOptions) -> ResNet:
    _check_radii(radii)
    side = 2 * radii - 1
    return resnet_of_depth(34, RadialLayers((side,) * 4, side, kind=kind), **skeleton)
