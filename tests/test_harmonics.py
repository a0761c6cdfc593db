"""Circular harmonics: their kernels against slow definitions, the layer against slow sums, symmetry, use in torch."""

import copy
import itertools
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from ringconv import EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d, RingGeometry, convert
from ringconv.harmonics import chosen_rings
from ringconv.models import create_model, load_model, save_model
from ringconv.models.operations import count_operations
from ringconv.ops import PADDING_MODES
from ringconv.ops.harmonic import TINY


def symmetries():
    """The eight turns and flips of the last two axes."""
    for turns, flipped in itertools.product(range(4), (False, True)):
        yield lambda x, turns=turns, flipped=flipped: (x.flip(-1) if flipped else x).rot90(turns, (-2, -1))


def slow_pairs(geometry: RingGeometry, harmonics: int, ring: int, per_axis: int) -> np.ndarray:
    """(m, 2, *kernel): every pixel's mean over a grid of points, straight from the definition."""
    steps = (np.arange(per_axis) + 0.5) / per_axis - 0.5
    sigma, mu = math.exp(geometry.initial_log_sigma), ring * geometry.delta
    result = np.zeros((harmonics, 2, *geometry.kernel_size))
    for i, j in itertools.product(*map(range, geometry.kernel_size)):
        y = (i - (geometry.kernel_size[0] - 1) / 2 + steps)[:, None] * geometry.pixel[0]
        x = (j - (geometry.kernel_size[1] - 1) / 2 + steps)[None, :] * geometry.pixel[1]
        r, angle = np.hypot(y, x), np.arctan2(y, x)
        g = np.exp(-0.5 * ((r - mu) / sigma) ** 2)
        if geometry.edge == "smooth":
            start = geometry.extent / 2 - (1 if geometry.sampling == "area" else 0.5)
            g = g * (1 + np.cos(np.pi * np.clip(r - start, 0, 1))) / 2
        elif geometry.circular:
            g = g * (r < geometry.extent / 2)
        for order in range(1, harmonics + 1):
            off_centre = r > 1e-12
            result[order - 1, :, i, j] = [(g * wave(order * angle) * off_centre).mean() for wave in (np.cos, np.sin)]
    return result * np.sqrt(2 / (result**2).sum((1, 2, 3), keepdims=True))


