"""Filled tables for people and for programs: rows of text, markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from ringconv.recipes.catalogue import LABELS
from ringconv.recipes.filling import FilledRow

NONE = "-"
HEADINGS = {
    "parameters": "params",
    "rotated_std": "std",
    "quarter_turns": "4ROT",
    "every_20_degrees": "ALLROT",
    "auc": "AUC",
    "auc_rotated": "AUC rot.",
    "iou": "IoU",
    "iou_rotated": "IoU rot.",
    "dice": "Dice",
    "dice_rotated": "Dice rot.",
    "training_seconds": "training (s)",
    "inference_seconds": "inference (s)",
}


@dataclass(frozen=True)
class TextTable:
    """Cells as they are shown: the rows of one group of a table, ours above the paper's."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def heading(measure: str) -> str:
    """How a measure is called above a column."""
    return HEADINGS.get(measure, measure)


def text_tables(filled: Sequence[FilledRow]) -> list[TextTable]:
    """One for each group of columns of the paper's table."""
    groups = dict.fromkeys(row.recipe.group for row in filled)
    return [_text_table(group, [row for row in filled if row.recipe.group == group]) for group in groups]


def remarks(filled: Sequence[FilledRow]) -> list[str]:
    """What has to be said below the table."""
    said: list[str] = []
    scales = sorted({row.scale for row in filled if row.scale not in (None, "paper")}, key=str)
    if scales:
        which = " and ".join(map(str, scales))
        said.append(f"Runs at scale {which} are smaller than the paper's and cannot be compared with its figures.")
    for row in filled:
        if row.changed:
            said.append(f"* {row.recipe.name}: {'; '.join(row.changed)}")
    reasons = dict.fromkeys(row.recipe.not_built for row in filled if row.recipe.not_built)
    for reason in reasons:
        rows = [row for row in filled if row.recipe.not_built == reason]
        printed = dict.fromkeys(row.recipe.printed for row in rows)
        said.append(f"Not built here: {', '.join(printed)} ({reason}).")
    missing = sum(not row.runs and not row.recipe.not_built for row in filled)
    if missing:
        said.append(f"{missing} of {len(filled)} rows are missing; train one with: ringconv train {_missing(filled)}")
    return said


def markdown(filled: Sequence[FilledRow]) -> str:
    """The table as markdown."""
    label = filled[0].recipe.label
    lines = [f"## {label}: {LABELS[label][0]}", ""]
    for table in text_tables(filled):
        if table.title:
            lines += [f"### {table.title}", ""]
        lines.append(_markdown_row(table.headings))
        lines.append(_markdown_row(["---", "---", *("---:" for _ in table.headings[2:])]))
        lines += [*map(_markdown_row, table.rows), ""]
    for remark in remarks(filled):
        lines += [remark.replace("*", r"\*"), ""]
    return "\n".join(lines[:-1]) + "\n"


def comma_separated(filled: Sequence[FilledRow]) -> str:
    """One line per figure: recipe, measure, the paper's, ours, and where ours is from."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["recipe", "row", "measure", "paper", "ours", "scale", "runs", "changed", "status"])
    for row in filled:
        values = row.values
        for measure in LABELS[row.recipe.label][1]:
            paper, ours = row.recipe.figures.get(measure, ""), values.get(measure, "")
            source = [row.scale or "", len(row.runs), "; ".join(row.changed), _status(row)]
            lines.writerow([row.recipe.name, row.recipe.printed, measure, paper, ours, *source])
    return text.getvalue()


def _text_table(group: str, filled: Sequence[FilledRow]) -> TextTable:
    measures = LABELS[filled[0].recipe.label][1]
    rows = []
    for row in filled:
        values, figures = row.values, row.recipe.figures
        ours = [_shown(measure, values.get(measure), figures.get(measure, "")) for measure in measures]
        rows.append([row.recipe.printed, _status(row), *ours])
        rows.append(["", "paper", *(figures.get(measure, NONE) for measure in measures)])
    return TextTable(group, ["row", "from", *map(heading, measures)], rows)


def _status(row: FilledRow) -> str:
    if row.recipe.not_built:
        return "not built"
    if row.scale is None:
        return "unfinished" if row.unfinished else "missing"
    several = f" x{len(row.runs)}" if len(row.runs) > 1 else ""
    return f"ours@{row.scale}{several}{'*' if row.changed else ''}"


def _shown(measure: str, value: float | None, printed: str) -> str:
    """With as many decimals as the paper prints."""
    if value is None:
        return NONE
    if measure == "parameters":
        return f"{value / 1e6:.2f}M"
    return f"{value:.{len(printed.partition('.')[2]) or 1}f}"


def _missing(filled: Sequence[FilledRow]) -> str:
    return next(row.recipe.name for row in filled if not row.runs and not row.recipe.not_built)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
