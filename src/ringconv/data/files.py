"""Rows that are files: checked at the start, decoded when asked for or once into a memory map."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ringconv._progress import Progress
from ringconv.data import cache
from ringconv.data.dataset import Rows
from ringconv.data.decode import Array, Decoder, Item
from ringconv.data.options import DataOptions

_LARGEST_CACHE = 32 << 30
_CHUNK = 64
"""Files decoded ahead by the threads: bounds the memory."""

_Read = TypeVar("_Read")

Faults = dict[int, str]
"""Row -> what is wrong with its file."""


@dataclass(frozen=True, eq=False)
class Files:
    """Files as rows, decoded when they are asked for.

    Attributes:
        item_shape, dtype: of every decoded file.
    """

    items: Sequence[Item]
    decoder: Decoder
    item_shape: tuple[int, ...]
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.items), *self.item_shape

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: Any, /) -> Any:
        index = np.arange(len(self))[rows]
        if index.ndim == 0:
            return self._decoded(int(index))
        out = np.empty((len(index), *self.item_shape), self.dtype)
        for place, row in enumerate(index):
            out[place] = self._decoded(int(row))
        return out

    def _decoded(self, row: int) -> Array:
        item = self.items[row]
        values = self.decoder(item)
        _check_alike(item, values, self.item_shape, self.dtype)
        return values


def read_files(
    name: str, items: Sequence[Item], decoder: Decoder, options: DataOptions, progress: Progress
) -> tuple[Rows, Faults]:
    """The files as rows, and which of them cannot be read.

    Every file is decoded once at the start (unless ``options.verify`` is off and nothing is cached), and what was found
    is remembered until a file changes.
    """
    if not items:
        raise ValueError(f"{name} has no files")
    first = _first_readable(items, decoder)
    lazily = Files(items, decoder, first.shape, first.dtype)
    size = len(items) * first.nbytes
    caches = options.cache
    if caches is None:
        caches = size <= _LARGEST_CACHE and cache.room_for(size, options.cache_folder)
    if not caches and not options.verify:
        return lazily, {}
    boxes = [item.box for item in items] if any(item.box for item in items) else None
    place = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}
    # A file may be in several rows: which ones is part of what is stored.
    order = [place[item.path] for item in items] if len(place) < len(items) else []
    key = cache.key_of(place, decoder, boxes, [len(items), caches, *order])

    def build(folder: Path) -> None:
        rows: Any = None
        if caches:
            rows = cache.new_memmap(folder / "rows.npy", lazily.dtype, lazily.shape)
        faults = {}
        for row, result in enumerate(all_tried(decoder, items)):
            if isinstance(result, Exception):
                faults[row] = f"{type(result).__name__}: {result}"
            else:
                _check_alike(items[row], result, lazily.item_shape, lazily.dtype)
                if caches:
                    rows[row] = result
            progress(f"read {name}", row + 1, len(items))
        if caches:
            rows.flush()
        (folder / "faults.json").write_text(json.dumps(faults), encoding="utf-8")

    folder = cache.stored(name, key, build, options.cache_folder)
    faults = _faults_in(folder)
    # The disk, permissions or a missing package may have been at fault, which change without the file.
    if any(not isinstance(result, Exception) for result in all_tried(decoder, [items[row] for row in faults])):
        shutil.rmtree(folder)
        folder = cache.stored(name, key, build, options.cache_folder)
        faults = _faults_in(folder)
    if not caches:
        return lazily, faults
    rows: Rows = np.load(folder / "rows.npy", mmap_mode="r", allow_pickle=False)
    return rows, faults


def _faults_in(folder: Path) -> Faults:
    return {int(row): fault for row, fault in json.loads((folder / "faults.json").read_text("utf-8")).items()}


def _first_readable(items: Sequence[Item], decoder: Decoder) -> Array:
    """What one of the first files looks like; a broken one among them must not decide that nothing can be read."""
    errors = []
    for item in items[:100]:
        result = _tried(decoder, item)
        if not isinstance(result, Exception):
            return result
        errors.append(result)
    raise ValueError(f"none of the first {len(errors)} files can be read; {items[0].path}: {errors[0]}") from errors[0]


def all_tried(read: Callable[[Item], _Read], items: Sequence[Item]) -> Iterator[_Read | Exception]:
    """What ``read`` makes of every file, or why it cannot, in their order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(items), _CHUNK):
            yield from pool.map(functools.partial(_tried, read), items[start : start + _CHUNK])


def _tried(read: Callable[[Item], _Read], item: Item) -> _Read | Exception:
    try:
        return read(item)
    except ImportError:
        raise
    except Exception as error:  # whatever a format's library raises, it is about this file, which gets named
        return error


def _check_alike(item: Item, values: Array, shape: tuple[int, ...], dtype: Any) -> None:
    """All rows have one shape and one type: numbers of another type would be cut off, or lose their scale."""
    if values.shape != shape:
        raise ValueError(
            f"{item.path} decodes to the shape {values.shape}, others to {shape}; give a size that all are brought to"
            " (and the same number of channels)"
        )
    if values.dtype.newbyteorder("=") != np.dtype(dtype).newbyteorder("="):
        raise ValueError(f"{item.path} holds {values.dtype} numbers, others {dtype}; store all files with one type")
