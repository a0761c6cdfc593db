"""The ring convolution in one native pass, as torch operators.

It is linear in each of the input, the weight and the basis. So the derivatives of its backward pass are sums of the
same two operators, and differentiation works to all orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.flop_counter import register_flop_formula

from ringconv.ops import native
from ringconv.ops.native import available, output_size, why_unavailable
from ringconv.ops.options import ConvOptions

__all__ = ["DTYPES", "available", "fused_conv", "why_unavailable"]

DTYPES = (torch.float32, torch.bfloat16)
"""What x and weight may be. Sums are float32 in either case, and the basis is used as float32."""

_ROWS = torch.contiguous_format

_Triple = tuple[Tensor, Tensor, Tensor]
_OptionalTriple = tuple[Tensor | None, Tensor | None, Tensor | None]


def fused_conv(
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    bias: Tensor | None,
    orbit_of_tap: Tensor,
    kernel_size: Sequence[int],
    options: ConvOptions,
) -> Tensor:
    """Convolve with the kernel sum_i weight[..., i] basis[i, orbit_of_tap] without building it or the ring responses.

    Under autocast, x, weight and bias are cast as for a torch convolution; the basis is not.

    Args:
        x: (B, C, *S), float32 or bfloat16, on the CPU.
        weight: (O, C / groups, n), as x.
        basis: (n, orbits), one value per orbit of taps.
        bias: (O,) or None, as x.
        orbit_of_tap: (taps,) int64, in C order; ``orbits`` for a tap that is zero. Closed under flips of every axis.
        kernel_size: taps per axis.

    Returns:
        (B, O, *S'), in the memory format of x
    """
    device = x.device.type
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    padding = [side for pair in options.padding for side in pair]
    return _forward(
        x, weight, basis, bias, orbit_of_tap, list(kernel_size), list(options.stride), padding, list(options.dilation),
        options.groups, options.padding_mode,
    )  # fmt: skip


_GEOMETRY = (
    "Tensor orbit_of_tap, int[] kernel_size, int[] stride, int[] padding, int[] dilation, int groups, str padding_mode"
)
FORWARD = "ringconv::ring_conv"
BACKWARD = "ringconv::ring_conv_backward"
torch.library.define(FORWARD, f"(Tensor x, Tensor weight, Tensor basis, Tensor? bias, {_GEOMETRY}) -> Tensor")
torch.library.define(
    BACKWARD,
    f"(Tensor dy, Tensor x, Tensor weight, Tensor basis, {_GEOMETRY}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
)

# ---- on the CPU ----


@torch.library.impl(FORWARD, "cpu")
def _ring_conv(
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    bias: Tensor | None,
    orbit_of_tap: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    padding_mode: str,
) -> Tensor:
    check(x, weight, basis, bias, orbit_of_tap, kernel_size, groups, DTYPES)
    x = dense_layout(x)
    geometry = _geometry(x, weight, basis, orbit_of_tap, kernel_size, stride, padding, dilation, padding_mode)
    y = empty_maps(x, weight.shape[0], geometry.target)
    native.forward(geometry, x, plain(weight), plain(basis), None if bias is None else plain(bias), groups, y)
    return y


@torch.library.impl(BACKWARD, "cpu")
def _ring_conv_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    orbit_of_tap: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    padding_mode: str,
    output_mask: list[bool],
) -> _Triple:
    check(x, weight, basis, None, orbit_of_tap, kernel_size, groups, DTYPES)
    due = (x.shape[0], weight.shape[0], *output_size(x.shape[2:], kernel_size, stride, padding, dilation))
    if tuple(dy.shape) != due:
        raise ValueError(f"dy must be {due}, got {tuple(dy.shape)}")
    x, dy = dense_layout(x), dense_layout(dy.to(x.dtype))
    memory_format = _memory_format(x)
    # The kernel knows the adjoint of zero padding. The others are applied to x first, and their adjoint to dx last.
    copied_from: list[Tensor] = []
    if padding_mode != "zeros":
        sides = zip(x.shape[2:], padding[::2], padding[1::2], strict=True)
        copied_from = [torch.from_numpy(native.padded_index(*side, padding_mode)) for side in sides]
        padding = [0] * len(padding)
    sizes = x.shape[2:]
    for axis, index in enumerate(copied_from):
        x = x.index_select(axis + 2, index)
    x = dense_layout(x)
    geometry = _geometry(x, weight, basis, orbit_of_tap, kernel_size, stride, padding, dilation, "zeros")
    dx = empty_maps(x, x.shape[1], x.shape[2:]) if output_mask[0] else None
    dweight = torch.empty_like(weight, dtype=torch.float32, memory_format=_ROWS) if output_mask[1] else None
    dbasis = torch.empty_like(basis, dtype=torch.float32, memory_format=_ROWS) if output_mask[2] else None
    if any(output_mask):
        native.backward(geometry, dy, x, plain(weight), plain(basis), groups, dx, dweight, dbasis)
    if dx is not None:
        for axis, index in enumerate(copied_from):
            shape = (*dx.shape[: axis + 2], sizes[axis], *dx.shape[axis + 3 :])
            dx = dx.new_zeros(shape).index_add_(axis + 2, index, dx)
        dx = dx.contiguous(memory_format=memory_format)
    return (
        x.new_empty(0) if dx is None else dx,
        weight.new_empty(0) if dweight is None else dweight.to(weight.dtype),
        basis.new_empty(0) if dbasis is None else dbasis.to(basis.dtype),
    )


def check(
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    bias: Tensor | None,
    orbit_of_tap: Tensor,
    kernel_size: list[int],
    groups: int,
    dtypes: Sequence[torch.dtype],
) -> None:
    """What could make a kernel read beyond a tensor, or the types it does not have."""
    for name, tensor in {"x": x, "weight": weight, "bias": bias}.items():
        if tensor is not None and (tensor.dtype not in dtypes or tensor.dtype != x.dtype):
            allowed = " or ".join(str(dtype) for dtype in dtypes)
            raise TypeError(f"method 'fused' needs x, weight and bias of one type, {allowed}; {name} is {tensor.dtype}")
    out_channels, rings = weight.shape[0], basis.shape[0]
    if x.dim() != len(kernel_size) + 2 or not 1 <= len(kernel_size) <= 3:
        raise ValueError(f"x must be (B, C, *S) with {len(kernel_size)} spatial axes, got {tuple(x.shape)}")
    if min(x.shape[2:]) < 1:
        raise ValueError(f"x must have no empty spatial axis, got {tuple(x.shape)}")
    if groups < 1 or x.shape[1] % groups or out_channels % groups:
        raise ValueError(f"groups must divide the channels {x.shape[1]} and {out_channels}, got {groups}")
    if tuple(weight.shape) != (out_channels, x.shape[1] // groups, rings):
        raise ValueError(
            f"weight must be (O, {x.shape[1] // groups}, {rings}) for x {tuple(x.shape)}, basis {tuple(basis.shape)}"
            f" and {groups} groups, got {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (out_channels,):
        raise ValueError(f"bias must be ({out_channels},), got {tuple(bias.shape)}")
    if orbit_of_tap.dtype != torch.int64 or orbit_of_tap.numel() != math.prod(kernel_size):
        raise ValueError(f"orbit_of_tap must be int64 with one value for each tap of {tuple(kernel_size)}")


def _geometry(
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    orbit_of_tap: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    padding_mode: str,
) -> native.Geometry:
    return native.Geometry(
        orbit_of_tap.contiguous().numpy().tobytes(),
        basis.shape[1],
        basis.shape[0],
        tuple(x.shape[2:]),
        tuple(kernel_size),
        tuple(stride),
        tuple(padding),
        tuple(dilation),
        padding_mode,
    )


def plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32).contiguous()


def _memory_format(x: Tensor) -> torch.memory_format:
    """Channels last if x (B, C, *S) is that and nothing else."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is not None and not x.is_contiguous() and x.is_contiguous(memory_format=last):
        return last
    return torch.contiguous_format


def dense_layout(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=_memory_format(x))


def empty_maps(like: Tensor, channels: int, sizes: Sequence[int]) -> Tensor:
    return torch.empty(
        (like.shape[0], channels, *sizes), dtype=like.dtype, device=like.device, memory_format=_memory_format(like)
    )


# ---- for tracing ----


@torch.library.register_fake(FORWARD)  # type: ignore[untyped-decorator]
def _ring_conv_fake(
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    bias: Tensor | None,
    orbit_of_tap: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    padding_mode: str,
) -> Tensor:
    sizes = output_size(x.shape[2:], kernel_size, stride, padding, dilation)
    return empty_maps(x, weight.shape[0], sizes)


@torch.library.register_fake(BACKWARD)  # type: ignore[untyped-decorator]
def backward_fake(dy: Tensor, x: Tensor, weight: Tensor, basis: Tensor, *geometry: Any) -> _Triple:
    """Gradients of the shapes that they will have; those that are not wanted are empty."""
    output_mask = geometry[-1]
    return (
        empty_maps(x, x.shape[1], x.shape[2:]) if output_mask[0] else x.new_empty(0),
        torch.empty(weight.shape, dtype=weight.dtype, device=x.device) if output_mask[1] else weight.new_empty(0),
        torch.empty(basis.shape, dtype=basis.dtype, device=x.device) if output_mask[2] else basis.new_empty(0),
    )


# ---- derivatives ----


def _forward_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, basis, _, orbit_of_tap, *geometry = inputs
    ctx.save_for_backward(x, weight, basis, orbit_of_tap)
    ctx.geometry = geometry


def _forward_gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, basis, orbit_of_tap = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:3])
    gradients = _gradients(dy, x, weight, basis, (orbit_of_tap, *ctx.geometry), wanted)
    dbias = dy.sum((0, *range(2, dy.dim()))) if ctx.needs_input_grad[3] else None
    return *gradients, dbias, None, *[None] * len(ctx.geometry)


