"""What a network must be like, and its input for its parameters."""

from __future__ import annotations

import torch
from torch import nn


def device_of(network: nn.Module) -> torch.device:
    """Where its parameters are; the CPU if it has none."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def dtype_of(network: nn.Module) -> torch.dtype:
    """The type of its parameters; float32 if none is of floating point."""
    return next((parameter.dtype for parameter in network.parameters() if parameter.is_floating_point()), torch.float32)


def input_channels(network: nn.Module) -> int:
    """Channels that the network, or else its first layer, says it takes."""
    of_network = getattr(network, "in_chans", None)
    if isinstance(of_network, int):
        return of_network
    for module in network.modules():
        channels = getattr(module, "in_channels", None) or getattr(module, "in_features", None)
        if isinstance(channels, int):
            return channels
    raise ValueError(f"a {type(network).__name__} without a convolution does not say how many channels it takes")


def refuse_wrappers(model: nn.Module, function: str) -> None:
    """Raise a ValueError, in the name of ``function``, if a module is only around another one."""
    for name, module in model.named_modules():
        wrapped = {
            "module": isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)),
            "_orig_mod": hasattr(module, "_orig_mod"),
        }
        for attribute, is_wrapped in wrapped.items():
            if is_wrapped:
                inside = f"model.{name}.{attribute}" if name else f"model.{attribute}"
                raise ValueError(
                    f"{function} takes a model of ordinary modules, but {name or 'it'} is a {type(module).__name__}:"
                    f" give it what is inside, {inside}"
                )
