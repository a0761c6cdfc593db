"""Which images a step sees, and the random numbers it augments them by: functions of the seed and of the step alone.

Nothing here has a state, so that a run that goes on after a crash, or on another number of devices or workers, sees
what it would have seen.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rows = NDArray[np.int64]

_SHUFFLE, _AUGMENT, _NETWORK = range(3)


def epoch_batches(images: int, batch_size: int, parts: int, seed: int, epoch: int) -> list[Rows]:
    """A shuffle of all images in batches.

    Args:
        parts: that every batch is going to be divided into, over devices and accumulation.

    Returns:
        Rows (B,) of each batch. The last one may be short; it is left out if it is a single image, which has no batch
        statistics, or too short for every part to get an image.
    """
    if images < parts:
        raise ValueError(f"there are {images} images to train on, fewer than the {parts} parts of a batch")
    order = np.random.default_rng((seed, _SHUFFLE, epoch)).permutation(images)
    batches = [order[start : start + batch_size] for start in range(0, images, batch_size)]
    if len(batches) > 1 and len(batches[-1]) < max(2, parts):
        batches.pop()
    return batches


def steps_per_epoch(images: int, batch_size: int, parts: int) -> int:
    return len(epoch_batches(images, batch_size, parts, 0, 0))


def parts_of_rank(batch: int, accumulate: int, rank: int, world: int) -> list[slice]:
    """What one of ``world`` devices does of a batch, in ``accumulate`` parts; sizes differ by at most one."""
    edges = [round(batch * part / (world * accumulate)) for part in range(world * accumulate + 1)]
    mine = range(rank * accumulate, (rank + 1) * accumulate)
    return [slice(edges[part], edges[part + 1]) for part in mine]


def uniforms(batch: int, columns: int, seed: int, step: int) -> Tensor:
    """(batch, columns) in [0, 1): what decides the augmentation of each image of a step."""
    return torch.from_numpy(np.random.default_rng((seed, _AUGMENT, step)).random((batch, columns), np.float32))


def seed_network(seed: int, step: int, rank: int) -> None:
    """Seed torch for what the network itself draws in a step, such as dropout."""
    state = np.random.SeedSequence((seed, _NETWORK, step, rank)).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0]))