def _gradients(
    dy: Tensor, x: Tensor, weight: Tensor, basis: Tensor, geometry: tuple[Any, ...], wanted: list[bool]
) -> _OptionalTriple:
    """Gradients of x, weight and basis; None where not wanted."""
    if not any(wanted):
        return None, None, None
    found = _backward(dy, x, weight, basis, *geometry, wanted)
    return cast(_OptionalTriple, tuple(g if want else None for g, want in zip(found, wanted, strict=True)))


def _backward_setup(ctx: Any, inputs: tuple[Any, ...], output: _Triple) -> None:
    *tensors, output_mask = inputs
    ctx.save_for_backward(*tensors[:5])
    ctx.geometry = tensors[5:]
    ctx.output_mask = output_mask


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _backward_gradients(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
    """With L the forward operator: each of its three arguments in turn is replaced by its cotangent."""
    dy, x, weight, basis, orbit_of_tap = ctx.saved_tensors
    geometry = (orbit_of_tap, *ctx.geometry)
    needs_dy, *needs = ctx.needs_input_grad[:4]
    total: list[Tensor | None] = [None] * 4
    for slot, cotangent in enumerate(cotangents):
        if cotangent is None or not ctx.output_mask[slot]:
            continue
        arguments = [x, weight, basis]
        arguments[slot] = cotangent
        terms: list[Tensor | None] = [None]
        if needs_dy:
            terms = [_forward(*arguments, None, *geometry)]
        wanted = [need and other != slot for other, need in enumerate(needs)]
        terms += _gradients(dy, arguments[0], arguments[1], arguments[2], geometry, wanted)
        total = [_sum(old, new) for old, new in zip(total, terms, strict=True)]
    return *total, None, *[None] * len(ctx.geometry), None


torch.library.register_autograd(FORWARD, _forward_gradients, setup_context=_forward_setup)
torch.library.register_autograd(BACKWARD, _backward_gradients, setup_context=_backward_setup)

# ---- vmap ----


def _sample_by_sample(
    operator: Callable[..., Any], info: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...]
) -> list[Any]:
    results = []
    for sample in range(info.batch_size):
        one = [a if dim is None else a.select(dim, sample) for a, dim in zip(args, in_dims, strict=True)]
        results.append(operator(*one))
    return results


