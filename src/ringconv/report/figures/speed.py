"""Time against what varies, from a file of ``ringconv bench``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TIMES = ("median_ms", "p20_ms", "p80_ms")
_NEEDED = ("suite", "mode", "peer", "variable", "value", *_TIMES)


def time_against_kernel_width(path: Path) -> Figure:
    """A panel for training and one for inference, a line for every peer.

    Args:
        path: CSV of a suite in which one quantity varies: speed, kernel, rings, channels, pixels, batch or 3d.
    """
    # Not at the top: the benchmarks need rich.
    from ringconv.benchmark.plots import growth

    rows = read_rows(path)
    about = ", ".join(dict.fromkeys(f"{row['suite']}: {row['cpu']}, torch {row['torch']}" for row in rows))
    return growth(about, rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows with numbers where the writer had numbers; what could not be timed stays empty."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; ringconv bench writes such files to benchmarks/results")
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    missing = [column for column in _NEEDED if not rows or column not in rows[0]]
    if missing:
        raise ValueError(
            f"{path} is not a file of ringconv bench in which one quantity varies (suites speed, kernel, rings,"
            f" channels, pixels, batch, 3d): it has no column {', '.join(missing)}"
        )
    for row in rows:
        try:
            row["value"] = int(row["value"])
            for column in _TIMES:
                row[column] = float(row[column]) if row[column] else ""
        except ValueError as error:
            raise ValueError(f"{path} has a row that is not of numbers: {error}") from error
    return rows
