"""The transcription of the paper's tables."""

import re
from pathlib import Path

import pytest

from ringconv.recipes import DRAWN_FROM, LABELS
from ringconv.recipes.paper import TABLES, PaperTable, Row

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "paper" / "gmr-conv.tex"
WITHOUT_EXPERIMENT = {"fig:build"}
"""Figures that only explain."""

source_is_there = pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's source is not beside the repository")


def printed_rows(label: str) -> list[tuple[str, list[str]]]:
    """(what stands before the figures, the figures) of every row of a table in the LaTeX source."""
    tables = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", SOURCE.read_text("utf-8"), re.S)
    (source,) = [table for table in tables if f"\\label{{{label}}}" in table]
    body = source[source.index("\\begin{tabular}") : source.rindex("\\end{tabular}")]
    rows = []
    for line in body.split("\\\\"):
        cells = [_plain(cell) for cell in line.split("&")]
        figures = [part for cell in cells for part in re.split("±", cell) if re.fullmatch(r"\d+\.\d+[MG]?", part)]
        if figures:
            rows.append((" ".join(cell for cell in cells if not re.match(r"\d+\.\d+", cell)), figures))
    return rows


def _plain(cell: str) -> str:
    for pattern, text in (
        (r"(?<!\\)%.*", ""),
        (r"\\(cite|cellcolor|rowcolor|multirow|specialrule)(\[HTML\])?(\{[^{}]*\})+", ""),
        (r"\\(midrule|bottomrule|toprule|hline)", ""),
        (r"\$\\pm\$", "±"),
        (r"\$\^\*\$", ""),
        (r"\$\\times\$", "x"),
        (r"\$0\^\{th\}\$", "0th"),
        (r'\\"\{i\}', "i"),
        (r"\\convabb", "GMR"),
        (r"\\(textbf|end|ul)(?![a-z])", ""),
        (r"[{}~]", " "),
    ):
        cell = re.sub(pattern, text, cell)
    return re.sub(r"\s*±\s*", "±", " ".join(cell.split()))


@source_is_there
@pytest.mark.parametrize("label", TABLES)
def test_every_figure_is_the_printed_one(label: str) -> None:
    ours = [re.split(r"[\s±]+", row.cells) for row in TABLES[label].rows]
    assert ours == [figures for _, figures in printed_rows(label)]


@source_is_there
@pytest.mark.parametrize("label", sorted(set(TABLES) - {"tab:arch", "tab:ablation1"}))
def test_rows_have_their_printed_names(label: str) -> None:
    printed = [re.sub(r"\\checkmark", "", name).strip() for name, _ in printed_rows(label)]
    assert [row.printed for row in TABLES[label].rows] == printed


@source_is_there
def test_kernel_configurations_are_the_printed_ones() -> None:
    for (name, _), row in zip(printed_rows("tab:ablation1"), TABLES["tab:ablation1"].rows, strict=True):
        numbers = re.search(r"\[[\d, ]+\]", name)
        assert numbers is not None
        assert numbers.group() in row.printed
        assert row.key.endswith(re.sub(r"\W+", "_", numbers.group()).strip("_"))


@source_is_there
def test_kernel_designs_have_their_check_marks() -> None:
    """Columns: circular, hard rings, widths fixed, per layer, per channel."""
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", SOURCE.read_text("utf-8"), re.S)
    (source,) = [table for table in tables if "\\label{tab:arch}" in table]
    lines = [line.split("&") for line in source.split("\\\\") if re.search(r"\d\.\d\dM?", line) and "&" in line]
    for cells, row in zip(lines, TABLES["tab:arch"].rows, strict=True):
        marks = ["checkmark" in cell for cell in cells[:5]]
        shape, width = row.key.split("_")
        assert marks == [shape == "circular", *(width == one for one in ("hard", "fixed", "layer", "channel"))]


@source_is_there
def test_every_table_and_figure_of_the_paper_has_a_place() -> None:
    labels = set(re.findall(r"\\label\{((?:tab|fig):\w+)\}", SOURCE.read_text("utf-8")))
    assert labels == set(LABELS) | set(DRAWN_FROM) | WITHOUT_EXPERIMENT


def test_figures_of_a_row_in_a_group() -> None:
    table = TABLES["tab:rot_std"]
    row = table.rows[-1]
    assert table.figures(row, "nwpu10") == {"rotated": "97.1", "rotated_std": "0.2"}
    main = TABLES["tab:main"]
    assert main.figures(main.rows[1], "cifar10") == {
        "parameters": "11.2M", "memory": "9.8G", "upright": "88.0", "rotated": "38.4", "mirrored": "61.4"
    }  # fmt: skip


def test_a_row_with_a_figure_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="tab:x, a: expected 3 figures, got 2"):
        PaperTable("tab:x", "", (Row("a", "A", "1.0 2.0"),), each=("upright",), groups=("p", "q", "r"))
