"""Converting models: what takes the place of every kind of layer, sizes, symmetry, and what is kept."""

import copy
import functools
import pickle
import warnings
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from ringconv import Downsample, EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d
from ringconv._torchvision import import_torchvision
from ringconv.convert import convert, recalibrate_batchnorm
from ringconv.fold import fold
from ringconv.models import gmr_resnet, resnet

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
RINGS = (GMRConv1d, GMRConv2d, GMRConv3d)


class SamePad2d(nn.Conv2d):
    """Pads by the size of the map so that ceil(size / stride) comes out, as TensorFlow does."""

    def forward(self, x):
        pads = []
        for side, k, s, d in zip(x.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True):
            total = max((-(-side // s) - 1) * s + d * (k - 1) + 1 - side, 0)
            pads = [total // 2, total - total // 2, *pads]
        return F.conv2d(F.pad(x, pads), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Standardised2d(nn.Conv2d):
    """Uses its kernel in units of its standard deviation."""

    def forward(self, x):
        return self._conv_forward(x, self.weight / self.weight.std(), self.bias)


def quietly(model, *args, **options):
    """Without the warning that something is left which may break equivariance."""
    return convert(model, *args, return_report=True, **options)[0]


def square_symmetries(x):
    """Generators of the symmetry of the square (the cube): flips, and exchanges of the last axes."""
    axes = range(2, x.dim())
    return [lambda t, a=a: t.flip(a) for a in axes] + [lambda t, a=a: t.transpose(a, a + 1) for a in list(axes)[:-1]]


def assert_equivariant(module, x):
    y = module(x)
    for turned in square_symmetries(x):
        torch.testing.assert_close(module(turned(x)), turned(y), rtol=1e-9, atol=1e-10)


# -- sizes and symmetry of one layer


windows = st.fixed_dictionaries(
    {
        "kernel_size": st.integers(1, 5),
        "stride": st.integers(1, 4),
        "padding": st.integers(0, 3),
        "dilation": st.integers(1, 3),
    }
)


@settings(max_examples=120, deadline=None)
@given(
    dimensions=st.sampled_from([1, 2, 2, 3]),
    window=windows,
    size=st.integers(1, 17),
    new=st.sampled_from([None, 1, 3, 7]),
)
def test_a_convolution_keeps_its_sizes_and_becomes_equivariant(dimensions, window, size, new):
    plain = CONVS[dimensions](2, 3, **window).double()
    reach = window["dilation"] * (window["kernel_size"] - 1) + 1
    assume(size + 2 * window["padding"] >= reach)
    x = torch.randn(1, 2, *[size] * dimensions, dtype=torch.float64)
    converted = convert(plain, new)
    assert converted(x).shape == plain(x).shape
    assert_equivariant(converted, x)


@settings(max_examples=60, deadline=None)
@given(
    dimensions=st.sampled_from([1, 2, 2, 3]),
    window=windows,
    size=st.integers(1, 7),
    output_padding=st.integers(0, 2),
)
def test_a_transposed_convolution_keeps_its_sizes_and_becomes_equivariant(dimensions, window, size, output_padding):
    assume(output_padding < max(window["stride"], window["dilation"]))
    plain = TRANSPOSED[dimensions](2, 4, output_padding=output_padding, groups=2, **window).double()
    x = torch.randn(1, 2, *[size] * dimensions, dtype=torch.float64)
    k, s, p, d = (window[key] for key in ("kernel_size", "stride", "padding", "dilation"))
    assume((size - 1) * s - 2 * p + d * (k - 1) + output_padding + 1 >= 1)
    converted = convert(plain)
    assert converted(x).shape == plain(x).shape
    assert_equivariant(converted, x)


@settings(max_examples=120, deadline=None)
@given(
    pool=st.sampled_from(
        [nn.MaxPool1d, nn.AvgPool1d, nn.MaxPool2d, nn.AvgPool2d, nn.MaxPool3d, nn.AvgPool3d, nn.MaxPool2d, nn.AvgPool2d]
    ),
    window=windows,
    ceil_mode=st.booleans(),
    size=st.integers(1, 15),
)
def test_a_pooling_keeps_its_sizes_and_becomes_equivariant(pool, window, ceil_mode, size):
    options = dict(window, ceil_mode=ceil_mode)
    if pool.__name__.startswith("Avg"):
        del options["dilation"]
    assume(2 * options["padding"] <= options["kernel_size"])
    assume(size + 2 * options["padding"] >= options.get("dilation", 1) * (options["kernel_size"] - 1) + 1)
    dimensions = int(pool.__name__[-2])
    plain = pool(**options)
    x = torch.randn(1, 2, *[size] * dimensions, dtype=torch.float64)
    try:
        shape = plain(x).shape
    except RuntimeError:  # AvgPool3d does not always count its padding to the map
        assume(False)
    converted = convert(plain)
    assert converted(x).shape == shape
    assert_equivariant(converted, x)


@pytest.mark.parametrize("size", [1, 2, 7, 12, 15])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"stride": 3, "dilation": 2}, {"kernel_size": 4}])
def test_padding_by_the_size_of_the_map_is_found_out(size, options):
    plain = SamePad2d(2, 3, **{"kernel_size": 3, **options}).double()
    x = torch.randn(2, 2, size, size, dtype=torch.float64)
    converted = convert(plain)
    assert converted(x).shape == plain(x).shape
    assert_equivariant(converted, x)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel_size", [2, 3, 4, 5])
def test_padding_by_name(padding, kernel_size):
    plain = nn.Conv2d(2, 3, kernel_size, padding=padding).double()
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    converted = convert(plain)
    assert converted(x).shape == plain(x).shape
    assert_equivariant(converted, x)


@pytest.mark.parametrize("size", [(15, 15), (16, 23), (1, 2)])
def test_unbatched_maps(size):
    x = torch.randn(4, *size)
    for plain in (
        nn.Conv2d(4, 8, 3, 2, 1),
        nn.Conv2d(4, 8, 1, 2),
        nn.MaxPool2d(3, 2, 1),
        nn.ConvTranspose2d(4, 8, 2, 2),
    ):
        assert convert(plain)(x).shape == plain(x).shape


def test_a_map_that_was_too_small_still_is():
    with pytest.raises(ValueError, match=r"a map of size \(2, 2\) is too small for a layer of stride \(2, 2\)"):
        convert(nn.Conv2d(1, 1, 5, 2))(torch.randn(1, 1, 2, 2))


@pytest.mark.parametrize(
    "window",
    [
        {"kernel_size": (3, 5), "padding": (1, 2)},
        {"kernel_size": (1, 5)},
        {"kernel_size": 2, "dilation": 3, "padding": (1, 0)},
        {"kernel_size": (2, 3), "stride": 3, "padding": 1, "dilation": (2, 1)},
        {"kernel_size": 2, "stride": (1, 2)},
    ],
)
def test_a_transposed_convolution_whose_axes_differ_is_reported(window):
    _, report = convert(nn.ConvTranspose2d(4, 4, **window), return_report=True)
    assert "its axes are not treated alike" in dict(report.breaks)[""]


def test_output_size_of_a_transposed_convolution():
    plain = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    x = torch.randn(1, 2, 8, 8)
    assert plain(x).shape[2:] == (15, 15)
    assert convert(plain)(x, output_size=(16, 16)).shape[2:] == plain(x, output_size=(16, 16)).shape[2:] == (16, 16)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_the_padding_mode_is_kept(mode):
    converted = convert(nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode))
    assert isinstance(converted, GMRConv2d)
    assert converted.padding_mode == mode


@pytest.mark.parametrize(("mode", "least"), [("reflect", 13), ("circular", 9)])
def test_padding_with_pixels_of_the_coarser_map_needs_some(mode, least):
    conv = nn.Conv2d(1, 1, 7, 4, 3, padding_mode=mode)
    converted, report = convert(conv, return_report=True)
    assert report.layers[0].reason.endswith(f"its {mode} padding then takes maps of at least {least} pixels")
    assert converted(torch.randn(1, 1, least, least)).shape == conv(torch.randn(1, 1, least, least)).shape
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)padding"):
        converted(torch.randn(1, 1, least - 1, least - 1))
    assert "padding" not in convert(nn.Conv2d(1, 1, 7, 4, 3), return_report=True)[1].layers[0].reason


