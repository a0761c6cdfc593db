"""The lengths of the harmonics and their mixing in one native pass, as torch operators.

Neither the responses nor the lengths are stored: the way back computes them again. A second derivative, which is rare,
is taken through torch's own operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ringconv.ops import native
from ringconv.ops.fused import DTYPES, backward_fake, dense_layout, empty_maps, plain
from ringconv.ops.harmonic import harmonic_conv
from ringconv.ops.native import output_size
from ringconv.ops.options import ConvOptions, pad_input

_Triple = tuple[Tensor, Tensor, Tensor]


def fused_harmonic_conv(
    x: Tensor, weight: Tensor, pairs: Tensor, half: Tensor, odd: Sequence[bool], options: ConvOptions
) -> Tensor:
    """As :func:`ringconv.ops.harmonic.harmonic_conv`, for kernels that are even or odd.

    Under autocast, x and weight are cast as for a torch convolution; the kernels are not.

    Args:
        x: (B, C, H, W), float32 or bfloat16, on the CPU.
        weight: (O, C / groups, Q), as x; not one channel per group.
        pairs: (Q, 2, *K).
        half: (taps / 2,) int64: of each two opposite taps that are not zero, one; and the centre.
        odd: for each pair whether it changes its sign from a tap to the opposite one.

    Returns:
        (B, O, H', W'), in the memory format of x
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        x, weight = x.to(dtype), weight.to(dtype)
    if options.padding_mode != "zeros":
        x = pad_input(x, options)[0].to(x.dtype)  # under autocast, some paddings return float32
        options = options._replace(padding=((0, 0),) * len(options.padding), padding_mode="zeros")
    taps = pairs.flatten(2)
    # The centre is its own opposite, and would count twice.
    share = torch.where(half == taps.shape[-1] - 1 - half, 0.5, 1.0).to(taps.dtype)
    basis = (taps.index_select(-1, half) * share).transpose(1, 2)
    padding = [side for pair in options.padding for side in pair]
    y: Tensor = torch.ops.ringconv.harmonic_conv(
        x, weight, basis, half, list(odd), list(pairs.shape[2:]), list(options.stride), padding,
        list(options.dilation), options.groups,
    )  # fmt: skip
    return y


_GEOMETRY = "Tensor half, bool[] odd, int[] kernel_size, int[] stride, int[] padding, int[] dilation, int groups"
FORWARD = "ringconv::harmonic_conv"
BACKWARD = "ringconv::harmonic_conv_backward"
torch.library.define(FORWARD, f"(Tensor x, Tensor weight, Tensor basis, {_GEOMETRY}) -> Tensor")
torch.library.define(
    BACKWARD,
    f"(Tensor dy, Tensor x, Tensor weight, Tensor basis, {_GEOMETRY}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
)

# ---- on the CPU ----


@torch.library.impl(FORWARD, "cpu")
def _harmonic_conv(
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    half: Tensor,
    odd: list[bool],
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    _check(x, weight, basis, half, odd, kernel_size, groups)
    x = dense_layout(x)
    geometry = _geometry(x, basis, half, kernel_size, stride, padding, dilation)
    y = empty_maps(x, weight.shape[0], geometry.target)
    native.harmonics_forward(geometry, x, plain(weight), plain(basis), groups, tuple(odd), y)
    return y


@torch.library.impl(BACKWARD, "cpu")
def _harmonic_conv_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    half: Tensor,
    odd: list[bool],
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output_mask: list[bool],
) -> _Triple:
    _check(x, weight, basis, half, odd, kernel_size, groups)
    due = (x.shape[0], weight.shape[0], *output_size(x.shape[2:], kernel_size, stride, padding, dilation))
    if tuple(dy.shape) != due:
        raise ValueError(f"dy must be {due}, got {tuple(dy.shape)}")
    x, dy = dense_layout(x), dense_layout(dy.to(x.dtype))
    geometry = _geometry(x, basis, half, kernel_size, stride, padding, dilation)
    dx = empty_maps(x, x.shape[1], x.shape[2:]) if output_mask[0] else None
    dweight = torch.empty(weight.shape, dtype=torch.float32) if output_mask[1] else None
    dbasis = torch.empty(basis.shape, dtype=torch.float32) if output_mask[2] else None
    if any(output_mask):
        native.harmonics_backward(geometry, dy, x, plain(weight), plain(basis), groups, tuple(odd), dx, dweight, dbasis)
    return (
        x.new_empty(0) if dx is None else dx,
        weight.new_empty(0) if dweight is None else dweight.to(weight.dtype),
        basis.new_empty(0) if dbasis is None else dbasis.to(basis.dtype),
    )