@pytest.mark.parametrize(
    ("options", "per_axis", "tolerance"),
    [
        ({"preset": "paper"}, 1, 1e-12),
        ({"sampling": "point"}, 1, 1e-12),
        ({"sampling": "point", "circular": False}, 1, 1e-12),
        ({}, 100, 5e-4),
        ({"sampling": "area", "edge": "hard"}, 100, 5e-4),
        ({"sampling": "area", "circular": False}, 100, 5e-4),
        ({"sampling": "area", "spacing": (1.0, 2.0)}, 100, 5e-4),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [(5, 5), (6, 6), (5, 7)])
def test_kernels_are_the_definition(options, per_axis, tolerance, size):
    layer = GMRConv2d(1, 1, size, harmonics=2, harmonic_rings="all", dtype=torch.float64, **options)
    basis = layer.harmonic_basis().detach().numpy()
    for index, ring in enumerate(layer.harmonic_rings):
        expected = slow_pairs(layer.geometry, 2, ring, per_axis)
        np.testing.assert_allclose(basis[index], expected, atol=tolerance, rtol=0)


def test_the_centre_of_an_area_sampled_harmonic():
    """Orders 1 to 3 cancel over the centre's square pixel, order 4 does not."""
    centre = GMRConv2d(1, 1, 9, harmonics=4, sampling="area", dtype=torch.float64)
    pairs = centre.harmonic_basis()[0, :, :, 4, 4].detach()
    assert (pairs[:3] == 0).all()
    assert pairs[3, 0] != 0
    assert pairs[3, 1] == 0


@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
@pytest.mark.parametrize("sigma", ["layer", None])
@pytest.mark.parametrize("size", [4, 5, 9])
def test_kernels_have_the_symmetry_of_the_grid_to_the_last_bit(sampling, sigma, size):
    if sigma is None and size == 4:
        pytest.skip("hard rings of an even kernel are few pixels each")
    layer = GMRConv2d(1, 1, size, harmonics=2, sampling=sampling, sigma=sigma)
    for order, (cos, sin) in enumerate(layer.harmonic_basis()[0].detach(), start=1):
        sign = 1 if order == 2 else -1
        assert torch.equal(cos.flip(1), sign * cos)
        assert torch.equal(cos.flip(0), cos)
        assert torch.equal(sin.flip(0), -sin)
        turned = [cos.rot90(), sin.rot90()]
        if order == 1:
            assert torch.equal(turned[0].abs(), sin.abs())
        else:
            assert torch.equal(turned[0], -cos)
            assert torch.equal(turned[1], -sin)
        assert (cos * sin).sum().abs() < 1e-6
        assert (cos.square() + sin.square()).sum().item() == pytest.approx(2, rel=1e-5)


def slow_layer(layer: GMRConv2d, x: torch.Tensor) -> torch.Tensor:
    """Rings by the dense kernel, and each length of each channel by a convolution of its own."""
    kind = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = nn.functional.pad(x, layer._options.flat_padding, mode=kind)
    rest = {"stride": layer.stride, "dilation": layer.dilation}
    y = nn.functional.conv2d(padded, layer.kernel(), layer.bias, groups=layer.groups, **rest)
    pairs = layer.harmonic_basis().flatten(0, 1)
    ins, outs = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    for o, c, q in itertools.product(range(layer.out_channels), range(ins), range(len(pairs))):
        channel = padded[:, o // outs * ins + c : o // outs * ins + c + 1]
        cos, sin = (nn.functional.conv2d(channel, kernel[None, None], **rest)[:, 0] for kernel in pairs[q])
        length = (cos.square() + sin.square() + TINY).sqrt()
        y = y + nn.functional.one_hot(torch.tensor(o), layer.out_channels)[:, None, None] * (
            layer.harmonic_weight[o, c, q] * length[:, None]
        )
    return y


CASES = [
    {},
    {"harmonics": 1, "sigma": "fixed", "bias": False},
    {"harmonic_rings": "all", "normalize": True, "sampling": "area"},
    {"harmonic_rings": (2, 1), "normalize": "orthonormal", "edge": "smooth"},
    {"groups": 2, "padding_mode": "reflect"},
    {"groups": 4, "padding_mode": "circular", "out_channels": 4},
    {"stride": 2, "padding_mode": "replicate", "sampling": "binned"},
    {"dilation": 2, "padding": 4, "sigma": None},
    {"kernel_size": 4, "padding": 1},
    {"kernel_size": 3, "padding": "same", "in_channels": 1, "out_channels": 1, "harmonics": 3},
]


def built(dtype=torch.float64, **options) -> GMRConv2d:
    defaults = {"in_channels": 4, "out_channels": 6, "kernel_size": 5, "padding": 2, "harmonics": 2}
    return GMRConv2d(dtype=dtype, **(defaults | options))


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("method", ["dense", "factored"])
def test_layer_is_the_slow_sum(options, method):
    layer = built(**options, method=method)
    x = torch.randn(2, layer.in_channels, 9, 11, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquivarianceWarning)
        torch.testing.assert_close(layer(x), slow_layer(layer, x), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(layer(x[0]), layer(x)[0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_turns_and_flips_commute(options):
    layer = built(**options)
    side = 13 if layer.stride == (2, 2) else 12
    x = torch.randn(2, layer.in_channels, side, side, dtype=torch.float64)
    y = layer(x)
    for symmetry in symmetries():
        assert (layer(symmetry(x)) - symmetry(y)).abs().max() / y.abs().max() < 1e-12


def turned_error(pairs: torch.Tensor, order: int, degrees: float, cutoff: float = 0.3) -> float:
    """|turned responses - responses to the turned image| / |responses| to noise below ``cutoff`` cycles per pixel.

    A wave's responses are its transfer function, and a turn of the image by an angle a turns the pair by order * a.
    """
    grid = torch.linspace(-cutoff, cutoff, 61, dtype=torch.float64)
    fy, fx = torch.meshgrid(grid, grid, indexing="ij")
    inside = torch.hypot(fy, fx) <= cutoff
    fy, fx = fy[inside], fx[inside]
    k = pairs.shape[-1]
    place = torch.arange(k, dtype=torch.float64) - (k - 1) / 2

    def transfer(fy, fx):
        waves = torch.exp(2j * math.pi * (fy[:, None, None] * place[:, None] + fx[:, None, None] * place))
        return (waves * (pairs[0] + 1j * pairs[1])).sum((-2, -1))

    angle = math.radians(degrees)
    turned = transfer(math.cos(angle) * fy + math.sin(angle) * fx, -math.sin(angle) * fy + math.cos(angle) * fx)
    straight = transfer(fy, fx)
    error = turned * np.exp(-1j * order * angle) - straight
    return math.sqrt(error.abs().square().sum() / straight.abs().square().sum())


@pytest.mark.parametrize("size", [5, 7, 9, 11])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("edge", ["hard", "smooth"])
def test_between_quarter_turns_they_are_as_good_as_rings(size, order, edge):
    """As the layer's own outermost ring, which is a harmonic of order 0; with a hard edge much better."""
    layer = GMRConv2d(1, 1, size, harmonics=order, sampling="area", edge=edge, dtype=torch.float64)
    pairs = layer.harmonic_basis()[0, order - 1].detach()
    outermost = layer.basis()[-1].detach()
    assert turned_error(pairs, order, 90) < 1e-12
    error, of_ring = turned_error(pairs, order, 45), turned_error(torch.stack([outermost, 0 * outermost]), 0, 45)
    assert error < (0.02 if edge == "hard" else of_ring)


# -- being a good torch module


@pytest.mark.parametrize("options", [{}, {"preset": "paper"}, {"sampling": "binned"}], ids=str)
def test_first_and_second_derivatives(options):
    layer = GMRConv2d(2, 2, 3, padding=1, harmonics=2, dtype=torch.float64, **options)
    x = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)
    assert "harmonic_weight" in names

    def function(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, (x, *values))
    assert torch.autograd.gradgradcheck(function, (x, *values))


def test_flat_images_have_finite_gradients():
    layer = built(torch.float32)
    x = torch.zeros(1, 4, 8, 8, requires_grad=True)
    layer(x).sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("options", [{}, {"sampling": "area", "normalize": True}, {"sigma": None, "kernel_size": 9}])
@pytest.mark.parametrize("harmonic_rings", ["middle", "all"])
def test_init(options, harmonic_rings):
    options = {"kernel_size": 9, "bias": False, "harmonics": 2, "harmonic_rings": harmonic_rings} | options
    noise = torch.randn(2, 64, 40, 40)
    unit = GMRConv2d(64, 96, init="unit", **options)
    assert unit(noise).square().mean().sqrt().item() == pytest.approx(1.0, rel=0.1)
    paper = GMRConv2d(64, 96, **options)
    with torch.no_grad():
        paper.weight.zero_()
        assert paper(noise).square().mean().item() == pytest.approx(2.0, rel=0.2)
    # The rings are drawn as without harmonics.
    torch.manual_seed(3)
    first = GMRConv2d(4, 8, **options)
    torch.manual_seed(3)
    assert torch.equal(first.weight, GMRConv2d(4, 8, **(options | {"harmonics": 0, "harmonic_rings": "middle"})).weight)


def test_state_dict_copies_and_conversions():
    layer = built(torch.float32, sampling="area").eval()
    assert layer.harmonic_weight.shape == (6, 4, 2)
    assert set(layer.state_dict()) == {"weight", "bias", "log_sigma", "harmonic_weight"}
    assert "harmonic_weight" not in built(harmonics=0).state_dict()
    assert "harmonics=2, harmonic_rings=(1,)" in repr(layer)
    x = torch.randn(2, 4, 9, 9)
    y = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), y)
    other = built(torch.float32, sampling="area")
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x), y, rtol=1e-6, atol=1e-6)
    meta = built(torch.float32, sampling="area", device="meta")
    assert meta(torch.empty(2, 4, 9, 9, device="meta")).shape == y.shape
    meta.load_state_dict(layer.state_dict(), assign=True)
    torch.testing.assert_close(meta(x), y, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(layer.double()(x.double()).float(), y, rtol=1e-4, atol=1e-4)
    for dtype in (torch.bfloat16, torch.float16):
        low = copy.deepcopy(layer).to(dtype)(x.to(dtype))
        assert low.dtype == dtype
        torch.testing.assert_close(low.float(), y, rtol=0.1, atol=0.1)


def test_large_values_in_half_precision():
    layer = built(torch.float16, bias=False)
    assert layer(torch.full((1, 4, 9, 9), 3000.0, dtype=torch.float16))[..., 2:-2, 2:-2].isfinite().all()


def test_what_was_kept_in_eval_is_never_stale():
    layer = built(torch.float32, sampling="area").eval()
    x = torch.randn(1, 4, 9, 9)
    with torch.no_grad():
        before = layer(x)
        layer.log_sigma.data.add_(0.5)
        after = layer(x)
        assert (after - before).abs().max() > 1e-3
        torch.testing.assert_close(after, copy.deepcopy(layer).train()(x), rtol=0, atol=0)


def test_channels_last_goes_in_and_comes_out():
    layer = built(torch.float32)
    x = torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last)
    y = layer(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, layer(x.contiguous()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding_mode", PADDING_MODES)
def test_autocast(padding_mode):
    layer = built(torch.float32, padding_mode=padding_mode)
    x = torch.randn(2, 4, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=0.05, atol=0.05)
    y.float().sum().backward()
    assert layer.log_sigma.grad.isfinite().all()


def test_vmap_and_forward_mode():
    layers = [built() for _ in range(3)]
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    parameters, buffers = torch.func.stack_module_state(layers)
    base = copy.deepcopy(layers[0]).to("meta")

    def call(parameters, buffers, x):
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    for output, layer in zip(torch.func.vmap(call, (0, 0, None))(parameters, buffers, x), layers, strict=True):
        torch.testing.assert_close(output, layer(x))
    tangent = torch.randn_like(x)
    _, derivative = torch.func.jvp(layers[0], (x,), (tangent,))
    step = 1e-6
    slope = (layers[0](x + step * tangent) - layers[0](x - step * tangent)) / (2 * step)
    torch.testing.assert_close(derivative, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_compile():
    torch.compiler.reset()
    layer = built(torch.float64, sampling="area").eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((2, 4, 16, 16), (5, 4, 9, 21)):
        x = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-11, atol=1e-11)


def test_export():
    layer = built(torch.float32, sampling="area").eval()
    batch, height, width = (torch.export.Dim(name, min=6, max=64) for name in ("batch", "height", "width"))
    program = torch.export.export(
        layer, (torch.randn(7, 4, 12, 13),), dynamic_shapes={"input": {0: batch, 2: height, 3: width}}
    )
    x = torch.randn(9, 4, 31, 7)
    torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-5, atol=1e-5)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any(target.startswith("ringconv") for target in targets)


# -- networks


def test_count_of_the_prototype():
    """The rings of width 16 with fixed sigma have 252,666; two orders on one ring of every layer, the stem included."""
    options = {"width": 16, "sigma": "fixed", "sampling": "area", "normalize": True}
    with torch.device("meta"):
        counts = [
            sum(p.numel() for p in create_model("gmr_resnet18", **options, harmonics=m).parameters()) for m in (0, 2)
        ]
    assert counts == [252_666, 405_338]


def test_network_learns_and_is_invariant():
    network = create_model(
        "gmr_resnet18", harmonics=2, harmonic_rings="middle", sampling="area", normalize=True, width=4, num_classes=3,
        kernel_size=(5, 5, 3, 3),
    )  # fmt: skip
    x, labels = torch.randn(12, 3, 13, 13), torch.arange(12) % 3
    # At ten times the rate, where it ends depends on the last bits of the sums.
    optimiser = torch.optim.SGD(network.parameters(), lr=0.005, momentum=0.9)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(x), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    network = network.double().eval()
    logits = network(x.double())
    for symmetry in symmetries():
        torch.testing.assert_close(network(symmetry(x.double())), logits, rtol=1e-10, atol=1e-10)


def test_checkpoint(tmp_path):
    network = create_model("gmr_resnet18", harmonics=2, harmonic_rings=(1,), width=4).eval()
    x = torch.randn(1, 3, 16, 16)
    loaded = load_model(save_model(tmp_path / "model.safetensors", network))
    assert torch.equal(loaded(x), network(x))


def test_convert():
    model = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 3))
    converted = convert(model, harmonics=1, sampling="area")
    rings = [layer for layer in converted.modules() if isinstance(layer, GMRConv2d)]
    assert [layer.harmonics for layer in rings] == [1, 1]
    x = torch.randn(1, 3, 16, 16)
    torch.testing.assert_close(converted(x.rot90(1, (2, 3))), converted(x).rot90(1, (2, 3)), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"layer '' \(Conv3d\): circular harmonics are functions of the plane"):
        convert(nn.Conv3d(2, 2, 3), harmonics=1)