# -- which layer becomes what


def test_what_takes_the_place_of_each_kind_of_layer():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
        nn.Conv2d(8, 16, 1),
        nn.Conv2d(16, 16, 1, stride=2),
        nn.Conv2d(16, 16, 2, stride=2),
        nn.MaxPool2d(2),
        nn.AvgPool2d(3, 1, 1),
        nn.ConvTranspose2d(16, 4, 2, 2),
        nn.MaxPool2d(3, 1, 1),
    )
    stem, pool, dilated, pointwise, shortcut, patches, disjoint, even, up, odd = convert(model)
    assert [type(part) for part in stem] == [Downsample, GMRConv2d]
    assert stem[1].bias is None
    assert isinstance(pool, Downsample)
    assert isinstance(dilated, GMRConv2d)
    assert (dilated.groups, dilated.dilation, dilated.padding) == (8, (2, 2), (2, 2))
    torch.testing.assert_close(pointwise.weight, model[3].weight)
    assert [type(part) for part in shortcut] == [Downsample, nn.Conv2d]
    torch.testing.assert_close(shortcut[1].weight, model[4].weight)
    assert patches[1].kernel_size == (1, 1)
    assert isinstance(disjoint, nn.MaxPool2d)
    assert type(even) is nn.AvgPool2d
    assert isinstance(up[1], GMRConv2d)
    assert type(odd) is nn.MaxPool2d


@pytest.mark.parametrize("size", [16, 17, 31])
def test_max_pooling_over_disjoint_windows_is_torchs_where_they_fill_the_map(size):
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    for kernel in (2, 4):
        pool = convert(nn.MaxPool2d(kernel))
        assert pool(x).shape == F.max_pool2d(x, kernel).shape
        assert_equivariant(pool, x)
        if size % kernel == 0:
            assert torch.equal(pool(x), F.max_pool2d(x, kernel))
    values, indices = convert(nn.MaxPool2d(2, return_indices=True))(x)
    torch.testing.assert_close(x.flatten(2).gather(2, indices.flatten(2)).view_as(values), values)


def test_a_video_network_turns_in_the_plane():
    model = nn.Sequential(
        nn.Conv3d(2, 4, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.Conv3d(4, 4, (3, 1, 1), padding=(1, 0, 0))
    )
    converted, report = convert(model.double(), 5, return_report=True)
    assert converted[0][1].kernel_size == (1, 5, 5)
    assert type(converted[1]) is nn.Conv3d
    assert [row.action for row in report.layers] == ["converted", "left"]
    x = torch.randn(1, 2, 5, 9, 9, dtype=torch.float64)
    assert converted(x).shape == model(x).shape
    torch.testing.assert_close(converted(x.rot90(1, (3, 4))), converted(x).rot90(1, (3, 4)), rtol=1e-9, atol=1e-10)


def test_kernels_that_are_not_square_are_left_alone_unless_named():
    model = nn.Sequential(
        nn.Conv2d(2, 2, (1, 7), padding=(0, 3)), nn.Conv2d(2, 2, (3, 5), padding=(1, 2)), nn.Conv2d(2, 2, 3)
    )
    with pytest.warns(
        EquivarianceWarning, match="0 .a kernel along one axis does not turn with the image., and 1 more"
    ):
        converted = convert(model, 5)
    assert [type(layer) for layer in converted] == [nn.Conv2d, nn.Conv2d, GMRConv2d]
    named = quietly(model, {"0": 5, "1": (5, 5), "2": 3})
    assert sizes(named) == [5, 5, 3]
    assert named[0].kernel_size == (5, 5)
    x = torch.randn(1, 2, 9, 9)
    assert named(x).shape == model(x).shape


def test_a_new_layer_can_be_of_any_kind():
    built = []

    def factory(in_channels, out_channels, kernel_size, **options):
        built.append((kernel_size, options["stride"], options["padding"]))
        return nn.Conv2d(in_channels, out_channels, kernel_size, **options)

    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 4, 1, 2), nn.Conv2d(4, 4, 3))
    kept = convert(model, 5, to=factory, strides="keep")
    assert built == [((5, 5), (2, 2), (2, 2)), ((5, 5), (1, 1), (1, 1))]
    assert [type(layer) for layer in kept] == [nn.Conv2d, nn.MaxPool2d, nn.Conv2d, nn.Conv2d]
    x = torch.randn(1, 3, 33, 30)
    assert kept(x).shape == model(x).shape
    downsampled = convert(model, to=factory)
    assert isinstance(downsampled[0][0], Downsample)
    assert downsampled(x).shape == model(x).shape

    def picky(*args, **options):
        raise ValueError("3x3 only")

    with pytest.raises(ValueError, match=r"layer '0' \(Conv2d\): 3x3 only"):
        convert(model, to=picky)


