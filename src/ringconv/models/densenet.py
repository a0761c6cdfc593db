"""timm's DenseNet with a stem for small images, and the same converted to ring convolutions."""

from __future__ import annotations

import functools
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
    plain_conv,
    split_ring_options,
    with_rings,
)
from ringconv.models.features import FeatureInfo
from ringconv.models.registry import register_model

_STAGES = tuple(f"features.denseblock{block}" for block in (1, 2, 3, 4))
_WIDTHS = {121: 64, 161: 96}


class RingDenseNetOptions(BackboneOptions, RingOptions, total=False):
    """Options of the backbone and of the ring layers."""


def densenet(
    depth: int,
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 5,
    **options: Unpack[BackboneOptions],
) -> nn.Module:
    """timm's network, with the stem of the ring one.

    Args:
        depth: 121 or 161.
        kernel_size: of the dense layers' spatial convolutions, one or one per block.
        options: ``width`` is that of the stem, twice the growth of a layer. The others are as in :class:`ResNet`.
    """
    network, reduction = _densenet(depth, per_stage("kernel_size", kernel_size, 4), stem_kernel_size, **options)
    return DenseNetFeatures(network, reduction) if options.get("features_only") else network


def gmr_densenet(
    depth: int,
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5, 5),
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: int = 5,
    **options: Unpack[RingDenseNetOptions],
) -> nn.Module:
    """The same with ring convolutions; further options are the keywords of :class:`GMRConv2d`."""
    backbone, ring = split_ring_options(options)
    network, reduction = _densenet(depth, per_stage("kernel_size", kernel_size, 4), stem_kernel_size, **backbone)
    network = with_rings(network, _STAGES, per_stage("rings", rings, 4), ring)
    return DenseNetFeatures(network, reduction) if options.get("features_only") else network


class DenseNetFeatures(nn.Module):
    """The maps of the dense blocks, (B, C, H, W) each."""

    def __init__(self, network: Any, reduction: int) -> None:
        super().__init__()
        self.features: nn.Sequential = network.features
        del self.features.norm5  # belongs to the head
        channels = [info["num_chs"] for info in network.feature_info[1:]]
        self.in_chans: int = network.in_chans
        self.feature_info = FeatureInfo.halving(_STAGES, channels, reduction)

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, in_chans, H, W) -> the maps of all blocks."""
        maps = []
        for name, layer in self.features.named_children():
            x = layer(x)
            if name.startswith("denseblock"):
                maps.append(x)
        return maps


def _densenet(
    depth: int,
    kernel_size: Sequence[int],
    stem_kernel_size: int,
    *,
    width: int | None = None,
    in_chans: int = 3,
    num_classes: int = 10,
    stem_stride: int = 1,
    stem_pool: bool = True,
    features_only: bool = False,
) -> tuple[Any, int]:
    """timm's network with these sizes, and by how much its stem reduces the maps."""
    if depth not in _WIDTHS:
        raise ValueError(f"depth must be one of {', '.join(map(str, _WIDTHS))}, got {depth}")
    width = _WIDTHS[depth] if width is None else width
    if width % 2:
        raise ValueError(f"width must be even, twice the growth of a layer, got {width}")
    check_odd("kernel_size", kernel_size)
    check_positive(width=width, in_chans=in_chans, stem_stride=stem_stride)
    check_odd("stem_kernel_size", [stem_kernel_size])
    network = import_timm().create_model(
        f"densenet{depth}", growth_rate=width // 2, in_chans=in_chans, num_classes=0 if features_only else num_classes
    )
    features = network.features
    features.conv0 = plain_conv(2, in_chans, width, stem_kernel_size, stem_stride)
    features.pool0 = Downsample(2) if stem_pool else nn.Identity()
    for name, size in zip(_STAGES, kernel_size, strict=True):
        for layer in network.get_submodule(name).values() if size != 3 else ():
            layer.conv2 = plain_conv(2, layer.conv2.in_channels, layer.conv2.out_channels, size)
    return network, stem_stride * (2 if stem_pool else 1)


# -- the models by name: depth, plain count with the ring network's stem, the paper's count (7x7 stem), ring count
for _depth, _parameters, _paper_parameters, _paper, _ring_parameters, _ring_paper in (
    (121, 6_959_498, 6_964_106, "7.0M", 5_677_535, "5.7M"),
    (161, 26_487_178, 26_494_090, "26.5M", 22_499_803, "22.5M"),
):
    register_model(
        f"densenet{_depth}",
        "densenet",
        parameters=_parameters,
        paper=_paper,
        paper_options=(("stem_kernel_size", 7),),
        paper_parameters=_paper_parameters,
        extra=EXTRA,
    )(functools.partial(densenet, _depth))
    register_model(
        f"gmr_densenet{_depth}",
        "densenet",
        symmetry="rotations and reflections",
        parameters=_ring_parameters,
        paper=_ring_paper,
        extra=EXTRA,
    )(functools.partial(gmr_densenet, _depth))
