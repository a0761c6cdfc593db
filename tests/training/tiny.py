"""A network and data that train in a second. As a program: train or go on, in a process of its own.

python tiny.py train OUT NAME SETTINGS
python tiny.py resume FOLDER
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ringconv import GMRConv1d, GMRConv2d, GMRConv3d
from ringconv.data import DataSet, Split
from ringconv.models import ModelEntry, registry
from ringconv.training import TrainSettings, resume, train

CLASSES = ("dots", "stripes", "noise")
CONVS = {1: GMRConv1d, 2: GMRConv2d, 3: GMRConv3d}


def tiny_ring(
    *, num_classes: int = 3, in_chans: int = 1, width: int = 4, norm: str = "batch", dropout: float = 0.0,
    dimensions: int = 2,
) -> nn.Module:  # fmt: skip
    """One ring convolution, then a head."""
    conv = CONVS[dimensions](in_chans, width, 3, padding=1)
    batch_norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dimensions]
    pool = {2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[dimensions]
    normalised = batch_norm(width) if norm == "batch" else nn.GroupNorm(2, width)
    body = [conv, normalised, nn.ReLU(), nn.Dropout(dropout), pool(4), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(width * 4**dimensions, num_classes))


def tiny_map(*, num_classes: int = 1, in_chans: int = 1, width: int = 4) -> nn.Module:
    """One ring convolution, then a map."""
    return nn.Sequential(GMRConv2d(in_chans, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, num_classes, 1))


ENTRIES = {
    "tiny_ring": ModelEntry("tiny_ring", tiny_ring, "tiny", dimensions=(2, 3)),
    "tiny_map": ModelEntry("tiny_map", tiny_map, "tiny", task="segmentation"),
}


def pictures(count: int, seed: int, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, H, W) of three kinds, and their kind."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % len(CLASSES)
    images = generator.integers(0, 60, (count, size, size))
    images[labels == 0, ::4, ::4] += 180
    images[labels == 1, ::3] += 150
    return images.astype(np.uint8), labels.astype(np.int64)


def classified(train: int = 60, test: int = 18, val: int = 0) -> DataSet:
    splits = {name: Split(*pictures(n, seed)) for seed, (name, n) in enumerate(
        (("train", train), ("val", val), ("test", test))) if n}  # fmt: skip
    return DataSet("tiny", "classify", CLASSES, splits)


def of_one_class() -> DataSet:
    images = np.full((4, 12, 12), 100, np.uint8)
    split = Split(images, np.zeros(4, np.int64))
    return DataSet("alike", "classify", CLASSES[:1], {"train": split, "test": split})


def segmented(train: int = 24, test: int = 6) -> DataSet:
    """Bright discs on noise."""

    def split(count: int, seed: int) -> Split:
        generator = np.random.default_rng(seed)
        centres = generator.uniform(4, 12, (count, 2, 1, 1))
        y, x = np.mgrid[:16, :16]
        masks = (y - centres[:, 0]) ** 2 + (x - centres[:, 1]) ** 2 < 9
        images = 150 * masks + generator.integers(0, 80, masks.shape)
        return Split(images.astype(np.uint8), masks.astype(np.uint8))

    return DataSet("discs", "segment", ("background", "disc"), {"train": split(train, 0), "test": split(test, 1)})


def volumes(train: int = 12, test: int = 4) -> DataSet:
    def split(count: int, seed: int) -> Split:
        labels = np.arange(count) % 2
        full = np.random.default_rng(seed).random((count, 8, 8, 8)) < np.where(labels, 0.6, 0.2).reshape(-1, 1, 1, 1)
        return Split(full.astype(np.uint8), labels.astype(np.int64), 3, 1.0)

    return DataSet("grains", "classify", ("sparse", "dense"), {"train": split(train, 0), "test": split(test, 1)})


def main(task: str, where: str, *rest: str) -> None:
    faulthandler.dump_traceback_later(120, exit=True)  # all of it takes seconds, also the end
    torch.set_num_threads(1)
    registry._entries.update(ENTRIES)
    if task == "train":
        name, settings = rest
        train(TrainSettings.from_json(json.loads(settings)), out=Path(where), name=name, data=classified(val=12))
    else:
        resume(Path(where), data=classified(val=12))


if __name__ == "__main__":
    main(*sys.argv[1:])
