"""E(2)-steerable networks (Weiler & Cesa 2019), made of escnn's layers.

A feature is a field of the regular representation of a group of N rotations (C_N) or of rotations and reflections
(D_N); filters are expanded in all steerable bases that commute with the group.

Kept exactly: quarter turns (and reflections for D_N), on maps that the strided layers sample alike from all sides: for
two strides of 2, sizes 4 n + 1. Turns by 45 degrees (N = 8): nearly, as far as a 5x5 filter samples the basis well.
Not kept: other angles; and quarter turns on even maps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv.baselines._escnn import EXTRA, OnTensors, escnn, steerable_conv
from ringconv.baselines.fields import FieldLayers, FieldPool
from ringconv.conversion.resizing import SizeRule, symmetric_max_pool
from ringconv.layers import Downsample, Upsample
from ringconv.models.factories import GlobalAverage, Size, per_stage
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet_of_depth

Group = Literal["C4", "C8", "D4", "D8"]


def gspace(group: Group) -> Any:
    """The plane and the group that acts on it, as escnn has it."""
    if group not in ("C4", "C8", "D4", "D8"):
        raise ValueError(f"group must be one of 'C4', 'C8', 'D4', 'D8', got {group!r}")
    spaces = escnn("gspaces")
    rotations = int(group[1:])
    return spaces.flipRot2dOnR2(rotations) if group[0] == "D" else spaces.rot2dOnR2(rotations)


# -- the wide residual network


class WideResNet(nn.Module):
    """A wide residual network of 16 layers: equivariant to D8 in its first stage, to D4 after it.

    Stem and first stage have 5x5 kernels, the others 3x3; the last block ends in invariant channels.

    Args:
        width: channels of the first stage of a plain network with about as many parameters; the paper's has 16 * 8.
        max_frequency: of the filters; 0 leaves the radially symmetric ones. None: all that the taps can hold.
        dropout: between the convolutions of a block.
        stem_pool: halve the map after the stem.
    """

    def __init__(
        self,
        width: int = 128,
        in_chans: int = 3,
        num_classes: int = 10,
        max_frequency: int | None = None,
        dropout: float = 0.3,
        stem_pool: bool = False,
    ) -> None:
        super().__init__()
        enn = escnn("nn")
        space = gspace("D8")
        image = enn.FieldType(space, in_chans * [space.trivial_repr])
        fields = _regular(space, width / 8)
        cutoff = functools.partial(_highest_frequency, limit=max_frequency)
        conv = functools.partial(steerable_conv, frequencies_cutoff=cutoff, bias=False)
        self.stem = nn.Sequential(OnTensors(conv(image, fields, 5, padding=2)), Downsample(2 if stem_pool else 1))
        stages: list[nn.Module] = []
        for stage in range(3):
            inner = _regular(space, width * 2**stage)
            last = inner if stage < 2 else _invariant(space, width * 2**stage)
            block = functools.partial(_Block, conv=conv, dropout=dropout)
            stages += [block(fields, inner, inner, 1 if stage == 0 else 2), block(inner, inner, last, 1)]
            fields = last
            if stage == 0:
                restriction = enn.RestrictionModule(fields, (0, 4))
                disentangled = enn.DisentangleModule(restriction.out_type)
                stages.append(OnTensors(enn.SequentialModule(restriction, disentangled)))
                fields, space = disentangled.out_type, disentangled.out_type.gspace
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(fields.size)
        self.num_features = fields.size
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.head = nn.Linear(fields.size, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) -> logits (B, num_classes)"""
        features = torch.relu(self.norm(self.stages(self.stem(x)))).mean((2, 3))
        logits: Tensor = self.head(features)
        return logits


