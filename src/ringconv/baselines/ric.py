"""RIC-CNN (Mo & Zhao 2022): 3x3 taps on a circle that starts in the direction away from the image's centre.

With theta = atan2(j - (W - 1) / 2, i - (H - 1) / 2) at output pixel (i, j), the outer taps t = 0..7 are sampled at

    (i + cos(theta + 2 pi t / 8), j + sin(theta + 2 pi t / 8))

by bilinear interpolation; the middle tap stays. A turn about the image's centre turns every circle with it.

Kept exactly: quarter turns about the image's centre at stride 1. Angles in between: as good as the interpolation. Not
kept: reflections, which reverse the circle; translation, since theta belongs to the place; and quarter turns by a
strided layer on an even map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv.baselines._kernel_conv import KernelConv
from ringconv.models.factories import PlainLayers, Size, after_downsampling, per_stage, plain_conv
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet_of_depth

_CIRCLE = 8


class RICConv2d(KernelConv):
    """(B, in_channels, H, W) -> (B, out_channels, H', W'), any size, with the weights of a 3x3 ``nn.Conv2d``.

    Where theta = 0 the taps lie as in an ordinary convolution, the diagonal ones drawn in to radius 1 (``dilation``
    scales the radius). The middle pixel of a map with odd sides has no theta: there the outer taps are the mean over
    theta = 0, 90, 180 and 270 degrees. A 1x1 kernel is an ordinary convolution.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in ``nn.Conv2d``; the kernel is 1x1 or 3x3, ``dilation``
            is equal on both axes, and samples outside of the map are zero (``padding_mode="zeros"``).
    """

    def weight_shape(self) -> tuple[int, ...]:
        if self.kernel_size not in ((1, 1), (3, 3)):
            raise ValueError(f"the kernel must be 1x1 or 3x3, got {self.kernel_size}")
        if self.padding_mode != "zeros" or self.dilation[0] != self.dilation[1]:
            raise ValueError(
                'RICConv2d takes padding_mode="zeros" and equal dilation only,'
                f" got {self.padding_mode!r} and {self.dilation}"
            )
        return (*self.pair_shape, *self.kernel_size)

    def kernel(self) -> Tensor:
        return self.weight

    def forward(self, input: Tensor) -> Tensor:
        if self.kernel_size == (1, 1):
            return super().forward(input)
        batched = input if input.dim() == 4 else input.unsqueeze(0)
        taps = self._samples(batched).flatten(1, 2)
        # The taps of a channel lie side by side, as its weights do: what is left is a 1x1 convolution.
        weight = self.weight.flatten(2)[:, :, _TAP_ORDER].flatten(1)[:, :, None, None]
        y = F.conv2d(taps, weight, self.bias, groups=self.groups)
        return y if input.dim() == 4 else y.squeeze(0)

    def _samples(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, 9, H', W'): the middle tap, then the circle."""
        (top, bottom), (left, right) = self._options.padding
        radius = self.dilation[0]
        rows, columns = (
            (side + before + after - 2 * radius - 1) // step + 1
            for side, before, after, step in zip(x.shape[-2:], (top, left), (bottom, right), self.stride, strict=True)
        )
        like: dict[str, Any] = {"device": x.device, "dtype": torch.float64}
        row = torch.arange(rows, **like)[:, None].expand(rows, columns)
        column = torch.arange(columns, **like)[None, :].expand(rows, columns)
        theta = torch.atan2(column - (columns - 1) / 2, row - (rows - 1) / 2)
        angle = theta + torch.arange(_CIRCLE, **like)[:, None, None] * (2 * math.pi / _CIRCLE)
        # The middle tap in pixels of x, then the circle about it.
        middle = row * self.stride[0] - top + radius, column * self.stride[1] - left + radius
        across = torch.cat([middle[0][None], middle[0] + radius * angle.cos()])
        along = torch.cat([middle[1][None], middle[1] + radius * angle.sin()])
        # grid_sample's coordinates: -1 and 1 are the outer sides of the border pixels.
        grid = torch.stack([(2 * along + 1) / x.shape[-1] - 1, (2 * across + 1) / x.shape[-2] - 1], -1)
        # Half precision cannot tell places: it has 8 bits or 11 for all pixels of a row.
        precise = torch.promote_types(x.dtype, torch.float32)
        grid = grid.view(1, -1, columns, 2).expand(x.shape[0], -1, -1, -1).to(precise)
        sampled = F.grid_sample(x.to(precise), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        samples = sampled.to(x.dtype).view(*x.shape[:2], 1 + _CIRCLE, rows, columns)
        if rows % 2 and columns % 2:
            samples = _average_the_middle(samples)
        return samples


def _average_the_middle(samples: Tensor) -> Tensor:
    """At the middle pixel, every outer tap is replaced by its mean over four quarter turns of the circle."""
    row, column = samples.shape[-2] // 2, samples.shape[-1] // 2
    circle = samples[:, :, 1:, row, column]
    mean = torch.unflatten(circle, 2, (4, 2)).mean(2).repeat(1, 1, 4)
    samples = samples.clone()
    samples[:, :, 1:, row, column] = mean
    return samples


# Position in the 3x3 kernel of the middle tap and of the taps on the circle: at angle 0 a row further down, then
# anticlockwise as seen from above with rows going down.
_TAP_ORDER = [4, 7, 8, 5, 2, 1, 0, 3, 6]


@dataclass(frozen=True)
class RICLayers(PlainLayers):
    """A stride is an equivariant down-sampling before the layer unless ``strided``."""

    strided: bool = False

    def spatial(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> nn.Module:  # fmt: skip
        conv = RICConv2d(
            in_channels, out_channels, kernel_size, stride if self.strided else 1,
            padding=0 if kernel_size == 1 else dilation, dilation=dilation, groups=groups, bias=False,
        )  # fmt: skip
        return conv if self.strided else after_downsampling(conv, stride, 2)

    def pointwise(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        conv = plain_conv(2, in_channels, out_channels, 1, stride if self.strided else 1)
        return conv if self.strided else after_downsampling(conv, stride, 2)


@register_model("ric_resnet18", "resnet", symmetry="rotations", parameters=11_173_962, paper="11.2M")
def ric_resnet18(
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 3,
    strided: bool = False,
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """A residual network whose 3x3 convolutions take their samples in rotation-invariant coordinates.

    Args:
        kernel_size: of the spatial convolutions, one or one per stage: 1 or 3.
        strided: stride the convolutions, as published, which breaks quarter turns on even maps.
        skeleton: the other options are those of :class:`ResNet`.
    """
    layers = RICLayers(per_stage("kernel_size", kernel_size, 4), stem_kernel_size, strided=strided)
    return resnet_of_depth(18, layers, **skeleton)
