"""Layers that were replaced, wherever a model holds them."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from types import MethodType, SimpleNamespace
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
        """A new layer for an old one, and for its methods; containers that can be changed are the same with the new
        layers in them."""
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
        if isinstance(value, frozenset):
            exchanged = frozenset(map(self._exchanged, value))
            return value if exchanged == value else exchanged
        if id(value) in self._looked_at:  # it may hold itself
            return value
        if isinstance(value, set):
            members = set(map(self._exchanged, value))
            if members != value:
                value.clear()
                value.update(members)
        elif isinstance(value, (list, dict, deque)):
            self._looked_at.add(id(value))
            self._exchange_items(value, value.items() if isinstance(value, dict) else enumerate(value))
        elif _is_plain_object(value):
            self._looked_at.add(id(value))
            self._exchange_items(vars(value), vars(value).items())
        return value

    def _exchange_items(self, container: Any, items: Iterable[tuple[Any, Any]]) -> None:
        for key, old in list(items):
            part = self._exchanged(old)
            if part is not old:
                container[key] = part


def _is_plain_object(value: Any) -> bool:
    """Whose attributes are what it holds: others may know all the world."""
    holds = isinstance(value, SimpleNamespace) or (is_dataclass(value) and not isinstance(value, type))
    return holds and hasattr(value, "__dict__")
