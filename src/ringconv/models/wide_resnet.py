"""The wide residual network of 16 layers, eight times as wide as its stem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Unpack

from ringconv.models.factories import Layers, PlainLayers, RingLayers, per_stage, split_layer_options
from ringconv.models.registry import register_model
from ringconv.models.resnet import (
    PreactivationBlock,
    ResNet,
    RingResNetOptions,
    SkeletonOptions,
)
from ringconv.pooling import Pooling

_STAGES = 3
_WIDER = 8


def wide_resnet_of(layers: Layers, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """WRN-16-8 made of the given layers: three stages of two pre-activated blocks; ``width`` is that of the stem."""
    options: dict[str, Any] = {"width": 16, "stem_pool": False, **skeleton}
    width = options.pop("width")
    return ResNet(layers, PreactivationBlock, (2, 2, 2), width=_WIDER * width, stem_width=width, **options)


@register_model(
    "wide_resnet16_8",
    "wide_resnet",
    parameters=10_962_138,
    note="not in the paper; with stem_kernel_size=3 it is the 10,961,370 of the original",
)
def wide_resnet16_8(
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 5,
    pooling: Pooling = "average",
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """The plain network, with the stem of the ring one; by default without stem pooling and of width 16."""
    layers = PlainLayers(per_stage("kernel_size", kernel_size, _STAGES), stem_kernel_size, head_pooling=pooling)
    return wide_resnet_of(layers, **skeleton)


@register_model(
    "gmr_wide_resnet16_8",
    "wide_resnet",
    symmetry="rotations and reflections",
    parameters=4_333_809,
    note="not in the paper",
)
def gmr_wide_resnet16_8(
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5),
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: int = 5,
    **options: Unpack[RingResNetOptions],
) -> ResNet:
    """The ring network; options as in :func:`ringconv.models.gmr_resnet`, for three stages."""
    skeleton, of_layers = split_layer_options(options)
    layers = RingLayers(
        per_stage("kernel_size", kernel_size, _STAGES),
        stem_kernel_size,
        rings=per_stage("rings", rings, _STAGES),
        **of_layers,
    )
    return wide_resnet_of(layers, **skeleton)
