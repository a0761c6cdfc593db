"""Networks whose channels are fields of several components that a turn exchanges or mixes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ringconv.models.factories import PlainLayers, Size, after_downsampling
from ringconv.rings import as_tuple


@dataclass(frozen=True)
class FieldLayers(PlainLayers):
    """Factories of a network of fields; a subclass says what they are made of.

    The network counts channels of a plain one: ``fields`` of them give about as many parameters, so that widths mean
    the same for all methods. A stride is an equivariant down-sampling before the layer unless ``strided``.
    """

    strided: bool = False

    @property
    def order(self) -> int:
        """Components of a field."""
        raise NotImplementedError

    def field_conv(self, in_fields: int, out_fields: int, kernel_size: Size, **options: Any) -> nn.Module:
        """A convolution of fields, or with ``lifting=True`` from an image."""
        raise NotImplementedError

    def fields(self, channels: int) -> int:
        """A convolution of fields has ``order`` weights for each pair of them and each tap."""
        return max(1, round(channels / math.sqrt(self.order)))

    def _conv(
        self, in_fields: int, out_fields: int, kernel_size: Size, stride: int, dilation: int = 1, **options: Any
    ) -> nn.Module:
        padding = tuple(dilation * (size // 2) for size in as_tuple(kernel_size, self.dimensions, "kernel_size"))
        conv = self.field_conv(
            in_fields, out_fields, kernel_size, stride=stride if self.strided else 1, padding=padding,
            dilation=dilation, bias=False, **options,
        )  # fmt: skip
        return conv if self.strided else after_downsampling(conv, stride, self.dimensions)

    def spatial(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> nn.Module:  # fmt: skip
        in_fields, out_fields = self.fields(in_channels), self.fields(out_channels)
        return self._conv(in_fields, out_fields, kernel_size, stride, dilation, groups=groups)

    def stem(self, in_chans: int, channels: int, stride: int = 1) -> nn.Module:
        return self._conv(in_chans, self.fields(channels), self.stem_kernel_size, stride, lifting=True)

    def pointwise(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        return self.spatial(in_channels, out_channels, 1, stride)

    def norm(self, channels: int) -> nn.Module:
        return FieldBatchNorm2d(self.fields(channels), self.order)

    def map_channels(self, channels: int) -> int:
        return self.fields(channels) * self.order


class FieldBatchNorm2d(nn.Module):
    """Batch norm with one mean, variance, scale and shift per field, shared by its components.

    Statistics of their own would tell the components apart, and a turn that exchanges them would no longer commute.

    Args:
        fields: the map is (B, fields * order, H, W), components of one field side by side.
        order: components of a field.
    """

    def __init__(self, fields: int, order: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.order = order
        self.norm = nn.BatchNorm3d(fields, eps, momentum)

    def forward(self, input: Tensor) -> Tensor:
        normed: Tensor = self.norm(split_fields(input, self.order))
        return normed.flatten(1, 2)


class FieldPool(nn.Module):
    """The largest component of every field at every pixel: (B, fields * order, *S) -> (B, fields, *S).

    A turn that exchanges components does not change it.
    """

    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, input: Tensor) -> Tensor:
        return split_fields(input, self.order).amax(2)

    def extra_repr(self) -> str:
        return f"order={self.order}"


def split_fields(x: Tensor, order: int) -> Tensor:
    """(B, fields * order, *S) -> (B, fields, order, *S)"""
    return torch.unflatten(x, 1, (-1, order))
