"""Symmetric kernels: the pattern, its symmetry, and networks by conversion."""

import copy

import pytest
import torch

from ringconv import assert_equivariant
from ringconv.baselines import SymmConv2d, SymmConv3d
from ringconv.models import create_model
from ringconv.models.operations import count_operations
from ringconv.ops import fused


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


@pytest.mark.parametrize(
    ("kernel_size", "options"),
    [
        (3, {"padding": 1, "weights": 3}),
        ((3, 7, 7), {"padding": (1, 3, 3), "weights": 3}),
        (3, {"stride": 2, "padding": 1, "bias": False}),
        (5, {"groups": 2, "padding": 2, "padding_mode": "circular"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last_3d])
def test_volumes_by_the_compiled_kernel(kernel_size, options, memory_format):
    """Against the same layer in float64, which is a dense convolution."""
    layer = SymmConv3d(4, 6, kernel_size, **options)
    reference = copy.deepcopy(layer).double()
    x = torch.randn(2, 4, 5, 8, 7).contiguous(memory_format=memory_format).requires_grad_()
    precise = x.detach().double().requires_grad_()
    assert layer._takes_compiled_kernel(x) == fused.available()
    y, expected = layer(x), reference(precise)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    assert y.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(layer(x[0]), y[0], rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(y)
    y.backward(direction)
    expected.backward(direction.double())
    for one, other in zip((x, *layer.parameters()), (precise, *reference.parameters()), strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


def test_operations_are_those_of_the_method_however_it_is_computed():
    layer, x = SymmConv3d(4, 6, 3, padding=1, groups=2), torch.randn(2, 4, 5, 8, 7)
    expected = 2 * (2 * 6 * 5 * 8 * 7) * 2 * 27
    assert count_operations(layer, x) == expected
    assert count_operations(layer.double(), x.double()) == expected
    assert count_operations(layer.to("meta"), x.to("meta").double()) == expected


def test_strides_of_a_network_stay():
    network = create_model("symm_resnet18", width=4)
    assert isinstance(network.stages[1][0].conv1, SymmConv2d)
    assert network.stages[1][0].conv1.stride == (2, 2)
    stem = create_model("symm_resnet50", width=4).stem.conv
    assert type(stem) is torch.nn.Conv2d


def test_what_it_refuses():
    with pytest.raises(ValueError, match="weights must be from 1 to 3, the orbits of a 3x3 kernel, got 4"):
        SymmConv2d(1, 1, 3, weights=4)
