"""What each Triton kernel is called with: described first, so that it can be launched, timed or only compiled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ringconv.ops.gpu.blocks import Blocks, Task
from ringconv.ops.gpu.taps import Taps

_PROGRAMS = 512
"""The weight's gradient sums over all sites: they are cut into parts until there are so many programs, which is about
four for every multiprocessor of a large GPU. Always the same number, so that sums do not depend on the GPU."""


class Call(NamedTuple):
    """A kernel of ``kernels.py``, its grid and its arguments."""

    kernel: str
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class Problem(NamedTuple):
    """What decides the tiles: a task and its sizes."""

    task: Task
    rings: int
    c_in: int
    c_out: int
    sites: int


def sites_of(maps: Tensor) -> int:
    """Positions of (B, C, *S), over all samples."""
    return maps.shape[0] * math.prod(maps.shape[2:])


def maps_call(
    x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None, offsets: Tensor, starts: Tensor, y: Tensor,
    blocks: Blocks,
) -> Call:  # fmt: skip
    """Fills y (B, O, *S') with bias + sum_i W_i (G_i * x).

    Args:
        x: (B, C, *S).
        weight: (n, C, O), contiguous.
        basis: (n, orbits), float32, contiguous.
        offsets: (taps, 3) from a position of y to those of x.
    """
    rings, c_in, c_out = weight.shape
    grid = (cut(sites_of(y), blocks.sites), cut(c_out, blocks.out_channels))
    arguments = (
        x, y, weight, bias, basis, offsets, starts, basis.shape[1], *_described(x), *_described(y),
        sites_of(y), c_in, c_out,
    )  # fmt: skip
    return Call("ring_conv_kernel", grid, arguments, _options(x, rings, blocks))


def weight_call(x: Tensor, dy: Tensor, basis: Tensor, taps: Taps, blocks: Blocks) -> tuple[Call, Tensor]:
    """dW_i = dy (G_i * x)^T; the sum of the second result (parts, n, O, C) over its parts, float32."""
    rings, c_in, c_out, sites = basis.shape[0], x.shape[1], dy.shape[1], sites_of(dy)
    tiles = cut(c_out, blocks.out_channels), cut(c_in, blocks.in_channels)
    # A part is a whole number of tiles.
    per_part = blocks.sites * cut(cut(sites, blocks.sites), cut(_PROGRAMS, math.prod(tiles)))
    parts = cut(sites, per_part)
    partial = torch.empty((parts, rings, c_out, c_in), dtype=torch.float32, device=x.device)
    arguments = (
        x, dy, partial, basis, taps.offsets, taps.starts, basis.shape[1], *_described(x), *_described(dy),
        sites, per_part, c_in, c_out,
    )  # fmt: skip
    return Call("weight_gradient_kernel", (*tiles, parts), arguments, _options(x, rings, blocks)), partial


def basis_call(x: Tensor, dy: Tensor, weight: Tensor, orbits: int, taps: Taps, blocks: Blocks) -> tuple[Call, Tensor]:
    """dG_ij = <W_i^T dy, sum of x over orbit j>; the sum of the second result (programs, n, orbits), float32.

    The weight is (n, O, C), contiguous.
    """
    rings, c_out, c_in = weight.shape
    sites = sites_of(dy)
    grid = (cut(sites, blocks.sites), cut(c_in, blocks.in_channels))
    partial = torch.empty((math.prod(grid), rings, orbits), dtype=torch.float32, device=x.device)
    arguments = (
        x, dy, partial, weight, taps.offsets, taps.starts, orbits, *_described(x), *_described(dy),
        sites, c_in, c_out,
    )  # fmt: skip
    return Call("basis_gradient_kernel", grid, arguments, _options(x, rings, blocks)), partial


def cut(total: int, size: int) -> int:
    """Number of blocks of ``size`` that cover ``total``."""
    return -(-total // size)


def _described(maps: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes (D, H, W) and strides (B, C, D, H, W) of (B, C, *S); axes that are not there have size 1."""
    missing = 5 - maps.dim()
    return (1,) * missing + tuple(maps.shape[2:]), (*maps.stride()[:2], *(0,) * missing, *maps.stride()[2:])


def _options(x: Tensor, rings: int, blocks: Blocks) -> dict[str, Any]:
    return {
        "RINGS": rings,
        "VOLUME": x.dim() == 5,
        "PRECISION": "tf32" if _tf32_allowed() else "ieee",
        "WIDEN": x.device.type == "cpu" and x.dtype == torch.bfloat16,
        "BLOCK_P": blocks.sites,
        "BLOCK_C": blocks.in_channels,
        "BLOCK_O": blocks.out_channels,
        "num_warps": blocks.warps,
        # Loads ahead of their loop would take shared memory for every stage; the ring pass hides the weights' latency.
        "num_stages": 1,
    }


def _tf32_allowed() -> bool:
    """As torch's convolutions have it: on by default, and a matter for float32 only."""
    settings = getattr(torch.backends.cudnn, "conv", None)
    if settings is not None and hasattr(settings, "fp32_precision"):
        return bool(settings.fp32_precision == "tf32")
    return bool(torch.backends.cudnn.allow_tf32)
