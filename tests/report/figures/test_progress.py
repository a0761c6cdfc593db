"""What happened during training, and time against what varies."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ringconv.report.figures import ring_widths, rotated_during_training, time_against_kernel_width
from ringconv.report.figures.progress import read_runs
from ringconv.report.figures.speed import read_rows
from ringconv.training import read_run

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def test_turned_accuracy_during_training(runs):
    figure = rotated_during_training([read_run(runs.ring), read_run(runs.plain)])
    (axes,) = figure.axes
    for line, folder in zip(axes.get_lines(), (runs.ring, runs.plain), strict=True):
        logged = [entry["accuracy_rotated"] for entry in read_run(folder).log("rotated")]
        assert line.get_xdata().tolist() == [1, 2]
        assert line.get_ydata().tolist() == logged
    assert axes.get_xlabel() == "epoch"
    assert axes.get_ylabel() == "accuracy over all angles (%)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["gmr_resnet18", "resnet18"]


def test_a_run_without_tests_during_training_says_how_to_get_them(runs):
    with pytest.raises(ValueError, match="to record one every N epochs, train with --rotated-every N"):
        rotated_during_training([read_run(runs.turned)])
    with pytest.raises(ValueError, match="names must be one for each of 1 runs, got 2"):
        rotated_during_training([read_run(runs.ring)], ["a", "b"])


def test_an_unfinished_run_is_drawn_as_far_as_it_is(runs, tmp_path, drawn):
    (tmp_path / "config.json").write_text((runs.ring / "config.json").read_text())
    logged = (runs.ring / "metrics.jsonl").read_text().splitlines()
    first = [line for line in logged if json.loads(line)["epoch"] == 1]
    (tmp_path / "metrics.jsonl").write_text("\n".join(first) + '\n{"kind": "rotated", "cut')
    (run,) = read_runs([tmp_path])
    figure = rotated_during_training([run])
    drawn(figure)
    assert figure.axes[0].get_lines()[0].get_xdata().tolist() == [1]


def test_widths_of_every_layer(runs):
    run = read_run(runs.ring)
    figure = ring_widths(run)
    entries = run.log("sigma")
    layers = [name for name in entries[0] if name not in ("kind", "step", "epoch")]
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == layers
    for axes, layer in zip(panels, layers, strict=True):
        assert len(axes.get_lines()) == len(entries[0][layer])
        for ring, line in enumerate(axes.get_lines()):
            assert line.get_ydata().tolist() == [entry[layer][ring] for entry in entries]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ring 1", "ring 2", "ring 3"]


def test_a_run_without_widths_is_explained(runs, tmp_path):
    with pytest.raises(ValueError, match=r'no layer whose rings have a width .* sigma="layer"'):
        ring_widths(read_run(runs.plain))
    with pytest.raises(ValueError, match="has not finished an epoch yet"):
        ring_widths(replace(read_run(runs.ring), folder=tmp_path))
    with pytest.raises(ValueError, match="is not the folder of a run, and has none below it"):
        read_runs([tmp_path])
    with pytest.raises(ValueError, match="give folders of runs"):
        read_runs([])


@pytest.mark.parametrize("suite", ["speed", "kernel", "rings"])
def test_time_against_what_varies(suite, drawn):
    path = sorted(RESULTS.glob(f"{suite}-*.csv"))[-1]
    figure = time_against_kernel_width(path)
    drawn(figure)
    inference = figure.axes[0]
    assert [axes.get_title() for axes in figure.axes] == ["inference", "training"][: len(figure.axes)]
    assert inference.get_yscale() == "log"
    assert inference.get_ylabel() == "time (ms)"
    assert inference.get_xlabel() == ("rings n" if suite == "rings" else "kernel width k (pixels)")
    rows = [row for row in read_rows(path) if row["mode"] == "inference" and row["peer"] == "auto"]
    line = next(line for line in inference.get_lines() if list(line.get_ydata()) == [row["median_ms"] for row in rows])
    assert list(line.get_xdata()) == [row["value"] for row in rows]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.csv"
    for content in ("", "a,b\n1,2\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"other\.csv is not a file of ringconv bench"):
            time_against_kernel_width(path)
    with pytest.raises(ValueError, match="it has no column variable, value"):
        time_against_kernel_width(sorted(RESULTS.glob("models-*.csv"))[-1])
    with pytest.raises(FileNotFoundError, match="ringconv bench writes such files"):
        time_against_kernel_width(tmp_path / "nowhere.csv")


def test_what_could_not_be_timed_is_left_out(tmp_path, drawn):
    source = sorted(RESULTS.glob("kernel-*.csv"))[-1]
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["peer"] == "torch":
            row.update(median_ms="", p20_ms="", p80_ms="")
    path = tmp_path / "kernel.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    texts = drawn(time_against_kernel_width(path))
    assert "torch" not in texts
    rows[0]["value"] = "three"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(ValueError, match="a row that is not of numbers"):
        time_against_kernel_width(path)
