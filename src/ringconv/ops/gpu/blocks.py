"""How large the tiles of the Triton kernels are: a rule that needs no measurement, and a list to measure."""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

MOST_RINGS = 16
"""With more, a thread's share of the smallest tile does not fit its registers."""

Task = Literal["maps", "weight", "basis"]
"""What a kernel computes: the output (or the input's gradient), the weight's gradient, the basis' gradient."""

_VALUES_PER_THREAD = 70
"""Addresses, masks and operands on their way to the tensor cores take the rest of a thread's 255 registers. Compiled
for sm80 and sm90, tiles within this bound spill nothing up to 8 rings, and 0.2 kB a thread at most with 16."""

_SITES = (128, 64, 32)
_IN_CHANNELS = (32, 16)
_OUT_CHANNELS = (128, 64, 32, 16)  # the tensor cores take no side below 16
_WARPS = (4, 8)
_TRIED_WIDTHS, _TRIED_PER_WIDTH = 2, 4


class Blocks(NamedTuple):
    """Sites, input channels and output channels of a tile, and the warps that share it."""

    sites: int
    in_channels: int
    out_channels: int
    warps: int


def values_per_thread(task: Task, rings: int, blocks: Blocks) -> float:
    """Values that a thread holds at once: ring responses, an orbit's sum, a tile of outputs, and sums of products."""
    held = (rings + 1) * blocks.sites * blocks.in_channels + blocks.sites * blocks.out_channels
    if task == "weight":
        held += rings * blocks.out_channels * blocks.in_channels
    return held / (32 * blocks.warps)


def candidates(task: Task, rings: int, c_in: int, c_out: int) -> list[Blocks]:
    """Tiles that fit a thread's registers, the most promising first.

    Only channels that exist are worth a block. The widest blocks of outputs come first, since the ring pass is
    repeated for each of them; then many sites, which share the weights; then few warps, which have more to do each.
    """
    found = [
        Blocks(sites, in_channels, out_channels, warps)
        for out_channels, sites, in_channels, warps in itertools.product(_OUT_CHANNELS, _SITES, _IN_CHANNELS, _WARPS)
        if (out_channels == 16 or out_channels < 2 * c_out) and (in_channels == 16 or in_channels < 2 * c_in)
    ]
    return [blocks for blocks in found if values_per_thread(task, rings, blocks) <= _VALUES_PER_THREAD]


def chosen(task: Task, rings: int, c_in: int, c_out: int) -> Blocks:
    """The rule: the first of the candidates."""
    return candidates(task, rings, c_in, c_out)[0]


def to_try(task: Task, rings: int, c_in: int, c_out: int) -> list[Blocks]:
    """The list: the first few candidates of the two widest blocks of outputs; what the rule chooses is among them."""
    by_width = itertools.groupby(candidates(task, rings, c_in, c_out), key=lambda blocks: blocks.out_channels)
    widest = itertools.islice(by_width, _TRIED_WIDTHS)
    return [blocks for _, group in widest for blocks in itertools.islice(group, _TRIED_PER_WIDTH)]
