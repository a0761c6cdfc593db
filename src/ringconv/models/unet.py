"""A small U-Net for segmentation in 2 and 3 dimensions: three times down and up, two convolutions per level.

The output has the size of the input, whatever that is (from 9 pixels on with instance norms). With ring convolutions it
turns and flips with the input: maps are halved by maxima over windows that lie evenly, and doubled by interpolation to
the size of the map they join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from typing_extensions import TypedDict, Unpack

from ringconv._checks import check_choice
from ringconv.conversion.resizing import SizeRule, symmetric_max_pool
from ringconv.layers import Upsample
from ringconv.models.factories import RingOptions, check_odd, check_positive, per_stage, split_ring_options, with_rings
from ringconv.models.features import FeatureInfo
from ringconv.models.registry import register_model

UpSampling = Literal["bilinear", "deconv"]
Norm = Literal["instance", "batch"]

_LEVELS = 4
_CONVS: dict[int, type[nn.Conv2d | nn.Conv3d]] = {2: nn.Conv2d, 3: nn.Conv3d}
_DECONVS: dict[int, type[nn.ConvTranspose2d | nn.ConvTranspose3d]] = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_NORMS: dict[tuple[Norm, int], type[nn.Module]] = {
    ("instance", 2): nn.InstanceNorm2d,
    ("instance", 3): nn.InstanceNorm3d,
    ("batch", 2): nn.BatchNorm2d,
    ("batch", 3): nn.BatchNorm3d,
}


class UNetOptions(TypedDict, total=False):
    """Options of the U-Net, whatever its layers."""

    dimensions: int
    width: int
    in_chans: int
    num_classes: int
    bias: bool
    norm: Norm


class RingUNetOptions(UNetOptions, RingOptions, total=False):
    """Options of the U-Net and of the ring layers."""


class UNet(nn.Module):
    """Images (B, in_chans, *S) to logits (B, num_classes, *S).

    Args:
        kernel_size: one per level, from full size down; the way up reuses that of its level.
        dimensions: 2 or 3.
        width: channels of the first level; each further level has twice as many.
        bias: of the convolutions; the 1x1 head always has one.
        norm: ``"instance"``, as in the paper: what lies anywhere in the image, as what comes in from beyond the frame
            when it turns, counts for every pixel. ``"batch"``: once trained, only what a pixel sees counts for it.
        up: ``"bilinear"`` (trilinear for volumes), or ``"deconv"``: a transposed convolution, which no kernel makes
            equivariant.
    """

    def __init__(
        self,
        kernel_size: Sequence[int],
        *,
        dimensions: int = 2,
        width: int = 16,
        in_chans: int = 3,
        num_classes: int = 1,
        bias: bool = True,
        norm: Norm = "instance",
        up: UpSampling = "bilinear",
    ) -> None:
        super().__init__()
        if dimensions not in _CONVS:
            raise ValueError(f"dimensions must be 2 or 3, got {dimensions!r}")
        if up not in get_args(UpSampling):
            raise ValueError(f"up must be one of {', '.join(map(repr, get_args(UpSampling)))}, got {up!r}")
        check_choice("norm", norm, get_args(Norm))
        check_odd("kernel_size", kernel_size)
        check_positive(width=width, in_chans=in_chans, num_classes=num_classes)
        widths = [width * 2**level for level in range(len(kernel_size))]
        levels = range(len(kernel_size) - 1)
        self.down = symmetric_max_pool(SizeRule.ceil_division((2,) * dimensions))
        self.encoder = nn.ModuleList(
            _TwoConvs(dimensions, before, after, size, bias, norm)
            for before, after, size in zip([in_chans, *widths[:-1]], widths, kernel_size, strict=True)
        )
        # A transposed convolution halves the channels, but for the last: so does the network that the paper counts.
        doubled = [widths[level if up == "deconv" and level else level + 1] for level in levels]
        self.up = nn.ModuleList(
            _Deconv(dimensions, widths[level + 1], doubled[level]) if up == "deconv" else Upsample() for level in levels
        )
        self.decoder = nn.ModuleList(
            _TwoConvs(dimensions, doubled[level] + widths[level], widths[level], kernel_size[level], bias, norm)
            for level in levels
        )
        self.head = _CONVS[dimensions](width, num_classes, 1)
        self.norm: Norm = norm
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.feature_info = FeatureInfo.halving([f"encoder.{level}" for level in range(len(widths))], widths, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, *S) -> (B, num_classes, *S)."""
        self._check_size(x)
        joined = []
        for level, convs in enumerate(self.encoder):
            x = convs(self.down(x) if level else x)
            joined.append(x)
        for level in reversed(range(len(self.decoder))):
            same_size = joined[level]
            x = self.up[level](x, same_size.shape[2:])
            x = self.decoder[level](torch.cat([x, same_size], 1))
        logits: Tensor = self.head(x)
        return logits

    def _check_size(self, x: Any) -> None:
        """On the last level an instance norm needs more than one pixel."""
        least = 2 ** len(self.decoder) if self.norm == "instance" else 0
        if torch.compiler.is_compiling() or isinstance(x, fx.Proxy):
            return
        if max(x.shape[2:]) <= least:
            raise ValueError(f"the U-Net takes images of more than {least} pixels, got {tuple(x.shape)}")


