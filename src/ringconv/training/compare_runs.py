"""Several models trained and tested on the same data, each a run of its own, in one folder."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ringconv._extras import needs
from ringconv._files import write_whole
from ringconv._machine import forget_peak
from ringconv.data import DataSet
from ringconv.models.registry import model_entry
from ringconv.training.runs import CONFIG, Run, folder_name, locked, new_folder, read_run
from ringconv.training.settings import TrainSettings
from ringconv.training.setup import build_network, check_classes, has_test_images
from ringconv.training.train import (
    TrainingDivergedError,
    TrainingInterruptedError,
    TrainingStoppedError,
    Watch,
    resume,
    train,
)

PLAN = "compare.json"
"""In the folder of a comparison: what was asked for."""


@dataclass(frozen=True)
class ModelsCompared:
    """What a comparison left."""

    folder: Path
    runs: tuple[Run, ...]
    """Finished ones, in the order of the models."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Models whose training could not go on, and why."""


def check_models(models: Mapping[str, TrainSettings], data: DataSet) -> None:
    """Raise ValueError or MissingExtraError if one of the models cannot be trained on this data, before any is."""
    if not has_test_images(data):
        raise ValueError(f"{data.name} has nothing to test on; its splits are {', '.join(data.splits)}")
    check_classes(data)
    for settings in models.values():
        extra = model_entry(settings.model).extra
        if extra is not None:
            needs(extra, extra)  # some of these take minutes to build
            continue
        with torch.random.fork_rng(devices=[]):
            build_network(settings, data)


def compare_models(
    models: Mapping[str, TrainSettings],
    *,
    out: Path = Path("runs"),
    go_on: bool = False,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> ModelsCompared:
    """Train and test every model; the folder ``out/compare-<data>-<time>`` gets a run for each.

    Args:
        models: what to call each model, and its settings; all are of the same data.
        go_on: with the last comparison in ``out`` that was asked for the same: models that are finished stay as they
            are, the others go on from their last checkpoint. If there is none, a new one begins.
        about: what else to remember, such as the scale.
        watch: told how it goes.

    Raises:
        TrainingInterruptedError: by Ctrl-C or SIGTERM, after a checkpoint.
        TrainingStoppedError: the disk is full, or no model could be trained to the end. A model whose loss is not
            finite does not stop the others.
    """
    watch = watch or Watch()
    names = {label: folder_name(label) for label in models}
    if len(set(names.values())) < len(names):
        raise ValueError(f"every model needs a name of its own, got {', '.join(models)}")
    folder = _earlier(out, models) if go_on else None
    if folder is None:
        if go_on:
            watch.note(f"There is no comparison in {out} that was asked for the same: a new one begins.")
        folder = _begin(out, models, about or {})
    else:
        watch.note(f"Going on in {folder}.")
    runs, failed = [], dict[str, str]()
    for number, (label, settings) in enumerate(models.items(), 1):
        try:
            run = train_in(folder / names[label], settings, f"{label} ({number} of {len(models)})", watch)
        except (TrainingInterruptedError, KeyboardInterrupt) as error:
            raise TrainingInterruptedError(
                f"stopped while training {label}; to go on, give the same command with --resume"
            ) from error
        except TrainingDivergedError as error:
            failed[label] = str(error)
            watch.note(f"{label} cannot go on: {error}")
            continue
        runs.append(run)
    if not runs:
        raise TrainingStoppedError(f"no model could be trained to the end; see {folder}")
    return ModelsCompared(folder, tuple(runs), failed)


def train_in(folder: Path, settings: TrainSettings, title: str, watch: Watch, data: DataSet | None = None) -> Run:
    """Train in this folder, or go on with what is in it; a finished run is returned as it is.

    Args:
        data: ready data, instead of what the settings name, or those of the run that goes on.

    Raises:
        RunIsBusyError: another process trains in it.
    """
    if (folder / CONFIG).is_file():
        run = read_run(folder)
        watch.note(f"{title}: {'finished already' if run.results is not None else 'goes on'}")
        forget_peak()
        return resume(folder, data=data, watch=watch)
    if folder.exists():
        with locked(folder):  # stopped before it had its configuration: nothing is lost
            shutil.rmtree(folder)
    watch.note(title)
    forget_peak()
    return train(settings, out=folder.parent, name=folder.name, data=data, watch=watch)


def _begin(out: Path, models: Mapping[str, TrainSettings], about: Mapping[str, Any]) -> Path:
    data = Path(next(iter(models.values())).data).stem
    folder = new_folder(out, f"compare-{data}-{time.strftime('%Y%m%d-%H%M%S')}")
    write_whole(folder / PLAN, json.dumps({"models": _asked(models), "command": sys.argv, **about}, indent=2) + "\n")
    return folder


def _earlier(out: Path, models: Mapping[str, TrainSettings]) -> Path | None:
    """The latest folder of a comparison that was asked for the same."""
    asked = _asked(models)
    found = sorted(out.glob(f"*/{PLAN}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((path.parent for path in found if read_plan(path.parent).get("models") == asked), None)


def read_plan(folder: Path) -> dict[str, Any]:
    """What the comparison in a folder was asked for; empty if it does not say."""
    try:
        plan = json.loads((folder / PLAN).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def _asked(models: Mapping[str, TrainSettings]) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(json.dumps({label: settings.to_json() for label, settings in models.items()}))
    return asked
