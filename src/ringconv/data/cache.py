"""What was made from files once, kept for the next time: complete or not there, also with several processes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ringconv._files import unused_beside

_FORMAT = "2"
"""Part of every key; to be raised when what is stored changes."""


def cache_folder(folder: Path | None = None) -> Path:
    """The given folder, or the environment's RINGCONV_CACHE, or ringconv in the user's cache folder."""
    if folder is not None:
        return folder
    if "RINGCONV_CACHE" in os.environ:
        return Path(os.environ["RINGCONV_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringconv"


def key_of(paths: Iterable[Path], *about: object) -> str:
    """Changes with the name, size or time of any file, and with everything in ``about``."""
    digest = hashlib.sha256(repr((_FORMAT, about)).encode())
    for path in paths:
        try:
            status = path.stat()
            state: tuple[int, ...] = (status.st_size, status.st_mtime_ns)
        except OSError:  # a link to nowhere, which whoever reads it will name
            state = ()
        digest.update(repr((str(path.absolute()), *state)).encode())
    return digest.hexdigest()[:16]


def stored(name: str, key: str, build: Callable[[Path], None], folder: Path | None = None) -> Path:
    """The folder ``name-key`` in the cache; ``build`` fills it if it is not there yet.

    It is built under another name and renamed when complete. Of two processes that build it at once, one is first and
    the other takes what it finds.
    """
    root = cache_folder(folder)
    final = root / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}-{key}"
    if final.is_dir():
        return final
    root.mkdir(parents=True, exist_ok=True)
    partial = unused_beside(final)
    partial.mkdir()  # with the permissions of any new folder: the cache may be for several users
    try:
        build(partial)
        try:
            partial.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # there is none any more if it got its name
    return final


def new_memmap(path: Path, dtype: Any, shape: tuple[int, ...]) -> Any:
    """An array in a file that has its room on the disk. A file with holes would end the process at the write for which
    no room is left, where this raises OSError."""
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return rows


def room_for(size: int, folder: Path | None = None) -> bool:
    """Whether the cache's disk has twice as many bytes left."""
    root = cache_folder(folder)
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free >= 2 * size
