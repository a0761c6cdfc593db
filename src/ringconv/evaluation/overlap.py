"""How well what was found covers what is there."""

from __future__ import annotations

import torch
from torch import Tensor


def overlap(found: Tensor, truth: Tensor, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """IoU and Dice of every image, (B,) each, from bool (B, classes, *S): the background is not among the classes.

    They are averaged over the classes that are in the image or in the answer. Where there is none, nothing was missed
    and nothing made up: both are 1.
    """
    found, truth = found.flatten(2), truth.flatten(2)
    both, added, missed = ((x & y).sum(-1).to(dtype) for x, y in ((found, truth), (found, ~truth), (~found, truth)))
    present = (both + added + missed) > 0

    def averaged(value: Tensor) -> Tensor:
        mean = torch.where(present, value, 0).sum(1) / present.sum(1).clamp(min=1)
        return torch.where(present.any(1), mean, 1.0)

    return averaged(both / (both + added + missed)), averaged(2 * both / (2 * both + added + missed))


def foreground(numbers: Tensor, classes: int) -> Tensor:
    """(B, *S) of class numbers -> bool (B, classes - 1, *S), where each class but the background is."""
    return torch.stack([numbers == number for number in range(1, classes)], dim=1)
