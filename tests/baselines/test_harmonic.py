"""Harmonic convolutions: the phase turns with the image, the magnitude does not change."""

import math

import pytest
import torch

from ringconv.baselines.harmonic import CReLU, HarmonicConv2d, MagnitudeBatchNorm2d, MagnitudeSum, magnitudes
from ringconv.equivariance import band_limited_noise, equivariance_error


def as_complex(x, max_order):
    """(B, channels, orders, H, W)"""
    parts = torch.unflatten(x, 1, (-1, max_order + 1, 2))
    return torch.complex(parts[:, :, :, 0], parts[:, :, :, 1])


def network(max_order, kernel_size=5, dtype=torch.float64):
    options = {"max_order": max_order, "dtype": dtype}
    lift = HarmonicConv2d(3, 4, kernel_size, padding=kernel_size // 2, lifting=True, **options)
    conv = HarmonicConv2d(4, 6, kernel_size, padding=kernel_size // 2, groups=2, **options)
    pointwise = HarmonicConv2d(6, 2, 1, **options)
    norm = MagnitudeBatchNorm2d(4, max_order).to(dtype)
    act = CReLU(4, max_order).to(dtype)
    layers = torch.nn.Sequential(lift, norm, act, conv, pointwise)
    for layer in (lift, conv, pointwise):
        torch.nn.init.normal_(layer.bias)
    torch.nn.init.normal_(act.bias, std=0.3)
    return layers


@pytest.mark.parametrize("max_order", [0, 1, 2])
@pytest.mark.parametrize("side", [8, 9])
def test_a_quarter_turn_turns_the_phase_of_order_m_by_m_quarters(max_order, side):
    layers = network(max_order)
    x = torch.randn(2, 3, side, side, dtype=torch.float64)
    y = as_complex(layers(x), max_order)
    turned = as_complex(layers(x.rot90(1, (2, 3))), max_order)
    phase = torch.tensor([1j**order for order in range(max_order + 1)], dtype=torch.complex128).view(1, 1, -1, 1, 1)
    torch.testing.assert_close(turned, phase * y.rot90(1, (3, 4)), rtol=0, atol=1e-11)


def test_the_filters_are_the_definition():
    layer = HarmonicConv2d(1, 1, 5, max_order=1, lifting=True, bias=False, dtype=torch.float64)
    kernel = layer.kernel().view(2, 2, 5, 5)
    profile = layer.geometry().basis().double()
    radial = (layer.weight.detach()[:, 0, 0, :, None, None] * profile).sum(1)  # (order, 5, 5)
    for order in range(2):
        filters = torch.complex(kernel[order, 0], kernel[order, 1]).detach()
        beta = float(layer.phase.detach()[order, 0, 0])
        for row, column in ((0, 2), (2, 4), (1, 1), (4, 3)):
            phi = math.atan2(2 - row, column - 2)
            expected = radial[order, row, column] * complex(math.cos(order * phi + beta), math.sin(order * phi + beta))
            assert abs(complex(filters[row, column]) - complex(expected)) < 1e-12
        assert (abs(filters[2, 2]) > 0) == (order == 0)


def test_magnitudes_turn_with_a_smooth_image_at_45_degrees():
    torch.manual_seed(1)
    lift = HarmonicConv2d(1, 8, 5, padding=2, lifting=True, bias=False, dtype=torch.float64)
    conv = HarmonicConv2d(8, 8, 5, padding=2, bias=False, dtype=torch.float64)
    x = band_limited_noise((96, 96), cutoff=0.1)
    result = equivariance_error(lambda x: magnitudes(conv(lift(x))), x, angles=[45], reflections=False)
    assert result.per_angle[45] < 0.05


def test_reflections_are_not_kept():
    layers = network(1)
    x = torch.randn(1, 3, 9, 9, dtype=torch.float64)
    total = MagnitudeSum(1)
    assert (total(layers(x.flip(3))) - total(layers(x)).flip(3)).abs().max() > 0.1


def test_nonlinearities_act_on_magnitudes_only():
    x = torch.randn(4, 3 * 2 * 2, 5, 5, dtype=torch.float64)
    turned = torch.polar(torch.ones(()), torch.tensor(0.7)).to(torch.complex128)
    for layer in (MagnitudeBatchNorm2d(3).double(), CReLU(3).double()):
        if isinstance(layer, CReLU):
            torch.nn.init.normal_(layer.bias)
        z = as_complex(x, 1) * turned
        rotated = torch.stack([z.real, z.imag], 3).flatten(1, 3)
        torch.testing.assert_close(as_complex(layer(rotated), 1), as_complex(layer(x), 1) * turned)
    assert MagnitudeSum(1)(x).shape == (4, 3, 5, 5)


def test_a_map_of_zeros_has_finite_gradients():
    layers = network(1)
    x = torch.zeros(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    magnitudes(layers(x)).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_weights_of_a_layer():
    layer = HarmonicConv2d(4, 6, 5, rings=3)
    assert sum(p.numel() for p in layer.parameters()) == 3 * (3 + 1) * 4 * 6 + 6
    assert HarmonicConv2d(4, 6, 1, bias=False).weight.shape == (1, 6, 4, 1)
    with pytest.raises(ValueError, match="max_order must be at least 0, got -1"):
        HarmonicConv2d(1, 1, 3, max_order=-1)


@pytest.mark.parametrize(("rings", "error"), [("3", TypeError), (3.0, TypeError), (0, ValueError)])
def test_impossible_rings_are_explained(rings, error):
    with pytest.raises(error, match=f"rings must be .*, got {rings!r}"):
        HarmonicConv2d(3, 4, 5, rings=rings)
