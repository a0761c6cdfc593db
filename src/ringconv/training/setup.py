"""From settings to the data and the network of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from ringconv._progress import Progress
from ringconv.data import LAYOUTS, DataSet, Split, data_root, find_data, open_data, stratified_subset
from ringconv.models.registry import create_model, model_entry
from ringconv.training.objective import loss_name, outputs
from ringconv.training.settings import TrainSettings

_TASKS = {"classify": "classification", "segment": "segmentation"}


_PATHS = ("root", "groups", "cache_folder")
"""Options of data that are paths, if they are text."""


def with_absolute_paths(settings: TrainSettings) -> TrainSettings:
    """Data that is named by its path, or found in the data folder, is found from other folders too, when the run goes
    on or is tested again. Published sets keep their name, by which they are found wherever they are."""
    options = dict(settings.data_options)
    for name in _PATHS:
        if isinstance(options.get(name), str | Path):
            options[name] = str(Path(options[name]).expanduser().resolve())
    data = settings.data
    if data not in (*LAYOUTS, "textures"):
        with contextlib.suppress(FileNotFoundError):  # which is reported where the data is read
            data = str(find_data(data, data_root(options.get("root"))).resolve())
    return replace(settings, data=data, data_options=options)


def prepare_data(settings: TrainSettings, data: DataSet | None = None, progress: Progress | None = None) -> DataSet:
    """The data that the settings name, or the given one, reduced to the number of images that they ask for."""
    if data is None:
        options = {"validation": settings.validation, **settings.data_options}
        with _wrong_options_are_wrong_settings():
            data = open_data(settings.data, size=settings.size, progress=progress, **options)
    if "train" not in data.splits or not len(data["train"]):
        raise ValueError(f"{data.name} has nothing to train on; its splits are {', '.join(data.splits)}")
    splits = dict(data.splits)
    for name, count in (("train", settings.train_images), ("test", settings.test_images)):
        if count is not None and name in splits:
            splits[name] = some_of(splits[name], count)
    return replace(data, splits=splits)


def check_data(settings: TrainSettings, data: DataSet) -> None:
    """Raise ValueError if the data lacks what the settings need."""
    check_classes(data)
    for name, split in data.splits.items():
        _check_masks(f"{data.name}, {name}", split, len(data.classes))
    if settings.keep == "best" and "val" not in data.splits:
        raise ValueError(f"keep='best' needs a validation split, and {data.name} has {', '.join(data.splits)}")
    if settings.rotated_every and not has_test_images(data):
        raise ValueError(
            f"rotated_every={settings.rotated_every} needs test images, and {data.name} has"
            f" {', '.join(data.splits)}: leave it out, or add a test split"
        )


def _check_masks(where: str, split: Split, classes: int) -> None:
    """A few masks: those who wrote 255 for 1 did so everywhere, and should not learn it at the test."""
    if split.labels is not None:
        return
    for row in range(0, len(split), max(1, len(split) // 16)):
        largest = int(np.max(split.targets[np.array([row])]))
        if largest >= classes:
            raise ValueError(
                f"{where}: masks must hold class numbers below {classes}, the number of classes, got {largest} in row"
                f" {row}"
            )


def check_classes(data: DataSet) -> None:
    if len(data.classes) < 2:
        raise ValueError(f"{data.name} has one class, {data.classes[0]!r}: there is nothing to tell apart")


def has_test_images(data: DataSet) -> bool:
    return "test" in data.splits and len(data["test"]) > 0


def some_of(split: Split, count: int, seed: int = 0) -> Split:
    """So many images, of every class in its proportion; all if there are not more. The seed is not the run's: runs are
    compared on the same images."""
    if count >= len(split):
        return split
    strata = np.zeros(len(split), np.int64) if split.labels is None else split.labels
    return split.take(stratified_subset(strata, count, seed))


def build_network(settings: TrainSettings, data: DataSet) -> nn.Module:
    """The network for this data, with the initial weights of torch's present seed."""
    entry = model_entry(settings.model)
    if entry.task != _TASKS[data.task]:
        raise ValueError(f"{settings.model} is for {entry.task}, and {data.name} is to {data.task}")
    if data.dimensions not in entry.dimensions:
        allowed = " or ".join(map(str, entry.dimensions))
        raise ValueError(f"{settings.model} takes {allowed} dimensions, and {data.name} has {data.dimensions}")
    options = dict(settings.model_options)
    if "dimensions" in entry.options:
        options.setdefault("dimensions", data.dimensions)
    classes = outputs(loss_name(settings, data), len(data.classes))
    with _wrong_options_are_wrong_settings():
        return create_model(settings.model, num_classes=classes, in_chans=data.channels, **options)


@contextlib.contextmanager
def _wrong_options_are_wrong_settings() -> Iterator[None]:
    """What Python calls a wrong type of argument is, for settings, a wrong value."""
    try:
        yield
    except TypeError as error:
        raise ValueError(str(error)) from error
