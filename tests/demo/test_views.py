"""The picture as a network sees it."""

import numpy as np
import pytest
import torch

from ringconv.demo.pictures import Picture
from ringconv.demo.views import ANGLES, all_views, shown_side, turned_back, view


def _picture(side=92):
    # A smooth pattern without any symmetry.
    y, x = np.mgrid[:side, :side] / side
    grey = 127 + 60 * np.sin(9 * x + 3 * y) + 60 * np.sin(5 * y * (1 + x))
    return Picture(np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2))


@pytest.mark.parametrize(("side", "shown"), [(16, 32), (58, 40), (92, 64), (512, 64)])
def test_pictures_of_any_size_fit_networks_of_any_size(side, shown):
    picture = _picture(side)
    assert shown_side(picture, None) == shown
    assert view(picture, shown, 1, 33).shape == (1, 1, shown, shown)
    assert view(picture, 50, 3, 33).shape == (1, 3, 50, 50)
    assert shown_side(picture, 224) == 224


def test_quarter_turns_and_mirrors_are_exact():
    picture = _picture()
    upright = view(picture, 64, 1)
    for quarter in range(4):
        assert torch.equal(view(picture, 64, 1, 90 * quarter), upright.rot90(quarter, (2, 3)))
    assert torch.equal(view(picture, 64, 1, 0, mirrored=True), upright.flip(-1))
    assert upright[0, 0, 0, 0] == picture.pixels[14, 14, 0] / 255, "the middle, pixel by pixel"


def test_a_picture_of_the_windows_size_is_not_resampled_and_has_no_corners():
    white = Picture(np.full((92, 92, 3), 255, np.uint8))
    for angle in (0, 13, 45):
        assert view(white, 64, 3, angle).min() > 0.999


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_sweep_is_the_views_one_by_one(mirrored):
    picture = _picture()
    views = all_views(picture, 40, 1, mirrored)
    assert len(views) == len(ANGLES)
    for number in (0, 4, 9, 13, 35):
        expected = view(picture, 40, 1, ANGLES[number], mirrored)[0]
        assert (views[number] - expected).abs().max() < 1 / 255  # which is what pixels are rounded to


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("angle", [0, 37, 90, 301])
def test_turning_back_undoes_the_view(angle, mirrored):
    picture = _picture()
    back = turned_back(view(picture, 64, 1, angle, mirrored), angle, mirrored)
    middle = (..., slice(20, 44), slice(20, 44))
    assert (back - view(picture, 64, 1))[middle].abs().max() < 5e-3
