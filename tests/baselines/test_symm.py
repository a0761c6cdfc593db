"""Symmetric kernels: the pattern, its symmetry, and networks by conversion."""

import pytest
import torch

from ringconv import assert_equivariant
from ringconv.baselines import SymmConv2d, SymmConv3d
from ringconv.models import create_model


def test_the_pattern():
    layer = SymmConv2d(1, 1, 3)
    with torch.no_grad():
        layer.weight[:] = torch.tensor([1.0, 2.0, 3.0])
    assert layer.kernel()[0, 0].tolist() == [[3, 2, 3], [2, 1, 2], [3, 2, 3]]
    two = SymmConv2d(1, 1, 3, weights=2)
    with torch.no_grad():
        two.weight[:] = torch.tensor([1.0, 2.0])
    assert two.kernel()[0, 0].tolist() == [[2, 2, 2], [2, 1, 2], [2, 2, 2]]


@pytest.mark.parametrize(
    ("layer", "count"),
    [(SymmConv2d(2, 3, 3), 3), (SymmConv2d(2, 3, 5), 6), (SymmConv3d(2, 3, 3), 4), (SymmConv3d(2, 3, 3, weights=3), 3)],
)
def test_weights_of_a_kernel(layer, count):
    assert layer.weight.shape == (3, 2, count)


def test_three_weights_of_a_cube_are_centre_faces_and_the_rest():
    layer = SymmConv3d(1, 1, 3, weights=3)
    with torch.no_grad():
        layer.weight[:] = torch.tensor([0.0, 1.0, 2.0])
    kernel = layer.kernel()[0, 0]
    assert kernel[1].tolist() == [[2, 1, 2], [1, 0, 1], [2, 1, 2]]
    assert kernel[0].tolist() == [[2, 2, 2], [2, 1, 2], [2, 2, 2]]


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (SymmConv2d(2, 3, 5, padding=2, padding_mode="circular", dtype=torch.float64), (7, 7)),
        (SymmConv2d(4, 4, 3, stride=2, padding=1, groups=4, dtype=torch.float64), (9, 9)),
        (SymmConv3d(1, 2, 3, padding=1, dtype=torch.float64), (4, 4, 4)),
    ],
)
def test_layers_commute_with_all_symmetries_of_the_grid(layer, size):
    assert_equivariant(layer, torch.randn(2, layer.in_channels, *size, dtype=torch.float64), tolerance=1e-12)


def test_strides_of_a_network_stay():
    network = create_model("symm_resnet18", width=4)
    assert isinstance(network.stages[1][0].conv1, SymmConv2d)
    assert network.stages[1][0].conv1.stride == (2, 2)
    stem = create_model("symm_resnet50", width=4).stem.conv
    assert type(stem) is torch.nn.Conv2d


def test_what_it_refuses():
    with pytest.raises(ValueError, match="weights must be from 1 to 3, the orbits of a 3x3 kernel, got 4"):
        SymmConv2d(1, 1, 3, weights=4)
