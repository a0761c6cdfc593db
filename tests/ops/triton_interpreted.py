"""The Triton kernels on CPU tensors, in Triton's interpreter, against the dense reference.

Not collected by itself: test_triton.py runs it in a process of its own, since TRITON_INTERPRET=1 must be set before
anything imports Triton. There the kernels take the place of the compiled ones, so that derivatives, vmap and the layers
reach them as they do on a GPU.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from ringconv import GMRConv2d
from ringconv.ops import ConvOptions, dense_conv, fused_conv
from ringconv.ops.gpu import launch, operators
from ringconv.ops.gpu.blocks import MOST_RINGS, Blocks, to_try
from ringconv.ops.gpu.taps import taps_of
from ringconv.rings import RingGeometry, taps_of_orbits

assert os.environ.get("TRITON_INTERPRET") == "1"

_library = torch.library.Library("ringconv", "IMPL")
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
    _library.impl("ring_conv", operators.ring_conv, "CPU", allow_override=True)
    _library.impl("ring_conv_backward", operators.ring_conv_backward, "CPU", allow_override=True)


class Case(NamedTuple):
    geometry: RingGeometry
    options: ConvOptions
    shape: tuple[int, ...]
    out_channels: int
    channels_last: bool = False


def case(
    kernel_size: tuple[int, ...],
    shape: tuple[int, ...],
    out_channels: int,
    *,
    rings: int = 0,
    circular: bool = True,
    padding: tuple[tuple[int, int], ...] | None = None,
    dilation: int = 1,
    channels_last: bool = False,
) -> Case:
    axes = len(kernel_size)
    spans = [dilation * (k - 1) for k in kernel_size]
    same = tuple((span // 2, span - span // 2) for span in spans)
    options = ConvOptions((1,) * axes, padding or same, (dilation,) * axes, 1, "zeros")
    geometry = RingGeometry(kernel_size, rings=rings, circular=circular)
    return Case(geometry, options, shape, out_channels, channels_last)


CASES = {
    "odd sizes": case((5, 5), (3, 5, 7, 9), 6),
    "one channel": case((3, 3), (2, 1, 9, 10), 1),
    "one site": case((7, 7), (4, 12, 1, 1), 5),
    "nine by nine": case((9, 9), (1, 3, 7, 6), 4),
    "several blocks of channels": case((3, 3), (1, 40, 4, 5), 130),
    "as many rings as there may be": case((3, 3), (1, 4, 5, 5), 3, rings=MOST_RINGS),
    "even kernel": case((4, 4), (2, 3, 7, 8), 4, circular=False),
    "unequal sides": case((3, 7), (2, 3, 8, 9), 4),
    "dilated": case((3, 3), (1, 3, 9, 8), 4, dilation=2),
    "valid": case((3, 3), (1, 3, 8, 9), 4, padding=((0, 0), (0, 0))),
    "more on one side": case((3, 3), (1, 3, 8, 9), 4, padding=((3, 0), (1, 4))),
    "channels last": case((5, 5), (2, 6, 7, 8), 5, channels_last=True),
    "sequence": case((9,), (3, 4, 57), 5),
    "volume": case((3, 3, 3), (1, 3, 4, 5, 6), 4),
}
LOW = ("odd sizes", "channels last", "volume")
NAMES = ("y", "dx", "dweight", "dbasis", "dbias")


def tensors(case: Case, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x, weight, basis, bias: random, also the basis; the same values in every type but for rounding."""
    generator = torch.Generator().manual_seed(0)
    rings, orbits = case.geometry.rings, len(case.geometry.tables().taps_per_orbit)
    shapes = (case.shape, (case.out_channels, case.shape[1], rings), (rings, orbits), (case.out_channels,))
    x, weight, basis, bias = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    if case.channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    basis = basis.to(torch.promote_types(dtype, torch.float32))
    return tuple(t.detach().requires_grad_() for t in (x.to(dtype), weight.to(dtype), basis, bias.to(dtype)))


