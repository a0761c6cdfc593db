"""The steerable networks come from escnn, which lives in an environment of its own."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ringconv._extras import MissingExtraError, needs

EXTRA = "escnn"


def escnn(module: str) -> Any:
    """A module of escnn; without it, says how to get it."""
    try:
        with warnings.catch_warnings():
            # It would like py3nj, which needs a Fortran compiler, and does without.
            warnings.filterwarnings("ignore", message=".*py3nj.*")
            return needs(f"escnn.{module}", EXTRA)
    except MissingExtraError as error:
        raise MissingExtraError(
            "escnn is not installed; it needs numpy < 2, so it has an environment of its own: run `make escnn` in the"
            " repository, and then .venv-escnn/bin/python or .venv-escnn/bin/ringconv",
            name="escnn",
        ) from error


class OnTensors(nn.Module):
    """A layer of escnn that takes and gives plain tensors: (B, in_type.size, *S) -> (B, out_type.size, *S')."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.train()

    def forward(self, input: Tensor) -> Tensor:
        tensor: Tensor = self.layer(escnn("nn").GeometricTensor(input, self.layer.in_type)).tensor
        return tensor

    def train(self, mode: bool = True) -> OnTensors:
        """A convolution of escnn stays in training mode, in which it expands its filter at every call.

        In evaluation mode it would keep the filter as a further entry of the state dict, which then differs between
        the modes and goes stale when weights are loaded. The convolution has no other mode-dependent behaviour.
        """
        super().train(mode)
        if isinstance(self.layer, (escnn("nn").R2Conv, escnn("nn").R3Conv)):
            self.layer.train(True)
        return self


def steerable_conv(in_type: Any, out_type: Any, kernel_size: int, **conv: Any) -> Any:
    """escnn's convolution of images or volumes.

    It starts with Kaiming's gain on the expanded kernel: escnn's own initialisation takes minutes for a network. It has
    its basis to itself: escnn would share it with other layers, which then change dtype and device together.
    """
    dimensions = in_type.gspace.dimensionality
    layer_type = {2: escnn("nn").R2Conv, 3: escnn("nn").R3Conv}[dimensions]
    layer = layer_type(in_type, out_type, kernel_size, initialize=False, recompute=True, **conv)
    with torch.no_grad():
        layer.weights.normal_()
        filters, _ = layer.expand_parameters()
        fan = in_type.size * kernel_size**dimensions
        layer.weights.mul_(math.sqrt(2 / fan) / filters.square().mean().sqrt())
        if layer.bias is not None:
            layer.bias.zero_()
    return layer
