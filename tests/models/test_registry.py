"""Every registered model, at a small width: it runs, learns, has the count it says and the symmetry it promises."""

import copy
import functools
import itertools
import json
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from ringconv import EquivarianceWarning
from ringconv._extras import MissingExtraError
from ringconv.layers import RingKernel
from ringconv.models import create_model, gmr_resnet, list_models, model_entry, register_model
from ringconv.models.factories import RingOptions
from ringconv.models.paper_counts import agrees, paper_counts
from ringconv.models.registry import ModelEntry

NAMES = list_models()
SYMMETRIC = [name for name in NAMES if model_entry(name).symmetry != "none"]
COMPILED_ALWAYS = ("gmr_resnet18", "gmr_unet")
OTHER_LIBRARIES = "other libraries cannot build on the meta device, and take minutes elsewhere"


def in_all_dimensions(names):
    return [(name, dimensions) for name in names for dimensions in model_entry(name).dimensions]


def small(name: str, dimensions: int | None = None, **options: object) -> nn.Module:
    """The model at a small width, and in 3D with small kernels."""
    entry = model_entry(name)
    if "width" in entry.options:
        options.setdefault("width", 2 if "wide_resnet" in name else 8)
    if dimensions is not None and "dimensions" in entry.options:
        options["dimensions"] = dimensions
    if dimensions == 3 and "kernel_size" in entry.options:
        options.setdefault("kernel_size", 3)
    return built(name, **options)


def built(name: str, **options: object) -> nn.Module:
    """The model; skips if its extra is not installed."""
    try:
        return create_model(name, **options)
    except MissingExtraError as missing:
        pytest.skip(str(missing))


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def batch_for(entry: ModelEntry, network: nn.Module, dimensions: int, side: int, batch: int = 2) -> torch.Tensor:
    size = (side,) * dimensions if entry.symmetric_axes != 2 or dimensions == 2 else (3, side, side)
    return torch.randn(batch, getattr(network, "in_chans", 3), *size)


