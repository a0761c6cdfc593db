"""The networks that come with the page, and those that people bring."""

import pytest
import torch
from torch import nn

from ringconv.demo import networks, train
from ringconv.demo.examples import scene_examples, texture_examples
from ringconv.demo.networks import WEIGHTS, Network, bundled_networks, checkpoint_network, with_names_of_their_own
from ringconv.demo.scenes import SCENES, load_scene
from ringconv.demo.sweeps import class_sweep, overlap_sweep
from ringconv.models.checkpoint import read_info, save_model
from ringconv.models.registry import create_model
from ringconv.training import CompareSettings


@pytest.fixture(scope="module")
def bundled():
    return {network.name: network for network in bundled_networks()}


def _saved(path, name="resnet18", **options):
    torch.manual_seed(0)
    preprocessing = options.pop("preprocessing", None)
    names = options.pop("class_names", None)
    model = create_model(name, **options)
    return save_model(path, model, preprocessing=preprocessing, class_names=names)


def test_the_package_carries_small_files():
    files = list(WEIGHTS.iterdir())
    assert len(files) == 4
    assert all(file.stat().st_size < 600_000 for file in files)
    assert bundled_networks()[3].parameters < 200_000


def test_ring_networks_hold_still_where_plain_ones_do_not(bundled):
    """At quarter turns, which are exact."""
    quarters = [9, 18, 27]
    for example in texture_examples():
        assert class_sweep(bundled["ring network"], example.picture, True).drift[quarters].max() < 1e-4
        assert class_sweep(bundled["plain network"], example.picture, True).drift[quarters].max() > 0.02
    cells = scene_examples()[-1].picture
    assert overlap_sweep(bundled["ring U-Net"], cells, True)[quarters].min() > 0.995
    assert overlap_sweep(bundled["plain U-Net"], cells, True)[quarters].min() < 0.99


def test_bundled_networks_know_their_examples(bundled):
    named = {name: bundled[name].classes for name in ("plain network", "ring network")}
    for name, classes in named.items():
        right = [
            classes[int(class_sweep(bundled[name], example.picture, False).probabilities[0].argmax())] == example.name
            for example in texture_examples()
        ]
        assert sum(right) >= 6, f"the {name} knows {sum(right)} of 7"


def test_bundled_segmentations_say_how_good_they_are():
    for kind in ("plain", "ring"):
        metrics = read_info(WEIGHTS / f"segmenter-{kind}.safetensors").metrics
        assert metrics["upright"] > 70


@pytest.mark.slow
def test_they_are_made_again_by_one_command(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "TEXTURES", CompareSettings(epochs=1, train_patches=10, test_patches=2))
    monkeypatch.setattr(train, "STEP", 90)
    monkeypatch.setattr(train, "_STEPS", 1)
    said = []
    train.make_networks(tmp_path / "new", said.append)
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == [
        path.name for path in sorted(WEIGHTS.iterdir())
    ]
    assert len(said) == 4
    monkeypatch.setattr(networks, "WEIGHTS", tmp_path / "new")
    assert [network.parameters for network in bundled_networks()] == [72_471, 16_819, 122_817, 66_397]


def test_the_widths_of_rings_do_not_decay(monkeypatch):
    real, groups = torch.optim.AdamW, []
    monkeypatch.setattr(torch.optim, "AdamW", lambda given, **options: groups.extend(given) or real(given, **options))
    monkeypatch.setattr(train, "_STEPS", 1)
    name, options = train.SEGMENTER["ring"]
    network = create_model(name, **{**options, "width": 2})
    train._train_segmenter(network)
    spared = {id(parameter) for group in groups if group["weight_decay"] == 0 for parameter in group["params"]}
    widths = {id(parameter) for name, parameter in network.named_parameters() if name.endswith("log_sigma")}
    assert widths
    assert spared == widths


def test_scenes_share_no_pixel_between_training_and_testing():
    for name in SCENES:
        for split in ("train", "test"):
            scene = load_scene(name, split)
            assert scene.pixels.shape == (*scene.mask.shape, 3)
            assert 0.05 < scene.mask.mean() < 0.6
    coins = load_scene("coins", "train").pixels.shape[1] * 2, load_scene("coins", "test").pixels.shape[1] * 2
    assert sum(coins) < 384


def test_a_network_is_heard_at_the_layer_that_was_asked_for(bundled):
    network = bundled["ring network"]
    images = torch.rand(2, 1, 40, 40)
    response = network(images, "3")
    with torch.no_grad():
        expected = network.module[:4](network.prepare(images))
    assert torch.equal(response.maps, expected)
    assert response.embedding.shape == (2, 64)
    assert response.output.shape == (2, 7)
    assert network(images).maps is None
    assert not any(module._forward_hooks for module in network.module.modules()), "nothing is left behind"


def test_a_blank_picture_has_a_contrast_too():
    assert torch.equal(networks.equal_contrast(torch.full((2, 1, 8, 8), 0.25)), torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize(
    ("name", "options", "side"),
    [
        ("resnet18", {"num_classes": 3, "width": 4}, None),
        ("gmr_resnet18", {"num_classes": 12, "width": 4, "in_chans": 1, "preprocessing": {"size": 32}}, 32),
        ("gmr_resnet18", {"num_classes": 2, "width": 4, "class_names": ["<b>a</b>", "b"]}, None),
        ("unet", {"num_classes": 4, "width": 2}, None),
    ],
)
def test_any_checkpoint_can_be_shown(name, options, side, tmp_path):
    network = checkpoint_network(_saved(tmp_path / "net.safetensors", name, **options))
    assert network.name == f"net ({name})"
    assert network.side == side
    assert network.middle_layer in network.layers
    response = network(torch.rand(1, network.channels, 32, 32), network.middle_layer)
    assert response.maps.ndim == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet18", {"num_classes": 3, "width": 4, "in_chans": 5}, "5 channels"),
        ("resnet18", {"num_classes": 1, "width": 4}, "two classes or more"),
        ("resnet18", {"num_classes": 2, "width": 4, "preprocessing": {"size": (32, 64)}}, "squares"),
        ("unet", {"dimensions": 3, "width": 2}, "3 dimensions"),
    ],
)
def test_networks_that_cannot_be_shown_say_why(name, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        checkpoint_network(_saved(tmp_path / "net.safetensors", name, **options))


def test_networks_of_one_name_are_told_apart(bundled):
    network = bundled["ring network"]
    assert list(with_names_of_their_own([network] * 3)) == ["ring network", "ring network #2", "ring network #3"]


def test_a_network_without_a_linear_layer_has_its_output_for_an_embedding():
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = Network("odd", module, "classification", 1, lambda images: images)
    assert network.classes == ("class 0", "class 1", "class 2")
    response = network(torch.rand(1, 1, 32, 32))
    assert torch.equal(response.embedding, response.output)
