"""``ringconv report``."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from ringconv.commands._checkpoint import check_file
from ringconv.commands._terminal import progress_bars, terminal, usage_errors
from ringconv.report.html import REPORT, write_report
from ringconv.training.runs import find_runs


def report(
    runs: Positional[tuple[Path, ...]], /, out: Path | None = None, images: int = 6, title: str | None = None
) -> None:
    """Write one HTML file on one or many runs.

    It needs no network and no other file, so it can be sent and kept: what was trained on what, the table, the score at
    every angle, images whose answer changes when they turn, learned kernels, the environment, and how to reproduce it.
    Runs on different data are shown in sections of their own. Runs that are not finished are named.

    A comparison: ringconv report runs/compare-nwpu10-20260101-120000

    Everything there is: ringconv report runs --out all.html

    Args:
        runs: Folders of runs, or folders that have some below them.
        out: File to write; default report.html in the folder, or in this one if several are given.
        images: Turning images to show, over all data sets; 0 for none, which is quicker.
        title: Of the page; default the names of the data sets.
    """
    console = terminal()
    path = out or (runs[0] / REPORT if len(runs) == 1 else Path(REPORT))
    with usage_errors():
        found = find_runs(runs)
        check_file(path)
        with progress_bars(console) as progress:
            write_report(found, path, images=images, title=title, progress=progress)
    console.print(f"Report: {path}", soft_wrap=True)
