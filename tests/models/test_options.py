"""Options of the ring networks beyond the published form: each trains, keeps the symmetry and survives a round trip."""

import pytest
import torch
from torch import nn

from ringconv import Downsample, GMRConv2d, fold
from ringconv.models import create_model
from ringconv.pooling import DiscView, GlobalDisc
from ringconv.presets import LAYER_PRESETS, NETWORK_PRESETS

OPTIONS = [
    {"normalize": "orthonormal", "sampling": "area"},
    {"edge": "smooth"},
    {"downsampling": "lowpass"},
    {"pooling": "disc"},
    {"harmonics": 1, "harmonic_rings": "all"},
    {"harmonics": 2, "sampling": "area", "normalize": True, "pooling": "disc", "downsampling": "lowpass"},
    {"preset": "paper", "pooling": "disc"},
]


def small(name="gmr_resnet18", **options):
    return create_model(name, **({"width": 4, "num_classes": 3, "kernel_size": (5, 3, 3, 3)} | options))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_trains_turns_and_folds(options):
    network = small(**options).double()
    x = torch.randn(3, 3, 14, 14, dtype=torch.float64)
    network(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    network.eval()
    plain = fold(network)
    assert not any(type(m).__module__.startswith("ringconv") for m in plain.modules())
    with torch.no_grad():
        for size in ((13, 13), (12, 17)):
            x = torch.randn(1, 3, *size, dtype=torch.float64)
            logits = network(x)
            torch.testing.assert_close(network(x.rot90(1, (2, 3))), logits, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(network(x.flip(3)), logits, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(plain(x), logits, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_compiles_in_one_graph():
    torch.compiler.reset()
    network = small(**OPTIONS[-2]).eval()
    x = torch.randn(2, 3, 14, 14)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), network(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["gmr_wide_resnet16_8", "gmr_r3d_9", "gmr_r2plus1d", "sre_resnet18"])
def test_every_residual_network_takes_the_pooling_options(name):
    options = {"width": 2} if "wide" in name else {"width": 4}
    kernel = {} if "wide" in name else {"kernel_size": 3}
    network = create_model(name, downsampling="lowpass", pooling="disc", **options, **kernel)
    modes = {m.mode for m in network.modules() if isinstance(m, Downsample)}
    assert modes == {"lowpass"}
    assert any(isinstance(m, GlobalDisc) for m in network.modules())
    dimensions = 3 if name in ("gmr_r3d_9", "gmr_r2plus1d") else 2
    network(torch.randn(2, getattr(network, "in_chans", 3), *[8] * dimensions)).sum().backward()


@pytest.mark.parametrize("name", ["resnet18", "wide_resnet16_8", "r3d_9", "r2plus1d"])
def test_plain_networks_pool_over_a_disc_too(name):
    network = create_model(name, pooling="disc", width=2)
    assert any(isinstance(m, GlobalDisc) for m in network.modules())
    assert list(network.state_dict()) == list(create_model(name, width=2).state_dict())


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="pooling must be one of 'average', 'disc', got 'max'"):
        small(pooling="max")
    with pytest.raises(ValueError, match="downsampling must be one of 'average', 'lowpass', got 'max'"):
        small(downsampling="max")
    with pytest.raises(ValueError, match="preset must be None or one of 'paper', got 'ours'"):
        small(preset="ours")


# -- presets


def test_the_defaults_differ_from_the_papers_in_the_form_of_the_rings_only():
    """If a default changes, the preset must not: then this test is what changes."""
    ours = {"sampling": "area", "normalize": True, "edge": "smooth"}
    given, default = GMRConv2d(4, 8, 9, preset="paper", **ours), GMRConv2d(4, 8, 9)
    assert repr(given) == repr(default)
    assert given.geometry == default.geometry
    torch.manual_seed(0)
    network = small(preset="paper", **ours)
    torch.manual_seed(0)
    same = small()
    assert all(
        torch.equal(a, b) for a, b in zip(network.state_dict().values(), same.state_dict().values(), strict=True)
    )
    assert str(network) == str(same)


def test_defaults_that_follow_other_options():
    assert GMRConv2d(4, 8, 9, circular=False).geometry.edge == "hard"
    assert GMRConv2d(4, 8, 9, sigma="channel").geometry.sampling == "point"
    with pytest.raises(ValueError, match="edge must be one of 'hard', 'smooth', got ''"):
        GMRConv2d(4, 8, 9, edge="")
    for options in ({}, {"circular": False}, {"sigma": "channel"}, {"kernel_size": 1}):
        assert not any(name in repr(GMRConv2d(4, 8, **{"kernel_size": 9, **options})) for name in ("sampling", "edge"))


def test_options_that_are_none_are_left_to_the_preset():
    geometry = GMRConv2d(4, 8, 9, preset="paper", sampling=None, edge=None).geometry
    assert geometry == GMRConv2d(4, 8, 9, preset="paper").geometry
    assert GMRConv2d(4, 8, 9, preset="paper", sigma=None).sigma is None


def test_the_preset_is_the_published_form():
    layer = GMRConv2d(4, 8, 9, preset="paper")
    assert (layer.sigma, layer.init, layer.harmonics) == ("layer", "paper", 0)
    geometry = layer.geometry
    assert (geometry.circular, geometry.sampling, geometry.normalize, geometry.edge) == (True, "point", False, "hard")
    assert set(LAYER_PRESETS) == set(NETWORK_PRESETS)


def test_what_is_given_counts_more_than_the_preset():
    layer = GMRConv2d(4, 8, 9, preset="paper", sampling="area", sigma=None)
    assert layer.geometry.sampling == "area"
    assert layer.sigma is None
    network = small(preset="paper", pooling="disc", sampling="area")
    assert any(isinstance(m, GlobalDisc) for m in network.modules())
    assert {m.geometry.sampling for m in network.modules() if isinstance(m, GMRConv2d)} == {"area"}


def test_a_preset_overrides_a_changed_default(monkeypatch):
    monkeypatch.setitem(LAYER_PRESETS["paper"], "sampling", "area")
    monkeypatch.setitem(NETWORK_PRESETS["paper"], "pooling", "disc")
    monkeypatch.setitem(NETWORK_PRESETS["paper"], "view", "disc")
    assert GMRConv2d(4, 8, 9, preset="paper").geometry.sampling == "area"
    network = small(preset="paper")
    assert any(isinstance(m, GlobalDisc) for m in network.modules())
    assert isinstance(network.stem.view, DiscView)
    assert isinstance(small().head, nn.Linear)
    assert not hasattr(small().stem, "view")


@pytest.mark.parametrize("model", ["resnet18", "gmr_resnet18", "symm_resnet18", "p4m_resnet18", "gmr_wide_resnet16_8"])
def test_a_network_with_a_disc_for_a_view_does_not_see_the_corners(model):
    torch.manual_seed(0)
    network = create_model(model, width=4, num_classes=3, view="disc").eval()
    x = torch.randn(2, 3, 16, 16)
    other = x.clone()
    other[..., :2, :2] = 5.0
    other[..., -2:, -2:] = -5.0
    assert torch.equal(network(x), network(other))
    other[..., 8, 8] += 1
    assert not torch.equal(network(x), network(other))
    assert network.state_dict().keys() == create_model(model, width=4, num_classes=3).state_dict().keys()


def test_the_view_of_a_volume_is_a_ball_and_that_of_a_video_a_disc_in_every_frame():
    volume = create_model("gmr_r3d_9", width=4, num_classes=3, view="disc")
    video = create_model("gmr_r2plus1d", width=4, num_classes=3, view="disc")
    assert (volume.stem.view.dimensions, video.stem.view.dimensions) == (3, 2)
    with pytest.raises(ValueError, match="view must be one of 'square', 'disc', got 'round'"):
        small(view="round")
