"""The compiled harmonics against torch's operators: value, every gradient, and what torch expects of an operator."""

from __future__ import annotations

import copy
import math
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ringconv import GMRConv2d
from ringconv.benchmark.memory import peak_bytes
from ringconv.ops import choice, native
from ringconv.ops.fused_harmonic import through_torch

pytestmark = pytest.mark.skipif(not native.harmonics_available(), reason="no compiled harmonics")

NAMES = ("y", "dx", "dweight", "dbasis")
Case = dict[str, object]


def case(
    kernel: tuple[int, ...], shape: tuple[int, ...], out: int, odd: list[bool], *, stride: int = 1, dilation: int = 1,
    groups: int = 1, padding: list[int] | None = None, last: bool = False, half: list[int] | None = None,
) -> Case:  # fmt: skip
    same = [side for k in kernel for side in (dilation * (k - 1) // 2, dilation * (k - 1) - dilation * (k - 1) // 2)]
    taps = math.prod(kernel)
    geometry = {
        "half": torch.tensor(half or range((taps + 1) // 2)),
        "odd": odd,
        "kernel_size": list(kernel),
        "stride": [stride] * 2,
        "padding": same if padding is None else padding,
        "dilation": [dilation] * 2,
        "groups": groups,
    }
    return {"shape": shape, "out": out, "last": last, "geometry": geometry}


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    kernel = tuple(rng.choice([1, 2, 3, 4, 5, 7]) for _ in range(2))
    if rng.random() < 0.5 or max(kernel) == 1:
        kernel = (rng.choice([3, 5]),) * 2
    groups = rng.choice([1, 1, 2, 3])
    channels, out = groups * rng.choice([1, 3, 7, 8, 16, 20, 33]), groups * rng.choice([2, 5, 8, 17, 40])
    sizes = rng.randint(6, 13), rng.randint(6, 13)
    padding = [rng.randint(1, 4) for _ in range(4)]
    taps = math.prod(kernel)
    half = sorted(rng.sample(range((taps + 1) // 2), rng.randint(1, (taps + 1) // 2)))
    return case(
        kernel, (rng.choice([1, 2, 3]), channels, *sizes), out, [rng.random() < 0.5 for _ in range(rng.randint(1, 5))],
        stride=rng.choice([1, 1, 2, 3]), padding=padding, groups=groups, last=rng.random() < 0.5, half=half,
    )  # fmt: skip


CASES = {
    "odd and even order": case((5, 5), (3, 7, 13, 11), 9, [True, False]),
    "odd order": case((3, 3), (2, 1, 9, 10), 1, [True]),
    "even order": case((9, 9), (2, 20, 12, 12), 24, [False, False]),
    "many pairs": case((7, 7), (2, 16, 9, 17), 32, [True, False, True, True, False, True, True], last=True),
    "wider than a tile": case((5, 5), (1, 8, 5, 131), 16, [True, False]),
    "two blocks of depth": case((3, 3), (1, 180, 6, 7), 40, [True, False]),
    "one site": case((7, 7), (4, 12, 1, 1), 5, [True, False]),
    "groups": case((5, 5), (2, 12, 8, 9), 10, [True, False, True], groups=2),
    "depthwise with multiplier": case((3, 3), (2, 5, 8, 9), 15, [True, False], groups=5),
    "strided": case((5, 5), (2, 16, 15, 15), 32, [True, False], stride=2, last=True),
    "dilated": case((5, 5), (2, 8, 15, 16), 8, [False, True], dilation=2),
    "even kernel": case((4, 4), (2, 8, 11, 11), 8, [True, False]),
    "unequal sides and paddings": case((3, 6), (2, 8, 11, 12), 8, [True, False], padding=[0, 3, 4, 1]),
}


def make(some: Case, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """x, weight, basis; the basis is random, as is a centre that odd orders would not have."""
    generator = torch.Generator().manual_seed(seed)
    shape, geometry = some["shape"], some["geometry"]
    pairs = len(geometry["odd"])  # type: ignore[index]

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    x = normal(*shape)  # type: ignore[misc]
    weight = normal(some["out"], shape[1] // geometry["groups"], pairs)  # type: ignore[index, call-overload]
    basis = normal(pairs, len(geometry["half"]), 2)  # type: ignore[index]
    x, weight = x.to(dtype), weight.to(dtype)
    if some["last"]:
        x = x.contiguous(memory_format=torch.channels_last)
    basis = basis.to(torch.promote_types(dtype, torch.float32))
    return [tensor.detach().requires_grad_() for tensor in (x, weight, basis)]


def with_gradients(operator: object, some: Case, tensors: list[Tensor], dy: Tensor | None = None) -> list[Tensor]:
    y = operator(*tensors, *some["geometry"].values())  # type: ignore[operator, attr-defined]
    if dy is None:
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(9))
    return [y, *torch.autograd.grad(y, tensors, dy.to(y.dtype))]


def compiled(*args: object) -> Tensor:
    return torch.ops.ringconv.harmonic_conv(*args)  # type: ignore[no-any-return]


def assert_as_good_as_torch(some: Case, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
    """Against float64, at most three times the error of torch's own operators in the same type, and the random walk of
    a sum's rounding."""
    shape, kernel = some["shape"], some["geometry"]["kernel_size"]  # type: ignore[index]
    terms = max(math.prod(shape), math.prod(kernel) * max(shape[1], some["out"]))  # type: ignore[arg-type, index, call-overload]
    rounded = make(some, dtype, seed)
    exact = [tensor.detach().double().requires_grad_() for tensor in rounded]
    expected = with_gradients(through_torch, some, exact)
    of_torch = with_gradients(through_torch, some, rounded)
    ours = with_gradients(compiled, some, rounded)
    for name, truth, theirs, given in zip(NAMES, expected, of_torch, ours, strict=True):
        assert (given.shape, given.dtype) == (truth.shape, theirs.dtype), name
        walk = math.sqrt(terms) * torch.finfo(torch.float32).eps + torch.finfo(theirs.dtype).eps
        error = (given - truth).abs().max()
        allowed = 3 * (theirs - truth).abs().max() + walk * truth.abs().max()
        assert error <= allowed, f"{name}: {error:.3e} > {allowed:.3e} for {some}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_named_cases(name: str, dtype: torch.dtype) -> None:
    assert_as_good_as_torch(CASES[name], dtype)


@pytest.mark.parametrize("first_seed", range(0, 60, 20))
def test_random_cases(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        some = random_case(seed)
        if not (some["geometry"]["groups"] > 1 and some["shape"][1] == some["out"] == some["geometry"]["groups"]):  # type: ignore[index]
            assert_as_good_as_torch(some, seed=seed)


def test_every_thread_count_and_instruction_set(threads: int, instruction_set: str) -> None:
    for name in ("odd and even order", "many pairs", "groups", "strided", "wider than a tile"):
        assert_as_good_as_torch(CASES[name])


def test_bitwise_reproducible(threads: int) -> None:
    some = case((5, 5), (3, 24, 21, 22), 40, [True, False])
    tensors = make(some, torch.float32)
    first = with_gradients(compiled, some, tensors)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, with_gradients(compiled, some, tensors), strict=True))


def test_concurrent_calls_do_not_disturb_each_other() -> None:
    cases = [case((5, 5), (2, 16 + 8 * i, 20, 21), 24, [True, False]) for i in range(4)]
    tensors = [make(some, torch.float32) for some in cases]
    alone = [with_gradients(compiled, *pair) for pair in zip(cases, tensors, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda pair: with_gradients(compiled, *pair), zip(cases, tensors, strict=True)))
    for a, b in zip(alone, together, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(a, b, strict=True))


def test_large_batches_are_swept_in_chunks() -> None:
    some = case((3, 3), (24, 33, 64, 64), 8, [True, False])
    tensors = make(some, torch.float32)
    whole = with_gradients(compiled, some, tensors)
    dy = torch.randn(whole[0].shape, generator=torch.Generator().manual_seed(9))
    parts = [
        with_gradients(compiled, some, [sample.detach().requires_grad_(), *tensors[1:]], part)
        for sample, part in zip(tensors[0].split(1), dy.split(1), strict=True)
    ]
    for index, together in enumerate(whole):
        pieces = [part[index] for part in parts]
        one_by_one = torch.cat(pieces) if index < 2 else torch.stack(pieces).sum(0)
        torch.testing.assert_close(together, one_by_one, rtol=1e-4, atol=1e-4 * one_by_one.abs().max().item())


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's mark")
@pytest.mark.parametrize("threads", [64], indirect=True)
def test_small_maps_take_no_copy_of_the_weight_per_thread(threads: int) -> None:
    some = case((3, 3), (8, 512, 4, 4), 512, [True, False])
    tensors = make(some, torch.float32)
    y = compiled(*tensors, *some["geometry"].values())  # type: ignore[attr-defined]

    def step() -> None:
        torch.autograd.grad(y, tensors, y, retain_graph=True)

    step()  # what torch sets up once does not count
    assert peak_bytes(step) < threads * tensors[1].nbytes / 4


def test_empty_batch_and_a_subset_of_gradients() -> None:
    some = CASES["odd and even order"] | {"shape": (0, 7, 13, 11)}
    for gradient in with_gradients(compiled, some, make(some, torch.float32))[1:]:
        assert torch.count_nonzero(gradient) == 0
    some = CASES["odd and even order"]
    everything = with_gradients(compiled, some, make(some, torch.float32))
    for index, name in enumerate(NAMES[1:]):
        tensors = [t.detach() for t in make(some, torch.float32)]
        tensors[index].requires_grad_()
        y = compiled(*tensors, *some["geometry"].values())  # type: ignore[attr-defined]
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(9))
        (gradient,) = torch.autograd.grad(y, tensors[index], dy)
        torch.testing.assert_close(gradient, everything[index + 1], rtol=0, atol=0, msg=name)


def test_opcheck() -> None:
    for name in ("odd and even order", "strided"):
        some = CASES[name]
        torch.library.opcheck(
            torch.ops.ringconv.harmonic_conv,
            (*make(some, torch.float32), *some["geometry"].values()),  # type: ignore[attr-defined]
        )


def test_second_derivatives() -> None:
    some = case((3, 3), (1, 2, 4, 5), 3, [True, False])
    tensors = make(some, torch.float32)
    doubles = [t.detach().double().requires_grad_() for t in tensors]

    def penalty(operator: object, tensors: list[Tensor]) -> list[Tensor]:
        y = operator(*tensors, *some["geometry"].values())  # type: ignore[operator, attr-defined]
        gradients = torch.autograd.grad(y.square().sum(), tensors, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in gradients), tensors))

    for ours, expected in zip(penalty(compiled, tensors), penalty(through_torch, doubles), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


@pytest.mark.parametrize("shared", ["the weight also makes the input", "a hook"])
def test_gradients_that_are_differentiated_again_count_every_path_once(shared: str) -> None:
    some = case((3, 3), (1, 3, 4, 5), 3, [True, False])
    found = {}
    for operator, dtype in ((compiled, torch.float32), (through_torch, torch.float64)):
        x, weight, basis = (t.detach().to(dtype).requires_grad_() for t in make(some, torch.float32))
        geometry = some["geometry"].values()  # type: ignore[attr-defined]
        if shared == "a hook":
            weight.register_hook(lambda gradient: 0.5 * gradient)
            y = operator(x, weight, basis, *geometry)
        else:
            y = operator(x * weight.mean(), weight, basis, *geometry)
        found[operator] = torch.autograd.grad(y.square().sum(), (x, weight, basis), create_graph=True)
    for ours, expected in zip(found[compiled], found[through_torch], strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_what_would_read_beyond_a_tensor_is_refused() -> None:
    some = CASES["odd and even order"]
    x, weight, basis = make(some, torch.float32)
    geometry = list(some["geometry"].values())  # type: ignore[attr-defined]
    for tensors, message in [
        ((x, weight[:, :3], basis), r"weight must be \(O, 7, 2\)"),
        ((x, weight, basis[:, :3]), r"basis must be \(2, 13, 2\)"),
        ((x[0], weight, basis), "with 2 axes"),
    ]:
        with pytest.raises(ValueError, match=message):
            compiled(*tensors, *geometry)
    with pytest.raises(ValueError, match="numbers of taps, 0 to 24"):
        compiled(x, weight, basis, geometry[0] + 20, *geometry[1:])
    with pytest.raises(TypeError, match=r"of one type, torch\.float32 or torch\.bfloat16"):
        compiled(x.double(), weight.double(), basis, *geometry)
    alone = case((3, 3), (1, 4, 6, 6), 4, [True], groups=4)
    with pytest.raises(ValueError, match="do not take one channel per group"):
        compiled(*make(alone, torch.float32), *alone["geometry"].values())  # type: ignore[attr-defined]


# -- in the layer


@pytest.mark.parametrize(
    "options",
    [
        {"harmonics": 2},
        {"harmonics": 3, "harmonic_rings": "all", "sampling": "area", "normalize": True},
        {"harmonics": 1, "stride": 2, "groups": 2, "padding_mode": "reflect", "sigma": "fixed"},
        {"harmonics": 4, "sampling": "area", "kernel_size": 9, "padding": "same"},
        {"harmonics": 2, "kernel_size": 4, "padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)
def test_the_layer_gives_the_same_by_either_way(options: dict[str, object]) -> None:
    options = {"kernel_size": 5, "padding": 2} | options
    fused = GMRConv2d(8, 12, method="fused", **options)  # type: ignore[arg-type]
    exact = copy.deepcopy(fused).double()
    exact.method = "dense"
    x = torch.randn(2, 8, 13, 13, requires_grad=True)
    results = []
    for layer, image in ((fused, x), (exact, x.detach().double().requires_grad_())):
        y = layer(image)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(y)
        results.append([y, *torch.autograd.grad(y, [image, *layer.parameters()], dy)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=3e-5 * expected.abs().max().item())


def test_compile_keeps_the_compiled_kernel() -> None:
    torch.compiler.reset()
    layer = GMRConv2d(8, 12, 5, padding=2, harmonics=2, method="fused")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, 8, 9, 9))
    assert "harmonic_conv" in str(counter.get_flop_counts())
    function = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((2, 8, 9, 9), (3, 8, 11, 7)):
        x = torch.randn(shape, requires_grad=True)
        y = function(x)
        torch.testing.assert_close(y, layer(x), rtol=1e-5, atol=1e-5)
        ours = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
        expected = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


def test_where_the_kernel_does_not_cover_it_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 8, 9, 9)
    weight = torch.randn(8, 8, 2)
    assert choice.fused_covers_harmonics(x, weight, 1)
    assert not choice.fused_covers_harmonics(x.double(), weight.double(), 1)
    assert not choice.fused_covers_harmonics(x, weight[:, :1], 8)
    assert not choice.fused_covers_harmonics(x.to("meta"), weight.to("meta"), 1)
    layer = GMRConv2d(8, 8, 5, groups=8, harmonics=2)
    assert layer(x).shape == (1, 8, 5, 5)
    monkeypatch.setattr(choice, "HARMONICS_ARE_THERE", False)
    assert not choice.fused_covers_harmonics(x, weight, 1)