def test_down_sampling_after_the_convolution():
    model = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.Conv2d(4, 4, 3, 2, 1)).double()
    converted = convert(model, {"0": 5}, strides={"0": "downsample_after"})
    assert [type(part).__name__ for part in converted[0]] == ["GMRConv2d", "AveragePoolTo"]
    assert [type(part) for part in converted[1]] == [Downsample, GMRConv2d]
    assert (converted[0].in_channels, converted[0].stride) == (3, (4, 4))
    for size in (16, 19):
        x = torch.randn(1, 3, size, size, dtype=torch.float64)
        assert converted(x).shape == model(x).shape
        assert_equivariant(converted, x)


def test_layers_can_be_skipped():
    model = nn.ModuleDict({"stem": nn.Sequential(nn.Conv2d(3, 4, 3)), "body": nn.Conv2d(4, 4, 3)})
    converted = convert(model, skip="stem")
    assert type(converted["stem"][0]) is nn.Conv2d
    assert isinstance(converted["body"], GMRConv2d)
    assert convert(model, skip="stem", return_report=True)[1].breaks == (("stem", "skipped as asked"),)
    with pytest.raises(ValueError, match="skip: the pattern 'stam' matches no layer of this ModuleDict"):
        convert(model, skip="stam")


def test_what_is_converted_already_stays():
    once = convert(resnet(18, width=4))
    twice, report = convert(once, return_report=True)
    assert report.converted == 0
    assert not report.breaks
    x = torch.randn(1, 3, 33, 33)
    torch.testing.assert_close(twice.eval()(x), once.eval()(x))
    pooled = convert(convert(nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.ConvTranspose2d(1, 1, 2, 2))))
    assert [type(layer).__name__ for layer in pooled] == ["SymmetricMaxPool2d", "AveragePoolTo", "UpsampledConv"]


# -- kernel sizes and rings


def sizes(model):
    return [layer.kernel_size[0] for layer in model.modules() if isinstance(layer, RINGS)]


def rings(model):
    return [layer.rings for layer in model.modules() if isinstance(layer, RINGS)]


def staged():
    stages = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)) for _ in range(2)]
    return nn.ModuleDict({"stem": nn.Conv2d(3, 4, 5, padding=2), "layer1": stages[0], "layer2": stages[1]})


def test_kernel_sizes_and_rings_are_given_in_five_ways():
    assert sizes(convert(staged())) == [5, 3, 3]
    assert sizes(convert(staged(), 7)) == [7, 7, 7]
    assert sizes(convert(staged(), (9, 5))) == [5, 9, 5]
    assert sizes(convert(staged(), {"layer1.*": 9, "*": 7})) == [7, 9, 7]
    assert sizes(convert(staged(), lambda name, conv: 9 if conv.in_channels == 3 else None)) == [9, 3, 3]
    assert rings(convert(staged(), rings=(2, 3), kernel_size=9)) == [5, 2, 3]
    assert rings(convert(staged(), 9, rings={"stem": 3})) == [3, 5, 5]


@pytest.mark.parametrize(
    ("kernel_size", "error", "message"),
    [
        ((9, 9, 5), ValueError, r"one value per stage, but 2 stages were found in this ModuleDict; give an int"),
        (
            {"leyer1.*": 9},
            ValueError,
            r"the pattern 'leyer1.\*' matches no layer that it could apply to; there are 'stem'",
        ),
        (4, ValueError, r"kernel_size 4x4 cannot give layer 'stem' the output size of its 5x5 kernel.*; 5x5 can"),
        (0, ValueError, "kernel_size of 'stem' must be at least 1, got 0"),
        ("9", TypeError, "must not be a string, got '9'"),
        (2.5, TypeError, "must be an int, {name pattern: value}, one value per stage or a function, got 2.5"),
    ],
)
def test_sizes_that_cannot_be(kernel_size, error, message):
    with pytest.raises(error, match=message):
        convert(staged(), kernel_size)


@pytest.mark.parametrize(
    "names",
    [
        ["conv1", "layer1.0.conv2", "layer2.0.conv1", "layer4.1.conv2"],
        ["stem.0", "stages.0.blocks.0.conv_dw", "stages.1.blocks.2.conv_dw", "stages.2.blocks.0.conv_dw"],
        ["features.conv0", "features.denseblock1.denselayer1.conv2", "features.denseblock2.denselayer1.conv2",
         "features.denseblock3.denselayer12.conv2"],
        ["conv_stem", "blocks.0.0.conv_dw", "blocks.2.1.conv_dw", "blocks.3.0.conv_dw"],
        ["stem.conv", "s1.b1.conv2.conv", "s2.b1.conv2.conv", "s3.b1.conv2.conv"],
        ["conv1.0", "stage2.0.branch1.0", "stage3.0.branch1.0", "stage4.0.branch1.0"],
        ["stem", "trunk_output.block1.block1-0.f.b.0", "trunk_output.block2.block2-0.f.b.0",
         "trunk_output.block3.block3-0.f.b.0"],
        ["features.0.0", "features.1.0.block.0", "features.3.0.block.1.0", "features.5.0.block.0"],
    ],
)  # fmt: skip
def test_how_networks_name_their_stages(names):
    model = nn.Module()
    for name in names:
        parts = name.split(".")
        parent = model
        for part in parts[:-1]:
            # torchvision's stem is a subclass of Sequential, its stages are not.
            kind = type("Stem", (nn.Sequential,), {}) if (part, parts[1]) == ("0", "0") else nn.Sequential
            if part not in parent._modules:
                parent.add_module(part, kind())
            parent = parent._modules[part]
        parent.add_module(parts[-1], nn.Conv2d(1, 1, 3, padding=1))
    assert sizes(convert(model, (9, 7, 5))) == [3, 9, 7, 5]


def test_stages_of_a_model_without_any():
    with pytest.raises(ValueError, match=r"no stages were found in this Sequential.*'\*': 9.*Its layers are '0', '1'"):
        convert(nn.Sequential(nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3)), (9, 5))


