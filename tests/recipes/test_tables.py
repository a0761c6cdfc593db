import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ringconv.evaluation.results import Evaluation, EvaluationSettings, Scores
from ringconv.recipes import FilledRow, comma_separated, fill_table, markdown, remarks, resolve, text_tables
from ringconv.training import list_runs
from ringconv.training.runs import RESULTS, new_run
from ringconv.training.settings import TrainSettings

RING = "tab:main/nwpu10/gmr_resnet18"


def leave_run(
    out: Path,
    name: str,
    recipe: str | None,
    settings: TrainSettings,
    upright: float | None = 90.0,
    metrics: tuple[str, ...] = ("accuracy",),
) -> None:
    """What a run leaves; at every other angle it is 10 points worse than upright."""
    folder = new_run(out, settings, name, recipe, {"parameters": 252_733})
    if upright is None:
        return
    turns = {str(angle): upright - (0 if angle % 20 == 0 else 10) for angle in range(0, 360, 10)}
    scores = {metric: Scores(upright, turns, {"vertical": upright, "horizontal": upright - 2}) for metric in metrics}
    found = Evaluation("stand-in", "test", "classify", 10, EvaluationSettings(), scores, None, 1.0)
    (folder / RESULTS).write_text(json.dumps({"train_seconds": 1.0, "evaluation": found.as_dict()}), "utf-8")


def filled(out: Path, label: str, row: str, scale: str | None = None) -> FilledRow:
    (found,) = [one for one in fill_table(label, list_runs(out), scale) if one.recipe.name == f"{label}/{row}"]
    return found


def test_a_run_fills_its_row_and_all_rows_of_the_same_training(tmp_path: Path) -> None:
    leave_run(tmp_path, "a", f"{RING}@paper", resolve(RING))
    main = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert (main.scale, main.changed, len(main.runs)) == ("paper", (), 1)
    assert main.values == pytest.approx(
        {"parameters": 252_733, "upright": 90, "rotated": 85, "rotated_std": 5, "mirrored": 89, "quarter_turns": 85,
         "every_20_degrees": 90}
    )  # fmt: skip
    for label in ("tab:aug", "tab:rot_std"):
        assert filled(tmp_path, label, "nwpu10/gmr_resnet18").values == main.values
    others = [row for row in fill_table("tab:main", list_runs(tmp_path)) if row.recipe.name != RING]
    assert all(row.scale is None and row.values == {} for row in others)


def test_segmentation_has_its_own_measures(tmp_path: Path) -> None:
    name = "tab:seg/gmr_unet"
    leave_run(tmp_path, "a", f"{name}@cpu", resolve(name, "cpu"), 70.0, ("auc", "iou", "dice"))
    values = filled(tmp_path, "tab:seg", "gmr_unet").values
    assert {measure: values[measure] for measure in ("auc", "iou_rotated", "dice")} == {
        "auc": 70, "iou_rotated": pytest.approx(65), "dice": 70
    }  # fmt: skip


def test_the_largest_scale_counts_unless_another_is_asked_for(tmp_path: Path) -> None:
    leave_run(tmp_path, "a", f"{RING}@cpu", resolve(RING, "cpu"), 80.0)
    leave_run(tmp_path, "b", f"{RING}@paper", resolve(RING), 90.0)
    leave_run(tmp_path, "c", f"{RING}@tiny", resolve(RING, "tiny"), 20.0)
    assert filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18").values["upright"] == 90
    assert filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18", "cpu").values["upright"] == 80
    with pytest.raises(ValueError, match="scale must be one of"):
        fill_table("tab:main", [], "huge")


def test_seeds_are_averaged_and_of_one_seed_the_latest_counts(tmp_path: Path) -> None:
    settings = resolve(RING, "cpu")
    for number, (seed, upright) in enumerate([(0, 50.0), (1, 80.0), (0, 90.0)]):
        leave_run(tmp_path, f"run{number}", f"{RING}@cpu", replace(settings, seed=seed), upright)
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert len(row.runs) == 2
    assert row.values["upright"] == 85
    assert text_tables([row])[0].rows[0][1] == "ours@cpu x2"


def test_runs_that_do_not_follow_the_recipe_are_marked_and_come_last(tmp_path: Path) -> None:
    settings = resolve(RING, "cpu")
    other = replace(settings, epochs=3, model_options={**settings.model_options, "width": 8})
    leave_run(tmp_path, "a", f"{RING}@cpu", other, 60.0)
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert row.changed == ("epochs: 3 instead of 25", "width: 8 instead of 16")
    assert text_tables([row])[0].rows[0][1] == "ours@cpu*"
    assert f"* {RING}: epochs: 3 instead of 25; width: 8 instead of 16" in remarks([row])
    leave_run(tmp_path, "b", f"{RING}@cpu", replace(settings, workers=2, data="elsewhere/nwpu10.npz"), 70.0)
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert (row.changed, row.values["upright"]) == ((), 70)


