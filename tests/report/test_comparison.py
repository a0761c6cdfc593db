"""What a reader sees of a comparison: table, sentence, picture and files."""

import csv
import io
import json
import time

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from ringconv.report import check_out, comparison_table, in_a_line, run_folder, write_comparison
from ringconv.training import CompareSettings, Comparison, ModelResult

ANGLES = range(0, 360, 10)


def model(kind, upright, turned, parameters=1_000):
    per_angle = dict.fromkeys(ANGLES, turned) | {0: upright}
    return ModelResult(kind, parameters, 1.5, per_angle, {"horizontal": upright, "vertical": turned})


def comparison(plain=(90.0, 60.0), ring=(88.0, 87.0), **options):
    return Comparison(CompareSettings(), model("plain", *plain, **options), model("ring", *ring, **options))


def test_table_fits_80_columns_with_the_longest_figures():
    widest = comparison(plain=(100.0, 99.99), ring=(100.0, 100.0), parameters=99_999_999)
    console = Console(file=io.StringIO(), width=200)
    console.print(comparison_table(widest))
    lines = console.file.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert sum("99,999,999" in line for line in lines) == 2


def test_table_shows_the_figures():
    console = Console(file=io.StringIO(), width=80)
    console.print(comparison_table(comparison()))
    (plain,) = [line for line in console.file.getvalue().splitlines() if "plain" in line]
    cells = [cell.strip() for cell in plain.strip("│").split("│")]
    # One angle of 36 at 90, the others at 60: mean 60 + 30/36, std 30 sqrt(35)/36.
    assert cells == ["plain", "1,000", "90.0", "60.8", "4.93", "60.0 (10°)", "75.0"]


@pytest.mark.parametrize(
    ("plain", "ring", "expected"),
    [
        ((90, 60), (90.5, 86), "25.3 points more often on rotated patches (86.1% against 60.8%) and about as often"),
        ((90, 60), (85, 80), "points more often on rotated patches (80.1% against 60.8%) and 5.0 points less often"),
        ((90, 80), (91, 80.5), "about as often on rotated patches (80.8% against 80.3%) and 1.0 points more often"),
        ((90, 80), (70, 70), "less often on rotated patches (70.0% against 80.3%) and 20.0 points less often"),
    ],
)
def test_sentence_says_what_the_figures_say(plain, ring, expected):
    sentence = in_a_line(comparison(plain, ring))
    assert expected in sentence
    assert ("does not pay off" in sentence) == (ring[1] < plain[1])


def test_run_folder_holds_everything(tmp_path):
    given = comparison()
    folder = write_comparison(given, tmp_path / "new" / "runs")
    files = ["accuracy.csv", "accuracy.png", "report.html", "results.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert list(folder.parent.iterdir()) == [folder]

    results = json.loads((folder / "results.json").read_text())
    assert sorted(results) == ["classes", "models", "settings", "versions"]
    assert results["settings"] == {"epochs": 20, "seed": 0, "train_patches": 150, "test_patches": 100}
    assert sorted(results["models"]) == ["plain", "ring"]
    for kind, stored in results["models"].items():
        expected = getattr(given, kind)
        assert stored == {
            "parameters": expected.parameters,
            "train_seconds": 1.5,
            "upright": expected.upright,
            "rotated_mean": expected.rotated,
            "rotated_std": expected.std,
            "worst": expected.worst,
            "worst_angle": expected.worst_angle,
            "mirrored_mean": expected.mirrored,
            "per_angle": {str(angle): accuracy for angle, accuracy in expected.per_angle.items()},
            "per_mirror": expected.per_mirror,
        }

    with (folder / "accuracy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["angle"]) for row in rows] == list(ANGLES)
    assert [float(row["plain"]) for row in rows] == [90.0] + [60.0] * 35
    assert [float(row["ring"]) for row in rows] == [88.0] + [87.0] * 35

    picture = matplotlib.image.imread(folder / "accuracy.png")
    assert picture.shape[1] == 1400
    for colour in ("#d55e00", "#0072b2"):
        rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        assert (np.abs(picture[..., :3] - rgb).max(-1) < 0.01).sum() > 500, "both lines are drawn"


def test_runs_of_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "save_accuracy_picture", lambda comparison, path: path.touch())
    monkeypatch.setattr(time, "strftime", lambda form: "compare-now")
    names = [write_comparison(comparison(), tmp_path).name for _ in range(3)]
    assert names == ["compare-now", "compare-now-2", "compare-now-3"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_half_written_remains(tmp_path, monkeypatch, error):
    def stop(comparison, path):
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(run_folder, "save_accuracy_picture", stop)
    with pytest.raises(error):
        write_comparison(comparison(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_out_must_be_a_folder_or_a_new_one(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "runs"):
        with pytest.raises(NotADirectoryError, match="file is a file"):
            check_out(out)
    check_out(tmp_path)
    check_out(tmp_path / "new" / "runs")
    assert list(tmp_path.iterdir()) == [file]
