"""Images that end in one colour."""

import numpy as np
import pytest

from ringconv.data import Split
from ringconv.data.borders import has_even_border


def split(images: np.ndarray, dimensions: int = 2) -> Split:
    return Split(images, np.zeros(len(images), np.int64), dimensions)


def figures(count: int, size: tuple[int, ...], channels: int = 3) -> np.ndarray:
    """Noise within a border of one colour, which is another for every image and channel."""
    random = np.random.default_rng(0)
    images = np.empty((count, *size, channels), np.uint8)
    images[:] = random.integers(0, 256, (count, *[1] * len(size), channels))
    images[(slice(None), *[slice(1, -1)] * len(size))] = random.integers(
        0, 256, (count, *(side - 2 for side in size), channels)
    )
    return images


@pytest.mark.parametrize("size", [(8, 8), (9, 6), (6, 7, 5)])
def test_figures_on_a_ground_have_an_even_border(size: tuple[int, ...]) -> None:
    images = figures(120, size)
    assert has_even_border(split(images, len(size)))
    # On all sides: one dark and one bright pixel are enough.
    images[(slice(None), *[-1] * len(size))] = 0
    images[(slice(None), *[0] * len(size))] = 255
    assert not has_even_border(split(images, len(size)))


def test_what_compression_leaves_and_single_exceptions_do_not_count() -> None:
    images = figures(100, (8, 8), 1)[..., 0] // 2 + 60
    assert has_even_border(split(images + np.random.default_rng(1).integers(0, 6, images.shape, np.uint8)))
    images[:8, 0, 0] = 0
    assert has_even_border(split(images))
    images[:20, 0, 0] = 0
    images[:20, 0, 1] = 255
    assert not has_even_border(split(images))


def test_photographs_have_none() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
    assert not has_even_border(split(images))
    broken = images.astype(np.float32)
    broken[0, 4, 4] = 1e6
    assert not has_even_border(split(broken))
