"""Run the Triton kernels on tensors, with tiles by the rule or, if torch may try things out, by measurement."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ringconv._extras import needs
from ringconv.ops.gpu.blocks import Blocks, chosen, to_try
from ringconv.ops.gpu.calls import Call, Problem, basis_call, maps_call, sites_of, weight_call
from ringconv.ops.gpu.taps import Taps


def ring_conv(
    x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None, offsets: Tensor, starts: Tensor, y: Tensor
) -> None:
    """Fill y (B, O, *S'); the arguments are those of :func:`maps_call`."""

    def run(blocks: Blocks) -> None:
        start(maps_call(x, weight, basis, bias, offsets, starts, y, blocks))

    rings, c_in, c_out = weight.shape
    _run(Problem("maps", rings, c_in, c_out, sites_of(y)), run, x)


def weight_gradient(x: Tensor, dy: Tensor, basis: Tensor, taps: Taps) -> Tensor:
    """(O, C, n) float32, for x (B, C, *S), dy (B, O, *S') and the basis (n, orbits)."""

    def run(blocks: Blocks) -> Tensor:
        call, partial = weight_call(x, dy, basis, taps, blocks)
        start(call)
        return partial.sum(0).permute(1, 2, 0)

    gradient: Tensor = _run(Problem("weight", basis.shape[0], x.shape[1], dy.shape[1], sites_of(dy)), run, x)
    return gradient


def basis_gradient(x: Tensor, dy: Tensor, weight: Tensor, orbits: int, taps: Taps) -> Tensor:
    """(n, orbits) float32, for x (B, C, *S), dy (B, O, *S') and the weight (n, O, C)."""

    def run(blocks: Blocks) -> Tensor:
        call, partial = basis_call(x, dy, weight, orbits, taps, blocks)
        start(call)
        return partial.sum(0)

    gradient: Tensor = _run(Problem("basis", weight.shape[0], x.shape[1], dy.shape[1], sites_of(dy)), run, x)
    return gradient


def start(call: Call) -> None:
    """Launch on the present device. This is the first place that imports Triton."""
    from ringconv.ops.gpu import kernels

    getattr(kernels, call.kernel)[call.grid](*call.arguments, **call.options)


_MOST_SITES = 2**31 - 2**24
"""Kernels count positions in 32 bits, and the last tile and part begin before the end and reach beyond it."""

_fastest: dict[tuple[object, ...], Blocks] = {}


def _run(problem: Problem, run: Callable[[Blocks], Any], x: Tensor) -> Any:
    """Run with tiles by the rule; if cudnn may try its algorithms (``benchmark``), by the fastest of the list."""
    if problem.sites > _MOST_SITES:
        raise ValueError(f"method 'fused' counts positions in 32 bits, got {problem.sites}: use smaller batches")
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        blocks = chosen(*problem[:4])
        if torch.backends.cudnn.benchmark and x.is_cuda and not torch.cuda.is_current_stream_capturing():
            key = (*problem, x.dtype, x.device)
            if key not in _fastest:
                _fastest[key] = fastest_blocks(run, to_try(*problem[:4]))
            blocks = _fastest[key]
        return run(blocks)


def fastest_blocks(run: Callable[[Blocks], object], tried: Sequence[Blocks]) -> Blocks:
    """The one of ``tried`` that takes the least time on the present device."""
    do_bench = needs("triton.testing", "gpu").do_bench
    return min(tried, key=lambda blocks: do_bench(functools.partial(run, blocks), warmup=5, rep=20))
