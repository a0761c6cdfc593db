"""From a list of files to a data set: read, drop what is broken, split."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringconv._progress import Progress
from ringconv.data.dataset import Chosen, DataSet, Rows, Split, Task
from ringconv.data.decode import (
    TIFFS,
    VOLUMES,
    Bands,
    Decoder,
    Item,
    Mask,
    Picture,
    Volume,
    bits_of,
    has_bands,
    stored_sides,
    stored_type,
    suffix,
)
from ringconv.data.files import Faults, all_tried, read_files
from ringconv.data.known import known_statistics
from ringconv.data.options import DataOptions
from ringconv.data.scales import scale_of
from ringconv.data.splits import draw_per_class, hold_out, with_validation

_NAMED = 10
"""Files or classes that a message lists; of the others it gives the number."""


@dataclass(frozen=True)
class Record:
    """One image and what is known about it."""

    item: Item
    label: int = 0
    """Class number; of a segmentation, what its splits are balanced by."""
    mask: Item | None = None
    group: str | None = None
    split: str | None = None
    """Where the set says so."""


def assemble(
    name: str,
    records: Sequence[Record],
    classes: Sequence[str],
    options: DataOptions,
    progress: Progress,
    *,
    decoder: Decoder | None = None,
    mask_decoder: Decoder | None = None,
    grouped: bool = True,
) -> DataSet:
    """Read the files and make the splits that ``options`` ask for.

    Args:
        decoder: default by the files' suffixes.
        grouped: what ``options.grouped`` stands for if it is None.
    """
    if not records:
        raise ValueError(f"{name} has no images")
    task: Task = "segment" if records[0].mask is not None else "classify"
    filled = {record.label for record in records}
    trained = {record.label for record in records if record.split == "train"} or filled
    notes = [] if task == "segment" else class_notes(name, filled, trained, classes, options)
    decoder = decoder or decoder_for([record.item for record in records], options)
    images, faults = read_files(name, [record.item for record in records], decoder, options, progress)
    targets: Rows = np.array([record.label for record in records], np.int64)
    if task == "segment":
        masks = [record.mask for record in records if record.mask is not None]
        if mask_decoder is None:
            mask_decoder = _mask_decoder_for(decoder, masks, len(classes))
        targets, mask_faults = read_files(f"{name} masks", masks, mask_decoder, options, progress)
        faults |= mask_faults
        if getattr(decoder, "size", None) is not None and getattr(decoder, "spacing", None) is None:
            faults |= _misfits(records, [row for row in range(len(records)) if row not in faults])
    notes += _fault_notes(records, faults, options)

    groups = _groups(records)
    good = np.array([row for row in range(len(records)) if row not in faults], np.int64)
    whole = Split(images, targets, decoder.dimensions, scale_of(Chosen(images, good)), groups)
    keeps_groups = grouped if options.grouped is None else options.grouped
    rows = split_rows([records[row] for row in good], options, keeps_groups)
    splits = {split: whole.take(good[chosen]) for split, chosen in rows.items()}
    splits = with_validation(splits, options.validation, options.seed, keeps_groups)
    mean, std = known_statistics(name, whole.channels) or ((), ())
    spacing = _common_spacing(name, [records[row].item for row in good], decoder)
    drawn = options.per_class is None and not any(record.split for record in records)
    return DataSet(name, task, tuple(classes), splits, mean, std, spacing, tuple(notes), drawn)


def decoder_for(items: Sequence[Item], options: DataOptions) -> Decoder:
    """How such files are read: by their suffixes, and for TIFFs and deep pictures by what is in them."""
    volumes = [item.path for item in items if suffix(item.path) in VOLUMES]
    if volumes:
        _check_one_kind(volumes, items, "a volume")
        return Volume(options.sides(3), options.spacing, options.fit, dtype=_common_type(items))
    # Damaged files are named later, whatever the others are.
    maybe = [path for path in (item.path for item in items) if suffix(path) in TIFFS or bits_of(path) != 8]
    with_bands = next((path for path in maybe if has_bands(path)), None)
    if with_bands is not None:
        _check_one_kind(maybe, items, f"a TIFF of several bands, or a picture of more than 8 bits ({with_bands})")
        return Bands(options.sides(2), options.fit)
    return Picture(options.sides(2), options.fit, options.grey)


def _check_one_kind(found: Sequence[Path], items: Sequence[Item], what: str) -> None:
    """Each kind is read, and scaled, in a way of its own: a network could tell them apart by that."""
    if len(found) < len(items):
        other = next(item.path for item in items if item.path not in set(found))
        raise ValueError(
            f"{len(found)} of {len(items)} files are like {what}, and {other} is not: store all as one kind"
        )


def _common_type(items: Sequence[Item]) -> str | None:
    """What holds the numbers of all volumes; None if they have one type anyway."""
    types = {found for found in all_tried(stored_type, items) if not isinstance(found, Exception)}
    if len(types) < 2:
        return None
    common = np.result_type(*types)
    return str(np.dtype(np.float32) if common.kind == "f" else common)


def _mask_decoder_for(decoder: Decoder, masks: Sequence[Item], classes: int) -> Decoder:
    if isinstance(decoder, Volume):
        return replace(decoder, is_mask=True, binary=classes == 2, dtype=_common_type(masks))
    return Mask(getattr(decoder, "size", None), getattr(decoder, "fit", "squash"), classes)


def _misfits(records: Sequence[Record], rows: Sequence[int]) -> Faults:
    """Masks of other proportions than their images: brought to one size, they would lie beside what they mark."""
    faults = {}
    for row in rows:
        image, mask = records[row].item, records[row].mask
        if mask is None or image.box is not None:
            continue
        # A mask may be coarser than its image, its sides rounded to whole pixels.
        sides, own = stored_sides(image), stored_sides(mask)
        off = [abs(own[0] * side - own_side * sides[0]) for side, own_side in zip(sides, own, strict=True)]
        if max(off) > max(sides):
            faults[row] = f"its mask has the size {own}, and the image {sides}"
    return faults


def split_rows(records: Sequence[Record], options: DataOptions, grouped: bool) -> dict[str, NDArray[np.int64]]:
    """Rows of each split: as the records say, or drawn; never through a group if ``grouped``."""
    labels = np.array([record.label for record in records])
    groups = _groups(records) if grouped else None
    given = np.array([record.split or "" for record in records])
    if not given.any():
        if options.per_class is not None:
            train, test = draw_per_class(labels, options.per_class, options.seed, groups)
        else:
            train, test = hold_out(labels, options.test, options.seed, groups)
        rows = {"train": train, "test": test}
    else:
        rows = {split: np.flatnonzero(given == split) for split in ("train", "val", "test")}
    return {split: chosen for split, chosen in rows.items() if len(chosen)}


def _groups(records: Sequence[Record]) -> NDArray[np.str_] | None:
    if all(record.group is None for record in records):
        return None
    # Without a group of its own, an image is one.
    return np.array([f"image {row}" if r.group is None else f"group {r.group}" for row, r in enumerate(records)])


def class_notes(
    name: str, filled: Collection[int], trained: Collection[int], classes: Sequence[object], options: DataOptions
) -> list[str]:
    """Classes without an image, and those that can only be answered wrongly because no image trains them.

    Args:
        filled, trained: numbers of the classes that have images, and images to train on.
        classes: their names, or numbers.
    """
    untrained = sorted(set(filled).difference(trained))
    notes = []
    for count, numbers, what in (
        (len(classes) - len(filled), (n for n in range(len(classes)) if n not in filled), "have no image"),
        (len(untrained), iter(untrained), "have images in other splits, but none to train on"),
    ):
        if count:
            titles = [str(classes[number]) for number in itertools.islice(numbers, _NAMED)]
            shown = ", ".join(titles + ([f"and {count - _NAMED} more"] if count > _NAMED else []))
            notes.append(f"{count} of {len(classes)} classes {what}: {shown}")
    if notes and options.faults == "refuse":
        raise ValueError(f"{name}: {'; '.join(notes)}; is the set complete? faults='skip' goes on")
    return notes


def _fault_notes(records: Sequence[Record], faults: Faults, options: DataOptions) -> list[str]:
    if not faults:
        return []
    files = list(dict.fromkeys(f"{records[row].item.path} ({fault})" for row, fault in sorted(faults.items())))
    shown = files[:_NAMED] + ([f"and {len(files) - _NAMED} more"] if len(files) > _NAMED else [])
    message = f"{len(faults)} of {len(records)} images cannot be read:\n  " + "\n  ".join(shown)
    if options.faults == "refuse":
        raise ValueError(f"{message}\nfaults='skip' leaves them out")
    return [message]


def _common_spacing(name: str, items: Sequence[Item], decoder: Decoder) -> tuple[float, ...] | None:
    if not isinstance(decoder, Volume) or not items:
        return None
    spacings = np.array([decoder.decoded_spacing(item) for item in items])
    first = spacings[0]
    other = np.flatnonzero((np.abs(spacings - first) > 0.01 * first).any(1))
    if len(other):
        one, another = (" x ".join(f"{step:g}" for step in spacings[row]) for row in (0, other[0]))
        raise ValueError(
            f"{name}: voxels differ in size, {one} in {items[0].path} and {another} in {items[other[0]].path}; give a"
            " spacing that all are resampled to"
        )
    return tuple(float(step) for step in first)
