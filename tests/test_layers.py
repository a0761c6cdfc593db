"""The layers: each method against the dense reference, symmetry, and all that a torch convolution does."""

import contextlib
import copy
import csv
import itertools
import math
import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import ringconv
from ringconv import Downsample, EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d, Upsample

LAYERS = {1: GMRConv1d, 2: GMRConv2d, 3: GMRConv3d}
TORCH_LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def quiet(build, *args, **kwargs):
    """Build a layer whose options may be unwise on purpose (empty rings, strides that break equivariance)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return build(*args, **kwargs)


@st.composite
def layer_cases(draw):
    dimensions = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    depthwise = draw(st.booleans()) and draw(st.booleans())
    in_channels = groups * draw(st.integers(1, 3))
    out_channels = groups * draw(st.integers(1, 4))
    if depthwise:
        groups = out_channels = in_channels
    sizes = st.integers(1, 5 if dimensions == 3 else 8)
    kernel_size = draw(sizes) if draw(st.booleans()) else draw(st.tuples(*[sizes] * dimensions))
    kernel = (kernel_size,) * dimensions if isinstance(kernel_size, int) else kernel_size
    dilation = draw(st.integers(1, 2))
    same = draw(st.integers(0, 3)) == 0
    stride = 1 if same else draw(st.integers(1, 3))
    padding = "same" if same else draw(st.integers(0, 3))
    padding_mode = draw(st.sampled_from(ringconv.ops.PADDING_MODES))
    image = tuple(draw(st.integers(3, 6 if dimensions == 3 else 13)) for _ in range(dimensions))
    reach = [dilation * (k - 1) for k in kernel]
    pads = [-(-r // 2) for r in reach] if same else [padding] * dimensions
    assume(all(side + 2 * pad > r for side, pad, r in zip(image, pads, reach, strict=True)))
    # torch's reflecting and circular padding want less than the image itself.
    assume(padding_mode in ("zeros", "replicate") or all(pad < side for side, pad in zip(image, pads, strict=True)))
    options = {
        "rings": draw(st.sampled_from([None, 1, 2, 4])),
        "sigma": draw(st.sampled_from(["layer", "fixed", None])),
        "circular": draw(st.booleans()),
        "sampling": draw(st.sampled_from(["point", "area", "binned"])),
        "normalize": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }
    batch = draw(st.sampled_from([None, 1, 3]))
    shape = (in_channels, *image) if batch is None else (batch, in_channels, *image)
    arguments = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
    return dimensions, arguments, padding_mode, options, shape


def run(layer, x, method, mix_first=None):
    """Output and gradients (of input, weight, sigma, bias) of one method, for a fixed random cotangent."""
    layer = copy.deepcopy(layer)
    layer.method = method
    x = x.detach().clone().requires_grad_()
    context = contextlib.nullcontext()
    if mix_first is not None:
        context = pytest.MonkeyPatch.context()
    with context as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", EquivarianceWarning)
        if mix_first is not None:
            patch.setattr(ringconv.layers, "mixes_first", lambda shape: mix_first)
        y = layer(x)
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    inputs = {"x": x} | dict(layer.named_parameters())
    return {"y": y} | dict(zip(inputs, torch.autograd.grad(y, inputs.values(), cotangent), strict=True))


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(case=layer_cases(), mix_first=st.booleans())
def test_factored_equals_dense_with_every_gradient(case, mix_first):
    torch.manual_seed(0)  # hypothesis runs an example again to make sure that it fails
    dimensions, arguments, padding_mode, options, shape = case
    layer = quiet(LAYERS[dimensions], *arguments, padding_mode=padding_mode, dtype=torch.float64, **options)
    x = torch.randn(shape, dtype=torch.float64)
    reference = run(layer, x, "dense")
    result = run(layer, x, "factored", mix_first)
    for name, expected in reference.items():
        torch.testing.assert_close(result[name], expected, rtol=1e-10, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(
    case=layer_cases(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    method=st.sampled_from(["factored", "fused", "auto"]),
)
def test_low_precision_errs_no_more_than_the_low_precision_reference(case, dtype, method):
    torch.manual_seed(0)  # hypothesis runs an example again to make sure that it fails
    dimensions, arguments, padding_mode, options, shape = case
    exact = quiet(LAYERS[dimensions], *arguments, padding_mode=padding_mode, dtype=torch.float64, **options)
    low = copy.deepcopy(exact).to(dtype)
    exact = copy.deepcopy(low).to(torch.float64)  # the same numbers, computed exactly
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    truth = run(exact, x.double(), "dense")
    reference = run(low, x, "dense")
    result = run(low, x, method)
    # Sums are kept in float32: their rounding walks at random over as many terms as one of them may have.
    terms = x.numel() * math.prod(low.kernel_size)
    slack = 4 * torch.finfo(dtype).eps + math.sqrt(terms) * torch.finfo(torch.float32).eps
    for name, expected in truth.items():
        scale = expected.abs().max().item()
        if name.startswith("log_sigma"):
            # A sum of terms as large as the weight times its gradient, which may cancel altogether.
            scale = max(scale, (exact.weight * truth["weight"]).abs().sum((0, 1)).max().item())
        allowed = 4 * (reference[name].double() - expected).abs().max().item() + slack * scale
        assert (result[name].double() - expected).abs().max().item() <= allowed, name


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(case=layer_cases())
def test_the_options_of_a_torch_convolution_mean_the_same(case):
    torch.manual_seed(0)  # hypothesis runs an example again to make sure that it fails
    dimensions, arguments, padding_mode, options, shape = case
    layer = quiet(LAYERS[dimensions], *arguments, padding_mode=padding_mode, dtype=torch.float64, **options)
    plain = quiet(TORCH_LAYERS[dimensions], *arguments, padding_mode=padding_mode, dtype=torch.float64)
    with torch.no_grad():
        plain.weight.copy_(layer.kernel())
        plain.bias.copy_(layer.bias if layer.bias is not None else torch.zeros_like(plain.bias))
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(quiet(layer, x), quiet(plain, x), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("method", ["dense", "factored"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"sampling": "area", "normalize": True}, {"sampling": "binned"}])
def test_first_and_second_derivatives(method, dimensions, options):
    layer = LAYERS[dimensions](2, 2, 3, padding=1, dtype=torch.float64, method=method, **options)
    x = torch.randn(1, 2, *[4, 3, 3][:dimensions], dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def function(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, (x, *values))
    assert torch.autograd.gradgradcheck(function, (x, *values))


def test_sigma_per_channel_and_its_derivatives():
    layer = GMRConv2d(2, 3, 5, padding=2, sigma="channel", dtype=torch.float64)
    with torch.no_grad():
        layer.log_sigma.add_(0.3 * torch.randn_like(layer.log_sigma))
    assert layer.log_sigma.shape == (3, 2, 3)
    assert layer.basis().shape == (3, 2, 3, 5, 5)
    slow = torch.zeros(3, 2, 5, 5, dtype=torch.float64)
    for o, c, i in itertools.product(range(3), range(2), range(3)):
        slow[o, c] += layer.weight[o, c, i].detach() * layer.geometry.basis(layer.log_sigma[o, c].detach())[i]
    torch.testing.assert_close(layer.kernel(), slow)
    x = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, s: torch.func.functional_call(layer, {"log_sigma": s}, (x,)), (x, layer.log_sigma)
    )
    with pytest.raises(ValueError, match=r'sigma="channel" .* use method="dense"'):
        GMRConv2d(2, 3, 5, sigma="channel", method="factored")


# -- symmetry


def symmetries(dimensions):
    """All flips and axis exchanges: 2, 8 or 48 functions of the last axes."""
    for order in itertools.permutations(range(dimensions)):
        for flips in itertools.product((False, True), repeat=dimensions):

            def apply(x, order=order, flips=flips):
                lead = x.dim() - dimensions
                turned = x.permute(*range(lead), *[lead + axis for axis in order])
                return turned.flip([lead + axis for axis, flip in enumerate(flips) if flip])

            yield apply


@pytest.mark.parametrize(
    ("method", "dtype", "tolerance"),
    [
        ("dense", torch.float64, 1e-12),
        ("factored", torch.float64, 1e-12),
        ("dense", torch.float32, 1e-5),
        ("factored", torch.float32, 1e-5),
        ("fused", torch.float32, 1e-5),
    ],
)
@pytest.mark.parametrize(
    ("dimensions", "options", "side"),
    [
        (1, {"kernel_size": 5, "padding": 2}, 9),
        (2, {"kernel_size": 9, "padding": 4}, 12),
        (2, {"kernel_size": 9, "padding": "same", "padding_mode": "reflect"}, 13),
        (2, {"kernel_size": 6, "padding": 1, "padding_mode": "circular"}, 11),
        (2, {"kernel_size": 5, "dilation": 2, "padding": 3, "padding_mode": "replicate"}, 11),
        (2, {"kernel_size": 3, "stride": 2, "padding": 1}, 13),
        (2, {"kernel_size": 4, "stride": 2, "padding": 1}, 12),
        (2, {"kernel_size": 5, "stride": 3, "padding": 1}, 12),
        (2, {"kernel_size": 7, "padding": 3, "groups": 4}, 8),
        (3, {"kernel_size": 3, "padding": 1}, 5),
        (3, {"kernel_size": 5, "padding": 2, "sampling": "area"}, 5),
        (3, {"kernel_size": 3, "stride": 2, "padding": 1, "sampling": "binned"}, 5),
    ],
)
def test_turns_and_flips_commute_exactly(method, dtype, tolerance, dimensions, options, side):
    layer = LAYERS[dimensions](4, 4, dtype=dtype, method=method, **options)
    x = torch.randn(2, 4, *[side] * dimensions, dtype=dtype)
    y = layer(x)
    count = 0
    for symmetry in symmetries(dimensions):
        error = (layer(symmetry(x)) - symmetry(y)).abs().max() / y.abs().max()
        assert error <= tolerance
        count += 1
    assert count == {1: 2, 2: 8, 3: 48}[dimensions]


def test_unequal_image_sides_turn_too():
    layer = GMRConv2d(3, 5, 7, padding=3, dtype=torch.float64)
    x = torch.randn(2, 3, 10, 17, dtype=torch.float64)
    torch.testing.assert_close(layer(x.rot90(1, (2, 3))), layer(x).rot90(1, (2, 3)), rtol=1e-12, atol=1e-12)


def test_a_stride_that_breaks_equivariance_warns_once_and_is_really_broken():
    layer = GMRConv2d(4, 4, 3, stride=2, padding=1, dtype=torch.float64)
    x = torch.randn(1, 4, 16, 16, dtype=torch.float64)
    with pytest.warns(EquivarianceWarning, match=r"stride \(2, 2\) on an input of size \(16, 16\).*Downsample"):
        y = layer(x)
    assert (layer(x.rot90(1, (2, 3))) - y.rot90(1, (2, 3))).norm() / y.norm() > 0.1  # and no second warning
    layer(torch.randn(1, 4, 15, 15, dtype=torch.float64))
    fitting = GMRConv2d(4, 4, 3, stride=2, padding=1)
    fitting(torch.randn(1, 4, 15, 17))


def test_unequal_strides_warn():
    with pytest.warns(EquivarianceWarning, match=r"stride \(1, 2\)"):
        GMRConv2d(4, 4, 3, stride=(1, 2), padding=1)(torch.randn(1, 4, 9, 9))


def test_even_kernels_with_same_padding_warn():
    with pytest.warns(EquivarianceWarning, match="one side more"):
        GMRConv2d(4, 4, 6, padding="same")


# -- down- and up-sampling


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_downsampling_commutes_at_every_size(dimensions, factor):
    pool = Downsample(factor, dimensions)
    for side in range(2, 10):
        x = torch.randn(2, 3, *[side] * dimensions, dtype=torch.float64)
        y = pool(x)
        assert y.shape[2:] == (math.ceil(side / factor),) * dimensions
        for symmetry in symmetries(dimensions):
            torch.testing.assert_close(pool(symmetry(x)), symmetry(y), rtol=1e-13, atol=1e-13)
        if side % factor == 0:
            average = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}[dimensions](factor)
            torch.testing.assert_close(y, average(x))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_upsampling_commutes_at_every_size(dimensions):
    for side, size in ((2, None), (5, None), (5, [11] * dimensions), (4, [7] * dimensions)):
        x = torch.randn(2, 3, *[side] * dimensions, dtype=torch.float64)
        y = Upsample(2)(x, size)
        assert list(y.shape[2:]) == (size or [2 * side] * dimensions)
        for symmetry in symmetries(dimensions):
            torch.testing.assert_close(Upsample(2)(symmetry(x), size), symmetry(y), rtol=1e-13, atol=1e-13)
    with pytest.raises(ValueError, match=r"got an input of shape \(3, 4\)"):
        Upsample(2)(torch.randn(3, 4))


# -- initialisation


@pytest.mark.parametrize("options", [{}, {"sampling": "area"}, {"normalize": True}, {"sigma": None}])
@pytest.mark.parametrize("kernel_size", [3, 9])
def test_init_paper_and_unit(options, kernel_size):
    paper = GMRConv2d(64, 96, kernel_size, groups=2, **options)
    n = paper.rings
    assert paper.weight.std().item() == pytest.approx(math.sqrt(2 / (n * 32)), rel=0.05)
    unit = GMRConv2d(64, 96, kernel_size, init="unit", bias=False, **options)
    noise = torch.randn(4, 64, 40, 40)
    assert unit(noise).std().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    ("kernel_size", "options"),
    [(4, {"sigma": None}), (3, {"sigma": None, "circular": False}), (2, {"normalize": "orthonormal"})],
)
def test_rings_without_a_tap_take_no_share_of_the_gain(kernel_size, options):
    layer = quiet(GMRConv2d, 8, 2000, kernel_size, init="unit", bias=False, dtype=torch.float64, **options)
    assert layer.kernel().square().flatten(1).sum(1).mean().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("init", ["paper", "unit"])
def test_signals_and_gradients_survive_depth(init):
    blocks = []
    for _ in range(20):
        blocks += [GMRConv2d(16, 16, 5, padding=2, bias=False, init=init), nn.BatchNorm2d(16), nn.ReLU()]
    network = nn.Sequential(*blocks)
    x = torch.randn(8, 16, 16, 16, requires_grad=True)
    scales = []
    y = x
    for block in network:
        y = block(y)
        if isinstance(block, nn.BatchNorm2d):
            scales.append(y.std().item())
    assert all(0.1 < scale < 10 for scale in scales)
    (y.square().mean() * y.numel()).backward()
    gradients = [layer.weight.grad for layer in network if isinstance(layer, GMRConv2d)]
    norms = torch.stack([gradient.norm() for gradient in gradients])
    assert norms.isfinite().all()
    relative = norms / norms.mean()
    assert relative.min() > 0.1
    assert relative.max() < 10


# -- being a good torch module


def test_state_dict_holds_parameters_only_and_is_the_same_in_eval():
    for options, names in [
        ({}, {"weight", "bias", "log_sigma"}),
        ({"bias": False}, {"weight", "log_sigma"}),
        ({"sampling": "binned"}, {"weight", "bias", "log_sigma_index"}),
        ({"sigma": "channel"}, {"weight", "bias", "log_sigma"}),
        ({"sigma": "fixed"}, {"weight", "bias"}),
        ({"sigma": None}, {"weight", "bias"}),
        ({"kernel_size": 1}, {"weight", "bias"}),
    ]:
        layer = GMRConv2d(4, 8, **({"kernel_size": 3} | options))
        state = layer.state_dict()
        layer.eval()(torch.randn(1, 4, 8, 8))
        assert set(state) == set(layer.state_dict()) == set(dict(layer.named_parameters())) == names


def test_sigma_in_other_units_is_refused():
    pixels, area, indices = (GMRConv2d(4, 8, 5, sampling=s) for s in ("point", "area", "binned"))
    area.load_state_dict(pixels.state_dict())
    for source, target, reason in [(pixels, indices, "in pixels.*in ring indices"), (indices, area, "in ring indices")]:
        for strict in (True, False):
            with pytest.raises(RuntimeError, match=reason):
                target.load_state_dict(source.state_dict(), strict=strict)
    assert indices.log_sigma is indices.log_sigma_index


def test_deepcopy_and_pickle_and_unbatched_input():
    layer = GMRConv2d(4, 8, 5, padding=2, sampling="area").eval()
    x = torch.randn(2, 4, 9, 9)
    y = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(other(x), y, rtol=0, atol=0)
        torch.testing.assert_close(other(x[0]), y[0])


def test_channels_last_goes_in_and_comes_out():
    x = torch.randn(2, 16, 9, 9).to(memory_format=torch.channels_last)
    for method in ("dense", "factored", "fused"):
        layer = GMRConv2d(16, 16, 5, padding=2, method=method)
        y = layer(x)
        assert y.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(y, layer(x.contiguous()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sigma", ["layer", "fixed", None])
def test_dtypes_at_construction_and_by_conversion(dtype, sigma):
    x = torch.randn(2, 4, 9, 9)
    built = GMRConv2d(4, 8, 5, dtype=dtype, sigma=sigma)
    assert built(x.to(dtype)).dtype == dtype
    assert built.basis().dtype == built.kernel().dtype == dtype
    layer = GMRConv2d(4, 8, 5, sigma=sigma)
    y = layer(x)
    converted = layer.to(dtype)
    assert all(p.dtype == dtype for p in converted.parameters())
    tolerance = 10 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-5
    torch.testing.assert_close(converted(x.to(dtype)).float(), y, rtol=tolerance, atol=10 * tolerance)


def test_the_rings_keep_their_precision_in_half():
    layer = GMRConv2d(4, 8, 11).to(torch.bfloat16).to(torch.float32)
    fresh = GMRConv2d(4, 8, 11)
    fresh.log_sigma.data.copy_(layer.log_sigma)
    torch.testing.assert_close(layer.basis(), fresh.basis(), rtol=0, atol=0)


@pytest.mark.parametrize("method", ["dense", "factored", "fused"])
def test_autocast(method):
    layer = GMRConv2d(4, 8, 5, padding=2, sampling="area", method=method)
    x = torch.randn(2, 4, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        basis = layer.basis()
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(basis, layer.basis(), rtol=0, atol=0)
    torch.testing.assert_close(y.float(), layer(x), rtol=0.05, atol=0.05)
    y.float().sum().backward()
    assert layer.log_sigma.grad.isfinite().all()


@pytest.mark.parametrize("sigma", ["layer", "channel", "fixed"])
def test_meta_device(sigma):
    layer = GMRConv2d(4, 8, 5, device="meta", sigma=sigma)
    assert layer(torch.empty(2, 4, 9, 9, device="meta")).shape == (2, 8, 5, 5)
    layer.to_empty(device="cpu")
    layer.reset_parameters()
    x = torch.randn(2, 4, 9, 9)
    source = GMRConv2d(4, 8, 5, sigma=sigma)
    assert torch.equal(layer.basis(), source.basis())
    filled = GMRConv2d(4, 8, 5, device="meta", sigma=sigma).to_empty(device="cpu")
    filled.load_state_dict(source.state_dict())
    assert torch.equal(filled(x), source(x))
    assigned = GMRConv2d(4, 8, 5, device="meta", sigma=sigma)
    assigned.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(assigned(x), source(x))
    assigned.load_state_dict(source.double().state_dict(), assign=True)
    assert torch.equal(assigned(x.double()), source(x.double()))


@pytest.mark.parametrize("bias", [True, False])
def test_a_computed_weight_is_assigned_to_a_layer_on_meta(bias):
    def normed():
        return nn.utils.parametrizations.weight_norm(GMRConv2d(4, 8, 5, sigma="fixed", bias=bias))

    source = normed()
    with torch.device("meta"):
        assigned = normed()
    assigned.load_state_dict(source.state_dict(), assign=True)
    assert assigned.log_sigma.device.type == "cpu"
    x = torch.randn(2, 4, 9, 9)
    assert torch.equal(assigned(x), source(x))


def test_functional_call_and_vmap_over_an_ensemble():
    layers = [GMRConv2d(4, 8, 5, padding=2, dtype=torch.float64) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    for method in ("dense", "factored"):
        base = copy.deepcopy(layers[0]).to("meta")
        base.method = method

        def call(parameters, buffers, x, base=base):
            return torch.func.functional_call(base, (parameters, buffers), (x,))

        outputs = torch.func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
        for output, layer in zip(outputs, layers, strict=True):
            torch.testing.assert_close(output, layer(x))

    def loss(parameters, sample):
        return torch.func.functional_call(layers[0], parameters, (sample,)).square().sum()

    # Forward-mode derivatives: of the layer in its input, which is linear but for the bias.
    tangent = torch.randn_like(x)
    for layer in (layers[0], copy.deepcopy(layers[0]).float()):
        _, derivative = torch.func.jvp(layer, (x.to(layer.weight),), (tangent.to(layer.weight),))
        expected = layer(tangent.to(layer.weight)) - layer.bias[:, None, None]
        torch.testing.assert_close(derivative, expected, rtol=1e-4, atol=1e-4)

    values = {name: p.detach() for name, p in layers[0].named_parameters()}
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, x)
    for i, sample in enumerate(x):
        single = torch.func.grad(loss)(values, sample)
        for name in values:
            torch.testing.assert_close(per_sample[name][i], single[name])


@pytest.mark.parametrize("method", ["dense", "factored", "auto"])
@pytest.mark.parametrize(
    "options", [{}, {"sampling": "area", "normalize": True}, {"sampling": "binned"}, {"stride": 2}]
)
def test_export_with_dynamic_batch_and_size(method, options):
    layer = GMRConv2d(4, 8, 5, padding=2, method=method, **options).eval()
    batch, height, width = (torch.export.Dim(name, min=6, max=64) for name in ("batch", "height", "width"))
    program = torch.export.export(
        layer, (torch.randn(7, 4, 12, 13),), dynamic_shapes={"input": {0: batch, 2: height, 3: width}}
    )
    for shape in ((7, 4, 12, 13), (9, 4, 31, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x), quiet(layer, x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("method", ["dense", "factored", "fused"])
def test_compile_full_graph_with_gradients(dimensions, method):
    torch.compiler.reset()
    layer = LAYERS[dimensions](3, 5, 3, padding=1, sampling="area", method=method)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for side in (9, 7):
        x = torch.randn(2, 3, *[side] * dimensions)
        expected = run(layer, x, method)
        x.requires_grad_()
        y = compiled(x)
        torch.testing.assert_close(y, expected["y"], rtol=1e-5, atol=1e-5)
        cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        gradients = torch.autograd.grad(y, [x, *layer.parameters()], cotangent)
        for gradient, name in zip(gradients, ["x", *dict(layer.named_parameters())], strict=True):
            torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_compile_full_graph_traces_without_breaks():
    torch.compiler.reset()
    layer = GMRConv2d(3, 5, 9, padding=4, sampling="area")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((2, 3, 16, 16), (5, 3, 9, 21)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


def test_repr_shows_what_differs_from_the_defaults():
    layer = GMRConv2d(4, 8, 9, padding=4, sampling="point", bias=False, groups=2)
    assert repr(layer) == (
        "GMRConv2d(4, 8, kernel_size=(9, 9), rings=5, padding=(4, 4), groups=2, sampling='point', bias=False)"
    )


# -- choosing a method


@pytest.mark.skipif(not ringconv.ops.choice.FUSED_IS_THERE, reason="installed without a C compiler")
def test_auto_takes_the_compiled_kernel_where_it_covers_the_input():
    x = torch.randn(1, 128, 9, 9)
    layer = GMRConv2d(128, 128, 9, padding=4)
    assert layer._method_for(x) == "fused"
    assert layer.double()._method_for(x.double()) == "factored"
    assert layer.half()._method_for(x.half()) == "factored"
    assert layer.to("meta")._method_for(x.to("meta")) == "factored"
    assert GMRConv2d(128, 128, 9, sigma="channel")._method_for(x) == "dense"
    assert GMRConv2d(128, 128, 1)._method_for(x) == "dense"
    fused = GMRConv2d(128, 128, 9, method="fused")
    assert fused._method_for(x) == "fused"
    assert fused.double()._method_for(x.double()) == "factored"
    with torch.autocast("cpu", torch.bfloat16):
        assert GMRConv2d(128, 128, 9)._method_for(x) == "fused"
        # Autocast leaves float64 as it is.
        assert GMRConv2d(128, 128, 9, dtype=torch.float64)(x.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.float16):
        assert GMRConv2d(128, 128, 9)._method_for(x) != "fused"


def test_the_kernel_was_compiled_if_there_is_a_compiler():
    assert ringconv.ops.choice.FUSED_IS_THERE or shutil.which("cc") is None


def test_exported_programs_run_without_ringconv():
    program = torch.export.export(GMRConv2d(128, 128, 9).eval(), (torch.randn(1, 128, 9, 9),))
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any(target.startswith("ringconv") for target in targets)


def test_without_the_compiled_kernel_it_falls_back_and_says_so_once(monkeypatch):
    monkeypatch.setattr(ringconv.ops.choice, "FUSED_IS_THERE", False)
    monkeypatch.setattr(ringconv.ops.choice, "_said_why_unavailable", False)
    x = torch.randn(1, 128, 9, 9)
    with pytest.warns(UserWarning, match="uses torch's operators, which are slower"):
        assert GMRConv2d(128, 128, 9)._method_for(x) == "factored"
    assert GMRConv2d(128, 128, 9, method="fused")(x).shape == (1, 128, 1, 1)


def test_auto_takes_what_was_measured_to_be_fastest():
    fastest = ringconv.ops.fastest_method
    large = GMRConv2d(256, 256, 11)._shape()
    for mode in ("inference", "training"):
        assert fastest(large, mode, with_fused=True) == "fused"
        assert fastest(large, mode, with_fused=False) == "factored"
        assert fastest(GMRConv2d(64, 64, 1)._shape(), mode, with_fused=True) == "dense"
    assert fastest(GMRConv2d(64, 64, 9, groups=64)._shape(), "inference", with_fused=False) == "dense"


def test_every_measured_layer_gets_a_method_that_was_not_slow_on_it():
    """The rule interpolates; where it was measured it must not lose much."""
    choice = ringconv.ops.choice
    with choice.MEASURED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 100
    losses = []
    for row in rows:
        times = {method: float(row[f"{method}_ms"]) for method in ("dense", "factored", "fused")}
        layer, octave = choice.layer_of_row(row), choice.octave_of_row(row)
        method = choice.fastest_method(layer, row["mode"], octave, with_fused=True)
        losses.append(times[method] / min(times.values()))
    assert sum(loss <= 1.15 for loss in losses) >= 0.95 * len(losses)


def test_the_mixing_product_comes_first_where_outputs_are_few():
    shape = GMRConv2d(256, 4, 9)._shape()
    assert ringconv.ops.mixes_first(shape)
    assert not ringconv.ops.mixes_first(shape._replace(in_channels=4, out_channels=256))


# -- bad input


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0, 8, 3), {}, ValueError, "in_channels must be at least 1, got 0"),
        ((4, -8, 3), {}, ValueError, "out_channels must be at least 1, got -8"),
        ((4.0, 8, 3), {}, TypeError, r"in_channels must be an int, got 4\.0"),
        ((4, 8, -3), {}, ValueError, "kernel_size must be at least 1, got -3"),
        ((4, 8, (3, 3, 3)), {}, ValueError, r"kernel_size must be an int or 2 ints, got \(3, 3, 3\)"),
        ((4, 8, 3), {"stride": 0}, ValueError, "stride must be at least 1, got 0"),
        ((4, 8, 3), {"dilation": 0}, ValueError, "dilation must be at least 1"),
        ((4, 8, 3), {"padding": -1}, ValueError, "padding must not be negative"),
        ((4, 8, 3), {"padding": "full"}, ValueError, "'same', 'valid' or ints, got 'full'"),
        ((4, 8, 3), {"padding": "same", "stride": 2}, ValueError, "padding='same' needs stride 1"),
        (
            (4, 8, 3),
            {"groups": 3},
            ValueError,
            "in_channels must be divisible by groups, got in_channels=4 and groups=3",
        ),
        ((4, 6, 3), {"groups": 4}, ValueError, "out_channels must be divisible by groups"),
        ((4, 8, 3), {"padding_mode": "zero"}, ValueError, "'zeros', 'reflect', 'replicate', 'circular', got 'zero'"),
        ((4, 8, 3), {"rings": 0}, ValueError, "rings must be at least 1, got 0"),
        ((4, 8, 3), {"rings": 2.5}, TypeError, r"rings must be an int, got 2\.5"),
        ((4, 8, 3), {"sigma": "layers"}, ValueError, "'layer', 'channel', 'fixed', None, got 'layers'"),
        ((4, 8, 3), {"sampling": "pixel"}, ValueError, "'point', 'area', 'binned', got 'pixel'"),
        ((4, 8, 3), {"init": "kaiming"}, ValueError, "'paper', 'unit', got 'kaiming'"),
        ((4, 8, 3), {"method": "fast"}, ValueError, "'auto', 'dense', 'factored', 'fused', got 'fast'"),
        ((4, 8, 3), {"spacing": (1.0,)}, ValueError, "one value per axis"),
        ((4, 8, 3), {"spacing": 2.0}, TypeError, r"one voxel size per axis, got 2\.0"),
        ((4, 8, 3), {"dtype": torch.int32}, TypeError, r"floating, got torch\.int32"),
        (
            (4, 8, 3),
            {"num_rings": 3},
            TypeError,
            r"unknown option 'num_rings' \(did you mean 'rings'\?\); the options are",
        ),
        ((4, 8, 3), {"transposed": True}, TypeError, r"no transposed ring convolution; use ringconv\.Upsample"),
    ],
)
def test_bad_options_are_refused_at_construction(arguments, options, error, message):
    with pytest.raises(error, match=message):
        GMRConv2d(*arguments, **options)


def test_bad_inputs_are_refused():
    layer = GMRConv2d(4, 8, 3)
    with pytest.raises(ValueError, match=r"takes 4 dimensions, or 3 without a batch, got an input of shape \(4, 9\)"):
        layer(torch.randn(4, 9))
    with pytest.raises(ValueError, match=r"expected 4 channels, got an input of shape \(1, 3, 9, 9\)"):
        layer(torch.randn(1, 3, 9, 9))


def test_the_core_imports_torch_and_numpy_only():
    import subprocess
    import sys

    code = (
        "import sys, ringconv, ringconv.equivariance\n"
        "extra = {'rich', 'tyro', 'matplotlib', 'skimage', 'scipy', 'PIL', 'torchvision', 'timm'} & set(sys.modules)\n"
        "assert not extra, extra\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the basis kept in eval


def test_the_kept_basis_is_never_stale():
    layer, other = (GMRConv2d(4, 8, 9, padding=4, sampling="area").eval() for _ in range(2))
    other.log_sigma.data.add_(0.5)
    x = torch.randn(1, 4, 9, 9)

    def fresh():
        return copy.deepcopy(layer).train()(x)

    @torch.no_grad()
    def check():
        torch.testing.assert_close(layer(x), fresh(), rtol=0, atol=0)

    check()
    layer.load_state_dict(other.state_dict())
    check()
    layer.log_sigma.data.mul_(0.5)  # invisible to autograd's version counter
    check()
    layer(x).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    check()
    layer.double().float()
    check()
    with torch.inference_mode():
        check()


@pytest.mark.parametrize("method", ["dense", "factored", "fused"])
def test_gradients_after_inference_mode(method):
    """Validation, then a saliency map: what was kept must be usable with gradients."""
    layer = GMRConv2d(4, 8, 9, padding=4, method=method).eval().requires_grad_(False)
    x = torch.randn(1, 4, 9, 9)
    with torch.inference_mode():
        layer(x)
    x.requires_grad_()
    layer(x).sum().backward()
    assert x.grad.isfinite().all()


def test_the_basis_is_kept_in_eval_only(monkeypatch):
    layer = GMRConv2d(4, 8, 9, padding=4)
    calls = []
    monkeypatch.setattr(
        ringconv._ring_kernel, "orbit_values", lambda *a: calls.append(1) or ringconv.rings.orbit_values(*a)
    )
    x = torch.randn(1, 4, 9, 9)
    with torch.no_grad():
        layer(x), layer(x)
        assert len(calls) == 2
        layer.eval()
        layer(x), layer(x), layer(x)
        assert len(calls) == 3
        values = {name: p.detach() for name, p in layer.named_parameters()}
        torch.func.functional_call(layer, values, (x,))
        assert len(calls) == 4
    layer(x).sum().backward()  # with a gradient to sigma the values are computed anew
    assert layer.log_sigma.grad is not None
    assert len(calls) == 5


def test_the_basis_of_a_fixed_sigma_is_kept_in_training_too(monkeypatch):
    layer = GMRConv2d(4, 8, 9, padding=4, sigma="fixed")
    calls = []
    monkeypatch.setattr(
        ringconv._ring_kernel, "orbit_values", lambda *a: calls.append(1) or ringconv.rings.orbit_values(*a)
    )
    x = torch.randn(1, 4, 9, 9)
    for _ in range(3):
        layer(x).sum().backward()
    assert len(calls) == 1
    layer.log_sigma.add_(0.1)
    changed = layer(x)
    assert len(calls) == 2
    layer.double().float()  # which fixes it anew
    assert (layer(x) - changed).abs().max() > 1e-3


@pytest.mark.parametrize("in_dims", [0, 1, 2])
def test_vmap_over_any_axis(in_dims):
    layer = GMRConv2d(4, 8, 3)
    x = torch.randn(2, 5, 4, 9, 9).movedim(0, in_dims)
    expected = torch.stack([layer(part) for part in x.unbind(in_dims)])
    torch.testing.assert_close(torch.vmap(layer, in_dims=in_dims)(x), expected)


def test_vmap_over_images_in_channels_last():
    layer = GMRConv2d(4, 8, 3)
    x = torch.randn(5, 4, 9, 9).to(memory_format=torch.channels_last)
    torch.testing.assert_close(torch.vmap(layer)(x.unsqueeze(1))[:, 0], layer(x))


def test_fixed_widths_are_exact_in_double_precision():
    layer = GMRConv2d(1, 1, 5, sigma="fixed", dtype=torch.float64)
    before = layer.log_sigma.clone()
    assert torch.equal(layer.to("cpu").log_sigma, before)
    assert before[0].item() == layer.geometry.initial_log_sigma


def test_integers_of_numpy_are_integers():
    layer = GMRConv2d(np.int64(2), np.int32(4), np.int64(3), padding=np.int64(1), rings=np.int64(2))
    assert layer(torch.zeros(1, 2, 5, 5)).shape == (1, 4, 5, 5)
    assert type(layer.in_channels) is int
    layer = GMRConv2d(2, 4, 5, harmonics=np.int64(1), harmonic_rings=np.array([1, 2]), spacing=np.array([1.0, 2.0]))
    assert layer.harmonic_basis().shape == (2, 1, 2, 5, 5)
    assert type(layer.harmonics) is int
    assert layer.geometry.spacing == (1.0, 2.0)


def test_widths_of_binned_rings_are_set_by_either_name():
    layer = GMRConv2d(1, 1, 5, sampling="binned")
    layer.log_sigma = nn.Parameter(torch.ones(3))
    assert [name for name, _ in layer.named_parameters()].count("log_sigma") == 0
    assert torch.equal(layer.log_sigma_index, torch.ones(3))


def test_harmonic_rings_must_be_several_numbers():
    with pytest.raises(ValueError, match="harmonic_rings must be different numbers"):
        GMRConv2d(1, 1, 5, harmonics=1, harmonic_rings=2)


def test_a_table_without_a_method_does_not_stop_layers_from_being_built(tmp_path, monkeypatch):
    choice = ringconv.ops.choice
    lines = choice.MEASURED.read_text().splitlines()
    rows = list(csv.DictReader(lines))[:4]
    path = tmp_path / "measured.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "fused_ms": ""} for row in rows)
    monkeypatch.setattr(choice, "MEASURED", path)
    shape = choice.LayerShape(64, 64, 1, (5, 5), 3, (1, 1))
    for cached in (choice._surface, choice.fastest_method):
        cached.cache_clear()
    try:
        assert choice.fastest_method(shape, "inference", with_fused=True) == "fused"
        assert choice.fastest_method(shape, "inference", with_fused=False) in ("dense", "factored")
    finally:
        for cached in (choice._surface, choice.fastest_method):
            cached.cache_clear()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*is deprecated")
@pytest.mark.parametrize("options", [{"method": "dense"}, {}, {"harmonics": 1}])
def test_a_trace_of_a_layer_has_only_operators_of_torch(options):
    """torch.jit.trace also reads all properties, those of harmonics too."""
    layer, x = GMRConv2d(3, 16, 5, padding=2, **options).eval(), torch.randn(1, 3, 7, 7)
    traced = torch.jit.trace(layer, x)
    torch.testing.assert_close(traced(x), layer(x))
    assert "ringconv::" not in str(traced.inlined_graph)


@pytest.mark.parametrize("options", [{}, {"method": "fused"}, {"harmonics": 1}])
def test_a_gradient_by_torch_func_compiles(options):
    layer, x = GMRConv2d(16, 16, 5, padding=2, **options), torch.randn(2, 16, 9, 9)

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    gradient = torch.func.grad(loss)
    found = torch.compile(gradient, backend="aot_eager")(parameters)
    for name, expected in gradient(parameters).items():
        torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("harmonics", [0, 2])
@pytest.mark.parametrize("decay", [0.9, 0.9999])
def test_averaging_all_buffers_of_a_network_leaves_the_rings_alone(harmonics, decay):
    """Averages of integers would be cut off: 0.9 * 5 + 0.1 * 5 is 4.99."""
    network = nn.Sequential(GMRConv2d(2, 3, 9, padding=4, harmonics=harmonics), nn.BatchNorm2d(3)).eval()
    x = torch.randn(1, 2, 12, 12)
    expected = network(x)
    for average in (get_ema_multi_avg_fn(decay), None):
        averaged = AveragedModel(
            network, multi_avg_fn=average, avg_fn=None if average else get_ema_avg_fn(decay), use_buffers=True
        )
        for _ in range(20):
            averaged.update_parameters(network)
        program = torch.export.export(averaged.module, (x,)).module()
        # Weights are averaged as well, which rounds.
        for network_again in (averaged, ringconv.fold(averaged.module), program):
            torch.testing.assert_close(network_again(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sigma", ["fixed", "layer"])
def test_a_basis_is_the_callers_own(sigma):
    layer = GMRConv2d(2, 3, 5, padding=2, harmonics=1, sigma=sigma).eval()
    x = torch.randn(1, 2, 8, 8)
    with torch.no_grad():
        expected = layer(x)
        for mine in (layer.harmonic_basis(), layer.basis(), layer.kernel()):
            mine.zero_()
        torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("harmonics", [0, 2])
def test_an_ensemble_on_a_network_without_data(harmonics):
    """As torch.func shows it: the parameters of many, in a copy on the meta device."""
    networks = [nn.Sequential(GMRConv2d(2, 3, 5, harmonics=harmonics), nn.BatchNorm2d(3)).eval() for _ in range(3)]
    state = torch.func.stack_module_state(networks)
    skeleton = copy.deepcopy(networks[0]).to("meta")
    x = torch.randn(2, 2, 9, 9)
    together = torch.func.vmap(lambda *given: torch.func.functional_call(skeleton, given, (x,)))(*state)
    torch.testing.assert_close(together, torch.stack([network(x) for network in networks]))


@pytest.mark.parametrize("options", [{}, {"harmonics": 2}, {"sigma": None, "harmonics": 1}, {"sigma": "channel"}])
@pytest.mark.parametrize("training", [True, False])
def test_weights_of_another_dtype(options, training):
    layer = GMRConv2d(2, 3, 5, **options).train(training)
    x = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    expected = copy.deepcopy(layer).double()(x)
    with torch.no_grad():
        layer(x.float())  # what is kept of it is not what is asked for next
        precise = {name: p.double() for name, p in layer.named_parameters()}
        torch.testing.assert_close(torch.func.functional_call(layer, precise, (x,)), expected)
        for parameter in layer.parameters():
            parameter.data = parameter.data.double()
        torch.testing.assert_close(layer(x), expected)


def test_fake_tensors_leave_a_copy_as_it_was():
    layer = copy.deepcopy(GMRConv2d(2, 3, 5, harmonics=1)).eval()
    x = torch.randn(1, 2, 9, 9)
    expected = layer(x)
    again = copy.deepcopy(layer)
    with FakeTensorMode(allow_non_fake_inputs=True):
        again(torch.randn(1, 2, 9, 9))
    torch.testing.assert_close(again(x), expected)


def test_hooks_of_a_layer_run_once_in_a_graph():
    network = nn.Sequential(GMRConv2d(2, 3, 5), Downsample(2))
    for layer in network:
        layer.register_forward_hook(lambda module, inputs, output: output * 2)
        layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    x = torch.randn(1, 2, 9, 9)
    torch.testing.assert_close(torch.fx.symbolic_trace(network)(x), network(x))


def test_torch_fx_takes_the_layers_as_it_takes_torchs():
    network = nn.Sequential(
        GMRConv2d(3, 4, 5, padding=2, harmonics=1), nn.ReLU(), Downsample(2), Upsample(2), Downsample(2, mode="lowpass")
    )
    traced = torch.fx.symbolic_trace(network)
    assert {node.target for node in traced.graph.nodes if node.op == "call_module"} == set("01234")
    x = torch.randn(1, 3, 15, 17)
    torch.testing.assert_close(traced(x), network(x))
