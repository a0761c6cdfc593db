"""A checkpoint as the commands that test one need it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ringconv.models.checkpoint import CheckpointInfo, Preprocessing, load_model, read_info


@dataclass(frozen=True)
class Loaded:
    """A network, and how images must come to it."""

    network: nn.Module
    info: CheckpointInfo

    @property
    def channels(self) -> int:
        return int(self.info.options.get("in_chans", 3))

    @property
    def preprocessing(self) -> Preprocessing | None:
        return self.info.preprocessing


def load_checkpoint(path: Path, device: str) -> Loaded:
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    return Loaded(load_model(path, device), read_info(path))
