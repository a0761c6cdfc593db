"""Options beyond the paper's form, each against it on the same budget, chosen on validation images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringconv.recipes.on_nuclei import DATA as NUCLEI
from ringconv.recipes.on_nuclei import nuclei_settings
from ringconv.recipes.on_nwpu import DATA as NWPU
from ringconv.recipes.on_nwpu import SHORT, nwpu_settings, short_nwpu_settings
from ringconv.recipes.study import THREE_SEEDS, Study, Trial
from ringconv.training.settings import Augmentation, TrainSettings

_FIFTH = 0.2
_WIDTH = 8
_AREA: dict[str, Any] = {"sampling": "area"}
UNIT_NORM: dict[str, Any] = {**_AREA, "normalize": True}
SMOOTH: dict[str, Any] = {**UNIT_NORM, "edge": "smooth"}
SMALL: dict[str, Any] = {**SMOOTH, "kernel_size": 3}
DISC: dict[str, Any] = {"pooling": "disc", "view": "disc"}

_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "published": ("the paper's form", {}),
    "binned": ("as the authors' package samples", {"sampling": "binned"}),
    "hard-rings": ("hard rings", {"sigma": None}),
    "unit-init": ("initial weights of unit gain", {"init": "unit"}),
    "area": ("area-sampled", _AREA),
    "unit-norm": ("unit norm", {"normalize": True}),
    "area-unit-norm": ("area-sampled, unit norm", UNIT_NORM),
    "area-orthonormal": ("area-sampled, orthonormal", {**_AREA, "normalize": "orthonormal"}),
    "smooth-edge": ("area-sampled, unit norm, smooth edge", SMOOTH),
    "lowpass": ("area-sampled, unit norm; low-pass before down-sampling", {**UNIT_NORM, "downsampling": "lowpass"}),
    "disc": ("area-sampled, unit norm; pooling over a disc", {**UNIT_NORM, "pooling": "disc"}),
    "harmonics-1": ("area-sampled, unit norm, harmonics of order 1", {**UNIT_NORM, "harmonics": 1}),
    "harmonics-2": ("area-sampled, unit norm, harmonics of orders 1 and 2", {**UNIT_NORM, "harmonics": 2}),
    "harmonics-2-smooth": (
        "area-sampled, unit norm, smooth edge, harmonics of orders 1 and 2",
        {**SMOOTH, "harmonics": 2},
    ),
    "harmonics-2-all": (
        "area-sampled, unit norm, harmonics of orders 1 and 2 on all rings but the first",
        {**UNIT_NORM, "harmonics": 2, "harmonic_rings": "all"},
    ),
    "harmonics-1-narrow": (
        "area-sampled, unit norm, harmonics of order 1, width 7",
        {**UNIT_NORM, "harmonics": 1, "width": 7},
    ),
    "harmonics-2-narrow": (
        "area-sampled, unit norm, harmonics of orders 1 and 2, width 6",
        {**UNIT_NORM, "harmonics": 2, "width": 6},
    ),
    "harmonics-2-narrow-smooth": (
        "area-sampled, unit norm, smooth edge, harmonics of orders 1 and 2, width 6",
        {**SMOOTH, "harmonics": 2, "width": 6},
    ),
    "view": ("area-sampled, unit norm; only the disc seen", {**UNIT_NORM, "view": "disc"}),
    "smooth-3x3": ("area-sampled, unit norm, smooth edge, kernels of 3x3", SMALL),
    "harmonics-1-3x3": (
        "area-sampled, unit norm, smooth edge, harmonics of order 1, kernels of 3x3",
        {**SMALL, "harmonics": 1},
    ),
    "harmonics-1-3x3-stem-3": (
        "area-sampled, unit norm, smooth edge, harmonics of order 1, kernels of 3x3, also in the stem",
        {**SMALL, "harmonics": 1, "stem_kernel_size": 3},
    ),
    "harmonics-1-3x3-stem-9": (
        "area-sampled, unit norm, smooth edge, harmonics of order 1, kernels of 3x3, of 9x9 in the stem",
        {**SMALL, "harmonics": 1, "stem_kernel_size": 9},
    ),
    "harmonics-2-5x5": (
        "area-sampled, unit norm, smooth edge, harmonics of orders 1 and 2, kernels of 5x5, width 6",
        {**SMOOTH, "harmonics": 2, "kernel_size": 5, "width": 6},
    ),
}


def _row(name: str, label: str, settings: TrainSettings) -> Trial:
    once = replace(settings, validation=_FIFTH, validate_every=settings.epochs, final_test=False)
    return Trial(name, label, once, THREE_SEEDS)


CHOICES = Study(
    "choices",
    "Options of the ring layer, chosen on validation images",
    NWPU,
    f"GMR-R18 of width {_WIDTH} on four fifths of the training crops of NWPU-10, tested on the last fifth: {SHORT}, the"
    " rest as above. The narrower networks with harmonics have as many parameters as the paper's form, or fewer.",
    tuple(
        _row(name, _ROWS[name][0], short_nwpu_settings("gmr_resnet18", **{"width": _WIDTH, **_ROWS[name][1]}))
        for name in (
            "published", "binned", "hard-rings", "unit-init", "area", "unit-norm", "area-unit-norm", "area-orthonormal",
            "smooth-edge", "lowpass", "disc", "harmonics-1", "harmonics-2", "harmonics-2-all", "harmonics-1-narrow",
            "harmonics-2-narrow", "harmonics-1-3x3", "view",
        )
    ),
    split="val",
    against="published",
)  # fmt: skip

CHOICES_WITH_DISC = Study(
    "choices-disc",
    "Options of the ring layer where only the disc is seen, chosen on validation images",
    NWPU,
    "As above, but all networks see only the largest disc within the image and pool over a disc, so that what a turn"
    " does to the corners does not hide what the rings differ in.",
    tuple(
        _row(
            name,
            _ROWS[name][0],
            short_nwpu_settings("gmr_resnet18", **{"width": _WIDTH, **_ROWS[name][1], **DISC}),
        )
        for name in (
            "published", "area", "unit-norm", "area-unit-norm", "area-orthonormal", "smooth-edge", "lowpass",
            "harmonics-2-narrow", "harmonics-2-narrow-smooth", "smooth-3x3", "harmonics-1-3x3",
            "harmonics-1-3x3-stem-3", "harmonics-1-3x3-stem-9", "harmonics-2-5x5",
        )
    ),
    split="val",
    against="published",
)  # fmt: skip

CHOICES_OF_MASKS = Study(
    "choices-nuclei",
    "Options of the ring layer in the U-Net, chosen on validation images",
    NUCLEI,
    "GMR U-Net, and the plain one, on four fifths of the training images of nuclei, tested on the last fifth: 100"
    " epochs instead of 300, the rest as above. With instance norms, as the paper has them, what comes in from beyond"
    " the frame when an image turns counts for every pixel; with batch norms it does not.",
    (
        _row("plain", "U-Net", replace(nuclei_settings("unet"), epochs=100)),
        _row("plain-batch-norm", "U-Net, batch norms", replace(nuclei_settings("unet", norm="batch"), epochs=100)),
        *(
            _row(name, _ROWS[name][0], replace(nuclei_settings("gmr_unet", **_ROWS[name][1]), epochs=100))
            for name in (
                "published",
                "smooth-edge",
                "harmonics-2",
                "harmonics-2-smooth",
                "harmonics-1-3x3",
            )
        ),
        *(
            _row(
                f"{name}-batch-norm",
                f"{_ROWS[name][0]}; batch norms",
                replace(nuclei_settings("gmr_unet", **_ROWS[name][1], norm="batch"), epochs=100),
            )
            for name in ("published", "harmonics-2-smooth", "smooth-3x3", "harmonics-1-3x3")
        ),
    ),
    split="val",
    against="published",
)

_AUGMENTATIONS: dict[Augmentation, str] = {
    "none": "not augmented",
    "release": "augmented as in the authors' code",
}

CHOICES_OF_AUGMENTATION = Study(
    "choices-augmentation",
    "Augmentation, chosen on validation images",
    NWPU,
    "The paper's text says that it augments no image; the authors' commands change colours, blur, shift, and resize"
    " crops. GMR-R18 of width 16 on four fifths of the training crops of NWPU-10, tested on the last fifth, trained as"
    " in the first table, but for 100 epochs.",
    tuple(
        _row(name, label, replace(nwpu_settings("gmr_resnet18", 16), epochs=100, augmentation=name))
        for name, label in _AUGMENTATIONS.items()
    ),
    split="val",
    against="none",
)

_WIDE = replace(nwpu_settings("gmr_resnet18", 32, **SMOOTH, **DISC, harmonics=2), epochs=60, batch_size=32)

CHOICES_FOR_WIDE = Study(
    "choices-wide",
    "How to train a wide network, chosen on validation images",
    NWPU,
    "What helps a wide network, which learns its training images by heart, need not help a narrow one. GMR-R18 of width"
    " 32, area-sampled rings of unit norm with a smooth edge, harmonics of orders 1 and 2, pooling over a disc, only"
    " the disc seen, on four fifths of the training crops of NWPU-10, tested on the last fifth: 60 epochs in batches of"
    " 32, the rest as in the first table. Crops are of training images only; whole images are tested.",
    (_row("whole", "whole images", _WIDE), _row("crops", "random crops of 56x56", replace(_WIDE, crop=56))),
    split="val",
    against="whole",
)

_RATES = (0.02, 0.05, 0.1, 0.2)
"""The paper's first."""
_FORMS: dict[str, tuple[str, TrainSettings]] = {
    "plain": ("R18, width 8", short_nwpu_settings("resnet18", _WIDTH)),
    "published": ("GMR-R18, width 8, the paper's form", short_nwpu_settings("gmr_resnet18", _WIDTH)),
    "oriented": (
        f"GMR-R18, width 6, {_ROWS['harmonics-2-smooth'][0]}; pooling over a disc, only the disc seen",
        short_nwpu_settings("gmr_resnet18", 6, **SMOOTH, **DISC, harmonics=2),
    ),
}

CHOICES_OF_RATE = Study(
    "choices-rate",
    "The learning rate, chosen on validation images",
    NWPU,
    "Ring networks lag the plain one in epochs: is the paper's rate, 0.02, too low for them? On four fifths of the"
    f" training crops of NWPU-10, tested on the last fifth: {SHORT}, the rest as in the first table.",
    tuple(
        _row(f"{name}-{rate}", f"{label}; from {rate}", replace(settings, lr=rate))
        for name, (label, settings) in _FORMS.items()
        for rate in _RATES
    ),
    split="val",
    against="published-0.02",
)
