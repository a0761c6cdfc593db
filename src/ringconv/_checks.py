"""Arguments that say what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any


def is_integer(value: object) -> bool:
    """Of Python or numpy, as torch takes them."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_positive_int(name: str, value: Any) -> None:
    if not is_integer(value):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
