"""The folders that runs leave."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ringconv._files import write_whole
from ringconv._machine import processor
from ringconv._version import __version__
from ringconv.models.checkpoint import options_of_format_1
from ringconv.training.logs import read_log
from ringconv.training.settings import TrainSettings

CONFIG, ENVIRONMENT, RESULTS = "config.json", "environment.json", "results.json"
PER_ANGLE, PICTURE, MODEL, CHECKPOINTS = "per_angle.csv", "picture.png", "model.safetensors", "checkpoints"
FORMAT = 2
"""Of the configuration. It was not written while the paper's form of the rings was the default."""
_LOCK = ".lock"
_PACKAGES = ("lightning-fabric", "torchvision", "timm", "safetensors", "scipy")

State = Literal["finished", "running", "stopped"]


class RunIsBusyError(RuntimeError):
    """Two processes must not train in one folder."""


@dataclass(frozen=True)
class Run:
    """What a run's folder says."""

    folder: Path
    settings: TrainSettings
    recipe: str | None
    parameters: int
    results: Mapping[str, Any] | None
    """None until it is finished."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Name, task, classes, number and size of the images, and notes."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> State:
        if self.results is not None:
            return "finished"
        return "running" if _is_locked(self.folder) else "stopped"

    def log(self, kind: str | None = None) -> list[dict[str, Any]]:
        return read_log(self.folder, kind)

    @property
    def epochs_done(self) -> int:
        return max((line["epoch"] for line in self.log("epoch")), default=0)

    @property
    def scores(self) -> Mapping[str, Mapping[str, Any]]:
        """What the final test found, by metric, the main one first; empty if there was none."""
        evaluation = (self.results or {}).get("evaluation") or {}
        found: Mapping[str, Mapping[str, Any]] = evaluation.get("scores", {})
        return {name: found[name] for name in ("accuracy", "dice", "iou", "auc") if name in found}

    def cost(self, name: str) -> float | None:
        """train_seconds, images_per_second, peak_memory_bytes or peak_gpu_memory_bytes; None where it is not known."""
        value = (self.results or {}).get(name)
        return None if value is None else float(value)


def new_run(out: Path, settings: TrainSettings, name: str | None, recipe: str | None, about: Mapping[str, Any]) -> Path:
    """Make a run's folder with its configuration and environment.

    Args:
        name: of the folder; default the data's, the model's and the time. An existing folder is refused.
        about: what else to put into the configuration, such as the number of parameters.
    """
    if name is None:
        data = Path(settings.data).stem
        folder = new_folder(out, f"{data}-{settings.model}-{time.strftime('%Y%m%d-%H%M%S')}")
    else:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
    config = {"format": FORMAT, "settings": settings.to_json(), "recipe": recipe, **about}
    with locked(folder):  # of two processes that were given one name, only one gets past this
        if any(path.name != _LOCK for path in folder.iterdir()):
            raise FileExistsError(f"{folder} exists already: give another name, or resume it")
        write_whole(folder / ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")
        write_whole(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    return folder


def new_folder(out: Path, name: str) -> Path:
    """Make a folder: of this name with all signs that folders might not take replaced, or with a number after it.

    Looking first which name is free would give one folder to two processes that look at the same time.
    """
    out.mkdir(parents=True, exist_ok=True)
    stem = folder_name(name)
    names: Iterator[str] = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    while True:
        folder = out / next(names)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder


def folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


def read_run(folder: Path) -> Run:
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not the folder of a run: it has no {CONFIG}")
    try:
        return _read(folder)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read, a newer version may have written it: {error}") from error


def _read(folder: Path) -> Run:
    config = json.loads((folder / CONFIG).read_text("utf-8"))
    results = folder / RESULTS
    return Run(
        folder,
        settings_of_config(config),
        config["recipe"],
        config["parameters"],
        json.loads(results.read_text("utf-8")) if results.is_file() else None,
        config.get("data", {}),
    )


def settings_of_config(config: Mapping[str, Any]) -> TrainSettings:
    """The settings in a run's configuration, as they were meant."""
    settings = TrainSettings.from_json(config["settings"])
    if "format" in config:
        return settings
    return replace(settings, model_options=options_of_format_1(settings.model, settings.model_options))


def list_runs(out: Path) -> list[Run]:
    """All runs in a folder and below it, the oldest first. One that cannot be read is left out, with a warning."""
    found = [path for path in out.rglob(CONFIG) if _is_ours(path)] if out.is_dir() else []
    runs = []
    for path in sorted(found, key=lambda path: path.stat().st_mtime):
        try:
            runs.append(read_run(path.parent))
        except ValueError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
    return runs


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs that these folders are, or have below them; each once, in the order of the folders."""
    found: dict[Path, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        below = [read_run(folder)] if (folder / CONFIG).is_file() else list_runs(folder)
        if not below:
            raise FileNotFoundError(f"there are no runs in {folder}; ringconv train and ringconv compare write some")
        found |= {run.folder.resolve(): run for run in below}
    if not found:
        raise ValueError("give the folder of a run, or a folder with runs in it")
    return list(found.values())


def _is_ours(config: Path) -> bool:
    """Other programs have files of that name too."""
    try:
        return {"settings", "recipe", "parameters"} <= set(json.loads(config.read_text("utf-8")))
    except (ValueError, TypeError):
        return False


def environment() -> dict[str, Any]:
    """What a run ran on."""
    versions = {"ringconv": __version__, "python": platform.python_version()}
    versions |= {"torch": torch.__version__, "numpy": np.__version__}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    cuda = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "versions": versions,
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "large_pages": os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
        "gpus": cuda,
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else trains in this folder meanwhile. The lock ends with the process, however that ends."""
    with _lock_file(folder, "a") as taken:
        if not taken:
            raise RunIsBusyError(f"another process is training in {folder}")
        yield


def _is_locked(folder: Path) -> bool:
    if not (folder / _LOCK).exists():
        return False
    with _lock_file(folder, "r") as taken:
        return not taken


@contextlib.contextmanager
def _lock_file(folder: Path, mode: Literal["a", "r"]) -> Iterator[bool]:
    """Whether the lock was free; if so it is held until the end. Where there are no such locks, it always is.

    Args:
        mode: "r" for whoever only looks, which may be several at a time, and in folders that they may not write to.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield True
        return
    with (folder / _LOCK).open(mode) as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if mode == "a" else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
