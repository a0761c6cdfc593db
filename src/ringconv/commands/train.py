"""``ringconv train``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringconv import recipes, training
from ringconv._extras import needs
from ringconv.commands._terminal import UsageError, terminal, usage_errors
from ringconv.commands.runs import show_runs
from ringconv.report.run_labels import minutes
from ringconv.training import Lines, Moment, Run, TrainSettings, Watch
from ringconv.training.overhead import measure_overhead
from ringconv.training.runs import settings_of_config
from ringconv.training.settings import Options


@dataclass(frozen=True)
class _First:
    """What decides the defaults of all other options."""

    scale: recipes.Scale = "paper"
    """Of a recipe: the paper's settings, an honest small version for two cores (cpu), or seconds (tiny)."""


@dataclass(frozen=True, kw_only=True)
class _Asked(_First):
    settings: TrainSettings
    out: Path = Path("runs")
    """Folder that gets the run's own folder."""
    name: str | None = None
    """Name of the run's folder; default the data's, the model's and the time."""
    check: bool = False
    """Read the data, build everything and take one step, to see whether it works; nothing is written."""
    overhead: bool = False
    """Measure for a minute what the training loop costs beside a bare one; nothing is written."""
    resume: Path | None = None
    """Go on with the run in this folder, from its last checkpoint; takes no other option."""


def train(options: Sequence[str], prog: str = "ringconv train") -> None:
    """Train a network, and test it upright, turned and mirrored.

    ``options`` are those of the command line. The first may be the name of a recipe (see: ringconv recipes) or a JSON
    file with settings, such as the config.json of another run; it gives the defaults of all others.
    """
    console = terminal()
    console.quiet = not _is_first_process()
    if _is_given("--resume", options):
        _resume(options, prog, console)
        return
    recipe, rest = (
        (None, list(options)) if not options or options[0].startswith("-") else (options[0], list(options[1:]))
    )
    with usage_errors():
        asked, remembered, notes = _parse(recipe, rest, prog)
        if asked.check:
            loss = training.check(asked.settings)
            console.print(f"It works: the first step's loss is {loss:.4f}.")
            return
        if asked.overhead:
            console.print(str(measure_overhead(asked.settings)), soft_wrap=True)
            return
    for note in notes:
        console.print(note, soft_wrap=True)
    with watched(console) as watch, errors_without_traceback():
        run = training.train(asked.settings, out=asked.out, name=asked.name, recipe=remembered, watch=watch)
    _show(run, console)


def _is_first_process() -> bool:
    """Whether this is the one of several processes that talks."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK"))


def _resume(options: Sequence[str], prog: str, console: Any) -> None:
    @dataclass(frozen=True)
    class Resume:
        resume: Path
        """Go on with the run in this folder, from its last checkpoint."""

    folder = needs("tyro", "train").cli(Resume, prog=prog, args=options).resume
    with watched(console) as watch, errors_without_traceback():
        run = training.resume(folder, watch=watch)
    _show(run, console)


def _parse(recipe: str | None, options: list[str], prog: str) -> tuple[_Asked, str | None, Sequence[str]]:
    """What was asked, the name of the recipe to remember, and what to tell about it."""
    tyro = needs("tyro", "train")
    first, _ = tyro.cli(_First, prog=prog, args=options, return_unknown_args=True, add_help=False)
    remembered: str | None = None
    notes: Sequence[str] = ()
    defaults: TrainSettings | None = None
    if not {"-h", "--help"} & set(options):
        _check_combined(recipe, options)
    if recipe is not None and recipe.endswith(".json"):
        defaults = _settings_of_file(Path(recipe))
    elif recipe is not None:
        chosen = recipes.find_recipe(recipe, first.scale)
        defaults, remembered, notes = chosen.settings, chosen.recipe, chosen.notes
    asked = tyro.cli(
        _Asked,
        prog=f"{prog} {recipe or '[RECIPE | SETTINGS.json]'}",
        description=train.__doc__.partition("\n")[0] if train.__doc__ else None,
        args=options,
        **({} if defaults is None else {"default": _Asked(scale=first.scale, settings=defaults)}),
        config=(tyro.conf.OmitArgPrefixes,),
        registry=_registry(tyro),
    )
    if defaults is not None:
        settings = asked.settings
        merged = {
            name: {**getattr(defaults, name), **getattr(settings, name)} for name in ("model_options", "data_options")
        }
        asked = dataclasses.replace(asked, settings=dataclasses.replace(settings, **merged))
    return asked, remembered, notes


def _check_combined(recipe: str | None, options: Sequence[str]) -> None:
    """Raise UsageError if something is missing, or would have no effect."""
    missing = [name for name in ("--model", "--data") if not _is_given(name, options)]
    if recipe is None and missing:
        raise UsageError(f"give a recipe (ringconv recipes lists them), or {' and '.join(missing)}")
    if _is_given("--scale", options) and (recipe is None or recipe.endswith(".json")):
        raise UsageError("--scale is of a recipe, and none is given (ringconv recipes lists them); leave --scale out")


def _is_given(name: str, options: Sequence[str]) -> bool:
    return any(option.partition("=")[0] == name for option in options)


def _settings_of_file(path: Path) -> TrainSettings:
    try:
        values = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} must hold settings by name, got {type(values).__name__}")
    return settings_of_config(values) if "settings" in values else TrainSettings.from_json(values)


def _registry(tyro: Any) -> Any:
    """How options of models and data are written: name=value, with values as JSON has them, or text."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule  # type: ignore[untyped-decorator]
    def named_values(type_info: Any) -> Any:
        if type_info.type != Options:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs="*",
            metavar="NAME=VALUE ...",
            instance_from_str=named_values_of,
            is_instance=lambda instance: isinstance(instance, Mapping),
            str_from_instance=lambda values: [f"{name}={_shortest(value)}" for name, value in values.items()],
        )

    return registry


