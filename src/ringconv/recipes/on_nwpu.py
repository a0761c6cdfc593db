"""How studies train on NWPU-10, and the shorter training of those that have many rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringconv.recipes.networks import published_form
from ringconv.recipes.own_data import faster_with_channels_last
from ringconv.training.settings import TrainSettings

DATA = "nwpu10"
_PAPER = TrainSettings("gmr_resnet18", DATA, size=64)
"""250 epochs of SGD in batches of 128, a cosine from 0.02, no augmentation."""

SHORT = "40 epochs in batches of 32 instead of 250 in batches of 128"
BRIEF = "20 epochs in batches of 32, tested on 1,000 images"


def nwpu_settings(model: str, width: int, **options: Any) -> TrainSettings:
    """The paper's training of the paper's networks, with the stem of the authors' code."""
    return replace(
        _PAPER,
        model=model,
        model_options={**published_form(model), "width": width, "stem_pool": True, **options},
        channels_last=faster_with_channels_last(model),
    )


def short_nwpu_settings(model: str, width: int, **options: Any) -> TrainSettings:
    """With :data:`SHORT`: fewer epochs, of more steps each."""
    return replace(nwpu_settings(model, width, **options), epochs=40, batch_size=32)


def brief_nwpu_settings(model: str, width: int, **options: Any) -> TrainSettings:
    """With :data:`BRIEF`: for studies of the order of many rows."""
    return replace(short_nwpu_settings(model, width, **options), epochs=20, test_images=1000)
