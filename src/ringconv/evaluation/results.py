"""What an evaluation found, and what it was asked."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringconv._turned import Turning


@dataclass(frozen=True)
class EvaluationSettings:
    """How a network is tested. The defaults are the paper's."""

    turning: Turning = field(default_factory=Turning)
    step: float | None = None
    """Degrees between angles; default 10, and 30 about each axis of a volume."""
    reflections: bool = True
    """Also flip every axis."""
    symmetrise: int | None = None
    """Average the network's output over 4 rotations, or 8 with reflections (24 or 48 of a volume) of each view."""
    subset: int | None = None
    """Only so many images, every class in its proportion, for a quick look."""
    seed: int = 0
    """Which images a subset holds."""
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")


@dataclass(frozen=True)
class Scores:
    """One metric of every view, in percent."""

    upright: float
    per_turn: dict[str, float]
    """Including the turn by 0 degrees; of volumes about each axis."""
    per_flip: dict[str, float]

    @property
    def rotated(self) -> float:
        """Mean over all turns."""
        return statistics.fmean(self.per_turn.values())

    @property
    def std(self) -> float:
        """Standard deviation over all turns, which are the whole population."""
        values = self.per_turn.values()
        return math.nan if any(map(math.isnan, values)) else statistics.pstdev(values)

    @property
    def worst_turn(self) -> str:
        return min(self.per_turn, key=self.per_turn.__getitem__)

    @property
    def worst(self) -> float:
        return self.per_turn[self.worst_turn]

    @property
    def reflected(self) -> float | None:
        """Mean over the flips; None without any."""
        return statistics.fmean(self.per_flip.values()) if self.per_flip else None

    @property
    def four_rot(self) -> float | None:
        """4ROT: mean over 0, 90, 180 and 270 degrees; None where they were not all tested."""
        return self._mean_over(range(0, 360, 90))

    @property
    def all_rot(self) -> float | None:
        """ALLROT: mean over every 20 degrees; None where they were not all tested."""
        return self._mean_over(range(0, 360, 20))

    def _mean_over(self, angles: range) -> float | None:
        names = [f"{angle:g}" for angle in angles]
        if not set(names) <= self.per_turn.keys():
            return None
        return statistics.fmean(self.per_turn[name] for name in names)

    def as_dict(self) -> dict[str, Any]:
        return {
            "upright": self.upright,
            "rotated_mean": self.rotated,
            "rotated_std": self.std,
            "worst": self.worst,
            "worst_turn": self.worst_turn,
            "reflected_mean": self.reflected,
            "4rot": self.four_rot,
            "allrot": self.all_rot,
            "per_turn": dict(self.per_turn),
            "per_flip": dict(self.per_flip),
        }


@dataclass(frozen=True)
class Drift:
    """How far the logits move when the image turns, by view; the upright view is the reference."""

    norm: dict[str, float]
    """Mean over images of |moved| / |upright|."""
    cosine: dict[str, float]
    """Mean over images of the cosine between the two."""
    changed: dict[str, float]
    """Percentage of the images that were right upright and are given another class now."""

    def mean(self, values: Mapping[str, float]) -> float:
        """Over all views but the upright one."""
        return statistics.fmean(values.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            name: {"mean": self.mean(values), "per_view": dict(values)}
            for name, values in (("norm", self.norm), ("cosine", self.cosine), ("changed", self.changed))
            if values
        }


@dataclass(frozen=True)
class Evaluation:
    """What :func:`evaluate` found."""

    data: str
    split: str
    task: str
    images: int
    settings: EvaluationSettings
    scores: dict[str, Scores]
    """"accuracy"; of a segmentation "auc", "iou" and "dice"."""
    drift: Drift | None
    """Of a classification."""
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it; what is not a number is null."""
        found = {
            "data": self.data,
            "split": self.split,
            "task": self.task,
            "images": self.images,
            "settings": dataclasses.asdict(self.settings),
            "scores": {name: scores.as_dict() for name, scores in self.scores.items()},
            "drift": None if self.drift is None else self.drift.as_dict(),
            "seconds": round(self.seconds, 2),
        }
        cleaned: dict[str, Any] = _without_nan(found)
        return cleaned


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