class _TwoConvs(nn.Module):
    """Twice: convolution, norm, leaky ReLU."""

    def __init__(
        self, dimensions: int, in_channels: int, out_channels: int, kernel_size: int, bias: bool, norm: Norm
    ) -> None:
        super().__init__()
        conv, norm_of = _CONVS[dimensions], _NORMS[norm, dimensions]
        self.conv1 = conv(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=bias)
        self.norm1 = norm_of(out_channels, affine=True)
        self.conv2 = conv(out_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=bias)
        self.norm2 = norm_of(out_channels, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.1)
        return F.leaky_relu(self.norm2(self.conv2(x)), 0.1)


class _Deconv(nn.Module):
    """A transposed convolution that doubles the map, cut to a given size."""

    def __init__(self, dimensions: int, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = _DECONVS[dimensions](in_channels, out_channels, 2, stride=2)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        cut = (..., *(slice(side) for side in size))
        doubled: Tensor = self.conv(x)[cut]
        return doubled


@register_model("unet", "unet", dimensions=(2, 3), task="segmentation", parameters=488_705, paper="0.48M")
def unet(*, kernel_size: int | Sequence[int] = 3, up: UpSampling = "bilinear", **options: Unpack[UNetOptions]) -> UNet:
    """The plain network; ``up="deconv"`` for transposed convolutions."""
    return UNet(per_stage("kernel_size", kernel_size, _LEVELS), up=up, **options)


@register_model(
    "gmr_unet",
    "unet",
    dimensions=(2, 3),
    symmetry="rotations and reflections",
    task="segmentation",
    parameters=178_299,
    paper="0.18M",
)
def gmr_unet(
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5, 5),
    rings: int | Sequence[int | None] | None = None,
    up: Literal["bilinear"] = "bilinear",
    **options: Unpack[RingUNetOptions],
) -> UNet:
    """The network of ring convolutions; further options are the keywords of :class:`GMRConv2d`."""
    if up != "bilinear":
        raise ValueError(
            f'up must be "bilinear", got {up!r}: a transposed convolution does not turn with its input, so the network'
            " would not be equivariant"
        )
    network_options, ring = split_ring_options(options)
    network = UNet(per_stage("kernel_size", kernel_size, _LEVELS), **network_options)
    per_level = per_stage("rings", rings, _LEVELS)
    levels = [f"encoder.{level}" for level in range(_LEVELS)] + [f"decoder.{level}" for level in range(_LEVELS - 1)]
    converted = with_rings(network, levels, per_level + per_level[:-1], ring)
    assert isinstance(converted, UNet)
    return converted