def test_an_even_kernel_keeps_its_parity_under_one_size_for_all():
    converted = convert(nn.Sequential(nn.Conv2d(2, 2, 4), nn.Conv2d(2, 2, 3)), 5)
    assert sizes(converted) == [4, 5]


def test_options_reach_the_layers_and_unknown_ones_do_not_pass():
    converted = convert(nn.Conv2d(2, 3, 3), sampling="area", normalize=True, sigma="fixed")
    assert (converted.geometry.sampling, converted.geometry.normalize, converted.sigma) == ("area", True, "fixed")
    with pytest.raises(TypeError, match=r"unknown option 'samplng' \(did you mean 'sampling'"):
        convert(nn.Conv2d(2, 3, 1), samplng="area")
    with pytest.raises(TypeError, match="'stride' is taken from each layer"):
        convert(nn.Conv2d(2, 3, 3), stride=2)
    with pytest.raises(ValueError, match="strides must be one of 'downsample', 'downsample_after', 'keep', got 'drop'"):
        convert(nn.Conv2d(2, 3, 3), strides="drop")
    with pytest.raises(ValueError, match="give return_report=True as well"):
        convert(nn.Conv2d(2, 3, 3), example_input=torch.randn(1, 2, 8, 8))


# -- what is kept


def test_it_returns_a_copy_or_the_model_itself():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    before = copy.deepcopy(model.state_dict())
    converted = convert(model)
    assert converted is not model
    assert type(model[0]) is nn.Conv2d
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    norm = model[1]
    assert convert(model, inplace=True) is model
    assert isinstance(model[0], GMRConv2d)
    assert model[1] is norm


def test_a_failure_leaves_the_model_as_it_was():
    model = nn.Sequential(prune.random_unstructured(nn.Conv2d(2, 3, 3), "weight", 0.5), nn.Conv2d(2, 3, 5))
    with pytest.raises(ValueError, match="cannot give layer '1'"):
        convert(model, {"0": 5, "1": 4}, inplace=True)
    assert [type(layer) for layer in model] == [nn.Conv2d, nn.Conv2d]
    assert len(model[0]._forward_pre_hooks) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype_mode_and_what_is_frozen_are_kept(dtype):
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, 2, 1), nn.Conv2d(4, 4, 1, 2), nn.ConvTranspose2d(4, 4, 2, 2), nn.MaxPool2d(2)
    )
    model = model.to(dtype).eval().requires_grad_(False)
    model[2].bias.requires_grad_(True)
    converted = convert(model)
    assert all(p.dtype == dtype for p in converted.parameters())
    assert not any(module.training for module in converted.modules())
    assert [name for name, p in converted.named_parameters() if p.requires_grad] == ["2.conv.bias"]
    if dtype != torch.float16:
        assert converted(torch.randn(1, 2, 9, 9, dtype=dtype)).dtype == dtype


def test_the_meta_device_is_kept():
    with torch.device("meta"):
        model = resnet(18)
    converted = convert(model, (9, 9, 5, 5), from_weights=True)
    assert all(p.is_meta for p in converted.parameters())
    assert sum(p.numel() for p in converted.parameters()) == 3_996_685


def test_hooks_are_kept_and_can_be_removed():
    model = nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1), nn.MaxPool2d(3, 2, 1))
    seen = []
    handles = [
        model[0].register_forward_pre_hook(lambda m, args: seen.append("pre")),
        model[0].register_forward_hook(lambda m, args, y: seen.append("post")),
        model[0].register_full_backward_hook(lambda m, gi, go: seen.append("backward")),
        model[1].register_forward_hook(lambda m, args, kwargs, y: seen.append("pool"), with_kwargs=True),
    ]
    convert(model, inplace=True)
    model(torch.randn(1, 2, 8, 8, requires_grad=True)).sum().backward()
    assert seen == ["pre", "post", "pool", "backward"]
    for handle in handles:
        handle.remove()
    seen.clear()
    model(torch.randn(1, 2, 8, 8)).sum().backward()
    assert seen == []


def test_shared_layers_stay_shared():
    conv, pool = nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2)
    model = nn.Sequential(conv, nn.Sequential(pool, conv), pool, conv)
    converted, report = convert(model, return_report=True)
    assert converted[0] is converted[1][1] is converted[3]
    assert converted[1][0] is converted[2]
    assert isinstance(converted[0], GMRConv2d)
    assert (
        report.parameters_after == sum(p.numel() for p in converted.parameters()) == converted[0].weight.numel() + 4 + 2
    )
    assert [row.name for row in report.layers] == ["0", "1.0", "1.1", "2", "3"]
    assert report.layers[-1].reason == "the same layer as one before"


def test_layers_that_share_a_weight_share_what_becomes_of_it():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=1), nn.Conv2d(4, 4, 3))
    model[1].weight = model[0].weight
    converted = convert(model)
    assert converted[0].weight is converted[1].weight
    assert converted[0].log_sigma is converted[1].log_sigma
    assert converted[0].bias is not converted[1].bias
    assert converted[2].weight is not converted[0].weight


@pytest.mark.parametrize("stride", [1, 2])
def test_a_weight_shared_with_a_transposed_convolution_is_not_any_more(stride):
    model = nn.Sequential(nn.Conv2d(4, 4, 3, stride, 1), *(nn.ConvTranspose2d(4, 4, 3, stride, 1) for _ in range(2)))
    for layer in model[1:]:
        layer.weight = model[0].weight
    converted, report = convert(model, from_weights=True, return_report=True)
    assert converted[1].weight is converted[2].weight
    assert dict(report.functions_lost) == {"1": "the weight that it shared with 0"}
    x = torch.randn(1, 4, 6, 6)
    torch.testing.assert_close(converted[1](x), convert(model[1], from_weights=True)(x))


def test_a_converted_model_can_be_copied_pickled_and_compiled():
    model = nn.Sequential(nn.Conv2d(2, 3, 4, 2, 1), nn.MaxPool2d(2), nn.ConvTranspose2d(3, 2, 2, 2), nn.AvgPool2d(2))
    converted = convert(model).eval()
    x = torch.randn(1, 2, 21, 21)
    y = converted(x)
    assert torch.equal(copy.deepcopy(converted)(x), y)
    assert torch.equal(pickle.loads(pickle.dumps(converted))(x), y)
    again = convert(model).eval()
    again.load_state_dict(converted.state_dict())
    assert torch.equal(again(x), y)
    torch.testing.assert_close(torch.compile(converted, backend="aot_eager")(x), y)
    assert (converted[0].in_channels, converted[0].stride, converted[0].kernel_size) == (2, (2, 2), (3, 3))
    assert converted[0].weight is converted[0].conv.weight
    with pytest.raises(AttributeError):
        converted[0].nothing  # noqa: B018