def named_values_of(texts: Sequence[str]) -> dict[str, Any]:
    """["width=16", "norm=batch"] -> {"width": 16, "norm": "batch"}"""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"options are written name=value, got {text!r}")
        try:
            values[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            values[name.replace("-", "_")] = value
    return values


def _shortest(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


@contextlib.contextmanager
def errors_without_traceback() -> Iterator[None]:
    """What stops a run is explained in its message; so is what the user gave."""
    try:
        with usage_errors():
            yield
    except training.TrainingInterruptedError as error:
        raise KeyboardInterrupt(str(error)) from error
    except (training.TrainingStoppedError, training.RunIsBusyError) as error:
        raise UsageError(str(error)) from error


class _Bars(Watch):
    """A bar for training, and one for everything else that takes long."""

    def __init__(self, note: Callable[[str], object], bar: Any) -> None:
        self._note, self._bar, self._stages = note, bar, dict[str, Any]()
        self._task = bar.add_task("", total=None, visible=False, figures="")

    def trained(self, moment: Moment) -> None:
        self._bar.update(
            self._task,
            visible=True,
            total=moment.steps,
            completed=moment.step,
            description=f"epoch {moment.epoch}/{moment.epochs}",
            figures=f"loss {moment.loss:.4f}  {moment.score_name} {moment.score:.1f}%"
            f"  {moment.images_per_second:,.0f} images/s  {minutes(moment.seconds_left)} left",
        )

    def testing(self, stage: str, done: int, total: int) -> None:
        if stage not in self._stages:
            self._stages[stage] = self._bar.add_task(stage, total=total, figures="")
        figures = f"{done:,} of {total:,}"
        self._bar.update(self._stages[stage], completed=done, total=total, visible=done < total, figures=figures)

    def note(self, text: str) -> None:
        self._note(text)


@contextlib.contextmanager
def watched(console: Any) -> Iterator[Watch]:
    """What a person at a terminal sees; without one, lines instead of bars."""
    note = functools.partial(console.print, soft_wrap=True)
    if console.quiet or not console.is_terminal:
        yield Lines(note)
        return
    rich = needs("rich.progress", "train")
    columns = (
        rich.TextColumn("{task.description:<13}", markup=False),
        rich.BarColumn(20),
        rich.TextColumn("{task.fields[figures]}"),
    )
    with rich.Progress(*columns, console=console) as bar:
        yield _Bars(note, bar)


def _show(run: Run, console: Any) -> None:
    show_runs(console, [run], [run.name])
    console.print(f"Everything about this run: {run.folder}", soft_wrap=True)
