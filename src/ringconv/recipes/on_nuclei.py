"""How studies train on the nuclei."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringconv.recipes.networks import published_form
from ringconv.training.settings import TrainSettings

DATA = "nuclei"
_SHORTER = TrainSettings("gmr_unet", DATA, crop=96, batch_size=8, epochs=300, lr=2e-3, optimiser="adamw")


def nuclei_settings(model: str, **options: Any) -> TrainSettings:
    """The paper's training of the paper's networks, but 300 epochs."""
    return replace(_SHORTER, model=model, model_options={**published_form(model), **options})
