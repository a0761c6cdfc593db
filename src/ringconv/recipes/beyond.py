"""What was chosen on validation images, against the paper's form on the test images of two sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ringconv.recipes.choices import DISC, SMALL, SMOOTH, UNIT_NORM
from ringconv.recipes.networks import published_form
from ringconv.recipes.on_nwpu import DATA, SHORT, short_nwpu_settings
from ringconv.recipes.study import THREE_SEEDS, Study, Trial
from ringconv.training.settings import TrainSettings

_ABOUT = (
    "The paper's form against options from above, with as many parameters or fewer; and the plain network. Disc, smooth"
    " edge and harmonics are what did best on validation images of NWPU-10 with three seeds, and of these the small"
    " kernels with harmonics of order 1, which were tried last, when test figures of the others were known. With"
    " harmonics and a hard edge, test images were looked at before validation images were."
)
_CIFAR = TrainSettings(
    "gmr_resnet18", "cifar10_20k", size=32, epochs=6, batch_size=64, test_images=2000, channels_last=True
)
_ON_NWPU_ONLY = ("unit-norm-disc-view", "smooth-harmonics-disc-view", "disc-view", "resnet18-disc-view")
"""Rows that differ from others in their edge only, or say what the disc does by itself."""


def _on_nwpu(model: str, width: int, **options: Any) -> TrainSettings:
    return short_nwpu_settings(model, 2 * width, **options)


def _on_cifar(model: str, width: int, **options: Any) -> TrainSettings:
    return replace(
        _CIFAR, model=model, model_options={**published_form(model), "width": width, "stem_pool": False, **options}
    )


def _trials(settings: Callable[..., TrainSettings]) -> tuple[Trial, ...]:
    """Harmonics of orders 1 and 2 at three quarters of the width have 0.9 of the parameters of the paper's form."""
    rings, plain = "gmr_resnet18", "resnet18"
    seen = "pooling over a disc, only the disc seen"
    return (
        Trial("published", "GMR-R18, the paper's form", settings(rings, 8), THREE_SEEDS),
        Trial("smooth", "GMR-R18, area-sampled, unit norm, smooth edge", settings(rings, 8, **SMOOTH), THREE_SEEDS),
        Trial("disc-view", f"GMR-R18, the paper's form; {seen}", settings(rings, 8, **DISC), THREE_SEEDS),
        Trial(
            "unit-norm-disc-view",
            f"GMR-R18, area-sampled, unit norm; {seen}",
            settings(rings, 8, **UNIT_NORM, **DISC),
            THREE_SEEDS,
        ),
        Trial(
            "smooth-disc-view",
            f"GMR-R18, area-sampled, unit norm, smooth edge; {seen}",
            settings(rings, 8, **SMOOTH, **DISC),
            THREE_SEEDS,
        ),
        Trial(
            "harmonics-disc-view",
            f"GMR-R18, area-sampled, unit norm, harmonics of orders 1 and 2, three quarters as wide; {seen}",
            settings(rings, 6, **UNIT_NORM, **DISC, harmonics=2),
            THREE_SEEDS,
        ),
        Trial(
            "smooth-harmonics-disc-view",
            "GMR-R18, area-sampled, unit norm, smooth edge, harmonics of orders 1 and 2, three quarters as wide;"
            f" {seen}",
            settings(rings, 6, **SMOOTH, **DISC, harmonics=2),
            THREE_SEEDS,
        ),
        Trial(
            "small-harmonics-disc-view",
            f"GMR-R18, area-sampled, unit norm, smooth edge, harmonics of order 1, kernels of 3x3; {seen}",
            settings(rings, 8, **SMALL, **DISC, harmonics=1),
            THREE_SEEDS,
        ),
        Trial("resnet18", "R18", settings(plain, 8), THREE_SEEDS),
        Trial("resnet18-disc-view", f"R18; {seen}", settings(plain, 8, **DISC), THREE_SEEDS),
    )


BEYOND_NWPU = Study(
    "beyond-nwpu10",
    "Beyond the paper: NWPU-10",
    DATA,
    f"{_ABOUT} The last row is the plain network with the disc that the ring networks have. Width 16; {SHORT}, the rest"
    " as in the first table.",
    _trials(_on_nwpu),
    against="published",
)

BEYOND_CIFAR = Study(
    "beyond-cifar10",
    "Beyond the paper: CIFAR-10",
    "cifar10_20k",
    f"{_ABOUT} Width 8, 6 epochs in batches of 64, tested on 2,000 images; the rest as in the table of CIFAR-10.",
    tuple(trial for trial in _trials(_on_cifar) if trial.name not in _ON_NWPU_ONLY),
    against="published",
)
