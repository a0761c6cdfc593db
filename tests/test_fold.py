"""Folding: plain torch modules with equal outputs."""

import copy
import functools
import itertools
import pickle
import subprocess
import sys
import textwrap
import warnings
from types import MethodType

import pytest
import torch
from torch import nn

from ringconv import Downsample, EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d, Upsample
from ringconv._torchvision import import_torchvision
from ringconv.conversion.resizing import SizeRule, UpsampleTo, average_pool, symmetric_max_pool, upsampled_conv
from ringconv.convert import convert
from ringconv.fold import FoldWarning, fold
from ringconv.models import gmr_resnet

FORMS = ("dense", "factored")
LAYERS = {1: GMRConv1d, 2: GMRConv2d, 3: GMRConv3d}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def assert_equal(module, x, form="dense", **options):
    """In float64, where rounding cannot hide a wrong tap."""
    module = module.double()
    folded = fold(module, form, **options)
    torch.testing.assert_close(folded(x), module(x), rtol=1e-9, atol=1e-9)
    return folded


def of_ringconv(module):
    return [type(m).__name__ for m in module.modules() if type(m).__module__.startswith("ringconv")]


def trained(model, x, steps=10):
    """After some steps of SGD: weights, sigmas and running statistics have all moved."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    return model


def small_resnet(depth=18, **options):
    return gmr_resnet(depth, width=4, kernel_size=(5, 5, 3, 3), **options)


# -- one layer


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False, "rings": 2},
        {"groups": 2, "padding": 2, "padding_mode": "reflect"},
        {"groups": 4, "padding": 1, "padding_mode": "circular", "circular": False},
        {"stride": 2, "dilation": 2, "padding": 4},
        {"padding": "same", "padding_mode": "replicate", "dilation": 2, "sigma": None},
        {"sampling": "area", "normalize": True, "sigma": "fixed"},
        {"sampling": "binned", "padding": "valid"},
    ],
    ids=str,
)
def test_layer(form, dimensions, options):
    layer = LAYERS[dimensions](4, 8, 5, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquivarianceWarning)  # strides are meant
        folded = assert_equal(layer, torch.randn(2, 4, *(13, 11, 12)[:dimensions], dtype=torch.float64), form)
    if form == "dense":
        assert type(folded) is CONVS[dimensions]
    else:
        depthwise, pointwise = folded
        assert type(depthwise) is type(pointwise) is CONVS[dimensions]
        assert (depthwise.groups, depthwise.out_channels) == (4, 4 * layer.rings)
        assert set(pointwise.kernel_size) == {1}
        assert pointwise.groups == layer.groups


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("channels", "groups"), [((1, 1), 1), ((1, 7), 1), ((5, 5), 5), ((3, 9), 3), ((6, 4), 2)])
def test_channels_and_groups(form, channels, groups):
    layer = GMRConv2d(*channels, (3, 5), padding=(1, 2), groups=groups)
    assert_equal(layer, torch.randn(2, channels[0], 7, 13, dtype=torch.float64), form)


def test_even_kernel_with_same_padding_pads_the_same_side():
    with pytest.warns(EquivarianceWarning):
        layer = GMRConv2d(2, 3, 4, padding="same")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it has to copy
        assert_equal(layer, torch.randn(1, 2, 9, 9, dtype=torch.float64))


@pytest.mark.parametrize("form", FORMS)
def test_one_tap_is_one_convolution(form):
    folded = assert_equal(GMRConv2d(4, 8, 1), torch.randn(1, 4, 5, 5, dtype=torch.float64), form)
    assert type(folded) is nn.Conv2d


def test_sigma_per_channel_is_dense_only():
    layer = GMRConv2d(4, 8, 5, sigma="channel")
    layer.log_sigma.data.normal_(0, 0.3)
    assert_equal(layer, torch.randn(1, 4, 9, 9, dtype=torch.float64))
    with pytest.raises(ValueError, match=r'sigma="channel".*form="dense"'):
        fold(layer, "factored")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype_mode_and_requires_grad_are_kept(form, dtype):
    layer = GMRConv2d(4, 8, 3, dtype=dtype).eval()
    layer.weight.requires_grad_(False)
    folded = fold(layer, form)
    assert {p.dtype for p in folded.parameters()} == {dtype}
    assert not any(m.training for m in folded.modules())
    grads = {name.rpartition(".")[2]: p.requires_grad for name, p in folded.named_parameters()}
    assert grads == {"weight": False, "bias": True}
    assert all(m.training for m in fold(layer.train(), form).modules())


def test_meta_device_stays():
    assert fold(GMRConv2d(4, 8, 3, device="meta")).weight.device.type == "meta"


def test_the_layer_itself_is_left_alone():
    layer = GMRConv2d(4, 8, 3)
    before = copy.deepcopy(layer.state_dict())
    folded = fold(layer)
    folded.weight.data.zero_()
    folded.bias.data.zero_()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("form", FORMS)
def test_unbatched_input(form):
    assert_equal(GMRConv2d(3, 4, 3, padding=1), torch.randn(3, 6, 7, dtype=torch.float64), form)


# -- models


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("depth", [18, 50])
def test_network_after_ten_steps(form, batch_norm, depth):
    model = trained(small_resnet(depth).double(), torch.randn(4, 3, 24, 24, dtype=torch.float64)).eval()
    for size in ((24, 24), (33, 26)):
        folded = assert_equal(model, torch.randn(2, 3, *size, dtype=torch.float64), form, batch_norm=batch_norm)
    assert of_ringconv(folded) == []
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert norms == (0 if batch_norm else sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()))


def test_names_and_modes_of_a_network_are_kept():
    model = small_resnet().train()
    model.stages[0].eval()
    folded = fold(model)
    assert folded.training
    assert not folded.stages[0].training
    assert folded.stages[1].training
    plain = {name for name in model.state_dict() if not name.endswith("log_sigma")}
    assert set(folded.state_dict()) == plain
    x = torch.randn(4, 3, 16, 16)
    torch.testing.assert_close(folded(x), model(x), rtol=1e-3, atol=1e-4)


def test_features_only():
    model = small_resnet(features_only=True).double().eval()
    x = torch.randn(1, 3, 33, 33, dtype=torch.float64)
    maps, expected = fold(model)(x), model(x)
    assert len(maps) == len(expected) == 4
    for got, wanted in zip(maps, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def test_a_shared_layer_stays_shared():
    layer = GMRConv2d(4, 4, 3, padding=1)
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.ModuleDict({"again": layer})["again"])
    folded = assert_equal(model, torch.randn(1, 4, 8, 8, dtype=torch.float64))
    assert folded[0] is folded[2] is folded[3]


def test_a_model_without_rings_is_copied():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    folded = fold(model)
    assert folded is not model
    assert repr(folded) == repr(model)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(folded.eval()(x), model.eval()(x))


class Mine(nn.Module):
    """A user's own module, which calls an up-sampling with and without a size."""

    def __init__(self):
        super().__init__()
        self.down = Downsample(2)
        self.conv = GMRConv2d(3, 3, 3, padding=1)
        self.up = Upsample(2)

    def forward(self, x):
        if x.sum() > 1e9:  # what no tracing can follow
            return x
        y = self.conv(self.down(x))
        return self.up(y, x.shape[2:]) + self.up(y)[..., : x.shape[2], : x.shape[3]]


