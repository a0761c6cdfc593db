"""``ringconv table``."""

from __future__ import annotations

from pathlib import Path

from ringconv._extras import needs
from ringconv.commands._terminal import terminal, usage_errors
from ringconv.recipes import LABELS, Scale, fill_table, rendering
from ringconv.training import list_runs


def table(
    label: str,
    /,
    *,
    runs: Path = Path("runs"),
    scale: Scale | None = None,
    markdown: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Fill a table of the paper from runs.

    Every row shows our figures above the paper's. A run counts for every row that asks for the same training, also in
    another table. Rows without a run are shown as missing; runs at a smaller scale, or with other settings than the
    recipe's, are marked. Several seeds are averaged.

    The main table: ringconv table tab:main --runs runs

    Args:
        label: LaTeX label of a table or curve, such as tab:main or fig:param; `ringconv recipes` shows them all.
        runs: Folder with the runs' folders, at any depth.
        scale: Take runs of this scale only; default: the largest that a row has runs of.
        markdown: Also write the table to this file, as markdown.
        csv: Also write it to this file, one line per figure.
    """
    with usage_errors():
        if not runs.is_dir():
            raise NotADirectoryError(f"there is no folder {runs} with runs")
        filled = fill_table(label, list_runs(runs), scale)
        for path, text in ((markdown, rendering.markdown(filled)), (csv, rendering.comma_separated(filled))):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    console = terminal()
    console.print(f"{label}: {LABELS[label][0]}", soft_wrap=True)
    for part in rendering.text_tables(filled):
        shown = needs("rich.table", "compare").Table(
            title=part.title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
        for column, name in enumerate(part.headings):
            shown.add_column(name, justify="left" if column < 2 else "right", no_wrap=True)
        for cells in part.rows:
            shown.add_row(*cells, style="dim" if cells[1] == "paper" else None)
        console.print(shown)
    for remark in rendering.remarks(filled):
        console.print(remark)
    for path in (markdown, csv):
        if path is not None:
            console.print(f"Written: {path}", soft_wrap=True)
