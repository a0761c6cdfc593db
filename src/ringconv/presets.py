"""Options under one name, so that a choice can be fixed whatever the defaults become."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, ParamSpec

Preset = Literal["paper"]

LAYER_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "sigma": "layer",
        "circular": True,
        "sampling": "point",
        "normalize": False,
        "edge": "hard",
        "init": "paper",
        "harmonics": 0,
    }
}
"""Keyword options of the ring layers."""

NETWORK_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"downsampling": "average", "pooling": "average", "view": "square"}
}
"""Options of the networks beside those of their ring layers."""

_FOLLOW_OTHERS = ("sampling", "edge")
"""Options of the layers that are None by default: what they are follows from the others."""

_Parameters = ParamSpec("_Parameters")


def takes_preset(init: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """For an ``__init__`` with the keyword ``preset``: what is given beside it counts more than what it stands for."""

    @functools.wraps(init)
    def with_preset(*args: _Parameters.args, **options: _Parameters.kwargs) -> None:
        preset = of_preset(LAYER_PRESETS, options.get("preset"))
        left_to_it = [name for name in _FOLLOW_OTHERS if name in preset and options.get(name) is None]
        init(*args, **{**preset, **{name: value for name, value in options.items() if name not in left_to_it}})

    return with_preset


def of_preset(presets: dict[str, dict[str, Any]], preset: object) -> dict[str, Any]:
    """The options of a preset; of None, none."""
    if preset is None:
        return {}
    if preset not in presets:
        raise ValueError(f"preset must be None or one of {', '.join(map(repr, presets))}, got {preset!r}")
    return presets[str(preset)]
