"""The comparison of starts after a conversion, at the smallest scale."""

import numpy as np
import pytest
import torch

from ringconv.commands._terminal import UsageError
from ringconv.commands.conversions import conversions
from ringconv.report.trained_start import (
    NEW,
    NEW_KERNELS,
    PROJECTED,
    TrainedStart,
    TrainedStartSettings,
    _verdict,
    load_images,
    trained_start,
    write_trained_start,
)

SETTINGS = TrainedStartSettings(plain_epochs=1, budgets=(1,), width=4, side=8)


@pytest.fixture
def data(tmp_path):
    """Two classes, dark and bright."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (60, 1)).astype(np.uint8)
    images = (random.integers(0, 50, (60, 16, 16, 3)) + 200 * labels[:, :, None, None]).astype(np.uint8)
    path = tmp_path / "bright.npz"
    parts = {"train_images": images[:40], "test_images": images[40:]}
    np.savez(path, **parts, train_labels=labels[:40], test_labels=labels[40:])
    return path


def test_every_start_is_compared(data, tmp_path):
    page = write_trained_start(data, tmp_path / "page.md", (3,), SETTINGS)
    text = page.read_text()
    for start in (NEW, NEW_KERNELS, PROJECTED):
        assert f"| one cycle | {start} | " in text
        assert f"| constant | {start} | " in text
    assert "ringconv conversions --trained-start --data bright.npz --seeds 3" in text
    result = trained_start(load_images(data, 8), SETTINGS, seed=3)
    for of_start in result.by_budget.values():
        assert [list(of_start[start]) for start in (NEW, NEW_KERNELS, PROJECTED)] == [[0, 1]] * 3
        cells = " | ".join(f"{accuracy:.1f}" for accuracy in of_start[PROJECTED].values())
        assert f"{PROJECTED} | {cells} |" in text


def test_images_are_normalised_and_averaged(data):
    images = load_images(data, 8)
    assert images.train.shape == (40, 3, 8, 8)
    assert images.train.mean((0, 2, 3)).abs().max() < 1e-5
    assert images.test_labels.dtype == torch.int64


def test_what_is_missing_is_named(tmp_path):
    np.savez(tmp_path / "half.npz", train_images=np.zeros((1, 4, 4)))
    with pytest.raises(ValueError, match=r"has no train_labels, test_images, test_labels; it has train_images"):
        load_images(tmp_path / "half.npz", 8)
    with pytest.raises(ValueError, match="plain_epochs must be at least 1, got 0"):
        TrainedStartSettings(plain_epochs=0)
    with pytest.raises(ValueError, match=r"budgets must be rising numbers of epochs from 1 on, got \(3, 2\)"):
        TrainedStartSettings(budgets=(3, 2))


def test_a_file_that_is_not_there_is_a_matter_of_usage(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        conversions(tmp_path / "page.md", trained_start=True, data=tmp_path / "nowhere.npz")


def test_the_verdict_counts_epochs():
    better = {NEW: {0: 10.0, 3: 60.0, 6: 75.0}, PROJECTED: {0: 40.0, 3: 70.0, 6: 80.0}}
    worse = {NEW: {0: 10.0, 3: 60.0, 6: 75.0}, PROJECTED: {0: 40.0, 3: 50.0, 6: 60.0}}
    text = _verdict([TrainedStart(0.0, 0.0, {"one cycle": better, "constant": worse})], (3, 6))
    assert "one cycle, 3 epochs: +10.0 points; a new network needs at most 6 epochs for as much" in text
    assert "one cycle, 6 epochs: +5.0 points; a new network needs more than 6 epochs for as much" in text
    assert "constant, 6 epochs: -15.0 points; a new network needs at most 3 epochs for as much" in text
