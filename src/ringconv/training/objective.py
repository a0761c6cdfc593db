"""What training minimises and what it is scored by, image by image."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ringconv.data import DataSet
from ringconv.evaluation.overlap import overlap
from ringconv.training.settings import Loss, TrainSettings

Losses = Callable[[Tensor, Tensor], Tensor]
"""Output (B, K) or (B, K, *S), and labels (B,) or masks (B, *S) -> the loss of each image, (B,)."""


def loss_name(settings: TrainSettings, data: DataSet) -> Loss:
    """The loss that is used, or a ValueError if it does not suit the data."""
    if settings.task not in (None, data.task):
        raise ValueError(f"{data.name} is to {data.task}, got the task {settings.task!r}")
    name = settings.loss or ("ce" if data.task == "classify" else "bce+dice")
    if name == "bce+dice" and data.task != "segment":
        raise ValueError(f"the loss 'bce+dice' is for masks, and {data.name} has labels: take 'ce'")
    if name == "bce+dice" and settings.label_smoothing:
        raise ValueError("label_smoothing is for the loss 'ce'; segmentation takes 'bce+dice' unless told otherwise")
    return name


def outputs(loss: Loss, classes: int) -> int:
    """Channels that a network needs: one is enough to tell foreground from background."""
    return 1 if loss == "bce+dice" and classes == 2 else classes


def make_losses(loss: Loss, label_smoothing: float = 0.0) -> Losses:
    if loss == "bce+dice":
        return bce_and_dice

    def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(output, targets, reduction="none", label_smoothing=label_smoothing)
        return each.flatten(1).mean(1) if each.ndim > 1 else each

    return cross_entropy


def bce_and_dice(output: Tensor, masks: Tensor) -> Tensor:
    """Binary cross-entropy plus 1 - Dice of the probabilities, over the pixels of each image and then its classes."""
    truth = _planes(masks, output.shape[1]).to(output.dtype)
    bce = F.binary_cross_entropy_with_logits(output, truth, reduction="none").flatten(2).mean(2)
    probability, truth = output.sigmoid().flatten(2), truth.flatten(2)
    # One pixel more on either side of the fraction: an empty mask that is found empty counts as right.
    dice = (2 * (probability * truth).sum(2) + 1) / (probability.sum(2) + truth.sum(2) + 1)
    return (bce + 1 - dice).mean(1)


def score_name(data: DataSet) -> str:
    return "accuracy" if data.task == "classify" else "dice"


def scores(output: Tensor, targets: Tensor) -> Tensor:
    """(B,) in [0, 1]: whether the label is right; or the Dice, as networks are tested by it."""
    if targets.ndim == 1:
        return (output.argmax(1) == targets).to(torch.float32)
    if output.shape[1] == 1:
        found = output > 0
        truth = _planes(masks=targets, channels=1)
    else:
        found = _planes(output.argmax(1), output.shape[1])[:, 1:]
        truth = _planes(targets, output.shape[1])[:, 1:]
    return overlap(found, truth, torch.float32)[1]


def _planes(masks: Tensor, channels: int) -> Tensor:
    """(B, *S) of class numbers -> bool (B, channels, *S): one plane is the foreground, more are one per class."""
    if channels == 1:
        return (masks > 0).unsqueeze(1)
    numbers = torch.arange(channels, device=masks.device).view(1, -1, *[1] * (masks.ndim - 1))
    return masks.unsqueeze(1) == numbers
