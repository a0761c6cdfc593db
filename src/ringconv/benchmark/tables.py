"""A suite's rows as tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ringconv.benchmark import methods
from ringconv.benchmark.cases import MODES, Mode
from ringconv.benchmark.peers import label
from ringconv.benchmark.results import Row
from ringconv.benchmark.suites import Check, LayerSuite

_LIMIT = "gemm"
_WORST_SHOWN = 8


def left_out(rows: Sequence[Row]) -> list[str]:
    """Each peer that is missing somewhere, with the reason, once."""
    notes = {(row.get("peer", ""), row["note"]) for row in rows if row.get("note")}
    return sorted(f"left out: {peer + ': ' if peer else ''}{note}" for peer, note in notes)


def spread(rows: Sequence[Row]) -> str:
    """How far the timings scatter: what a reader may trust."""
    widths = [row["p80_ms"] / row["p20_ms"] for row in rows if row.get("p20_ms")]
    if not widths:
        return ""
    middle = sorted(widths)[len(widths) // 2]
    return f"80th over 20th percentile: {middle:.2f} in the middle, {max(widths):.2f} at worst"


# -- layer suites


def layer_tables(suite: LayerSuite, rows: Sequence[Row]) -> list[Table]:
    values = list(dict.fromkeys(row["value"] for row in rows))
    tables = []
    medians: dict[tuple[Mode, str], dict[int, float]] = {}
    for row in rows:
        if row["median_ms"] != "":
            medians.setdefault((row["mode"], row["peer"]), {})[row["value"]] = row["median_ms"]
    for mode in MODES:
        peers = {peer: times for (its_mode, peer), times in medians.items() if its_mode == mode}
        if peers:
            tables.append(_times_table(f"{mode}: median milliseconds", suite.variable, values, mode, peers))
    ratios = _table("ratios of medians, and what they must be", suite.variable, values)
    for check in suite.checks:
        if measured := _ratios(check, values, medians):
            cells = [_judged(measured.get(v), check.bounds.get(v), at_least=check.at_least) for v in values]
            ratios.add_row(check.label, *cells)
    for mode in MODES if suite.linear_growth else ():
        if measured := _growth(values, medians.get((mode, "auto"), {})):
            ratios.add_row(f"ours, growth, {mode}", *[_judged(measured.get(v), 1, at_least=False) for v in values])
    return [*tables, ratios] if ratios.row_count else tables


def _table(title: str, variable: str, values: Sequence[int]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    table.add_column(variable, no_wrap=True)
    for value in values:
        table.add_column(str(value), justify="right", no_wrap=True)
    return table


def _times_table(
    title: str, variable: str, values: Sequence[int], mode: Mode, peers: Mapping[str, Mapping[int, float]]
) -> Table:
    table = _table(title, variable, values)
    fastest = {
        value: min((times[value] for peer, times in peers.items() if peer != _LIMIT and value in times), default=None)
        for value in values
    }
    for peer, times in peers.items():
        cells = [
            Text(_short(times[value]), "bold" if times[value] == fastest[value] else "")
            if value in times
            else Text("-")
            for value in values
        ]
        table.add_row(label(peer, mode), *cells)
    return table


def _short(value: float) -> str:
    """At most five characters below 100,000, so that eight of them fit into a line."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"


def _ratios(
    check: Check, values: Sequence[int], medians: Mapping[tuple[Mode, str], Mapping[int, float]]
) -> dict[int, float]:
    """The ratio at each value where both sides were timed."""
    found = {}
    for value in values:
        over, under = (
            [times[value] for peer in peers if value in (times := medians.get((check.mode, peer), {}))]
            for peers in (check.over, check.under)
        )
        if over and under:
            found[value] = min(over) / min(under)
    return found


def _growth(values: Sequence[int], times: Mapping[int, float]) -> dict[int, float]:
    """Growth of the time since the first value, divided by that of the value."""
    measured = [value for value in values if value in times]
    return {value: (times[value] / times[measured[0]]) / (value / measured[0]) for value in measured[1:]}


def _judged(ratio: float | None, bound: float | None, *, at_least: bool, form: str = ".2f") -> Text:
    """The figure, in green or red if something is required, and the requirement below it."""
    if ratio is None:
        return Text("-")
    if bound is None:
        return Text(format(ratio, form))
    passes = ratio >= bound if at_least else ratio <= bound
    shown = Text(format(ratio, form), "green" if passes else "red")
    return shown.append(f"\n{'≥' if at_least else '≤'} {bound:{'.0%' if '%' in form else 'g'}}", "dim")


