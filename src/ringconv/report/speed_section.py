"""The paper's speed table, all rows, from the newest run of ``ringconv bench --suite methods``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from ringconv.benchmark.cases import MODES, Mode
from ringconv.benchmark.peers import label
from ringconv.recipes.paper import SPEED
from ringconv.report.markdown import markdown_rows

_OURS = "auto"
_LIMIT = "gemm"
_IN_THE_PAPER = {"torch": "torch", "e2": "e2", "group": "group", "symm": "symm", "dense": "gmr_dense", _OURS: "gmr"}
"""Our names of the paper's rows."""

_Times = Mapping[tuple[str, int], float]
"""Median milliseconds by peer and kernel width."""


def speed_section(folder: Path) -> str:
    """From the newest methods-<date>.csv in the folder."""
    head = """## Speed of one layer

Made by `ringconv bench --suite methods` (`make bench-methods`): (2, 128, 64, 64) to 128 channels by kernel width,
medians of interleaved calls in milliseconds, and in brackets that time divided by ours (auto). A channel of E(2)-Conv
and Group-Conv is a field of 8 maps, so these two work on 1,024 maps: it is what they cost in the plain layer's place.
In italics: the same ratios in the paper, on its hardware."""
    paths = sorted(folder.glob("methods-[0-9]*.csv"))
    if not paths:
        return f"{head}\n\nNot measured yet."
    with paths[-1].open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["median_ms"]]
    parts = [head]
    for mode in MODES:
        times = {(row["peer"], int(row["value"])): float(row["median_ms"]) for row in rows if row["mode"] == mode}
        if times:
            parts += [f"In {mode}:", _table(times, mode)]
    first = rows[0]
    least = min(int(row["rounds"]) for row in rows)
    where = f"{first['cpu']}, {first['threads']} threads, torch {first['torch']}"
    parts.append(f"Measured on {where}; each is the median of at least {least} calls.")
    return "\n\n".join(parts)


def _table(times: _Times, mode: Mode) -> str:
    widths = sorted({k for _, k in times})
    table = [["method", *(f"k={k}" for k in widths)], ["---", *["---:"] * len(widths)]]
    for peer in dict.fromkeys(peer for peer, _ in times):
        cells = [_cell(times.get((peer, k)), times[_OURS, k], compared=peer not in (_OURS, _LIMIT)) for k in widths]
        table.append([label(peer, mode), *cells])
        if peer in _IN_THE_PAPER and peer != _OURS:
            table.append(["*the paper*", *(f"*{_papers(peer, k, mode):.1f}x*" for k in widths)])
    return markdown_rows(table)


def _cell(time: float | None, ours: float, *, compared: bool) -> str:
    if time is None:
        return "-"
    shown = f"{time:,.0f}" if time >= 100 else f"{time:.1f}"
    return f"{shown} ({time / ours:.1f}x)" if compared else shown


def _papers(peer: str, k: int, mode: Mode) -> float:
    def seconds(key: str) -> float:
        row = next(row for row in SPEED.rows if row.key == key)
        return float(SPEED.figures(row, f"k{k}")[f"{mode}_seconds"])

    return seconds(_IN_THE_PAPER[peer]) / seconds(_IN_THE_PAPER[_OURS])
