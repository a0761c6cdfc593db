"""Time against what varies, on a logarithmic scale, as in the paper's first figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringconv._figure_style import PAGE, dress, headline, legend, line, new_figure, png, round_numbers
from ringconv._files import write_whole
from ringconv.benchmark.cases import MODES
from ringconv.benchmark.peers import PEERS, label
from ringconv.benchmark.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VARIABLES = {
    "k": "kernel width k (pixels)",
    "n": "rings n",
    "C": "channels C",
    "H": "width of the map H (pixels)",
    "B": "images in a batch B",
}


def growth(title: str, rows: Sequence[Row]) -> Figure:
    """A panel per mode, a line per peer with its 20 to 80 percentiles."""
    timed = [row for row in rows if row["median_ms"] != ""]
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in timed)]
    if not modes:
        raise ValueError("no row has a time")
    figure = new_figure(PAGE, 3.6, "bench")
    handles: dict[str, Any] = {}
    for axes, mode in zip(figure.subplots(1, len(modes), squeeze=False)[0], modes, strict=True):
        shown = [row for row in timed if row["mode"] == mode]
        for peer in dict.fromkeys(row["peer"] for row in shown):
            of_peer = [row for row in shown if row["peer"] == peer]
            x, medians, low, high = (
                [row[column] for row in of_peer] for column in ("value", "median_ms", "p20_ms", "p80_ms")
            )
            # The same look in every suite, whichever peers it has.
            style = line(list(PEERS).index(peer) if peer in PEERS else len(PEERS))
            (handles[label(peer, mode)],) = axes.plot(x, medians, **style)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        values = list(dict.fromkeys(row["value"] for row in shown))
        axes.set_yscale("log")
        if max(values) > 16 * min(values):
            axes.set_xscale("log")
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
        round_numbers(axes.yaxis)
        variable = str(shown[0]["variable"])
        dress(axes, x=_VARIABLES.get(variable, variable), y="time (ms)", title=mode, grid="both")
    headline(figure, title)
    legend(figure, list(handles.values()), list(handles))
    return figure


def plot_growth(path: Path, title: str, rows: Sequence[Row]) -> None:
    """Write :func:`growth` as a PNG file, all of it or nothing."""
    write_whole(path, png(growth(title, rows), 200))
