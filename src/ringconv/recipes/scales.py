"""The sizes that a recipe comes in: the paper's, one for two cores, and one that takes seconds."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from ringconv.models.registry import list_models, model_entry
from ringconv.recipes.catalogue import DRAWN_FROM, all_recipes
from ringconv.recipes.networks import BY_MODEL, Network
from ringconv.recipes.protocols import PROTOCOLS
from ringconv.recipes.recipe import Recipe
from ringconv.training.settings import TrainSettings

Scale = Literal["paper", "cpu", "tiny"]
SCALES: tuple[Scale, ...] = get_args(Scale)

TINY_WIDTH = 4
TINY: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "train_images": 24,
    "test_images": 8,
    "rotated_images": 8,
    "warmup_epochs": 0.0,
    "workers": 0,
    "devices": 1,
    "strategy": "auto",
    "precision": "32-true",
}
TINY_SIZE: dict[str, Any] = {"classify": {"size": 32}, "segment": {"size": 32, "crop": 16}, "volumes": {"size": 16}}

_OTHER_WIDTHS = {"wide_resnet": 16, "r2plus1d": 64}
"""Default widths of families of which the paper has no network."""


@dataclass(frozen=True)
class ChosenRecipe:
    """A recipe at a scale, ready to train."""

    recipe: str
    """Name and scale, as name@scale: how a run remembers what it is a run of."""
    settings: TrainSettings
    changes: list[str]
    """What the scale changes."""
    about: list[str]
    """What differs between the paper's text and its released commands, and what neither decides."""

    @property
    def notes(self) -> list[str]:
        """Everything that should be said before it is trained."""
        scale = self.recipe.rpartition("@")[2]
        return [*(f"{change} (scale {scale})" for change in self.changes), *self.about]


def get_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    recipes = all_recipes()
    if name not in recipes:
        close = difflib.get_close_matches(name, recipes, 3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"there is no recipe {name!r}{hint} (`ringconv recipes` lists all {len(recipes)})")
    return recipes[name]


def list_recipes(pattern: str = "*") -> list[Recipe]:
    """Recipes by name, in the order of the paper: a shell pattern, part of a name, or the label of a figure.

    A figure that is drawn from the runs of a table gives that table's recipes.
    """
    recipes = all_recipes()
    patterns = [f"{label}/*" for label in DRAWN_FROM.get(pattern, ())]
    if not patterns:
        patterns = [pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"]
    return [recipes[name] for name in recipes if any(fnmatch.fnmatch(name, wanted) for wanted in patterns)]


def resolve(name: str, scale: Scale = "paper", **overrides: Any) -> TrainSettings:
    """Settings to train a recipe with.

    Args:
        overrides: fields of :class:`TrainSettings`, which win over the recipe's; ``model_options`` and
            ``data_options`` are merged into the recipe's.
    """
    known = {field.name for field in fields(TrainSettings)}
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise ValueError(f"unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    chosen = get_recipe(name)
    if chosen.settings is None:
        raise ValueError(f"{name} is not built here: {chosen.not_built}")
    settings = chosen.settings
    return _with(_with(settings, scale_changes(settings, scale)), overrides)


def find_recipe(name: str, scale: Scale = "paper") -> ChosenRecipe:
    """A recipe at a scale, with everything that should be said about it."""
    settings, chosen = resolve(name, scale), get_recipe(name)
    assert chosen.settings is not None
    changes = changes_between(chosen.settings, settings)
    return ChosenRecipe(f"{name}@{scale}", settings, changes, [*map(str, chosen.differences), *chosen.notes])


def scale_changes(settings: TrainSettings, scale: Scale) -> dict[str, Any]:
    """Fields that a scale replaces; the options of the model are to be merged."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    if scale == "paper":
        return {}
    network, protocol = BY_MODEL[settings.model], PROTOCOLS[settings.data]
    width = settings.model_options.get("width", network.width)
    if scale == "cpu":
        return {**protocol.cpu, "model_options": {"width": max(1, width // network.narrowing)}}
    kind = "volumes" if protocol.dimensions == 3 else settings.task or "classify"
    # Photographs that come with scikit-image, so that it runs anywhere.
    data = {"data": "textures"} if kind == "classify" else {}
    return {**TINY, **TINY_SIZE[kind], **data, "model_options": {"width": TINY_WIDTH}}


def network_like(model: str) -> Network | None:
    """The paper's network of this name, or one of the same backbone and so of the same width; None if there is none."""
    if model in BY_MODEL:
        return BY_MODEL[model]
    family = model_entry(model).family
    if family in _OTHER_WIDTHS:
        return Network(model, width=_OTHER_WIDTHS[family])
    alike = next((network for name, network in BY_MODEL.items() if model_entry(name).family == family), None)
    return None if alike is None else Network(model, width=alike.width, narrowing=alike.narrowing)


def changes_between(before: TrainSettings, after: TrainSettings) -> list[str]:
    """What differs, as "name: new instead of old"."""
    old, new = _flat(before), _flat(after)
    return [
        f"{name}: {_shown(name, new.get(name))} instead of {_shown(name, old.get(name))}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _with(settings: TrainSettings, changes: Mapping[str, Any]) -> TrainSettings:
    merged = dict(changes)
    for name in ("model_options", "data_options"):
        if name in merged:
            merged[name] = {**getattr(settings, name), **merged[name]}
    return replace(settings, **merged)


def _flat(settings: TrainSettings) -> dict[str, Any]:
    values = settings.to_json()
    model_options, data_options = values.pop("model_options"), values.pop("data_options")
    network = network_like(settings.model) if settings.model in list_models() else None
    return {**values, "width": None if network is None else network.width, **model_options, **data_options}


def _shown(name: str, value: Any) -> str:
    if value is None:
        shown = {"train_images": "all", "test_images": "all", "size": "the files' own", "width": "the model's own"}
        shown["preset"] = "the default form of the rings"
        return shown.get(name, "none")
    if isinstance(value, (list, tuple)) and name == "size":
        return " x ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
