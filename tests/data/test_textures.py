"""Patches of real photographs: disjoint, normalised, balanced, reproducible, and turned without inventing pixels."""

import itertools
import math
import socket

import numpy as np
import pytest
import skimage.io
import torch

from ringconv.data import PHOTOGRAPHS, Textures, load_textures
from ringconv.data.textures import CELL, PATCH, is_test_cell, read_photograph

SPLITS = ("train", "test")


@pytest.fixture(scope="module")
def textures():
    return {split: load_textures(split, per_class=40) for split in SPLITS}


def raw_cells(photograph, shape, test):
    """Slices of the cells of one split, in pixels of the file."""
    margin, side = photograph.margin, CELL * photograph.reduce
    rows, columns = ((length - 2 * margin) // side for length in shape[:2])
    for row, column in itertools.product(range(rows), range(columns)):
        if is_test_cell(row, column) == test:
            top, left = margin + row * side, margin + column * side
            yield slice(top, top + side), slice(left, left + side)


@pytest.mark.parametrize("split", SPLITS)
def test_no_pixel_of_the_other_split_is_used(split, monkeypatch, textures):
    """Noise in all files wherever the other split lies leaves every window as it was, to the last bit."""
    read = skimage.io.imread
    by_file = {photograph.file: photograph for photograph in PHOTOGRAPHS}

    def read_spoilt(path):
        pixels = read(path).copy()
        photograph = by_file[path.name]
        for cell in raw_cells(photograph, pixels.shape, test=split == "train"):
            pixels[cell] = np.random.default_rng(0).integers(0, 256, pixels[cell].shape)
        return pixels

    monkeypatch.setattr(skimage.io, "imread", read_spoilt)
    spoilt = load_textures(split, per_class=40)
    assert (spoilt.corners == textures[split].corners).all()
    assert (spoilt.windows == textures[split].windows).all()


def test_windows_of_train_and_test_do_not_overlap(textures):
    for label, photograph in enumerate(PHOTOGRAPHS):
        used = {}
        for split in SPLITS:
            some = textures[split]
            used[split] = np.zeros(read_photograph(photograph).shape, bool)
            side = some.windows.shape[1]
            for row, column in some.corners[some.labels == label]:
                used[split][row : row + side, column : column + side] = True
        assert used["train"].any()
        assert used["test"].any()
        assert not (used["train"] & used["test"]).any(), photograph.name


def test_windows_are_where_their_corners_say(textures):
    test = textures["test"]
    side = test.windows.shape[1]
    for label, photograph in enumerate(PHOTOGRAPHS):
        pixels = read_photograph(photograph)
        for index in np.flatnonzero(test.labels == label)[:3]:
            row, column = test.corners[index]
            assert (test.windows[index] == pixels[row : row + side, column : column + side]).all()


@pytest.mark.parametrize("split", SPLITS)
def test_balanced_and_without_repetition(split, textures):
    some = textures[split]
    assert len(some) == 40 * len(PHOTOGRAPHS)
    assert np.bincount(some.labels).tolist() == [40] * len(PHOTOGRAPHS)
    places = {(label, *corner) for label, corner in zip(some.labels.tolist(), some.corners.tolist(), strict=True)}
    assert len(places) == len(some)


def test_contrast_is_normalised_at_every_angle(textures):
    for angle in (0, 30, 90):
        view = textures["test"].view(angle)
        assert view.shape == (len(textures["test"]), 1, PATCH, PATCH)
        assert view.dtype == torch.float32
        assert view.mean((1, 2, 3)).abs().max() < 1e-5
        assert (view.std((1, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_blank_windows_are_left_out(textures):
    retina = next(photograph for photograph in PHOTOGRAPHS if photograph.name == "retina")
    everywhere = np.lib.stride_tricks.sliding_window_view(read_photograph(retina), (PATCH, PATCH))[::32, ::32]
    assert everywhere.std((2, 3)).min() < 0.01, "there is something to leave out"
    for some in textures.values():
        border = (some.windows.shape[1] - PATCH) // 2
        middle = some.windows[:, border : border + PATCH, border : border + PATCH]
        assert middle.std((1, 2)).min() >= 0.02


def test_needs_no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert len(load_textures("test", per_class=1)) == len(PHOTOGRAPHS)


def test_the_seed_decides(textures):
    again, other = load_textures("test", per_class=40, seed=0), load_textures("test", per_class=40, seed=1)
    assert (again.windows == textures["test"].windows).all()
    assert (other.corners != textures["test"].corners).any()


def test_quarter_turns_and_mirrors_are_exact(textures):
    test = textures["test"]
    upright, slanted = test.view(), test.view(20)
    for quarter in range(-1, 5):
        assert torch.equal(test.view(90 * quarter), upright.rot90(quarter, (2, 3)))
        assert torch.equal(test.view(20 + 90 * quarter), slanted.rot90(quarter, (2, 3)))
    assert (test.view(mirror="horizontal") - upright.flip(3)).abs().max() < 1e-5
    assert (test.view(mirror="vertical") - upright.flip(2)).abs().max() < 1e-5


def test_turns_are_the_views_at_all_angles():
    test = load_textures("test", per_class=2)
    turns = dict(test.turns(30))
    assert sorted(turns) == list(range(0, 360, 30))
    for angle, patches in turns.items():
        assert torch.equal(patches, test.view(angle))


@pytest.mark.parametrize("angle", [10, 45, 80, 130, 300])
def test_turned_as_a_formula_is_turned(angle):
    """A pattern given by a formula, sampled and then turned, is the formula turned and then sampled."""

    def pattern(x, y):
        return np.sin(0.5 * x + 0.2 * y) + np.cos(0.3 * y - 0.4) * (1 + 0.02 * x)

    def axes(side):
        down = np.arange(side) - (side - 1) / 2
        return down[None, :], -down[:, None]  # x to the right, y up

    def turned_pattern(x, y):
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        return pattern(cos * x + sin * y, cos * y - sin * x)

    window = pattern(*axes(48))[None].astype(np.float32)
    view = Textures(window, np.zeros(1, np.int64), np.zeros((1, 2), np.int64)).view(angle)[0, 0].numpy()
    expected = turned_pattern(*axes(PATCH))
    error = np.abs(view - (expected - expected.mean()) / expected.std())
    x, y = axes(PATCH)
    # A spline feels the window's border, less by a factor of 2 + sqrt(3) for every pixel. A corner filled with
    # anything else than the pattern would be wrong by about 1.
    assert error[x**2 + y**2 < 19**2].max() < 2e-3
    assert error.max() < 5e-2


def test_every_angle_is_about_as_sharp(textures):
    """Interpolation must not blur what upright patches show, or blur itself would tell the angle."""
    power = {a: textures["test"].view(a).diff(dim=2).square().mean().item() for a in (0, 10, 30, 45, 70)}
    power_across = {a: textures["test"].view(a).diff(dim=3).square().mean().item() for a in power}
    total = np.array([power[a] + power_across[a] for a in power])
    assert total.min() > 0.95 * total[0]
    assert total.max() < 1.05 * total[0]


def test_bad_requests_are_refused(textures):
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'validation'"):
        load_textures("validation", per_class=1)
    with pytest.raises(ValueError, match="per_class must be at least 1, got 0"):
        load_textures("test", per_class=0)
    with pytest.raises(ValueError, match=r"per_class must be at most \d+, got 100000"):
        load_textures("test", per_class=100_000)
    with pytest.raises(ValueError, match="step must divide 90, got 7"):
        next(textures["test"].turns(7))
    with pytest.raises(ValueError, match="does not hold a patch"):
        textures["train"].view(45)