def _tensor_dims(in_dims: tuple[Any, ...], count: int) -> list[int | None]:
    """Lists of ints come with a list of Nones: only tensors can be mapped over."""
    return [dim if isinstance(dim, int) else None for dim in in_dims[:count]]


def _ring_conv_vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    dims = (*_tensor_dims(in_dims, 5), *[None] * (len(args) - 5))
    if dims[0] is not None and all(dim is None for dim in dims[1:]):
        x = args[0].movedim(dims[0], 0)
        y = _forward(x.flatten(0, 1), *args[1:])
        return y.reshape(*x.shape[:2], *y.shape[1:]), 0
    return torch.stack(_sample_by_sample(_forward, info, dims, args)), 0


def _ring_conv_backward_vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[_Triple, tuple[int, int, int]]:
    dims = (*_tensor_dims(in_dims, 5), *[None] * (len(args) - 5))
    results = _sample_by_sample(_backward, info, dims, args)
    return cast(_Triple, tuple(torch.stack(gradients) for gradients in zip(*results, strict=True))), (0, 0, 0)


torch.library.register_vmap(FORWARD, _ring_conv_vmap)
torch.library.register_vmap(BACKWARD, _ring_conv_backward_vmap)

# ---- torch.func ----
# Its transforms do not see the formulas registered for an operator, but those of an autograd Function.


