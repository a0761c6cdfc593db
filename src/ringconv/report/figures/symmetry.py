"""Equivariance errors: of whole networks against the angle, and of their layers against the depth."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringconv._figure_style import COLUMN, FAINT, INK, NORMAL, PAGE, TINY, dress, hide_unused, legend, line, new_figure
from ringconv.equivariance import EquivarianceResult
from ringconv.evaluation.audit import Audit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOWEST = 1e-8
"""Errors below this, and exact zeros, are drawn here: rounding in float32 makes about 1e-7."""
_NAMED_PARTS = 20
"""Of a network, that there is room for."""
_ERROR = "equivariance error"


def error_against_angle(found: Mapping[str, EquivarianceResult]) -> Figure:
    """A line for every network, and below them what the interpolation of the images alone would do."""
    if not found:
        raise ValueError("there is no network to draw")
    figure = new_figure(COLUMN, 2.7)
    axes = figure.subplots()
    handles: dict[str, Any] = {}
    for number, (label, result) in enumerate(found.items()):
        angles, errors = list(result.per_angle), [_drawable(error) for error in result.per_angle.values()]
        style = line(number, markevery=max(1, len(angles) // 8))
        (handles[label],) = axes.plot(angles, errors, **style)
    floors = [result.floor for result in found.values()]
    angles = list(floors[0])
    floor = [_drawable(max(one.get(angle, 0.0) for one in floors)) for angle in angles]
    handles["interpolation alone"] = axes.fill_between(angles, LOWEST, floor, color=FAINT, linewidth=0, zorder=0)
    axes.set_yscale("log")
    axes.set_ylim(bottom=LOWEST)
    step = 45 if max(angles) - min(angles) >= 180 else 15
    axes.set_xticks(np.arange(step * math.ceil(min(angles) / step), max(angles) + 1, step))
    axes.minorticks_off()
    dress(axes, x="the image is turned by (degrees)", y=f"{_ERROR} (relative)")
    legend(figure, list(handles.values()), list(handles))
    return figure


def error_against_depth(found: Mapping[str, Audit]) -> Figure:
    """A panel for every network: the error of every layer's map in the order of the network, a line for every turn."""
    if not found:
        raise ValueError("there is no network to draw")
    names = list(dict.fromkeys(name for audit in found.values() for name in audit.transformations))
    columns = min(2, len(found))
    rows = math.ceil(len(found) / columns)
    figure = new_figure(COLUMN if columns == 1 else PAGE, 2.5 * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for axes, (label, audit) in zip(grid.flat, found.items(), strict=False):
        depth = range(1, len(audit.layers) + 1)
        for number, name in enumerate(names):
            errors = [_drawable(layer.errors.get(name, math.nan)) for layer in audit.layers]
            title = name if name == "flip" else f"{name}°"
            (handles[title],) = axes.plot(depth, errors, **line(number, markersize=2, linewidth=0.9))
        axes.set_yscale("log")
        named = _first_layers([layer.name for layer in audit.layers])
        axes.set_xticks([depth[place] for place in named], list(named.values()))
        axes.minorticks_off()
        dress(axes, x="layer, from the image to the answer", title=textwrap.fill(label, 40))
        for text in axes.get_xticklabels():
            text.set(rotation=35, ha="right", rotation_mode="anchor", fontsize=TINY)
    errors = [error for audit in found.values() for layer in audit.layers for error in layer.errors.values()]
    grid[0, 0].set_ylim(LOWEST, 3 * max((error for error in errors if math.isfinite(error)), default=1.0))
    for axes in grid[:, 0]:
        axes.set_ylabel(f"{_ERROR} (relative)", fontsize=NORMAL, color=INK)
    hide_unused(grid, len(found))
    legend(figure, list(handles.values()), list(handles))
    return figure


def _drawable(error: float) -> float:
    return max(error, LOWEST) if math.isfinite(error) else math.nan


def _first_layers(names: Sequence[str]) -> dict[int, str]:
    """Where each part of a network begins, and what it is called; parts that are too short for a name are left out."""
    found: dict[int, str] = {}
    last = ""
    for place, name in enumerate(names):
        numbered = re.match(r"(?:[^.\d]+\.)*[^.\d]*\d*", name)
        part = numbered.group().rstrip(".") if numbered else name
        if part != last and place - max(found, default=-len(names)) >= len(names) / _NAMED_PARTS:
            found[place] = part
        last = part
    return found
