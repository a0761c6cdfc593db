"""The networks of the paper's rows: models of the registry, and the options that make them the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringconv.recipes.differences import RING_SAMPLING, STEM_POOLING, UNEQUAL_STEMS, VOLUME_STEM, Difference

Options = Mapping[str, Any]

SMALL_IMAGES = ("cifar10", "nwpu10", "mtarsi")
"""Sets that the paper keeps at full resolution in the stem."""


@dataclass(frozen=True)
class Network:
    """A row's model."""

    model: str
    options: Options = field(default_factory=dict)
    on_small: Options = field(default_factory=dict)
    """Further options on small images."""
    on_large: Options = field(default_factory=dict)
    """Further options on all others."""
    small_differences: tuple[Difference, ...] = ()
    large_differences: tuple[Difference, ...] = ()
    differences: tuple[Difference, ...] = ()
    training: Options = field(default_factory=dict)
    """Settings of training that this network wants."""
    width: int = 64
    """The model's own width, which the small scales divide."""
    narrowing: int = 4
    """What the scale cpu divides it by."""
    notes: tuple[str, ...] = ()

    def options_for(self, data: str) -> dict[str, Any]:
        for_data = self.on_small if data in SMALL_IMAGES else self.on_large
        return {**published_form(self.model), **self.options, **for_data}

    def differences_for(self, data: str) -> tuple[Difference, ...]:
        return self.differences + (self.small_differences if data in SMALL_IMAGES else self.large_differences)


def published_form(model: str) -> dict[str, Any]:
    """Options that make a network of ring layers the paper's, whatever the defaults are; none for others."""
    return {"preset": "paper"} if model.startswith("gmr_") else {}


_AVERAGE_STEM = "the stem's pooling takes the mean, where torchvision's takes the maximum"
_STRIDED = "strided, as the public code; the registry's default down-samples equivariantly"
_ODD_STEM = "the stem of stride 1 is 5x5: an even kernel, as the 4x4 of the original, would shift the maps"
_UNSTATED_STEM = "the paper does not state its stem; here that of the plain network, at the kernel size of the method"


def _torchvision(model: str) -> Network:
    return Network(
        model,
        {"stem_kernel_size": 7},
        on_small={"stem_pool": False},
        on_large={"stem_stride": 2},
        large_differences=(UNEQUAL_STEMS,),
        notes=(_AVERAGE_STEM,),
    )


def _ring(model: str) -> Network:
    return Network(
        model,
        on_small={"stem_pool": False},
        small_differences=(STEM_POOLING,),
        large_differences=(UNEQUAL_STEMS,),
        differences=(RING_SAMPLING,),
    )


def _public(model: str, *notes: str, **options: Any) -> Network:
    """A competing method in the residual network, as its public code has it."""
    return Network(
        model,
        {"strided": True, **options},
        on_small={"stem_pool": False},
        on_large={"stem_stride": 2},
        notes=(_STRIDED, _UNSTATED_STEM, *notes),
    )


_OUR_READING = "the paper quotes its figures; the network is our reading: there is no public code or full description"

NETWORKS = {
    "resnet18": _torchvision("resnet18"),
    "resnet50": _torchvision("resnet50"),
    "gmr_resnet18": _ring("gmr_resnet18"),
    "gmr_resnet34": _ring("gmr_resnet34"),
    "gmr_resnet50": _ring("gmr_resnet50"),
    "orn_resnet18": _public("orn_resnet18"),
    "p4m_resnet18": _public(
        "p4m_resnet18",
        "without group pooling before the head, as the public code: logits change with a turn",
        pooling="none",
    ),
    "harmonic_resnet18": replace(
        _public("harmonic_resnet18", "the text gives one learning rate for all; AdamW usually wants about 1e-3"),
        training={"optimiser": "adamw"},
    ),
    "ric_resnet18": _public("ric_resnet18"),
    "symm_resnet18": Network(
        "symm_resnet18", on_small={"stem_pool": False}, on_large={"stem_stride": 2}, notes=(_UNSTATED_STEM,)
    ),
    "symm_resnet50": Network("symm_resnet50", on_large={"stem_stride": 2}, notes=(_UNSTATED_STEM,)),
    "e2_wrn16": Network("e2_wrn16", width=128),
    "e2_order0_wrn16": Network("e2_order0_wrn16", width=128),
    "e2_resnet50": Network("e2_resnet50", on_large={"stem_stride": 2}, width=36, notes=(_UNSTATED_STEM,)),
    "r3d_9": Network("r3d_9", {"stem_kernel_size": (3, 7, 7)}, width=24, narrowing=2),
    "se3_cnn": Network("se3_cnn", width=128),
    "symm_r3d_9": Network("symm_r3d_9", width=24, narrowing=2),
    "gmr_r3d_9": Network("gmr_r3d_9", width=24, narrowing=2, differences=(RING_SAMPLING, VOLUME_STEM)),
    "unet": Network("unet", width=16, narrowing=2),
    "e2_unet": Network("e2_unet", width=6, narrowing=2),
    "symm_unet": Network("symm_unet", width=16, narrowing=2),
    "gmr_unet": Network("gmr_unet", width=16, narrowing=2, differences=(RING_SAMPLING,)),
    "densenet121": Network("densenet121", {"stem_kernel_size": 7}, notes=(_AVERAGE_STEM,)),
    "densenet161": Network("densenet161", {"stem_kernel_size": 7}, width=96, notes=(_AVERAGE_STEM,)),
    "gmr_densenet121": Network("gmr_densenet121", differences=(RING_SAMPLING,)),
    "gmr_densenet161": Network("gmr_densenet161", width=96, differences=(RING_SAMPLING,)),
    "convnext_tiny": Network("convnext_tiny", width=96, notes=(_ODD_STEM,)),
    "gmr_convnext_tiny": Network("gmr_convnext_tiny", width=96, differences=(RING_SAMPLING,)),
    "rad_resnet34": Network("rad_resnet34", on_small={"stem_pool": False}, notes=(_OUR_READING,)),
    "rsdw_resnet34": Network("rsdw_resnet34", on_small={"stem_pool": False}, notes=(_OUR_READING,)),
}

BY_MODEL = {network.model: network for network in NETWORKS.values()}
