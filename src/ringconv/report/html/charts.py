"""The score at every angle, as a picture within the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ringconv._figure_style import percent_limits
from ringconv.report.html.entries import Entry
from ringconv.report.html.markup import Markup, element
from ringconv.report.run_labels import METRICS

WIDTH, HEIGHT = 720, 310
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 12, 54
COLOURS = 7
"""Classes s0 to s6 of the style sheet. Dashes change with every line too, so that 28 lines differ."""
_DASHES = ("", "7 4", "2 3", "9 3 2 3")

Line = list[tuple[float, float]]
"""Angle and score."""


def charts(entries: Sequence[Entry], identity: str) -> list[Markup]:
    """A chart for every metric; of volumes for every axis."""
    drawn: list[Markup] = []
    for metric in entries[0].scores:
        lines = [lines_of(entry, metric) for entry in entries]
        for axis in dict.fromkeys(axis for by_axis in lines for axis in by_axis):
            about = f", turned about {axis}" if axis else ""
            title = f"{METRICS.get(metric, metric)}{about}"
            shown = [
                (entry.label, by_axis[axis]) for entry, by_axis in zip(entries, lines, strict=True) if axis in by_axis
            ]
            drawn.append(chart(shown, title, f"{identity}-{len(drawn)}"))
    return drawn


def lines_of(entry: Entry, metric: str) -> dict[str, Line]:
    """By axis, which is "" of pictures; angles without a score are left out."""
    lines: dict[str, Line] = {}
    for turn, score in entry.scores[metric]["per_turn"].items():
        axis, _, angle = turn.rpartition(" ")
        if score is not None and math.isfinite(score):
            lines.setdefault(axis, []).append((float(angle), float(score)))
    return {axis: sorted(line) for axis, line in lines.items()}


def chart(lines: Sequence[tuple[str, Line]], title: str, identity: str) -> Markup:
    """Lines with their names. It can be read without a script; with one, lines can be switched off and read out."""
    low, high = percent_limits(score for _, line in lines for _, score in line)

    def x(angle: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * angle / 360

    def y(score: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - score) / (high - low)

    grid = []
    for score in _ticks(low, high):
        grid.append(element("line", class_="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=_n(y(score)), y2=_n(y(score))))
        grid.append(element("text", f"{score:g}", class_="tick", x=_LEFT - 6, y=_n(y(score) + 4), text_anchor="end"))
    for angle in range(0, 361, 45):
        grid.append(element("text", f"{angle}°", class_="tick", x=_n(x(angle)), y=HEIGHT - 32, text_anchor="middle"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    grid.append(
        element("text", "the test images are turned by", class_="tick", x=middle, y=HEIGHT - 6, text_anchor="middle")
    )
    series = []
    for number, (label, line) in enumerate(lines):
        closed = [*line, (360.0, line[0][1])] if line and line[0][0] == 0 else line
        path = " ".join(f"{'L' if i else 'M'}{_n(x(a))} {_n(y(s))}" for i, (a, s) in enumerate(closed))
        dots = [
            element(
                "circle",
                element("title", f"{label}, {angle:g}°: {score:.2f}%"),
                cx=_n(x(angle)),
                cy=_n(y(score)),
                r=2.6,
            )
            for angle, score in line
        ]
        values = " ".join(f"{angle:g}:{score:.2f}" for angle, score in line)
        dashes = _DASHES[number % len(_DASHES)] or None
        series.append(
            element(
                "g",
                element("path", d=path, stroke_dasharray=dashes),
                dots,
                class_=f"series s{number % COLOURS}",
                data_label=label,
                data_values=values,
            )
        )
    cursor = element("line", class_="cursor", x1=_LEFT, x2=_LEFT, y1=_TOP, y2=HEIGHT - _BOTTOM)
    picture = element(
        "svg", element("title", f"{title} in % against the angle"), grid, cursor, series,
        viewbox=f"0 0 {WIDTH} {HEIGHT}", role="img", data_left=_LEFT, data_right=WIDTH - _RIGHT,
    )  # fmt: skip
    return element(
        "figure",
        element("figcaption", f"{title} in %"),
        element("div", picture, class_="plot", tabindex=0, role="group", aria_label=_help(title)),
        legend([label for label, _ in lines], identity),
        element("p", class_="readout needs-js", aria_live="polite"),
        class_="chart",
        id=f"chart-{identity}",
    )


def legend(labels: Sequence[str], identity: str) -> Markup:
    items = []
    for number, label in enumerate(labels):
        dashes = _DASHES[number % len(_DASHES)] or None
        swatch = element(
            "svg", element("path", d="M1 6H25", stroke_dasharray=dashes), class_=f"swatch series s{number % COLOURS}",
            viewbox="0 0 26 12", aria_hidden="true",
        )  # fmt: skip
        box = element(
            "input", type="checkbox", checked=True, class_="needs-js", data_series=number, id=f"{identity}-{number}"
        )
        items.append(element("li", element("label", box, swatch, element("span", label), for_=f"{identity}-{number}")))
    return element("ul", items, class_="legend")


def _help(title: str) -> str:
    return f"{title}: the left and right arrow keys read the figures out angle by angle"


def _ticks(low: float, high: float) -> list[float]:
    step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100) if (high - low) / step <= 6)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)]


def _n(value: float) -> str:
    """With as many digits as a screen can show."""
    return f"{value:.1f}".removesuffix(".0")
