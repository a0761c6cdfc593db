"""What a reader sees of a comparison: a table and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringconv._extras import needs
from ringconv.report.run_labels import METRICS, gigabytes, labels_of, millions, minutes
from ringconv.training.compare import Comparison
from ringconv.training.runs import Run

if TYPE_CHECKING:
    from rich.table import Table

_EQUAL = 1.0
"""Percentage points that count as no difference: chance alone makes as many on several hundred test patches."""


def comparison_table(comparison: Comparison) -> Table:
    """A table for the terminal, less than 80 columns wide."""
    table: Table = needs("rich.table", "compare").Table(
        title="Accuracy in %, trained on upright patches only", title_justify="left"
    )
    table.add_column("network")
    for heading in ("parameters", "upright", "rotated", "std", "worst angle", "mirrored"):
        table.add_column(heading, justify="right")
    for model in comparison.models:
        table.add_row(
            model.kind,
            f"{model.parameters:,}",
            f"{model.upright:.1f}",
            f"{model.rotated:.1f}",
            f"{model.std:.2f}",
            f"{model.worst:.1f} ({model.worst_angle}°)",
            f"{model.mirrored:.1f}",
        )
    return table


def in_a_line(comparison: Comparison) -> str:
    """What the figures say, whichever network they favour."""
    plain, ring = comparison.models
    gain = ring.rotated - plain.rotated
    so = "; it does not pay off here" if gain <= -_EQUAL else ""
    return (
        f"Compared with the plain network, the ring network is right {_often(gain)} on rotated patches"
        f" ({ring.rotated:.1f}% against {plain.rotated:.1f}%) and {_often(ring.upright - plain.upright)} on upright"
        f" ones{so}. Turning the patches moves its accuracy by up to {ring.spread:.1f} points, the plain network's by"
        f" up to {plain.spread:.1f}."
    )


def _often(points: float) -> str:
    if abs(points) < _EQUAL:
        return "about as often"
    return f"{abs(points):.1f} points {'more' if points > 0 else 'less'} often"


# -- runs

_SCORES = {"upright": ("upright", 1), "rotated": ("rotated_mean", 1), "std": ("rotated_std", 2)}
_REFLECTED = {"reflected": ("reflected_mean", 1)}


def runs_tables(runs: Sequence[Run], width: int) -> list[Any]:
    """Of finished and tested runs on one data set: what to print on a terminal of ``width`` columns.

    The main metric with its costs; for a segmentation the others below. Where the names of the models do not fit beside
    the figures, they are numbered and written below. The best of each column is bold.
    """
    metrics = list(runs[0].scores)
    labels = labels_of(runs)
    console = needs("rich.console", "compare").Console(width=1_000)
    tables = [_scores_table(runs, labels, metrics[0], costs=True)]
    tables += [_scores_table(runs, labels, metric, costs=False) for metric in metrics[1:]]
    if all(console.measure(table).maximum <= width for table in tables):
        return tables
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    tables = [_scores_table(runs, numbers, metric, costs=metric == metrics[0]) for metric in metrics]
    text = needs("rich.text", "compare").Text
    return [*tables, *(text(f"{number}  {label}") for number, label in zip(numbers, labels, strict=True))]


def _scores_table(runs: Sequence[Run], names: Sequence[str], metric: str, costs: bool) -> Table:
    title = f"{METRICS[metric]} in %, trained on upright images" if costs else f"{METRICS[metric]} in %"
    table: Table = needs("rich.table", "compare").Table(
        title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("model", no_wrap=True)
    columns = []
    for heading, (key, places) in {**_SCORES, **_REFLECTED}.items():
        values = [run.scores[metric][key] for run in runs]
        best = min if heading == "std" else max
        columns.append((heading, ["-" if v is None else f"{v:.{places}f}" for v in values], _places(values, best)))
    if costs:
        memory, speed = ([run.cost(name) for run in runs] for name in ("peak_memory_bytes", "images_per_second"))
        weights = [float(run.parameters) for run in runs]
        seconds = [run.cost("train_seconds") for run in runs]
        columns.append(("params", [*map(millions, weights)], _places(weights, min)))
        columns.append(("memory", [*map(gigabytes, memory)], _places(memory, min)))
        columns.append(
            ("img/s", ["-" if v is None else f"{v:.{0 if v >= 100 else 1}f}" for v in speed], _places(speed, max))
        )
        columns.append(("time", [*map(minutes, seconds)], _places(seconds, min)))
    for heading, _, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    text = needs("rich.text", "compare").Text
    for row, name in enumerate(names):
        cells = [text(shown[row], style="bold" if row in best else "") for _, shown, best in columns]
        table.add_row(text(name), *cells)
    return table


def _places(values: Sequence[float | None], best: Any) -> set[int]:
    """Rows that have the best value, if some have a worse one."""
    known = [value for value in values if value is not None]
    if len(set(known)) < 2:
        return set()
    return {row for row, value in enumerate(values) if value == best(known)}


def runs_in_a_line(runs: Sequence[Run]) -> str:
    """What the figures of finished and tested runs on one data set say."""
    metric = next(iter(runs[0].scores))
    name = METRICS[metric] if METRICS[metric].isupper() else METRICS[metric].lower()
    rows = list(zip(labels_of(runs), (run.scores[metric] for run in runs), strict=True))
    ranked = sorted(rows, key=lambda row: -row[1]["rotated_mean"])
    against = " and ".join(f"{scores['rotated_mean']:.1f} of {label}" for label, scores in ranked[1:3])
    first = f"On turned images the {name} of {ranked[0][0]} is {ranked[0][1]['rotated_mean']:.1f}%"
    moved = ", ".join(f"{label} by up to {_spread(scores):.1f}" for label, scores in rows)
    return f"{first}{f', against {against}' if against else ''}. Turning moves {moved} points."


def _spread(scores: Any) -> float:
    """Best angle minus worst angle."""
    values = [value for value in scores["per_turn"].values() if value is not None]
    return max(values) - min(values) if values else 0.0
