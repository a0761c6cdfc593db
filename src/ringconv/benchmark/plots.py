"""Time against what varies, on a logarithmic scale, as in the paper's first figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringconv._extras import needs
from ringconv.benchmark.cases import MODES
from ringconv.benchmark.peers import label
from ringconv.benchmark.results import Row

_STYLES = {
    "torch": ("tab:gray", "-"),
    "torch_channels_last": ("tab:gray", "--"),
    "symm": ("tab:olive", "-"),
    "authors": ("tab:orange", "-"),
    "dense": ("tab:cyan", ":"),
    "factored": ("tab:blue", "--"),
    "fused": ("tab:purple", "-."),
    "auto": ("tab:red", "-"),
    "gemm": ("black", ":"),
}


def plot_growth(path: Path, title: str, rows: Sequence[Row]) -> None:
    """A panel per mode, a line per peer with its 20 to 80 percentiles, into a PNG file."""
    figures = needs("matplotlib.figure", "bench")
    needs("matplotlib.backends.backend_agg", "bench")  # a figure of its own: no window, no global state
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    figure = figures.Figure(figsize=(5.2 * len(modes), 5.0), layout="constrained")
    for axes, mode in zip(figure.subplots(1, len(modes), squeeze=False)[0], modes, strict=True):
        timed = [row for row in rows if row["mode"] == mode and row["median_ms"] != ""]
        for peer in dict.fromkeys(row["peer"] for row in timed):
            line = [row for row in timed if row["peer"] == peer]
            x, medians = ([row[column] for row in line] for column in ("value", "median_ms"))
            color, style = _STYLES.get(peer, (None, "-"))
            (drawn,) = axes.plot(x, medians, style, color=color, marker="o", markersize=3, label=label(peer, mode))
            low, high = ([row[column] for row in line] for column in ("p20_ms", "p80_ms"))
            axes.fill_between(x, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)
        values = list(dict.fromkeys(row["value"] for row in timed))
        axes.set_yscale("log")
        if values and max(values) > 16 * min(values):
            axes.set_xscale("log")
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
        axes.set(title=mode, xlabel=rows[0]["variable"], ylabel="milliseconds")
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize=7, ncols=3, handlelength=4, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=150)
