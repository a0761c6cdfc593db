"""Rotation-invariant coordinates: samples where the definition says, and quarter turns about the centre."""

import math

import numpy as np
import pytest
import torch

from ringconv.baselines.ric import RICConv2d

AROUND = ((2, 1), (2, 2), (1, 2), (0, 2), (0, 1), (0, 0), (1, 0), (2, 0))
"""Cells of the 3x3 kernel that the taps t = 0, 1, ... have."""


def bilinear(image, row, column):
    top, left = math.floor(row), math.floor(column)
    value = 0.0
    for r, wr in ((top, 1 - (row - top)), (top + 1, row - top)):
        for c, wc in ((left, 1 - (column - left)), (left + 1, column - left)):
            if 0 <= r < image.shape[0] and 0 <= c < image.shape[1]:
                value += wr * wc * float(image[r, c])
    return value


@pytest.mark.parametrize(("size", "stride", "padding", "dilation"), [
    ((5, 5), 1, 1, 1), ((4, 6), 1, 1, 1), ((5, 6), 1, 0, 1), ((6, 7), 2, 1, 1), ((7, 7), 1, 2, 2),
])  # fmt: skip
def test_it_samples_as_defined(size, stride, padding, dilation):
    layer = RICConv2d(1, 1, 3, stride, padding, dilation, bias=False, dtype=torch.float64)
    x = torch.randn(1, 1, *size, dtype=torch.float64)
    y = layer(x)[0, 0]
    image, weight = x[0, 0].numpy(), layer.weight.detach()[0, 0]
    rows, columns = y.shape
    assert (rows, columns) == torch.nn.functional.conv2d(x, layer.weight, None, stride, padding, dilation).shape[2:]
    for i in range(rows):
        for j in range(columns):
            across, along = i - (rows - 1) / 2, j - (columns - 1) / 2
            thetas = [math.atan2(along, across)] if (across, along) != (0, 0) else np.arange(4) * math.pi / 2
            centre = i * stride - padding + dilation, j * stride - padding + dilation
            expected = float(weight[1, 1]) * bilinear(image, *centre)
            for theta in thetas:
                for t, cell in enumerate(AROUND):
                    angle = theta + 2 * math.pi * t / 8
                    sample = bilinear(
                        image, centre[0] + dilation * math.cos(angle), centre[1] + dilation * math.sin(angle)
                    )
                    expected += float(weight[cell]) * sample / len(thetas)
            assert float(y[i, j].detach()) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (7, 7), (8, 8), (6, 9), (7, 9)])
@pytest.mark.parametrize("groups", [1, 2])
def test_it_commutes_with_quarter_turns(size, groups):
    layer = RICConv2d(4, 6, 3, padding=1, groups=groups, dtype=torch.float64)
    x = torch.randn(2, 4, *size, dtype=torch.float64)
    for turns in range(4):
        expected = layer(x).rot90(turns, (2, 3))
        torch.testing.assert_close(layer(x.rot90(turns, (2, 3))), expected, rtol=0, atol=1e-9)


def test_half_precision_samples_at_the_same_places():
    layer, x = RICConv2d(4, 6, 3, padding=1), torch.randn(1, 4, 64, 64)
    expected = layer(x)
    found = layer.bfloat16()(x.bfloat16()).float()
    assert (found - expected).norm() < 0.01 * expected.norm()


def test_flips_and_shifts_are_not_kept():
    layer = RICConv2d(1, 1, 3, padding=1, bias=False)
    x = torch.randn(1, 1, 9, 9)
    assert (layer(x.flip(3)) - layer(x).flip(3)).abs().max() > 0.1
    shifted = x.roll(1, 3)
    assert (layer(shifted) - layer(x).roll(1, 3))[..., 2:-2, 3:-2].abs().max() > 0.1


def test_the_weights_are_those_of_an_ordinary_convolution():
    layer, plain = RICConv2d(2, 3, 3, padding=1), torch.nn.Conv2d(2, 3, 3, padding=1)
    layer.load_state_dict(plain.state_dict())
    # Far below the centre theta is 0, and on an image that changes along neither axis the radius does not matter.
    x = torch.ones(1, 2, 21, 21)
    torch.testing.assert_close(layer(x)[..., 1:-1, 1:-1], plain(x)[..., 1:-1, 1:-1])
    one = RICConv2d(2, 3, 1, stride=2)
    torch.testing.assert_close(one(x), torch.nn.functional.conv2d(x, one.weight, one.bias, 2))


def test_inputs_without_a_batch_and_what_it_refuses():
    layer = RICConv2d(2, 3, 3, padding=1)
    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(layer(x), layer(x[None])[0])
    with pytest.raises(ValueError, match=r"1x1 or 3x3, got \(5, 5\)"):
        RICConv2d(1, 1, 5)
    with pytest.raises(ValueError, match="padding_mode"):
        RICConv2d(1, 1, 3, padding_mode="reflect")
