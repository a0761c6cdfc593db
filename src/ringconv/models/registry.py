"""Models by name: what there is, what it promises, and how it is built."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from torch import nn
from typing_extensions import get_type_hints

from ringconv._checks import is_integer

MODULES = (
    "ringconv.models.resnet",
    "ringconv.models.wide_resnet",
    "ringconv.models.video",
    "ringconv.models.densenet",
    "ringconv.models.convnext",
    "ringconv.models.unet",
    "ringconv.baselines",
)
"""Imported when a model is first asked for. Each registers its models; a package imports its own modules."""

Symmetry = Literal["none", "rotations", "rotations and reflections"]
Task = Literal["classification", "segmentation"]

_Builder = TypeVar("_Builder", bound=Callable[..., nn.Module])


@dataclass(frozen=True)
class ModelEntry:
    """What is known of a model without building it."""

    name: str
    build: Callable[..., nn.Module]
    family: str
    """The backbone, which plain and equivariant versions share."""
    dimensions: tuple[int, ...] = (2,)
    """Axes of its input; where there is a choice, it is the option ``dimensions``, and the first is the default."""
    symmetry: Symmetry = "none"
    """What quarter turns and flips of the input leave the logits as they are, or turn a segmentation along."""
    symmetric_axes: int | None = None
    """How many of the last axes may be turned and flipped; None: all of the input's."""
    task: Task = "classification"
    parameters: int | None = None
    """Exact count under default options."""
    paper: str = ""
    """The count that the paper prints."""
    paper_options: tuple[tuple[str, Any], ...] = ()
    """Options, beside the defaults, of the network that the paper counts."""
    paper_parameters: int | None = None
    """Exact count under those options."""
    extra: str | None = None
    """The extra of this package that it needs."""
    note: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options it takes."""
        names: list[str] = []
        for name, parameter in inspect.signature(self.build).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                names += _keys_of_typed_dict(self.build, name)
            else:
                names.append(name)
        return tuple(names)


_entries: dict[str, ModelEntry] = {}
_loaded = False


def register_model(name: str, family: str, **known: Any) -> Callable[[_Builder], _Builder]:
    """Register the decorated function as the model ``name``; it takes keyword options only.

    ``known`` are the fields of :class:`ModelEntry`. ``functools.partial`` objects can be registered by a plain call.
    """

    def register(build: _Builder) -> _Builder:
        if name in _entries:
            raise ValueError(f"there is a model {name!r} already, built by {_entries[name].build}")
        _entries[name] = ModelEntry(name, build, family, **known)
        return build

    return register


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern, sorted; also of those whose extra is not installed."""
    return sorted(fnmatch.filter(_all_entries(), pattern))


def model_entry(name: str) -> ModelEntry:
    """What is known of a model."""
    entries = _all_entries()
    if name not in entries:
        close = difflib.get_close_matches(name, entries, 3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"there is no model {name!r}{hint} (ringconv.list_models() lists all {len(entries)})")
    return entries[name]


def create_model(name: str, **options: Any) -> nn.Module:
    """Build a model, e.g. ``create_model("gmr_resnet18", num_classes=10, kernel_size=(9, 9, 5, 5), width=64)``.

    Options that hold per stage are one value for all stages, or a sequence. The model remembers how it was made, in
    ``model_name`` and ``model_options``.
    """
    entry = model_entry(name)
    unknown = [option for option in options if option not in entry.options]
    if unknown:
        raise TypeError(_unknown_options(entry, unknown))
    options = {option: _with_plain_ints(value) for option, value in options.items()}
    model = entry.build(**options)
    model.model_name = name  # type: ignore[assignment]
    model.model_options = options  # type: ignore[assignment]
    return model


def _with_plain_ints(value: Any) -> Any:
    """Integers of numpy are taken for those of Python, so that a model looks the same when it is rebuilt."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_with_plain_ints, value))
    return int(value) if is_integer(value) else value


def _all_entries() -> dict[str, ModelEntry]:
    global _loaded
    if not _loaded:
        for module in MODULES:
            importlib.import_module(module)
        _loaded = True
    return _entries


def _keys_of_typed_dict(build: Callable[..., nn.Module], name: str) -> list[str]:
    """Keys of ``**name: Unpack[SomeTypedDict]``."""
    function = getattr(build, "func", build)  # of a functools.partial
    hint = get_type_hints(function).get(name)
    packed = getattr(hint, "__args__", (None,))[0]
    if not hasattr(packed, "__required_keys__"):
        raise TypeError(f"**{name} of {function.__name__} must be Unpack[a TypedDict], so that its options have names")
    return list(get_type_hints(packed))


def _unknown_options(entry: ModelEntry, unknown: list[str]) -> str:
    close = [match for option in unknown for match in difflib.get_close_matches(option, entry.options, 1)]
    hint = f" (did you mean {', '.join(map(repr, close))}?)" if close else ""
    return (
        f"{entry.name} got unknown option{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}{hint};"
        f" the options are {', '.join(entry.options)}"
    )
