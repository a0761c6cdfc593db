"""``ringconv runs``."""

from __future__ import annotations

import dataclasses
import json
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
        console.print(differences_table(found, names))


def name_within(run: Run, out: Path) -> str:
    """Its folder, as seen from ``out``: runs of a comparison are named by their models only."""
    return run.folder.relative_to(out).as_posix() if run.folder.is_relative_to(out) else run.name


def show_runs(console: Any, runs: Sequence[Run], names: Sequence[str]) -> None:
    """The table, with names that can be copied: where they do not fit beside the figures, they are numbered."""
    table = runs_table(runs, names)
    if console.measure(table, options=console.options.update(width=1_000)).maximum <= console.width:
        console.print(table)
        return
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    console.print(runs_table(runs, numbers, gap=1))
    for number, name in zip(numbers, names, strict=True):
        console.print(f"{number:>3}  {name}", soft_wrap=True)


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
    values = [run.settings.to_json() for run in runs]
    settings = [field.name for field in dataclasses.fields(TrainSettings)]
    different = [name for name in settings if len({json.dumps(some[name], sort_keys=True) for some in values}) > 1]
    if not different:
        table.add_column("none: they are the same run again" if len(runs) > 1 else "none: there is one run")
    for name in different:
        table.add_column(name, overflow="fold")
    for run_name, some in zip(names, values, strict=True):
        table.add_row(run_name, *(_short(some[name]) for name in different))
    return table


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
