"""The optimiser and its learning rate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ringconv.training.settings import Decay, TrainSettings

RING_WIDTHS = ("log_sigma", "log_sigma_index")
"""Last part of the name of the rings' widths; its unit, pixels or ring indices, decides which."""


def make_optimiser(network: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    groups = parameter_groups(network, settings.weight_decay, settings.decay)
    if not any(group["params"] for group in groups):
        raise ValueError(f"{settings.model} has no parameter to train: all are frozen, or there are none")
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    return torch.optim.AdamW(groups, lr=settings.lr)


def parameter_groups(network: nn.Module, weight_decay: float, decay: Decay = "all") -> list[dict[str, Any]]:
    """What decays and what does not. A ring's width says where it looks, not how much, so it never decays."""
    decaying: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_width = name.rpartition(".")[2] in RING_WIDTHS
        spared = is_width or (decay == "weights" and parameter.ndim <= 1)
        (others if spared else decaying).append(parameter)
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def learning_rate(step: int, steps: int, warmup: int, highest: float, lowest: float) -> float:
    """Of step 0, 1, ..., steps - 1: a straight line up over ``warmup`` steps, then half a cosine down to ``lowest``."""
    if step < warmup:
        return highest * (step + 1) / warmup
    way = (step - warmup) / max(1, steps - warmup)
    return lowest + (highest - lowest) * 0.5 * (1 + math.cos(math.pi * way))
