"""Group convolution (Cohen & Welling 2016): one filter, convolved in every pose of the group p4 or p4m.

A feature is a function on the group: a field of 4 (p4: quarter turns) or 8 (p4m: and reflections) components. With
T_g the turned and flipped filter, the layers are

    lifting   W[g]    = T_g(w),           w: (O, I, k, k)
    group     W[g][h] = T_g(w[g^-1 h]),   w: (O, I, |H|, k, k)

and both are one convolution on the flattened fields. An element (m, r) flips if m = 1 and then makes r quarter turns.

Kept exactly: the group's turns and flips, by every layer at stride 1. Not kept: angles in between; flips by p4; and
quarter turns by a strided layer on a map that it does not sample alike from all sides (3x3, stride 2, an even side).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv._computed_weights import of_weight
from ringconv.baselines._kernel_conv import KernelConv, check_square
from ringconv.baselines.fields import FieldLayers, FieldPool, split_fields
from ringconv.models.factories import GlobalAverage, Size, per_stage
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet_of_depth

Group = Literal["p4", "p4m"]
Pooling = Literal["sort", "max", "none"]
Element = tuple[int, int]
"""(m, r)"""


def elements(group: Group) -> list[Element]:
    """All elements, in the order of a field's components."""
    if group not in get_args(Group):
        raise ValueError(f"group must be one of {', '.join(map(repr, get_args(Group)))}, got {group!r}")
    return [(m, r) for m in range(2 if group == "p4m" else 1) for r in range(4)]


def inverse_times(g: Element, h: Element) -> Element:
    """g^-1 h: with R^r F^m as (m, r), a reflection turns the other way round."""
    turns = h[1] - g[1]
    return g[0] ^ h[0], (-turns if g[0] else turns) % 4


def transform(values: NDArray[Any], g: Element) -> NDArray[Any]:
    """T_g on the last two axes: flip, then turn."""
    flipped = np.flip(values, -1) if g[0] else values
    return np.rot90(flipped, g[1], (-2, -1))


class GroupConv2d(KernelConv):
    """(B, in_channels * |H|, H, W) -> (B, out_channels * |H|, H', W'); channels and groups count fields.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in ``nn.Conv2d``; the kernel must be square.
        group: ``"p4"`` (4 elements) or ``"p4m"`` (8).
        lifting: the input is an image, (B, in_channels, H, W), not a map of fields.
    """

    def __init__(self, *conv: Any, group: Group = "p4", lifting: bool = False, **options: Any) -> None:
        order = len(elements(group))
        self.group: Group = group
        super().__init__(*conv, **options, orders=(1 if lifting else order, order))

    def weight_shape(self) -> tuple[int, ...]:
        check_square(self.kernel_size, "GroupConv2d")
        return (*self.pair_shape, self.orders[0], *self.kernel_size)

    def new_tables(self) -> dict[str, Tensor]:
        """For each g, which of the filter's values stands at each component and tap of W[g]."""
        own = np.arange(self.orders[0] * self.kernel_size[0] ** 2).reshape(self.orders[0], *self.kernel_size)
        all_elements = elements(self.group)
        of_g = []
        for g in all_elements:
            moved = [own[all_elements.index(inverse_times(g, h))] for h in all_elements] if self.orders[0] > 1 else own
            of_g.append(transform(np.asarray(moved), g))
        return {"_source": torch.tensor(np.stack(of_g).reshape(-1), device=of_weight(self).device)}

    def kernel(self) -> Tensor:
        out_channels, in_channels = self.pair_shape
        poses = self.weight.flatten(2).index_select(2, self.table("_source"))
        poses = poses.view(out_channels, in_channels, self.orders[1], self.orders[0], *self.kernel_size)
        return poses.transpose(1, 2).reshape(
            out_channels * self.orders[1], in_channels * self.orders[0], *self.kernel_size
        )


class SortedFields(nn.Module):
    """The components of every field in descending order: (B, fields * order, *S), same shape.

    After global pooling a turn only permutes them. The first one is what group pooling takes; the others are kept.
    """

    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, input: Tensor) -> Tensor:
        return split_fields(input, self.order).sort(2, descending=True).values.flatten(1, 2)

    def extra_repr(self) -> str:
        return f"order={self.order}"


@dataclass(frozen=True)
class GroupLayers(FieldLayers):
    group: Group = "p4"
    pooling: Pooling = "sort"

    @property
    def order(self) -> int:
        return len(elements(self.group))

    def field_conv(self, in_fields: int, out_fields: int, kernel_size: Size, **options: Any) -> nn.Module:
        return GroupConv2d(in_fields, out_fields, kernel_size, group=self.group, **options)

    def global_pool(self, channels: int) -> nn.Module:
        pools = {
            "sort": (GlobalAverage(), SortedFields(self.order)),
            "max": (FieldPool(self.order), GlobalAverage()),
            "none": (GlobalAverage(),),
        }
        return nn.Sequential(*pools[self.pooling])

    def pooled_channels(self, channels: int) -> int:
        return self.fields(channels) if self.pooling == "max" else self.map_channels(channels)


def group_resnet18(
    group: Group,
    *,
    kernel_size: int | Sequence[int] = 3,
    stem_kernel_size: int = 3,
    pooling: Pooling = "sort",
    strided: bool = False,
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """A residual network of group convolutions.

    Args:
        kernel_size: of the spatial convolutions, one or one per stage.
        pooling: what the head sees of every field: its components sorted (``"sort"``: as many as in the public
            network, and invariant), the largest (``"max"``: group pooling), or all as they are (``"none"``: the public
            network, whose logits change with a turn).
        strided: stride the convolutions, as published, which breaks quarter turns on even maps.
        skeleton: the other options are those of :class:`ResNet`; ``width`` counts channels of the plain network, of
            which 1 / sqrt(|H|) become fields.
    """
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling must be one of {', '.join(map(repr, get_args(Pooling)))}, got {pooling!r}")
    layers = GroupLayers(
        per_stage("kernel_size", kernel_size, 4), stem_kernel_size, strided=strided, group=group, pooling=pooling
    )
    return resnet_of_depth(18, layers, **skeleton)


register_model("p4_resnet18", "resnet", symmetry="rotations", parameters=11_173_418)(
    functools.partial(group_resnet18, "p4")
)
register_model("p4m_resnet18", "resnet", symmetry="rotations and reflections", parameters=11_201_415, paper="11.2M")(
    functools.partial(group_resnet18, "p4m")
)