def dense(case: Case, x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None = None) -> Tensor:
    taps = taps_of_orbits(case.geometry, case.geometry.tables(basis.dtype), basis)
    kernel = torch.einsum("oci,i...->oc...", weight.to(basis.dtype), taps).to(weight.dtype)
    return dense_conv(x, kernel, bias, case.options)


def fused(case: Case, x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None = None) -> Tensor:
    orbit_of_tap = case.geometry.tables().orbit_of_tap
    return fused_conv(x, weight, basis, bias, orbit_of_tap, case.geometry.kernel_size, case.options)


def with_gradients(method, case: Case, leaves: tuple[Tensor, ...], dy: Tensor) -> list[Tensor]:
    y = method(case, *leaves)
    return [y, *torch.autograd.grad(y, leaves, dy.to(y.dtype))]


def assert_as_good_as_dense(case: Case, dtype: torch.dtype) -> None:
    """Against float64, at most three times the error of torch's own convolution in the same type.

    The two add in different orders, so on top of it the rounding of a sum is allowed: a random walk of one unit in
    the last place of float32 per term. What is stored in less is rounded once more.
    """
    leaves = tensors(case, dtype)
    exact = tuple(t.detach().double().requires_grad_() for t in leaves)
    dy = torch.randn_like(dense(case, *exact)).to(dtype).double()
    truths = with_gradients(dense, case, exact, dy)
    of_dense, of_fused = (with_gradients(method, case, leaves, dy) for method in (dense, fused))
    sites = math.prod(dy.shape) // dy.shape[1]
    terms = max(sites, math.prod(case.geometry.kernel_size) * max(case.shape[1], case.out_channels))
    for name, truth, theirs, ours in zip(NAMES, truths, of_dense, of_fused, strict=True):
        assert (ours.shape, ours.dtype) == (truth.shape, theirs.dtype), name
        walk = math.sqrt(terms) * torch.finfo(torch.float32).eps + torch.finfo(theirs.dtype).eps
        error = (ours - truth).abs().max()
        allowed = 3 * (theirs - truth).abs().max() + walk * truth.abs().max()
        assert error <= allowed, f"{name}: {error:.3e} > {allowed:.3e}"


