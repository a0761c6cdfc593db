"""One residual skeleton in 1, 2 or 3 dimensions; a method is a set of factories for its layers.

The skeleton decides widths, strides and shortcuts. What a strided convolution is, whether a strided layer or a
down-sampling before a layer of stride 1, is up to the factories.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv._checks import check_choice
from ringconv.models.factories import (
    BackboneOptions,
    Layers,
    PlainLayers,
    PoolingOptions,
    RingLayers,
    RingOptions,
    check_positive,
    per_stage,
    split_layer_options,
)
from ringconv.models.features import FeatureInfo, StageInfo
from ringconv.models.registry import register_model
from ringconv.pooling import VIEWS, DiscView, Pooling, View


class BasicBlock(nn.Module):
    """Two spatial convolutions beside a shortcut."""

    expansion: ClassVar[int] = 1
    preactivated: ClassVar[bool] = False

    def __init__(
        self, layers: Layers, in_channels: int, width: int, stage: int, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv1 = layers.conv(in_channels, width, stage, stride, dilation, groups)
        self.norm1 = layers.norm(width)
        self.act1 = layers.activation(width)
        self.conv2 = layers.conv(width, width, stage, 1, dilation, groups)
        self.norm2 = layers.norm(width)
        self.shortcut = _shortcut(layers, in_channels, width, stride)
        self.act2 = layers.activation(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y)) + self.shortcut(x)
        out: Tensor = self.act2(y)
        return out


class Bottleneck(nn.Module):
    """A spatial convolution between two 1x1 convolutions, beside a shortcut."""

    expansion: ClassVar[int] = 4
    preactivated: ClassVar[bool] = False

    def __init__(
        self, layers: Layers, in_channels: int, width: int, stage: int, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = layers.pointwise(in_channels, width)
        self.norm1 = layers.norm(width)
        self.act1 = layers.activation(width)
        self.conv2 = layers.conv(width, width, stage, stride, dilation, groups)
        self.norm2 = layers.norm(width)
        self.act2 = layers.activation(width)
        self.conv3 = layers.pointwise(width, out_channels)
        self.norm3 = layers.norm(out_channels)
        self.shortcut = _shortcut(layers, in_channels, out_channels, stride)
        self.act3 = layers.activation(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.norm1(self.conv1(x)))
        y = self.act2(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y)) + self.shortcut(x)
        out: Tensor = self.act3(y)
        return out


def _shortcut(layers: Layers, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    conv = layers.pointwise(in_channels, out_channels, stride)
    return nn.Sequential(OrderedDict(conv=conv, norm=layers.norm(out_channels)))


class PreactivationBlock(nn.Module):
    """Norm and activation before each of two convolutions, as in wide residual networks.

    Where the width changes, the shortcut is a 1x1 convolution of the activated input.
    """

    expansion: ClassVar[int] = 1
    preactivated: ClassVar[bool] = True

    def __init__(
        self, layers: Layers, in_channels: int, width: int, stage: int, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm1 = layers.norm(in_channels)
        self.act1 = layers.activation(in_channels)
        self.conv1 = layers.conv(in_channels, width, stage, stride, dilation, groups)
        self.norm2 = layers.norm(width)
        self.act2 = layers.activation(width)
        self.conv2 = layers.conv(width, width, stage, 1, dilation, groups)
        changes = stride != 1 or in_channels != width
        self.shortcut = layers.pointwise(in_channels, width, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        activated = self.act1(self.norm1(x))
        y: Tensor = self.conv2(self.act2(self.norm2(self.conv1(activated))))
        return y + (x if self.shortcut is None else self.shortcut(activated))


Block = type[BasicBlock] | type[Bottleneck] | type[PreactivationBlock]


class SkeletonOptions(BackboneOptions, total=False):
    """Options that a residual network takes, whatever its layers."""

    groups: int
    replace_stride_with_dilation: Sequence[bool] | None
    view: View


class RingResNetOptions(SkeletonOptions, RingOptions, PoolingOptions, total=False):
    """Options of the skeleton, of the ring layers and of what makes the maps smaller."""


class ResNet(nn.Module):
    """Stem, stages of residual blocks, global pooling, linear head.

    Args:
        layers: the factories of its layers.
        block: BasicBlock, Bottleneck or PreactivationBlock.
        depths: blocks per stage. Every stage but the first halves the maps and doubles the width.
        width: channels of the first stage's spatial convolutions.
        stem_width: channels of the stem; default ``width``.
        num_classes: 0 for the pooled features instead of logits.
        stem_pool: halve the map after the stem; the paper leaves it out for small images.
        groups: groups of the blocks' spatial convolutions.
        replace_stride_with_dilation: for every stage but the first, whether to keep the size of the maps and dilate
            this and the later stages' kernels instead.
        features_only: return the maps of all stages, without a head; ``feature_info`` describes them.
        view: "square": the whole image; "disc": only the disc in it, whose corners a turn would cut
            (:class:`ringconv.pooling.DiscView`).
    """

    def __init__(
        self,
        layers: Layers,
        block: Block,
        depths: Sequence[int],
        *,
        width: int = 64,
        stem_width: int | None = None,
        in_chans: int = 3,
        num_classes: int = 10,
        stem_stride: int = 1,
        stem_pool: bool = True,
        groups: int = 1,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        features_only: bool = False,
        view: View = "square",
    ) -> None:
        super().__init__()
        check_choice("view", view, VIEWS)
        check_positive(width=width, in_chans=in_chans, stem_stride=stem_stride, groups=groups)
        if num_classes < 0:
            raise ValueError(f"num_classes must be at least 0, got {num_classes}")
        channels = width if stem_width is None else stem_width
        dilate = replace_stride_with_dilation
        if dilate is None:
            dilate = (False,) * (len(depths) - 1)
        if len(dilate) != len(depths) - 1:
            raise ValueError(
                "replace_stride_with_dilation must be one bool for every stage but the first"
                f" ({len(depths) - 1}), got {dilate!r}"
            )
        stem: OrderedDict[str, nn.Module] = OrderedDict()
        if view == "disc":
            stem["view"] = DiscView(layers.turned_axes)
        stem["conv"] = layers.stem(in_chans, channels, stem_stride)
        if not block.preactivated:
            stem["norm"] = layers.norm(channels)
            stem["act"] = layers.activation(channels)
        if stem_pool:
            stem["pool"] = layers.stem_pool(channels)
        self.stem = nn.Sequential(stem)

        reduction = stem_stride * (2 if stem_pool else 1)
        dilation = 1
        stages, infos = [], []
        for stage, depth in enumerate(depths):
            # The first block of a dilated stage still sees maps that its own stride would have thinned out.
            stride, first_dilation = 1, dilation
            if stage > 0 and dilate[stage - 1]:
                dilation *= 2
            elif stage > 0:
                stride = 2
            reduction *= stride
            blocks = []
            for index in range(depth):
                first = index == 0
                blocks.append(
                    block(
                        layers, channels, width * 2**stage, stage, stride if first else 1,
                        first_dilation if first else dilation, groups,
                    )
                )  # fmt: skip
                channels = width * 2**stage * block.expansion
            stages.append(nn.Sequential(*blocks))
            infos.append(StageInfo(f"stages.{stage}", layers.map_channels(channels), reduction))
        self.stages = nn.Sequential(*stages)
        self.feature_info = FeatureInfo(tuple(infos))
        self.features_only = features_only
        self.in_chans = in_chans
        self.num_features = layers.pooled_channels(channels)
        self.num_classes = 0 if features_only else num_classes
        if features_only:
            return
        self.final = nn.Sequential()
        if block.preactivated:
            self.final = nn.Sequential(OrderedDict(norm=layers.norm(channels), act=layers.activation(channels)))
        self.global_pool = layers.global_pool(channels)
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        """(B, in_chans, *S) -> logits (B, num_classes); with ``features_only`` the maps of all stages."""
        x = self.stem(x)
        if not self.features_only:
            logits: Tensor = self.head(self.global_pool(self.final(self.stages(x))))
            return logits
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


_RESNETS: dict[int, tuple[Block, tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def resnet_of_depth(depth: int, layers: Layers, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """A residual network of 18, 34 or 50 layers, made of the given ones."""
    if depth not in _RESNETS:
        raise ValueError(f"depth must be one of {', '.join(map(str, _RESNETS))}, got {depth}")
    block, depths = _RESNETS[depth]
    return ResNet(layers, block, depths, **skeleton)


def resnet(
    depth: int = 18,
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 5,
    dimensions: int = 2,
    pooling: Pooling = "average",
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """The plain network, with the stem of the ring one.

    Args:
        kernel_size: of the spatial convolutions, one or one per stage.
        dimensions: 1, 2 for images, or 3 for volumes.
        pooling: before the head, over the map ("average") or the disc in it ("disc").
        skeleton: the other options are those of :class:`ResNet`.
    """
    layers = PlainLayers(per_stage("kernel_size", kernel_size, 4), stem_kernel_size, dimensions, pooling)
    return resnet_of_depth(depth, layers, **skeleton)


def gmr_resnet(
    depth: int = 18,
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5, 5),
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: int = 5,
    dimensions: int = 2,
    **options: Unpack[RingResNetOptions],
) -> ResNet:
    """The paper's network; with ``preset="paper"`` its rings have the published form, too.

    Args:
        kernel_size: of the ring convolutions, one or one per stage.
        rings: one number or one per stage; None for the default of the kernel size.
        dimensions: 1, 2 for images, or 3 for volumes.
        options: those of :class:`ResNet`, and the keyword options of :class:`GMRConv2d`. ``downsampling``: in the place
            of a stride and after the stem, "average" or "lowpass" (:class:`ringconv.Downsample`). ``pooling``: before
            the head, over the map ("average") or the disc in it ("disc").
    """
    skeleton, of_layers = split_layer_options(options)
    layers = RingLayers(
        per_stage("kernel_size", kernel_size, 4),
        stem_kernel_size,
        dimensions,
        rings=per_stage("rings", rings, 4),
        **of_layers,
    )
    return resnet_of_depth(depth, layers, **skeleton)


# -- the models by name: depth, plain count with the ring network's stem, the paper's count (7x7 stem), ring count
for _depth, _parameters, _paper_parameters, _paper, _ring_parameters, _ring_paper in (
    (18, 11_177_034, 11_181_642, "11.2M", 3_996_685, "3.9M"),
    (34, 21_285_194, 21_289_802, "", 7_518_537, ""),
    (50, 23_523_914, 23_528_522, "23.5M", 16_130_571, "16.1M"),
):
    register_model(
        f"resnet{_depth}",
        "resnet",
        dimensions=(2, 1, 3),
        parameters=_parameters,
        paper=_paper,
        paper_options=(("stem_kernel_size", 7),),
        paper_parameters=_paper_parameters,
    )(functools.partial(resnet, _depth))
    register_model(
        f"gmr_resnet{_depth}",
        "resnet",
        dimensions=(2, 1, 3),
        symmetry="rotations and reflections",
        parameters=_ring_parameters,
        paper=_ring_paper,
    )(functools.partial(gmr_resnet, _depth))
