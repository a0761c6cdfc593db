"""Which classes masks hold, told by the values that are in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ringconv._progress import Progress
from ringconv.data import cache
from ringconv.data.dataset import Rows, Split
from ringconv.data.decode import Array, Item, stored_mask
from ringconv.data.files import all_tried
from ringconv.data.options import DataOptions

_HIGHEST_CLASS = 32
"""Masks with larger values, and no names for them, hold grey levels or the numbers of objects."""
_MOST_VALUES = 1 << 16
"""All that 16 bits can hold. With more, they are floats, and it does not matter which."""
_BLOCK = 1 << 22
"""Pixels that are looked at at once: bounds the memory."""

Classes = tuple[str, ...]
Notes = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Foreground:
    """Masks of another :class:`Rows` where everything above 0 is 1."""

    of: Rows

    @property
    def dtype(self) -> Any:
        return np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, rows: Any, /) -> Any:
        return (self.of[rows] > 0).astype(np.uint8)


def classes_in_files(
    name: str, masks: Sequence[Item], options: DataOptions, progress: Progress
) -> tuple[Classes, Notes]:
    """Names of the classes in files of masks, and what should be known about them. Files that cannot be read say
    nothing."""

    def read(item: Item) -> Array:
        return np.unique(stored_mask(item.path))

    def values() -> Iterator[Array]:
        for number, result in enumerate(all_tried(read, items), 1):
            progress(f"look at {name} masks", number, len(items))
            if not isinstance(result, Exception):
                yield result

    items = list(dict.fromkeys(masks))
    return _classes_of(_remembered(name, [item.path for item in items], values, options))


def with_class_numbers(
    path: Path, splits: Mapping[str, Split], names: Classes, options: DataOptions
) -> tuple[Classes, dict[str, Split], Notes]:
    """The classes of an npz's masks, and its splits with masks that hold their numbers.

    Args:
        names: of the classes, if the file has them.
    """

    def values() -> Iterator[Array]:
        for split in splits.values():
            rows = max(1, _BLOCK // max(1, int(np.prod(split.size))))
            for start in range(0, len(split), rows):
                yield np.unique(split.targets[start : start + rows])

    found = _remembered(path.stem, [path], values, options)
    classes, notes = _classes_of(found)
    if names:
        wrong = [value for value in found if value not in range(len(names))]
        one_value_above_0 = len([value for value in found if value > 0]) == 1
        if wrong and not (len(names) <= 2 and one_value_above_0):
            raise ValueError(
                f"{path}: with {len(names)} class_names, masks must hold the numbers 0 to {len(names) - 1}, but some"
                f" hold {_listed(wrong)}"
            )
        classes, notes = names, ()
    if len(classes) == 2 and not set(found) <= {0, 1}:
        splits = {name: replace(split, targets=Foreground(split.targets)) for name, split in splits.items()}
        notes = notes or (f"masks hold {_listed(found)}: everything above 0 is read as {classes[1]}",)
    return classes, dict(splits), notes


def _classes_of(values: Sequence[float]) -> tuple[Classes, Notes]:
    """Two, unless there are several values and all look like class numbers; with a note if that may be wrong."""
    above_0 = [value for value in values if value > 0]
    if values and not above_0:
        raise ValueError(f"no mask has anything above 0, only {_listed(values)}: there is nothing to find in them")
    if len(above_0) <= 1:
        nothing_else = (f"masks hold {_listed(values)} only, and no background (0)",)
        return ("background", "foreground"), () if len(above_0) < len(values) or not values else nothing_else
    if all(value in range(_HIGHEST_CLASS + 1) for value in values):
        classes = ("background", *(str(number) for number in range(1, int(max(values)) + 1)))
        said = f"masks hold {_listed(values)}: each is read as a class of its own"
        # Closing the gaps would make the same value another class wherever a set lacks one.
        if empty := len(classes) - 1 - len(above_0):
            said += (
                f". Classes that are in no mask: {empty} of {len(classes)}, for which networks get outputs all the"
                f" same; number the classes 0 to {len(above_0)}"
            )
        return classes, (said,)
    return ("background", "foreground"), (
        f"masks hold {_listed(values)}, which do not look like class numbers (0 to {_HIGHEST_CLASS}): everything above"
        " 0 is read as foreground",
    )


def _listed(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:g}" for value in values[:8])
    return f"the values {shown}" + (f" ... {values[-1]:g} ({len(values)} altogether)" if len(values) > 8 else "")


def _remembered(
    name: str, paths: Sequence[Path], values: Callable[[], Iterator[Array]], options: DataOptions
) -> list[float]:
    """Every value once, in order. Looking at every pixel takes its time, and is done again only when a file has
    changed."""

    def build(folder: Path) -> None:
        found: set[float] = set()
        for part in values():
            found |= {float(value) for value in part if not np.isnan(value)}
            if len(found) > _MOST_VALUES:
                break
        (folder / "values.json").write_text(json.dumps(sorted(found)), encoding="utf-8")

    folder = cache.stored(f"{name} values", cache.key_of(paths, "values"), build, options.cache_folder)
    found: list[float] = json.loads((folder / "values.json").read_text("utf-8"))
    return found
