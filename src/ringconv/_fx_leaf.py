"""Layers that torch.fx takes as they are, as it does torch's own: it could not trace how they look at sizes."""

from __future__ import annotations

from typing import Any

from torch import fx, nn


class FxLeaf(nn.Module):
    """A module that is one step in the graph of whatever it is a part of; traced by itself, it is looked into.

    Before hooks are called, which torch runs when the graph runs.
    """

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if inputs and isinstance(inputs[0], fx.Proxy) and getattr(inputs[0].tracer, "root", self) is not self:
            tracer: Any = inputs[0].tracer
            return tracer.create_proxy("call_module", tracer.path_of_module(self), inputs, named)
        return super().__call__(*inputs, **named)
