"""Resizing and pooling: symmetric at every size, and what the options do."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ringconv import Downsample
from ringconv.pooling import DiscView, GlobalDisc, LowPass


def symmetries(dimensions):
    """All flips and axis exchanges of the last axes."""
    for order in itertools.permutations(range(dimensions)):
        for flips in itertools.product((False, True), repeat=dimensions):

            def apply(x, order=order, flips=flips):
                lead = x.dim() - dimensions
                turned = x.permute(*range(lead), *[lead + axis for axis in order])
                return turned.flip([lead + axis for axis, flip in enumerate(flips) if flip])

            yield apply


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_lowpass_commutes_at_every_size(dimensions, factor):
    pool = Downsample(factor, dimensions, "lowpass")
    for side in (1, 2, 3, 4, 7, 8):
        x = torch.randn(2, 3, *[side] * dimensions, dtype=torch.float64)
        y = pool(x)
        assert y.shape[2:] == (math.ceil(side / factor),) * dimensions
        for symmetry in symmetries(dimensions):
            torch.testing.assert_close(pool(symmetry(x)), symmetry(y), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(pool(x[0]), y[0], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(pool(torch.ones_like(x)), torch.ones_like(y), rtol=1e-13, atol=0)


def test_lowpass_is_a_gaussian_and_average_is_unchanged():
    x = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    x[..., 4, 4] = 1
    place = np.arange(9) - 4.0
    r = np.hypot(place[:, None], place[None, :])
    expected = np.exp(-0.5 * (r / (2 / 3)) ** 2) * (abs(place) <= 2)[:, None] * (abs(place) <= 2)
    np.testing.assert_allclose(LowPass((2, 2))(x)[0, 0], expected / expected.sum(), atol=1e-15)
    frames = torch.randn(1, 2, 3, 8, 8, dtype=torch.float64)
    blurred = LowPass((1, 2, 2))(frames)
    for frame in range(3):
        torch.testing.assert_close(blurred[:, :, frame], LowPass((2, 2))(frames[:, :, frame]))
    image = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(Downsample(2, mode="lowpass")(image), nn.AvgPool2d(2)(LowPass((2, 2))(image)))
    torch.testing.assert_close(Downsample(2)(image), nn.AvgPool2d(2)(image))
    assert not Downsample(2, mode="lowpass").state_dict()


def test_lowpass_takes_away_what_a_coarser_map_cannot_hold():
    """Waves along a diagonal, too short for the coarser map, which square windows let through."""
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    wave = torch.cos(2 * math.pi * 0.3 * (x + y) / math.sqrt(2))[None, None]
    left = {mode: Downsample(2, mode=mode)(wave)[..., 4:-4, 4:-4].std() for mode in ("average", "lowpass")}
    assert left["lowpass"] < 0.5 * left["average"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_and_layouts(dtype):
    x = torch.randn(2, 8, 9, 10).to(dtype)
    assert Downsample(2, mode="lowpass")(x).dtype == dtype
    assert GlobalDisc()(x).dtype == dtype
    last = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(GlobalDisc()(last), GlobalDisc()(x))


# -- the disc


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_disc_is_invariant_and_small_maps_are_averaged(dimensions):
    pool = GlobalDisc(dimensions)
    for size in ((1,) * dimensions, (2,) * dimensions, (4,) * dimensions, (5,) * dimensions, (7, 4, 5)[:dimensions]):
        x = torch.randn(2, 3, *size, dtype=torch.float64)
        y = pool(x)
        assert y.shape == (2, 3)
        for symmetry in symmetries(dimensions):
            torch.testing.assert_close(pool(symmetry(x)), y, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(pool(torch.ones_like(x)), torch.ones_like(y), rtol=1e-13, atol=0)
        if max(size) <= 2 or dimensions == 1:
            torch.testing.assert_close(y, x.flatten(2).mean(2), rtol=1e-12, atol=1e-13)


def weights_of(*size):
    x = torch.zeros(1, 1, *size, requires_grad=True)
    GlobalDisc()(x).sum().backward()
    return (x.grad / x.grad.max())[0, 0]


def test_corners_do_not_count():
    of_16 = weights_of(16, 16)
    assert of_16[0, 0] == of_16[0, -1] == of_16[1, 1] == 0
    assert of_16[8, 0] > 0.9
    assert of_16[5:11, 5:11].min() == 1
    of_4 = weights_of(4, 4)
    assert of_4[0, 0].item() == pytest.approx(0.379, abs=1e-3)
    assert of_4[0, 1].item() == pytest.approx(0.919, abs=1e-3)
    assert weights_of(64, 64).mean().item() == pytest.approx(math.pi / 4, rel=1e-2)
    oblong = weights_of(32, 64)
    torch.testing.assert_close(oblong[:, 16:48], weights_of(32, 32))
    assert oblong[:, :16].max() == oblong[:, 48:].max() == 0
    torch.testing.assert_close(weights_of(64, 32), oblong.T)
    assert weights_of(1, 8).count_nonzero() == 2


def turn_within_the_frame(image, degrees, fill):
    """By bilinear interpolation, about the centre; ``fill`` is around the image."""
    (height, width), angle = image.shape[-2:], math.radians(degrees)
    rows, columns = torch.meshgrid(
        torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij"
    )
    x = columns * math.cos(angle) - rows * math.sin(angle)
    y = columns * math.sin(angle) + rows * math.cos(angle)
    grid = torch.stack([2 * x / width, 2 * y / height], -1)[None]
    return F.grid_sample(image - fill, grid, padding_mode="zeros", align_corners=False) + fill


@pytest.mark.parametrize("size", [(64, 64), (48, 64), (40, 97)])
def test_what_comes_in_from_beyond_the_frame_is_not_seen(size):
    image, view = torch.zeros(1, 1, *size), DiscView()
    seen = view(torch.ones_like(image)).sum()
    for angle in (10, 45, 70):
        brought_in = [view(turn_within_the_frame(image, angle, fill)) for fill in (0.0, 1.0)]
        assert (brought_in[1] - brought_in[0]).abs().sum() < 0.005 * seen


def test_disc_over_frames_is_the_mean_of_discs():
    x = torch.randn(2, 3, 4, 8, 9)
    torch.testing.assert_close(GlobalDisc(2)(x), torch.stack([GlobalDisc(2)(x[:, :, t]) for t in range(4)]).mean(0))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_view_of_a_disc_turns_with_the_image(dimensions):
    view = DiscView(dimensions)
    for side in (1, 2, 7, 8):
        x = torch.randn(2, 3, *(side,) * dimensions, dtype=torch.float64)
        for symmetry in symmetries(dimensions):
            torch.testing.assert_close(view(symmetry(x)), symmetry(view(x)), rtol=1e-13, atol=1e-13)
    seen = view(torch.ones(1, 1, *(16,) * dimensions))[0, 0]
    assert seen[(8,) * dimensions] == 1
    assert dimensions == 1 or seen[(0,) * dimensions] == 0
    assert view(x.bfloat16()).dtype == torch.bfloat16


class WithoutFloat64(TorchDispatchMode):
    """As on devices that do not have it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        assert not isinstance(found, torch.Tensor) or found.dtype != torch.float64, func
        return found


@pytest.mark.parametrize("layer", [GlobalDisc(), DiscView()])
def test_discs_need_no_float64(layer):
    image = torch.randn(2, 3, 300, 301)
    with WithoutFloat64():
        found = layer(image)
    torch.testing.assert_close(found, layer(image.double()).float())


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="mode must be one of 'average', 'lowpass', got 'gauss'"):
        Downsample(2, mode="gauss")
    with pytest.raises(ValueError, match="dimensions must be one of 1, 2, 3, got 4"):
        GlobalDisc(4)
