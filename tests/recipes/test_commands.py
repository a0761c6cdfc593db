from pathlib import Path

import pytest

from ringconv.commands._terminal import UsageError
from ringconv.commands.recipes import recipes
from ringconv.commands.table import table
from ringconv.recipes import LABELS, all_recipes

pytest.importorskip("rich")


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_all_recipes_are_listed_with_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    recipes()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split()[0]: line.split()[1:] for line in lines if line.partition(" ")[0] in all_recipes()}
    assert shown.keys() == all_recipes().keys()
    assert shown["tab:main/nct_crc/e2_order0_wrn16"] == ["2.9M", "19.7G", "89.7", "88.3", "89.5"]
    assert shown["fig:param/gmr_resnet18_width8"] == ["-", "-"]
    assert shown["tab:fuhl/ring_resnet34"] == ["79.96", "75.79"]


def test_one_recipe_is_shown_with_all_there_is_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    recipes("tab:main/nwpu10/gmr_resnet18")
    said = " ".join(capsys.readouterr().out.split())
    assert "The paper: params 3.9M, memory 6.2G, upright 97.2, rotated 97.1, mirrored 97.2" in said
    assert "250 epochs in batches of 128, sgd at 0.02" in said
    assert "At scale cpu: test_images: 1,000 instead of all epochs: 25 instead of 250" in said
    assert "--augmentation release" in said
    recipes("tab:fuhl/ring_resnet34")
    assert "Not built here: quoted by the paper" in capsys.readouterr().out


def test_a_figure_leads_to_the_runs_that_it_is_drawn_from(capsys: pytest.CaptureFixture[str]) -> None:
    recipes("fig:cifar_abla")
    said = capsys.readouterr().out
    assert "fig:cifar_abla is drawn from the runs of tab:ablation1." in said
    assert "12 recipes." in said


def test_no_match_names_the_labels() -> None:
    with pytest.raises(UsageError, match="no recipe matches 'tab:mian'; the labels are tab:main, "):
        recipes("tab:mian")


@pytest.mark.parametrize("label", LABELS)
def test_tables_fit_the_terminal(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    table(label, runs=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert not any("…" in line for line in lines)
    assert sum("paper" in line.split() for line in lines) >= sum(
        recipe.label == label for recipe in all_recipes().values()
    )


def test_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, figures = tmp_path / "new" / "table.md", tmp_path / "new" / "table.csv"
    table("tab:seg", runs=tmp_path, markdown=page, csv=figures)
    assert "| U-Net | missing |" in page.read_text("utf-8")
    assert figures.read_text("utf-8").startswith("recipe,row,measure,paper,ours,")
    assert f"Written: {page}" in capsys.readouterr().out.replace("\n", "")


def test_a_folder_that_is_not_there_is_answered(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere with runs"):
        table("tab:main", runs=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="nothing to fill for 'main'"):
        table("main", runs=tmp_path)
