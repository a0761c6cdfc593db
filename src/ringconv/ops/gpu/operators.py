"""The ring convolution's operators on CUDA tensors. Derivatives, tracing and vmap are those of every device."""

from __future__ import annotations

import torch
from torch import Tensor

from ringconv.ops import fused
from ringconv.ops.gpu import launch
from ringconv.ops.gpu.blocks import MOST_RINGS
from ringconv.ops.gpu.taps import taps_of
from ringconv.ops.native import output_size

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What x and weight may be. Sums are float32, the ring responses are rounded to the type of x before they are mixed;
products of float32 are TF32 where torch's convolutions would use it (``torch.backends.cudnn.allow_tf32``)."""


def covers(stride: tuple[int, ...], groups: int, padding_mode: str, rings: int) -> bool:
    """Whether the Triton kernels compute such a layer."""
    return all(step == 1 for step in stride) and groups == 1 and padding_mode == "zeros" and rings <= MOST_RINGS


def ring_conv(
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
    fused.check(x, weight, basis, bias, orbit_of_tap, kernel_size, groups, DTYPES)
    _check_covered(stride, groups, padding_mode, basis.shape[0])
    y = fused.empty_maps(x, weight.shape[0], output_size(x.shape[2:], kernel_size, stride, padding, dilation))
    if y.numel():
        taps = taps_of(orbit_of_tap, basis.shape[1], kernel_size, padding, dilation)
        packed = weight.detach().permute(2, 1, 0).contiguous()
        plain_bias = None if bias is None else _plain(bias)
        launch.ring_conv(x.detach(), packed, _plain(basis), plain_bias, taps.offsets, taps.starts, y)
    return y


def ring_conv_backward(
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
) -> tuple[Tensor, Tensor, Tensor]:
    """The transposed convolution is the same kernel with the taps' offsets and the weight turned round."""
    fused.check(x, weight, basis, None, orbit_of_tap, kernel_size, groups, DTYPES)
    _check_covered(stride, groups, padding_mode, basis.shape[0])
    due = (x.shape[0], weight.shape[0], *output_size(x.shape[2:], kernel_size, stride, padding, dilation))
    if tuple(dy.shape) != due:
        raise ValueError(f"dy must be {due}, got {tuple(dy.shape)}")
    x, dy = x.detach(), dy.detach().to(x.dtype)
    taps = taps_of(orbit_of_tap, basis.shape[1], kernel_size, padding, dilation)
    by_ring = weight.detach().permute(2, 0, 1).contiguous()
    dx, dweight, dbasis = x.new_empty(0), weight.new_empty(0), basis.new_empty(0)
    anything = dy.numel() > 0
    if output_mask[0]:
        dx = fused.empty_maps(x, x.shape[1], x.shape[2:])
        if anything:
            launch.ring_conv(dy, by_ring, _plain(basis), None, taps.backward, taps.starts, dx)
    if output_mask[1]:
        dweight = torch.zeros(weight.shape, dtype=weight.dtype, device=weight.device)
        if anything:
            dweight.copy_(launch.weight_gradient(x, dy, _plain(basis), taps))
    if output_mask[2]:
        dbasis = torch.zeros(basis.shape, dtype=basis.dtype, device=basis.device)
        if anything:
            dbasis.copy_(launch.basis_gradient(x, dy, by_ring, basis.shape[1], taps))
    return dx, dweight, dbasis


def _plain(basis: Tensor) -> Tensor:
    return basis.detach().to(torch.float32).contiguous()


def _check_covered(stride: list[int], groups: int, padding_mode: str, rings: int) -> None:
    if not covers(tuple(stride), groups, padding_mode, rings):
        raise ValueError(
            "on a GPU method 'fused' computes stride 1, one group, padding with zeros and at most"
            f" {MOST_RINGS} rings, got stride {tuple(stride)}, {groups} groups, padding {padding_mode!r} and {rings}"
            " rings: use method 'factored'"
        )


torch.library.impl(fused.FORWARD, "cuda", ring_conv)
torch.library.impl(fused.BACKWARD, "cuda", ring_conv_backward)