# -- networks


class _Figure(NamedTuple):
    """A column, and what our figure must be in relation to that of the plain network."""

    heading: str
    mode: str
    key: str
    more_is_better: bool
    bounds: Mapping[int, float]
    """By image side."""


_FIGURES = (
    _Figure("training\nimages/s", "training", "images_per_second", True, {32: 1.2}),
    _Figure("inference\nimages/s", "inference", "images_per_second", True, {}),
    _Figure("saved for\nbackward MB", "memory", "saved_bytes", False, {32: 1.05, 224: 1.05}),
    _Figure("peak of a\nstep MB", "memory", "peak_bytes", False, {32: 1.05, 224: 1.05}),
)
_PLAIN = ("resnet18", "resnet18_channels_last")
_RING = "gmr_resnet18"


def network_tables(rows: Sequence[Row]) -> list[Table]:
    tables = []
    for batch, side, stem_pool in dict.fromkeys((row["batch"], row["side"], row["stem_pool"]) for row in rows):
        title = f"{side}x{side}, batch {batch}, 5x5 stem {'with' if stem_pool else 'without'} pooling"
        tables.append(_network_table(title, side, [row for row in rows if row["side"] == side]))
    return tables


def _network_table(title: str, side: int, rows: Sequence[Row]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("network", no_wrap=True)
    for figure in _FIGURES:
        table.add_column(figure.heading, justify="right", no_wrap=True)
    measured = {
        (row["peer"], figure.heading): row[figure.key]
        for row in rows
        for figure in _FIGURES
        if row["mode"] == figure.mode and row.get(figure.key, "") != ""
    }
    for peer in dict.fromkeys(peer for peer, _ in measured):
        table.add_row(peer, *[_figure_cell(figure, measured.get((peer, figure.heading))) for figure in _FIGURES])
    table.add_section()
    ratios = []
    for figure in _FIGURES:
        plain = [measured[peer, figure.heading] for peer in _PLAIN if (peer, figure.heading) in measured]
        if not plain or (_RING, figure.heading) not in measured:
            ratios.append(Text("-"))
            continue
        ratio = measured[_RING, figure.heading] / (max(plain) if figure.more_is_better else min(plain))
        ratios.append(_judged(ratio, figure.bounds.get(side), at_least=figure.more_is_better))
    table.add_row("gmr_resnet18 / resnet18", *ratios)
    return table


def _figure_cell(figure: _Figure, value: float | None) -> str:
    if value is None:
        return "-"
    return _short(value / 1e6 if figure.key.endswith("_bytes") else value)


# -- the choice of "auto"


def auto_tables(rows: Sequence[Row]) -> list[Table]:
    summary = Table(title='"auto" against the best method', box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("mode", "shapes", f"within {methods.CLOSE}", "re-timed", "worst", "re-timed"):
        summary.add_column(heading, justify="left" if heading == "mode" else "right")
    for mode in MODES:
        ratios = [row["ratio"] for row in rows if row["mode"] == mode]
        retimed = [row["retimed_ratio"] for row in rows if row["mode"] == mode]
        if ratios:
            shares = [sum(ratio <= methods.CLOSE for ratio in some) / len(some) for some in (ratios, retimed)]
            summary.add_row(
                mode,
                str(len(ratios)),
                f"{shares[0]:.1%}",
                _judged(shares[1], methods.SHARE_CLOSE, at_least=True, form=".1%"),
                f"{max(ratios):.2f}",
                _judged(max(retimed), methods.WORST, at_least=False),
            )
    worst = Table(title="where it is furthest from the best", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("shape", "mode", "best", "ratio"):
        worst.add_column(heading, justify="right" if heading == "ratio" else "left", no_wrap=heading != "shape")
    for row in sorted(rows, key=lambda row: -row["ratio"])[:_WORST_SHOWN]:
        shape = f"{row['batch']}x{row['in_channels']}x{row['size']} -> {row['out_channels']}, k {row['kernel_size']}"
        shape += f", stride {row['stride']}" if set(row["stride"]) - set("1x") else ""
        shape += f", groups {row['groups']}" if row["groups"] > 1 else ""
        worst.add_row(shape, row["mode"], row["best"], f"{row['ratio']:.2f}")
    return [summary, worst]
