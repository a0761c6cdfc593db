"""What all competing layers and networks have in common."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ringconv import GMRConv2d
from ringconv._extras import MissingExtraError
from ringconv.baselines import GroupConv2d, HarmonicConv2d, ORConv2d, RICConv2d, SymmConv2d, fuhl
from ringconv.baselines.fields import FieldBatchNorm2d
from ringconv.baselines.group import SortedFields
from ringconv.baselines.harmonic import CReLU, MagnitudeBatchNorm2d, MagnitudeSum
from ringconv.baselines.orn import ORAlign
from ringconv.models import create_model, list_models, model_entry

LAYERS = {
    "p4": (GroupConv2d, {"group": "p4"}),
    "p4m": (GroupConv2d, {"group": "p4m"}),
    "harmonic": (HarmonicConv2d, {}),
    "orn": (ORConv2d, {}),
    "ric": (RICConv2d, {}),
    "symm": (SymmConv2d, {}),
}
OWN = (
    "p4_resnet18", "p4m_resnet18", "harmonic_resnet18", "orn_resnet18", "ric_resnet18", "symm_resnet18",
    "symm_resnet50", "symm_r3d_9", "symm_unet", "sre_resnet18", "rad_resnet34", "rsdw_resnet34",
)  # fmt: skip
OF_ESCNN = ("e2_wrn16", "e2_order0_wrn16", "e2_resnet50", "e2_unet", "se3_cnn")


def has_escnn():
    import importlib.util

    return importlib.util.find_spec("escnn") is not None


def layer(name, in_channels=2, out_channels=4, kernel_size=3, **options):
    kind, own = LAYERS[name]
    return kind(in_channels, out_channels, kernel_size, **{**own, **options})


@pytest.mark.parametrize("name", OWN)
def test_exact_counts(name):
    entry = model_entry(name)
    with torch.device("meta"):
        network = create_model(name)
        paper = create_model(name, **dict(entry.paper_options))
    assert sum(p.numel() for p in network.parameters()) == entry.parameters
    assert sum(p.numel() for p in paper.parameters()) == (entry.paper_parameters or entry.parameters)


def test_widths_count_channels_of_the_plain_network():
    """A base width gives each method about the parameters that it gives the plain network."""
    for width in (32, 96):
        with torch.device("meta"):
            counts = {
                name: sum(p.numel() for p in create_model(name, width=width).parameters())
                for name in ("resnet18", "p4_resnet18", "p4m_resnet18", "orn_resnet18", "ric_resnet18")
            }
        for count in counts.values():
            assert count == pytest.approx(counts["resnet18"], rel=0.02)


@pytest.mark.parametrize("name", LAYERS)
def test_arguments_are_those_of_torch(name):
    positional = layer(name, 2, 4, 3, stride=2, padding=1, dilation=1, groups=2, bias=False)
    kind, own = LAYERS[name]
    again = kind(2, 4, (3, 3), (2, 2), (1, 1), 1, 2, False, "zeros", "cpu", torch.float64, **own)
    assert (again.stride, again.padding, again.groups, again.bias) == ((2, 2), (1, 1), 2, None)
    assert again.weight.dtype == torch.float64
    assert again.weight.shape == positional.weight.shape
    with pytest.raises(ValueError, match="divisible by groups"):
        layer(name, 3, 4, groups=2)
    with pytest.raises(TypeError):
        layer(name, strides=2)


@pytest.mark.parametrize("name", LAYERS)
def test_tables_are_derived(name):
    """They are not saved, survive the meta device, a copy and a change of dtype."""
    built = layer(name)
    assert set(built.state_dict()) == {key for key, _ in built.named_parameters()}
    with torch.device("meta"):
        empty = layer(name)
    filled = empty.to_empty(device="cpu")
    filled.load_state_dict(built.state_dict())
    x = torch.randn(2, 2 * built.orders[0], 6, 6)
    torch.testing.assert_close(filled(x), built(x))
    torch.testing.assert_close(copy.deepcopy(built)(x), built(x))
    assert filled.double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize("name", LAYERS)
def test_averaging_all_buffers_leaves_the_tables_alone(name):
    """Averages of integers would be cut off: 0.9999 * 5 + 0.0001 * 5 is 4.99."""
    built = layer(name)
    averaged = AveragedModel(built, multi_avg_fn=get_ema_multi_avg_fn(0.9999), use_buffers=True)
    for _ in range(5):
        averaged.update_parameters(built)
    # Weights are averaged as well, which rounds.
    torch.testing.assert_close(averaged.module.kernel(), built.kernel())


@pytest.mark.parametrize("name", LAYERS)
def test_weights_of_another_dtype_and_device(name):
    """Those of a torch.func ensemble, in a layer that has others."""
    built = layer(name)
    precise = {key: value.double() for key, value in built.state_dict().items()}
    x = torch.randn(2, 2 * built.orders[0], 6, 6, dtype=torch.float64)
    with torch.device("meta"):
        empty = layer(name)
    expected = copy.deepcopy(built).double()(x)
    for skeleton in (built, empty):
        torch.testing.assert_close(torch.func.functional_call(skeleton, precise, (x,)), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_channels_last(name):
    built = layer(name)
    x = torch.randn(2, 2 * built.orders[0], 6, 6)
    expected = built(x)
    shapes = {key: value.shape for key, value in built.state_dict().items()}
    built.to(memory_format=torch.channels_last)
    assert {key: value.shape for key, value in built.state_dict().items()} == shapes
    torch.testing.assert_close(built(x.contiguous(memory_format=torch.channels_last)), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_white_noise_gets_kaimings_gain(name):
    """Twice the mean square, half of which a ReLU takes; interpolated samples and overlapping rings change it a bit."""
    built = layer(name, 16, 64, 3, padding=1, bias=False)
    x = torch.randn(2, 16 * built.orders[0], 12, 12)
    assert 1 < float(built(x).detach()[..., 2:-2, 2:-2].square().mean()) < 4


NETWORKS = {
    "p4m": nn.Sequential(
        GroupConv2d(3, 2, 3, padding=1, group="p4m", lifting=True), FieldBatchNorm2d(2, 8), nn.ReLU(),
        GroupConv2d(2, 2, 3, padding=1, group="p4m"), SortedFields(8),
    ),
    "orn": nn.Sequential(ORConv2d(3, 2, 3, lifting=True), nn.ReLU(), ORConv2d(2, 2, 3), ORAlign(4)),
    "harmonic": nn.Sequential(
        HarmonicConv2d(3, 2, 3, lifting=True), MagnitudeBatchNorm2d(2), CReLU(2), HarmonicConv2d(2, 2, 3),
        MagnitudeSum(),
    ),
    "ric": nn.Sequential(RICConv2d(3, 4, 3, padding=1), nn.ReLU(), RICConv2d(4, 2, 3, padding=1)),
    "symm": nn.Sequential(SymmConv2d(3, 4, 3), nn.ReLU(), SymmConv2d(4, 2, 3, padding=1, padding_mode="reflect")),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_as_in_eager_mode(name):
    network = copy.deepcopy(NETWORKS[name]).eval()
    x = torch.randn(2, 3, 9, 9)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad(network(x).square().sum(), list(network.parameters()))
    got = torch.autograd.grad(compiled(x).square().sum(), list(network.parameters()))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OWN if name.endswith("resnet18")])
def test_networks_compile(name):
    network = create_model(name, width=8).eval()
    x = torch.randn(2, 3, 33, 33)
    torch.testing.assert_close(torch.compile(network, backend="aot_eager")(x), network(x), rtol=1e-3, atol=1e-3)


def test_our_readings_are_marked():
    for name in ("rad_resnet34", "rsdw_resnet34"):
        assert model_entry(name).note == fuhl.OUR_READING
    assert fuhl.rad_conv(2, 3, radii=3).weight.shape == (3, 2, 3)
    depthwise, mixing = fuhl.rsdw_conv(2, 3, radii=2)
    assert depthwise.groups == 2
    assert mixing.kernel_size == (1, 1)
    with pytest.raises(ValueError, match="radii must be at least 1, got 0"):
        create_model("rad_resnet34", radii=0)
    with pytest.raises(ValueError, match="hard rings have no sigma"):
        create_model("sre_resnet18", sigma="layer")


def test_published_rings_are_hard_whatever_the_default():
    layers = [fuhl.rad_conv(1, 1, radii=3)]
    for options in ({}, {"preset": None}):
        network = create_model("sre_resnet18", width=2, **options)
        layers += [layer for layer in network.modules() if isinstance(layer, GMRConv2d)]
    for layer in layers:
        assert set(layer.basis().unique().tolist()) == {0.0, 1.0}
        assert (layer.basis().sum(0) <= 1).all()


def test_networks_of_escnn_are_listed_and_say_what_they_need():
    assert set(OF_ESCNN) <= set(list_models())
    assert {model_entry(name).extra for name in OF_ESCNN} == {"escnn"}
    if not has_escnn():
        for name in OF_ESCNN:
            with pytest.raises(MissingExtraError, match="make escnn"):
                create_model(name)


@pytest.mark.parametrize("layer", [SymmConv2d, HarmonicConv2d, ORConv2d])
def test_weights_are_assigned_to_a_layer_without_storage(layer):
    trained = layer(2, 4, 3)
    with torch.device("meta"):
        empty = layer(2, 4, 3)
    empty.load_state_dict(trained.state_dict(), assign=True)
    torch.testing.assert_close(empty.kernel(), trained.kernel())


def test_radii_with_a_dilation_for_each_axis():
    assert fuhl.rad_conv(2, 3, dilation=(2, 2))(torch.zeros(1, 2, 9, 9)).shape == (1, 3, 9, 9)