def test_own_modules_keep_their_class():
    model = Mine()
    model.deaf = "attribute"
    folded = assert_equal(model, torch.randn(2, 3, 9, 12, dtype=torch.float64))
    assert type(folded) is Mine
    assert folded.deaf == "attribute"
    assert of_ringconv(folded) == []


@pytest.mark.parametrize("size", list(itertools.product((8, 9, 11), (7, 12))))
def test_resizing_at_every_size(size):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    modules = [
        Downsample(2),
        Downsample(3),
        average_pool(SizeRule((2, 2), (-2, -2))),
        average_pool(SizeRule((2, 3), (-1, -2), lead=(1, 1))),
        symmetric_max_pool(SizeRule((2, 2), (-2, -2))),
        symmetric_max_pool(SizeRule((2, 2), (-2, -2)), return_indices=True),
        Upsample(3),
        UpsampleTo((2, 2), (2, 3)),
    ]
    for resize in modules:
        folded = fold(nn.Sequential(nn.Conv2d(3, 3, 1), resize))[1]
        assert of_ringconv(folded) == []
        torch.testing.assert_close(folded(x), resize(x), rtol=1e-12, atol=1e-12)


def test_resizing_in_place_of_a_transposed_convolution():
    block = upsampled_conv(UpsampleTo((2, 2), (2, 2)), GMRConv2d(3, 4, 3, padding=1)).double()
    folded = fold(block)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(folded(x), block(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(folded(x[0]), block(x[0]), rtol=1e-9, atol=1e-9)
    size = torch.Size((11, 12))
    torch.testing.assert_close(folded(x, size), block(x, size), rtol=1e-9, atol=1e-9)


def test_resizing_in_one_and_three_dimensions():
    for dimensions in (1, 3):
        x = torch.randn(2, 3, *(9, 7, 8)[:dimensions], dtype=torch.float64)
        model = nn.Sequential(LAYERS[dimensions](3, 3, 3, padding=1), Downsample(2, dimensions), Upsample(2))
        assert of_ringconv(assert_equal(model, x)) == []


def test_what_cannot_be_traced_stays_and_is_named():
    with pytest.warns(FoldWarning, match="Upsample could not be traced"):
        folded = fold(nn.Sequential(Upsample(2)))  # nothing says how many axes there are
    x = torch.randn(1, 2, 4, 4)
    assert torch.equal(folded(x), Upsample(2)(x))


# -- batch normalisation


def moved_norm(channels, norm=nn.BatchNorm2d, **options):
    layer = norm(channels, **options)
    if layer.running_mean is not None:
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    if layer.affine:
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return layer


def norms_left(module):
    return sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_after_a_layer(form, bias, affine):
    model = nn.Sequential(GMRConv2d(4, 6, 3, bias=bias, groups=2), moved_norm(6, affine=affine)).eval()
    x = torch.randn(2, 4, 7, 7, dtype=torch.float64)
    assert norms_left(assert_equal(model, x, form, batch_norm=True)) == 0
    assert norms_left(assert_equal(model, x, form)) == 1


def test_batch_norm_that_must_stay():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = GMRConv2d(4, 4, 3, padding=1), moved_norm(4)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y  # the plain output is needed too

    class Shared(Twice):
        def forward(self, x):
            return self.norm(self.conv(self.norm(self.conv(x))))

    x = torch.randn(2, 4, 7, 7, dtype=torch.float64)
    before = nn.Sequential(moved_norm(4), GMRConv2d(4, 4, 3))
    batch_statistics = nn.Sequential(GMRConv2d(4, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))
    for model in (Twice(), Shared(), before, batch_statistics):
        assert norms_left(assert_equal(model.eval(), x, batch_norm=True)) == 1


def test_batch_norm_is_found_beside_what_cannot_be_traced():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(GMRConv2d(3, 4, 3), moved_norm(4))

        def forward(self, x):
            return self.block(x) if x.sum() < 1e9 else x

    folded = assert_equal(Branching().eval(), torch.randn(1, 3, 6, 6, dtype=torch.float64), batch_norm=True)
    assert norms_left(folded) == 0


class Untraceable(nn.Module):
    """Calls its parts one after the other, and asks for a value, which no tracing can follow."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        return sum(part(x) for part in self.parts) if x.sum() < 1e9 else x


class Aliased(Untraceable):
    """Also takes what its part computes within."""

    def __init__(self, conv):
        super().__init__(nn.Sequential(conv, moved_norm(4)))
        self.__dict__["of_the_part"] = [conv]

    def forward(self, x):
        return super().forward(x) + self.of_the_part[0](x)


def test_what_parts_of_an_untraceable_model_share_is_left_alone():
    conv = GMRConv2d(3, 4, 3)
    x = torch.randn(1, 3, 6, 6, dtype=torch.float64)
    shared = Untraceable(nn.Sequential(conv, moved_norm(4)), nn.Sequential(conv, moved_norm(4)))
    assert norms_left(assert_equal(shared.eval(), x, batch_norm=True)) == 2
    assert norms_left(assert_equal(Untraceable(conv, shared.parts[0]).eval(), x, batch_norm=True)) == 1
    assert norms_left(assert_equal(Aliased(nn.Conv2d(3, 4, 3)).eval(), x, batch_norm=True)) == 1
    block = nn.Sequential(GMRConv2d(3, 4, 3), moved_norm(4))  # used twice as a whole, and folded once
    twice = Untraceable(Untraceable(block), Untraceable(block))
    assert norms_left(assert_equal(twice.eval(), x, batch_norm=True)) == 0


@pytest.mark.parametrize("part", [0, 1])
def test_batch_norm_stays_beside_hooks(part):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), moved_norm(4)).eval()
    model[part].register_forward_hook(lambda module, args, y: y + 1)
    assert norms_left(assert_equal(model, torch.randn(1, 3, 6, 6, dtype=torch.float64), batch_norm=True)) == 1


def test_batch_norm_stays_where_the_weight_is_read_too():
    class Read(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), moved_norm(4)

        def forward(self, x):
            return self.norm(self.conv(x)) + self.conv.weight.sum()

    assert norms_left(assert_equal(Read().eval(), torch.randn(1, 3, 6, 6, dtype=torch.float64), batch_norm=True)) == 1


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("layer", [nn.Conv2d, GMRConv2d])
def test_a_weight_that_a_hook_computes(layer):
    def normed():
        return nn.Sequential(nn.utils.weight_norm(layer(3, 4, 3)), moved_norm(4)).double().eval()

    model, x = normed(), torch.randn(1, 3, 6, 6, dtype=torch.float64)
    model(x).sum().backward()  # the weight is one with a gradient
    model.load_state_dict(normed().state_dict())
    folded = fold(model, batch_norm=True)
    torch.testing.assert_close(folded(x), model(x), rtol=1e-9, atol=1e-9)
    assert norms_left(folded) == (1 if layer is nn.Conv2d else 0)


def test_batch_norm_in_training_is_refused():
    model = nn.Sequential(GMRConv2d(3, 4, 3), nn.BatchNorm2d(4))
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        fold(model, batch_norm=True)
    model[1].eval()  # frozen statistics are enough
    assert norms_left(fold(model, batch_norm=True)) == 0


def test_frozen_stays_frozen_with_batch_norm():
    model = nn.Sequential(GMRConv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval().requires_grad_(False)
    assert not any(p.requires_grad for p in fold(model, batch_norm=True).parameters())


# -- refusals


def test_errors_say_what_to_do():
    layer = GMRConv2d(3, 4, 3)
    with pytest.raises(ValueError, match="'dense', 'factored', got 'fused'"):
        fold(layer, "fused")
    with pytest.raises(ValueError, match=r"model\.module"):
        fold(nn.DataParallel(layer))
    with pytest.raises(ValueError, match=r"model\._orig_mod"):
        fold(torch.compile(layer, backend="eager"))

    class Louder(GMRConv2d):
        def forward(self, input):
            return 2 * super().forward(input)

    with pytest.raises(ValueError, match="Louder has a forward of its own"):
        fold(Louder(3, 4, 3))


@pytest.mark.parametrize("form", FORMS)
def test_traces_and_scripts(form):
    model = small_resnet().eval()
    folded = fold(model, form)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about its own scripts
        traced, scripted = torch.jit.trace(folded, torch.randn(1, 3, 16, 17)), torch.jit.script(folded)
    x = torch.randn(2, 3, 33, 20)
    assert torch.equal(traced(x), folded(x))
    assert torch.equal(scripted(x), folded(x))


# -- without ringconv


def test_pickles_and_programs_load_without_ringconv(tmp_path):
    model = small_resnet().eval()
    x = torch.randn(2, 3, 17, 20)
    resizing = nn.Sequential(GMRConv2d(3, 4, 3), Downsample(2), Upsample(2))
    for name, module in (("model", model), ("layer", GMRConv2d(3, 4, 3)), ("stack", resizing)):
        for form in FORMS:
            torch.save(fold(module, form), tmp_path / f"{name}-{form}.pt")
        if name != "model":  # tracing it takes long, and has a test of its own
            torch.export.save(torch.export.export(fold(module.eval()), (x,)), tmp_path / f"{name}-program.pt2")
        torch.save((x, module(x).detach()), tmp_path / f"{name}.example")
    script = """
        import sys, pathlib, torch
        sys.modules["ringconv"] = None  # importing it fails from here on
        folder = pathlib.Path(sys.argv[1])
        for example in folder.glob("*.example"):
            x, expected = torch.load(example)
            modules = [torch.load(file, weights_only=False) for file in folder.glob(example.stem + "-*.pt")]
            modules += [torch.export.load(file).module() for file in folder.glob(example.stem + "-*.pt2")]
            assert len(modules) >= 2
            for module in modules:
                error = (module(x) - expected).abs().max() / expected.abs().max()
                assert error < 1e-4, (example, error)
        print("equal")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "equal", done.stderr


# -- harmonics


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 2, "padding": 2, "padding_mode": "reflect", "harmonic_rings": "all"},
        {"stride": 2, "dilation": 2, "padding": 4, "bias": False},
        {"sampling": "area", "normalize": "orthonormal", "sigma": "fixed", "edge": "smooth"},
    ],
    ids=str,
)
def test_harmonics(form, options):
    layer = GMRConv2d(4, 8, 5, harmonics=2, **options)
    x = torch.randn(2, 4, 13, 11, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquivarianceWarning)
        folded = assert_equal(layer, x, form)
    assert of_ringconv(folded) == []
    assert sum(isinstance(m, nn.Conv2d) and m.groups == 4 for m in folded.modules()) >= 2
    torch.testing.assert_close(folded(x[0]), folded(x)[0])


