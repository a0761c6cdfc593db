"""Images in folders named by their class, or listed in a CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ringconv._progress import Progress
from ringconv.data.assemble import Record, assemble
from ringconv.data.dataset import DataSet
from ringconv.data.decode import SUFFIXES, Item, suffix
from ringconv.data.masks import classes_in_files
from ringconv.data.options import DataOptions, GroupOf
from ringconv.data.splits import check_groups

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""Names of folders, and values in a CSV, that mean a split."""

_FOLDERS_OF_IMAGES = {"image", "img", "photo", "picture", "input", "tissue image"}
_FOLDERS_OF_MASKS = {"mask", "label", "annotation", "segmentation", "groundtruth", "ground_truth", "gt", "target"}
"""Without the plural's s, of layouts for segmentation."""

_COLUMNS = {
    "path": ("path", "image", "file", "filename"),
    "label": ("label", "class", "target"),
    "mask": ("mask",),
    "group": ("group", "patient", "slide", "scene"),
    "split": ("split",),
}


def images_below(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """All images in a folder and its subfolders, sorted; hidden files and other types are passed over."""
    return sorted(path for path in _visible_files(folder) if suffix(path) in suffixes)


def class_folders(folder: Path) -> list[Path]:
    """The visible subfolders, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def split_folders(folder: Path) -> list[tuple[str, Path]]:
    """The splits and their folders, where the subfolders are called train, test and so on."""
    named = [path for path in class_folders(folder) if path.name.lower() in SPLIT_NAMES]
    others = [path for path in class_folders(folder) if path not in named and _some_image(path)]
    if named and others:
        if not any(is_class_folder(path) for path in named):
            return []  # "train" is a class here, beside "bus" and "car"
        raise ValueError(
            f"{folder} has {named[0].name}, which is called like a split and has folders of its own, beside"
            f" {', '.join(path.name for path in others[:5])}: is it a class or a split? Move or rename one of them, or"
            " list the images in a CSV"
        )
    return [(SPLIT_NAMES[path.name.lower()], path) for path in named]


def is_class_folder(folder: Path) -> bool:
    """Whether there are subfolders with images."""
    return folder.is_dir() and any(_some_image(path) for path in class_folders(folder))


def records_of_classes(
    folders: Iterable[tuple[str | None, Path]], group_of: GroupOf | None = None
) -> tuple[list[Record], list[str]]:
    """Images and class names of folders of class folders, each for a split or for none."""
    folders = list(folders)
    classes = sorted({path.name for _, folder in folders for path in class_folders(folder)})
    number = {title: index for index, title in enumerate(classes)}
    records = [
        Record(Item(path), number[title.name], None, group_of(path) if group_of else None, split)
        for split, folder in folders
        for title in class_folders(folder)
        for path in images_below(title)
    ]
    return records, classes


def load_folder(folder: Path, options: DataOptions, progress: Progress, name: str | None = None) -> DataSet:
    """``folder/class/*.jpg``, or ``folder/{train,val,test}/class/*.jpg``; images may lie deeper in their class."""
    parts: list[tuple[str | None, Path]] = [*split_folders(folder)] or [(None, folder)]
    records, classes = records_of_classes(parts, _group_function(options, folder))
    names = {title.lower().rstrip("s") for title in classes}
    if len(names) == 2 and names & _FOLDERS_OF_IMAGES and names & _FOLDERS_OF_MASKS:
        raise ValueError(
            f"{folder} has the folders {' and '.join(classes)}: are these images and their masks, and not two classes?"
            " List them in a CSV with the columns path and mask, and give that"
        )
    return assemble(name or folder.name, records, classes, options, progress)


def load_csv(path: Path, options: DataOptions, progress: Progress) -> DataSet:
    """A line per image, with paths relative to the CSV's folder.

    Columns, by the names in its first line: ``path``; ``label`` (a class's name) or ``mask`` (a path); and optionally
    ``group`` (or patient, slide, scene) and ``split`` (train, val or test).
    """
    header, rows = _read_csv(path)
    columns = _columns(path, header)
    labels = [_value(row, columns, "label") for row in rows]
    classes = sorted({label for label in labels if label}, key=_natural)
    if "label" in columns:
        number = {title: index for index, title in enumerate(classes)}
        unlabelled = [line for line, label in enumerate(labels, 2) if not label]
        if unlabelled:
            raise ValueError(f"{path}: no label in line {unlabelled[0]}, and in {len(unlabelled)} lines altogether")
        if "mask" not in columns:
            _check_no_measures(path, labels)
    records = []
    for line, (row, label) in enumerate(zip(rows, labels, strict=True), 2):
        for purpose in ("path", "mask"):
            if purpose in columns and not _value(row, columns, purpose):
                raise ValueError(f"{path}: line {line} has no {purpose}")
        image = path.parent / (_value(row, columns, "path") or "")
        mask = path.parent / (_value(row, columns, "mask") or "") if "mask" in columns else None
        for file_path in (image, mask):
            if file_path is not None and not file_path.is_file():
                raise FileNotFoundError(f"{path}, line {line}: there is no file {file_path}")
        split = _value(row, columns, "split")
        if split and split.lower() not in SPLIT_NAMES:
            raise ValueError(f"{path}, line {line}: the split must be of train, val and test, got {split!r}")
        records.append(
            Record(
                Item(image),
                number[label] if label else 0,
                Item(mask) if mask else None,
                _value(row, columns, "group"),
                SPLIT_NAMES[split.lower()] if split else None,
            )
        )
    if any(record.split for record in records) and not all(record.split for record in records):
        raise ValueError(f"{path}: some lines have a split and some have none")
    check_groups(path, ((record.group, record.split) for record in records))
    records, notes = _each_once(path, records)
    if "mask" in columns:
        masks = [record.mask for record in records if record.mask is not None]
        found, more = classes_in_files(path.stem, masks, options, progress)
        classes, notes = list(found), notes + more
    data = assemble(path.stem, records, classes, options, progress)
    return replace(data, notes=(*data.notes, *notes, *_unused(header, columns)))


def _unused(header: Sequence[str], columns: dict[str, str]) -> tuple[str, ...]:
    """A note on the columns that mean nothing here, one of which may say what belongs together."""
    names = [name.strip() for name in header if name.strip() and name not in columns.values()]
    if not names:
        return ()
    hint = "; one called group or patient would keep what belongs together in one split" * ("group" not in columns)
    return (f"columns that are not used: {', '.join(names)}{hint}",)


def _check_no_measures(path: Path, labels: Sequence[str | None]) -> None:
    """Raise ValueError for numbers of which some are not whole, which would be a class each."""
    try:
        numbers = [float(label or "") for label in labels]
    except ValueError:
        return  # names
    wrong = [row for row, number in enumerate(numbers) if not number.is_integer()]
    if wrong:
        raise ValueError(
            f"{path}: labels must be classes, and {labels[wrong[0]]!r} in line {wrong[0] + 2} is a measure; if classes"
            " are meant, give them names that are no numbers"
        )


def _each_once(path: Path, records: Sequence[Record]) -> tuple[list[Record], tuple[str, ...]]:
    """Each file once, which otherwise may be in training and in testing; with a note on what was dropped."""
    first: dict[Path, tuple[int, Record]] = {}
    for line, record in enumerate(records, 2):
        before, same = first.setdefault(record.item.path.resolve(), (line, record))
        for what in ("label", "mask", "group", "split"):
            if getattr(record, what) != getattr(same, what):
                raise ValueError(
                    f"{path}, line {line}: {record.item.path} is in line {before} too, with another {what}; list it"
                    " once"
                )
    dropped = len(records) - len(first)
    note = f"{dropped} of {len(records)} lines list a file that is in a line above, and are left out"
    return [record for _, record in first.values()], (note,) if dropped else ()


def _read_csv(path: Path) -> tuple[Sequence[str], list[dict[str, str]]]:
    """The names of the columns, and the lines below."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file)
        try:
            return lines.fieldnames or (), list(lines)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be UTF-8, which it is not ({error}): save it as such") from error


def _columns(path: Path, found: Sequence[str]) -> dict[str, str]:
    """What a column is for -> its name in this file."""
    by_name = {name.strip().lower(): name for name in found}
    columns = {
        purpose: by_name[name] for purpose, names in _COLUMNS.items() for name in reversed(names) if name in by_name
    }
    if "path" not in columns or not {"label", "mask"} & columns.keys():
        raise ValueError(f"{path} needs the columns path and label (or mask) in its first line, got {list(found)}")
    return columns


def _value(row: dict[str, str], columns: dict[str, str], purpose: str) -> str | None:
    return (row[columns[purpose]] or "").strip() or None if purpose in columns else None


def _natural(label: str) -> tuple[bool, float, str]:
    """Sorts 2 before 10, and numbers before names."""
    return (False, float(label), label) if label.isdecimal() else (True, 0.0, label)


def _group_function(options: DataOptions, folder: Path) -> Callable[[Path], str] | None:
    """From the file of groups that the options name, or the function that they are."""
    if options.groups is None or not isinstance(options.groups, Path):
        return options.groups
    header, rows = _read_csv(options.groups)
    if not {"path", "group"} <= set(header):
        raise ValueError(f"{options.groups} needs the columns path and group in its first line")
    groups = {(folder / row["path"]).resolve(): row["group"] for row in rows}

    def group_of(path: Path) -> str:
        if path.resolve() not in groups:
            raise ValueError(f"{options.groups} has no line for {path}; its paths are relative to {folder}")
        return groups[path.resolve()]

    return group_of


def _some_image(folder: Path) -> bool:
    return any(suffix(path) in SUFFIXES for path in _visible_files(folder))


def _visible_files(folder: Path) -> Iterator[Path]:
    """Those in a folder and its subfolders, also linked ones; each folder once, since links may lead in a circle."""
    top = folder.resolve()
    seen = {top}

    def is_new(subfolder: Path) -> bool:
        target = subfolder.resolve()
        # What a link into the folder shows is found anyway, and one to a folder around it shows other classes.
        leads_here = subfolder.is_symlink() and (target.is_relative_to(top) or top.is_relative_to(target))
        if target in seen or leads_here:
            return False
        seen.add(target)
        return True

    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in sorted(folders) if not name.startswith(".") and is_new(Path(parent, name))]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