def test_other_data_is_told(tmp_path: Path) -> None:
    leave_run(tmp_path, "a", f"{RING}@cpu", replace(resolve(RING, "cpu"), data="mine/planes.npz"))
    assert filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18").changed == ("data: planes instead of nwpu10",)


def test_options_of_data_are_told_unless_they_only_say_where_it_is(tmp_path: Path) -> None:
    settings = resolve(RING, "cpu")
    for number, per_class in enumerate((10, 50)):
        other = replace(settings, seed=number, data_options={"per_class": per_class})
        leave_run(tmp_path, f"few{number}", f"{RING}@cpu", other)
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert (row.changed, len(row.runs)) == (("per_class: 50 instead of none",), 1)
    elsewhere = {"root": "/data", "layout": "nwpu10", "cache": False, "verify": False, "faults": "skip"}
    leave_run(tmp_path, "a", f"{RING}@cpu", replace(settings, data_options=elsewhere), 70.0)
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert (row.changed, row.values["upright"]) == ((), 70)


def test_a_run_that_does_not_say_its_scale_has_the_nearest(tmp_path: Path) -> None:
    leave_run(tmp_path, "a", RING, replace(resolve(RING, "cpu"), lr=0.1))
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert (row.scale, row.changed) == ("cpu", ("lr: 0.1 instead of 0.02",))


def test_what_is_not_a_finished_run_of_a_recipe_does_not_count(tmp_path: Path) -> None:
    leave_run(tmp_path, "unfinished", f"{RING}@paper", resolve(RING), None)
    leave_run(tmp_path, "no recipe", None, resolve(RING))
    leave_run(tmp_path, "unknown recipe", "tab:main/nwpu10/forgotten@cpu", resolve(RING))
    row = filled(tmp_path, "tab:main", "nwpu10/gmr_resnet18")
    assert (row.runs, row.unfinished) == ((), 1)
    assert text_tables([row])[0].rows[0][1] == "unfinished"


def test_ours_stands_above_the_paper_s_with_as_many_decimals(tmp_path: Path) -> None:
    name = "tab:fuhl/gmr_resnet34"
    leave_run(tmp_path, "a", f"{name}@cpu", resolve(name, "cpu"), 77.123)
    rows = fill_table("tab:fuhl", list_runs(tmp_path))
    (table,) = text_tables(rows)
    assert table.headings == ["row", "from", "4ROT", "ALLROT"]
    assert table.rows[4:] == [
        ["RING 5x5-ResNet34", "not built", "-", "-"],
        ["", "paper", "79.96", "75.79"],
        ["GMR-ResNet34", "ours@cpu", "72.12", "77.12"],
        ["", "paper", "90.36", "77.86"],
    ]
    assert table.rows[0] == ["RAD 3-ResNet34", "missing", "-", "-"]
    said = "\n".join(remarks(rows))
    assert "Runs at scale cpu are smaller than the paper's" in said
    assert "Not built here: RING 5x5-ResNet34 (quoted by the paper" in said
    assert "2 of 4 rows are missing; train one with: ringconv train tab:fuhl/rad_resnet34" in said


def test_markdown_and_csv_hold_the_same_figures(tmp_path: Path) -> None:
    leave_run(tmp_path, "a", f"{RING}@cpu", resolve(RING, "cpu"))
    rows = fill_table("tab:main", list_runs(tmp_path))
    text = markdown(rows)
    assert text.startswith("## tab:main: Main results")
    assert "### nwpu10\n\n| row | from | params | memory | upright | rotated | mirrored |\n| --- | --- | ---: |" in text
    assert (
        "| GMR-R18 | ours@cpu | 0.25M | - | 90.0 | 85.0 | 89.0 |\n|  | paper | 3.9M | 6.2G | 97.2 | 97.1 | 97.2 |"
        in text
    )
    lines = list(csv.DictReader(io.StringIO(comma_separated(rows))))
    assert len(lines) == 9 * 5 * 5
    (line,) = [line for line in lines if line["recipe"] == RING and line["measure"] == "rotated"]
    assert (line["paper"], float(line["ours"]), line["scale"], line["runs"]) == ("97.1", pytest.approx(85), "cpu", "1")
    (line,) = [line for line in lines if line["recipe"] == "tab:main/pcam/resnet18" and line["measure"] == "upright"]
    assert (line["paper"], line["ours"], line["status"]) == ("84.8", "", "missing")


def test_a_label_without_recipes_is_answered() -> None:
    with pytest.raises(ValueError, match="nothing to fill for 'tab:mian'; those with recipes are tab:main, "):
        fill_table("tab:mian", [])
    with pytest.raises(ValueError, match=r"'fig:radar3' \(it is drawn from the runs of tab:main\)"):
        fill_table("fig:radar3", [])
