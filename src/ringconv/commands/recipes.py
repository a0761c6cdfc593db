"""``ringconv recipes``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringconv._extras import needs
from ringconv.commands._terminal import UsageError, terminal
from ringconv.recipes import DRAWN_FROM, LABELS, SCALES, Recipe, find_recipe, heading, list_recipes

NONE = "-"


def recipes(pattern: str = "*", /) -> None:
    """List the recipes: one for every row of the paper's tables, with its figures.

    A recipe is named by the LaTeX label of its table or curve, the data set and the row. Where the pattern leaves one
    recipe, all that is known about it is shown: settings at each scale, and where the paper's text and its released
    commands differ.

    What is trained on NWPU-10: ringconv recipes nwpu10

    The main table: ringconv recipes 'tab:main/*'

    All about one: ringconv recipes tab:main/nwpu10/gmr_resnet18

    To train it: ringconv train tab:main/nwpu10/gmr_resnet18 --scale cpu

    Args:
        pattern: Part of a name, a pattern with * and ?, or the label of a table or figure.
    """
    found = list_recipes(pattern)
    if not found:
        labels = ", ".join([*LABELS, *DRAWN_FROM])
        raise UsageError(f"no recipe matches {pattern!r}; the labels are {labels}")
    console = terminal()
    if len(found) == 1:
        _show(console, found[0])
        return
    if pattern in DRAWN_FROM:
        console.print(f"{pattern} is drawn from the runs of {' and '.join(DRAWN_FROM[pattern])}.")
    for label in dict.fromkeys(recipe.label for recipe in found):
        _list(console, label, [recipe for recipe in found if recipe.label == label])
    console.print(f"{len(found)} recipes. Figures are the paper's; {NONE} where it prints none.")


def _list(console: Any, label: str, found: Sequence[Recipe]) -> None:
    title, measures = LABELS[label]
    console.print(f"{label}: {title}", style="bold")
    table = needs("rich.table", "compare").Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    for measure in measures:
        table.add_column(heading(measure), justify="right", no_wrap=True)
    for recipe in found:
        style = "dim" if recipe.not_built else None
        table.add_row(recipe.name, *(recipe.figures.get(measure, NONE) for measure in measures), style=style)
    console.print(table)
    for reason in dict.fromkeys(recipe.not_built for recipe in found if recipe.not_built):
        rows = dict.fromkeys(recipe.row for recipe in found if recipe.not_built == reason)
        console.print(f"Not built here: {', '.join(rows)} ({reason}).")
    console.print()


def _show(console: Any, recipe: Recipe) -> None:
    console.print(f"{recipe.name}: {recipe.printed}", style="bold")
    figures = ", ".join(f"{heading(measure)} {figure}" for measure, figure in recipe.figures.items())
    console.print(f"The paper: {figures or 'prints no figures'}")
    if recipe.settings is None:
        console.print(f"Not built here: {recipe.not_built}.")
        return
    settings = recipe.settings
    console.print(f"Model {settings.model} {dict(settings.model_options)} on {settings.data}")
    console.print(
        f"{settings.epochs:,} epochs in batches of {settings.batch_size}, {settings.optimiser} at {settings.lr:g},"
        f" weight decay {settings.weight_decay:g}, images of {settings.size or 'their own size'}",
    )
    for scale in SCALES[1:]:
        changes = find_recipe(recipe.name, scale).changes
        console.print(f"\nAt scale {scale}:")
        for change in changes:
            console.print(f"  {change}")
    console.print("\nThe paper's text, its released commands, and what is done here:")
    for note in (*map(str, recipe.differences), *recipe.notes):
        console.print(f"- {note}")
