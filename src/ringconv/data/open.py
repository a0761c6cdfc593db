"""One door to all data."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ringconv._progress import Progress
from ringconv.data.dataset import DataSet, Split
from ringconv.data.decode import shown_part
from ringconv.data.fetch import extract, fetch
from ringconv.data.folders import is_class_folder, load_csv, load_folder, split_folders
from ringconv.data.layouts import LAYOUTS
from ringconv.data.npz import load_npz
from ringconv.data.options import DataOptions
from ringconv.data.splits import with_validation
from ringconv.data.textures import PHOTOGRAPHS, load_textures

_TEXTURES_PER_CLASS = {"train": 150, "test": 100}


def data_root(root: str | Path | None = None) -> Path:
    """Where names are looked up: the given folder, or the environment's RINGCONV_DATA, or ``data``."""
    return Path(root).expanduser() if root is not None else Path(os.environ.get("RINGCONV_DATA", "data"))


def open_data(
    where: str | Path,
    *,
    layout: str | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> DataSet:
    """A data set, by its path or its name.

    A path is an npz in the layout of MedMNIST, a CSV, a folder in one of the published layouts (see ``LAYOUTS``), a
    folder of class folders, or one of ``train`` and ``test`` folders of class folders. A name is one of ``LAYOUTS``, or
    of an npz or folder, below the data folder; or "textures", the photographs that come with scikit-image.

    Args:
        layout: read a folder as this published layout instead of looking what it is.
        root: the data folder; default the environment's RINGCONV_DATA, or ``data``.
        progress: told while files are read.
        options: the fields of :class:`DataOptions`.
    """
    known = [field.name for field in fields(DataOptions)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"data has no option {unknown[0]!r}; its options are {', '.join(known)}")
    chosen = DataOptions(**options)
    opened = _opened(where, layout, data_root(root), chosen, progress or (lambda stage, done, total: None))
    sides = chosen.sides(opened.dimensions)
    sizes = {name: split.size for name, split in opened.splits.items()}
    if sides is None and len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} {' x '.join(map(str, size))}" for name, size in sizes.items())
        raise ValueError(f"images must have one size, got {said}; give a size that all are brought to")
    if sides is None or set(sizes.values()) == {sides}:
        return opened
    # What comes as arrays has a size of its own.
    spacing = opened.spacing
    if spacing is not None:
        shown = shown_part(next(iter(opened.splits.values())).size, sides, chosen.fit)
        spacing = tuple(
            step * (part.stop - part.start) / after for step, part, after in zip(spacing, shown, sides, strict=True)
        )
    splits = {name: split.resized(sides, chosen.fit) for name, split in opened.splits.items()}
    return replace(opened, splits=splits, spacing=spacing)


def _opened(where: str | Path, layout: str | None, root: Path, chosen: DataOptions, report: Progress) -> DataSet:
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if str(where) == "textures":
        return _textures(chosen)
    path = find_data(where, root)
    if layout is None and str(where) in LAYOUTS and not path.is_file():
        layout = str(where)
    if layout is not None:
        base = LAYOUTS[layout].root(path)
        if base is None and layout == "mtarsi" and is_class_folder(path):
            base = path  # it is like any folder of class folders
        if base is None:
            raise FileNotFoundError(LAYOUTS[layout].missing(layout, path))
        return LAYOUTS[layout].load(base, chosen, report)
    if path.is_file():
        if path.suffix.lower() == ".npz":
            return load_npz(path, chosen)
        if path.suffix.lower() == ".csv":
            return load_csv(path, chosen, report)
        raise ValueError(f"a data file must be an npz or a csv, got {path}")
    for known in LAYOUTS.values():
        base = known.root(path)
        if base is not None:
            return known.load(base, chosen, report)
    if is_class_folder(path) or split_folders(path):
        return load_folder(path, chosen, report)
    raise ValueError(
        f"{path} is none of the known layouts ({', '.join(LAYOUTS)}), and has no class folders with images:"
        " 'ringconv data list' shows what each looks like"
    )


def check_outside(out: Path, where: str | Path) -> None:
    """Raise ValueError if what is written to ``out`` would be a class of the data the next time it is read."""
    folder = Path(where).expanduser()
    if not folder.is_dir() or any(known.root(folder) is not None for known in LAYOUTS.values()):
        return
    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"out must not be within the data folder {folder.resolve()}, where it would be taken for a class: give a"
            f" place outside of it instead of {out}"
        )


def fetch_data(name: str, root: str | Path | None = None, progress: Progress | None = None) -> Path:
    """Download and unpack a published set into the data folder, and return the folder. Archives are kept."""
    if name not in LAYOUTS:
        raise ValueError(f"the name must be one of {', '.join(LAYOUTS)}, got {name!r}")
    known, folder = LAYOUTS[name], data_root(root)
    if not known.downloads:
        raise ValueError(f"{known.title} cannot be fetched by a program; get it from {known.source}")
    for download in known.downloads:
        archive = fetch(download.url, folder / "downloads" / download.name, download.md5, progress)
        extract(archive, folder / download.folder)
    return folder


def find_data(where: str | Path, root: Path) -> Path:
    """The file or folder that a path or name means; FileNotFoundError if there is none."""
    path = Path(where).expanduser()
    if path.exists():
        return path if path.name.strip(".") else path.resolve()  # "." and ".." would be names of nothing
    name = str(where)
    places = (root / name, root / f"{name}.npz", root / f"{name}.csv")
    for place in places:
        if place.exists():
            return place
    if name in LAYOUTS:
        if root.is_dir() and LAYOUTS[name].root(root) is not None:
            return root
        raise FileNotFoundError(LAYOUTS[name].missing(name, root))
    names = ", ".join(["textures", *LAYOUTS])
    raise FileNotFoundError(
        f"there is no file or folder {path}, and nothing of that name in the data folder {root} (RINGCONV_DATA); names"
        f" that are known are {names}"
    )


def _textures(options: DataOptions) -> DataSet:
    splits = {}
    for split, number in _TEXTURES_PER_CLASS.items():
        drawn = load_textures("train" if split == "train" else "test", number, options.seed)
        splits[split] = Split(drawn.view()[:, 0].numpy(), drawn.labels, 2, 1.0)
    classes = tuple(photograph.name for photograph in PHOTOGRAPHS)
    splits = with_validation(splits, options.validation, options.seed)
    return DataSet("textures", "classify", classes, splits, (0.0,), (1.0,))
