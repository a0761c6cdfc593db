"""``ringconv runs``."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringconv._extras import needs
from ringconv.commands._terminal import UsageError, terminal, usage_errors
from ringconv.report.run_labels import millions
from ringconv.training import Run, TrainSettings, list_runs

if TYPE_CHECKING:
    from rich.table import Table


_SHORT = {"accuracy": "acc", "dice": "dice"}


def runs(out: Path = Path("runs"), match: str = "", settings: bool = False) -> None:
    """List the runs in a folder and compare them.

    One row per run: how far it is and, once it is finished, its scores in percent on the test images: upright, mean and
    standard deviation over all angles, and mirrored.

    Runs of one data set, with what they do differently: ringconv runs --match nwpu10 --settings

    Args:
        out: Folder that the runs are in, or below.
        match: Only runs whose name or recipe has this in it.
        settings: Also show the settings in which the runs differ.
    """
    with usage_errors():
        if not out.is_dir():
            raise UsageError(f"there is no folder {out}; runs are written by: ringconv train")
        found = [run for run in list_runs(out) if match in name_within(run, out) or match in (run.recipe or "")]
    console = terminal()
    if not found:
        console.print(f"There are no runs{f' with {match!r} in their name' if match else ''} in {out}.", soft_wrap=True)
        return
    names = [name_within(run, out) for run in found]
    show_runs(console, found, names)
    if settings:
        show_differences(console, found, names)


def name_within(run: Run, out: Path) -> str:
    """Its folder, as seen from ``out``: runs of a comparison are named by their models only."""
    return run.folder.relative_to(out).as_posix() if run.folder.is_relative_to(out) else run.name


def show_runs(console: Any, runs: Sequence[Run], names: Sequence[str]) -> None:
    """The table, with names that can be copied: where they do not fit beside the figures, they are numbered."""
    table = runs_table(runs, names)
    if _fits(console, table):
        console.print(table)
        return
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    console.print(runs_table(runs, numbers, gap=1))
    for number, name in zip(numbers, names, strict=True):
        console.print(f"{number:>3}  {name}", soft_wrap=True)


def show_differences(console: Any, runs: Sequence[Run], names: Sequence[str]) -> None:
    """The settings in which runs differ, as a table; where its columns would be too narrow to be read, run by run."""
    table, different = differences_table(runs, names), _differences(runs)
    if not different or _fits(console, table):
        console.print(table)
        return
    console.print("Settings that differ")
    for number, name in enumerate(names):
        console.print(name, soft_wrap=True)
        own = {setting: values[number] for setting, values in different.items()}
        # Options have equals signs of their own.
        said = [f"{key}={json.dumps(value) if isinstance(value, dict) else value}" for key, value in own.items()]
        lines = textwrap.wrap(", ".join(said), console.width - 2, break_long_words=False, break_on_hyphens=False)
        console.print(textwrap.indent("\n".join(lines), "  "), soft_wrap=True)


def _fits(console: Any, table: Table) -> bool:
    return bool(console.measure(table, options=console.options.update(width=1_000)).maximum <= console.width)


def runs_table(runs: Sequence[Run], names: Sequence[str], gap: int = 2) -> Table:
    """Scores in percent, a row for every run."""
    table: Table = needs("rich.table", "train").Table(
        title="Scores in % on the test images; training time in minutes",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
    )
    table.add_column("run", no_wrap=True)
    for heading in ("weights", "epochs", "score", "upright", "rotated", "std", "mirrored", "min"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run, name in zip(runs, names, strict=True):
        table.add_row(needs("rich.text", "train").Text(name), millions(run.parameters), _how_far(run), *_figures(run))
    return table


def differences_table(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """The settings that are not the same in all runs."""
    table: Table = needs("rich.table", "train").Table(title="Settings that differ", title_justify="left")
    table.add_column("run", overflow="fold")
    different = _differences(runs)
    if not different:
        table.add_column("none: they are the same run again" if len(runs) > 1 else "none: there is one run")
    for name in different:
        table.add_column(name, overflow="fold")
    for number, name in enumerate(names):
        table.add_row(name, *(_short(values[number]) for values in different.values()))
    return table


def _differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The settings that are not the same in all runs, with the value in each."""
    values = [run.settings.to_json() for run in runs]
    settings = {field.name: [some[field.name] for some in values] for field in dataclasses.fields(TrainSettings)}
    return {name: some for name, some in settings.items() if len({json.dumps(one, sort_keys=True) for one in some}) > 1}


def _how_far(run: Run) -> str:
    if run.state == "finished":
        return str(run.settings.epochs)
    return f"{run.epochs_done}/{run.settings.epochs} {run.state}"


def _figures(run: Run) -> list[str]:
    """The main metric: accuracy, or Dice."""
    results = run.results
    if results is None:
        return [""] * 6
    minutes = f"{results['train_seconds'] / 60:.1f}"
    if results["evaluation"] is None:
        return ["untested", "", "", "", "", minutes]
    scores: dict[str, Any] = results["evaluation"]["scores"]
    name = "dice" if "dice" in scores else "accuracy"
    keys = (("upright", 1), ("rotated_mean", 1), ("rotated_std", 2), ("reflected_mean", 1))
    figures = [f"{scores[name][key]:.{places}f}" if scores[name][key] is not None else "" for key, places in keys]
    return [_SHORT[name], *figures, minutes]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={json.dumps(inner)}" for name, inner in value.items())
    return str(value)
