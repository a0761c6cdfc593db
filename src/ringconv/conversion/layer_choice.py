"""Which layer of a model gets which value: kernel sizes and rings, by name, by stage or by a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias, TypeVar

from torch import nn

from ringconv.rings import as_tuple

Size: TypeAlias = "int | Sequence[int]"
Choice: TypeAlias = (
    "int | Mapping[str, int | Sequence[int]] | Sequence[int] | Callable[[str, nn.Module], int | Sequence[int] | None]"
)
"""An int for all layers, {name pattern: value}, one value per stage, or a function of a layer's name and the layer."""

Value = TypeVar("Value")

_STAGE = re.compile(
    r"(?:^|[._])(?:dense_?block|(?:conv_?|res_?)?(?:layers?|stages?|blocks?)|groups?|level|stack|dark|s)[._]?(\d+)(?=[._]|$)"
)
"""How networks name their stages: layer1, stages.0, features.denseblock1, blocks.0, s1, ..."""

_SEQUENTIAL_STAGE = re.compile(r"(?:^|\.)features\.(\d+)(?=\.|$)")
"""torchvision's names; only those that are plain sequences of blocks are stages, the rest are stem and transitions."""


def by_pattern(patterns: Mapping[str, Value], name: str) -> Value | None:
    """The value of the first pattern (in the manner of file names: ``*``, ``?``) that matches."""
    return next((value for pattern, value in patterns.items() if fnmatchcase(name, pattern)), None)


def stages_of(model: nn.Module, names: Iterable[str]) -> dict[str, int]:
    """Name of a layer -> its stage, counted from 0; layers outside of all stages (stem, head) are not in it."""
    numbers = {}
    for name in names:
        found = [found for found in (_STAGE.search(name), _SEQUENTIAL_STAGE.search(name)) if found]
        found = [f for f in found if f.re is _STAGE or type(model.get_submodule(name[: f.end()])) is nn.Sequential]
        if found:
            # The outermost: stages hold blocks, which are numbered too.
            numbers[name] = int(min(found, key=lambda f: f.start())[1])
    order = {number: stage for stage, number in enumerate(sorted(set(numbers.values())))}
    return {name: order[number] for name, number in numbers.items()}


class LayerChoice:
    """A choice of one value per layer, or None for those that keep what they have.

    Args:
        option: the name of the option, for messages.
        choice: see :data:`Choice`.
        model: what the names belong to.
        names: the layers that ints, stages and name patterns apply to.
        nameable: further layers that only their exact name or a function reaches.
    """

    def __init__(
        self, option: str, choice: Choice | None, model: nn.Module, names: Sequence[str], nameable: Sequence[str] = ()
    ) -> None:
        if isinstance(choice, str):
            raise TypeError(f"{option} must not be a string, got {choice!r}")
        self._choice = choice
        self._names = frozenset(names)
        self._stages: dict[str, int] = {}
        if isinstance(choice, Mapping):
            for pattern in choice:
                if not any(fnmatchcase(name, pattern) for name in names) and pattern not in nameable:
                    raise ValueError(
                        f"{option}: the pattern {pattern!r} matches no layer that it could apply to;"
                        f" there are {_some(list(names) + list(nameable))}"
                    )
        elif isinstance(choice, Sequence):
            self._stages = stages_of(model, names)
            found = len(set(self._stages.values()))
            if found != len(choice):
                what = f"{found} stages were found" if found else "no stages were found"
                raise ValueError(
                    f"{option}={choice!r} is one value per stage, but {what} in this {type(model).__name__};"
                    f" give an int, a dict of name patterns such as {{'{_example(names)}': 9}} or a function"
                    f" (name, layer) -> size. Its layers are {_some(names)}"
                )
        elif choice is not None and not callable(choice) and (isinstance(choice, bool) or not isinstance(choice, int)):
            raise TypeError(
                f"{option} must be an int, {{name pattern: value}}, one value per stage or a function, got {choice!r}"
            )

    def value(self, name: str, layer: nn.Module) -> Size | None:
        choice = self._choice
        if choice is None:
            return None
        if isinstance(choice, Mapping):
            # A pattern may reach more than is meant: patch embeddings and the like must be named.
            return by_pattern(choice, name) if name in self._names else choice.get(name)
        if isinstance(choice, Sequence):
            return choice[self._stages[name]] if name in self._stages else None
        if isinstance(choice, int):
            return choice if name in self._names else None
        return choice(name, layer)

    def is_explicit(self, name: str) -> bool:
        """Whether this layer was meant in particular, so that a value it cannot take is an error."""
        return callable(self._choice) or (isinstance(self._choice, Mapping) and name in self._choice)

    def per_axis(self, option: str, name: str, layer: nn.Module, kernel: tuple[int, ...]) -> tuple[int, ...] | None:
        """The chosen kernel size; an int counts for the axes along which the kernel is longer than 1."""
        size = self.value(name, layer)
        if size is None:
            return None
        sizes = as_tuple(size, len(kernel), f"{option} of {name!r}")
        if any(side < 1 for side in sizes):
            raise ValueError(f"{option} of {name!r} must be at least 1, got {size!r}")
        if isinstance(size, int):
            return tuple(side if old > 1 else 1 for side, old in zip(sizes, kernel, strict=True))
        return sizes


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return (shown + (f" and {len(names) - most} more" if len(names) > most else "")) or "none"


def _example(names: Sequence[str]) -> str:
    return names[0].partition(".")[0] + ".*" if names and "." in names[0] else "*"
