"""Images for quantisation: to find the range of activations, and to count what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringconv.data import DataSet
from ringconv.data.dataset import normalise
from ringconv.deploy.images import read_image
from ringconv.models.checkpoint import Preprocessing

Batches = list[NDArray[np.float32]]

_BATCH = 16


@dataclass(frozen=True)
class Calibration:
    """Batches (B, C, *S) as the model sees them."""

    calibration: Batches
    """To take ranges from."""
    test: Batches
    """To compare on."""
    labels: NDArray[np.int64] | None
    """Of ``test``, if known."""


def from_data(data: DataSet, preprocessing: Preprocessing | None, most: int, seed: int = 0) -> Calibration:
    """Ranges from the training images, costs from the test images: up to ``most`` of each, drawn at random."""
    if data.task != "classify":
        raise ValueError(f"what quantisation costs is counted for classifiers; {data.name} is a segmentation")
    mean, std = (data.mean, data.std) if preprocessing is None else (preprocessing.mean, preprocessing.std)
    drawn: dict[str, tuple[Batches, list[Any]]] = {}
    for name in ("train", "test"):
        split = data[name]
        rows = np.sort(np.random.default_rng(seed).permutation(len(split))[:most])
        drawn[name] = ([], [])
        for chosen in _in_batches(rows):
            images, labels = split.batch(chosen)
            drawn[name][0].append(normalise(images, mean, std).numpy())
            drawn[name][1].append(labels.numpy())
    return Calibration(drawn["train"][0], drawn["test"][0], np.concatenate(drawn["test"][1]))


def from_images(paths: Sequence[Path], preprocessing: Preprocessing | None, channels: int, most: int) -> Calibration:
    """Image files without labels; the same ones serve for both."""
    preparation = preprocessing or Preprocessing()
    step = _BATCH if preparation.size is not None else 1  # without a size, images keep theirs
    chosen = list(paths)[:most]
    batches = [
        np.stack([read_image(path, preparation, channels).numpy() for path in chosen[start : start + step]])
        for start in range(0, len(chosen), step)
    ]
    return Calibration(batches, batches, None)


def _in_batches(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(rows), _BATCH):
        yield rows[start : start + _BATCH]