@pytest.mark.parametrize("name", CASES)
def test_float32_matches_dense(name: str) -> None:
    assert_as_good_as_dense(CASES[name], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", LOW)
def test_low_precision_is_as_good_as_dense(name: str, dtype: torch.dtype) -> None:
    assert_as_good_as_dense(CASES[name], dtype)


def test_every_tile_on_the_list_gives_the_same() -> None:
    one = case((3, 3), (1, 17, 6, 7), 18)
    x, weight, basis, bias = (t.detach() for t in tensors(one, torch.float32))
    orbit_of_tap = one.geometry.tables().orbit_of_tap
    padding = [side for pair in one.options.padding for side in pair]
    taps = taps_of(orbit_of_tap, basis.shape[1], (3, 3), padding, (1, 1))
    expected = dense(one, x, weight, basis, bias)
    packed = weight.permute(2, 1, 0).contiguous()
    tried = to_try("maps", 2, 17, 18)
    assert len(set(tried)) == len(tried) > 3
    for blocks in (*tried, Blocks(16, 16, 16, 4)):
        y = torch.full_like(expected, math.nan)
        launch.start(launch.maps_call(x, packed, basis, bias, taps.offsets, taps.starts, y, blocks))
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


def test_a_subset_of_gradients() -> None:
    one = CASES["more on one side"]
    leaves = tensors(one, torch.float32)
    dy = torch.randn_like(fused(one, *leaves))
    expected = with_gradients(fused, one, leaves, dy)[1:]
    for wanted in (1, 2, 4, 10):
        some = tuple(t.detach().requires_grad_(bool(wanted >> i & 1)) for i, t in enumerate(leaves))
        fused(one, *some).backward(dy)
        for leaf, gradient in zip(some, expected, strict=True):
            assert (leaf.grad is None) == (not leaf.requires_grad)
            assert leaf.grad is None or torch.equal(leaf.grad, gradient)


def test_double_backward() -> None:
    one = CASES["valid"]

    def second(method, dtype: torch.dtype) -> list[Tensor]:
        leaves = tensors(one, dtype)
        first = torch.autograd.grad(method(one, *leaves).square().sum(), leaves[:3], create_graph=True)
        total = sum(scale * gradient.square().sum() for scale, gradient in zip((1.0, 0.1, 0.01), first, strict=True))
        return list(torch.autograd.grad(total, leaves))

    for ours, truth in zip(second(fused, torch.float32), second(dense, torch.float64), strict=True):
        assert (ours - truth).abs().max() <= 1e-4 * truth.abs().max()


def test_memory_format_and_odd_strides() -> None:
    one = CASES["channels last"]
    x, *rest = tensors(one, torch.float32)
    y = fused(one, x, *rest)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (dx,) = torch.autograd.grad(y.sum(), x)  # this gradient of y has strides of 0
    assert dx.is_contiguous(memory_format=torch.channels_last)
    spread = torch.stack([x.detach()] * 2, -1)[..., 0]
    torch.testing.assert_close(fused(one, spread, *rest), y)


def test_empty_batch() -> None:
    one = CASES["odd sizes"]
    x, *rest = tensors(one, torch.float32)
    x = x.detach()[:0].requires_grad_()
    y = fused(one, x, *rest)
    assert y.shape == dense(one, x, *rest).shape
    assert all(torch.count_nonzero(gradient) == 0 for gradient in torch.autograd.grad(y.sum(), (x, *rest)))


def test_a_bias_that_is_part_of_another_tensor() -> None:
    one = case((3,), (1, 3, 6), 4)
    x, weight, basis, _ = (t.detach() for t in tensors(one, torch.float32))
    bias = torch.randn(4, 3)[:, 0]
    assert torch.equal(fused(one, x, weight, basis, bias), fused(one, x, weight, basis, bias.contiguous()))


def test_vmap_and_per_sample_gradients() -> None:
    one = case((3,), (1, 3, 6), 4)
    x, weight, basis, bias = (t.detach() for t in tensors(one, torch.float32))
    weights = torch.stack([weight, -weight])
    mapped = torch.func.vmap(lambda w: fused(one, x, w, basis, bias))(weights)
    assert torch.equal(mapped, torch.stack([fused(one, x, w, basis, bias) for w in weights]))

    def loss(weight: Tensor, sample: Tensor) -> Tensor:
        return fused(one, sample.unsqueeze(0), weight, basis, bias).square().sum()

    samples = torch.randn(2, 3, 6)
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, samples)
    for gradient, sample in zip(per_sample, samples, strict=True):
        torch.testing.assert_close(gradient, torch.func.grad(loss)(weight, sample))


def test_a_layer_and_its_sigma() -> None:
    torch.manual_seed(0)
    layer = GMRConv2d(3, 5, 5, padding=2, sampling="area", method="fused")
    x = torch.randn(1, 3, 6, 7, requires_grad=True)
    assert layer._method_for(x) == "fused"
    leaves = (x, *layer.parameters())
    ours = torch.autograd.grad(layer(x).square().sum(), leaves)
    layer.method = "dense"
    for gradient, expected in zip(ours, torch.autograd.grad(layer(x).square().sum(), leaves), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"stride": (2, 2)}, r"stride \(2, 2\)"),
        ({"groups": 3}, "3 groups"),
        ({"padding_mode": "reflect"}, "padding 'reflect'"),
    ],
)
def test_what_it_does_not_cover_is_refused(change, named) -> None:
    one = case((3, 3), (1, 3, 8, 9), 6)
    one = one._replace(options=one.options._replace(**change))
    x, weight, basis, bias = tensors(one, torch.float32)
    weight = weight[:, : 3 // one.options.groups]
    with pytest.raises(ValueError, match=named):
        fused(one, x, weight, basis, bias)