def test_a_traced_graph_is_converted():
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 3, 3)))
    x = torch.randn(1, 2, 12, 12)
    converted = convert(model)
    assert converted(x).shape == model(x).shape
    assert sizes(converted) == [3, 3]


def test_a_model_that_cannot_be_copied_is_refused_with_the_way_out():
    model = nn.Sequential(nn.Conv2d(1, 1, 3))
    model.kept = model[0].weight * 2
    with pytest.raises(ValueError, match=r"cannot be copied; it may hold tensors computed in an earlier call"):
        convert(model)
    assert isinstance(convert(model, inplace=True)[0], GMRConv2d)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_weights_that_a_hook_computes():
    model = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(2, 3, 3)))
    converted, report = convert(model, inplace=True, return_report=True, from_weights=True)
    assert "weight_g, weight_v" in report.functions_lost[0][1]
    assert converted(torch.randn(1, 2, 8, 8)).shape == (1, 3, 6, 6)
    pruned = prune.random_unstructured(nn.Conv2d(2, 3, 3), "weight", 0.5)
    assert isinstance(quietly(pruned, inplace=True)(torch.randn(1, 2, 8, 8)), torch.Tensor)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("inplace", [True, False])
def test_a_weight_that_a_hook_computed_in_training(inplace):
    x = torch.randn(1, 2, 8, 8)
    for computed in (weight_norm_of_old, spectral_norm_of_old, pruned):
        model = nn.Sequential(computed(nn.Conv2d(2, 3, 3)), nn.ReLU())
        model(x).sum().backward()
        converted, report = convert(model, inplace=inplace, return_report=True, example_input=x)
        assert isinstance(converted[0], GMRConv2d)
        assert report.losses == ()


def weight_norm_of_old(conv):
    return nn.utils.weight_norm(conv)


def spectral_norm_of_old(conv):
    return nn.utils.spectral_norm(conv)


def pruned(conv):
    return prune.ln_structured(conv, "weight", 0.5, n=2, dim=0)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("computed", [weight_norm_of_old, spectral_norm_of_old, pruned])
@pytest.mark.parametrize("options", [{"kernel_size": 1, "stride": 2}, {"kernel_size": 3}])
def test_a_weight_that_a_hook_computes_is_that_of_the_state_dict(computed, options):
    other, conv = (computed(nn.Conv2d(4, 6, **options)).eval() for _ in range(2))
    conv.load_state_dict(other.state_dict())  # its weight is still that of before
    x = torch.randn(1, 4, *conv.kernel_size)
    other(x)
    plain = nn.Conv2d(4, 6, **options)
    plain.load_state_dict({"weight": other.weight, "bias": other.bias})
    converted = quietly(conv, inplace=True, from_weights=True)
    torch.testing.assert_close(converted(x), convert(plain, from_weights=True)(x))


def test_a_convolution_that_is_the_model_and_subclasses_are_converted():
    class Own(nn.Conv2d):
        pass

    assert isinstance(convert(nn.Conv3d(1, 1, 3)), GMRConv3d)
    assert isinstance(convert(Own(1, 1, 3)), GMRConv2d)
    assert isinstance(convert(nn.Conv1d(1, 1, 3), inplace=True), GMRConv1d)
    with pytest.warns(EquivarianceWarning, match="lost what Standardised2d did to its kernel before using it"):
        assert isinstance(convert(Standardised2d(1, 1, 3)), GMRConv2d)


class Activated2d(nn.Conv2d):
    """As detectron2 has them: the activation is within the convolution."""

    def __init__(self, *args, activation=torch.relu, **options):
        super().__init__(*args, **options)
        nn.init.zeros_(self.weight)
        self.activation = activation

    def forward(self, x):
        return self.activation(super().forward(x))


class Residual2d(nn.Conv2d):
    def forward(self, x):
        return x + super().forward(x)


class ActivatedUp2d(nn.ConvTranspose2d):
    def forward(self, x):
        return torch.relu(super().forward(x))


class Causal1d(nn.Conv1d):
    """Pads on the left only."""

    def forward(self, x):
        return F.conv1d(F.pad(x, (self.kernel_size[0] - 1, 0)), self.weight, self.bias)


@pytest.mark.parametrize(
    "conv",
    [
        Activated2d(2, 3, 3, padding=1),
        Activated2d(2, 3, 3, padding=1, activation=nn.ReLU(), dtype=torch.bfloat16),
        Activated2d(2, 3, 1, stride=2),
        Residual2d(2, 2, 3, padding=1),
        ActivatedUp2d(2, 3, 2, 2),
        Causal1d(2, 2, 3, padding=1),
        torch.ao.nn.intrinsic.qat.ConvReLU2d(2, 3, 3, qconfig=torch.ao.quantization.get_default_qat_qconfig()),
    ],
    ids=lambda conv: type(conv).__name__,
)
def test_what_a_subclass_does_around_its_convolution_is_named_as_lost(conv):
    with pytest.warns(EquivarianceWarning, match=f"lost what {type(conv).__name__} did .*before or after its conv"):
        convert(nn.Sequential(conv))


class Counted2d(nn.Conv2d):
    """Does nothing but convolve."""

    def forward(self, x):
        self.calls = 1
        return super().forward(x)


@pytest.mark.parametrize(
    "conv",
    [
        Counted2d(2, 4, 3, 2, padding=2, dilation=2, groups=2),
        Counted2d(2, 3, 3, padding=1, padding_mode="reflect"),
        Counted2d(2, 3, 4, padding="same"),
        SamePad2d(2, 3, 4, stride=3),
        Counted2d(2, 3, 1, stride=3, dtype=torch.float16),
    ],
)
def test_a_subclass_that_only_convolves_loses_nothing(conv):
    _, report = convert(nn.Sequential(conv), return_report=True)
    assert report.layers[0].action != "left"
    assert not report.functions_lost


class OddSizes(nn.Conv2d):
    def forward(self, x):
        return super().forward(x)[..., 1:]