class _Block(nn.Module):
    """Norm and activation before each of two convolutions; the second one has the stride."""

    def __init__(
        self, in_type: Any, inner: Any, out_type: Any, stride: int, conv: Callable[..., Any], dropout: float
    ) -> None:
        super().__init__()
        enn = escnn("nn")
        side = 3 if in_type.gspace.rotations_order <= 4 else 5
        self.norm1 = OnTensors(enn.InnerBatchNorm(in_type))
        self.conv1 = OnTensors(conv(in_type, inner, side, padding=side // 2))
        self.norm2 = OnTensors(enn.InnerBatchNorm(inner))
        self.dropout = nn.Dropout(dropout)
        self.conv2 = OnTensors(conv(inner, out_type, side, padding=side // 2, stride=stride))
        changes = stride != 1 or in_type != out_type
        self.shortcut = OnTensors(conv(in_type, out_type, 1, stride=stride)) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        activated = self.norm1(x).relu()
        y: Tensor = self.conv2(self.dropout(self.norm2(self.conv1(activated)).relu()))
        return y + (x if self.shortcut is None else self.shortcut(activated))


def _highest_frequency(radius: float, limit: int | None) -> float:
    """Of the harmonics on a ring: all that it can hold, or up to a limit."""
    return 3 * radius if limit is None else min(3 * radius, limit)


def _regular(space: Any, channels: float) -> Any:
    """Regular fields with about the parameters of this many plain channels."""
    order = space.fibergroup.order()
    return escnn("nn").FieldType(space, max(1, int(channels / math.sqrt(order))) * [space.regular_repr])


def _invariant(space: Any, channels: float) -> Any:
    order = space.fibergroup.order()
    return escnn("nn").FieldType(space, max(1, int(channels * math.sqrt(order))) * [space.trivial_repr])


@register_model(
    "e2_wrn16", "wrn", parameters=10_791_956, paper="10.8M", extra=EXTRA,
    note="D8, D4, D4; keeps quarter turns and flips on sizes 4n + 1",
)  # fmt: skip
def e2_wrn16(
    *, width: int = 128, in_chans: int = 3, num_classes: int = 10, dropout: float = 0.3, stem_pool: bool = False
) -> WideResNet:
    """The E(2)-steerable wide residual network, equivariant to D8, D4 and D4."""
    return WideResNet(width, in_chans, num_classes, None, dropout, stem_pool)


@register_model(
    "e2_order0_wrn16", "wrn", parameters=2_927_756, paper="2.9M", extra=EXTRA,
    note="radially symmetric filters only; keeps quarter turns and flips on sizes 4n + 1",
)  # fmt: skip
def e2_order0_wrn16(
    *, width: int = 128, in_chans: int = 3, num_classes: int = 10, dropout: float = 0.3, stem_pool: bool = False
) -> WideResNet:
    """The same with radially symmetric filters only: harmonics of order 0."""
    return WideResNet(width, in_chans, num_classes, 0, dropout, stem_pool)


# -- the residual network on the common skeleton


@dataclass(frozen=True)
class E2Layers(FieldLayers):
    """Regular fields of a group; the network counts fields. Filters have escnn's default frequencies."""

    group: Group = "C4"

    @property
    def order(self) -> int:
        return int(self.group[1:]) * (2 if self.group[0] == "D" else 1)

    def fields(self, channels: int) -> int:
        return channels

    def field_conv(
        self, in_fields: int, out_fields: int, kernel_size: Size, lifting: bool = False, **conv: Any
    ) -> nn.Module:
        if not isinstance(kernel_size, int):
            raise ValueError(f"a steerable kernel is square, so its size is one int, got {kernel_size!r}")
        conv["padding"] = conv.get("dilation", 1) * (kernel_size // 2)
        space = gspace(self.group)
        field_type = escnn("nn").FieldType
        in_type = field_type(space, in_fields * [space.trivial_repr if lifting else space.regular_repr])
        out_type = field_type(space, out_fields * [space.regular_repr])
        return OnTensors(steerable_conv(in_type, out_type, kernel_size, **conv))

    def global_pool(self, channels: int) -> nn.Module:
        return nn.Sequential(FieldPool(self.order), GlobalAverage())

    def pooled_channels(self, channels: int) -> int:
        return channels


@register_model(
    "e2_resnet50",
    "resnet",
    symmetry="rotations",
    parameters=24_942_106,
    paper="26.1M",
    paper_options=(("num_classes", 1000),),
    paper_parameters=26_083_576,
    extra=EXTRA,
)
def e2_resnet50(
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 7,
    group: Group = "C4",
    strided: bool = False,
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """The residual network of regular fields, C4 and 36 fields in its first stage as in the paper.

    Args:
        kernel_size: of the spatial convolutions, one or one per stage.
        strided: stride the convolutions, which breaks quarter turns on even maps.
        skeleton: the other options are those of :class:`ResNet`; ``width`` counts fields.
    """
    layers = E2Layers(per_stage("kernel_size", kernel_size, 4), stem_kernel_size, strided=strided, group=group)
    options: SkeletonOptions = {"width": 36}
    return resnet_of_depth(50, layers, **(options | skeleton))


# -- the U-Net


class E2UNet(nn.Module):
    """The U-Net of the comparison with regular fields: images (B, in_chans, H, W) to logits (B, num_classes, H, W).

    Args:
        group: D4 or C8 have 8 elements.
        width: fields of the first level; each further level has twice as many.
    """

    def __init__(
        self, group: Group = "D4", width: int = 6, in_chans: int = 3, num_classes: int = 1, kernel_size: int = 3
    ) -> None:
        super().__init__()
        layers = E2Layers((kernel_size,), kernel_size, group=group)
        widths = [width * 2**level for level in range(4)]
        self.down = symmetric_max_pool(SizeRule.ceil_division((2, 2)))
        self.up = Upsample()
        self.encoder = nn.ModuleList(
            _TwoConvs(layers, before, after, lifting=level == 0)
            for level, (before, after) in enumerate(zip([in_chans, *widths[:-1]], widths, strict=True))
        )
        self.decoder = nn.ModuleList(
            _TwoConvs(layers, widths[level + 1] + widths[level], widths[level]) for level in range(3)
        )
        self.pool = FieldPool(layers.order)
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        joined = []
        for level, convs in enumerate(self.encoder):
            x = convs(self.down(x) if level else x)
            joined.append(x)
        for level in reversed(range(len(self.decoder))):
            same_size = joined[level]
            x = self.decoder[level](torch.cat([self.up(x, same_size.shape[2:]), same_size], 1))
        logits: Tensor = self.head(self.pool(x))
        return logits


class _TwoConvs(nn.Module):
    """Twice: convolution, batch norm of fields, leaky ReLU."""

    def __init__(self, layers: E2Layers, in_fields: int, out_fields: int, lifting: bool = False) -> None:
        super().__init__()
        size = layers.stem_kernel_size
        self.conv1 = layers.field_conv(in_fields, out_fields, size, lifting=lifting)
        self.norm1 = layers.norm(out_fields)
        self.conv2 = layers.field_conv(out_fields, out_fields, size)
        self.norm2 = layers.norm(out_fields)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.1)
        return F.leaky_relu(self.norm2(self.conv2(x)), 0.1)


@register_model(
    "e2_unet", "unet", symmetry="rotations and reflections", task="segmentation", parameters=365_515, paper="0.37M",
    extra=EXTRA,
)  # fmt: skip
def e2_unet(
    *, group: Group = "D4", width: int = 6, in_chans: int = 3, num_classes: int = 1, kernel_size: int = 3
) -> E2UNet:
    """The U-Net of regular fields; ``width`` counts fields of the first level."""
    return E2UNet(group, width, in_chans, num_classes, kernel_size)
