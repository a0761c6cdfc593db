"""One look for all figures: readable at column width, by the colour-blind, and in grey.

What is drawn together differs in line, marker or hatch as well as in colour. No setting of matplotlib's is changed, so
that figures can be drawn in threads and in servers.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ringconv._extras import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.4, 7.0
"""Widths in inches: one column of a paper, or all of its page."""
TINY, SMALL, NORMAL = 6.0, 7.0, 8.0
"""Points."""
INK, FAINT = "#333333", "#d9d9d9"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which are told apart with any kind of colour vision; without their yellow, too light for a line."""
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")

MAGNITUDES = "cividis"
"""Colour map of values from small to large: its lightness grows evenly, for all eyes."""
_SIGNED = ("#0b2c5f", "#2b6cab", "#8f8f8f", "#f3bd6a", "#fff6cf")

_LETTER = 0.6
"""Mean width of a letter, in units of the font's size."""
_HANDLE, _LINE = 0.42, 0.15
"""Width of a legend's entry beside its text, and height of its lines, in inches."""


def new_figure(width: float, height: float, extra: str = "compare") -> Figure:
    """An empty figure, in inches; ``extra`` is the one to install if matplotlib is missing."""
    needs("matplotlib.backends.backend_agg", extra)
    figure: Figure = needs("matplotlib.figure", extra).Figure(
        figsize=(width, height), layout="constrained", facecolor="white"
    )
    return figure


def line(number: int, **more: Any) -> dict[str, Any]:
    """How the line of this number is drawn: no two of the first 280 look alike, in colour or in grey."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
        "linewidth": 1.3,
        "markersize": 3.2,
        **more,
    }


def area(number: int, **more: Any) -> dict[str, Any]:
    """How the bar or box of this number is drawn."""
    return {
        "facecolor": "white",
        "edgecolor": COLOURS[number % len(COLOURS)],
        "hatch": HATCHES[number % len(HATCHES)],
        "linewidth": 1.0,
        **more,
    }


def point(number: int, **more: Any) -> dict[str, Any]:
    """How the points of this number are drawn; those of every second round of markers are hollow."""
    colour = COLOURS[number % len(COLOURS)]
    hollow = number // len(MARKERS) % 2
    return {
        "marker": MARKERS[number % len(MARKERS)],
        "facecolors": "none" if hollow else colour,
        "edgecolors": colour,
        "linewidths": 0.6,
        **more,
    }


def signed_map() -> Any:
    """A colour map for values on both sides of zero: blue below, orange above, and lighter and lighter in grey."""
    return needs("matplotlib.colors", "compare").LinearSegmentedColormap.from_list("signed", _SIGNED)


def dress(axes: Any, *, x: str = "", y: str = "", title: str = "", grid: str = "y", formulas: bool = False) -> None:
    """Labels, faint grid lines along ``grid`` ("x", "y", "both" or ""), and no frame.

    Args:
        formulas: dollar signs begin and end one; else they are part of a name.
    """
    style: dict[str, Any] = {"fontsize": NORMAL, "color": INK, "parse_math": formulas}
    axes.set_xlabel(x, **style)
    axes.set_ylabel(y, **style)
    if title:
        axes.set_title(title, **style)
    if grid:
        axes.grid(axis=grid, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK, labelsize=SMALL, length=0)
    if "top" in axes.spines:
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(FAINT)


def picture(axes: Any, *, title: str = "", y: str = "", size: float = SMALL, formulas: bool = False) -> None:
    """Axes that show an image: a title and a name beside it at most; with ``formulas`` as :func:`dress` has it."""
    style: dict[str, Any] = {"fontsize": size, "color": INK, "parse_math": formulas}
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, pad=2, **style)
    if y:
        axes.set_ylabel(y, rotation=0, ha="right", va="center", **style)


def legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Below everything, in as many columns as fit; a figure grows with more than two rows of it."""
    width = float(figure.get_size_inches()[0])
    room = int((width - _HANDLE - 0.1) * 72 / (_LETTER * SMALL))
    shown = [textwrap.fill(name, room) or " " for name in names]
    if not shown:
        return
    longest = max(len(row) for name in shown for row in name.split("\n"))
    columns = max(1, min(len(shown), int(width / (_HANDLE + longest * _LETTER * SMALL / 72))))
    # Columns are filled one after the other.
    length = -(-len(shown) // columns)
    rows = max(sum(name.count("\n") + 1 for name in shown[at : at + length]) for at in range(0, len(shown), length))
    figure.set_figheight(figure.get_figheight() + _LINE * max(0, rows - 2))
    drawn = figure.legend(
        handles,
        shown,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        columnspacing=1.2,
        handlelength=2.6,
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)


def headline(figure: Figure, text: str) -> None:
    """A title over the whole figure, its lines wrapped to its width."""
    room = int(float(figure.get_size_inches()[0]) * 72 / (_LETTER * NORMAL))
    wrapped = "\n".join(textwrap.fill(row, room) for row in text.split("\n"))
    figure.suptitle(wrapped, fontsize=NORMAL, color=INK, parse_math=False)


def round_numbers(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten, written out."""
    ticker = needs("matplotlib.ticker", "compare")
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def percent_limits(values: Iterable[float], step: float = 5.0) -> tuple[float, float]:
    """Limits of an axis in percent that all values fit into, at multiples of ``step``."""
    finite = [value for value in values if value == value]
    if not finite:
        return 0.0, 100.0
    low = max(0.0, step * (min(finite) // step))
    high = min(100.0, step * (max(finite) // step + 1))
    if high - low < 2 * step:
        low = max(0.0, high - 2 * step)
    return low, max(high, low + 2 * step)


def percent_axis(axes: Any, values: Iterable[float], room: float = 0.03) -> None:
    """Let the y axis show all values, with a share of it as room for the markers at its ends."""
    low, high = percent_limits(values)
    axes.set_ylim(low - room * (high - low), high + room * (high - low))


def outlined() -> list[Any]:
    """Path effects of a text that stands on lines or patches: a white rim."""
    return [needs("matplotlib.patheffects", "compare").withStroke(linewidth=2, foreground="white")]


def hide_unused(grid: Any, used: int) -> None:
    """All axes of a grid but the first so many."""
    for axes in list(grid.flat)[used:]:
        axes.set_visible(False)


def spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers below ``count``, evenly from the first to the last."""
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def png(figure: Figure, dpi: int = 300) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    return content.getvalue()
