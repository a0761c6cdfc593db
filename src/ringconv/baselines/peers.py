"""One convolution of each competing method whose channels are fields of several maps, to be timed beside ours.

Channels count what the method counts. A convolution of ``in_channels`` fields of 8 components takes 8 times as many
maps as a plain one of that many channels: this is what it costs to put the method in the plain layer's place. To
compare layers of equally many maps instead, ask for an eighth of the channels.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from ringconv.baselines._escnn import OnTensors, escnn, steerable_conv
from ringconv.baselines.e2 import gspace
from ringconv.baselines.group import GroupConv2d


class PeerConv(NamedTuple):
    """A layer without bias that keeps the size of its maps, (B, in_maps, *S) -> (B, out_maps, *S)."""

    layer: nn.Module
    in_maps: int
    out_maps: int


def group_conv(in_channels: int, out_channels: int, kernel_size: int) -> PeerConv:
    """p4m: fields of 8 components."""
    layer = GroupConv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False, group="p4m")
    return PeerConv(layer, 8 * in_channels, 8 * out_channels)


def e2_conv(in_channels: int, out_channels: int, kernel_size: int) -> PeerConv:
    """escnn's layer for N = 8 rotations: regular fields of 8 components.

    In evaluation mode it keeps its expanded filter, as its users have it; so it must not be trained after ``eval()``.
    Without escnn: MissingExtraError.
    """
    space = gspace("C8")
    in_type, out_type = (
        escnn("nn").FieldType(space, count * [space.regular_repr]) for count in (in_channels, out_channels)
    )
    conv = steerable_conv(in_type, out_type, kernel_size, padding=kernel_size // 2, bias=False)
    return PeerConv(_KeepsItsFilter(conv), 8 * in_channels, 8 * out_channels)


class _KeepsItsFilter(OnTensors):
    def train(self, mode: bool = True) -> _KeepsItsFilter:
        nn.Module.train(self, mode)
        return self
