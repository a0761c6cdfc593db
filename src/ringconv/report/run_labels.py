"""How runs and their figures are called in tables."""

from __future__ import annotations

from collections.abc import Sequence

from ringconv.report.figures.labels import run_labels, unique
from ringconv.training.runs import Run

METRICS = {"accuracy": "Accuracy", "dice": "Dice", "iou": "IoU", "auc": "AUC"}
NOT_KNOWN = "-"


def labels_of(runs: Sequence[Run]) -> list[str]:
    """The model of each run and, where a model was trained several times on one data set, what was different."""
    labels = run_labels(runs)
    seeded = [f"{label}, seed {run.settings.seed}" for label, run in zip(labels, runs, strict=True)]
    labels = unique(labels, seeded)
    labels = unique(labels, [f"{label} ({run.name})" for label, run in zip(labels, runs, strict=True)])
    # Runs of comparisons are called alike; the number is that of the run among all.
    return unique(labels, [f"{label}, run {number}" for number, label in enumerate(labels, 1)])


def millions(count: float | None) -> str:
    """3996685 -> 4.00M; 64197 -> 64.2k"""
    if count is None:
        return NOT_KNOWN
    return f"{count / 1e6:.2f}M" if count >= 1e6 else f"{count / 1e3:.1f}k"


def gigabytes(count: float | None) -> str:
    return NOT_KNOWN if count is None else f"{count / 1e9:.2f} GB"


def minutes(seconds: float | None) -> str:
    """754 -> 12:34; 4354 -> 1:12:34"""
    if seconds is None:
        return NOT_KNOWN
    whole, rest = divmod(round(seconds), 60)
    hours, whole = divmod(whole, 60)
    return f"{hours}:{whole:02}:{rest:02}" if hours else f"{whole}:{rest:02}"
