"""Short names that tell runs apart."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringconv.recipes.filling import HARMLESS, telling_data_options
from ringconv.training.runs import Run
from ringconv.training.settings import TrainSettings

_UNTOLD = (*HARMLESS, "model", "task")
"""Settings that do not make another training of one model on one data set."""


def data_name(run: Run) -> str:
    """As the data calls itself, or what the settings call it."""
    return str(run.data.get("name") or Path(run.settings.data).stem)


def same_but_for_the_seed(run: Run) -> str:
    """Equal for runs that differ in nothing that matters but their seed."""
    told = {name: value for name, value in run.settings.to_json().items() if name not in _UNTOLD}
    told["data_options"] = telling_data_options(run.settings)
    return json.dumps([run.settings.model, data_name(run), told], sort_keys=True)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """The model's name, and what it does otherwise than the other runs of that model on the same data.

    Runs that differ in their seed only share a label; runs with one label that differ otherwise get their folders'.
    """
    labels = [_label(run, [other for other in runs if _subject(other) == _subject(run)]) for run in runs]
    experiments: dict[tuple[str, str], set[str]] = {}
    for label, run in zip(labels, runs, strict=True):
        experiments.setdefault((label, data_name(run)), set()).add(same_but_for_the_seed(run))
    return [
        run.name if len(experiments[label, data_name(run)]) > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]


def _subject(run: Run) -> tuple[str, str]:
    return run.settings.model, data_name(run)


def _label(run: Run, alike: Sequence[Run]) -> str:
    told = [_told(one.settings) for one in alike]
    own = _told(run.settings)
    names = list(dict.fromkeys(name for values in told for name in values))
    different = [name for name in names if len({json.dumps(values.get(name)) for values in told}) > 1]
    parts = [_part(name, own[name]) for name in different if name in own]
    return ", ".join([run.settings.model, *parts])


def _told(settings: TrainSettings) -> dict[str, Any]:
    """What is not as by default, with the options of the model and of the data among the others."""
    values = {**settings.model_options, **telling_data_options(settings)}
    for field in dataclasses.fields(TrainSettings):
        value = getattr(settings, field.name)
        if field.name in (*_UNTOLD, "model_options", "data_options") or value == field.default:
            continue
        values[field.name] = value
    return values


def _part(name: str, value: Any) -> str:
    if name == "rotation":
        return f"turned by up to {value:g}°"
    if value is True:
        return name.replace("_", " ")
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"{name}={shown}" if isinstance(value, Mapping) else f"{name.replace('_', ' ')} {shown}"


def unique(labels: Sequence[str], fallback: Sequence[str]) -> list[str]:
    """The labels, but the fallback for those that occur more than once."""
    counts = Counter(labels)
    return [label if counts[label] == 1 else other for label, other in zip(labels, fallback, strict=True)]
