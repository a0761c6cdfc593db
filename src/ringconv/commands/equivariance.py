"""``ringconv equivariance``."""

from __future__ import annotations

from pathlib import Path

from ringconv.commands._terminal import terminal, usage_errors
from ringconv.report.equivariance_table import DRAWS, write_equivariance_table


def equivariance(out: Path = Path("docs/equivariance.md"), draws: int = DRAWS, seed: int = 0) -> None:
    """Tabulate how equivariant one layer is between quarter turns.

    Writes a page in markdown: how the error was measured, tables by kernel size, by how the rings are sampled and by
    angle, and what they say.

    Args:
        out: File to write.
        draws: Random weights to pool over.
        seed: Decides the weights.
    """
    with usage_errors():
        path = write_equivariance_table(out, draws, seed)
    terminal().print(f"Written: {path}", soft_wrap=True)
