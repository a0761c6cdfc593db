"""Trained networks and the images to show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ringconv._network import dtype_of, input_channels
from ringconv._progress import Progress
from ringconv._rotate import Turn, turns
from ringconv._turned import Turner, Turning
from ringconv.data import DataSet, normalise, stratified_subset
from ringconv.models.checkpoint import CheckpointInfo, load_model, read_info
from ringconv.report.figures.labels import run_labels, unique
from ringconv.training.run_data import reopen_data
from ringconv.training.runs import CONFIG, MODEL, Run, list_runs, read_run
from ringconv.training.setup import prepare_data


@dataclass(frozen=True, eq=False)
class Trained:
    """A network in eval mode, and what is known about it."""

    label: str
    network: nn.Module
    info: CheckpointInfo
    path: Path
    run: Run | None = None

    @property
    def channels(self) -> int:
        return input_channels(self.network)

    def prepared(self, images: Tensor, data: DataSet) -> Tensor:
        """(N, C, *S) on a scale from 0 to 1 -> as this network sees it."""
        known = self.info.preprocessing
        mean, std = (data.mean, data.std) if known is None else (known.mean, known.std)
        return normalise(images, mean, std).to(dtype_of(self.network))


@dataclass(frozen=True, eq=False)
class Shown:
    """Images with their labels."""

    images: Tensor
    """(N, C, H, W), on a scale from 0 to 1."""
    labels: Tensor
    """(N,)"""
    data: DataSet


def read_networks(paths: Iterable[Path], names: Sequence[str] = ()) -> list[Trained]:
    """The networks of run folders, of folders with runs below them, or of checkpoint files, in their order."""
    found = [one for path in paths for one in _networks(path)]
    if not found:
        raise ValueError("give folders of runs or checkpoint files (model.safetensors)")
    labels = iter(run_labels([run for _, run in found if run is not None]))
    titles = [_file_label(path) if run is None else next(labels) for path, run in found]
    titles = unique(titles, [_file_label(path) if run is None else run.name for path, run in found])
    titles = unique(titles, [str(path) for path, _ in found])
    if names and len(names) != len(found):
        raise ValueError(f"names must be one for each of {', '.join(titles)}, got {len(names)}")
    return [
        Trained(title, load_model(path), read_info(path), path, run)
        for title, (path, run) in zip(names or titles, found, strict=True)
    ]


def _file_label(path: Path) -> str:
    """Of a checkpoint: its name, or its folder's if it has the name that all runs give theirs."""
    return path.absolute().parent.name if path.name == MODEL else path.stem


def _networks(path: Path) -> list[tuple[Path, Run | None]]:
    if path.is_file():
        return [(path, None)]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder or file {path}")
    if (path / CONFIG).is_file():
        run = read_run(path)
        if not (path / MODEL).is_file():
            raise ValueError(f"{path} is {run.state} and has no {MODEL} yet (to go on: ringconv train --resume {path})")
        return [(path / MODEL, run)]
    found: list[tuple[Path, Run | None]] = [
        (run.folder / MODEL, run) for run in list_runs(path) if (run.folder / MODEL).is_file()
    ]
    if not found:
        raise ValueError(f"there is no finished run in {path}, and it is not the folder of a run")
    return found


def images_for(
    networks: Sequence[Trained],
    data: str | None = None,
    *,
    root: Path | None = None,
    split: str = "test",
    count: int = 100,
    seed: int = 0,
    image: int | None = None,
    progress: Progress | None = None,
) -> Shown:
    """Some images of a split, of every class in its proportion.

    Args:
        data: path or name of a data set; default what the first network that has a run was trained on.
        image: only this one, by its place in the split.
    """
    opened = _opened(networks, data, root, progress)
    if opened.dimensions != 2:
        raise ValueError(f"this figure is of images, and {opened.name} has volumes")
    for network in networks:
        if network.channels != opened.channels:
            raise ValueError(
                f"{network.label} takes {network.channels} channels, and {opened.name} has {opened.channels}"
            )
    return some_images(opened, split, count, seed, image)


def some_images(data: DataSet, split: str = "test", count: int = 100, seed: int = 0, image: int | None = None) -> Shown:
    """So many images of a split, or all of them if there are not more; or only the one at a place."""
    if count < 1:
        raise ValueError(f"images must be at least 1, got {count}")
    chosen = data[split]
    if not len(chosen):
        raise ValueError(f"{data.name} has no image in {split}")
    labels = chosen.labels
    strata = np.zeros(len(chosen), np.int64) if labels is None else labels
    if image is None:
        rows = stratified_subset(strata, min(count, len(chosen)), seed)
    elif 0 <= image < len(chosen):
        rows = np.array([image])
    else:
        raise ValueError(f"image must be from 0 to {len(chosen) - 1}, got {image}")
    images, _ = chosen.batch(rows)
    return Shown(images, torch.as_tensor(strata[rows]), data)


def _opened(networks: Sequence[Trained], data: str | None, root: Path | None, progress: Progress | None) -> DataSet:
    if data is not None:
        known = next((network for network in networks if network.info.preprocessing), networks[0])
        given = {} if root is None else {"root": root}
        return reopen_data(known.path, known.info.preprocessing, data, given, progress)
    run = next((network.run for network in networks if network.run is not None), None)
    if run is None:
        raise ValueError("say which images to show: --data takes the path or name of a data set")
    return prepare_data(run.settings, progress=progress)


def turns_of(angles: Iterable[float]) -> list[Turn]:
    return turns(angles, None, 2)


def turned(images: Tensor, turn: Turn) -> Tensor:
    """(N, C, H, W) as networks are tested: bilinear, within the frame, 0 from beyond it."""
    return Turner(Turning()).turn(images, turn, 2)


def show_image(axes: Any, image: Tensor) -> None:
    """(C, H, W) on a scale from 0 to 1: in colour, or the first of any other number of channels in grey."""
    if len(image) == 3:
        axes.imshow(image.clamp(0, 1).movedim(0, -1).numpy())
    else:
        axes.imshow(image[0].numpy(), cmap="gray")
