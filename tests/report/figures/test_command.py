"""``ringconv figures``: every figure by its name, from real runs."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from ringconv import cli, create_model
from ringconv.models.checkpoint import save_model
from ringconv.report.figures import catalogue, requests
from ringconv.report.figures.catalogue import DRAWINGS, draw
from ringconv.report.figures.networks import read_networks
from ringconv.report.figures.requests import Request

BENCH = sorted((Path(__file__).parents[3] / "benchmarks" / "results").glob("speed-*.csv"))[-1]


def paths_for(name, runs):
    single = {"sigma", "kernels", "kernel", "two-steps"}
    if name == "speed":
        return (BENCH,)
    if name in single:
        return (runs.ring,)
    return (runs.ring, runs.turned) if name == "augmentation" else (runs.ring, runs.plain)


SCORE, PIXELS, ERROR = (
    "accuracy over all angles (%)",
    "distance r from the centre (pixels)",
    "equivariance error (relative)",
)
SAYS = {
    "radar": ("marks: accuracy (%)", "90°"),
    "lines": ("accuracy (%)", "the test images are turned by (degrees)"),
    "boxes": ("accuracy (%), over 36 angles",),
    "parameters": (SCORE, "parameters"),
    "bubbles": (SCORE, "kept for the backward pass (MB per image)"),
    "speed": ("kernel width k (pixels)", "time (ms)"),
    "kernel": ("distance r from the centre (pixels)", "$G_i(r)$", "$K(r)$", "5 x 5 pixels"),
    "two-steps": ("with each of\n3 rings $G_i$", "input $x$\n2 channels"),
    "kernels": ("stages.3\n3x3",),
    "correlations": ("cosine between two kernels", "kernel"),
    "clusters": ("300°",),
    "features": ("330°", "0%"),
    "training": (SCORE, "epoch"),
    "sigma": (r"$\sigma$ (pixels)", "epoch"),
    "augmentation": (SCORE, "training images turned by up to (degrees)", "±30"),
    "error-angle": (ERROR, "the image is turned by (degrees)"),
    "error-depth": (ERROR, "layer, from the image to the answer"),
    "changes": ("other answers\nthan upright (%)", "the images are turned by (degrees)"),
}
"""What stands on the axes of each figure, with its units."""


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_figure_is_drawn_and_can_be_read(name, runs, drawn):
    options = {"images": 6} if "images" in DRAWINGS[name].options else {}
    texts = drawn(draw(name, Request(paths_for(name, runs), **options)))
    assert set(SAYS[name]) <= set(texts)


def test_without_a_name_the_figures_are_listed(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["figures"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in DRAWINGS:
        assert any(line.startswith(f"{name} ") for line in lines)


def test_a_figure_is_written_and_its_place_is_told(runs, tmp_path, capsys):
    out = tmp_path / "pictures"
    given = ["figures", "lines", str(runs.ring), str(runs.plain), "--names", "ours", "theirs", "--out", str(out)]
    assert cli.main(given) == 0
    assert sorted(path.name for path in out.iterdir()) == ["lines.png", "lines.svg"]
    said = capsys.readouterr().out
    assert f"Written: {out / 'lines.svg'}" in said
    assert f"Written: {out / 'lines.png'}" in said
    assert matplotlib.image.imread(out / "lines.png").shape[1] == 1020, "a column at 300 dots per inch"


def test_options_may_stand_before_the_paths(runs, tmp_path):
    given = ["figures", "--formats", "png", "--out", str(tmp_path), "boxes", str(runs.ring)]
    assert cli.main(given) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["boxes.png"]


def test_all_draws_what_can_be_drawn(runs, tmp_path, monkeypatch, capsys):
    some = ("radar", "speed", "kernels", "augmentation", "sigma")
    monkeypatch.setattr(catalogue, "DRAWINGS", {name: DRAWINGS[name] for name in some})
    given = ["figures", "all", str(runs.ring), str(runs.plain), "--out", str(tmp_path)]
    assert cli.main([*given, "--formats", "png"]) == 0
    names = {path.stem for path in tmp_path.iterdir()}
    assert names == {"radar", "sigma-ring", "kernels-ring", "kernels-plain"}
    said = capsys.readouterr().out
    assert "Not drawn: sigma-plain: " in said
    assert "Not drawn: augmentation: " in said
    assert "speed" not in said


def test_the_checkpoint_of_a_run_does_as_well_as_its_folder(runs, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(requests.features, "feature_maps", lambda image, maps: shown.append(image) or Figure())
    given = ["figures", "features", str(runs.ring / "model.safetensors"), "--data", str(runs.data), "--image", "5"]
    assert cli.main([*given, "--out", str(tmp_path), "--formats", "png"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["features.png"]
    assert (shown[0] * 255).round().tolist() == [np.load(runs.data)["test_images"][5].tolist()]


def test_figures_of_networks_of_one_name_have_names_of_their_own(runs, monkeypatch):
    monkeypatch.setattr(catalogue, "DRAWINGS", {"kernels": DRAWINGS["kernels"]})
    ring, plain = runs.ring / "model.safetensors", runs.plain / "model.safetensors"
    found = [name for name, _ in catalogue.draw_all(Request((ring, plain, ring)))]
    assert found == ["kernels-ring", "kernels-plain", "kernels-ring-2"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("gmr_r3d_9", {"width": 2}), ("gmr_resnet18", {"dimensions": 1, "width": 2})],
)
def test_noise_for_networks_of_any_dimensions(name, options, tmp_path):
    path = save_model(tmp_path / "net.safetensors", create_model(name, **options))
    ((trained, x),) = requests._inputs(read_networks([path]), Request((path,), images=1))
    with torch.no_grad():
        assert trained.network(x).shape == (1, 10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["rader"], "there is no figure 'rader'; did you mean 'radar'?"),
        (["fig:radar3"], "did you mean 'radar' or 'boxes'?"),
        (["radar"], "radar is drawn from runs: give their paths"),
        (["radar", "nowhere"], "there is no folder or file nowhere"),
        (["radar", "nowhere", "--layer", "stem"], "radar takes --names, not --layer"),
        (["sigma", ".", "--images", "3"], "sigma takes no option, not --images"),
        (["speed", "nowhere.csv"], "there is no file nowhere.csv"),
        (["kernel", "--layer", "stem.conv"], "give a run or a checkpoint"),
        (["radar", ".", "--out", __file__], "is a file"),
    ],
)
def test_what_cannot_be_drawn_is_explained(given, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["figures", *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "impossible"),
    [
        ("pictures", {"training", "augmentation"}),
        ("masks", {"training", "augmentation", "clusters", "changes"}),
        ("volumes", {"training", "augmentation", "clusters", "changes", "features"}),
    ],
)
def test_figures_of_every_kind_of_data(kind, impossible, small_runs, drawn):
    folders = tuple(sorted(path for path in small_runs(kind).iterdir() if path.is_dir()))
    found = dict(catalogue.draw_all(Request(folders)))
    missing = {title for title, figure in found.items() if isinstance(figure, str)}
    assert {title for title in missing if title in DRAWINGS} == impossible
    assert all("gmr" not in title for title in missing - impossible) or kind == "volumes"
    for figure in found.values():
        if not isinstance(figure, str):
            drawn(figure)