def test_a_subclass_with_sizes_of_its_own_is_left_alone():
    converted, report = convert(OddSizes(1, 1, 3), return_report=True)
    assert type(converted) is OddSizes
    assert "OddSizes gives other sizes than its stride and padding say: 1x0 for 3x3" in report.breaks[0][1]


def test_complex_convolutions_are_left_alone():
    converted, report = convert(nn.Conv2d(1, 1, 3, dtype=torch.complex64), return_report=True)
    assert type(converted) is nn.Conv2d
    assert report.layers[0].reason == "ring convolutions are real"


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = nn.DataParallel(module)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (nn.DataParallel, r"the model \(DataParallel\) is wrapped for parallel training: convert its .module first"),
        (Wrapped, r"layer 'inner' \(DataParallel\) is wrapped"),
        (torch.compile, r"the model \(OptimizedModule\) is compiled: convert first, then compile"),
        (lambda model: model.compile() or model, r"the model \(Sequential\) is compiled"),
        (lambda model: torch.jit.trace(model, torch.randn(1, 1, 4, 4)), "the model is scripted or traced"),
    ],
)
def test_wrapped_models_are_refused(wrap, message):
    with pytest.raises(ValueError, match=message):
        convert(wrap(nn.Sequential(nn.Conv2d(1, 1, 3))))


def test_a_model_in_ddp_is_refused(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Conv2d(1, 1, 3))
        with pytest.raises(ValueError, match=r"\(DistributedDataParallel\) is wrapped for parallel training"):
            convert(wrapped)
    finally:
        torch.distributed.destroy_process_group()


