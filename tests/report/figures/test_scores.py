"""Scores against angles and costs: what is read, how it is called, and what is drawn."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ringconv.report import write_comparison
from ringconv.report.figures import (
    accuracy_against_parameters,
    boxes,
    bubbles,
    curves_of,
    lines,
    partial_augmentation,
    radar,
    read_tests,
)
from ringconv.report.figures.cost import short, training_megabytes, with_memory, without_widths
from ringconv.report.figures.labels import run_labels, same_but_for_the_seed
from ringconv.report.figures.sources import Curve, Outcome
from ringconv.training import CompareSettings, Comparison, ModelResult, read_run

ANGLES = tuple(range(0, 360, 10))


def a_curve(label, low=70.0, data="marks", seeds=1, metric="accuracy", angles=ANGLES):
    wave = low + 5 + 5 * np.cos(np.radians(angles))
    return Curve(label, data, metric, tuple(map(float, angles)), np.stack([wave + seed for seed in range(seeds)]))


def a_test(label, score=80.0, run=None, **more):
    return Outcome(label, "marks", "accuracy", {"0": score, "90": score}, label, run=run, **more)


# -- reading


def test_a_run_gives_its_score_at_every_angle(runs):
    (test,) = read_tests([runs.ring])
    stored = json.loads((runs.ring / "results.json").read_text())["evaluation"]["scores"]["accuracy"]
    assert test.per_turn == stored["per_turn"]
    assert test.rotated == pytest.approx(stored["rotated_mean"])
    assert (test.label, test.data, test.metric) == ("gmr_resnet18", "marks", "accuracy")
    assert test.parameters == read_run(runs.ring).parameters
    (found,) = curves_of([test])
    assert found.angles == ANGLES
    assert found.values.shape == (1, 36)
    assert found.mean[9] == stored["per_turn"]["90"]


def test_a_folder_of_runs_gives_all_of_them(runs):
    labels = [test.label for test in read_tests([runs.ring.parent])]
    assert labels == ["gmr_resnet18, epochs 2", "resnet18", "gmr_resnet18, epochs 1, turned by up to 30°"]


def test_runs_of_other_seeds_share_a_curve(runs):
    (test,) = read_tests([runs.ring])
    run = test.run
    again = replace(run, settings=replace(run.settings, seed=1))
    assert run_labels([run, again]) == ["gmr_resnet18", "gmr_resnet18"]
    better = {turn: score + 1 for turn, score in test.per_turn.items()}
    (found,) = curves_of([test, replace(test, per_turn=better)])
    assert found.values.shape == (2, 36)
    assert found.mean == pytest.approx(np.array(list(test.per_turn.values())) + 0.5)


def test_labels_say_what_was_done_otherwise(runs):
    run = read_run(runs.ring)

    def otherwise(**changes):
        return replace(run, folder=run.folder.with_name("other"), settings=replace(run.settings, **changes))

    assert run_labels([run, otherwise(translation=0.1)]) == ["gmr_resnet18", "gmr_resnet18, translation 0.1"]
    wider = otherwise(model_options={**run.settings.model_options, "width": 8})
    assert run_labels([run, wider]) == ["gmr_resnet18, width 2", "gmr_resnet18, width 8"]
    assert run_labels([run, otherwise(reflection=True)])[1] == "gmr_resnet18, reflection"
    few, many = (otherwise(data_options={"per_class": count, "root": "/data"}, seed=count) for count in (10, 50))
    assert run_labels([few, many]) == ["gmr_resnet18, per class 10", "gmr_resnet18, per class 50"]
    assert same_but_for_the_seed(few) != same_but_for_the_seed(many)
    elsewhere = otherwise(data_options={"root": "/data", "cache": False, "faults": "skip"})
    assert run_labels([run, elsewhere]) == ["gmr_resnet18"] * 2
    assert same_but_for_the_seed(run) == same_but_for_the_seed(elsewhere)
    assert run_labels([run, otherwise(rotated_every=7)]) == ["gmr_resnet18"] * 2, "it is the same training"


def test_a_comparison_and_an_evaluation_are_read(tmp_path, runs):
    per_angle = dict.fromkeys(ANGLES, 80.0) | {0: 90.0}
    models = [
        ModelResult(kind, 1_000, 1.0, per_angle, {"horizontal": 1.0, "vertical": 2.0}) for kind in ("plain", "ring")
    ]
    folder = write_comparison(Comparison(CompareSettings(), *models), tmp_path)
    tests = read_tests([folder])
    assert [(test.label, test.data, test.parameters) for test in tests] == [
        ("plain network", "textures", 1_000),
        ("ring network", "textures", 1_000),
    ]
    assert read_tests([tmp_path]) == tests, "also below a folder"

    evaluation = json.loads((runs.plain / "results.json").read_text())["evaluation"]
    path = tmp_path / "net.evaluation.json"
    path.write_text(json.dumps({"checkpoint": "models/net.safetensors"} | evaluation))
    (test,) = read_tests([path])
    assert test.label == "net"
    assert test.changed is not None
    assert test.rotated == pytest.approx(evaluation["scores"]["accuracy"]["rotated_mean"])


def test_volumes_are_averaged_over_their_axes():
    test = Outcome("net", "grains", "accuracy", {"x 0": 90.0, "x 30": 60.0, "y 0": 80.0, "y 30": 50.0}, "net")
    (found,) = curves_of([test])
    assert found.angles == (0.0, 30.0)
    assert found.mean.tolist() == [85.0, 55.0]


def test_what_is_missing_is_explained(tmp_path, runs):
    run = read_run(runs.ring)
    config = (runs.ring / "config.json").read_text()
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text(config)
    with pytest.raises(ValueError, match=r"unfinished is stopped, not finished \(to go on: ringconv train --resume"):
        read_tests([unfinished])
    with pytest.raises(ValueError, match=r"there is no tested run in .* is stopped"):
        read_tests([tmp_path])
    (unfinished / "results.json").write_text(json.dumps({**run.results, "evaluation": None}))
    with pytest.raises(ValueError, match="was not tested: train without --no-final-test, or give the file of ringconv"):
        read_tests([unfinished])
    wrong = tmp_path / "wrong.json"
    for content in ("{}", "[1]", "no JSON", '{"scores": 1}', '{"scores": 1, "data": ""}', '{"scores": {}, "data": ""}'):
        wrong.write_text(content)
        with pytest.raises(ValueError, match=r"wrong(\.json)? is not"):
            read_tests([wrong])
    (tmp_path / "results.json").write_text('{"models": 3}')
    with pytest.raises(ValueError, match=r"is neither the folder of a run .* nor of ringconv compare"):
        read_tests([tmp_path])
    with pytest.raises(ValueError, match="names must be one for each of 'gmr_resnet18', got 2"):
        read_tests([runs.ring], ["a", "b"])
    with pytest.raises(ValueError, match="give folders of runs"):
        read_tests([])


# -- radar, lines, boxes


@pytest.mark.parametrize("draw", [radar, lines])
def test_a_line_for_every_network_closed_at_a_full_turn(draw, drawn):
    figure = draw([a_curve("plain", 60), a_curve("ring", 85)])
    (axes,) = figure.axes
    assert len(axes.get_lines()) == 2
    for line in axes.get_lines():
        x, y = line.get_data()
        assert len(x) == 37
        assert y[0] == y[-1]
    assert axes.get_ylim()[0] <= 60
    assert axes.get_ylim()[1] >= 95
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "ring"]
    assert any("accuracy (%)" in text for text in drawn(figure))
    if draw is lines:
        assert axes.get_xlabel() == "the test images are turned by (degrees)"
    else:
        assert axes.get_theta_offset() == pytest.approx(np.pi / 2)


@pytest.mark.parametrize("draw", [radar, lines, boxes])
def test_a_panel_for_every_data_set(draw, drawn):
    data_sets = 5
    names = ["R18", "ORN-R18", "G-R18", "H-R18", "E(2)-WRN16", "RIC-R18", "Symm-R18", "GMR-R18"]
    curves = [
        a_curve(name, 40 + 4 * place, f"set {number}")
        for number in range(data_sets)
        for place, name in enumerate(names)
    ]
    figure = draw(curves)
    texts = drawn(figure)
    visible = [axes for axes in figure.axes if axes.get_visible()]
    assert len(visible) == data_sets
    assert sum(f"set {data_sets - 1}" in text for text in texts) == 1
    first, second = visible[0], visible[1]
    assert [line.get_color() for line in first.get_lines()] == [line.get_color() for line in second.get_lines()]


def test_seeds_make_a_band():
    (axes,) = lines([a_curve("ring", seeds=3)]).axes
    assert len(axes.collections) == 1
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(70)
    assert band.max() == pytest.approx(82)


def test_boxes_show_quartiles_median_and_outliers(drawn):
    values = np.array([[50.0, 60.0, 70.0, 80.0, 90.0, 90.0, 90.0, 10.0]])
    figure = boxes([Curve("net", "marks", "dice", tuple(range(0, 360, 45)), values)])
    drawn(figure)
    (axes,) = figure.axes
    low, high = np.percentile(values, (25, 75))
    (box,) = axes.patches
    assert (box.get_x(), box.get_x() + box.get_width()) == pytest.approx((low, high))
    assert axes.get_xlabel() == "dice (%), over 8 angles"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["net"]


def test_boxes_of_networks_with_long_names(drawn):
    names = [f"gmr_resnet18, kernel size [9, 9, 5, 5], sampling area, rings {number} of them" for number in range(5)]
    curves = [a_curve(name) for name in names]
    few = replace(curves[1], angles=curves[1].angles[::9], values=curves[1].values[:, ::9])
    figure = boxes([curves[0], few, *curves[2:]])
    drawn(figure)
    assert figure.axes[0].get_xlabel() == "accuracy (%), over 4 or 36 angles"


@pytest.mark.parametrize("draw", [radar, lines, boxes])
def test_odd_curves_are_drawn(draw, drawn):
    missing = replace(a_curve("gaps"), values=np.full((1, 36), np.nan))
    drawn(draw([missing]))
    drawn(draw([a_curve("all right", 90)]))
    drawn(draw([Curve("one angle", "marks", "accuracy", (0.0,), np.array([[100.0]]))]))
    drawn(draw([a_curve("a network whose name is rather longer than anybody would wish it to be, but so it is")]))
    with pytest.raises(ValueError, match="no curve"):
        draw([])


# -- costs


def test_parameters_are_joined_by_label(drawn):
    counts = (252_733, 64_197, 3_996_685, 1_003_053)
    tests = [a_test("ring", 70 + place, parameters=count) for place, count in enumerate(counts)]
    tests.append(a_test("plain", 60.0, parameters=11_177_034))
    figure = accuracy_against_parameters(tests)
    drawn(figure)
    (axes,) = figure.axes
    ring, plain = axes.get_lines()
    assert ring.get_xdata().tolist() == [64_197, 252_733, 1_003_053, 3_996_685]
    assert ring.get_ydata().tolist() == [71, 70, 73, 72]
    assert plain.get_xdata().tolist() == [11_177_034]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "parameters"
    assert axes.get_ylabel() == "accuracy over all angles (%)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ring", "plain"]


def test_runs_of_all_widths_share_a_line_and_others_do_not(runs):
    run = read_run(runs.ring)
    wide = replace(run.settings, model_options={**run.settings.model_options, "width": 8})
    tests = [
        a_test("x", run=one)
        for one in (run, replace(run, settings=wide), replace(run, settings=replace(wide, rotation=90.0)))
    ]
    assert [test.label for test in without_widths(tests)] == [
        "gmr_resnet18", "gmr_resnet18", "gmr_resnet18, turned by up to 90°"
    ]  # fmt: skip


def test_equal_parameters_are_averaged(drawn):
    figure = accuracy_against_parameters([a_test("a", score, parameters=1_000) for score in (70.0, 80.0)])
    drawn(figure)
    assert figure.axes[0].get_lines()[0].get_ydata().tolist() == [75.0]


def test_bubbles_have_the_area_of_their_parameters(drawn):
    figure = bubbles(
        [
            a_test("large", 60.0, parameters=4_000_000, megabytes=10.0),
            a_test("small", 90.0, parameters=1_000_000, megabytes=30.0),
        ]
    )
    texts = drawn(figure)
    (axes,) = figure.axes
    large, small = axes.collections
    assert large.get_sizes()[0] == pytest.approx(4 * small.get_sizes()[0])
    assert large.get_offsets().tolist() == [[10.0, 60.0]]
    assert "1: large (4.0M)" in texts
    assert "MB per image" in axes.get_xlabel()
    with pytest.raises(ValueError, match="parameters"):
        bubbles([a_test("unknown")])


def test_memory_is_measured_on_the_run(runs):
    ring, plain = with_memory(read_tests([runs.ring, runs.plain]))
    assert 0 < ring.megabytes < 5
    assert ring.megabytes != plain.megabytes
    with pytest.raises(ValueError, match="the memory is known of runs of ringconv train and ringconv budget only"):
        with_memory([a_test("unknown")])


def test_memory_counts_what_is_kept():
    from torch import nn

    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)).eval()
    # The image, and the activation's output once: torch keeps it for both layers that need it.
    assert training_megabytes(network, 3, (16, 16)) == pytest.approx(4 * (3 + 8) * 16 * 16 / 1e6)
    assert not network.training


@pytest.mark.parametrize(
    ("count", "expected"), [(64_197, "64k"), (3_996_685, "4.0M"), (11_177_034, "11M"), (500, "500"), (1_500, "1.5k")]
)
def test_counts_are_short(count, expected):
    assert short(count) == expected


def test_partial_augmentation(runs, drawn):
    run = read_run(runs.ring)
    plain = read_run(runs.plain)

    def turned(run, angle, score):
        return a_test("x", score, replace(run, settings=replace(run.settings, rotation=angle)))

    tests = [turned(run, 180.0, 90.0), turned(run, 0.0, 70.0), turned(run, 15.0, 80.0), turned(plain, 0.0, 50.0)]
    figure = partial_augmentation(tests)
    drawn(figure)
    (axes,) = figure.axes
    ring, other = axes.get_lines()
    assert ring.get_ydata().tolist() == [70.0, 80.0, 90.0]
    assert other.get_xdata().tolist() == [0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["±0", "±15", "±180"]
    with pytest.raises(ValueError, match="train some with another --rotation"):
        partial_augmentation(tests[1:2])
    with pytest.raises(ValueError, match="one data set"):
        partial_augmentation([*tests, replace(tests[0], data="other")])
