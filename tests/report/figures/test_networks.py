"""Figures of layers and networks: kernels, feature maps, embeddings, errors and answers."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ringconv import GMRConv1d, GMRConv2d, GMRConv3d, create_model
from ringconv._extras import MissingExtraError
from ringconv.equivariance import band_limited_noise, equivariance_error
from ringconv.evaluation.audit import audit
from ringconv.report.figures import (
    changed_answers,
    clusters,
    error_against_angle,
    error_against_depth,
    feature_maps,
    feature_maps_of,
    find_answers,
    find_clusters,
    kernel_correlations,
    kernel_from_rings,
    learned_kernels,
    read_networks,
    some_images,
    two_steps,
)
from ringconv.report.figures.changes import Answers
from ringconv.report.figures.embeddings import Clusters, on_a_plane
from ringconv.report.figures.kernels import cosines
from ringconv.report.figures.layers import layer_named, stages
from ringconv.report.figures.networks import images_for
from ringconv.report.figures.symmetry import LOWEST


@pytest.fixture(scope="module")
def networks(runs):
    return read_networks([runs.ring, runs.plain])


@pytest.fixture(scope="module")
def shown(networks):
    return images_for(networks, count=9)


# -- layers


def test_stages_are_found_by_their_names():
    ring = create_model("gmr_resnet18", width=2)
    assert list(stages(ring)) == ["stem", "stages.0", "stages.1", "stages.2", "stages.3"]
    assert layer_named(ring, None, 0)[0] == "stages.0.0.conv1"
    assert layer_named(ring, None, 1)[0] == "stages.1.0.conv1.conv"
    assert list(stages(nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Conv2d(1, 1, 3)))) == ["0", "2"]
    named = nn.ModuleDict({"conv1": nn.Conv2d(1, 1, 3), "layer1": nn.Sequential(nn.Conv2d(1, 1, 3))})
    assert list(stages(named)) == ["stem", "layer1"]
    with pytest.raises(ValueError, match=r"there is no layer 'stem.cov'; some of its layers are stem.conv, "):
        layer_named(ring, "stem.cov", 0)
    with pytest.raises(ValueError, match="no plain or ring convolution"):
        layer_named(nn.Sequential(nn.Linear(2, 2)), None, 0)


# -- kernels


def test_a_row_of_kernels_for_every_stage(networks, drawn):
    figure = learned_kernels(networks[0].network, per_stage=4)
    texts = drawn(figure)
    assert [text for text in texts if text.startswith("stage")] == [
        "stages.0\n5x5", "stages.1\n5x5", "stages.2\n3x3", "stages.3\n3x3"
    ]  # fmt: skip
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(images) == 2 + 4 * 4, "the stem has two kernels only"
    for image in images:
        assert np.allclose(image, image.T), "a ring kernel keeps its value when turned"
        assert np.allclose(image, image[::-1])


def test_the_seed_decides_which_kernels_are_shown():
    network = create_model("gmr_resnet18", width=4)

    def first(seed):
        return learned_kernels(network, 2, seed).axes[2].images[0].get_array()

    assert np.array_equal(first(0), first(0))
    assert not np.array_equal(first(0), first(1))


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(GMRConv1d(1, 2, 7)),
        nn.Sequential(GMRConv3d(1, 2, 5)),
        nn.Sequential(nn.Conv2d(1, 1, 3)),
        nn.Sequential(*[nn.Conv2d(2, 2, 3) for _ in range(20)]),
        nn.Sequential(GMRConv2d(1, 4, 5, dtype=torch.bfloat16)),
        nn.Sequential(GMRConv2d(2, 4, 5, sigma="channel"), GMRConv2d(4, 4, 3, sigma=None, groups=4)),
    ],
)
def test_kernels_of_any_network(network, drawn):
    drawn(learned_kernels(network))


def test_a_network_without_kernels_is_refused():
    with pytest.raises(ValueError, match="no plain or ring convolution of more than one tap"):
        learned_kernels(nn.Sequential(nn.Linear(3, 3), nn.Conv2d(1, 1, 1)))
    with pytest.raises(ValueError, match="per_stage must be at least 1, got 0"):
        learned_kernels(nn.Conv2d(1, 1, 3), 0)


def test_correlations_are_cosines_of_free_parameters(drawn):
    layer = GMRConv2d(2, 6, 5)
    with torch.no_grad():
        layer.weight[1] = -2 * layer.weight[0]
    found = cosines(layer, channel=1)
    assert found.shape == (6, 6)
    assert found.diagonal() == pytest.approx(np.ones(6), abs=1e-6)
    assert found[0, 1] == pytest.approx(-1)
    vectors = layer.weight[:, 1].detach()
    assert found[2, 3] == pytest.approx(
        float(vectors[2] @ vectors[3] / vectors[2].norm() / vectors[3].norm()), abs=1e-6
    )
    figure = kernel_correlations({"ring": layer, "plain": nn.Conv2d(2, 6, 3)})
    texts = drawn(figure)
    assert sum("mean |cosine|" in text for text in texts) == 2
    assert "cosine between two kernels" in texts
    assert all(axes.images[0].get_clim() == (-1, 1) for axes in figure.axes[:2])
    with pytest.raises(ValueError, match="channel must be from 0 to 1, got 2"):
        kernel_correlations({"ring": layer}, channel=2)
    with pytest.raises(ValueError, match="got a Linear"):
        kernel_correlations({"head": nn.Linear(2, 2)})


# -- how a kernel is built and computed


@pytest.mark.parametrize(
    "options",
    [{}, {"preset": "paper"}, {"sigma": None}, {"sampling": "binned"}, {"sigma": "channel"}, {"circular": False},
     {"normalize": "orthonormal"}],
)  # fmt: skip
def test_rings_and_weights_make_the_kernel(options, drawn):
    layer = GMRConv2d(2, 3, 7, **options)
    figure = kernel_from_rings(layer, 2, 1)
    texts = drawn(figure)
    images = [axes.images[0].get_array() for axes in figure.findobj(lambda one: bool(getattr(one, "images", None)))]
    *rings, kernel = images
    assert len(rings) == layer.rings
    weights = layer.weight[2, 1].detach().numpy()
    assert np.allclose(sum(w * ring for w, ring in zip(weights, rings, strict=True)), kernel, atol=1e-6)
    assert f"$w_{{1}}$ = {weights[0]:.2f}" in texts
    assert texts.count("distance r from the centre (pixels)") == 2


@pytest.mark.parametrize("options", [{"preset": "paper"}, {"normalize": True}, {"edge": "smooth"}], ids=str)
def test_rings_taken_at_points_lie_on_the_curve(options):
    layer = GMRConv2d(1, 1, 7, **{"sampling": "point", **options})
    figure = kernel_from_rings(layer)
    (axes,) = (one for one in figure.axes if one.get_title() == "the rings")
    lines = [line for line in axes.lines if len(line.get_xdata()) > 2]
    dots, curves = lines[::2], lines[1::2]
    assert len(dots) == len(curves) == layer.rings
    for dot, curve in zip(dots, curves, strict=True):
        radius, value = dot.get_xdata(), dot.get_ydata()
        inside = radius <= curve.get_xdata()[-1]
        assert np.allclose(np.interp(radius, *curve.get_data())[inside], value[inside], atol=2e-3)
        assert not value[~inside].any()


def test_many_rings_are_thinned_out(drawn):
    texts = drawn(kernel_from_rings(GMRConv2d(1, 1, 31)))
    assert any("16 rings, 7 of them shown" in text for text in texts)
    drawn(kernel_from_rings(GMRConv2d(1, 1, 1)))
    with pytest.raises(ValueError, match="in_channel must be from 0 to 0, got 1"):
        kernel_from_rings(GMRConv2d(1, 1, 3), 0, 1)
    with pytest.raises(ValueError, match="got a Conv2d"):
        kernel_from_rings(nn.Conv2d(1, 1, 3))


def test_the_two_steps_are_the_convolution(drawn):
    layer = GMRConv2d(2, 3, 5, padding=2, bias=False)
    x = torch.randn(2, 16, 16)
    figure = two_steps(layer, x)
    texts = drawn(figure)
    images = [axes.images[0].get_array() for axes in figure.findobj(lambda one: bool(getattr(one, "images", None)))]
    assert len(images) == 2 + 3 + 3 * 2 + 1 + 3
    responses = torch.nn.functional.conv2d(x[:, None], layer.basis()[:, None], padding=2)
    assert np.allclose(images[5], responses[0, 0].detach(), atol=1e-5)
    assert np.allclose(images[6], responses[1, 0].detach(), atol=1e-5)
    assert np.allclose(images[-3], layer(x)[0].detach(), atol=1e-5)
    flat = " ".join(" ".join(texts).split())
    assert f"{3 * 25 * 2:,} + {3 * 2 * 3:,} instead of {25 * 2 * 3:,}" in flat
    with pytest.raises(ValueError, match=r"x must be \(2, H, W\) for this layer, got \(1, 16, 16\)"):
        two_steps(layer, x[:1])
    with pytest.raises(ValueError, match="rings that all channels share"):
        two_steps(GMRConv2d(1, 1, 3, sigma="channel"), x[:1])


def test_the_two_steps_of_a_layer_with_harmonics_are_those_of_its_rings(drawn):
    texts = drawn(two_steps(GMRConv2d(2, 4, 5, padding=2, harmonics=2), torch.randn(2, 20, 20)))
    assert any(re.search(r"dense: \de-0[6-9]; harmonics are left out", text) for text in texts)


def test_wide_layers_are_thinned_out(drawn):
    drawn(two_steps(GMRConv2d(64, 128, 9, padding=4), torch.randn(64, 20, 30)))
    drawn(two_steps(GMRConv2d(1, 1, 3), torch.randn(1, 8, 8)))


# -- feature maps


def test_feature_maps_of_rings_change_less(networks, shown, drawn):
    ring, plain = (feature_maps_of(one, shown.images[0], shown.data) for one in networks)
    assert (ring.layer, plain.layer) == ("stages.0.0.conv1", "stages.0.0.conv1")
    assert ring.maps.shape == (12, 10, 10)
    assert np.isnan(ring.maps[:, 0, 0]).all(), "corners are left out"
    for quarter in (0, 3, 6, 9):
        assert ring.changes[quarter] < 1e-5, "quarter turns are exact"
        assert np.allclose(ring.maps[quarter], ring.maps[0], atol=1e-5, equal_nan=True)
    assert np.mean(ring.changes) < np.mean(plain.changes)
    figure = feature_maps(shown.images[0], [ring, plain])
    texts = drawn(figure)
    assert len(figure.axes) == 3 * 12
    assert [text for text in texts if text.endswith("°")] == [f"{angle}°" for angle in range(0, 360, 30)]
    assert texts.count("0%") >= 5


def test_feature_maps_of_a_chosen_layer(networks, shown):
    found = feature_maps_of(networks[0], shown.images[0], shown.data, layer="stem.conv", channel=1)
    assert (found.layer, found.channel) == ("stem.conv", 1)
    with pytest.raises(ValueError, match="channel must be from 0 to 1, got 9"):
        feature_maps_of(networks[0], shown.images[0], shown.data, channel=9)
    with pytest.raises(ValueError, match="not maps of at least 4x4 pixels"):
        feature_maps_of(networks[0], shown.images[0], shown.data, layer="head")


# -- embeddings


def test_clusters_are_panels_of_networks_and_angles(networks, shown, drawn):
    found = find_clusters(networks, shown, angles=(0, 90, 100))
    assert list(found.places) == ["gmr_resnet18", "resnet18"]
    assert found.places["resnet18"].shape == (3, 9, 2)
    figure = clusters(found)
    texts = drawn(figure)
    assert len(figure.axes) == 2 * 3
    assert len(figure.axes[0].collections) == 3, "one for each class"
    assert [text for text in texts if text.endswith("°")] == ["0°", "90°", "100°"]
    assert "moved 0.00" in texts
    assert {text.get_text() for text in figure.legends[0].get_texts()} == set(shown.data.classes)


def test_how_far_embeddings_moved():
    places = np.zeros((2, 2, 2))
    places[:, 0], places[0, 1], places[1, 1] = 1, -1, (-1, 1)
    found = Clusters((0.0, 60.0), np.array([0, 1]), ("a", "b"), {"net": places})
    radius = np.sqrt(((places - places.mean((0, 1))) ** 2).sum(-1).mean())
    assert found.moved("net").tolist() == pytest.approx([0, 1 / radius])


def test_few_images_and_many_classes(networks, drawn, runs):
    one = images_for(networks, count=1)
    drawn(clusters(find_clusters(networks[:1], one)))
    with pytest.raises(ValueError, match="at least 3 points, got 2"):
        find_clusters(networks[:1], one, angles=(0, 90))
    generator = np.random.default_rng(0)
    many = Clusters((0.0, 60.0), np.arange(40), tuple(f"class {n}" for n in range(40)),
                    {"a network with a long name": generator.normal(size=(2, 40, 2))})  # fmt: skip
    figure = clusters(many)
    drawn(figure)
    assert not figure.legends


def test_vectors_that_are_all_alike_have_places_too():
    assert np.isfinite(on_a_plane(torch.ones(6, 4))).all()


def test_a_missing_sklearn_names_the_extra(networks, shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(MissingExtraError, match=r"ringconv\[evaluate\]"):
        find_clusters(networks, shown)


# -- equivariance errors


def test_error_against_angle(networks):
    x = band_limited_noise((20, 20), dtype=torch.float32)
    found = {one.label: equivariance_error(one.network, x, range(0, 361, 30), reflections=False) for one in networks}
    figure = error_against_angle(found)
    (axes,) = figure.axes
    ring, plain = axes.get_lines()
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "equivariance error (relative)"
    assert ring.get_xdata().tolist() == list(range(0, 361, 30))
    assert min(ring.get_ydata()) == LOWEST, "an exact zero is drawn at the lower edge"
    assert ring.get_ydata()[1] == pytest.approx(found["gmr_resnet18"].per_angle[30])
    assert plain.get_ydata()[3] > 100 * ring.get_ydata()[3], "a quarter turn"
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "interpolation alone"


def test_error_against_depth(networks):
    x = band_limited_noise((20, 20), dtype=torch.float32)
    found = {one.label: audit(one.network, x) for one in networks}
    figure = error_against_depth(found)
    ring, plain = figure.axes
    assert len(ring.get_lines()) == 5, "four angles and a flip"
    assert len(ring.get_lines()[0].get_xdata()) == len(found["gmr_resnet18"].layers)
    assert ring.get_title() == "gmr_resnet18"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["15°", "30°", "45°", "90°", "flip"]
    assert max(ring.get_lines()[4].get_ydata()) < 1e-4 < max(plain.get_lines()[4].get_ydata())


# -- answers


def test_a_quarter_turn_changes_no_answer_of_rings(networks, shown):
    found = find_answers(networks, shown, angles=range(0, 360, 30))
    ring = found.changed("gmr_resnet18")
    assert ring.shape == (12, 9)
    assert not ring[[0, 3, 6, 9]].any()


def test_the_images_that_change_most_are_shown(shown, drawn):
    labels = shown.labels.numpy()
    said = np.tile(labels, (4, 1))
    said[1:, 5] = (labels[5] + 1) % 3
    said[2, 7] = (labels[7] + 1) % 3
    said[:, 1] = (labels[1] + 1) % 3
    found = Answers((0.0, 90.0, 180.0, 270.0), shown, {"net": said, "steady": np.tile(labels, (4, 1))})
    assert found.most_changing(8) == [5, 7]
    assert found.most_changing(1) == [5]
    figure = changed_answers(found)
    drawn(figure)
    shares = figure.axes[0].get_lines()
    assert shares[0].get_ydata() == pytest.approx(100 / 9 * np.array([0, 1, 2, 1]))
    assert shares[1].get_ydata().tolist() == [0] * 4
    thumbnails, cells = figure.axes[1:3], figure.axes[3:]
    assert [axes.get_ylabel() for axes in thumbnails] == [shown.data.classes[labels[place]] for place in (5, 7)]
    assert cells[0].collections[0].get_array().tolist() == [[0, 1, 1, 1], [0, 0, 1, 0]]
    assert [axes.get_title() for axes in cells] == ["net", "steady"]


def test_long_names_of_classes_are_cut_not_dropped(shown, drawn):
    long = replace(shown, data=replace(shown.data, classes=("ground_track_field", "airport", "a_storage_tank_of_oil")))
    said = np.tile((long.labels.numpy() + 1) % 3, (2, 1))
    said[0] = long.labels.numpy()
    texts = drawn(changed_answers(Answers((0.0, 90.0), long, {"net": said})))
    assert {"ground_track_...", "airport", "a_storage_tan..."} <= set(texts)


def test_answers_that_never_change(shown, drawn):
    found = Answers((0.0, 90.0), shown, {"steady": np.tile(shown.labels.numpy(), (2, 1))})
    texts = drawn(changed_answers(found))
    assert any("no answer ever changes" in text for text in texts)


# -- images


def test_images_are_those_of_the_run_unless_others_are_named(networks, runs, tmp_path):
    assert images_for(networks, count=4).images.shape == (4, 1, 20, 20)
    assert len(images_for(networks, str(runs.data), count=1_000).images) == 12
    with pytest.raises(ValueError, match="images must be at least 1, got 0"):
        images_for(networks, count=0)
    alone = read_networks([runs.ring / "model.safetensors"])
    assert alone[0].label == "ring", "the name of its folder"
    several = read_networks([runs.ring / "model.safetensors", runs.plain / "model.safetensors", runs.ring])
    assert [one.label for one in several] == ["ring", "plain", "gmr_resnet18"]
    with pytest.raises(ValueError, match="--data takes the path or name of a data set"):
        images_for(alone)
    colour = tmp_path / "colour.npz"
    np.savez(colour, test_images=np.zeros((3, 20, 20, 3), np.uint8), test_labels=np.arange(3))
    with pytest.raises(ValueError, match=r"ring takes 1 channels, and \S+ has 3"):
        images_for(alone, str(colour))


def test_one_image_is_shown_by_its_place_in_the_split(networks, runs):
    whole = images_for(networks).data["test"]
    for place in (0, 4, 11):
        shown = images_for(networks, str(runs.data), image=place)
        assert torch.equal(shown.images, whole[place][0][None])
        assert shown.labels.tolist() == [place % 3]
    with pytest.raises(ValueError, match="image must be from 0 to 11, got 12"):
        images_for(networks, image=12)


def test_networks_that_are_not_there_are_explained(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder or file"):
        read_networks([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="no finished run"):
        read_networks([tmp_path])
    (tmp_path / "config.json").write_text((runs.ring / "config.json").read_text())
    with pytest.raises(ValueError, match=r"has no model.safetensors yet \(to go on: ringconv train --resume"):
        read_networks([tmp_path])
    with pytest.raises(ValueError, match="names must be one for each of gmr_resnet18, got 2"):
        read_networks([runs.ring], ["a", "b"])
    with pytest.raises(ValueError, match="at least 1"):
        some_images(images_for(read_networks([runs.ring])).data, count=0)
