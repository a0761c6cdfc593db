"""``ringconv data``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from ringconv._extras import needs
from ringconv.commands._terminal import UsageError, progress_bars, terminal, usage_errors
from ringconv.data import LAYOUTS, DataSet, check_outside, data_root, fetch_data, open_data
from ringconv.data.cache import cache_folder
from ringconv.data.sheet import save_sheet


def data(
    action: Positional[Literal["list", "check", "show", "fetch"]],
    where: Positional[str | None] = None,
    /,
    root: Path | None = None,
    layout: str | None = None,
    size: int | None = None,
    split: str = "test",
    count: int = 10,
    seed: int = 0,
    faults: Literal["refuse", "skip"] = "refuse",
    cache: bool | None = None,
    out: Path | None = None,
) -> None:
    """Look at data sets: which are known, what is in one, how it looks.

    list: the published layouts, what each looks like and where to get it.

    check WHERE: read every file once, and say what is in the set: splits, classes, sizes, files that cannot be read.

    show WHERE: draw a sheet of samples, upright, turned and mirrored, to a PNG.

    fetch WHERE: download and unpack a published set, where its host gives it to anybody.

    A set is an npz in the layout of MedMNIST, a CSV (columns path, label or mask, and optionally group and split), a
    folder of class folders, or one of the published layouts. Look at a file: ringconv data show nwpu10.npz

    Args:
        action: What to do.
        where: A path, or a name: one of the list, of a file or folder in ROOT, or textures.
        root: Where names are looked up and sets are fetched to; default the environment's RINGCONV_DATA, or data.
        layout: Read a folder as this layout of the list instead of looking what it is.
        size: Resize images to so many pixels on each side.
        split: Which split to show.
        count: How many samples to show.
        seed: Of the splits and of the samples.
        faults: Refuse a set with files that cannot be read or classes that are empty, or skip them.
        cache: Decode files once into a memory-mapped file; by default if that is up to 32 GB.
        out: PNG to write; default <name>.png in the folder sheets.
    """
    console = terminal()
    if action == "list":
        return _list(console, root)
    if where is None:
        raise UsageError(f"ringconv data {action} needs a path or a name after it")
    with usage_errors(), progress_bars(console) as progress:
        if action == "fetch":
            folder = fetch_data(where, root, progress)
        else:
            opened = open_data(
                where, layout=layout, root=root, progress=progress, size=size, seed=seed, faults=faults, cache=cache
            )
            path = out or Path("sheets") / f"{opened.name}.png"
            if action == "show":
                check_outside(path, where)
    if action == "fetch":
        console.print(f"Fetched to {folder}", soft_wrap=True)
    elif action == "check":
        console.print(_contents(opened))
        _print_notes(console, opened)
    else:
        with usage_errors():
            save_sheet(opened, path, split=split, count=count, seed=seed)
        _print_notes(console, opened)
        console.print(f"Written: {path}", soft_wrap=True)
    return None


def _list(console: Any, root: Path | None) -> None:
    console.print(f"Names are looked up in {data_root(root)} (RINGCONV_DATA); decoded files are kept in", end=" ")
    console.print(f"{cache_folder()} (RINGCONV_CACHE).\n", soft_wrap=True)
    for name, layout in LAYOUTS.items():
        fetched = "; ringconv data fetch gets it" if layout.downloads else ""
        console.print(f"{name}: {layout.title}{fetched}")
        console.print("\n".join(f"    {line}" for line in layout.tree.splitlines()))
        console.print(f"    {layout.source}\n", soft_wrap=True)
    console.print("textures: photographs that come with scikit-image; nothing to get")
    console.print("Also: an npz in MedMNIST's layout, a CSV, a folder of class folders (see ringconv data --help).")


def _contents(opened: DataSet) -> Any:
    table = needs("rich.table", "data").Table(
        title=f"{opened.name}: {opened.task}, {opened.dimensions}D, {len(opened.classes)} classes",
        title_justify="left",
    )
    for heading in ("split", "images", "size", "channels", "least / most of a class", "groups"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for name, split in opened.splits.items():
        labels = split.labels
        spread = "-"
        if labels is not None:
            counts = [int((labels == number).sum()) for number in range(len(opened.classes))]
            spread = f"{min(counts):,} / {max(counts):,}"
        table.add_row(
            name,
            f"{len(split):,}",
            " x ".join(map(str, split.size)),
            f"{split.channels}",
            spread,
            "-" if split.groups is None else f"{len(set(split.groups.tolist())):,}",
        )
    return table


def _print_notes(console: Any, opened: DataSet) -> None:
    for note in opened.notes:
        console.print(f"Note: {note}", soft_wrap=True)
