"""Tables of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ringconv.report.html.charts import lines_of
from ringconv.report.html.entries import Entry
from ringconv.report.html.markup import Markup, element
from ringconv.report.run_labels import METRICS, gigabytes, millions, minutes

NONE = "-"

_Column = tuple[str, list[float | None], list[str], bool]
"""Heading, values, how they are shown, and whether more is better."""


def scores_tables(entries: Sequence[Entry]) -> list[Markup]:
    """The main metric and the costs; of a segmentation the other metrics below. The best of each column is marked."""
    main, *others = entries[0].scores
    tables = [_table(entries, [*_scores(entries, main, bool(others)), *_costs(entries)])]
    if others:
        tables.append(_table(entries, [column for metric in others for column in _scores(entries, metric, True)]))
    return tables


def _scores(entries: Sequence[Entry], metric: str, named: bool) -> list[_Column]:
    columns: list[_Column] = []
    prefix = f"{METRICS.get(metric, metric)} " if named else ""
    for heading, key, places, more in (
        ("upright", "upright", 1, True),
        ("rotated", "rotated_mean", 1, True),
        ("reflected", "reflected_mean", 1, True),
        ("std", "rotated_std", 2, False),
    ):
        values = [entry.scores[metric].get(key) for entry in entries]
        columns.append((prefix + heading, values, [_figure(value, places) for value in values], more))
    return columns


def _costs(entries: Sequence[Entry]) -> list[_Column]:
    """What is known of any entry."""
    parameters: list[float | None] = [float(entry.parameters) for entry in entries]
    columns: list[_Column] = [("parameters", parameters, [millions(value) for value in parameters], False)]
    for heading, name, shown, more in (
        ("memory", "peak_memory_bytes", gigabytes, False),
        ("GPU memory", "peak_gpu_memory_bytes", gigabytes, False),
        ("images/s", "images_per_second", lambda value: _figure(value, 1), True),
        ("training time", "train_seconds", minutes, False),
    ):
        values = [entry.costs.get(name) for entry in entries]
        if any(value is not None for value in values):
            columns.append((heading, values, [shown(value) for value in values], more))
    return columns


def _table(entries: Sequence[Entry], columns: Sequence[_Column]) -> Markup:
    head = element("tr", element("th", "network", scope="col"), [element("th", c[0], scope="col") for c in columns])
    rows = []
    for row, entry in enumerate(entries):
        cells = [_cell(shown[row], _is_best(values, row, more)) for _, values, shown, more in columns]
        rows.append(element("tr", element("th", entry.label, scope="row"), cells))
    return _scrolling(element("table", element("thead", head), element("tbody", rows), class_="scores"))


def _cell(shown: str, best: bool) -> Markup:
    if not best:
        return element("td", shown)
    return element("td", element("strong", shown), element("span", " (best)", class_="sr-only"), class_="best")


def _is_best(values: Sequence[float | None], row: int, more: bool) -> bool:
    """If there are others that are not."""
    known = [value for value in values if value is not None]
    return len(set(known)) > 1 and values[row] == (max(known) if more else min(known))


def _figure(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:.{places}f}"


def angles_table(entries: Sequence[Entry]) -> Markup:
    """Every figure that the charts show."""
    tables = []
    for metric in entries[0].scores:
        lines = [lines_of(entry, metric) for entry in entries]
        axes = dict.fromkeys(axis for by_axis in lines for axis in by_axis)
        head = _head("turned by", entries)
        rows = []
        for axis in axes:
            values = [dict(by_axis.get(axis, [])) for by_axis in lines]
            for angle in sorted({angle for some in values for angle in some}):
                name = f"{angle:g}° about {axis}" if axis else f"{angle:g}°"
                cells = [element("td", _figure(some.get(angle), 2)) for some in values]
                rows.append(element("tr", element("th", name, scope="row"), cells))
        for flip in dict.fromkeys(flip for entry in entries for flip in entry.scores[metric].get("per_flip", {})):
            flipped = [entry.scores[metric].get("per_flip", {}).get(flip) for entry in entries]
            rows.append(
                element("tr", element("th", flip, scope="row"), [element("td", _figure(v, 2)) for v in flipped])
            )
        caption = element("caption", f"{METRICS.get(metric, metric)} in %")
        tables.append(_scrolling(element("table", caption, element("thead", head), element("tbody", rows))))
    return element("details", element("summary", "All angles, as figures"), tables)


def _head(first: str, entries: Sequence[Entry]) -> Markup:
    return element("tr", [element("th", name, scope="col") for name in (first, *(entry.label for entry in entries))])


def settings_table(entries: Sequence[Entry]) -> Markup:
    """All settings, those that differ first."""
    names = dict.fromkeys(name for entry in entries for name in entry.settings)
    shown = {name: [_short(entry.settings.get(name)) for entry in entries] for name in names}
    ordered = sorted(names, key=lambda name: len(set(shown[name])) == 1)
    head = _head("setting", entries)
    rows = [element("tr", element("th", n, scope="row"), [element("td", cell) for cell in shown[n]]) for n in ordered]
    table = element("table", element("thead", head), element("tbody", rows), class_="settings")
    return element("details", element("summary", "All settings"), _scrolling(table))


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={json.dumps(inner)}" for name, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def environment_table(environment: Mapping[str, Any]) -> Markup:
    versions = environment.get("versions") or {}
    facts = {
        "processor": environment.get("processor"),
        "cores, threads": " / ".join(str(environment[name]) for name in ("cores", "threads") if environment.get(name)),
        "GPUs": ", ".join(map(str, environment.get("gpus") or ())),
        "system": environment.get("platform"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "started": environment.get("started"),
    }
    rows = [
        element("tr", element("th", name, scope="row"), element("td", str(fact)))
        for name, fact in facts.items()
        if fact
    ]
    return _scrolling(element("table", element("tbody", rows), class_="facts"))


def _scrolling(table: Markup) -> Markup:
    return element("div", table, class_="scrolling", tabindex=0, role="region", aria_label="table")
