"""A moving average of a network's weights."""

from __future__ import annotations

import copy

import torch
from torch import nn


class Average:
    """A copy of a network that follows it slowly, batch statistics included.

    Args:
        decay: what the average keeps of itself in every step. Early on it keeps less, so that it forgets the initial
            weights: a tenth in the first step, half in the ninth.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(network).requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Move towards the network after step 0, 1, ..."""
        kept = min(self._decay, (1 + step) / (10 + step))
        mine, its = self.module.state_dict(), network.state_dict()
        numbers = [name for name, value in mine.items() if value.is_floating_point()]
        torch._foreach_lerp_([mine[name] for name in numbers], [its[name] for name in numbers], 1 - kept)
        for name in mine.keys() - set(numbers):  # counters and the like have no average
            mine[name].copy_(its[name])
