"""The data of a checkpoint, read again as its training read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringconv._progress import Progress
from ringconv.data import DataSet, open_data
from ringconv.data.scales import check_unit, scale_as_trained
from ringconv.models.checkpoint import Preprocessing
from ringconv.training.runs import CONFIG, settings_of_config
from ringconv.training.settings import TrainSettings

_OF_SPLITS = {"test", "per_class", "validation", "seed", "groups", "grouped", "faults", "layout", "root"}
"""Options that change which images a split has."""
_OF_ONE_PLACE = ("root", "layout")
"""Options that say where and what one data set is, and nothing of any other."""


def reopen_data(
    checkpoint: Path,
    prepared: Preprocessing | None,
    data: str | None = None,
    given: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DataSet:
    """Data as the run of a checkpoint read it: the images it is tested on must not be among those it was trained on.

    The run's options are those in the config.json beside the checkpoint, if there is one. They count for other data
    too, since the same images may have another path by now.

    Args:
        prepared: of the checkpoint; gives the size of images and how they get to it.
        data: path or name; default what the run was trained on.
        given: options of :func:`ringconv.data.open_data` that win over the run's; None is an option's own default.
    """
    config = _read_config(checkpoint)
    settings = None if config is None else settings_of_config(config)
    if data is None:
        if settings is None:
            raise ValueError(f"say which data to take: there is no {CONFIG} of a run beside {checkpoint}")
        data = settings.data
    given = given or {}
    of_run = {} if settings is None else _options_of(settings, data)
    # A share to test on stands for the number to train on, which would win over it.
    replaced = {*given, "per_class"} if "test" in given else set(given)
    of_run = {name: value for name, value in of_run.items() if name not in replaced}
    options: dict[str, Any] = {} if prepared is None else {"size": prepared.size, "fit": prepared.fit}
    options = {name: value for name, value in {**options, **of_run, **given}.items() if value is not None}
    try:
        opened = open_data(data, progress=progress, **options)
    except TypeError as error:  # what Python calls a wrong argument is a wrong option here
        raise ValueError(f"{data} cannot be read with the options {options}: {error}") from error
    if prepared is not None and prepared.scale is not None:
        opened = _scaled_as_trained(opened, prepared)
    if config is not None and settings is not None and _is_same_place(data, settings.data):
        if opened.drawn and given.get("test") == 1:
            raise ValueError(f"{data} is what the network was trained on: test=1 would test it on its training images")
        opened = opened if _OF_SPLITS & set(given) else _compared_with(opened, config, settings)
    elif opened.drawn and "test" not in given:
        opened = _with_note_on_what_is_drawn(opened)
    if not of_run:
        return opened
    said = ", ".join(f"{name}={json.dumps(value)}" for name, value in of_run.items())
    return replace(opened, notes=(*opened.notes, f"read as in training, with {said}"))


def _options_of(settings: TrainSettings, data: str) -> dict[str, Any]:
    """What a run's options say of how this data is read."""
    options = {**({"validation": settings.validation} if settings.validation else {}), **settings.data_options}
    if _name(data) == _name(settings.data):
        return options
    return {name: value for name, value in options.items() if name not in _OF_ONE_PLACE}


def _scaled_as_trained(data: DataSet, prepared: Preprocessing) -> DataSet:
    splits = {}
    for name, split in data.splits.items():
        try:
            check_unit(split.images, prepared.scale)
            scale = scale_as_trained(split.images.dtype, split.scale, prepared.scale, prepared.mean, prepared.std)
        except ValueError as error:
            raise ValueError(f"{data.name}: {error}") from error
        splits[name] = replace(split, scale=scale)
    return replace(data, splits=splits)


def _compared_with(data: DataSet, config: Mapping[str, Any], settings: TrainSettings) -> DataSet:
    """With a note if it is not what the run was trained on any more: what was drawn then is not what is drawn now."""
    before = config.get("data", {}).get("images", {})
    most = {"train": settings.train_images, "test": settings.test_images}
    now = {name: min(len(split), most.get(name) or len(split)) for name, split in data.splits.items()}
    if not before or before == now:
        return data
    was, is_now = (", ".join(f"{name} {count:,}" for name, count in counts.items()) for counts in (before, now))
    note = (
        f"{data.name} has changed since training (images were {was} and are {is_now}): unless the set says itself what"
        " to test on, images that were trained on may be among those that are tested now"
    )
    return replace(data, notes=(*data.notes, note))


def _with_note_on_what_is_drawn(data: DataSet) -> DataSet:
    """Whether these are the images of the training under another path, only their owner can tell."""
    tested, images = len(data.splits.get("test", ())), sum(map(len, data.splits.values()))
    note = (
        f"{data.name} does not say what to test on: {tested:,} of its {images:,} images were drawn for that, as in"
        " training. If none of them was trained on, the data option test=1 tests all"
    )
    return replace(data, notes=(*data.notes, note))


def settings_beside(checkpoint: Path) -> TrainSettings | None:
    """Of the run that a checkpoint belongs to; None if it does not lie in the folder of one."""
    config = _read_config(checkpoint)
    return None if config is None else settings_of_config(config)


def _read_config(checkpoint: Path) -> dict[str, Any] | None:
    path = checkpoint.absolute().parent / CONFIG
    try:
        content = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    # Other programs have files of that name too.
    return content if isinstance(content, dict) and {"settings", "recipe", "parameters"} <= set(content) else None


def with_classes_of(names: Sequence[str], data: DataSet) -> DataSet:
    """With the class numbers that a checkpoint has for its class names; refuses data of other classes. Some that the
    checkpoint knows may not be there."""
    names = tuple(names)
    if not names or data.task != "classify" or names == data.classes:
        return data
    strange = [title for title in data.classes if title not in names]
    missing = [title for title in names if title not in data.classes]
    numbers = tuple(map(str, range(len(names))))
    if strange and len(names) == len(data.classes) and numbers in (names, data.classes):
        which = "the checkpoint" if names == numbers else data.name
        note = f"{which} has numbers for classes instead of names, which are taken in their order"
        return replace(data, notes=(*data.notes, note))
    if strange:
        instead = f"{', '.join(missing)} instead" if missing else f"{', '.join(names)} only"
        raise ValueError(
            f"{data.name} has the classes {', '.join(strange)} that the checkpoint does not know; it knows {instead}:"
            " name them as in training"
        )
    number = np.array([names.index(title) for title in data.classes])
    splits = {name: replace(split, targets=number[split.labels]) for name, split in data.splits.items()}
    notes = (f"{data.name} has no images of {', '.join(missing)}, which the checkpoint knows too",) if missing else ()
    return replace(data, classes=names, splits=splits, notes=(*data.notes, *notes))


def _is_same_place(data: str, other: str) -> bool:
    return data == other or Path(data).expanduser().resolve() == Path(other).expanduser().resolve()


def _name(data: str) -> str:
    return Path(data).expanduser().resolve().stem
