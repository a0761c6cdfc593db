"""Layers that were replaced, wherever a model holds them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MethodType
from typing import Any

from torch import nn

_TORCHS_OWN = frozenset(vars(nn.Module()))


class Exchange:
    """Puts new layers in the places of old ones.

    Args:
        new: by the id of the old one, which must live as long as this does.
    """

    def __init__(self, new: Mapping[int, nn.Module]) -> None:
        self._new = new
        self._looked_at: set[int] = set()

    def in_attributes(self, parent: nn.Module) -> None:
        """Some networks also keep layers under other names and in containers of their own, and call them from there."""
        for name, value in vars(parent).items():
            if name not in _TORCHS_OWN:
                vars(parent)[name] = self._exchanged(value)

    def _exchanged(self, value: Any) -> Any:
        """A new layer for an old one, and for its methods; lists and dicts are the same with the new layers in them."""
        if isinstance(value, nn.Module):
            return self._new.get(id(value), value)
        if isinstance(value, MethodType) and id(value.__self__) in self._new:
            return getattr(self._new[id(value.__self__)], value.__name__, value)
        if isinstance(value, functools.partial):
            func, args, keywords = map(self._exchanged, (value.func, value.args, value.keywords))
            unchanged = func is value.func and args is value.args  # the keywords, a dict, are the same in any case
            return value if unchanged else type(value)(func, *args, **keywords)
        if isinstance(value, tuple):
            parts = [self._exchanged(part) for part in value]
            if all(part is old for part, old in zip(parts, value, strict=True)):
                return value
            return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
        if isinstance(value, (list, dict)) and id(value) not in self._looked_at:
            self._looked_at.add(id(value))  # it may hold itself
            for key, old in list(value.items() if isinstance(value, dict) else enumerate(value)):
                part = self._exchanged(old)
                if part is not old:
                    value[key] = part
        return value
