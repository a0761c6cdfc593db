"""Downloads that resume and are checked, and archives that cannot write outside of their folder."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ringconv._files import written_whole
from ringconv._progress import Progress

_BLOCK = 1 << 20
_PAUSE = 1.0
"""Seconds before the second try; each further one waits twice as long."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What some network file systems answer: there, processes are not kept apart."""


@dataclass(frozen=True)
class Download:
    """A file to fetch, and what to make of it."""

    url: str
    md5: str
    folder: str = ""
    """Where its content goes, below the data folder."""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2].partition("?")[0]


def fetch(url: str, path: Path, md5: str, progress: Progress | None = None, tries: int = 5) -> Path:
    """Download ``url`` to ``path``; a file that is there with the right checksum is left alone.

    What has arrived is kept in ``path``.part when the connection breaks, and the next try, also in another run,
    continues there. The file gets its name only when its checksum is right. While another process fetches the same
    file, this one waits and then takes what it finds.
    """
    report = progress or (lambda stage, done, total: None)
    if _is_there(path, md5):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part, lock = (path.with_name(f"{path.name}.{ending}") for ending in ("part", "part.lock"))
    waiting = f"wait for another process that fetches {path.name}"
    with _locked(lock, lambda done: report(waiting, done, 1)):
        if not _is_there(path, md5):  # another process may have been faster
            _fetch(url, part, md5, lambda done, total: report(f"fetch {path.name}", done, total), tries)
            os.replace(part, path)
    return path


def _is_there(path: Path, md5: str) -> bool:
    return path.is_file() and md5_of(path) == md5


def _fetch(url: str, part: Path, md5: str, report: Callable[[int, int], None], tries: int) -> None:
    """Complete ``part``, or raise OSError; a wrong one is removed."""
    for attempt in range(1, tries + 1):
        try:
            _continue(url, part, report)
            break
        except (OSError, http.client.HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
            if final or attempt == tries:
                kept = f"; {part.stat().st_size:,} bytes are kept in {part}" if part.is_file() else ""
                raise OSError(f"{url} could not be fetched: {error}{kept}") from error
            time.sleep(_PAUSE * 2 ** (attempt - 1))
    found = md5_of(part)
    if found != md5:
        part.unlink()
        raise OSError(f"{url} has the checksum {found}, expected {md5}; what was fetched is removed")


@contextlib.contextmanager
def _locked(lock: Path, report: Callable[[int], None]) -> Iterator[None]:
    """One process at a time, where there are such locks. A lock ends with its process, however that ends.

    Args:
        report: called with 0 when another process has the lock, and with 1 when the waiting for it is over.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield
        return
    waited = False
    while True:
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    report(0)
                waited = True
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            # Whoever had the lock has removed its file, and one without a name keeps nobody else away.
            if not _is_named(file, lock):
                continue
            if waited:
                report(1)
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # there are none
                    fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile has it too
            return


def _is_named(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def extract(archive: Path, folder: Path) -> None:
    """Unpack a zip, tar or single gz into ``folder``; an entry that would land outside of it is refused beforehand."""
    folder.mkdir(parents=True, exist_ok=True)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                _check_inside(archive, entry.filename, folder)
            packed.extractall(folder)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as packed_tar:
            try:
                packed_tar.extractall(folder, filter="data")
            except tarfile.FilterError as error:
                raise ValueError(f"{archive} has an entry that is not safe to unpack: {error}") from error
    elif archive.suffix == ".gz":
        _gunzip(archive, folder / archive.stem)
    else:
        raise ValueError(f"{archive} is neither a zip nor a tar nor a gz")


def md5_of(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _continue(url: str, part: Path, report: Callable[[int, int], None]) -> None:
    """Fetch what is missing of ``part``; from the start if the host does not do ranges."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"only http and https are fetched, got {url}")
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing beyond what we have: complete, or the checksum will tell
            error.close()
            return
        raise
    with answer:
        if answer.status != 206:
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        with part.open("ab" if have else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                have += len(block)
                report(have, max(total, have))
    if total and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _check_inside(archive: Path, name: str, folder: Path) -> None:
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()) or "\\" in name:
        raise ValueError(f"{archive} has the entry {name!r}, which is outside of the folder it is unpacked to")


def _gunzip(archive: Path, target: Path) -> None:
    with written_whole(target) as partial, gzip.open(archive) as source, partial.open("wb") as file:
        shutil.copyfileobj(source, file, _BLOCK)
