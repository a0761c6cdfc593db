"""Files that are complete or not there, whenever the process or the machine stops."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: Path, ending: str = ".partial") -> Iterator[Path]:
    """A path beside the file to write to, which takes the file's place once it is on the disk.

    What was there before stays if anything fails. Of several writers the last one wins.

    Args:
        ending: of the path to write to, for writers that look at it. By default one that no search for files takes.
    """
    # Whoever writes to it opens it as any new file, so that it has the permissions that the user wants of new files;
    # those of tempfile's are for their owner only.
    partial = unused_beside(path, ending)
    try:
        yield partial
        _to_disk(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # there is none any more if all went well
    with contextlib.suppress(OSError):  # not all folders can be opened or synchronised, and the file is there
        sync_folder(path.parent)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write the file as :func:`written_whole` does."""
    with written_whole(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def write_to_disk(path: Path, content: bytes) -> None:
    """Write and wait until it is on the disk."""
    path.write_bytes(content)
    _to_disk(path)


def unused_beside(path: Path, ending: str = ".partial") -> Path:
    """A hidden name in the same folder that nobody else has, not even another thread of this process."""
    return path.with_name(f".{path.name}-{secrets.token_hex(4)}{ending}")


def sync_folder(folder: Path) -> None:
    """Make new names in it last through a power cut, where folders can be synchronised."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _to_disk(path: Path) -> None:
    with path.open("r+b") as file:  # Windows synchronises only what is open for writing
        os.fsync(file.fileno())