def _check(
    x: Tensor, weight: Tensor, basis: Tensor, half: Tensor, odd: list[bool], kernel_size: list[int], groups: int
) -> None:
    """What could make the kernel read beyond a tensor, or the types it does not have."""
    if x.dtype not in DTYPES or weight.dtype != x.dtype:
        allowed = " or ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(
            f"the compiled harmonics need x and weight of one type, {allowed}; got {x.dtype}, {weight.dtype}"
        )
    if x.dim() != len(kernel_size) + 2 or min(x.shape[2:]) < 1:
        raise ValueError(f"x must be (B, C, *S) with {len(kernel_size)} axes that are not empty, got {tuple(x.shape)}")
    out_channels, pairs = weight.shape[0], basis.shape[0]
    if groups < 1 or x.shape[1] % groups or out_channels % groups:
        raise ValueError(f"groups must divide the channels {x.shape[1]} and {out_channels}, got {groups}")
    if tuple(weight.shape) != (out_channels, x.shape[1] // groups, pairs):
        raise ValueError(f"weight must be (O, {x.shape[1] // groups}, {pairs}), got {tuple(weight.shape)}")
    if tuple(basis.shape) != (pairs, len(half), 2) or len(odd) != pairs:
        raise ValueError(f"basis must be ({len(odd)}, {len(half)}, 2), got {tuple(basis.shape)}")
    taps = math.prod(kernel_size)
    if half.dtype != torch.int64 or len(half) == 0 or int(half.min()) < 0 or int(half.max()) >= taps:
        raise ValueError(f"half must be int64 numbers of taps, 0 to {taps - 1}")


def _geometry(
    x: Tensor, basis: Tensor, half: Tensor, kernel_size: list[int], stride: list[int], padding: list[int],
    dilation: list[int],
) -> native.Geometry:  # fmt: skip
    return native.Geometry(
        half.contiguous().numpy().tobytes(),
        2 * len(half),
        basis.shape[0],
        tuple(x.shape[2:]),
        tuple(kernel_size),
        tuple(stride),
        tuple(padding),
        tuple(dilation),
        of_harmonics=True,
    )


# ---- for tracing ----


@torch.library.register_fake(FORWARD)  # type: ignore[untyped-decorator]
def _harmonic_conv_fake(
    x: Tensor, weight: Tensor, basis: Tensor, half: Tensor, odd: list[bool], kernel_size: list[int],
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    return empty_maps(x, weight.shape[0], output_size(x.shape[2:], kernel_size, stride, padding, dilation))


torch.library.register_fake(BACKWARD, backward_fake)


# ---- derivatives ----


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, odd, kernel_size, stride, padding, dilation, groups = inputs
    ctx.save_for_backward(*tensors)
    ctx.geometry = (odd, kernel_size, stride, padding, dilation, groups)


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, basis, half = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:3])
    nothing = [None] * (1 + len(ctx.geometry))
    if torch.is_grad_enabled():  # somebody wants to differentiate this once more
        found = iter(_differentiable_gradients(dy, (x, weight, basis), half, ctx.geometry, wanted))
        return *[next(found) if want else None for want in wanted], *nothing
    gradients = cast(
        _Triple, torch.ops.ringconv.harmonic_conv_backward(dy, x, weight, basis, half, *ctx.geometry, wanted)
    )
    return *[g if want else None for g, want in zip(gradients, wanted, strict=True)], *nothing


def _differentiable_gradients(
    dy: Tensor, inputs: _Triple, half: Tensor, geometry: tuple[Any, ...], wanted: list[bool]
) -> tuple[Tensor, ...]:
    # Aliases: x may itself depend on the weight, of which autograd counts that path by itself.
    inputs = cast(_Triple, tuple(tensor.view_as(tensor) for tensor in inputs))
    y = through_torch(*inputs, half, *geometry)
    chosen = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    return torch.autograd.grad(y, chosen, dy.to(y.dtype), create_graph=True)


def through_torch(
    x: Tensor, weight: Tensor, basis: Tensor, half: Tensor, odd: list[bool], kernel_size: list[int],
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    """What the operator computes, by torch's."""
    halves = basis.transpose(1, 2)
    opposite = halves * torch.where(torch.tensor(odd), -1.0, 1.0).to(halves)[:, None, None]
    taps = halves.new_zeros(*halves.shape[:2], math.prod(kernel_size))
    taps = taps.index_add(-1, half, halves).index_add(-1, taps.shape[-1] - 1 - half, opposite)
    pairs = taps.reshape(*taps.shape[:2], *kernel_size).to(x.dtype)
    sides = tuple(zip(padding[::2], padding[1::2], strict=True))
    options = ConvOptions(tuple(stride), sides, tuple(dilation), groups, "zeros")
    return harmonic_conv(x, weight, pairs, options)


torch.library.register_autograd(FORWARD, _gradients, setup_context=_setup)

# ---- operation counts ----


def _operations(x: Tensor, weight: Tensor, basis: Tensor, sites: int) -> tuple[int, int]:
    """Of the responses to all pairs, and of one product that mixes the lengths."""
    pairs, half, _ = basis.shape
    responses = 2 * x.shape[0] * sites * x.shape[1] * pairs
    return 2 * responses * 2 * half, responses * (weight.shape[0] * weight.shape[1] // x.shape[1])


@register_flop_formula(torch.ops.ringconv.harmonic_conv, get_raw=True)
def _forward_flops(x: Tensor, weight: Tensor, basis: Tensor, *_: Any, out_val: Tensor) -> int:
    return sum(_operations(x, weight, basis, math.prod(out_val.shape[2:])))


@register_flop_formula(torch.ops.ringconv.harmonic_conv_backward, get_raw=True)
def _backward_flops(dy: Tensor, x: Tensor, weight: Tensor, basis: Tensor, *rest: Any, out_val: _Triple) -> int:
    """The responses once more, a pass each for input and basis; a product for the lengths, and one for the weight."""
    passes, product = _operations(x, weight, basis, math.prod(dy.shape[2:]))
    for_x, for_weight, for_basis = rest[-1]
    return passes * (1 + int(for_x) + int(for_basis)) + product * (1 + int(for_weight))
