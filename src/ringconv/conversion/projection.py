"""Trained kernels -> the nearest ring kernels."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ringconv._computed_weights import recompute_weight
from ringconv.conversion.resizing import ResizedConv
from ringconv.conversion.windows import (
    CONVS,
    TRANSPOSED_CONVS,
    Conv,
    TransposedConv,
    dimensions_of,
    has_own_forward,
    window_of,
)
from ringconv.rings import as_tuple


class _SeenConvolution(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the kernel that a convolution is computed with."""

    kernel: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.kernel = args[1]
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def effective_kernel(conv: Conv | TransposedConv) -> Tensor:
    """The kernel that a convolution really applies: a subclass may standardise or scale its weight."""
    recompute_weight(conv)
    if not has_own_forward(conv):
        return conv.weight.detach()
    side = max(d * (k - 1) + 1 for k, d in zip(conv.kernel_size, conv.dilation, strict=True))
    x = conv.weight.new_zeros(1, conv.in_channels, *[side] * dimensions_of(conv))
    return _forward(copy.deepcopy(conv).eval(), x)[1]


@torch.no_grad()
def does_more(conv: Conv | TransposedConv) -> bool:
    """Whether the forward of a subclass does more than convolve: an activation, say, or a sum with its input.

    A copy with random weights is tried, since those of a layer that begins at zero would hide it. One that fails there
    is taken to do more.
    """
    if not has_own_forward(conv) or conv.weight.is_meta:
        return False
    recompute_weight(conv)
    trial = copy.deepcopy(conv).eval()
    draw = torch.Generator().manual_seed(0)
    for name, parameter in trial.named_parameters():
        if name in ("weight", "bias"):
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    x = torch.randn(1, conv.in_channels, *_sides_to_try(conv), generator=draw).to(conv.weight)
    try:
        y, kernel = _forward(trial, x)
    except Exception:  # whatever a forward raises
        return True
    expected = _convolved(trial, x, kernel)
    rounding = torch.finfo(x.dtype).eps ** 0.5 * expected.abs().max()
    return y.shape != expected.shape or not bool((y - expected).abs().max() <= rounding)


def _forward(trial: Conv | TransposedConv, x: Tensor) -> tuple[Tensor, Tensor]:
    """What its forward makes of ``x``, and the kernel that it did so with."""
    with _SeenConvolution() as seen:  # type: ignore[no-untyped-call]
        # Not called as a module: its hooks are not to be run.
        y: Tensor = type(trial).forward(trial, x)  # type: ignore[arg-type]
    kernel: Tensor | None = seen.kernel
    return y, trial.weight.detach() if kernel is None or kernel.shape != trial.weight.shape else kernel


