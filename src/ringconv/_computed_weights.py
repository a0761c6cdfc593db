"""Weights that a hook computes before each call: torch's weight_norm and spectral_norm of old, and pruning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def weight_hooks(module: nn.Module) -> dict[int, Callable[..., Any]]:
    """The hooks of torch.nn.utils, by their keys among the module's."""
    return {
        key: hook
        for key, hook in module._forward_pre_hooks.items()
        if type(hook).__module__.startswith("torch.nn.utils.")
    }


def of_weight(module: nn.Module) -> Tensor:
    """Has the weight's dtype and device: if a hook computes the weight, it has its old ones until the next call."""
    weight: Tensor | None = module._parameters.get("weight")  # at once, if nothing computes it
    if weight is None:
        computed: Any = module.weight
        return next(module.parameters(), computed)
    return weight


@torch.no_grad()
def recompute_weight(module: nn.Module) -> None:
    """Run these hooks now: the weight is that of the last call, or of before a state dict was loaded."""
    training, module.training = module.training, False  # else each run would move the estimate of a spectral norm
    for hook in weight_hooks(module).values():
        hook(module, ())
    module.training = training
