"""Batches for the training steps of one device, read and augmented here or in worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ringconv.data import Split
from ringconv.training.augment import COLUMNS, Augment
from ringconv.training.order import Rows, epoch_batches, parts_of_rank, uniforms

Part = tuple[Tensor, Tensor]
"""Images (B, C, *S) as the network sees them, with labels (B,) or masks (B, *S)."""


@dataclass(frozen=True)
class Plan:
    """How an epoch is divided into batches and parts of batches."""

    images: int
    batch_size: int
    accumulate: int
    seed: int
    rank: int = 0
    world: int = 1

    def batches(self, epoch: int) -> list[Rows]:
        return epoch_batches(self.images, self.batch_size, self.world * self.accumulate, self.seed, epoch)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.batches(0))

    def parts(self, batch: int) -> list[slice]:
        return parts_of_rank(batch, self.accumulate, self.rank, self.world)


class Steps(Dataset[list[Part]]):
    """The steps of an epoch. A step is a function of its number, so that it does not matter which process makes it."""

    def __init__(self, split: Split, augment: Augment, plan: Plan, epoch: int, first_step: int) -> None:
        self._split, self._augment, self._plan = split, augment, plan
        self._batches = plan.batches(epoch)
        self._first_step = first_step

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> list[Part]:
        rows = self._batches[index]
        uniform = uniforms(len(rows), COLUMNS, self._plan.seed, self._first_step + index)
        return [self._augment(*self._split.batch(rows[part]), uniform[part]) for part in self._plan.parts(len(rows))]

    def batch_size(self, index: int) -> int:
        """Images of the step over all devices."""
        return len(self._batches[index])


def load_steps(steps: Steps, start: int, workers: int, pin: bool = False) -> Iterator[list[Part]]:
    """The steps from ``start`` to the end of the epoch."""
    if workers == 0:  # a DataLoader would only add its own seeding and checks
        return (steps[index] for index in range(start, len(steps)))
    return iter(
        DataLoader(
            steps,
            batch_size=None,
            sampler=range(start, len(steps)),
            num_workers=workers,
            worker_init_fn=_one_thread,
            pin_memory=pin,
        )
    )


def _one_thread(worker: int) -> None:
    torch.set_num_threads(1)
