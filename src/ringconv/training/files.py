"""Files that are complete or not there, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import os
from pathlib import Path

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write beside the file, to the disk, then take its place. What was there before stays if anything fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")  # of two processes, the last one wins
    try:
        write_to_disk(partial, content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # there is none any more if all went well


def write_to_disk(path: Path, content: bytes) -> None:
    """Write and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
