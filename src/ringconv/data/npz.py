"""One npz in the layout of MedMNIST: pictures, volumes, or pictures with masks."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringconv.data import cache
from ringconv.data.assemble import class_notes
from ringconv.data.dataset import DataSet, Rows, Split, Task
from ringconv.data.known import known_statistics
from ringconv.data.masks import with_class_numbers
from ringconv.data.options import DataOptions
from ringconv.data.scales import scale_of
from ringconv.data.splits import check_groups, with_validation

_MOST_CHANNELS = 16
"""A side of more than these is hardly meant to be channels."""


def load_npz(path: Path, options: DataOptions) -> DataSet:
    """``{train,val,test}_images`` uint8 (N, H, W), (N, H, W, C), (N, D, H, W) or (N, D, H, W, C), with ``..._labels``
    (N,) or (N, 1), or ``..._masks`` (N, *S). Optionally ``..._groups`` (N,), ``class_names`` and ``spacing``.

    The arrays are unpacked once into the cache and memory-mapped from there.
    """
    folder = cache.stored(path.stem, cache.key_of([path]), lambda folder: _unpack(path, folder), options.cache_folder)
    arrays = {file.stem: _array(path, file) for file in folder.glob("*.npy")}
    names = [name for name in ("train", "val", "test") if f"{name}_images" in arrays]
    if not names:
        raise ValueError(f"{path} has no train_images, val_images or test_images; it has {sorted(arrays)}")
    types = {name: arrays[f"{name}_images"].dtype.newbyteorder("=") for name in names}
    if len(set(types.values())) > 1:
        said = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
        raise ValueError(f"{path} has images of several types ({said}), which have several scales: store them with one")
    scale = max(scale_of(arrays[f"{name}_images"]) for name in names)
    splits = {name: _split(path, name, arrays, scale) for name in names}
    grouped = {name: split.groups for name, split in splits.items() if split.groups is not None}
    check_groups(path, ((str(group), name) for name, groups in grouped.items() for group in np.unique(groups)))
    task: Task = "segment" if f"{names[0]}_masks" in arrays else "classify"
    classes = tuple(map(str, arrays["class_names"])) if "class_names" in arrays else ()
    notes = _notes_on(next(iter(splits.values())).images.shape[1:])
    if task == "segment":
        classes, splits, more = with_class_numbers(path, splits, classes, options)
        notes += more
    else:
        classes, more = _classes(path, splits, classes, options)
        notes += more
    splits = with_validation(splits, options.validation, options.seed)
    if not splits:
        raise ValueError(f"{path} has no image in {', '.join(names)}")
    spacing = tuple(map(float, arrays["spacing"])) if "spacing" in arrays else None
    mean, std = known_statistics(path.stem, next(iter(splits.values())).channels) or ((), ())
    return DataSet(path.stem, task, classes, splits, mean, std, spacing, notes)


def _unpack(path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if Path(entry.filename).name != entry.filename or "\\" in entry.filename:
                    raise ValueError(f"{path} has the entry {entry.filename!r}; an npz has no folders")
                with archive.open(entry) as source, (folder / entry.filename).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path} is not a complete npz: {error}") from error


def _array(path: Path, file: Path) -> NDArray[Any]:
    try:
        # Arrays of objects would be pickles, and are refused.
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path}: {file.stem} is not an array of numbers or text: {error}") from error
    return array


def _split(path: Path, name: str, arrays: dict[str, NDArray[Any]], scale: float) -> Split:
    images: Rows = arrays[f"{name}_images"]
    if images.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {name}_images must be real numbers, got {images.dtype}")
    masks = arrays.get(f"{name}_masks")
    groups = arrays.get(f"{name}_groups")
    groups_as_text = None if groups is None else np.asarray(groups).astype(str).reshape(-1)
    dimensions = _dimensions(path, images.shape)
    if masks is not None:
        return Split(images, masks, dimensions, scale, groups_as_text)
    if f"{name}_labels" not in arrays:
        raise ValueError(f"{path} has {name}_images, but neither {name}_labels nor {name}_masks")
    labels = np.asarray(arrays[f"{name}_labels"])
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise ValueError(f"{path}: {name}_labels has {labels.shape[1]} labels per image; one is expected")
    numbers = _class_numbers(f"{path}: {name}_labels", labels.reshape(-1))
    return Split(images, numbers, dimensions, scale, groups_as_text)


def _class_numbers(where: str, labels: NDArray[Any]) -> NDArray[np.int64]:
    if labels.dtype.kind in "biu":
        return labels.astype(np.int64)
    whole = np.zeros(len(labels), bool)
    if labels.dtype.kind == "f":
        whole = np.isfinite(labels) & (labels == np.round(labels))
    wrong = np.flatnonzero(~whole)
    if len(wrong):
        raise ValueError(
            f"{where} must be class numbers, 0, 1, 2 and so on, got {labels[wrong[0]]!s} ({labels.dtype}) at row"
            f" {wrong[0]}; their names belong in class_names"
        )
    return labels.astype(np.int64)


def _classes(
    path: Path, splits: Mapping[str, Split], names: tuple[str, ...], options: DataOptions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the classes, which are their numbers if the file has no names, and notes on those without images."""
    found = {name: set(np.unique(split.targets[:]).tolist()) for name, split in splits.items()}
    filled = {label for labels in found.values() for label in labels}
    numbers = range(len(names) or max(filled, default=0) + 1)
    if any(label not in numbers for label in filled):
        return names or tuple(map(str, numbers)), ()  # which the data set refuses
    trained = found.get("train") or filled
    # What is only tested on may lack classes that the network knows; its numbers are not to be closed up for that.
    checked = options if found.get("train") else replace(options, faults="skip")
    notes = class_notes(path.stem, filled, trained, names or numbers, checked)
    return names or tuple(map(str, numbers)), tuple(notes)


def _dimensions(path: Path, shape: tuple[int, ...]) -> int:
    """Of four axes, a last one of up to 4 is channels: (N, H, W, 3) is pictures, (N, D, H, W) is volumes."""
    if len(shape) not in (3, 4, 5):
        raise ValueError(f"{path}: images must have 3 to 5 axes, got the shape {tuple(shape)}")
    return 3 if len(shape) == 5 or (len(shape) == 4 and shape[-1] > 4) else 2


def _notes_on(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Volumes (D, H, W) that may be pictures: one side is short, and the other two are alike."""
    if len(shape) != 3 or shape[-1] <= 4:
        return ()
    short, *others = sorted(shape)
    if short > _MOST_CHANNELS or short == others[0] or others[0] != others[1]:
        return ()
    return (
        f"images of the shape {tuple(shape)} are read as volumes (D, H, W) of one channel: an axis for the channel,"
        " images[..., None], says so itself; pictures of up to 4 channels must have them last",
    )
