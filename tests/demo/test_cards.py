"""What the tabs draw, without a browser."""

import itertools
import re

import numpy as np
import pytest
import torch

from ringconv.demo.classify import classify_card
from ringconv.demo.examples import scene_examples, texture_examples
from ringconv.demo.kernel import CUTOFF, RINGS, SIGMAS, SIZES, KernelChoice, errors_by_angle, kernel_card
from ringconv.demo.networks import Network, bundled_networks
from ringconv.demo.pictures import Picture
from ringconv.demo.segment import segment_card
from ringconv.equivariance import kernel_equivariance_error
from ringconv.models import create_model
from ringconv.rings import SAMPLINGS

NUMBERS = re.compile(r"(?:nan|inf)\b")


@pytest.fixture(scope="module")
def bundled():
    return {network.name: network for network in bundled_networks()}


def _flat():
    return Picture(np.full((64, 64, 3), 128, np.uint8))


def test_a_ring_network_says_the_same_of_a_turned_picture(bundled):
    network, picture = bundled["ring network"], texture_examples()[0].picture
    for angle, mirrored in ((0, False), (90, False), (180, True)):
        drawn = classify_card("ring", network, picture, angle, mirrored, network.middle_layer)
        assert "as upright" in drawn
        assert "differ from upright by 0%" in drawn
        assert drawn.count("<img") == 12, "four channels: upright, turned, turned back"


def test_maps_of_a_plain_network_do_not_turn_with_the_picture(bundled):
    network, picture = bundled["plain network"], texture_examples()[0].picture
    drawn = classify_card("plain", network, picture, 90, False, network.middle_layer)
    assert int(re.search(r"differ from upright by (\d+)%", drawn)[1]) > 5


def test_the_smallest_maps_are_compared_too():
    torch.manual_seed(0)
    module = create_model("resnet18", width=2).eval()
    network = Network("plain", module, "classification", 3, prepare=lambda x: x, classes=tuple("abcdefghij"), side=32)
    drawn = classify_card("plain", network, texture_examples()[0].picture, 90, False, "stages.3")
    assert int(re.search(r"differ from upright by (\d+)%", drawn)[1]) > 5


def test_every_layer_can_be_shown(bundled):
    network, picture = bundled["ring network"], texture_examples()[0].picture
    for layer in network.layers:
        assert "<img" in classify_card("ring", network, picture, 30, False, layer)
    assert "no maps" in classify_card("ring", network, picture, 30, False, None)


def test_a_segmentation_turns_with_its_picture(bundled):
    picture = scene_examples()[0].picture
    assert "100% now" in segment_card("ring", bundled["ring U-Net"], picture, 90, False)
    assert segment_card("ring", bundled["ring U-Net"], picture, 25, True).count("<img") == 4


@pytest.mark.parametrize("angle", [0, 45])
def test_a_picture_of_nothing_is_no_error(angle, bundled):
    assert not NUMBERS.search(classify_card("a", bundled["ring network"], _flat(), angle, False, "2"))
    assert not NUMBERS.search(segment_card("a", bundled["ring U-Net"], _flat(), angle, False))


def test_every_position_of_the_sliders_draws_a_kernel():
    switches = list(itertools.product((False, True), repeat=4))
    for number, (size, rings) in enumerate(itertools.product(range(SIZES[0], SIZES[1] + 1, 3), (1, 2, 5, RINGS[1]))):
        gaussian, circular, normalize, smooth = switches[number % len(switches)]
        sampling = SAMPLINGS[number % len(SAMPLINGS)]
        sigma = SIGMAS[number % 2]
        choice = KernelChoice(size, rings, sigma, gaussian, circular, sampling, normalize, smooth, "random 1")
        drawn = kernel_card(choice)
        assert not NUMBERS.search(drawn), choice
        assert drawn.count("<polyline") == rings + 2


def test_the_kernel_is_that_of_the_layer():
    from ringconv import GMRConv2d

    choice = KernelChoice(size=7, rings=4, sigma=0.6)
    layer = GMRConv2d(1, 1, 7, rings=4, dtype=torch.float64)
    with torch.no_grad():
        layer.log_sigma.fill_(np.log(0.6))
        layer.weight.copy_(choice.ring_weights)
        kernel = torch.einsum("n,nhw->hw", choice.ring_weights, choice.basis)
        torch.testing.assert_close(layer.kernel()[0, 0], kernel)
    assert "7 x 7 kernel" in kernel_card(choice)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_the_live_error_is_that_of_the_library(size):
    kernels = torch.randn(3, size, size, dtype=torch.float64)
    errors = errors_by_angle(kernels)
    expected = kernel_equivariance_error(kernels, list(errors), CUTOFF)
    assert errors == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_more_rings_than_can_be_told_apart_are_pointed_out():
    assert "More rings than" in kernel_card(KernelChoice(size=3, rings=9))
    assert "More rings than" not in kernel_card(KernelChoice())
