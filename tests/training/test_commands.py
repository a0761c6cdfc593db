"""``ringconv train`` and ``ringconv runs``."""

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from ringconv.commands._terminal import UsageError
from ringconv.commands.runs import runs
from ringconv.commands.train import named_values_of, train
from ringconv.training import read_run

TINY = ["--epochs", "1", "--batch-size", "16", "--no-final-test"]


@pytest.fixture
def data(tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    arrays = {}
    for seed, (split, count) in enumerate((("train", 48), ("test", 12))):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = tiny.pictures(count, seed)
    np.savez(tmp_path / "tiny.npz", **arrays)
    return str(tmp_path / "tiny.npz")


def test_train_and_runs(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    given = ["--model", "tiny_ring", "--data", data, "--out", str(out)]
    train([*given, *TINY, "--name", "narrow"])
    train([*given, "--name", "wide", "--model-options", "width=8", "norm=group", "--epochs", "1", "--lr", "0.1"])
    wide = read_run(out / "wide")
    assert wide.settings.model_options == {"width": 8, "norm": "group"}
    assert wide.settings.lr == 0.1
    capsys.readouterr()
    runs(out, settings=True)
    shown = capsys.readouterr().out
    for text in ("narrow", "wide", "untested", "acc", "final_test", 'width=8 norm="group"'):
        assert text in shown
    assert "batch_size" in shown
    assert "momentum" not in shown
    runs(out, match="nar")
    shown = capsys.readouterr().out
    assert "narrow" in shown
    assert "wide" not in shown


def test_settings_of_another_run_with_changes(data: str, tmp_path: Path) -> None:
    train(["--model", "tiny_ring", "--data", data, "--out", str(tmp_path), "--name", "a", *TINY])
    config = str(tmp_path / "a" / "config.json")
    train([config, "--out", str(tmp_path), "--name", "b", "--seed", "3", "--model-options", "width=2"])
    b = read_run(tmp_path / "b").settings
    assert (b.seed, b.epochs, b.model_options) == (3, 1, {"width": 2})
    train([config, "--out", str(tmp_path), "--name", "c", "--rotation", "30"])
    assert read_run(tmp_path / "c").settings.rotation == 30


def test_resume(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(["--model", "tiny_ring", "--data", data, "--out", str(tmp_path), "--name", "a", *TINY])
    (tmp_path / "a" / "results.json").unlink()
    capsys.readouterr()
    train([f"--resume={tmp_path / 'a'}"])
    assert read_run(tmp_path / "a").state == "finished"
    (tmp_path / "a" / "results.json").unlink()
    capsys.readouterr()
    train(["--resume", str(tmp_path / "a")])
    assert read_run(tmp_path / "a").state == "finished"
    assert str(tmp_path / "a") in capsys.readouterr().out
    with pytest.raises(UsageError, match="is not the folder of a run"):
        train(["--resume", str(tmp_path / "none")])


@pytest.fixture
def photos(tiny: ModuleType, tmp_path: Path) -> Path:
    """Three class folders of twelve."""
    images, labels = tiny.pictures(36, 0)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = tmp_path / "data" / "photos" / tiny.CLASSES[label] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "data" / "photos"


def test_runs_are_found_from_other_folders(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name in the data folder, and options that are paths, mean the same from everywhere."""
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RINGCONV_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    pictures = sorted(path.relative_to(photos) for path in photos.rglob("*.png"))
    rows = [f"{path},{number // 2}\n" for number, path in enumerate(pictures)]
    (tmp_path / "groups.csv").write_text("path,group\n" + "".join(rows))
    options = ["--data", "photos", "--data-options", "groups=groups.csv", "grey=true", "--name", "a", *TINY]
    train(["--model", "tiny_ring", *options])
    folder = tmp_path / "runs" / "a"
    settings = read_run(folder).settings
    assert settings.data == str(photos)
    assert settings.data_options == {"groups": str(tmp_path / "groups.csv"), "grey": True}
    (folder / "results.json").unlink()
    monkeypatch.chdir("/")
    train(["--resume", str(folder)])
    assert read_run(folder).state == "finished"


def test_runs_within_the_data_are_refused(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be a class of it the next time."""
    monkeypatch.chdir(photos)
    with pytest.raises(UsageError, match="out must not be within the data folder"):
        train(["--model", "tiny_ring", "--data", ".", *TINY])
    assert not (photos / "runs").exists()


def test_a_recipe_gives_the_defaults(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = ["tab:main/nwpu10/gmr_resnet18", "--scale", "tiny", "--data", data]
    train([*recipe, "--check"])
    assert "It works" in capsys.readouterr().out
    assert not list(tmp_path.glob("runs*"))
    with pytest.raises(UsageError, match=r"unknown option 'widht'.*'width'"):
        train([*recipe, "--model-options", "widht=3", "--check"])
    with pytest.raises(UsageError, match="per_calss"):
        train([*recipe, "--data-options", "per_calss=3", "--check"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give a recipe .* or --model and --data"),
        (["--model", "resnet18"], "or --data"),
        (["no_such_recipe"], "no recipe 'no_such_recipe'"),
        (["--model", "resnet18", "--data", "/no/such/place"], "no file or folder /no/such/place"),
        (["/no/such/settings.json"], "No such file"),
        (["--model", "resnet18", "--data", "/no/such/place", "--scale", "cpu"], "--scale is of a recipe"),
        (["settings.json", "--scale=cpu"], "--scale is of a recipe"),
    ],
)
def test_what_cannot_be_done_says_why(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train(options)


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    for content, message in (
        ("{", "is not JSON"),
        ("[]", "must hold settings by name"),
        ('{"model": "a"}', "say data"),
    ):
        (tmp_path / "s.json").write_text(content)
        with pytest.raises(UsageError, match=message):
            train([str(tmp_path / "s.json")])


def test_named_values() -> None:
    assert named_values_of(["width=16", "kernel-size=[9,9]", "sampling=area", "sigma=null", "normalize=true"]) == {
        "width": 16, "kernel_size": [9, 9], "sampling": "area", "sigma": None, "normalize": True,
    }  # fmt: skip
    with pytest.raises(ValueError, match="name=value, got 'width'"):
        named_values_of(["width"])


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs(tmp_path, match="x")
    assert "There are no runs with 'x' in their name" in capsys.readouterr().out
    with pytest.raises(UsageError, match="there is no folder"):
        runs(tmp_path / "none")


def test_names_of_runs_are_never_broken(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    long = "a-name-that-is-far-too-long-to-stand-beside-figures-in-eighty-columns-of-a-terminal"
    for folder, name in ((out, "short"), (out / "compare-x", long)):
        train(["--model", "tiny_ring", "--data", data, "--out", str(folder), "--name", name, *TINY])
    capsys.readouterr()
    (out / "short" / "results.json").unlink()
    monkeypatch.setenv("COLUMNS", "80")
    runs(out)
    lines = capsys.readouterr().out.splitlines()
    assert "  1  short" in lines
    assert f"  2  compare-x/{long}" in lines
    table = lines[: lines.index("  1  short")]
    assert max(map(len, table)) <= 80
    assert "…" not in "".join(table)
    assert sum("1/1 stopped" in line for line in table) == 1
    monkeypatch.setenv("COLUMNS", "300")
    runs(out, match="compare-x/a-name")
    shown = capsys.readouterr().out
    assert f"compare-x/{long}" in shown
    assert "short" not in shown


def test_settings_are_never_broken(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    for name, width, rate in (("narrow", 2, 0.1), ("wide", 8, 0.123456)):
        given = ["--model-options", f"width={width}", "--lr", str(rate), "--weight-decay", str(rate)]
        train(["--model", "tiny_ring", "--data", data, "--out", str(out), "--name", name, *TINY, *given])
    expected = """
narrow
  model_options={"width": 2}, lr=0.1,
  weight_decay=0.1
wide
  model_options={"width": 8},
  lr=0.123456, weight_decay=0.123456
"""
    for columns, in_a_table in ((200, True), (40, False)):
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        runs(out, settings=True)
        shown = capsys.readouterr().out.partition("Settings that differ")[2]
        assert "0.123456" in shown
        assert (shown == expected) == (not in_a_table)


def test_help_has_no_made_up_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train(["--help"])
    shown = capsys.readouterr().out
    assert "default: '?'" not in shown
    assert "(default: ?)" not in shown
    for option in ("--model ", "--data "):
        (line,) = [line for line in shown.splitlines() if f"│ {option}" in line or line.strip().startswith(option)]
        assert line
    assert shown.count("(required)") == 2
    with pytest.raises(SystemExit):
        train(["tab:main/nwpu10/gmr_resnet18", "--help"])
    assert "gmr_resnet18)" in capsys.readouterr().out


def test_settings_are_json_for_programs(data: str, tmp_path: Path) -> None:
    train(["--model", "tiny_ring", "--data", data, "--out", str(tmp_path), "--name", "a", *TINY])
    assert json.loads((tmp_path / "a" / "environment.json").read_text())["versions"]["torch"]
