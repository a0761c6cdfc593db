"""Making any network symmetric by asking it several times: what a baseline can do without new layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ringconv._rotate import symmetries

GROUPS = {2: (4, 8), 3: (24, 48)}
"""Dimensions -> rotations of the square (cube), and those with reflections."""


class Symmetrised(nn.Module):
    """The mean of a network's answers over the symmetries of the square (cube); maps are turned back first.

    Args:
        network: (B, C, *S) -> logits (B, K) or maps (B, K, *S).
        group: 4 for the rotations of the square, 8 with reflections; of the cube 24 and 48.
    """

    def __init__(self, network: nn.Module, group: int, dimensions: int = 2) -> None:
        super().__init__()
        if group not in GROUPS[dimensions]:
            allowed = " or ".join(map(str, GROUPS[dimensions]))
            raise ValueError(f"in {dimensions} dimensions symmetrise must be {allowed}, got {group}")
        self.network = network
        self._symmetries = [s for s in symmetries(dimensions) if s.is_rotation or group == GROUPS[dimensions][1]]

    def forward(self, x: Tensor) -> Tensor:
        """As the network's."""
        total: Tensor | None = None
        for symmetry in self._symmetries:
            answer: Tensor = self.network(symmetry(x).contiguous())
            if answer.ndim == x.ndim:
                answer = symmetry.inverse(answer)
            total = answer if total is None else total + answer
        assert total is not None
        return torch.div(total, len(self._symmetries))