def test_harmonics_keep_dtype_and_mode():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        layer = GMRConv2d(4, 8, 5, harmonics=1, dtype=dtype).eval()
        folded = fold(layer)
        x = torch.randn(1, 4, 9, 9).to(dtype)
        assert not any(m.training for m in folded.modules())
        assert folded(x).dtype == dtype
        torch.testing.assert_close(folded(x).float(), layer(x).float(), rtol=0.05, atol=0.05)


class _Joined(nn.Module):
    """Doubles a map to the size of another, by keyword."""

    def __init__(self):
        super().__init__()
        self.conv = GMRConv2d(2, 2, 3, padding=1)
        self.up = Upsample(2)

    def forward(self, x, skip):
        return self.up(self.conv(x), size=skip.shape[2:]) + skip


def test_upsampling_to_a_size_keeps_its_name_in_a_folded_model():
    model = _Joined()
    x, skip = torch.randn(1, 2, 5, 6), torch.randn(1, 2, 9, 12)
    torch.testing.assert_close(fold(model)(x, skip), model(x, skip))


@pytest.mark.parametrize("size", [(9, 11), torch.Size((9, 12)), [10, 12]])
def test_a_folded_upsampling_takes_sizes_as_torch_does(size):
    conv = nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1)
    model = convert(nn.ModuleList([conv, Upsample(2)]))
    folded = fold(model)
    x = torch.randn(1, 2, 5, 6)
    torch.testing.assert_close(folded[0](x, output_size=size), model[0](x, output_size=size))
    torch.testing.assert_close(folded[1](x, size=size), model[1](x, size=size))
    torch.testing.assert_close(torch.fx.symbolic_trace(folded[1])(x, size), model[1](x, size))


