"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_rows(rows: Sequence[Sequence[str]]) -> str:
    """A line for each row; the second one must say how the columns are aligned."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
