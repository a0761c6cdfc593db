"""Which stored value becomes 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringconv.data.dataset import Rows

_NARROW = tuple(np.dtype(name) for name in ("uint8", "int8", "uint16", "int16"))
"""Types whose largest value becomes 1. Those of floats and of wider integers may be in any unit."""
_LARGEST = tuple(float(np.iinfo(dtype).max) for dtype in _NARROW)
_SIGNED = tuple(float(np.iinfo(dtype).max) for dtype in _NARROW if dtype.kind == "i")
_BEYOND = 0.5
"""Resampling and noise lead a little out of 0 to 1; another unit leads further."""


def scale_of(images: Rows) -> float:
    """The stored value that becomes 1: 255 for bytes, 65535 for 16 bits, the largest one found for wider integers,
    and 1 for floats and for occupancy (0 and 1)."""
    if not np.issubdtype(images.dtype, np.integer):
        return 1.0
    # A picture without any pixel above 1 among a hundred spread over the set is not a picture.
    low, high = _range_of(images)
    largest = max(int(high), -int(low))
    if len(images) and largest <= 1:
        return 1.0
    # Hardly anything fills 32 bits: as a share of what they could hold, all images would be black.
    return float(np.iinfo(images.dtype).max if images.dtype.itemsize <= 2 else max(largest, 1))


def names_no_unit(dtype: Any, own: float, trained: float | None) -> bool:
    """Whether nothing says what 1 is in a single image: numbers of any unit, for a network that knows only that of its
    pictures, or integers of any size for one that was trained on floats."""
    if np.dtype(dtype) in _NARROW:
        return False
    return trained is None or trained in _LARGEST or (trained == 1 and own != 1)


def says_no_unit(dtype: Any, trained: float | None) -> str:
    """To be said where :func:`names_no_unit`."""
    said = "does not say what its training had" if trained is None else f"was trained on values up to {trained:g}"
    return f"values are {dtype}, which have no scale of their own, and the checkpoint {said}"


def check_unit(images: Rows, trained: float | None) -> None:
    """Raise ValueError for floats that are not from 0 to 1 (-1 to 1 where the network was trained on signed integers),
    if it knows only the unit of its pictures."""
    if not np.issubdtype(images.dtype, np.floating) or trained not in _LARGEST:
        return
    low, high = _range_of(images)
    least = -1 if trained in _SIGNED else 0
    if not least - _BEYOND <= low <= high <= 1 + _BEYOND:
        raise ValueError(
            f"the {says_no_unit(images.dtype, trained)}: give it floats from {least} to 1, and not from {low:.4g} to"
            f" {high:.4g}, or the integers that they were made from"
        )


def scale_as_trained(
    dtype: Any, own: float, trained: float | None, mean: Sequence[float], std: Sequence[float]
) -> float:
    """The stored value that becomes 1 for a network.

    Args:
        dtype, own: of the images, and :func:`scale_of` them.
        trained: the scale in training; None: unknown.
        mean, std: of the training images, on that scale.

    Raises:
        ValueError: the network was trained on floats in a unit of their own, which integers do not have.
    """
    dtype = np.dtype(dtype)
    is_integer = np.issubdtype(dtype, np.integer)
    if is_integer and trained == 1 and not from_0_to_1(trained, mean, std):
        raise ValueError(
            f"the values are {dtype}, and the network was trained on floats that are not from 0 to 1 (mean"
            f" {max(mean, key=abs):.4g}): give it floats on the same scale, or train it on such images"
        )
    if dtype in _NARROW:
        # Pictures of 0 and 1 only are occupancy, if those of the training were.
        return own if trained == 1 else float(np.iinfo(dtype).max)
    if trained is None or (trained in _LARGEST and not (is_integer and own <= trained)):
        return own
    return own if is_integer and trained == 1 else trained


def from_0_to_1(trained: float | None, mean: Sequence[float], std: Sequence[float]) -> bool:
    """Whether pictures on a scale from 0 to 1 are what a network was trained on. Floats stay as they are in training,
    so that only their mean and deviation tell."""
    return trained != 1 or all(abs(value) <= 1 for value in (*mean, *std))


def _range_of(images: Rows) -> tuple[Any, Any]:
    """The smallest and the largest value, in a hundred images spread over a set; 0 without any."""
    some = np.unique(np.linspace(0, len(images) - 1, min(len(images), 100)).astype(np.int64))
    found = [(image.min(), image.max()) for image in (images[[row]] for row in some)]
    return min((low for low, _ in found), default=0), max((high for _, high in found), default=0)
