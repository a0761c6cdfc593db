"""The fused kernel against the dense reference: forward, all gradients, and what torch expects of an operator."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ringconv.benchmark.memory import peak_bytes
from ringconv.ops import native
from ringconv.ops.dense import dense_conv
from ringconv.ops.fused import available, fused_conv, why_unavailable
from ringconv.ops.options import PADDING_MODES, ConvOptions
from ringconv.rings import RingGeometry, taps_of_orbits

pytestmark = pytest.mark.skipif(not available(), reason=why_unavailable())

NAMES = ("y", "dx", "dweight", "dbasis", "dbias")


class Case(NamedTuple):
    """A layer and the shape of its input."""

    geometry: RingGeometry
    options: ConvOptions
    batch: int
    channels: int
    out_channels: int
    sizes: tuple[int, ...]
    channels_last: bool = False


class Tensors(NamedTuple):
    x: Tensor
    weight: Tensor
    basis: Tensor
    bias: Tensor


def layer(
    kernel_size: tuple[int, ...],
    shape: tuple[int, ...],
    out_channels: int,
    *,
    rings: int = 0,
    circular: bool = True,
    stride: int = 1,
    padding: tuple[tuple[int, int], ...] | None = None,
    dilation: int = 1,
    groups: int = 1,
    mode: str = "zeros",
    channels_last: bool = False,
) -> Case:
    axes = len(kernel_size)
    same = tuple((dilation * (k - 1) // 2, dilation * (k - 1) - dilation * (k - 1) // 2) for k in kernel_size)
    options = ConvOptions((stride,) * axes, padding or same, (dilation,) * axes, groups, mode)  # type: ignore[arg-type]
    geometry = RingGeometry(kernel_size, rings=rings, circular=circular)
    return Case(geometry, options, shape[0], shape[1], out_channels, shape[2:], channels_last)


def random_case(seed: int) -> Case:
    """Any combination that the operator allows; sizes that are no multiple of anything."""
    rng = random.Random(seed)
    axes = rng.choice([1, 2, 2, 3])
    sides = [1, 2, 3, 4, 5, 7] if axes < 3 else [1, 2, 3, 4]
    kernel_size = tuple(rng.choice(sides) for _ in range(axes))
    if rng.random() < 0.5:
        kernel_size = kernel_size[:1] * axes
    sizes = tuple(rng.randint(5, 14) for _ in range(axes))
    dilation = tuple(rng.choice([1, 1, 2]) for _ in range(axes))
    padding = []
    for size, taps, step in zip(sizes, kernel_size, dilation, strict=True):
        begin = rng.randint(0, 4)
        padding.append((begin, rng.randint(max(0, min(4, step * (taps - 1) + 1 - size - begin)), 4)))
    stride = tuple(rng.choice([1, 1, 2, 3]) for _ in range(axes))
    if any(n + sum(p) <= d * (k - 1) for n, p, d, k in zip(sizes, padding, dilation, kernel_size, strict=True)):
        dilation = (1,) * axes
    groups = rng.choice([1, 1, 2, 3])
    options = ConvOptions(stride, tuple(padding), dilation, groups, rng.choice(PADDING_MODES))
    geometry = RingGeometry(kernel_size, rings=rng.choice([0, 0, 1, 2, 7, 9]), circular=rng.random() < 0.7)
    channels = groups * rng.choice([1, 2, 3, 7, 8, 12, 16, 20, 33])
    out_channels = groups * rng.choice([1, 2, 5, 8, 16, 17, 40])
    return Case(
        geometry, options, rng.choice([1, 2, 3]), channels, out_channels, sizes, axes > 1 and rng.random() < 0.4
    )


NAMED_CASES = {
    "odd sizes": layer((5, 5), (3, 7, 13, 11), 9),
    "one channel": layer((3, 3), (2, 1, 9, 10), 1),
    "one site": layer((7, 7), (4, 12, 1, 1), 5),
    "wider than a tile": layer((5, 5), (1, 8, 5, 131), 16),
    "more rings than registers": layer((13, 13), (1, 20, 17, 19), 24),
    "two blocks of depth": layer((5, 5), (1, 180, 6, 7), 40),
    "depthwise": layer((7, 7), (2, 19, 12, 13), 19, groups=19, channels_last=True),
    "depthwise with multiplier": layer((3, 3), (2, 5, 8, 9), 15, groups=5),
    "strided": layer((5, 5), (2, 16, 15, 15), 32, stride=2),
    "even kernel": layer((4, 4), (2, 8, 11, 11), 8, circular=False),
    "unequal sides": layer((3, 7), (2, 8, 11, 12), 8),
    "volume": layer((5, 5, 5), (1, 12, 7, 8, 9), 10, channels_last=True),
    "flat volume": layer((1, 3, 3), (1, 12, 4, 8, 9), 10),
    "sequence": layer((9,), (3, 10, 57), 12, dilation=2),
    **{
        f"{mode} padding": layer((5, 5), (2, 9, 7, 8), 6, padding=((2, 3), (0, 4)), mode=mode) for mode in PADDING_MODES
    },
}


def make_tensors(case: Case, seed: int = 0) -> Tensors:
    """In float64. The basis is random: the operator must not rely on Gaussians."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rings, orbits = case.geometry.rings, len(case.geometry.tables().taps_per_orbit)
    x = normal(case.batch, case.channels, *case.sizes)
    weight = normal(case.out_channels, case.channels // case.options.groups, rings)
    return Tensors(x, weight, normal(rings, orbits), normal(case.out_channels))


def convert(tensors: Tensors, case: Case, dtype: torch.dtype) -> Tensors:
    """Leaves of the given type; the basis never falls below float32."""
    format_ = torch.contiguous_format
    if case.channels_last:
        format_ = torch.channels_last if len(case.sizes) == 2 else torch.channels_last_3d
    x = tensors.x.to(dtype).contiguous(memory_format=format_)
    basis = tensors.basis.to(torch.promote_types(dtype, torch.float32))
    converted = Tensors(x, tensors.weight.to(dtype), basis, tensors.bias.to(dtype))
    return Tensors(*[tensor.detach().requires_grad_() for tensor in converted])


def dense(case: Case, x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None = None) -> Tensor:
    taps = taps_of_orbits(case.geometry, case.geometry.tables(basis.dtype), basis)
    kernel = torch.einsum("oci,i...->oc...", weight.to(basis.dtype), taps).to(weight.dtype)
    return dense_conv(x, kernel, bias, case.options)


def fused(case: Case, x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None = None) -> Tensor:
    orbit_of_tap = case.geometry.tables().orbit_of_tap
    return fused_conv(x, weight, basis, bias, orbit_of_tap, case.geometry.kernel_size, case.options)


def with_gradients(method: object, case: Case, tensors: Tensors, dy: Tensor) -> list[Tensor]:
    y = method(case, *tensors)  # type: ignore[operator]
    return [y, *torch.autograd.grad(y, tensors, dy.to(y.dtype))]


def assert_as_good_as_dense(case: Case, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
    """Against float64, at most three times the error of torch's own convolution in the same type.

    The two add in different orders and over different sites, so on top of it the rounding of sums is allowed: one unit
    in the last place of float32 of the sum of all terms' sizes, for the sum over taps and for that over channels or
    sites. What is stored in less is rounded once more.
    """
    exact = convert(make_tensors(case, seed), case, torch.float64)
    rounded = convert(exact, case, dtype)
    exact = convert(rounded, case, torch.float64)
    like = dense(case, *exact)
    dy = torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype).double()
    expected = with_gradients(dense, case, exact, dy)
    sizes = with_gradients(dense, case, convert(Tensors(*map(torch.abs, exact)), case, torch.float64), dy.abs())
    of_dense = with_gradients(dense, case, rounded, dy)
    of_fused = with_gradients(fused, case, rounded, dy)
    for name, truth, size, theirs, ours in zip(NAMES, expected, sizes, of_dense, of_fused, strict=True):
        assert (ours.shape, ours.dtype) == (truth.shape, theirs.dtype), name
        rounding = 2 * torch.finfo(torch.float32).eps * size.max() + torch.finfo(theirs.dtype).eps * truth.abs().max()
        error = (ours - truth).abs().max()
        allowed = 3 * (theirs - truth).abs().max() + rounding
        assert error <= allowed, f"{name}: {error:.3e} > {allowed:.3e} for {case}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", NAMED_CASES)