def _sides_to_try(conv: Conv | TransposedConv) -> list[int]:
    """One more than a multiple of the stride: there, padding by the size of the map is that of stride 1."""
    padding = as_tuple(0 if isinstance(conv.padding, str) else conv.padding, len(conv.stride), "padding")
    reaches = [d * (k - 1) + 1 for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
    return [1 + s * -(-max(4, reach, p + 1) // s) for s, reach, p in zip(conv.stride, reaches, padding, strict=True)]


def _convolved(conv: Conv | TransposedConv, x: Tensor, kernel: Tensor) -> Tensor:
    """What torch's own class would make of ``x`` with this kernel."""
    none = (0,) * len(conv.stride)
    if isinstance(conv, CONVS):
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        x = F.pad(x, [side for pad in reversed(window_of(conv).padding) for side in pad], mode)
        options = (conv.stride, none, conv.dilation, False, none, conv.groups)
    else:
        padding = as_tuple(conv.padding, len(conv.stride), "padding")  # type: ignore[arg-type]
        options = (conv.stride, padding, conv.dilation, True, conv.output_padding, conv.groups)
    return torch.convolution(x, kernel, conv.bias, *options)


@torch.no_grad()
def start_from(old: Conv | TransposedConv, new: nn.Module, resampling: Sequence[int] = ()) -> None:
    """Give ``new`` the weights whose kernels are nearest to those of ``old``, by least squares, and its bias.

    Args:
        old: the convolution that ``new`` takes the place of.
        new: a ring convolution, or any whose kernel is linear in ``weight`` (out, in / groups, n) by a ``basis()``
            (n, *kernel); alone or behind a resizing.
        resampling: factor of the down-sampling before the new kernel, per axis; negative for up-sampling. The two are
            compared together, on the pixels of the finer map.
    """
    inner: Any = new.conv if isinstance(new, ResizedConv) else new
    if inner.weight is old.weight or old.weight.is_meta:
        return
    n_dims = dimensions_of(old)
    kernel = effective_kernel(old).cpu().double()  # not every device has float64
    if isinstance(old, TRANSPOSED_CONVS):
        kernel = _as_convolution(kernel, old.groups)
    basis = _basis(inner, n_dims)
    if basis is None and inner.weight.shape == kernel.shape and not resampling:
        inner.weight.copy_(kernel)
    elif basis is None:
        raise ValueError(
            f"{type(inner).__name__} has no basis() that a trained kernel could be projected on: use from_weights=False"
        )
    else:
        for axis, factor in enumerate(resampling, 1):
            basis = _averaged_before(basis, axis, factor) if factor > 0 else _interpolated_before(basis, axis, -factor)
        inner.weight.copy_(_least_squares(basis, kernel).reshape(inner.weight.shape))
        if getattr(inner, "harmonic_weight", None) is not None:
            inner.harmonic_weight.zero_()  # a trained kernel has nothing to say about these
    if inner.bias is not None and old.bias is not None:
        inner.bias.copy_(old.bias)


def _basis(conv: Any, n_dims: int) -> Tensor | None:
    """(n, *kernel) in float64."""
    if isinstance(conv, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return torch.ones(1, *[1] * n_dims, dtype=torch.float64) if max(conv.kernel_size) == 1 else None
    if not hasattr(conv, "basis"):
        return None
    basis: Tensor = conv.basis().cpu().double()
    # Rings of its own for every pair of channels begin as the same.
    return basis if basis.dim() == n_dims + 1 else basis[0, 0]


def _as_convolution(kernel: Tensor, groups: int) -> Tensor:
    """The kernel (in, out / groups, *k) of a transposed convolution as one of a convolution, (out, in / groups, *k)."""
    per_group = kernel.reshape(groups, -1, *kernel.shape[1:]).transpose(1, 2).flatten(0, 1)
    return per_group.flip(tuple(range(2, kernel.dim())))


def _averaged_before(basis: Tensor, axis: int, factor: int) -> Tensor:
    """The kernels that averaging over ``factor`` pixels, then ``basis``, make together."""
    return basis.repeat_interleave(factor, axis) / factor


def _interpolated_before(basis: Tensor, axis: int, factor: int) -> Tensor:
    """The kernels that linear interpolation by ``factor``, then ``basis``, make together."""
    impulse = torch.tensor([[[0.0, 1.0, 0.0]]], dtype=basis.dtype)
    response = F.interpolate(impulse, scale_factor=factor, mode="linear", align_corners=False)
    lines = basis.movedim(axis, -1)
    spread = F.conv1d(lines.reshape(-1, 1, lines.shape[-1]), response, padding=response.shape[-1] - 1)
    return spread.reshape(*lines.shape[:-1], -1).movedim(-1, axis)


def _least_squares(basis: Tensor, kernel: Tensor) -> Tensor:
    """The weights (out, in, n) of the combination of ``basis`` (n, *k) that is nearest to ``kernel`` (out, in, *k').

    Both are centred. Where one side is even and the other odd, the kernel lies half a pixel off, on both sides alike:
    this is why it is made symmetric first, which otherwise changes nothing.
    """
    for axis in range(2, kernel.dim()):
        kernel = (kernel + kernel.flip(axis)) / 2
    basis = basis.to(kernel.device)
    margins = [max(0, math.ceil((k - side) / 2)) for k, side in zip(kernel.shape[2:], basis.shape[1:], strict=True)]
    basis = F.pad(basis, [margin for margin in reversed(margins) for _ in range(2)])
    missing = [side - k for k, side in zip(kernel.shape[2:], basis.shape[1:], strict=True)]
    kernel = F.pad(kernel, [part for gap in reversed(missing) for part in (gap // 2, gap - gap // 2)])
    flat = basis.flatten(1)
    # Rings may coincide on a small kernel: the pseudo-inverse then shares the weight among them.
    inverse: Tensor = torch.linalg.pinv(flat @ flat.T, hermitian=True)
    return kernel.flatten(2) @ flat.T @ inverse


def recalibrate_batchnorm(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """Estimate the running mean and variance of every batch norm anew, and return the model.

    A converted network that starts from trained weights gives other activations than the one whose statistics it has.

    Args:
        batches: inputs of the model, or tuples and lists whose first entry is one, as a data loader gives them. Some
            hundred images do.
    """
    norms = [
        m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
    ]
    modes = [(m, m.training) for m in model.modules()]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    try:
        with torch.no_grad():
            seen = 0
            for batch in batches:
                if seen == 0:
                    for norm in norms:
                        norm.reset_running_stats()
                        norm.momentum = None  # the plain mean over all batches
                        norm.train()
                model(batch[0] if isinstance(batch, (tuple, list)) else batch)
                seen += 1
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.training = training
    if not seen:
        raise ValueError("recalibrate_batchnorm needs at least one batch, got none")
    return model
