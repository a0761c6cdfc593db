"""What the runs of a study found: one small JSON file per run, which the repository keeps and the page is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ringconv._files import write_whole
from ringconv._turned import Turning
from ringconv.data import DataSet
from ringconv.evaluation import EvaluationSettings, evaluate
from ringconv.models.checkpoint import load_model
from ringconv.recipes.filling import HARMLESS
from ringconv.recipes.study import Study, Trial
from ringconv.training import Run, Watch
from ringconv.training.compare_runs import train_in
from ringconv.training.runs import CONFIG, ENVIRONMENT, MODEL, read_run
from ringconv.training.settings import TrainSettings
from ringconv.training.setup import prepare_data

_LISTED = (".npz", "")
"""Endings of data in a folder: a file in the layout of MedMNIST, or a folder of that name."""


@dataclass(frozen=True)
class Evidence:
    """What one run found. Scores are in percent."""

    study: str
    trial: str
    seed: int
    settings: Mapping[str, Any]
    parameters: int
    split: str
    images: int
    scores: Mapping[str, Mapping[str, Any]]
    """By metric: upright, rotated_mean, rotated_std, reflected_mean, per_turn, ..."""
    train_score: Mapping[str, float]
    """Loss and score on the training images in the last epoch."""
    epochs: int
    train_seconds: float
    peak_bytes: int | None
    """Most memory that the process had."""
    processor: str
    threads: int
    versions: Mapping[str, str]
    large_pages: bool = False
    """Whether torch asked the system for large pages of memory, of which it holds more."""

    @property
    def file_name(self) -> str:
        return f"{self.trial}-seed{self.seed}.json"


def run_trial(
    study: Study, trial: Trial, seed: int, *, data: Path, runs: Path, results: Path, watch: Watch | None = None
) -> Evidence:
    """Train, test and keep what was found. What is there already is read, and a run that was stopped goes on.

    Args:
        data: folder with the study's data.
        runs: folder that gets the run's own folder.
        results: folder that gets the small file, in a folder of the study's name.

    Raises:
        ValueError: a file or run of that name is of other settings, or the data has nothing to test on.
    """
    watch = watch or Watch()
    settings = trial.seeded(seed)
    path = results / study.name / f"{trial.name}-seed{seed}.json"
    if path.exists():
        earlier = read_evidence(path)
        _check_same(path, earlier.settings, settings)
        return earlier
    here = replace(settings, data=str(_find(data, study.data).resolve()))
    folder = runs / f"{study.name}-{trial.name}-seed{seed}"
    if (folder / CONFIG).is_file():
        _check_same(folder, read_run(folder).settings.to_json(), settings)
    ready = prepare_data(here, progress=watch.testing)
    if not len(ready.splits.get(study.split, ())):
        raise ValueError(f"{here.data} has no {study.split} images; its splits are {', '.join(ready.splits)}")
    run = train_in(folder, here, f"{trial.label}, seed {seed}", watch, ready)
    found = _evidence(study, trial, run, settings.to_json(), ready, watch)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(found), indent=1) + "\n")
    return found


def read_evidence(path: Path) -> Evidence:
    """What one run found.

    Raises:
        ValueError: the file is not one that :func:`run_trial` writes.
    """
    try:
        found = Evidence(**json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not what a run of a study leaves: {error}; move it away") from error
    if path.name != found.file_name:
        raise ValueError(f"{path} holds what belongs into {found.file_name}; move it away")
    return found


def all_evidence(results: Path, study: Study) -> dict[str, list[Evidence]]:
    """By the names of the study's rows, in order of their seeds; files of rows that it no longer has are left out.

    Raises:
        ValueError: a file cannot be read, or is of other settings than its row.
    """
    trials = {trial.name: trial for trial in study.trials}
    found: dict[str, list[Evidence]] = {name: [] for name in trials}
    for path in sorted((results / study.name).glob("*.json")):
        one = read_evidence(path)
        if one.trial not in trials:
            continue
        _check_same(path, one.settings, trials[one.trial].seeded(one.seed))
        if (one.study, one.split) != (study.name, study.split):
            raise ValueError(
                f"{path} is of {one.study}, on {one.split} images; {study.name} is on {study.split} images"
            )
        found[one.trial].append(one)
    return {name: sorted(rows, key=lambda one: one.seed) for name, rows in found.items()}


def _find(folder: Path, name: str) -> Path:
    for ending in _LISTED:
        if (path := folder / f"{name}{ending}").exists():
            return path
    raise FileNotFoundError(f"{folder} must hold {name}.npz, or a folder {name}")


def _check_same(path: Path, found: Mapping[str, Any], asked: TrainSettings) -> None:
    """The folder of the data may differ, and what makes no other training."""
    try:
        # What an earlier version did not know yet was as by default.
        was, now = (_telling(settings) for settings in (TrainSettings.from_json(found), asked))
    except ValueError as error:
        raise ValueError(f"{path} has settings that are not known: {error}; move it away") from error
    differing = ", ".join(f"{name}={was[name]!r}" for name in now if was[name] != now[name])
    if differing:
        raise ValueError(f"{path} is of other settings ({differing}); move it away to run this row again")


def _telling(settings: TrainSettings) -> dict[str, Any]:
    harmless = set(HARMLESS) - {"seed", "final_test", *(("validate_every",) if settings.keep == "best" else ())}
    values = {name: value for name, value in settings.to_json().items() if name not in harmless}
    return {**values, "data": Path(settings.data).name.removesuffix(".npz")}


def _evidence(
    study: Study, trial: Trial, run: Run, settings: Mapping[str, Any], data: DataSet, watch: Watch
) -> Evidence:
    assert run.results is not None
    evaluation = run.results["evaluation"]
    if study.split != "test":
        network = load_model(run.folder / MODEL)
        how = EvaluationSettings(Turning(padding=run.settings.beyond_frame), batch_size=run.settings.batch_size)
        evaluation = evaluate(network, data, how, split=study.split, progress=watch.testing).as_dict()
    environment = json.loads((run.folder / ENVIRONMENT).read_text("utf-8"))
    return Evidence(
        study=study.name,
        trial=trial.name,
        seed=run.settings.seed,
        settings=settings,
        parameters=run.parameters,
        split=evaluation["split"],
        images=evaluation["images"],
        scores=evaluation["scores"],
        train_score=run.results["train"],
        epochs=run.results["epochs"],
        train_seconds=run.results["train_seconds"],
        peak_bytes=run.results.get("peak_memory_bytes"),
        processor=environment["processor"],
        threads=environment["threads"],
        versions={name: environment["versions"][name] for name in ("ringconv", "torch")},
        large_pages=environment.get("large_pages", False),
    )
