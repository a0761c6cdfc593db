"""What the commands that use a checkpoint share: the network, its data, and the file they write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ringconv._network import input_channels
from ringconv._progress import Progress
from ringconv.commands.train import named_values_of
from ringconv.data import DataSet
from ringconv.models.checkpoint import CheckpointInfo, Preprocessing, load_model, read_info
from ringconv.report import check_out
from ringconv.training.run_data import reopen_data


@dataclass(frozen=True)
class Loaded:
    """A network, and how images must come to it."""

    path: Path
    network: nn.Module
    info: CheckpointInfo

    @property
    def channels(self) -> int:
        return input_channels(self.network)

    @property
    def preprocessing(self) -> Preprocessing | None:
        return self.info.preprocessing

    def open_data(self, data: str | None, options: Sequence[str], progress: Progress, **named: Any) -> DataSet:
        """Data as this network's training read it.

        Args:
            options: name=value, as typed.
            named: further ones that have a name of their own; None: not given.
        """
        given = named_values_of(options) | {name: value for name, value in named.items() if value is not None}
        opened = reopen_data(self.path, self.preprocessing, data, given, progress)
        if self.channels != opened.channels:
            raise ValueError(f"the checkpoint takes {self.channels} channels, {opened.name} has {opened.channels}")
        return opened


def load_checkpoint(path: Path, device: str) -> Loaded:
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # NotImplementedError is one too
        raise ValueError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return Loaded(path, load_model(path, device), read_info(path))


def check_file(path: Path) -> None:
    """Raise if this file cannot be written: better before the work than after."""
    if path.is_dir():
        raise IsADirectoryError(f"out must be a file, but {path} is a folder")
    check_out(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"out must be a file that can be written to, but {path} cannot")
