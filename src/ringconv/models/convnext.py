"""timm's ConvNeXt with a stem for small images, and the same converted to ring convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv.layers import Downsample
from ringconv.models._timm import EXTRA, import_timm
from ringconv.models.factories import (
    BackboneOptions,
    RingOptions,
    check_odd,
    check_positive,
    per_stage,
    split_ring_options,
    with_rings,
)
from ringconv.models.features import FeatureInfo
from ringconv.models.registry import register_model

_STAGES = tuple(f"stages.{stage}" for stage in range(4))


class RingConvNeXtOptions(BackboneOptions, RingOptions, total=False):
    """Options of the backbone and of the ring layers."""


@register_model(
    "convnext_tiny",
    "convnext",
    parameters=27_830_410,
    paper="27.8M",
    paper_options=(("stem_kernel_size", 4), ("stem_stride", 4), ("stem_pool", False)),
    paper_parameters=27_827_818,
    extra=EXTRA,
)
def convnext_tiny(
    *,
    kernel_size: int | Sequence[int] = 7,
    stem_kernel_size: int = 5,
    **options: Unpack[BackboneOptions],
) -> nn.Module:
    """timm's network, with the stem of the ring one.

    Args:
        kernel_size: of the depthwise convolutions, one or one per stage.
        stem_kernel_size: odd; or equal to ``stem_stride``, for a stem of patches.
        options: as in :class:`ResNet`.
    """
    network, reduction = _convnext(per_stage("kernel_size", kernel_size, 4), stem_kernel_size, **options)
    return ConvNeXtFeatures(network, reduction) if options.get("features_only") else network


@register_model(
    "gmr_convnext_tiny",
    "convnext",
    symmetry="rotations and reflections",
    parameters=26_359_951,
    paper="26.3M",
    extra=EXTRA,
)
def gmr_convnext_tiny(
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5, 5),
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: int = 5,
    **options: Unpack[RingConvNeXtOptions],
) -> nn.Module:
    """The same with ring convolutions, and averages of 2x2 pixels between the stages.

    Further options are the keywords of :class:`GMRConv2d`.
    """
    backbone, ring = split_ring_options(options)
    network, reduction = _convnext(per_stage("kernel_size", kernel_size, 4), stem_kernel_size, **backbone)
    network = with_rings(network, _STAGES, per_stage("rings", rings, 4), ring)
    return ConvNeXtFeatures(network, reduction) if options.get("features_only") else network


class ConvNeXtFeatures(nn.Module):
    """The maps of the stages, (B, C, H, W) each."""

    def __init__(self, network: Any, reduction: int) -> None:
        super().__init__()
        self.stem: nn.Sequential = network.stem
        self.stages: nn.Sequential = network.stages
        channels = [info["num_chs"] for info in network.feature_info]
        self.in_chans: int = network.in_chans
        self.feature_info = FeatureInfo.halving(_STAGES, channels, reduction)

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, in_chans, H, W) -> the maps of all stages."""
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


def _convnext(
    kernel_size: Sequence[int],
    stem_kernel_size: int,
    *,
    width: int = 96,
    in_chans: int = 3,
    num_classes: int = 10,
    stem_stride: int = 1,
    stem_pool: bool = True,
    features_only: bool = False,
) -> tuple[Any, int]:
    """timm's network with these sizes, and by how much its stem reduces the maps."""
    check_odd("kernel_size", kernel_size)
    check_positive(width=width, in_chans=in_chans, stem_stride=stem_stride)
    patches = stem_kernel_size == stem_stride
    if not patches:
        check_odd("stem_kernel_size", [stem_kernel_size])
    network = import_timm().create_model(
        "convnext_tiny",
        dims=tuple(width * 2**stage for stage in range(4)),
        kernel_sizes=tuple(kernel_size),
        in_chans=in_chans,
        num_classes=0 if features_only else num_classes,
    )
    padding = 0 if patches else stem_kernel_size // 2
    network.stem[0] = nn.Conv2d(in_chans, width, stem_kernel_size, stem_stride, padding=padding)
    if stem_pool:
        network.stem.append(Downsample(2))
    return network, stem_stride * (2 if stem_pool else 1)
