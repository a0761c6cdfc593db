"""``ringconv data``, ``evaluate`` and ``audit``, from the arguments to the files they write."""

import json
import os

import numpy as np
import pytest
import torch
from PIL import Image

from ringconv import cli
from ringconv.commands._checkpoint import load_checkpoint
from ringconv.commands.export import _calibration
from ringconv.models import create_model
from ringconv.models.checkpoint import load_model, save_model
from ringconv.training import TrainSettings
from ringconv.training.runs import new_run


@pytest.fixture(autouse=True)
def surroundings(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("RINGCONV_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def npz(tmp_path):
    generator = np.random.default_rng(0)
    arrays = {
        f"{split}_images": generator.integers(0, 256, (12, 16, 16, 3), dtype=np.uint8) for split in ("train", "test")
    }
    arrays |= {f"{split}_labels": np.arange(12) % 3 for split in ("train", "test")}
    np.savez(tmp_path / "cells.npz", class_names=np.array(["a", "b", "c"]), **arrays)
    return tmp_path / "cells.npz"


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    model = create_model("gmr_resnet18", num_classes=3, width=4, kernel_size=3)
    preprocessing = {"size": (16, 16), "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    return save_model(tmp_path / "net.safetensors", model, class_names=["a", "b", "c"], preprocessing=preprocessing)


def run(capsys, *arguments, status=0):
    assert cli.main([str(argument) for argument in arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


def test_data_list_names_every_layout(capsys):
    out = run(capsys, "data", "list")
    for name in ("cifar10", "nwpu10", "mtarsi", "nct_crc", "pcam", "imagenet", "modelnet10", "cryonuseg", "textures"):
        assert f"{name}:" in out
    assert "cifar-10-batches-py/" in out


def test_data_check(npz, capsys):
    out = run(capsys, "data", "check", npz)
    assert "cells: classify, 2D, 3 classes" in out
    assert "16 x 16" in out
    assert max(map(len, out.splitlines())) <= 80


def test_data_check_counts_what_is_broken(tmp_path, capsys):
    for row in range(4):
        path = tmp_path / "set" / "ab"[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    path.write_bytes(path.read_bytes()[:40])
    assert "1 of 4 images cannot be read" in run(capsys, "data", "check", tmp_path / "set", status=2)
    out = run(capsys, "data", "check", tmp_path / "set", "--faults", "skip")
    assert "Note: 1 of 4 images cannot be read" in out
    assert "3.png" in out


@pytest.mark.parametrize("kind", ["picture", "mask", "volume", "bands"])
def test_data_show_draws_a_sheet(kind, tmp_path, capsys):
    generator = np.random.default_rng(0)
    shape = {"picture": (8, 8, 3), "mask": (8, 12, 3), "volume": (8, 8, 8), "bands": (6, 6, 4)}[kind]
    arrays = {"test_images": generator.integers(0, 256, (5, *shape), dtype=np.uint8)}
    if kind == "mask":
        arrays["test_masks"] = generator.integers(0, 2, (5, 8, 12), dtype=np.uint8)
    else:
        arrays["test_labels"] = np.arange(5) % 2
    np.savez(tmp_path / "set.npz", **arrays)
    out = tmp_path / "new folder" / "sheet.png"
    assert f"Written: {out}" in run(capsys, "data", "show", tmp_path / "set.npz", "--count", 3, "--out", out)
    with Image.open(out) as sheet:
        width, height = sheet.size
        assert width > height > 300
        assert len(np.unique(np.asarray(sheet.convert("L")))) > 20, "it is not blank"


def test_data_says_what_is_missing(tmp_path, capsys):
    assert "needs a path or a name" in run(capsys, "data", "show", status=2)
    err = run(capsys, "data", "check", "cifar10", "--root", tmp_path, status=2)
    assert "Expected is" in err
    assert "ringconv data fetch cifar10" in err
    assert "cannot be fetched by a program" in run(capsys, "data", "fetch", "mtarsi", "--root", tmp_path, status=2)
    assert "no split 'val'" in run(capsys, "data", "show", "textures", "--split", "val", status=2)


def test_evaluate_prints_a_table_and_writes_json(npz, checkpoint, capsys):
    out = run(capsys, "evaluate", checkpoint, "--data", npz, "--batch-size", 5)
    assert max(map(len, out.splitlines()[:-1])) <= 80
    found = json.loads(checkpoint.with_name("net.evaluation.json").read_text())
    scores = found["scores"]["accuracy"]
    assert len(scores["per_turn"]) == 36
    assert scores["per_turn"]["0"] == scores["per_turn"]["90"] == scores["upright"]
    assert found["settings"]["turning"] == {
        "interpolation": "bilinear",
        "fill": 0.0,
        "padding": "fill",
        "mask": "none",
        "expand": False,
    }
    assert f"{scores['rotated_mean']:.2f}" in out
    assert "36 turns: bilinear, fill 0, no mask, same size; 90° steps exact." in out
    assert "Logits move by" in out
    assert str(checkpoint.with_name("net.evaluation.json")) in out


def test_evaluate_takes_its_options(npz, checkpoint, tmp_path, capsys):
    options = ["--step", 45, "--symmetrise", 8, "--subset", 6, "--mask", "disc", "--padding", "reflect"]
    out = run(capsys, "evaluate", checkpoint, "--data", npz, "--out", tmp_path / "r.json", "--size", 20, *options)
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["images"] == 6
    assert found["settings"]["symmetrise"] == 8
    assert "8 turns: bilinear, reflect padding, disc mask" in out
    assert "averaged over 8 symmetries" in out


def test_evaluate_refuses_what_does_not_fit(npz, checkpoint, tmp_path, capsys):
    images = np.zeros((4, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "two.npz", test_images=images, test_labels=[0, 1, 0, 1])
    err = run(capsys, "evaluate", checkpoint, "--data", tmp_path / "two.npz", status=2)
    assert "two has the classes 0, 1 that the checkpoint does not know" in err
    np.savez(tmp_path / "grey.npz", test_images=images[..., 0], test_labels=[0, 1, 2, 1])
    err = run(capsys, "evaluate", checkpoint, "--data", tmp_path / "grey.npz", status=2)
    assert "takes 3 channels, grey has 1" in err
    assert "no checkpoint" in run(capsys, "evaluate", tmp_path / "no.safetensors", "--data", npz, status=2)
    assert "divides 360" in run(capsys, "evaluate", checkpoint, "--data", npz, "--step", 7, status=2)
    assert not checkpoint.with_name("net.evaluation.json").exists()


@pytest.fixture
def run_folder(tmp_path, checkpoint):
    """A checkpoint in the folder of its run, which was trained on 2 of the 6 pictures of each class."""
    for number in range(18):
        path = tmp_path / "photos" / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (10 * number, 0, 0)).save(path)
    settings = TrainSettings("gmr_resnet18", str(tmp_path / "photos"), data_options={"per_class": 2})
    return checkpoint.rename(new_run(tmp_path, settings, "run", None, {"parameters": 1}) / "model.safetensors")


def test_evaluate_and_audit_read_data_as_the_run_did(run_folder, tmp_path, capsys):
    for options, images in (
        (["--seed", 3], 12),
        (["--data", tmp_path / "photos"], 12),
        (["--data-options", "per_class=null", "test=0.5"], 9),
    ):
        out = run(capsys, "evaluate", run_folder, "--step", 180, "--out", tmp_path / "new" / "e.json", *options)
        found = json.loads((tmp_path / "new" / "e.json").read_text())
        assert found["images"] == images
        assert (found["notes"] == ["read as in training, with per_class=2"]) == (images == 12)
        assert ("Note: read as in training" in out) == (images == 12)
    grey = ["--data", tmp_path / "photos", "--data-options", "grey=true"]
    for command in ("evaluate", "audit"):
        assert "takes 3 channels, photos has 1" in run(capsys, command, run_folder, *grey, status=2)


def test_evaluate_turns_as_the_run_did(run_folder, tmp_path, capsys):
    config = run_folder.with_name("config.json")
    written = json.loads(config.read_text())
    written["settings"]["beyond_frame"] = "edge"
    config.write_text(json.dumps(written))
    out = tmp_path / "e.json"
    assert "edge padding" in run(capsys, "evaluate", run_folder, "--step", 180, "--out", out)
    assert "fill 0" in run(capsys, "evaluate", run_folder, "--step", 180, "--out", out, "--padding", "fill")


@pytest.mark.parametrize("command", [["evaluate", "--step", 180], ["audit"]])
def test_networks_of_other_precision(command, npz, checkpoint, tmp_path, capsys):
    model = load_model(checkpoint).double()
    path = save_model(tmp_path / "double.safetensors", model)
    run(capsys, command[0], path, "--data", npz, *command[1:])


def test_export_calibrates_on_data_as_the_run_read_it(run_folder, tmp_path):
    loaded = load_checkpoint(run_folder, "cpu")
    found = _calibration(loaded, str(tmp_path / "photos"), (), (), 100, None)
    assert (sum(map(len, found.calibration)), len(found.labels)) == (6, 12)
    (tmp_path / "photos" / "a").rename(tmp_path / "photos" / "d")
    with pytest.raises(ValueError, match="has the classes d that the checkpoint does not know"):
        _calibration(loaded, str(tmp_path / "photos"), (), (), 100, None)


def test_evaluate_numbers_classes_as_the_checkpoint(npz, checkpoint, tmp_path, capsys):
    arrays = dict(np.load(npz))
    other = arrays | {"class_names": np.array(["c", "a", "b"]), "test_labels": (arrays["test_labels"] + 1) % 3}
    np.savez(tmp_path / "other.npz", **other)
    scores = []
    for data in (npz, tmp_path / "other.npz"):
        run(capsys, "evaluate", checkpoint, "--data", data, "--step", 180, "--out", tmp_path / "e.json")
        scores.append(json.loads((tmp_path / "e.json").read_text())["scores"])
    assert scores[0] == scores[1]
    few = {name: values[arrays["test_labels"] != 1] for name, values in arrays.items() if name.startswith("test")}
    np.savez(tmp_path / "few.npz", test_images=few["test_images"], test_labels=few["test_labels"] // 2,
             class_names=["a", "c"])  # fmt: skip
    out = run(capsys, "evaluate", checkpoint, "--data", tmp_path / "few.npz", "--step", 180)
    assert "few, test: 8 images" in out
    assert "Note: few has no images of b" in out
    np.savez(tmp_path / "strange.npz", **arrays | {"class_names": np.array(["a", "b", "sea"])})
    assert "the classes sea that" in run(capsys, "evaluate", checkpoint, "--data", tmp_path / "strange.npz", status=2)


@pytest.mark.parametrize("command", ["evaluate", "audit", "predict", "export"])
def test_a_file_that_cannot_be_written_is_told_first(command, checkpoint, tmp_path, capsys):
    # A path that is not there would be told of as well, but later.
    more = {"evaluate": ["--data", "nowhere"], "audit": ["--data", "nowhere"], "predict": ["nowhere"], "export": []}
    for out, why in ((tmp_path, "is a folder"), (checkpoint / "r.json", "is a file")):
        assert why in run(capsys, command, checkpoint, *more[command], "--out", out, status=2)


def test_a_file_without_permission_is_told_first(checkpoint, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write anywhere
    assert f"but {tmp_path} cannot" in run(capsys, "evaluate", checkpoint, "--data", "nowhere", status=2)


def test_audit_prints_a_table_and_writes_json(npz, checkpoint, tmp_path, capsys):
    out = run(capsys, "audit", checkpoint, "--size", 32, "--rows", 8)
    table = [line for line in out.splitlines() if line.startswith("│")]
    assert len(table) >= 8
    assert max(map(len, out.splitlines()[:-2])) <= 80
    found = json.loads(checkpoint.with_name("net.audit.json").read_text())
    assert found["transformations"] == ["15", "30", "45", "90", "flip"]
    for layer in found["layers"]:
        assert layer["errors"]["90"] < 1e-4, layer["name"]
    out = run(capsys, "audit", checkpoint, "--data", npz, "--angles", 30, 90, "--out", tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["transformations"] == ["30", "90", "flip"]
    assert found["size"] == [2, 3, 16, 16]
    assert f"All {len(found['layers'])} layers: " in out
