"""Layers that torch.fx takes as they are, as it does torch's own: it could not trace how they look at sizes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx, nn


def is_traced_above(module: nn.Module, input: Any) -> bool:
    """Whether torch.fx is tracing something that the module is a part of."""
    return isinstance(input, fx.Proxy) and getattr(input.tracer, "root", module) is not module


def call_as_leaf(module: nn.Module, *inputs: Any) -> Tensor:
    """The call of the module, as one step of the graph; what comes back stands for a tensor."""
    tracer = inputs[0].tracer
    called: Tensor = tracer.create_proxy("call_module", tracer.path_of_module(module), inputs, {})
    return called
