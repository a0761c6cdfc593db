"""The paper's tables with our figures in them, from the folders that runs left."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringconv.recipes.catalogue import DRAWN_FROM, LABELS, all_recipes
from ringconv.recipes.recipe import Recipe
from ringconv.recipes.scales import SCALES, Scale, changes_between, resolve
from ringconv.training.runs import Run
from ringconv.training.settings import TrainSettings

_SCORES = {
    "upright": ("accuracy", "upright"),
    "rotated": ("accuracy", "rotated_mean"),
    "rotated_std": ("accuracy", "rotated_std"),
    "mirrored": ("accuracy", "reflected_mean"),
    "quarter_turns": ("accuracy", "4rot"),
    "every_20_degrees": ("accuracy", "allrot"),
    **{metric: (metric, "upright") for metric in ("auc", "iou", "dice")},
    **{f"{metric}_rotated": (metric, "rotated_mean") for metric in ("auc", "iou", "dice")},
}
"""Where a run's evaluation has each measure."""

HARMLESS = (
    "data", "seed", "accumulate", "workers", "accelerator", "devices", "nodes", "strategy", "channels_last",
    "checkpoint_every", "log_every", "wandb", "rotated_every", "rotated_images", "validate_every", "sync_batch_norm",
    "final_test",
)  # fmt: skip
"""Settings by which runs may differ and still be the same training; data is compared by its name."""

_HARMLESS_OF_DATA = ("root", "layout", "cache", "cache_folder", "verify", "faults")
"""The same, of the options of data. All others choose or change the images."""


def telling_data_options(settings: TrainSettings) -> dict[str, Any]:
    """The options of data that make another training."""
    return {name: value for name, value in settings.data_options.items() if name not in _HARMLESS_OF_DATA}


@dataclass(frozen=True)
class FilledRow:
    """A row of a table with the runs that fill it."""

    recipe: Recipe
    runs: tuple[Run, ...] = ()
    """Finished runs of one scale, with different seeds; none if the row is missing."""
    scale: Scale | None = None
    changed: tuple[str, ...] = ()
    """What these runs did otherwise than the recipe at its scale says."""
    unfinished: int = 0
    """Runs that would belong here once they are finished."""

    @property
    def values(self) -> dict[str, float]:
        """Our figures by measure, the mean over runs; measures that no run has are left out."""
        found = [_values(run) for run in self.runs]
        shared = set(found[0]).intersection(*found) if found else set()
        return {measure: statistics.fmean(one[measure] for one in found) for measure in shared}


def fill_table(label: str, runs: Sequence[Run], scale: Scale | None = None) -> list[FilledRow]:
    """Every row of the table or curve ``label``, filled from runs where there are any.

    A run counts for every recipe that asks for the same training, also in another table.

    Args:
        scale: only take runs of this scale; default the largest that a row has runs of.
    """
    if label not in LABELS:
        known = f"those with recipes are {', '.join(LABELS)}"
        drawn = f" (it is drawn from the runs of {' and '.join(DRAWN_FROM[label])})" if label in DRAWN_FROM else ""
        raise ValueError(f"there is nothing to fill for {label!r}{drawn}; {known}")
    if scale is not None and scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    recipes = all_recipes()
    by_experiment: dict[str, list[_Candidate]] = {}
    for run in runs:
        candidate = _candidate(run)
        if candidate is not None and scale in (None, candidate.scale):
            by_experiment.setdefault(recipes[candidate.name].experiment, []).append(candidate)
    return [
        _filled(recipe, by_experiment.get(recipe.experiment, []))
        for recipe in recipes.values()
        if recipe.label == label
    ]


@dataclass(frozen=True)
class _Candidate:
    run: Run
    name: str
    scale: Scale
    changed: tuple[str, ...]


def _candidate(run: Run) -> _Candidate | None:
    name, _, said = (run.recipe or "").partition("@")
    known = all_recipes().get(name)
    if known is None or known.settings is None:
        return None
    # A run that does not say its scale has the one that it differs from the least.
    scales: Sequence[Scale] = [scale for scale in SCALES if scale == said] or SCALES
    changed = {scale: _changes(run.settings, resolve(name, scale), known.settings.data) for scale in scales}
    scale = min(scales, key=lambda scale: len(changed[scale]))
    return _Candidate(run, name, scale, changed[scale])


def _changes(found: TrainSettings, expected: TrainSettings, data: str) -> tuple[str, ...]:
    same = {name: getattr(expected, name) for name in HARMLESS}
    found_data, expected_data = telling_data_options(found), telling_data_options(expected)
    changes = changes_between(
        replace(expected, data_options=expected_data), replace(found, **same, data_options=found_data)
    )
    if Path(found.data).stem not in (data, expected.data):
        changes.insert(0, f"data: {Path(found.data).stem} instead of {data}")
    return tuple(changes)


def _filled(recipe: Recipe, candidates: Sequence[_Candidate]) -> FilledRow:
    finished = [candidate for candidate in candidates if _values(candidate.run, parameters=False)]
    unfinished = len(candidates) - len(finished)
    if not finished:
        return FilledRow(recipe, unfinished=unfinished)
    scale = min((candidate.scale for candidate in finished), key=SCALES.index)
    of_scale = [candidate for candidate in finished if candidate.scale == scale]
    # Runs that follow the recipe come before any that do not; among these, the latest decides.
    changed = () if any(not candidate.changed for candidate in of_scale) else of_scale[-1].changed
    by_seed = {one.run.settings.seed: one.run for one in of_scale if one.changed == changed}
    return FilledRow(recipe, tuple(by_seed.values()), scale, changed, unfinished)


def _values(run: Run, parameters: bool = True) -> dict[str, float]:
    evaluation: Mapping[str, Any] = (run.results or {}).get("evaluation") or {}
    scores = evaluation.get("scores", {})
    found = {measure: scores.get(metric, {}).get(what) for measure, (metric, what) in _SCORES.items()}
    values = {measure: float(value) for measure, value in found.items() if value is not None}
    return {**values, "parameters": float(run.parameters)} if parameters else values
