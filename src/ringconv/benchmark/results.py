"""What a run leaves behind: a CSV file whose every row says where and with what it was measured."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from ringconv._files import written_whole
from ringconv._machine import processor
from ringconv._version import __version__
from ringconv.benchmark.timing import Timing

Row = dict[str, Any]


def machine() -> Row:
    """The columns that state the circumstances, as they are now."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else "",
        "torch": torch.__version__,
        "ringconv": __version__,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def timing_columns(timing: Timing | None) -> Row:
    """Milliseconds; empty for what could not be timed."""
    names = ("median_ms", "p20_ms", "p80_ms", "rounds")
    if timing is None:
        return dict.fromkeys(names, "")
    values = [milliseconds(timing.percentile(percent)) for percent in (50, 20, 80)]
    return dict(zip(names, [*values, len(timing.seconds)], strict=True))


def milliseconds(seconds: float) -> float:
    return float(f"{1e3 * seconds:.5g}")


def results_path(directory: Path, suite: str, when: datetime) -> Path:
    """<directory>/<suite>-<date and time>.csv"""
    return directory / f"{suite}-{when:%Y%m%d-%H%M%S}.csv"


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows, with all columns that any of them has, in place of what is there: all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with written_whole(path) as partial, partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