class _ForwardFunction(torch.autograd.Function):
    @staticmethod
    def forward(*args: Any) -> Tensor:
        y: Tensor = torch.ops.ringconv.ring_conv(*args)
        return y

    setup_context = staticmethod(_forward_setup)
    backward = staticmethod(_forward_gradients)
    vmap = staticmethod(_ring_conv_vmap)


class _BackwardFunction(torch.autograd.Function):
    @staticmethod
    def forward(*args: Any) -> _Triple:
        gradients: _Triple = torch.ops.ringconv.ring_conv_backward(*args)
        return gradients

    setup_context = staticmethod(_backward_setup)
    backward = staticmethod(_backward_gradients)
    vmap = staticmethod(_ring_conv_backward_vmap)


def _in_transform() -> bool:
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def _forward(*args: Any) -> Tensor:
    operator: Any = _ForwardFunction.apply if _in_transform() else torch.ops.ringconv.ring_conv
    return cast(Tensor, operator(*args))


def _backward(*args: Any) -> _Triple:
    operator: Any = _BackwardFunction.apply if _in_transform() else torch.ops.ringconv.ring_conv_backward
    return cast(_Triple, operator(*args))


# ---- operation counts ----


def _operations(x: Tensor, weight: Tensor, basis: Tensor, orbit_of_tap: Tensor, sites: int) -> tuple[int, int]:
    """Of one ring pass over the inputs at ``sites`` output positions, and of mixing them."""
    taps = orbit_of_tap.numel()
    if not isinstance(orbit_of_tap, FakeTensor):
        taps = int((orbit_of_tap != basis.shape[1]).sum())
    responses = x.shape[0] * sites * x.shape[1] * basis.shape[0]
    return 2 * responses * taps, 2 * responses * (weight.shape[0] * weight.shape[1] // x.shape[1])


@register_flop_formula(torch.ops.ringconv.ring_conv, get_raw=True)
def _forward_flops(
    x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None, orbit_of_tap: Tensor, *_: Any, out_val: Tensor
) -> int:
    return sum(_operations(x, weight, basis, orbit_of_tap, math.prod(out_val.shape[2:])))


@register_flop_formula(torch.ops.ringconv.ring_conv_backward, get_raw=True)
def _backward_flops(
    dy: Tensor, x: Tensor, weight: Tensor, basis: Tensor, orbit_of_tap: Tensor, *rest: Any, out_val: _Triple
) -> int:
    """The adjoint pass serves input and weight, which take a product each; the basis takes a pass and a product."""
    pass_, mixing = _operations(x, weight, basis, orbit_of_tap, math.prod(dy.shape[2:]))
    for_x, for_weight, for_basis = rest[-1]
    passes, products = int(for_x or for_weight) + int(for_basis), int(for_x) + int(for_weight) + int(for_basis)
    return pass_ * passes + mixing * products
