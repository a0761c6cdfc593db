"""The score against the angle: as a radar plot, as lines, and its spread as boxes. A panel for every data set."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringconv._extras import needs
from ringconv._figure_style import (
    COLUMN,
    FAINT,
    INK,
    PAGE,
    SMALL,
    area,
    dress,
    hide_unused,
    legend,
    line,
    new_figure,
    outlined,
    percent_axis,
    percent_limits,
)
from ringconv.report.figures.sources import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS = 12
"""Markers around the circle, whatever the number of angles."""
TURNED_BY = "the test images are turned by (degrees)"


def radar(curves: Sequence[Curve]) -> Figure:
    """Around the circle: the images turn counterclockwise from the top, as the axis does."""
    panels = _panels(curves)
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    width = COLUMN if columns == 1 else PAGE
    figure = new_figure(width, rows * (width / columns * 1.06) + 0.3)
    numbers = _numbers(curves)
    grid = figure.subplots(rows, columns, squeeze=False, subplot_kw={"projection": "polar"})
    handles: dict[str, Any] = {}
    for axes, ((data, metric), shown) in zip(grid.flat, panels.items(), strict=False):
        for curve in shown:
            theta = np.radians([*curve.angles, 360.0])
            low, high = _closed(curve.values.min(0)), _closed(curve.values.max(0))
            style = line(numbers[curve.label], markevery=_every(curve))
            (handles[curve.label],) = axes.plot(theta, _closed(curve.mean), **style)
            if len(curve.values) > 1:
                axes.fill_between(theta, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.set_theta_zero_location("N")
        axes.set_thetagrids(range(0, 360, 30))
        bottom, top = percent_limits(_values(shown))
        axes.set_ylim(bottom, top)
        step = next(step for step in (1, 2, 5, 10, 20, 25) if top - bottom <= 5 * step)
        rings = np.arange(step * (bottom // step + 1), top + 0.5, step)
        axes.set_rgrids(rings, [f"{ring:g}" for ring in rings], angle=15, path_effects=outlined(), zorder=5)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.spines["polar"].set_color(FAINT)
        axes.tick_params(axis="x", labelsize=SMALL, colors=INK, pad=-2)
        axes.tick_params(axis="y", labelsize=SMALL, colors=INK)
        axes.set_title(f"{data}: {metric} (%)", fontsize=SMALL + 1, color=INK, parse_math=False)
    hide_unused(grid, len(panels))
    legend(figure, list(handles.values()), list(handles))
    return figure


def lines(curves: Sequence[Curve]) -> Figure:
    """The same figures along a straight axis."""
    panels = _panels(curves)
    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)
    width = COLUMN if columns == 1 else PAGE
    figure = new_figure(width, rows * 2.2 + 0.5)
    numbers = _numbers(curves)
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, ((data, metric), shown) in zip(grid.flat, panels.items(), strict=False):
        for curve in shown:
            angles = [*curve.angles, 360.0]
            style = line(numbers[curve.label], markevery=_every(curve))
            (handles[curve.label],) = axes.plot(angles, _closed(curve.mean), **style)
            if len(curve.values) > 1:
                low, high = _closed(curve.values.min(0)), _closed(curve.values.max(0))
                axes.fill_between(angles, low, high, color=style["color"], alpha=0.15, linewidth=0)
        percent_axis(axes, _values(shown))
        axes.set_xlim(-6, 366)
        axes.set_xticks(range(0, 361, 60 if columns > 1 else 45))
        dress(axes, x=TURNED_BY, y=f"{metric} (%)", title=data)
    hide_unused(grid, len(panels))
    legend(figure, list(handles.values()), list(handles))
    return figure


def boxes(curves: Sequence[Curve]) -> Figure:
    """The spread over the angles: quartiles, median, whiskers to 1.5 times the box, and the angles beyond them."""
    panels = _panels(curves)
    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)
    width = COLUMN if columns == 1 else PAGE
    most = max(len(shown) for shown in panels.values())
    labels = {curve.label: textwrap.fill(curve.label, 24) for curve in curves}
    lines_of_label = max(label.count("\n") + 1 for label in labels.values())
    figure = new_figure(width, rows * (max(0.24, 0.13 * lines_of_label) * most + 0.75))
    numbers = _numbers(curves)
    grid = figure.subplots(rows, columns, squeeze=False)
    statistics = needs("matplotlib.cbook", "compare").boxplot_stats
    for axes, ((data, metric), shown) in zip(grid.flat, panels.items(), strict=False):
        for place, curve in enumerate(shown):
            style = area(numbers[curve.label])
            finite = curve.mean[np.isfinite(curve.mean)]
            if len(finite):
                _draw_box(axes, place, statistics(finite)[0], style)
        axes.set_yticks(range(len(shown)), [labels[curve.label] for curve in shown], parse_math=False)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        bottom, top = percent_limits(_values(shown))
        axes.set_xlim(bottom, top + 0.02 * (top - bottom))
        counts = sorted({len(curve.angles) for curve in shown})
        dress(axes, x=f"{metric} (%), over {' or '.join(map(str, counts))} angles", title=data, grid="x")
    hide_unused(grid, len(panels))
    return figure


def _draw_box(axes: Any, place: int, found: dict[str, Any], style: dict[str, Any]) -> None:
    """Lying, so that names of any length stand beside it."""
    colour = style["edgecolor"]
    axes.hlines(place, found["whislo"], found["whishi"], color=colour, linewidth=1.0, zorder=2)
    for end in (found["whislo"], found["whishi"]):
        axes.vlines(end, place - 0.15, place + 0.15, color=colour, linewidth=1.0, zorder=2)
    axes.barh(place, found["q3"] - found["q1"], left=found["q1"], height=0.55, zorder=3, **style)
    axes.vlines(found["med"], place - 0.275, place + 0.275, color=INK, linewidth=1.8, zorder=4)
    axes.plot(found["fliers"], [place] * len(found["fliers"]), ".", color=colour, markersize=3, zorder=4)


def _panels(curves: Sequence[Curve]) -> dict[tuple[str, str], list[Curve]]:
    if not curves:
        raise ValueError("there is no curve to draw")
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.data, curve.metric), []).append(curve)
    return panels


def _numbers(curves: Sequence[Curve]) -> dict[str, int]:
    """One look for one label in all panels."""
    labels = dict.fromkeys(curve.label for curve in curves)
    return {label: number for number, label in enumerate(labels)}


def _values(curves: Sequence[Curve]) -> list[float]:
    return [float(value) for curve in curves for value in curve.values.flat]


def _closed(values: Any) -> Any:
    return np.concatenate([values, values[:1]])


def _every(curve: Curve) -> int:
    return max(1, round(len(curve.angles) / _MARKS))
