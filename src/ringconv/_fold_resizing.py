"""Resizing written so that torch.fx can trace it at every size: what fold() puts in the place of ringconv's modules.

The modules of the library look at the sizes they are given, to check them or to take a short cut. Here sizes are only
calculated with, and nothing below 0 is divided: ONNX rounds towards 0 where Python rounds down. An optional size is the
empty tuple, not None: after ``(default + given)[-d:]`` no question is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv.conversion.resizing import AveragePoolTo, SizeRule, SymmetricMaxPool, UpsampledConv, UpsampleTo
from ringconv.pooling import Downsample, Upsample

_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}
_AVERAGE_POOLS: dict[int, Any] = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
_MAX_POOLS: dict[int, Any] = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def traceable(module: nn.Module, dimensions: int | None) -> nn.Module:
    """``module``, or its equal that torch.fx can trace.

    Args:
        dimensions: axes of the model's maps, if known.
    """
    if isinstance(module, Upsample) and dimensions is not None:
        return _Upsample((module.factor,) * dimensions, (module.factor,) * dimensions)
    if isinstance(module, Downsample) and module.factor > 1:
        pool = _AveragePool(SizeRule.ceil_division((module.factor,) * module.dimensions))
        return pool if module.lowpass is None else nn.Sequential(module.lowpass, pool).train(module.training)
    if isinstance(module, UpsampleTo):
        return _Interpolation(module.stride, module.extra)
    if isinstance(module, UpsampledConv):
        return _Upsampled(module.up, module.conv)
    if isinstance(module, AveragePoolTo):
        return _AveragePool(module.rule)
    if isinstance(module, SymmetricMaxPool):
        return _MaxPool(module.rule, module.return_indices)
    return module


class _Interpolation(nn.Module):
    """Linear interpolation to (L - 1) stride + extra, or to the last axes of a given size."""

    def __init__(self, stride: tuple[int, ...], extra: tuple[int, ...]) -> None:
        super().__init__()
        self.stride = stride
        self.extra = extra

    def forward(self, input: Tensor, output_size: Sequence[int] = ()) -> Tensor:
        d = len(self.stride)
        last = _last_sides(input, d)
        wanted = tuple((side - 1) * s + e for side, s, e in zip(last, self.stride, self.extra, strict=True))
        size = (wanted + _as_tuple(input, output_size))[-d:]
        batched = input.reshape(-1, input.shape[-d - 1], *last)
        y = F.interpolate(batched, size, mode=_MODES[d], align_corners=False)
        return y.reshape(input.shape[:-d] + y.shape[-d:])


class _Upsample(_Interpolation):
    """With the argument's name of :class:`ringconv.Upsample`."""

    def forward(self, input: Tensor, size: Sequence[int] = ()) -> Tensor:
        return super().forward(input, size)


def _as_tuple(input: Tensor, size: Sequence[int]) -> tuple[int, ...]:
    """A list or a tuple, as torch takes both, by operators: a graph could not be traced again through tuple()."""
    return input.new_zeros(()).expand(size).shape


class _Upsampled(nn.Module):
    def __init__(self, up: nn.Module, conv: nn.Module) -> None:
        super().__init__()
        self.up = up
        self.conv = conv

    def forward(self, input: Tensor, output_size: Sequence[int] = ()) -> Any:
        return self.conv(self.up(input, output_size))


class _AveragePool(nn.Module):
    def __init__(self, rule: SizeRule) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, input: Tensor) -> Tensor:
        d = len(self.rule.stride)
        size = _sizes(self.rule, _last_sides(input, d))
        if d == 1:
            # torch.export fixes the size of adaptive_avg_pool1d, not that of the 2D one.
            return F.adaptive_avg_pool2d(input.unsqueeze(-2), (1, size[0])).squeeze(-2)
        pooled: Tensor = _AVERAGE_POOLS[d](input, size)
        return pooled


class _MaxPool(nn.Module):
    def __init__(self, rule: SizeRule, return_indices: bool) -> None:
        super().__init__()
        self.rule = rule
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        d = len(self.rule.stride)
        return _MAX_POOLS[d](input, _sizes(self.rule, _last_sides(input, d)), self.return_indices)


def _last_sides(input: Tensor, dimensions: int) -> list[int]:
    return [input.shape[axis] for axis in range(-dimensions, 0)]


def _sizes(rule: SizeRule, sides: list[int]) -> list[int]:
    """As the rule has them, but for comparisons and negative numbers."""
    if not rule.lead:
        return rule(sides)
    smaller: Any = torch.sym_min
    rounded_up = [(side + a + s - 1) // s + 1 for side, a, s in zip(sides, rule.slack, rule.stride, strict=True)]
    most = [(side + lead + s - 1) // s for side, lead, s in zip(sides, rule.lead, rule.stride, strict=True)]
    return [smaller(a, b) for a, b in zip(rounded_up, most, strict=True)]
