"""Classes of image files as a table."""

import csv
import itertools
import os

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from ringconv._network import input_channels
from ringconv.commands._terminal import UsageError
from ringconv.commands.predict import predict as predict_command
from ringconv.data import open_data
from ringconv.deploy import find_images, predict, write_predictions
from ringconv.deploy.images import read_image
from ringconv.models import create_model
from ringconv.models.checkpoint import CheckpointInfo, Preprocessing, load_model, read_info, save_model

NAMES = ("grass", "coins", "gravel")


@pytest.fixture
def checkpoint(tmp_path):
    model = create_model("gmr_resnet18", num_classes=3, width=4, kernel_size=3)
    return save_model(
        tmp_path / "model.safetensors",
        model,
        class_names=NAMES,
        preprocessing={"size": (20, 24), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)},
    )


@pytest.fixture
def folder(tmp_path):
    """Images of every kind, two of which cannot be read."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    images = tmp_path / "images"
    (images / "deeper").mkdir(parents=True)
    colour = Image.fromarray(pixels)
    colour.save(images / "rgb.png")
    colour.convert("RGBA").save(images / "rgba.png")
    colour.convert("P").save(images / "deeper" / "palette.PNG")
    colour.convert("L").save(images / "grey.tif")
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(images / "deep.png")
    (images / "notes.txt").write_text("not an image")
    (images / "broken.png").write_bytes(b"nothing")
    whole = (images / "rgb.png").read_bytes()
    (images / "cut.png").write_bytes(whole[: len(whole) // 2])
    return images


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table(checkpoint, folder, tmp_path, capsys):
    out = tmp_path / "new" / "predictions.csv"
    predict_command(checkpoint, (folder,), out=out, top=2, batch_size=2)
    rows = rows_of(out)
    assert list(rows[0]) == ["path", "class", "probability", "class_2", "probability_2"]
    names = [row["path"].rpartition("/")[2] for row in rows]
    assert sorted(names) == ["deep.png", "grey.tif", "palette.PNG", "rgb.png", "rgba.png"]
    for row in rows:
        assert row["class"] in NAMES
        assert 1 >= float(row["probability"]) >= float(row["probability_2"]) >= 0
    printed = capsys.readouterr().out
    assert "broken.png" in printed
    assert "cut.png" in printed
    assert "2 of 7 files could not be read" in printed
    assert [file.name for file in out.parent.iterdir()] == ["predictions.csv"]


def test_probabilities_are_the_models(checkpoint, folder):
    model, info = load_model(checkpoint), read_info(checkpoint)
    row = predict(model, info, [folder / "rgb.png"], top=3).rows[0]
    image = Image.open(folder / "rgb.png").resize((24, 20), Image.Resampling.BILINEAR)
    x = (torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / (
        torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    )
    shares = model(x[None]).softmax(1)[0]
    assert row.classes == tuple(NAMES[i] for i in shares.argsort(descending=True))
    assert row.probabilities == pytest.approx(shares.sort(descending=True).values.tolist(), rel=1e-5)


def test_batches_do_not_matter(checkpoint, folder):
    model, info = load_model(checkpoint), read_info(checkpoint)
    files = find_images([folder])
    one, many = predict(model, info, files, batch=1), predict(model, info, files, batch=50)
    assert [row.classes for row in one.rows] == [row.classes for row in many.rows]
    assert one.unreadable.keys() == many.unreadable.keys()


@pytest.mark.parametrize(("channels", "name"), list(itertools.product((1, 3), ("rgb.png", "deep.png", "grey.tif"))))
def test_channels_are_what_the_model_takes(folder, channels, name):
    image = read_image(folder / name, Preprocessing(size=(8, 9)), channels)
    assert image.shape == (channels, 8, 9)
    assert 0 <= image.min() < image.max() <= 1


def test_sixteen_bits_are_scaled_not_clipped(folder):
    deep = read_image(folder / "deep.png", Preprocessing(), 1)
    pixels = np.asarray(Image.open(folder / "rgb.png"))[..., 0] / 255
    np.testing.assert_allclose(deep[0].numpy(), pixels, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "top", "ending"),
    [
        (np.uint16, 4095, "tif"),
        (np.float32, 3.0, "tif"),
        (np.int32, 70_000, "tif"),
        (np.uint16, 1, "tif"),
        (np.uint16, 4095, "png"),
        (np.uint16, 255, "png"),
        (np.uint16, 1, "png"),
    ],
)
def test_deep_files_are_read_as_in_training(tmp_path, monkeypatch, dtype, top, ending):
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    values = (top * np.random.default_rng(0).random((4, 12, 20))).round(3 if dtype == np.float32 else 0)
    for number, image in enumerate(values.astype(dtype)):
        path = tmp_path / "set" / "ab"[number % 2] / f"{number}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if ending == "tif":
            tifffile.imwrite(path, image)
        else:
            Image.fromarray(image).save(path)
    data = open_data(tmp_path / "set", size=(9, 10), fit="crop", test=0.5)
    for split in data.splits.values():
        known = Preprocessing((9, 10), data.mean, data.std, fit="crop", scale=split.scale)
        for image, label in split:
            found = [read_image(path, known, 1) for path in sorted((tmp_path / "set" / "ab"[label]).iterdir())]
            assert any(torch.equal(one, data.normalise(image[None])[0]) for one in found)


def test_tiffs_that_cannot_be_read_as_in_training_are_named(checkpoint, tmp_path):
    values = {
        "floats.tif": np.ones((30, 40), np.float32),
        "bands.tif": np.ones((30, 40, 6), np.uint8),
        "grey.tif": np.ones((30, 40), np.uint16),
    }
    for name, pixels in values.items():
        tifffile.imwrite(
            tmp_path / name, pixels, photometric="minisblack", planarconfig="contig" if pixels.ndim == 3 else None
        )
    found = predict(load_model(checkpoint), read_info(checkpoint), [tmp_path / name for name in values])
    assert [row.path.name for row in found.rows] == ["grey.tif"]
    assert found.unreadable == {
        tmp_path / "floats.tif": "its values are float32, which have no scale of their own, and the checkpoint does not"
        " say what its training had",
        tmp_path / "bands.tif": "it has 6 bands, and the model takes 3 channels",
    }
    with pytest.raises(OSError, match=r"float32, .* was trained on values up to 255"):
        read_image(tmp_path / "floats.tif", Preprocessing(scale=255.0), 1)
    assert read_image(tmp_path / "bands.tif", Preprocessing(), 6).shape == (6, 30, 40)


def test_one_damaged_file_does_not_stop_the_rest(checkpoint, folder, tmp_path):
    (folder / "cut.pgm").write_bytes(b"P5\n30 40\n255\n" + b"\0" * 50)
    strange = folder / os.fsdecode(b"caf\xe9.png")
    strange.write_bytes((folder / "rgb.png").read_bytes())
    out = tmp_path / "predictions.csv"
    predict_command(checkpoint, (folder,), out=out)
    assert os.fsencode(strange) in out.read_bytes()
    assert b"cut.pgm" not in out.read_bytes()
    assert len(out.read_text(errors="replace").splitlines()) == 1 + 6


def test_pictures_for_a_network_of_floats_from_0_to_255_are_refused(folder):
    known = Preprocessing(None, (120.0,), (60.0,), scale=1.0)
    with pytest.raises(ValueError, match="trained on floats that are not from 0 to 1"):
        read_image(folder / "rgb.png", known, 1)


def test_a_device_that_is_not_there(checkpoint, folder):
    for device in ("foo", "cuda:99"):
        with pytest.raises(UsageError, match=f"device '{device}' cannot be used here"):
            predict_command(checkpoint, (folder / "rgb.png",), device=device)


def test_without_a_size_images_keep_theirs(folder):
    model = create_model("gmr_resnet18", num_classes=2, width=4, kernel_size=3).eval()
    Image.new("RGB", (17, 50)).save(folder / "another.png")
    info = CheckpointInfo("gmr_resnet18", {})
    found = predict(model, info, [folder / "rgb.png", folder / "another.png"])
    assert [row.classes[0] in ("0", "1") for row in found.rows] == [True, True]  # numbers where there are no names


def test_files_are_found_once_and_sorted(folder):
    files = find_images([folder, folder / "rgb.png"])
    assert len(files) == len(set(files)) == 7
    assert files == sorted(files)


def test_errors_say_what_was_given(checkpoint, folder, tmp_path):
    with pytest.raises(UsageError, match="there is no image or folder"):
        predict_command(checkpoint, (tmp_path / "none",))
    with pytest.raises(UsageError, match="at least one image"):
        predict_command(checkpoint, ())
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no images in the folder"):
        predict_command(checkpoint, (tmp_path / "empty",))
    with pytest.raises(UsageError, match="none of the 1 images can be read"):
        predict_command(checkpoint, (folder / "broken.png",), out=tmp_path / "no.csv")
    assert not (tmp_path / "no.csv").exists()
    with pytest.raises(UsageError, match="top and batch must be at least 1"):
        predict_command(checkpoint, (folder / "rgb.png",), top=0)
    with pytest.raises(ValueError, match="takes 5 channels"):
        read_image(folder / "rgb.png", Preprocessing(), 5)


def test_segmentations_are_refused(folder):
    model = create_model("gmr_unet", width=2, kernel_size=3).eval()
    with pytest.raises(ValueError, match="predict is for classifiers"):
        predict(model, CheckpointInfo("gmr_unet", {}), [folder / "rgb.png"])


def test_networks_of_volumes_are_refused(folder):
    model = create_model("gmr_resnet18", width=2, dimensions=3).eval()
    with pytest.raises(ValueError, match="images have 2 dimensions, and gmr_resnet18 takes 3"):
        predict(model, CheckpointInfo("gmr_resnet18", {"dimensions": 3}), [folder / "rgb.png"])


def test_input_channels():
    assert input_channels(create_model("gmr_resnet18", width=4, in_chans=5)) == 5
    with pytest.raises(ValueError, match="does not say how many channels"):
        input_channels(torch.nn.ReLU())


def test_an_empty_table_has_a_header(tmp_path):
    from ringconv.deploy import Predictions

    assert write_predictions(Predictions([], {}), tmp_path / "a.csv").read_text() == "path,class,probability\n"


def test_a_model_in_training_mode_is_asked_in_eval_and_stays_as_it_is(tmp_path):
    model = create_model("gmr_resnet18", width=4, num_classes=3).train()
    Image.new("RGB", (40, 40), (90, 10, 200)).save(tmp_path / "x.png")
    info = CheckpointInfo("gmr_resnet18", {}, ("a", "b", "c"), Preprocessing(size=(32, 32)))
    first, second = (predict(model, info, [tmp_path / "x.png"]).rows[0] for _ in range(2))
    assert first == second
    assert all(module.training for module in model.modules())
    assert predict(model.eval(), info, [tmp_path / "x.png"]).rows[0] == first


def test_channels_are_what_the_model_says():
    class Unusual(torch.nn.Linear):
        in_chans = 7

    assert input_channels(Unusual(5, 2)) == 7
    assert input_channels(create_model("gmr_r3d_9", width=4)) == 1
