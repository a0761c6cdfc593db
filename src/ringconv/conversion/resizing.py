"""Resizing to the size that a strided layer would give, but symmetric about the map's centre at every size.

A strided window starts at the first pixel and drops what is left over at the end, so that its samples move when the
image is turned. Adaptive pooling to the same number of samples does not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._fx_leaf import FxLeaf
from ringconv.layers import Downsample


@dataclass(frozen=True)
class SizeRule:
    """How many samples a strided window takes along each axis: floor((L + slack) / stride) + 1."""

    stride: tuple[int, ...]
    slack: tuple[int, ...]
    """Padding of both sides - dilation (kernel - 1) - 1."""
    lead: tuple[int, ...] = ()
    """Given for ``ceil_mode``, which rounds up unless the last window would start behind the map: padding before."""

    @classmethod
    def ceil_division(cls, stride: tuple[int, ...]) -> SizeRule:
        """ceil(L / stride): what "same" padding gives."""
        return cls(stride, (-1,) * len(stride))

    def __call__(self, size: Sequence[int]) -> list[int]:
        if not self.lead:
            return [(side + a) // s + 1 for side, a, s in zip(size, self.slack, self.stride, strict=True)]
        return [
            min(-(-(side + a) // s) + 1, -(-(side + lead) // s))
            for side, a, s, lead in zip(size, self.slack, self.stride, self.lead, strict=True)
        ]

    @property
    def is_ceil_division(self) -> bool:
        if self.lead:
            return not any(self.lead) and all(a == -s for a, s in zip(self.slack, self.stride, strict=True))
        return all(a == -1 for a in self.slack)


def average_pool(rule: SizeRule) -> nn.Module:
    """Average pooling to the sizes of ``rule`` that commutes with turns and flips."""
    if rule.is_ceil_division and len(set(rule.stride)) == 1:
        return Downsample(rule.stride[0], len(rule.stride))
    return AveragePoolTo(rule)


class AveragePoolTo(FxLeaf):
    """Average pooling to the sizes of a strided layer; on sizes that the stride divides, over its disjoint windows.

    Takes (B, C, *S) or (C, *S).
    """

    def __init__(self, rule: SizeRule) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, input: Tensor) -> Tensor:
        dimensions = len(self.rule.stride)
        size = _checked_size(self.rule, input.shape[-dimensions:])
        if dimensions == 1:
            # torch.export fixes the size of adaptive_avg_pool1d, not that of the 2D one.
            return F.adaptive_avg_pool2d(input.unsqueeze(-2), (1, size[0])).squeeze(-2)
        if dimensions == 2:
            return F.adaptive_avg_pool2d(input, (size[0], size[1]))
        return F.adaptive_avg_pool3d(input, (size[0], size[1], size[2]))

    def extra_repr(self) -> str:
        return f"stride={self.rule.stride}, slack={self.rule.slack}"


def _checked_size(rule: SizeRule, size: Sequence[int]) -> list[int]:
    wanted = rule(size)
    if not torch.compiler.is_compiling() and any(side < 1 for side in wanted):
        raise ValueError(f"a map of size {tuple(size)} is too small for a layer of stride {rule.stride}")
    return wanted


class SymmetricMaxPool(FxLeaf):
    """Max pooling over disjoint windows, as torch's where they fill the map; elsewhere they overlap a little.

    torch's drops the last rows and columns that do not fill a window, which shifts the windows of a turned map.
    The output has the same size.
    """

    rule: SizeRule
    return_indices: bool

    def forward(self, input: Tensor) -> Any:
        dimensions = len(self.rule.stride)
        size = input.shape[-dimensions:]
        if all(side % step == 0 for side, step in zip(size, self.rule.stride, strict=True)):
            return super().forward(input)
        adaptive: Any = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[dimensions - 1]
        return adaptive(input, _checked_size(self.rule, size), self.return_indices)


class SymmetricMaxPool1d(SymmetricMaxPool, nn.MaxPool1d):
    __doc__ = SymmetricMaxPool.__doc__


class SymmetricMaxPool2d(SymmetricMaxPool, nn.MaxPool2d):
    __doc__ = SymmetricMaxPool.__doc__


class SymmetricMaxPool3d(SymmetricMaxPool, nn.MaxPool3d):
    __doc__ = SymmetricMaxPool.__doc__


def symmetric_max_pool(rule: SizeRule, return_indices: bool = False) -> nn.Module:
    """Max pooling over disjoint windows of side ``rule.stride``, to the sizes of ``rule``."""
    classes = (SymmetricMaxPool1d, SymmetricMaxPool2d, SymmetricMaxPool3d)
    pool = classes[len(rule.stride) - 1](rule.stride, return_indices=return_indices)
    pool.rule = rule
    return pool


class UpsampleTo(FxLeaf):
    """Linear interpolation to the size that a transposed convolution gives: (L - 1) stride + extra.

    Takes (B, C, *S) or (C, *S); ``output_size`` as in torch's transposed convolutions.
    """

    def __init__(self, stride: tuple[int, ...], extra: tuple[int, ...]) -> None:
        super().__init__()
        self.stride = stride
        self.extra = extra

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        dimensions = len(self.stride)
        if output_size is None:
            size = input.shape[-dimensions:]
            wanted = [(side - 1) * s + e for side, s, e in zip(size, self.stride, self.extra, strict=True)]
        else:
            wanted = list(output_size[-dimensions:])
        batched = input if input.dim() == dimensions + 2 else input.unsqueeze(0)
        mode = ("linear", "bilinear", "trilinear")[dimensions - 1]
        y = F.interpolate(batched, size=wanted, mode=mode, align_corners=False)
        return y if input.dim() == dimensions + 2 else y.squeeze(0)

    def extra_repr(self) -> str:
        return f"stride={self.stride}, extra={self.extra}"


_OF_THE_CONVOLUTION = frozenset(
    {"in_channels", "out_channels", "kernel_size", "padding", "dilation", "groups", "padding_mode", "weight", "bias"}
)


class ResizedConv(nn.Sequential):
    """A resizing and a convolution of stride 1, in the place of a strided one.

    What code may ask of a convolution (``weight``, ``in_channels``, ...) is answered by the one inside; ``stride`` is
    that of the layer it replaces.
    """

    stride: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is not an ordinary attribute.
        if name in _OF_THE_CONVOLUTION and "_modules" in self.__dict__:
            return getattr(self._modules["conv"], name)
        return super().__getattr__(name)


class UpsampledConv(ResizedConv):
    """Up-sampling and a convolution of stride 1, in the place of a transposed one."""

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        result: Tensor = self.conv(self.up(input, output_size))
        return result


def downsampled_conv(down: nn.Module, conv: nn.Module, stride: tuple[int, ...]) -> ResizedConv:
    """Named as in the networks of :mod:`ringconv.models`, so that a converted network has the same parts."""
    built = ResizedConv(OrderedDict(down=down, conv=conv))
    built.stride = stride
    return built


def upsampled_conv(up: UpsampleTo, conv: nn.Module) -> UpsampledConv:
    built = UpsampledConv(OrderedDict(up=up, conv=conv))
    built.stride = up.stride
    return built