def test_the_mode_of_a_feature_extractor_is_kept():
    """A copy of one begins in training mode."""
    import_torchvision()
    from torchvision.models.feature_extraction import create_feature_extractor

    network = nn.Sequential(GMRConv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    folded = fold(create_feature_extractor(network, {"2": "map"}).eval())
    assert not any(module.training for module in folded.modules())


def test_a_part_that_is_compiled_is_refused():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), torch.compile(GMRConv2d(1, 1, 3)))
    with pytest.raises(ValueError, match=r"but 1 is a OptimizedModule.*model\.1\._orig_mod"):
        fold(model)


def test_the_mode_of_a_folded_low_pass_is_kept():
    folded = fold(nn.Sequential(GMRConv2d(1, 1, 3), Downsample(2, mode="lowpass")).eval())
    assert not any(module.training for module in folded.modules())


class _Asking(nn.Module):
    """Pads by what its convolution says of itself, as some networks of timm do."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        short = self.conv.kernel_size[0] - x.shape[-1]
        assert (self.conv.in_channels, self.conv.groups) == (x.shape[1], 1)
        return self.conv(nn.functional.pad(x, (0, max(0, short) + self.conv.stride[0])))


@pytest.mark.parametrize("form", FORMS)
def test_a_folded_convolution_can_be_asked_for_its_sizes(form):
    x = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    for conv in (nn.Conv2d(2, 3, 3, 2, 1), nn.Conv2d(2, 3, 3, padding=1), nn.ConvTranspose2d(2, 3, 2, 2)):
        for options in ({}, {"harmonics": 1}):
            model = convert(_Asking(conv), **options)
            folded = assert_equal(model, x, form)
            torch.testing.assert_close(copy.deepcopy(folded)(x), folded(x))
            assert of_ringconv(folded) == []


class _FromAList(nn.Module):
    """Calls its layers from where torch does not look for them."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = GMRConv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.norm.running_var.fill_(9.0)
        self.norms, self.by_name, self.call = [self.norm], {"conv": self.conv}, self.conv.forward
        self.partial = functools.partial(self.norm)

    def forward(self, x):
        return self.norms[0](self.by_name["conv"](x)) + self.call(x)


class _NormFromAList(_FromAList):
    def forward(self, x):
        return self.norms[0](self.conv(x))


class _NormInAPartial(_FromAList):
    def __init__(self):
        super().__init__()
        self.norms = []

    def forward(self, x):
        return self.partial(self.conv(x))


@pytest.mark.parametrize("network", [_FromAList, _NormFromAList, _NormInAPartial])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_layers_in_lists_and_under_other_names(network, batch_norm):
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    folded = assert_equal(network().eval(), x, batch_norm=batch_norm)
    assert type(folded.by_name["conv"]) is nn.Conv2d
    assert folded.call.__self__ is folded.conv
    assert b"ringconv" not in pickle.dumps(folded)


def test_a_folded_low_pass_is_scripted():
    x = torch.randn(1, 2, 9, 8)
    down = Downsample(2, mode="lowpass")
    torch.testing.assert_close(torch.jit.script(fold(down))(x), down(x))


def test_a_patched_forward_that_calls_the_original_one():
    network = nn.Sequential(GMRConv2d(3, 4, 3), nn.ReLU()).eval()
    for module in (network, network[1]):
        module.original = module.forward
        module.forward = MethodType(lambda self, x: 2 * self.original(x), module)
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    assert_equal(network, x)
