"""A sheet of samples, upright and turned, to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringconv._extras import needs
from ringconv._rotate import turns
from ringconv._turned import Turner, Turning
from ringconv.data.dataset import DataSet
from ringconv.data.splits import stratified_subset

ANGLES = (0, 30, 45, 90, 200)
_CELL = 1.3
"""Inches."""


def save_sheet(data: DataSet, path: Path, *, split: str = "test", count: int = 10, seed: int = 0) -> None:
    """A row per sample, every class in its proportion: upright, turned as networks see it, and mirrored.

    Masks are outlined, volumes are seen from one side (the brightest voxel along D).
    """
    images = data[split]
    labels = images.labels
    strata = np.zeros(len(images)) if labels is None else labels
    chosen = stratified_subset(strata, min(count, len(images)), seed)
    pixels, targets = images.batch(chosen)
    columns = _columns(data, data.normalise(pixels), None if labels is not None else targets)
    figure = needs("matplotlib.figure", "data").Figure(
        figsize=(_CELL * len(columns) + 1, _CELL * len(chosen) + 0.6), layout="constrained"
    )
    grid = figure.subplots(len(chosen), len(columns), squeeze=False)
    for column, (title, shown, masks) in enumerate(columns):
        for row in range(len(chosen)):
            axes = grid[row, column]
            _draw(axes, data, shown[row], None if masks is None else masks[row])
            if row == 0:
                axes.set_title(title, fontsize=9)
            if column == 0:
                name = f"{chosen[row]}" if labels is None else f"{data.classes[labels[chosen[row]]]}\n{chosen[row]}"
                axes.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center", parse_math=False)
    figure.suptitle(f"{data.name}, {split}: {len(chosen)} of {len(images):,}", fontsize=11, parse_math=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor="white")


def _columns(data: DataSet, images: Tensor, masks: Tensor | None) -> list[tuple[str, Tensor, Tensor | None]]:
    """Title, images (B, C, *S) and masks (B, *S)."""
    turner, mask_turner = Turner(Turning(), data.spacing), Turner(Turning("nearest"), data.spacing)
    labels = None if masks is None else masks[:, None].to(images.dtype)
    columns = []
    # Volumes turn in the plane that they are seen in.
    for turn in turns(ANGLES, [0] if data.dimensions == 3 else None, data.dimensions):
        turned = turner.turn(images, turn, data.dimensions)
        along = None if labels is None else mask_turner.turn(labels, turn, data.dimensions)[:, 0]
        columns.append((f"{turn.angle:g}°" if turn.angle else "upright", turned, along))
    columns.append(("mirrored", images.flip(-1), None if masks is None else masks.flip(-1)))
    return columns


def _draw(axes: Any, data: DataSet, image: Tensor, mask: Tensor | None) -> None:
    shape = (-1, *[1] * data.dimensions)
    picture = image * torch.tensor(data.std).view(shape) + torch.tensor(data.mean).view(shape)
    if data.dimensions == 3:
        picture = picture.amax(1)
        mask = None if mask is None else mask.amax(0)
    if len(picture) == 3:
        axes.imshow(picture.clamp(0, 1).movedim(0, -1).numpy())
    else:
        # One channel, or the first of many bands, from its darkest to its brightest.
        axes.imshow(picture[0].numpy(), cmap="gray")
    if mask is not None and bool(mask.any()):
        axes.contour(mask.numpy() > 0, levels=[0.5], colors="yellow", linewidths=0.6)
    axes.set_xticks([])
    axes.set_yticks([])
