"""Pooling to a size that follows the input's, out of steps that every exporter takes.

torch's adaptive pooling has no counterpart in ONNX, and torch.export and AOTInductor fix its sizes. The windows are the
same here: sample i covers floor(i L / n) to ceil((i + 1) L / n), so the values are equal at every size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

_aten: Any = torch.ops.aten
_AVERAGES = (
    _aten.adaptive_avg_pool1d.default,
    _aten.adaptive_avg_pool2d.default,
    _aten.adaptive_avg_pool3d.default,
)
_MAXIMA = (_aten.adaptive_max_pool1d.default, _aten.adaptive_max_pool2d.default, _aten.adaptive_max_pool3d.default)
_INDICES_REFUSED = "max pooling that returns the indices of its maxima cannot be exported"


def for_free_sizes(model: nn.Module, average: bool = True) -> nn.Module:
    """Put the pooling of this module in the place of torch's, in the graphs of a folded model; in place.

    Args:
        average: also average pooling, which torch.export can do itself, and ONNX can where the size is fixed.
    """
    replacements: dict[Any, Callable[..., Tensor]] = {
        F.adaptive_max_pool1d: max_pool_to,
        F.adaptive_max_pool2d: max_pool_to,
        F.adaptive_max_pool3d: max_pool_to,
    }
    if average:
        replacements |= {F.adaptive_avg_pool2d: average_pool_to, F.adaptive_avg_pool3d: average_pool_to}
    for module in model.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                # A size that follows from nothing stands in graphs that are not ours, and torch exports it.
                if len(node.args) > 1 and _is_computed(node.args[1]):
                    node.target = replacements.get(node.target, node.target)
            module.recompile()
    return model


def _is_computed(size: Any) -> bool:
    return any(isinstance(part, fx.Node) for part in (size if isinstance(size, (list, tuple)) else (size,)))


def written_out(program: ExportedProgram) -> ExportedProgram:
    """The pooling of this module in the place of what is left of torch's in a program.

    That is pooling in forwards of other libraries, and pooling to a fixed size: other runtimes take its windows from
    the size of the example. The mean of all positions can stay.
    """
    nodes = [node for node in program.graph.nodes if node.target in _AVERAGES + _MAXIMA]
    if all(node.target in _AVERAGES and set(node.args[1]) == {1} for node in nodes):
        return program
    for node in nodes:
        if node.target in _MAXIMA and any(part.args[1] == 1 and part.users for part in node.users):
            raise ValueError(_INDICES_REFUSED)
    table: dict[Any, Callable[..., Any]] = dict.fromkeys(_AVERAGES, average_pool_to) | dict.fromkeys(_MAXIMA, _max_pool)
    written: ExportedProgram = program.run_decompositions(table)
    return written


def _max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """With indices that nobody asks for."""
    values = max_pool_to(x, size)
    return values, torch.zeros_like(values, dtype=torch.int64)


def average_pool_to(x: Tensor, size: Sequence[int]) -> Tensor:
    """Adaptive average pooling of the last axes of x (..., *S) to ``size``: a product with a matrix for each axis."""
    for axis, samples in zip(range(-len(size), 0), size, strict=True):
        if isinstance(samples, int) and samples == 1:
            x = x.mean(axis, keepdim=True)
            continue
        after_start, before_end = _windows(x, axis, samples)
        inside = (after_start & before_end).to(x.dtype)
        averaging = inside / inside.sum(1, keepdim=True)
        x = x @ averaging.t() if axis == -1 else (averaging @ x.transpose(axis, -2)).transpose(axis, -2)
    return x


def max_pool_to(x: Tensor, size: Sequence[int], return_indices: bool = False) -> Tensor:
    """Adaptive max pooling of the last axes of x (..., *S) to ``size``: the maximum over the positions of a window."""
    if return_indices:
        raise ValueError(_INDICES_REFUSED)
    for axis, samples in zip(range(-len(size), 0), size, strict=True):
        after_start, before_end = _windows(x, axis, samples)
        if isinstance(samples, int) and not isinstance(x.shape[axis], int):
            # A fixed number of windows grow with the map: how long they get cannot be told.
            others = [~inside.view([-1] + [1] * (-axis - 1)) for inside in (after_start & before_end).unbind()]
            x = torch.cat([x.masked_fill(other, -math.inf).amax(axis, keepdim=True) for other in others], axis)
            continue
        first, last = (~after_start).sum(1), before_end.sum(1) - 1
        # A window covers less than two steps; positions behind its last are taken to be the last one again.
        most = 2 * -(-_example(x.shape[axis]) // _example(samples))
        taps = [x.index_select(axis, torch.minimum(first + tap, last)) for tap in range(most)]
        x = taps[0]
        for tap in taps[1:]:
            x = torch.maximum(x, tap)
    return x


def _windows(x: Tensor, axis: int, samples: int) -> tuple[Tensor, Tensor]:
    """Which positions are not before the start of each sample's window, and which are before its end: (n, L) each.

    Multiplied out, since compilers stumble over a division by a size that they do not know.
    """
    side = x.shape[axis]
    sample = torch.arange(samples, device=x.device).unsqueeze(1)
    position = torch.arange(side, device=x.device)
    return (position + 1) * samples > sample * side, position * samples < (sample + 1) * side


def _example(side: Any) -> int:
    """The size that a symbolic one has in the example that is traced."""
    return int(side) if isinstance(side, int) else int(side.node.hint)
