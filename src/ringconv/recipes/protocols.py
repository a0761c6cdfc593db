"""How the paper trains on each of its sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringconv.recipes.differences import AUGMENTATION, EVERYWHERE, Difference

Settings = Mapping[str, Any]
"""Fields of :class:`ringconv.training.TrainSettings`."""


@dataclass(frozen=True)
class Protocol:
    """Training on one set, at the paper's scale and at the small ones."""

    paper: Settings
    cpu: Settings
    """What two cores get through instead."""
    channels: int = 3
    classes: int = 10
    dimensions: int = 2
    differences: tuple[Difference, ...] = (AUGMENTATION, *EVERYWHERE)
    notes: tuple[str, ...] = field(default=())


_SMALL: Settings = {"epochs": 250, "batch_size": 128, "lr": 2e-2}
_SMALL_CPU: Settings = {"epochs": 25, "batch_size": 32, "test_images": 1_000}
_SEED_OF_SPLIT = "which images are trained on is drawn with our seed 0; the authors' draw is not published"

PROTOCOLS = {
    "cifar10": Protocol({**_SMALL, "size": 32}, {**_SMALL_CPU, "train_images": 5_000}),
    "nwpu10": Protocol({**_SMALL, "size": 64}, _SMALL_CPU, notes=(_SEED_OF_SPLIT,)),
    "mtarsi": Protocol(
        {**_SMALL, "size": 64}, {**_SMALL_CPU, "train_images": 2_000}, classes=20, notes=(_SEED_OF_SPLIT,)
    ),
    "nct_crc": Protocol(
        {"size": 224, "batch_size": 24, "epochs": 50, "lr": 2e-2, "translation": 0.1, "workers": 4},
        {"size": 64, "epochs": 10, "train_images": 5_000, "test_images": 1_000, "workers": 0},
        classes=9,
    ),
    "pcam": Protocol(
        {"size": 96, "batch_size": 64, "epochs": 100, "lr": 2e-2, "translation": 0.1, "workers": 4},
        {"size": 48, "batch_size": 32, "epochs": 10, "train_images": 5_000, "test_images": 1_000, "workers": 0},
        classes=2,
    ),
    "imagenet": Protocol(
        {
            "size": 224, "batch_size": 4 * 96, "devices": 4, "strategy": "ddp", "precision": "bf16-mixed",
            "epochs": 100, "lr": 1e-1, "warmup_epochs": 2.0, "weight_decay": 1e-4, "workers": 8,
        },
        {
            "size": 64, "batch_size": 64, "devices": 1, "strategy": "auto", "precision": "32-true", "epochs": 10,
            "lr": 2e-2, "warmup_epochs": 1.0, "train_images": 20_000, "test_images": 2_000, "workers": 0,
        },
        classes=1000,
        notes=("the text's batch of 96 is taken to be that of each of its four GPUs",),
    ),
    **{
        f"modelnet{classes}": Protocol(
            {"size": 32, "batch_size": 8, "epochs": 100, "lr": 2e-2},
            {"epochs": 10, "train_images": 1_000, "test_images": 200, "norm_batch": 64},
            channels=1,
            classes=classes,
            dimensions=3,
            differences=EVERYWHERE,
            notes=(
                "in batches of 8 what the batch norms of a ring network average can be far from what a test sees:"
                " norm_batch=64 takes it anew (docs/results.md)",
            ),
        )
        for classes in (10, 40)
    },
    "cryonuseg": Protocol(
        {"task": "segment", "crop": 96, "batch_size": 8, "epochs": 7_000, "lr": 2e-3, "optimiser": "adamw"},
        {"size": 256, "crop": 64, "epochs": 200},
        classes=2,
        differences=EVERYWHERE,
        notes=("neither text nor release states the loss or the split: here BCE + Dice, and two images of each organ",),
    ),
}  # fmt: skip