def test_operations_are_counted():
    layers = [built(torch.float32, harmonics=m) for m in (0, 1, 2)]
    counts = [count_operations(layer, torch.randn(1, 4, 9, 9)) for layer in layers]
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0


# -- bad options


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        (GMRConv2d, {"harmonics": -1}, "harmonics must be an int of at least 0, the highest order, got -1"),
        (GMRConv2d, {"harmonics": True}, "at least 0, the highest order, got True"),
        (GMRConv2d, {"harmonics": 1, "harmonic_rings": "outer"}, "'middle', 'all' or numbers of rings, got 'outer'"),
        (GMRConv2d, {"harmonics": 1, "harmonic_rings": (3,)}, r"different numbers from 0 to 2, got \(3,\)"),
        (GMRConv2d, {"harmonics": 1, "harmonic_rings": (1, 1)}, "different numbers from 0 to 2"),
        (GMRConv2d, {"harmonics": 1, "harmonic_rings": ()}, "different numbers from 0 to 2"),
        (
            GMRConv2d,
            {"harmonics": 9, "sampling": "point"},
            "ring 1 of a 5x5 kernel with 3 rings has too few pixels .* orders up to 4",
        ),
        (
            GMRConv2d,
            {"harmonics": 1, "sigma": "channel"},
            'rings that all channels share, which sigma="channel" has not',
        ),
        (GMRConv1d, {"harmonics": 1}, "functions of the plane: GMRConv1d has none, use GMRConv2d"),
        (GMRConv3d, {"harmonics": 1}, "functions of the plane: GMRConv3d has none"),
    ],
)
def test_bad_options_are_refused(layer, options, message):
    with pytest.raises(ValueError, match=message):
        layer(4, 8, 5, **options)


def test_rings_by_name():
    five = RingGeometry((9, 9))
    assert chosen_rings(five, 2, "middle") == (2,)
    assert chosen_rings(five, 2, "all") == (1, 2, 3, 4)
    assert chosen_rings(five, 2, [3, 1]) == (3, 1)
    assert chosen_rings(RingGeometry((3, 3)), 2, "middle") == chosen_rings(RingGeometry((3, 3)), 2, "all") == (1,)
    assert chosen_rings(RingGeometry((5, 5), rings=1), 2, "all") == (0,)


def test_a_single_tap_has_no_harmonics():
    layer = GMRConv2d(4, 8, 1, harmonics=2)
    assert layer.harmonic_weight is None
    with pytest.raises(ValueError, match="the layer has no harmonics"):
        layer.harmonic_basis()
