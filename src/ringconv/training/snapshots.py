"""Checkpoints of a run in progress: everything that is needed to go on, complete or not there.

A checkpoint is a folder ``step-00000200`` with the network in ``network.safetensors`` and the rest in ``state.pt``,
which holds tensors and plain containers only, so that reading it runs no code of the file's.
"""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ringconv._extras import needs
from ringconv._files import sync_folder, write_to_disk

KEPT = 2
"""The last one, and the one before it in case the last one's disk blocks are bad."""

_PREFIX = "step-"


@dataclass(frozen=True)
class Snapshot:
    step: int
    network: Mapping[str, Tensor]
    state: Mapping[str, Any]


def save_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write a checkpoint, then remove all but the last ``KEPT``. An OSError leaves the earlier ones as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{_PREFIX}{snapshot.step:08d}"
    for leftover in folder.glob(f".{_PREFIX}*"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    partial = folder / f".{name}.partial"
    try:
        partial.mkdir()
        # Through memory: the libraries' own writers report a full disk in ways of their own.
        network = {key: value.detach().cpu().clone().contiguous() for key, value in snapshot.network.items()}
        write_to_disk(partial / "network.safetensors", needs("safetensors.torch", "train").save(network))
        buffer = io.BytesIO()
        torch.save(dict(snapshot.state), buffer)
        write_to_disk(partial / "state.pt", buffer.getvalue())
        final = folder / name
        if final.exists():  # written before, by a run that went on from the one before it
            _remove(final)
        partial.rename(final)
        sync_folder(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # there is none any more if all went well
    for old in snapshots(folder)[:-KEPT]:
        _remove(old)
    return final


def snapshots(folder: Path) -> list[Path]:
    """All complete checkpoints, the last one last."""
    found = folder.glob(f"{_PREFIX}*") if folder.is_dir() else ()
    return sorted(path for path in found if path.name[len(_PREFIX) :].isdigit())


def load_snapshot(folder: Path) -> Snapshot | None:
    """The last checkpoint that can be read; None if there is none yet."""
    found = snapshots(folder)
    for path in reversed(found):
        try:
            network = needs("safetensors.torch", "train").load_file(path / "network.safetensors")
            state = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
        except Exception as error:  # each library has its own errors for a damaged file
            warnings.warn(f"{path} cannot be read ({error}); going back to the one before", stacklevel=2)
            continue
        return Snapshot(int(path.name[len(_PREFIX) :]), network, state)
    if found:
        raise ValueError(f"none of the checkpoints in {folder} can be read: {', '.join(p.name for p in found)}")
    return None


def _remove(path: Path) -> None:
    """Take the name away first, so that a folder of that name is always complete."""
    going = path.with_name(f".{path.name}.old")
    path.rename(going)
    shutil.rmtree(going, ignore_errors=True)
