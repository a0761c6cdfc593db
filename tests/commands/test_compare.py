"""``ringconv compare --data``: real models, on everything that can be opened, at the scale that takes seconds."""

from pathlib import Path

import numpy as np
import pytest

from ringconv import cli
from ringconv.report.html import sections
from ringconv.training import finish, list_runs

pytest.importorskip("lightning_fabric")


@pytest.fixture(autouse=True)
def _narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    # Drawing takes most of the time, and is tested elsewhere.
    monkeypatch.setattr(finish, "save_picture", lambda folder, path, evaluation: None)
    monkeypatch.setattr(sections, "kernels", lambda networks, identity: None)


def npz(path: Path, size: tuple[int, ...], kind: str = "labels") -> str:
    random = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 24), ("test", 9)):
        arrays[f"{split}_images"] = random.integers(0, 256, (count, *size), np.uint8)
        space = size[:-1] if size[-1] == 3 else size
        targets = random.integers(0, 2, (count, *space), np.uint8) if kind == "masks" else np.arange(count)[:, None] % 3
        arrays[f"{split}_{kind}"] = targets
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize(
    ("size", "kind", "models"),
    [
        ((28, 28), "labels", ["resnet18", "gmr_resnet18"]),
        ((20, 24, 3), "labels", ["resnet18", "gmr_resnet18"]),
        ((12, 12, 12), "labels", ["r3d_9", "gmr_r3d_9"]),
        ((18, 22, 3), "masks", ["unet", "gmr_unet"]),
    ],
)
def test_a_plain_and_a_ring_network_of_the_kind_of_the_data(
    size: tuple[int, ...], kind: str, models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = npz(tmp_path / "mine.npz", size, kind)
    assert (
        cli.main(["compare", "--data", where, "--scale", "tiny", "--width", "2", "--out", str(tmp_path / "runs")]) == 0
    )
    out, err = capsys.readouterr()
    assert err == ""
    (folder,) = (tmp_path / "runs").iterdir()
    runs = list_runs(folder)
    assert [run.settings.model for run in runs] == models
    assert all(run.state == "finished" for run in runs)
    lines = out.splitlines()
    assert lines[-1] == f"Report: {folder / 'report.html'}"
    assert (folder / "report.html").is_file()
    start = next(row for row, line in enumerate(lines) if line.startswith("model "))
    table = lines[start : lines.index("", start)]
    assert max(map(len, table)) <= 80
    for run in runs:
        scores = next(iter(run.scores.values()))
        rows = [line.split() for line in table if line.split()[0] == run.settings.model]
        figures = [f"{scores[key]:.1f}" for key in ("upright", "rotated_mean")]
        assert any(row[1:3] == figures for row in rows)
    assert "width: 2 instead of" in out


def test_models_with_options_and_names_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = npz(tmp_path / "mine.npz", (12, 12))
    models = ["gmr_resnet18", "gmr_resnet18:sampling=area:normalize=true", "symm_resnet18"]
    arguments = ["compare", "--data", where, "--scale", "tiny", "--width", "1", "--models", *models]
    assert cli.main([*arguments, "--out", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert [run.settings.model_options.get("sampling") for run in list_runs(folder)] == [None, "area", None]
    assert "\n2  gmr_resnet18, sampling area, normalize\n" in out, "numbered where they do not fit"
    capsys.readouterr()
    assert cli.main([*arguments, "--out", str(tmp_path / "runs"), "--resume"]) == 0
    assert capsys.readouterr().out.count("finished already") == 3


def test_a_folder_of_pictures_of_many_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for label in ("cats", "[dogs] <b>"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(0, 256, (20 + number, 30, 3), np.uint8)
            image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    arguments = ["compare", "--data", str(tmp_path / "photos"), "--scale", "tiny", "--width", "1"]
    assert cli.main([*arguments, "--out", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    assert "Brought to 64 x 64 pixels" in out
    (folder,) = (tmp_path / "runs").iterdir()
    page = (folder / "report.html").read_text("utf-8")
    assert "[dogs] &lt;b&gt;" in page
    assert "[dogs] <b>" not in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "resnet18", "gmr_resnet18"], "--models needs --data"),
        (["--resume"], "--resume needs --data"),
        (["--scale", "cpu"], "--scale needs --data"),
        (["--data", "{npz}", "--train-patches", "3"], "--train-patches is for textures"),
        (["--data", "{npz}", "--models", "resnet18"], "two models or more"),
        (["--data", "{npz}", "--models", "resnet18", "resnet18"], "got resnet18 twice"),
        (["--data", "{npz}", "--models", "resnet18", "resnet19"], "no model 'resnet19'; did you mean"),
        (["--data", "{npz}", "--models", "resnet18", "unet"], "unet is for segmentation, and mine is to classify"),
        (["--data", "{npz}", "--models", "resnet18", "gmr_resnet18:widht=3"], "unknown option 'widht'"),
        (["--data", "{npz}", "--models", "resnet18", "gmr_resnet18:area"], "written name=value, got 'area'"),
        (["--data", "{npz}", "--epochs", "0"], "epochs must be at least 1"),
        (["--data", "/no/such/file"], "no file or folder /no/such/file"),
    ],
)
def test_the_impossible_is_refused_before_training(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = npz(tmp_path / "mine.npz", (12, 12))
    given = [option.format(npz=where) for option in options]
    assert cli.main(["compare", *given, "--out", str(tmp_path / "runs")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