def test_what_is_not_a_model_or_has_no_shape_is_refused():
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        convert("resnet18")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that lazy modules are young
        lazy = nn.Sequential(nn.LazyConv2d(4, 3))
    with pytest.raises(ValueError, match=r"layer '0' \(LazyConv2d\) has no shape yet: run a batch through first"):
        convert(lazy)


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrised_kernels_are_converted_and_what_is_lost_is_said(norm):
    model = nn.Sequential(norm(nn.Conv2d(2, 3, 3)))
    converted, report = convert(model, return_report=True, from_weights=True)
    assert isinstance(converted[0], GMRConv2d)
    assert "parametrizations.weight" in report.functions_lost[0][1]
    converted(torch.randn(1, 2, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in converted.parameters())


# -- whole networks


def test_a_converted_network_is_the_hand_written_one():
    plain = resnet(18, width=8, kernel_size=(3, 3, 3, 3)).eval()
    converted = convert(plain, (9, 9, 5, 5))
    written = gmr_resnet(18, width=8, kernel_size=(9, 9, 5, 5)).eval()
    parts = [[repr(layer) for layer in model.modules() if not list(layer.children())] for model in (converted, written)]
    assert parts[0] == parts[1]
    written.load_state_dict(converted.state_dict())
    x = torch.randn(2, 3, 33, 40)
    assert torch.equal(written(x), converted(x))


@pytest.mark.parametrize("size", [32, 33, 50])
def test_a_converted_network_is_invariant_at_every_size(size):
    network = convert(resnet(18, width=4).double().eval())
    x = torch.randn(1, 3, size, size, dtype=torch.float64)
    y = network(x)
    for turned in square_symmetries(x):
        torch.testing.assert_close(network(turned(x)), y, rtol=1e-10, atol=1e-12)


class SmallUNet(nn.Module):
    """Down-sampling by pooling, up-sampling by a transposed convolution, and a skip."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.middle = nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.last = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        first = torch.relu(self.first(x))
        middle = torch.relu(self.middle(self.pool(first)))
        up = self.up(middle, output_size=first.shape)
        return self.last(torch.cat([first, up], 1))


@pytest.mark.parametrize("size", [16, 24])
def test_a_segmentation_network_turns_with_the_image(size):
    network = convert(SmallUNet().double())
    assert_equivariant(network, torch.randn(1, 1, size, size, dtype=torch.float64))


def test_a_step_of_training_after_conversion():
    network = convert(resnet(18, width=4, num_classes=3))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    x, labels = torch.randn(8, 3, 16, 16), torch.randint(3, (8,))
    loss = F.cross_entropy(network(x), labels)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    optimizer.step()
    assert F.cross_entropy(network(x), labels) != loss


# -- starting from trained weights


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(2, 4, 5, padding=2, groups=2),
        nn.Conv1d(2, 4, 7),
        nn.Conv3d(2, 3, 3, padding=1),
        Standardised2d(2, 3, 5),
        nn.ConvTranspose2d(4, 6, 3, padding=1, groups=2),
    ],
)
def test_a_ring_kernel_is_its_own_nearest(conv):
    """A convolution that is one of rings already loses nothing."""
    twin = quietly(conv)
    kernel = twin.kernel().detach()
    with torch.no_grad():
        if isinstance(conv, nn.ConvTranspose2d):
            conv.weight.copy_(kernel.view(2, 3, 2, 3, 3).transpose(1, 2).flatten(0, 1))
        else:
            conv.weight.copy_(kernel)
    x = torch.randn(2, conv.in_channels, *[9] * (conv.weight.dim() - 2))
    torch.testing.assert_close(quietly(conv, from_weights=True)(x), conv(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"sigma": "channel"}, {"sigma": None}, {"sampling": "area", "normalize": True}]
)
def test_the_projection_is_the_nearest_ring_kernel(options):
    conv = nn.Conv2d(3, 4, 5).double()
    converted = convert(conv, from_weights=True, **options)
    off = converted.kernel() - conv.weight
    basis = converted.basis()
    rings = basis if basis.dim() == 3 else basis[0, 0]
    # The remainder of a least squares fit has no part along the basis.
    torch.testing.assert_close(
        torch.einsum("oihw,nhw->oin", off, rings), torch.zeros(4, 3, 3).double(), rtol=0, atol=1e-12
    )
    assert torch.equal(converted.bias, conv.bias)


def test_a_projection_onto_a_larger_kernel():
    conv = nn.Conv2d(3, 4, 3, padding=1).double()
    converted = convert(conv, 7, from_weights=True)
    off = converted.kernel() - F.pad(conv.weight, (2, 2, 2, 2))
    assert torch.einsum("oihw,nhw->oin", off, converted.basis()).abs().max() < 1e-12


def test_harmonics_start_silent_beside_trained_rings():
    conv = nn.Conv2d(3, 4, 5, padding=2)
    x = torch.randn(1, 3, 9, 9)
    rings, harmonic = (convert(conv, from_weights=True, harmonics=orders) for orders in (0, 1))
    torch.testing.assert_close(harmonic(x), rings(x))


def test_averaged_patches_keep_what_they_did_to_flat_maps():
    conv = nn.Conv2d(3, 4, 4, 4)
    x = torch.randn(1, 3, 1, 1).expand(1, 3, 16, 16)
    torch.testing.assert_close(quietly(nn.Sequential(conv, nn.Conv2d(4, 4, 3)), from_weights=True)[0](x), conv(x))


def test_a_strided_kernel_is_compared_together_with_the_down_sampling():
    """Of all kernels behind a down-sampling, the one that the projection finds answers most like the original."""
    conv = nn.Conv2d(1, 1, 3, 2, 1, bias=False).double()
    converted = convert(conv, from_weights=True)
    # The response of each input pixel in the middle output, turned over, is the kernel on the finer map.
    x = torch.zeros(12 * 12, 1, 12, 12, dtype=torch.float64)
    x.view(12 * 12, -1).fill_diagonal_(1.0)
    seen = converted(x)[:, 0, 3, 3].view(12, 12)
    basis = []
    for ring in range(converted[1].rings):
        with torch.no_grad():
            converted[1].weight.zero_()[0, 0, ring] = 1.0
        basis.append(converted(x)[:, 0, 3, 3].view(12, 12))
    wanted = torch.zeros(12, 12, dtype=torch.float64)
    wanted[5:8, 5:8] = conv.weight[0, 0].detach()
    for response in basis:
        # The original's centre is half a pixel off that of the averaged pixels, on either side.
        both = sum(wanted.roll(shift, (0, 1)) for shift in ((0, 0), (0, 1), (1, 0), (1, 1))) / 4
        assert abs(((seen - both) * response).sum()) < 1e-12


def test_layers_without_a_basis_cannot_start_from_trained_weights():
    class Doubled(nn.Conv2d):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.weight = nn.Parameter(torch.zeros(2))

    with pytest.raises(ValueError, match=r"Doubled has no basis\(\)"):
        convert(nn.Conv2d(1, 1, 3), to=Doubled, from_weights=True)
    conv = nn.Conv2d(1, 1, 3)
    plain = convert(conv, to=nn.Conv2d, from_weights=True)
    assert plain.weight is not conv.weight
    assert torch.equal(plain.weight, conv.weight)


def test_batch_norm_is_estimated_anew():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2, momentum=0.3), nn.Dropout(0.5)).train()
    model[2].eval()
    data = torch.randn(4, 8, 1, 5, 5)
    assert recalibrate_batchnorm(model, [data[0], (data[1], None), [data[2]], data[3]]) is model
    y = model[0](data.flatten(0, 1))
    torch.testing.assert_close(model[1].running_mean, y.mean((0, 2, 3)))
    torch.testing.assert_close(
        model[1].running_var, torch.stack([model[0](part).var((0, 2, 3)) for part in data]).mean(0)
    )
    assert model[1].momentum == 0.3
    assert [layer.training for layer in model] == [True, True, False]
    with pytest.raises(ValueError, match="needs at least one batch, got none"):
        recalibrate_batchnorm(model, [])


@pytest.mark.parametrize("normalised", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_a_strided_pointwise_layer_with_a_computed_weight(normalised):
    conv = normalised(nn.Conv2d(8, 16, 1, stride=2)).eval()
    with pytest.warns(EquivarianceWarning, match="lost what"):
        converted = convert(nn.Sequential(conv))
    x = torch.randn(1, 8, 1, 1)
    torch.testing.assert_close(converted(x), conv(x))


class _Standardised(nn.Conv2d):
    """As big transfer has them: the weight is normalised in forward."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / self.weight.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, self.stride)


def test_a_strided_pointwise_subclass_keeps_the_kernel_it_computes():
    conv = _Standardised(8, 16, 1, stride=2)
    with pytest.warns(EquivarianceWarning, match="lost what _Standardised did"):
        converted = convert(nn.Sequential(conv), from_weights=True)
    x = torch.randn(2, 8, 1, 1)
    torch.testing.assert_close(converted(x), conv(x))


class _WithLists(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = [nn.Conv2d(3, 3, 3, padding=1) for _ in range(2)]
        self.named = {"last": [nn.Conv2d(3, 3, 3, padding=1)]}
        for number, conv in enumerate([*self.convs, *self.named["last"]]):
            self.add_module(f"conv{number}", conv)

    def forward(self, x):
        for conv in [*self.convs, *self.named["last"]]:
            x = conv(x)
        return x


def test_layers_in_containers_of_the_networks_own_are_exchanged_too():
    model = _WithLists()
    converted = convert(model).double()
    assert converted.convs[0] is converted.conv0
    assert isinstance(converted.named["last"][0], GMRConv2d)
    assert isinstance(model.convs[0], nn.Conv2d)
    x = torch.randn(1, 3, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(converted(x.rot90(1, (-2, -1))), converted(x).rot90(1, (-2, -1)))


class _ByOtherNames(nn.Module):
    """Reaches its layers by all ways but the one that torch knows."""

    def __init__(self):
        super().__init__()
        for number in range(5):
            self.add_module(f"conv{number}", nn.Conv2d(3, 3, 3, padding=1))
        self.ordered = OrderedDict(first=self.conv0)
        self.pair = NamedPair(self.conv1, "relu")
        self.__dict__["alias"] = self.conv2
        self.method = self.conv3.forward
        self.same = self.ordered
        self.circle = [self.conv4]
        self.circle.append(self.circle)

    def forward(self, x):
        x = self.alias(self.pair.layer(self.ordered["first"](x)))
        return self.circle[0](self.method(x))


class NamedPair(NamedTuple):
    layer: nn.Module
    activation: str


def test_layers_by_other_names_are_exchanged_too():
    converted = convert(_ByOtherNames()).double()
    assert type(converted.ordered) is OrderedDict
    assert converted.same is converted.ordered
    assert converted.alias is converted.conv2
    x = torch.randn(1, 3, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(converted(x.rot90(1, (-2, -1))), converted(x).rot90(1, (-2, -1)))


class _InOtherContainers(nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(5):
            self.add_module(f"conv{number}", nn.Conv2d(3, 3, 3, padding=1))
        self.queue = deque([self.conv0])
        self.set = {self.conv1}
        self.frozen = frozenset([self.conv2])
        self.space = SimpleNamespace(layer=self.conv3)
        self.record = Record(self.conv4)

    def forward(self, x):
        for layer in (self.queue[0], *self.set, *self.frozen, self.space.layer, self.record.layer):
            x = layer(x)
        return x


@dataclass
class Record:
    layer: nn.Module


@pytest.mark.parametrize("inplace", [False, True])
def test_layers_in_other_containers_are_exchanged_too(inplace):
    model = _InOtherContainers()
    converted = convert(model, inplace=inplace).double()
    held = (converted.queue[0], *converted.set, *converted.frozen, converted.space.layer, converted.record.layer)
    assert held == tuple(converted.children())
    assert all(isinstance(layer, GMRConv2d) for layer in held)
    folded = fold(converted)
    assert type(folded.queue[0]) is type(folded.record.layer) is nn.Conv2d
    x = torch.randn(1, 3, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(converted(x.rot90(1, (-2, -1))), converted(x).rot90(1, (-2, -1)))
    torch.testing.assert_close(folded(x), converted(x))


class _InPartials(nn.Module):
    """Calls its layers by functions that hold them."""

    def __init__(self):
        super().__init__()
        for number in range(3):
            self.add_module(f"conv{number}", nn.Conv2d(3, 3, 3, padding=1))
        self.calls = [
            functools.partial(self.conv0),
            functools.partial(checkpoint, self.conv1, use_reentrant=False),
            functools.partial(lambda x, layer: layer(x), layer=self.conv2),
        ]
        self.other = functools.partial(torch.add, alpha=2)

    def forward(self, x):
        for call in self.calls:
            x = call(x)
        return x


def test_layers_in_partial_functions_are_exchanged_too():
    model = _InPartials()
    kept = [copy.copy(call) for call in model.calls]
    converted = convert(model).double()
    first, second, third = converted.calls
    assert (first.func, second.args[0], third.keywords["layer"]) == tuple(converted.children())
    assert (second.func, second.keywords) == (checkpoint, {"use_reentrant": False})
    assert [(call.func, call.args, call.keywords) for call in model.calls] == [
        (call.func, call.args, call.keywords) for call in kept
    ]
    assert convert(model, inplace=True).other is model.other
    x = torch.randn(1, 3, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(converted(x.rot90(1, (-2, -1))), converted(x).rot90(1, (-2, -1)))


def test_the_mode_of_a_feature_extractor_is_kept():
    """A copy of one begins in training mode, with the graph of training."""
    import_torchvision()
    from torchvision.models.feature_extraction import create_feature_extractor

    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    model = create_feature_extractor(network, {"2": "map"}).eval()
    converted = convert(nn.Sequential(model))
    assert converted.training
    assert not any(module.training for module in converted[0].modules())
    assert converted[0].graph is converted[0].eval_graph
    model.get_submodule("1").train()
    assert [name for name, module in convert(model).named_modules() if module.training] == ["1"]


def test_a_pattern_of_strides_that_matches_nothing_is_refused():
    with pytest.raises(ValueError, match=r"strides: the pattern 'layr4\.\*' matches no layer"):
        convert(resnet(18, width=4), strides={"layr4.*": "keep"})


class _Cropped(nn.ConvTranspose2d):
    def forward(self, x):
        return super().forward(x)[..., :-1, :-1]


class _Styled(nn.ConvTranspose2d):
    def forward(self, x, style):
        return super().forward(x) * style


@pytest.mark.parametrize(("layer", "why"), [(_Cropped, "sizes of its own"), (_Styled, "sizes are not known")])
def test_transposed_subclasses_with_a_forward_of_their_own_are_left(layer, why):
    model, report = convert(nn.Sequential(layer(2, 2, 2, stride=2)), return_report=True)
    assert type(model[0]) is layer
    assert why in str(report)


class _WithOneAxis(nn.Module):
    """An attention to channels as in ECA-Net, and windows over flattened positions."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.attention = nn.Conv1d(1, 1, 3, padding=1)
        self.pool = nn.AvgPool1d(4)
        self.mixing = nn.Conv1d(4, 4, 3)

    def forward(self, x):
        x = self.conv(x)
        x = x * self.attention(x.mean((2, 3)).unsqueeze(1)).transpose(1, 2).unsqueeze(-1).sigmoid()
        return self.mixing(self.pool(x.flatten(2)))


def test_one_axis_in_a_network_of_images_is_channels_or_flattened_positions():
    model = _WithOneAxis()
    converted, report = convert(model, return_report=True)
    assert (converted.attention.weight == model.attention.weight).all()
    assert [name for name, _ in report.breaks] == ["pool", "mixing"]
    assert report.converted == 1
    again, report = convert(converted, return_report=True)
    assert type(again.attention) is nn.Conv1d
    assert report.converted == 0
    named = convert(model, kernel_size={"mixing": 5, "conv": 3}, skip="pool", return_report=True)[0]
    assert isinstance(named.mixing, GMRConv1d)
    signals = convert(nn.Sequential(nn.Conv1d(1, 4, 3), nn.AvgPool1d(2)), return_report=True)[1]
    assert (signals.converted, signals.breaks) == (1, ())


@pytest.mark.parametrize(
    ("options", "breaks"),
    [
        ({"scale_factor": 1.5, "mode": "bilinear"}, True),
        ({"scale_factor": (2, 1.5), "mode": "bicubic"}, True),
        ({"scale_factor": 1.5, "mode": "bilinear", "align_corners": True}, False),
        ({"scale_factor": 1.5, "mode": "bilinear", "recompute_scale_factor": True}, False),
        ({"scale_factor": 2.0, "mode": "bilinear"}, False),
        ({"size": (22, 22), "mode": "bilinear"}, False),
    ],
)
def test_up_sampling_by_a_factor_that_the_size_is_rounded_for_is_reported(options, breaks):
    layer = nn.Upsample(**options)
    report = convert(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), layer), return_report=True)[1]
    assert bool(report.breaks) == breaks
    x = torch.randn(1, 4, 15, 15, dtype=torch.float64)
    assert torch.allclose(layer(x.flip(-1)), layer(x).flip(-1)) != breaks
