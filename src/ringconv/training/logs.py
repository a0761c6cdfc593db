"""What happened, for programs (JSON lines), for TensorBoard, and for Weights & Biases if asked."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringconv._extras import needs

METRICS = "metrics.jsonl"

Values = Mapping[str, float | list[float]]


class Log:
    """Lines of values, each of a kind, at a step.

    Args:
        folder: of the run.
        position: bytes of the earlier lines to keep when a run goes on; what was written after its checkpoint will be
            written again.
        first_step: TensorBoard forgets what it has from this step on.
        wandb: a project of Weights & Biases, or nothing.
        config: for Weights & Biases.
    """

    def __init__(
        self,
        folder: Path,
        position: int = 0,
        first_step: int = 0,
        wandb: str = "",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._wandb: Any = None
        if wandb:
            # The run's folder is its identity, so that it goes on there too.
            self._wandb = needs("wandb", "wandb").init(
                project=wandb,
                id=folder.name,
                name=folder.name,
                dir=str(folder),
                config=dict(config or {}),
                resume="allow",
            )
        path = folder / METRICS
        path.touch()
        # A power cut can leave less than there was; then all of it is from before the checkpoint, and may end within a
        # line.
        kept = path.read_bytes()[:position]
        os.truncate(path, kept.rfind(b"\n") + 1)
        self._file = path.open("ab", buffering=0)
        needs("tensorboard", "train")  # torch's writer imports it, but does not say where to get it
        writer = needs("torch.utils.tensorboard", "train").SummaryWriter
        self._tensorboard = writer(str(folder / "tensorboard"), purge_step=first_step + 1 if first_step else None)

    def synced_position(self) -> int:
        """Bytes written so far, once they are on the disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def write(self, kind: str, step: int, epoch: int, values: Values) -> None:
        """One line, whole: readers see it as soon as this returns."""
        line = {"kind": kind, "step": step, "epoch": epoch, **values}
        content = json.dumps(line).encode() + b"\n"
        if self._file.write(content) < len(content):  # a disk that fills up takes what fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file.name))
        for name, value in values.items():
            if isinstance(value, list):
                for number, part in enumerate(value):
                    self._tensorboard.add_scalar(f"{kind}/{name}/{number}", part, step)
            else:
                self._tensorboard.add_scalar(f"{kind}/{name}", value, step)
        if self._wandb is not None:
            self._wandb.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        self._file.close()
        self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


def read_log(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of a run, or those of one kind. What a crash of the machine left unreadable is left out."""
    path = folder / METRICS
    if not path.exists():
        return []
    found = []
    for content in path.read_bytes().split(b"\n")[:-1]:
        with contextlib.suppress(ValueError):
            line = json.loads(content)
            if kind in (None, line["kind"]):
                found.append(line)
    return found
