"""The layers of a whole network and what a training step keeps, counted without computing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ringconv.benchmark.cases import Case
from ringconv.benchmark.gpu_prediction import Gpu, Precision, gpu_seconds
from ringconv.benchmark.memory import saved_bytes
from ringconv.layers import GMRConv2d
from ringconv.ops import Computable, Method

_PASSES_OVER_MAPS = 12
"""Times that a convolution's output is read or written by the normalisation, the activation and the addition behind it,
forward and backward, in a training step."""


class NetworkCost(NamedTuple):
    parameters: int
    layers: list[tuple[Case, bool]]
    """Every convolution, and whether its kernel is made of rings."""
    saved_bytes: int
    """What a training step in float32 keeps for its backward pass."""

    def seconds(self, gpu: Gpu, precision: Precision, ring_method: Computable) -> float:
        """Predicted for a training step on one GPU."""
        size = 2 if precision == "bf16" else 4
        total = 0.0
        for case, ring in self.layers:
            method = ring_method if ring else "dense"
            total += gpu_seconds(case, method, "training", gpu, precision, alone=False)
            values = case.batch * case.out_channels * case.output_size[0] * case.output_size[1]
            total += _PASSES_OVER_MAPS * size * values / (0.8 * gpu.bandwidth)
        return total


def network_cost(build: Callable[[], nn.Module], batch: int, side: int, method: Method = "auto") -> NetworkCost:
    """Run a network for images on tensors that have a shape and no values.

    Args:
        build: makes the network; its ring convolutions are then computed by ``method``.
    """
    layers: list[tuple[Case, bool]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d | GMRConv2d)
        side, _ = inputs[0].shape[2:]
        ring = isinstance(module, GMRConv2d) and max(module.kernel_size) > 1
        rings = module.rings if isinstance(module, GMRConv2d) else 1
        case = Case(
            batch, module.in_channels, module.out_channels, (side, side), module.kernel_size[0], rings,
            module.stride[0], module.groups,
        )  # fmt: skip
        layers.append((case, ring))

    with FakeTensorMode():
        network = build().train()
        for module in network.modules():
            if isinstance(module, GMRConv2d):
                module.method = method
            if isinstance(module, nn.Conv2d | GMRConv2d):
                module.register_forward_hook(note)
        x = torch.empty(batch, 3, side, side)
        saved = saved_bytes(network, x)
        parameters = sum(parameter.numel() for parameter in network.parameters())
    return NetworkCost(parameters, layers, saved)


def all_reduce_seconds(parameters: int, gpus: int, link: float) -> float:
    """Predicted for the gradients, in float32, in a ring of GPUs: each sends and receives 2 (N - 1) / N of them."""
    return 2 * (gpus - 1) / gpus * 4 * parameters / link