def test_named_cases_match_dense(name: str, dtype: torch.dtype) -> None:
    assert_as_good_as_dense(NAMED_CASES[name], dtype)


@pytest.mark.parametrize("first_seed", range(0, 200, 25))
def test_random_cases_match_dense(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 25):
        assert_as_good_as_dense(random_case(seed), seed=seed)


def test_every_thread_count_and_instruction_set(threads: int, instruction_set: str) -> None:
    for seed in range(300, 315):
        assert_as_good_as_dense(random_case(seed), seed=seed)
    for name in ("more rings than registers", "depthwise", "volume", "wider than a tile"):
        assert_as_good_as_dense(NAMED_CASES[name])


@pytest.mark.parametrize(("channels", "chosen"), [(8, "avx2"), (9, "avx512")])
def test_few_channels_do_not_fill_wide_vectors(channels: int, chosen: str) -> None:
    if native.instruction_set("avx512") != "avx512":
        pytest.skip("this machine has no avx512")
    case = layer((9, 9), (4, channels, 64, 64), 16)
    tensors = convert(make_tensors(case), case, torch.float32)
    dy = torch.randn_like(fused(case, *tensors))
    found = {}
    for name in ("avx2", "avx512", "auto"):
        assert native.instruction_set(name) == name
        found[name] = with_gradients(fused, case, tensors, dy)
    alike = [
        name
        for name in ("avx2", "avx512")
        if all(torch.equal(a, b) for a, b in zip(found[name], found["auto"], strict=True))
    ]
    assert alike == [chosen]


