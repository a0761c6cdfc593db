"""A study: runs on real data that are compared with each other. The results page is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ringconv.training.settings import TrainSettings

ChosenOn = Literal["test", "val"]

THREE_SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Trial:
    """A row of a study: one network, trained with several seeds."""

    name: str
    """Part of the names of its files."""
    label: str
    settings: TrainSettings
    seeds: tuple[int, ...] = (0,)
    paper: Mapping[str, str] = field(default_factory=dict)
    """What the paper prints for this row, by measure."""

    def seeded(self, seed: int) -> TrainSettings:
        return replace(self.settings, seed=seed)


@dataclass(frozen=True)
class Study:
    """Runs that are compared with each other."""

    name: str
    title: str
    data: str
    """File, without its ending, that all rows train on."""
    about: str
    """What is asked, what all rows share, and how that differs from the paper."""
    trials: tuple[Trial, ...]
    split: ChosenOn = "test"
    """Where the figures are from. A choice between options is made on a fifth of the training images (val), so that the
    test images are not used up by it."""
    against: str | None = None
    """Name of the row whose figures are taken from those of the others, seed by seed."""

    def __post_init__(self) -> None:
        names = [trial.name for trial in self.trials]
        if len(set(names)) < len(names):
            raise ValueError(f"the rows of {self.name} must have different names, got {names}")
        if self.against is not None and self.against not in names:
            raise ValueError(f"{self.name} compares its rows with one of {names}, got {self.against!r}")
