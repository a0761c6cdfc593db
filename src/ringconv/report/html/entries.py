"""What a report shows of a network, wherever it was trained."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ringconv.models.checkpoint import load_model
from ringconv.report.html.images import TestImages, images_of_run
from ringconv.report.run_labels import labels_of
from ringconv.training.compare_runs import read_plan
from ringconv.training.runs import CONFIG, ENVIRONMENT, MODEL, Run


@dataclass(frozen=True)
class DataShown:
    """The test that networks had in common; figures of different ones are never compared."""

    name: str
    task: str
    tested: int
    """Test images."""
    size: tuple[int, ...]
    how: str = ""
    """How they were turned, where it was not as in the paper."""


@dataclass(frozen=True)
class Entry:
    """A trained and tested network."""

    label: str
    name: str
    """Of the run."""
    model: str
    data: DataShown
    scores: Mapping[str, Mapping[str, Any]]
    """By metric, the main one first, as :meth:`ringconv.evaluation.Scores.as_dict` has it."""
    parameters: int
    costs: Mapping[str, float | None]
    """train_seconds, images_per_second, peak_memory_bytes, peak_gpu_memory_bytes."""
    training: str
    """In a line."""
    settings: Mapping[str, Any]
    about_data: Sequence[str]
    environment: Mapping[str, Any]
    commands: Sequence[str]
    """That train it again."""
    classes: Sequence[str] = ()
    network: Callable[[], nn.Module] | None = None
    """Raises OSError or ValueError if it is gone."""
    images: Callable[[int], TestImages] | None = None
    """So many test images at most. Raises OSError, ValueError or ImportError if they cannot be opened."""


@dataclass(frozen=True)
class LeftOut:
    """A run without figures, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Entries:
    shown: list[Entry] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def by_data(self) -> dict[DataShown, list[Entry]]:
        groups: dict[DataShown, list[Entry]] = {}
        for entry in self.shown:
            groups.setdefault(entry.data, []).append(entry)
        return groups


def entries_of(runs: Sequence[Run]) -> Entries:
    """Of finished and tested runs; the others are left out, with a reason."""
    tested = [run for run in runs if run.scores]
    shown = [_entry(run, label) for run, label in zip(tested, labels_of(tested), strict=True)]
    left_out = [LeftOut(str(run.folder), _why_not(run)) for run in runs if not run.scores]
    return Entries(shown, left_out)


def _why_not(run: Run) -> str:
    if run.results is not None:
        checkpoint, data = (shlex.quote(str(path)) for path in (run.folder / MODEL, run.settings.data))
        return f"was not tested; its checkpoint can be: ringconv evaluate {checkpoint} --data {data}"
    done = f"{run.epochs_done} of {run.settings.epochs} epochs"
    if run.state == "running":
        return f"is still training ({done})"
    return f"stopped after {done}; to go on: ringconv train --resume {shlex.quote(str(run.folder))}"


def _entry(run: Run, label: str) -> Entry:
    assert run.results is not None
    evaluation = run.results["evaluation"]
    settings, about = run.settings, run.data
    return Entry(
        label=label,
        name=run.name,
        model=settings.model,
        data=DataShown(
            str(evaluation["data"]),
            str(evaluation["task"]),
            int(evaluation["images"]),
            tuple(about.get("size", ())),
            _how_tested(evaluation.get("settings") or {}),
        ),
        scores=run.scores,
        parameters=run.parameters,
        costs={
            name: run.cost(name)
            for name in ("train_seconds", "images_per_second", "peak_memory_bytes", "peak_gpu_memory_bytes")
        },
        training=_training(run),
        settings=settings.to_json(),
        about_data=_about_data(about),
        environment=_environment(run.folder),
        commands=_commands(run),
        classes=tuple(map(str, about.get("classes", ()))),
        network=lambda: load_model(run.folder / MODEL),
        images=lambda count: images_of_run(run, count),
    )


def _how_tested(settings: Mapping[str, Any]) -> str:
    turning = settings.get("turning") or {}
    usual = {"interpolation": "bilinear", "fill": 0.0, "padding": "fill", "mask": "none", "expand": False}
    other = [f"{name} {turning[name]}" for name, value in usual.items() if turning.get(name, value) != value]
    other += [f"{name} {settings[name]}" for name in ("step", "symmetrise") if settings.get(name) is not None]
    return ", ".join(other)


def _training(run: Run) -> str:
    s = run.settings
    parts = [
        f"{s.epochs:,} epoch{'s' if s.epochs > 1 else ''} in batches of {s.batch_size}",
        f"{s.optimiser} at {s.lr:g}",
        f"seed {s.seed}",
    ]
    options = [f"{name} {json.dumps(value)}" for name, value in s.model_options.items()]
    turned = [f"turned by up to {s.rotation:g} degrees"] if s.rotation else []
    turned += ["mirrored at random"] if s.reflection else []
    turned += ["augmented as the authors' commands do"] if s.augmentation == "release" else []
    seen = ", ".join(turned) or "no geometric augmentation"
    recipe = [f"recipe {run.recipe}"] if run.recipe else []
    return "; ".join([*recipe, ", ".join(parts), seen, *([", ".join(options)] if options else [])])


def _about_data(about: Mapping[str, Any]) -> list[str]:
    lines = []
    images = about.get("images") or {}
    if images:
        counts = ", ".join(f"{count:,} to {_PURPOSES.get(name, name)}" for name, count in images.items())
        size, channels = about.get("size", ()), about.get("channels", 1)
        shape = f"{' x '.join(map(str, size))} {'voxels' if len(size) == 3 else 'pixels'}"
        lines.append(f"Images: {counts}; {shape}, {channels} channel{'s' if channels != 1 else ''}")
    return [*lines, *map(str, about.get("notes", ()))]


_PURPOSES = {"train": "train", "val": "validate", "test": "test"}


def _environment(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / ENVIRONMENT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _commands(run: Run) -> list[str]:
    typed = read_plan(run.folder.parent).get("command") or _environment(run.folder).get("command") or []
    again = f"ringconv train {shlex.quote(str(run.folder / CONFIG))}"
    return [*([as_typed(typed)] if typed else []), again]


def as_typed(arguments: Sequence[Any]) -> str:
    """sys.argv as somebody would type it."""
    program, *options = map(str, arguments)
    name = Path(program).name
    start = "ringconv" if name in ("ringconv", "__main__.py", "ringconv.exe", "-c") else program
    return shlex.join([start, *options])
