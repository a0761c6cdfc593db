"""Finding the layers of a network that figures are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ringconv.layers import GMRConv1d, GMRConv2d, GMRConv3d

RINGS = (GMRConv1d, GMRConv2d, GMRConv3d)


def spatial_layers(network: nn.Module) -> dict[str, nn.Module]:
    """Name -> plain or ring convolution with more than one tap, in the order of the network."""
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, (_ConvNd, *RINGS)) and max(module.kernel_size) > 1
    }


def stages(network: nn.Module) -> dict[str, dict[str, nn.Module]]:
    """The spatial layers by stage: by their name up to its first number, and "stem" for what comes before any.

    ``stages.0.1.conv2`` and ``layer1.0.conv1`` belong to "stages.0" and "layer1"; ``stem.conv`` to "stem".
    """
    found: dict[str, dict[str, nn.Module]] = {}
    for name, layer in spatial_layers(network).items():
        numbered = re.match(r"(?:[^.\d]+\.)*[^.\d]*\d+", name)
        # A number in a name without any parts is that of the layer, as in conv1, and not of a stage.
        in_a_stage = numbered and not name.startswith("stem") and ("." in name or name.isdigit())
        stage = numbered.group() if numbered and in_a_stage else "stem"
        found.setdefault(stage, {})[name] = layer
    return found


def layer_named(network: nn.Module, name: str | None, stage: int) -> tuple[str, nn.Module]:
    """The module of this name; by default the first spatial layer of a stage (the last, if there are fewer)."""
    modules = dict(network.named_modules())
    if name is not None:
        if name not in modules or not name:
            some = ", ".join(list(spatial_layers(network))[:8]) or ", ".join(list(modules)[1:9])
            raise ValueError(f"there is no layer {name!r}; some of its layers are {some}")
        return name, modules[name]
    by_stage = stages(network)
    numbered = [layers for stage_name, layers in by_stage.items() if stage_name != "stem"] or list(by_stage.values())
    if not numbered:
        raise ValueError(
            f"this {type(network).__name__} has no plain or ring convolution that could be chosen: name a layer (of"
            f" {', '.join(list(modules)[1:9])}, ...)"
        )
    return next(iter(numbered[min(stage, len(numbered) - 1)].items()))


@contextmanager
def recorded(module: nn.Module, *, what: str = "output") -> Iterator[list[Tensor]]:
    """Keeps what goes into ("input") or comes out of ("output") a module at every call meanwhile."""
    kept: list[Tensor] = []

    def hook(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        value = inputs[0] if what == "input" else output
        if not isinstance(value, Tensor):
            raise ValueError(f"the {what} of this {type(module).__name__} is not a tensor: name another layer")
        kept.append(value.detach().clone())  # a later layer may work in place

    handle = module.register_forward_hook(hook)
    try:
        yield kept
    finally:
        handle.remove()