def test_sums_over_many_sites(instruction_set: str) -> None:
    """A constant, since the rounding of its sums goes one way. No more error than dense, without allowance."""
    case = layer((1, 1), (1, 2, 1024, 1024), 2)
    x, weight, basis, _ = make_tensors(case)
    given = torch.full_like(x, 0.3), weight, basis
    dy = torch.full_like(x, 0.7).float()

    def dweight(method: object, dtype: torch.dtype) -> Tensor:
        leaves = [tensor.float().to(dtype).requires_grad_() for tensor in given]
        y = method(case, *leaves)  # type: ignore[operator]
        return torch.autograd.grad(y, leaves[1], dy.to(dtype))[0]

    exact = dweight(dense, torch.float64)
    of_dense, of_fused = ((dweight(method, torch.float32) - exact).abs().max().item() for method in (dense, fused))
    assert of_fused <= of_dense


def test_bitwise_reproducible(threads: int) -> None:
    case = layer((7, 7), (3, 24, 21, 22), 40)
    tensors = convert(make_tensors(case), case, torch.float32)
    dy = torch.randn_like(fused(case, *tensors))
    first = with_gradients(fused, case, tensors, dy)
    for _ in range(5):
        again = with_gradients(fused, case, tensors, dy)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_concurrent_calls_do_not_disturb_each_other() -> None:
    cases = [layer((5, 5), (2, 16 + 8 * i, 20, 21), 24) for i in range(4)]
    tensors = [convert(make_tensors(case), case, torch.float32) for case in cases]
    alone = [fused(case, *t) for case, t in zip(cases, tensors, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            together = list(pool.map(lambda pair: fused(pair[0], *pair[1]), zip(cases, tensors, strict=True)))
            assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_large_batches_are_swept_in_chunks() -> None:
    """More samples than are laid out at a time: the same as sample by sample."""
    case = layer((3, 3), (40, 33, 64, 64), 8)
    x, weight, basis, bias = convert(make_tensors(case), case, torch.float32)
    assert x.numel() * 4 > 16 << 20
    parts = [fused(case._replace(batch=1), sample, weight, basis, bias) for sample in x.split(1)]
    torch.testing.assert_close(fused(case, x, weight, basis, bias), torch.cat(parts), rtol=0, atol=0)
    assert_as_good_as_dense(case._replace(batch=34))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's mark")
@pytest.mark.parametrize("threads", [64], indirect=True)
def test_small_maps_take_no_copy_of_the_weight_per_thread(threads: int) -> None:
    case = layer((5, 5), (8, 512, 4, 4), 512)
    x, weight, basis, _ = convert(make_tensors(case), case, torch.float32)
    y = fused(case, x, weight, basis)

    def step() -> None:
        torch.autograd.grad(y, (x, weight, basis), y, retain_graph=True)

    step()  # what torch sets up once does not count
    assert peak_bytes(step) < threads * weight.nbytes / 4


@pytest.mark.parametrize("name", ["odd sizes", "volume", "depthwise"])
def test_empty_batch(name: str) -> None:
    case = NAMED_CASES[name]._replace(batch=0)
    tensors = convert(make_tensors(case), case, torch.float32)
    y = fused(case, *tensors)
    assert y.shape == dense(case, *tensors).shape
    for gradient in torch.autograd.grad(y.sum(), tensors):
        assert torch.count_nonzero(gradient) == 0


@pytest.mark.parametrize("channels_last", [False, True])
def test_memory_format_is_kept(channels_last: bool) -> None:
    case = layer((3, 3), (2, 8, 6, 7), 16, channels_last=channels_last)
    x, *rest = convert(make_tensors(case), case, torch.float32)
    y = fused(case, x, *rest)
    (dx,) = torch.autograd.grad(y.sum(), x)
    format_ = torch.channels_last if channels_last else torch.contiguous_format
    assert y.is_contiguous(memory_format=format_)
    assert dx.is_contiguous(memory_format=format_)


def test_input_that_is_not_contiguous() -> None:
    case = layer((3, 3), (2, 8, 9, 7), 16)
    x, *rest = convert(make_tensors(case), case, torch.float32)
    strided = torch.stack([x, x], -1)[..., 0].detach()
    assert not strided.is_contiguous()
    assert torch.equal(fused(case, strided, *rest), fused(case, x, *rest))


def test_a_subset_of_gradients() -> None:
    case = NAMED_CASES["odd sizes"]
    tensors = convert(make_tensors(case), case, torch.float32)
    dy = torch.randn_like(fused(case, *tensors))
    expected = with_gradients(fused, case, tensors, dy)[1:]
    for wanted in range(1, 16):
        leaves = Tensors(*[t.detach().requires_grad_(bool(wanted >> i & 1)) for i, t in enumerate(tensors)])
        fused(case, *leaves).backward(dy)
        for leaf, gradient in zip(leaves, expected, strict=True):
            assert (leaf.grad is None) == (not leaf.requires_grad)
            assert leaf.grad is None or torch.equal(leaf.grad, gradient)


@pytest.mark.parametrize("name", ["odd sizes", "strided", "reflect padding", "depthwise", "sequence"])
def test_double_backward(name: str) -> None:
    """Derivatives of a function of all first gradients: every term of the second derivative counts."""
    case = NAMED_CASES[name]._replace(channels_last=False)
    exact = convert(make_tensors(case), case, torch.float64)

    def second(method: object, tensors: Tensors) -> list[Tensor]:
        y = method(case, *tensors)  # type: ignore[operator]
        first = torch.autograd.grad(y.square().sum(), tensors[:3], create_graph=True)
        # Weights that differ from tensor to tensor, so that no two terms can stand in for each other.
        total = sum(scale * gradient.square().sum() for scale, gradient in zip((1.0, 0.1, 0.01), first, strict=True))
        return list(torch.autograd.grad(total, tensors))  # type: ignore[arg-type]

    expected = second(dense, exact)
    for dense32, ours, truth in zip(
        second(dense, convert(exact, case, torch.float32)),
        second(fused, convert(exact, case, torch.float32)),
        expected,
        strict=True,
    ):
        scale = truth.abs().max()
        assert (ours - truth).abs().max() <= 3 * (dense32 - truth).abs().max() + 1e-5 * scale


def test_saves_the_input_only() -> None:
    case = layer((9, 9), (2, 32, 16, 16), 32)
    tensors = convert(make_tensors(case), case, torch.float32)
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        fused(case, *tensors)
    small = sum(t.numel() * t.element_size() for t in (tensors.weight, tensors.basis)) + 81 * 8
    assert sum(saved) == tensors.x.numel() * 4 + small


def operator_geometry(case: Case) -> list[object]:
    """The arguments of the operators that are not to be differentiated."""
    return [
        case.geometry.tables().orbit_of_tap,
        list(case.geometry.kernel_size),
        list(case.options.stride),
        [side for pair in case.options.padding for side in pair],
        list(case.options.dilation),
        case.options.groups,
        case.options.padding_mode,
    ]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["odd sizes", "strided", "circular padding", "volume"])
def test_opcheck(name: str, channels_last: bool) -> None:
    case = NAMED_CASES[name]._replace(channels_last=channels_last)
    tensors = convert(make_tensors(case), case, torch.float32)
    geometry = operator_geometry(case)
    torch.library.opcheck(torch.ops.ringconv.ring_conv.default, (*tensors, *geometry))
    dy = torch.randn_like(fused(case, *tensors)).requires_grad_()
    for mask in ([True, True, True], [True, False, True]):
        arguments = (dy, *tensors[:3], *geometry, mask)
        torch.library.opcheck(torch.ops.ringconv.ring_conv_backward.default, arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_dtype_does_not_matter(dtype: torch.dtype) -> None:
    case = NAMED_CASES["odd sizes"]
    tensors = convert(make_tensors(case), case, torch.float32)
    expected = torch.autograd.grad(fused(case, *tensors).square().sum(), tensors)
    torch.set_default_dtype(dtype)
    try:
        found = torch.autograd.grad(fused(case, *tensors).square().sum(), tensors)
    finally:
        torch.set_default_dtype(torch.float32)
    for gradient, other in zip(found, expected, strict=True):
        assert torch.equal(gradient, other)


def test_what_would_read_beyond_a_tensor_is_refused() -> None:
    case = NAMED_CASES["odd sizes"]
    tensors = convert(make_tensors(case), case, torch.float32)
    with pytest.raises(ValueError, match="no empty spatial axis"):
        fused(case, tensors.x[..., :0], *tensors[1:])
    with pytest.raises(ValueError, match="dy must be"):
        torch.ops.ringconv.ring_conv_backward(
            torch.randn(1, case.out_channels, 2, 2), *tensors[:3], *operator_geometry(case), [True, True, True]
        )


class Layer(torch.nn.Module):
    """Just enough of a layer to compile and export."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        tensors = convert(make_tensors(case), case, torch.float32)
        self.case = case
        self.weight, self.basis, self.bias = (torch.nn.Parameter(t.detach()) for t in tensors[1:])
        self.register_buffer("orbit_of_tap", case.geometry.tables().orbit_of_tap)

    def forward(self, x: Tensor) -> Tensor:
        parameters = (self.weight, self.basis, self.bias, self.orbit_of_tap)
        return fused_conv(x, *parameters, self.case.geometry.kernel_size, self.case.options).relu()


@pytest.mark.parametrize("channels_last", [False, True])
def test_compile(channels_last: bool) -> None:
    case = layer((5, 5), (2, 8, 12, 13), 16, channels_last=channels_last)
    module = Layer(case)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = convert(make_tensors(case), case, torch.float32).x
    expected, y = module(x), compiled(x)
    assert torch.equal(y, expected)
    leaves = (x, *module.parameters())
    dy = torch.randn_like(y)
    for a, b in zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(expected, leaves, dy), strict=True):
        torch.testing.assert_close(a, b)


def test_export_with_dynamic_sizes() -> None:
    case = layer((5, 5), (2, 8, 12, 13), 16)
    module = Layer(case).eval()
    dims = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height", min=6), 3: torch.export.Dim("width", min=6)}
    exported = torch.export.export(module, (torch.randn(2, 8, 12, 13),), dynamic_shapes=(dims,)).module()
    for shape in ((2, 8, 12, 13), (3, 8, 20, 9)):
        x = torch.randn(shape)
        assert torch.equal(exported(x), module(x))


def test_vmap_over_the_input() -> None:
    case = layer((3, 3), (2, 4, 8, 9), 6)
    rest = convert(make_tensors(case), case, torch.float32)[1:]
    inputs = torch.randn(5, 2, 4, 8, 9)
    mapped = torch.func.vmap(lambda one: fused(case, one, *rest), in_dims=2)(inputs.movedim(0, 2))
    assert torch.equal(mapped, torch.stack([fused(case, one, *rest) for one in inputs]))


def test_vmap_over_parameters_and_per_sample_gradients() -> None:
    case = layer((3, 3), (1, 4, 8, 9), 6)
    x, weight, basis, bias = (t.detach() for t in convert(make_tensors(case), case, torch.float32))
    weights = torch.stack([weight, 2 * weight, -weight])
    mapped = torch.func.vmap(lambda one: fused(case, x, one, basis, bias))(weights)
    assert torch.equal(mapped, torch.stack([fused(case, x, one, basis, bias) for one in weights]))

    def loss(weight: Tensor, basis: Tensor, sample: Tensor) -> Tensor:
        return fused(case, sample.unsqueeze(0), weight, basis, bias).square().sum()

    samples = torch.randn(3, 4, 8, 9)
    per_sample = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0))(weight, basis, samples)
    for i, sample in enumerate(samples):
        expected = torch.func.grad(loss, argnums=(0, 1))(weight, basis, sample)
        for mapped_gradient, gradient in zip(per_sample, expected, strict=True):
            torch.testing.assert_close(mapped_gradient[i], gradient)


def test_autocast() -> None:
    case = layer((3, 3), (2, 8, 9, 9), 8)
    tensors = convert(make_tensors(case), case, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = fused(case, *tensors)
    assert y.dtype == torch.bfloat16
    x, weight, basis, bias = tensors
    assert torch.equal(y, fused(case, x.bfloat16(), weight.bfloat16(), basis, bias.bfloat16()))
    gradients = torch.autograd.grad(y.float().square().sum(), tensors)
    assert all(gradient.dtype == torch.float32 for gradient in gradients)


def test_bfloat16_rounds_once() -> None:
    """Sums are float32: the result is the float32 result of the same values, rounded."""
    case = layer((5, 5), (2, 24, 10, 11), 16)
    low = convert(make_tensors(case), case, torch.bfloat16)
    high = Tensors(*[t.detach().float() for t in low])
    assert torch.equal(fused(case, *low), fused(case, *high).bfloat16())


def test_bfloat16_keeps_what_is_not_a_number() -> None:
    case = layer((1, 1), (1, 8, 1, 8), 8)
    x, weight, basis, _ = convert(make_tensors(case), case, torch.bfloat16)
    x = x.detach().clone()
    x[..., 0], x[..., 1] = float("nan"), float("inf")
    y = fused(case, x, torch.ones_like(weight), torch.ones_like(basis), None)
    assert y[..., 0].isnan().all()
    assert y[..., 1].isposinf().all()
    assert y[..., 2:].isfinite().all()


def test_operation_counts() -> None:
    case = layer((9, 9), (2, 8, 10, 12), 16)
    tensors = convert(make_tensors(case), case, torch.float32)
    with FlopCounterMode(display=False) as counter:
        y = fused(case, *tensors)
    taps = int(case.geometry.tables().taps_per_orbit.sum())
    pass_, mixing = 2 * 2 * 120 * 5 * 8 * taps, 2 * 2 * 120 * 5 * 8 * 16
    assert counter.get_total_flops() == pass_ + mixing
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_total_flops() == 2 * pass_ + 3 * mixing


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types_are_refused(dtype: torch.dtype) -> None:
    case = NAMED_CASES["odd sizes"]
    with pytest.raises(TypeError, match=r"float32 or torch\.bfloat16"):
        fused(case, *convert(make_tensors(case), case, dtype))


def test_mixed_types_are_refused() -> None:
    case = NAMED_CASES["odd sizes"]
    x, weight, basis, bias = convert(make_tensors(case), case, torch.float32)
    with pytest.raises(TypeError, match=r"weight is torch\.bfloat16"):
        fused(case, x, weight.bfloat16(), basis, bias)


def test_wrong_shapes_are_refused() -> None:
    case = NAMED_CASES["odd sizes"]
    x, weight, basis, bias = convert(make_tensors(case), case, torch.float32)
    wrong = [
        (x[:, :5], weight, basis, bias),
        (x, weight[..., :2], basis, bias),
        (x, weight, basis, bias[:3]),
        (x[0], weight, basis, bias),
        (x, weight, basis[:, :2], bias),
        (x[..., :1, :1], weight, basis, bias),
    ]
    for arguments in wrong[:-1]:
        with pytest.raises((ValueError, RuntimeError)):
            fused(case, *arguments)
    unpadded = case._replace(options=case.options._replace(padding=((0, 0), (0, 0))))
    with pytest.raises(ValueError, match="larger than the padded input"):
        fused(unpadded, *wrong[-1])


def test_orbits_that_flips_do_not_keep_are_refused() -> None:
    case = layer((3,), (1, 2, 8), 2)
    x, weight, _, bias = convert(make_tensors(case), case, torch.float32)
    lopsided = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match="flips"):
        fused_conv(x, weight, torch.randn(2, 3), bias, lopsided, (3,), case.options)


def test_without_the_compiled_kernel_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = NAMED_CASES["odd sizes"]
    monkeypatch.setenv(native.LIBRARY_VARIABLE, str(tmp_path / "missing.so"))
    native._load.cache_clear()
    try:
        assert not available()
        assert "missing.so" in why_unavailable()
        with pytest.raises(RuntimeError, match="use method 'factored'"):
            fused(case, *convert(make_tensors(case), case, torch.float32))
    finally:
        native._load.cache_clear()