def calibrated(network: nn.Module, x: torch.Tensor) -> nn.Module:
    """In eval, with the statistics of ``x``: an untrained network without them grows beyond all bounds."""
    norms = [norm for norm in network.modules() if isinstance(norm, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        network.train()(x)
    return network.eval()


def moves_of(entry: ModelEntry, dimensions: int):
    """Quarter turns and flips that together make up everything that is promised."""
    axes = tuple(range(-(entry.symmetric_axes or dimensions), 0))
    moves = {f"turn{plane}": functools.partial(torch.rot90, dims=plane) for plane in itertools.pairwise(axes)}
    if entry.symmetry == "rotations and reflections":
        moves["flip"] = functools.partial(torch.flip, dims=axes[-1:])
    return moves


@pytest.mark.parametrize("name", NAMES)
def test_count_is_exact(name):
    entry = model_entry(name)
    assert entry.parameters, f"{name} is registered without its count"
    if entry.extra not in (None, "zoo"):
        pytest.skip(OTHER_LIBRARIES)
    with torch.device("meta"):
        network = built(name)
    assert count(network) == entry.parameters


@pytest.mark.parametrize(
    "row", [row for row in paper_counts() if row.options], ids=lambda row: f"{row.name}-{row.parameters}"
)
def test_counts_of_the_paper(row):
    if model_entry(row.name).extra not in (None, "zoo"):
        pytest.skip(OTHER_LIBRARIES)
    with torch.device("meta"):
        network = built(row.name, **row.options)
    assert count(network) == row.parameters


def test_which_printed_counts_agree():
    assert agrees(3_996_685, "3.9M")  # cut
    assert agrees(5_069_837, "5.1M")  # rounded
    assert agrees(175_804, "0.17M")
    assert agrees(2_022_466, "2.02M")
    assert not agrees(3_922_949, "3.8M")
    disagree = {(row.name, row.parameters) for row in paper_counts() if row.agrees is False and "gmr_" in row.name}
    assert disagree == {("gmr_resnet18", 3_922_949), ("gmr_resnet18", 6_437_933), ("gmr_resnet18", 7_806_474)}


@pytest.mark.parametrize(("name", "dimensions"), in_all_dimensions(NAMES))
def test_runs_and_every_parameter_learns(name, dimensions):
    entry = model_entry(name)
    network = small(name, dimensions, num_classes=5)
    x = batch_for(entry, network, dimensions, 18)
    y = network(x)
    assert y.shape == (2, 5) if entry.task == "classification" else (2, 5, *x.shape[2:])
    y.square().mean().backward()
    without = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not without
    assert sum(p.grad.abs().sum() for p in network.parameters()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip(name):
    network = small(name)
    x = batch_for(model_entry(name), network, model_entry(name).dimensions[0], 17)
    expected = calibrated(network, x)(x)
    other = small(name).eval()
    assert not torch.equal(other(x), expected)
    other.load_state_dict(network.state_dict())
    torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


def assert_symmetric(name: str, dimensions: int, sides, **options: object) -> None:
    """Turned inputs give the same logits, or turned maps, within the rounding of float32.

    If the network is symmetric, two results of float32 differ by at most the sum of their own errors, which the same
    network in float64 tells. (And float64 rounds too, so a little more.)
    """
    entry = model_entry(name)
    network = small(name, dimensions, **options)
    moves = moves_of(entry, dimensions)
    calibrated(network, batch_for(entry, network, dimensions, sides[0], batch=4))
    exact = copy.deepcopy(network).double()
    for side in sides:
        x = batch_for(entry, network, dimensions, side, batch=1)
        turned = torch.cat([x, *(move(x) for move in moves.values())])
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", EquivarianceWarning)
            given = network(turned)
            rounding = (given - exact(turned.double())).flatten(1).norm(dim=1)
        for index, (move_name, move) in enumerate(moves.items(), start=1):
            expected = given[:1] if entry.task == "classification" else move(given[:1])
            error = (given[index : index + 1] - expected).norm()
            bound = 1.01 * (rounding[0] + rounding[index])
            assert error <= bound, f"{name} at {side}, {move_name}: {error:.1e}, rounding is {bound:.1e}"


@pytest.mark.parametrize(("name", "dimensions"), in_all_dimensions(SYMMETRIC))
def test_promised_symmetry(name, dimensions):
    assert_symmetric(name, dimensions, (33, 40, 50) if dimensions == 2 else (17, 22))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SYMMETRIC if name.startswith("gmr_")])
def test_promised_symmetry_at_every_size(name):
    options = {"width": 2} if name == "gmr_r3d_9" else {}
    assert_symmetric(name, model_entry(name).dimensions[0], range(32, 66), **options)


def test_plain_networks_are_not_symmetric():
    """So that the test above can fail."""
    with pytest.raises(AssertionError, match="rounding is"):
        assert_symmetric("resnet18", 2, (33,))


def eager_error(network: nn.Module, x: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The largest error of the methods: a graph for any size chooses its methods anew, and rounding is a lottery."""
    networks = [network]
    for method in ("dense", "factored"):
        networks.append(copy.deepcopy(network))
        for layer in networks[-1].modules():
            if isinstance(layer, RingKernel):
                layer.method = method
    with torch.no_grad():
        return torch.stack([(each(x) - exact).norm() for each in networks]).max()


def assert_compiles(name: str, backend: str) -> None:
    """A compiled network may order its sums anew, so that its error is of the size of the eager one's."""
    dimensions = model_entry(name).dimensions[0]
    network = small(name, dimensions)
    x = batch_for(model_entry(name), network, dimensions, 16)
    calibrated(network, x)
    exact = copy.deepcopy(network).double()(x.double())
    torch.compiler.reset()
    given = torch.compile(network, backend=backend, fullgraph=True)(x)
    assert (given - exact).norm() <= 4 * eager_error(network, x, exact)
    given.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize(
    "name", [name if name in COMPILED_ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_compiles(name):
    assert_compiles(name, "aot_eager")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a DenseNet has 120 layers to compile
@pytest.mark.parametrize("family", sorted({model_entry(name).family for name in NAMES if name.startswith("gmr_")}))
def test_compiles_to_machine_code(family):
    name = next(name for name in NAMES if name.startswith("gmr_") and model_entry(name).family == family)
    assert_compiles(name, "inductor")


# -- the registry itself


def test_unknown_names_and_options_are_explained():
    with pytest.raises(ValueError, match=r"there is no model 'gmr_resnt18'; did you mean 'gmr_resnet18'"):
        create_model("gmr_resnt18")
    with pytest.raises(TypeError, match=r"unknown option 'widht' \(did you mean 'width'\?\); the options are .*rings"):
        create_model("gmr_resnet18", widht=8)
    with pytest.raises(TypeError, match="resnet18 got unknown options 'rings', 'sampling'"):
        create_model("resnet18", rings=3, sampling="area")


def test_one_value_counts_for_all_stages():
    with torch.device("meta"):
        for name, stages in (("gmr_resnet18", 4), ("gmr_wide_resnet16_8", 3), ("gmr_r3d_9", 4), ("gmr_unet", 4)):
            one, all_stages = (
                built(name, kernel_size=size, rings=rings) for size, rings in ((5, 2), ([5] * stages, (2,) * stages))
            )
            assert count(one) == count(all_stages) < count(built(name, kernel_size=5))
            with pytest.raises(ValueError, match=rf"kernel_size must be one value or one per stage \({stages}\)"):
                create_model(name, kernel_size=(5, 5))


def test_integers_of_numpy_are_integers():
    options = {"width": np.int64(8), "in_chans": np.int32(1), "kernel_size": [np.int64(5)] * 4, "rings": np.int64(2)}
    with torch.device("meta"):
        network = create_model("gmr_resnet18", **options)
        same = create_model("gmr_resnet18", width=8, in_chans=1, kernel_size=[5] * 4, rings=2)
        assert count(gmr_resnet(width=np.int64(8), rings=np.int64(2))) == count(gmr_resnet(width=8, rings=2))
    assert repr(network) == repr(same)
    assert network.model_options == same.model_options
    json.dumps(network.model_options)


def test_a_model_knows_how_it_was_made():
    network = create_model("gmr_resnet18", width=8, kernel_size=[5, 5, 3, 3])
    again = create_model(network.model_name, **network.model_options)
    again.load_state_dict(network.state_dict())


def test_listed_by_pattern():
    assert list_models("gmr_resnet*") == ["gmr_resnet18", "gmr_resnet34", "gmr_resnet50"]
    assert list_models("no such") == []
    plain = {name.removeprefix("gmr_") for name in list_models("gmr_*")}
    assert plain <= set(list_models())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("gmr_")])
def test_plain_counterpart_takes_the_same_options(name):
    ring, plain = model_entry(name), model_entry(name.removeprefix("gmr_"))
    more = set(ring.options) - set(plain.options) - {"downsampling"}
    assert more == {"rings", *RingOptions.__annotations__}
    assert set(plain.options) <= set(ring.options)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    assert "gmr_densenet121" in list_models()
    with pytest.raises(MissingExtraError, match=r"timm is not installed; it comes with: pip install 'ringconv\[zoo\]'"):
        create_model("gmr_densenet121")


def test_names_are_taken_once():
    with pytest.raises(ValueError, match="there is a model 'resnet18' already"):
        register_model("resnet18", "resnet")(lambda: nn.Identity())


def test_options_without_names_are_refused():
    def build(**options):
        return nn.Identity()

    with pytest.raises(TypeError, match=r"\*\*options of build must be Unpack"):
        _ = ModelEntry("nameless", build, "none").options
