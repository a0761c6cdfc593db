"""Finding the layer that loses equivariance."""

import json

import pytest
import torch
from torch import nn

from ringconv import Downsample, GMRConv2d, GMRConv3d
from ringconv.equivariance import band_limited_noise
from ringconv.evaluation.audit import audit


def network(middle):
    torch.manual_seed(0)
    return nn.Sequential(
        GMRConv2d(2, 6, 5, padding=2, sampling="area"),
        nn.ReLU(inplace=True),
        middle,
        GMRConv2d(6, 6, 3, padding=1, sampling="area"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


X = band_limited_noise((64, 64), batch=2, channels=2, dtype=torch.float32)


@pytest.mark.parametrize("middle", [nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, 2, 1)])
def test_the_layer_that_breaks_it_is_named(middle):
    found = audit(network(middle), X)
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["0"].errors["90"] < 1e-5
    assert by_name["1"].errors["flip"] < 1e-5
    assert by_name["2"].errors["90"] > 0.01
    exact = {name: layer.added["90"] for name, layer in by_name.items()}
    assert max(exact, key=exact.__getitem__) == "2"


def test_a_ring_network_loses_nothing_at_quarter_turns():
    found = audit(network(Downsample(2)), X)
    assert found.transformations == ("15", "30", "45", "90", "flip")
    assert [layer.name for layer in found.layers] == list("0123456")
    for layer in found.layers:
        assert layer.errors["90"] < 1e-4
        assert layer.errors["flip"] < 1e-4
    assert found.layers[0].errors["45"] < 0.05
    assert found.layers[0].kind == "GMRConv2d"
    assert found.layers[0].shape == (6, 64, 64)
    assert found.layers[-1].shape == (3,)
    json.dumps(found.as_dict(), allow_nan=False)


def test_a_layer_that_is_used_twice_is_heard_twice():
    shared = GMRConv2d(2, 2, 3, padding=1)
    found = audit(nn.Sequential(shared, nn.ReLU(), shared), X, angles=[90])
    assert [layer.name for layer in found.layers] == ["0", "1", "0#2"]


def test_maps_that_are_too_small_to_turn_say_so():
    small = nn.Sequential(GMRConv2d(2, 3, 3, padding=1), Downsample(16))
    found = audit(small, X, angles=[30, 90])
    assert found.layers[1].errors["30"] != found.layers[1].errors["30"], "not a number"
    assert found.layers[1].errors["90"] < 1e-5


def test_volumes_and_a_single_module():
    found = audit(GMRConv3d(1, 2, 3, padding=1), band_limited_noise((16, 16, 16), dtype=torch.float32), [30, 90])
    (layer,) = found.layers
    assert layer.name == "network"
    assert layer.errors["90"] < 1e-5


def test_images_of_unequal_sides_turn_too():
    found = audit(network(Downsample(2)), X[..., :48], angles=[30, 60, 90])
    assert found.layers[0].shape == (6, 64, 48)
    for layer in found.layers:
        assert layer.errors["90"] < 1e-4
        assert layer.errors["flip"] < 1e-4
    # 60 degrees are a quarter turn and 30 back.
    assert found.layers[0].errors["60"] == pytest.approx(found.layers[0].errors["30"], rel=0.5)
    assert found.layers[0].errors["60"] < 0.05


def test_hooks_are_gone_and_the_mode_is_back():
    model = network(Downsample(2)).train()
    steps = []
    audit(model, X, [90], progress=lambda *step: steps.append(step))
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert steps == [("audit", 1, 2), ("audit", 2, 2)]


def test_what_cannot_be_audited():
    with pytest.raises(ValueError, match="x must be a floating"):
        audit(nn.Identity(), torch.zeros(1, 1, 8))
    with pytest.raises(ValueError, match="at least one image"):
        audit(nn.Identity(), X[:0])
    with pytest.raises(ValueError, match="nothing to audit"):
        audit(nn.Identity(), X, [], reflections=False)
