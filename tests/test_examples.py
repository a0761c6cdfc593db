"""The examples run as they are, on tiny data."""

import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import ringconv.models  # noqa: F401 (timm, which comes later, needs what it does for torchvision)

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]([*map(str, arguments)])


@pytest.fixture
def photos(tmp_path):
    """Two classes that a network can tell apart, a folder each."""
    random = np.random.default_rng(0)
    for split, count in (("train", 10), ("test", 4)):
        for level, name in ((60, "dark"), (180, "bright")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = level + random.integers(-40, 40, (20, 20, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "photos"


def test_classify_own_images(photos, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    path = run("classify_own_images", photos, "--epochs", 2, "--size", 16, "--width", 4, "--out", tmp_path / "runs")
    assert path.is_file()
    assert "over all angles" in capsys.readouterr().out


def test_convert_a_trained_network(photos, tmp_path, capsys):
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    import timm

    elsewhere = tmp_path / "elsewhere.safetensors"
    save_file(timm.create_model("resnet10t", num_classes=7).state_dict(), elsewhere)
    options = ("--model", "resnet10t", "--weights", elsewhere, "--epochs", 1, "--size", 32)
    rotated = run("convert_trained_network", photos, *options)
    assert 0 <= rotated <= 100
    printed = capsys.readouterr().out
    assert "started anew: fc.bias, fc.weight" in printed
    assert "epoch 1: loss" in printed


def test_segment_cells(tmp_path, capsys):
    random = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 4), ("test", 2)):
        masks = np.zeros((count, 24, 24), np.uint8)
        masks[:, 6:16, 8:18] = 1
        arrays[f"{split}_images"] = (100 * masks + random.integers(0, 50, masks.shape)).astype(np.uint8)
        arrays[f"{split}_masks"] = masks
    np.savez(tmp_path / "cells.npz", **arrays)
    options = ("--epochs", 1, "--crop", 16, "--width", 4, "--out", tmp_path / "runs")
    masks = run("segment_cells", tmp_path / "cells.npz", *options)
    assert len(list(masks.glob("*.png"))) == 2
    printed = capsys.readouterr().out
    assert "Dice on test images" in printed
    np.savez(tmp_path / "untested.npz", **{name: arrays[name] for name in arrays if name.startswith("train")})
    with pytest.raises(SystemExit):
        run("segment_cells", tmp_path / "untested.npz", *options)
    assert "has no test images" in capsys.readouterr().err
