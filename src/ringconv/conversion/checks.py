"""What convert() refuses before it touches anything, and why."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from ringconv.conversion.rules import STRIDES, ConvFactory, Strides
from ringconv.layers import GMRConv2d, _unknown_options

_TAKEN_FROM_THE_LAYER = (
    "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias", "padding_mode",
    "device", "dtype",
)  # fmt: skip
_REFUSED = {
    "OptimizedModule": "compiled: convert first, then compile",
    "DistributedDataParallel": "wrapped for parallel training: convert its .module first, then wrap",
    "DataParallel": "wrapped for parallel training: convert its .module first, then wrap",
    "FullyShardedDataParallel": "sharded: convert first, then wrap",
    "FSDPModule": "sharded: convert first, then shard",
}


def refuse_wrapped(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("the model is scripted or traced, and its layers cannot be exchanged: convert it before")
    for name, layer in model.named_modules():
        where = f"layer {name!r}" if name else "the model"
        for kind in type(layer).__mro__:
            if kind.__name__ in _REFUSED and kind.__module__.startswith("torch."):
                raise ValueError(f"{where} ({type(layer).__name__}) is {_REFUSED[kind.__name__]}")
        if layer._compiled_call_impl is not None:
            raise ValueError(f"{where} ({type(layer).__name__}) is {_REFUSED['OptimizedModule']}")


def check_options(
    to: ConvFactory | None,
    strides: Strides | Mapping[str, Strides],
    options: Mapping[str, Any],
    *,
    measures: bool,
    reports: bool,
) -> None:
    for given in strides.values() if isinstance(strides, Mapping) else (strides,):
        if given not in STRIDES:
            raise ValueError(f"strides must be one of {', '.join(map(repr, STRIDES))}, got {given!r}")
    taken = [name for name in options if name in _TAKEN_FROM_THE_LAYER]
    if taken:
        raise TypeError(f"{taken[0]!r} is taken from each layer and cannot be given to convert")
    unknown = [name for name in options if name not in inspect.signature(GMRConv2d).parameters or name == "unknown"]
    if to is None and unknown:
        raise TypeError(_unknown_options(GMRConv2d, unknown))
    if measures and not reports:
        raise ValueError("example_input is there to measure for the report: give return_report=True as well")


def checked_patterns(option: str, patterns: Sequence[str], model: nn.Module) -> tuple[str, ...]:
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{option}: the pattern {pattern!r} matches no layer of this {type(model).__name__}")
    return tuple(patterns)
