"""``ringconv scaling``."""

from __future__ import annotations

from pathlib import Path

from ringconv._extras import needs
from ringconv.benchmark.scaling import fit_cpu, scaling_page
from ringconv.commands._terminal import UsageError, terminal, usage_errors
from ringconv.ops.choice import MEASURED


def scaling(
    results: Path = Path("benchmarks/results"),
    table: Path = MEASURED,
    out: Path = Path("docs/scaling.md"),
    time_compile: bool = False,
) -> None:
    """Fit the cost model to measurements, say how well it predicts, and write the page on scaling.

    The constants are fitted to the grid of layers that method="auto" decides by, and judged on the suites of
    ``ringconv bench`` that are in RESULTS. The page has predictions for GPUs, which were not measured.

    Args:
        results: Folder of the benchmark's CSV files; all suites in it are used.
        table: CSV file of ``ringconv methods``.
        out: File to write, in markdown.
        time_compile: First time torch.compile on two networks, which takes minutes, and leave a CSV file in RESULTS.
    """
    console = terminal()
    if time_compile:
        from ringconv.benchmark.compiled import time_compiled

        console.print(f"Written: {time_compiled(results)}", soft_wrap=True)
    with usage_errors():
        fitted = fit_cpu(results, table)
        overall = fitted.overall()
        if overall is None:
            raise UsageError(f"there is no suite of layers in {results}; `ringconv bench` makes one")
        page = scaling_page(fitted, results)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page)
    shown = needs("rich.table", "bench").Table(title="errors of the cost model, where it was not fitted")
    for heading in ("timings", "number", "median error", "within 25%"):
        shown.add_column(heading, justify="left" if heading == "timings" else "right")
    for name, found in (fitted.by_suite() | fitted.by_method()).items():
        shown.add_row(name, str(found.number), f"{found.median:.1%}", f"{found.within_quarter:.0%}")
    console.print(shown)
    console.print(f"median relative error: {overall.median:.1%} of {overall.number} timings")
    console.print(f"Written: {out}", soft_wrap=True)
