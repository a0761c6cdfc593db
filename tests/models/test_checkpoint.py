"""Checkpoints: one file is enough, and no file does harm."""

import json
import os
import struct

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from ringconv import GMRConv2d
from ringconv.fold import fold
from ringconv.models import create_model, gmr_resnet
from ringconv.models.checkpoint import CheckpointError, Preprocessing, load_model, read_info, save_model

OPTIONS = {"num_classes": 3, "width": 4, "kernel_size": (5, 5, 3, 3)}


@pytest.fixture
def model():
    model = create_model("gmr_resnet18", **OPTIONS)
    model(torch.randn(4, 3, 16, 16))  # moves the running statistics
    return model.eval()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def edited(path, edit):
    """The file with other metadata."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    edit(header["__metadata__"])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def edit_info(path, **values):
    def edit(metadata):
        metadata["ringconv"] = json.dumps(json.loads(metadata["ringconv"]) | values)

    edited(path, edit)


def test_the_file_alone_is_enough(model, path):
    assert save_model(path, model) == path
    loaded = load_model(path)
    assert not loaded.training
    x = torch.randn(2, 3, 17, 19)
    assert torch.equal(loaded(x), model(x))
    save_model(path, loaded)  # and what was loaded can be saved
    assert torch.equal(load_model(str(path))(x), model(x))


def test_equal_models_are_equal_files(model, path):
    written = {save_model(path, model, class_names=["gräs", "coins", "gravel"]).read_bytes() for _ in range(20)}
    assert len(written) == 1
    (length,) = struct.unpack_from("<Q", written.pop())
    assert length % 8 == 0


def test_what_is_known_of_the_model(model, path):
    save_model(
        path,
        model,
        class_names=("grass", "coins", "gravel"),
        preprocessing={"size": 64, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "interpolation": "bicubic"},
        metrics={"accuracy": np.float32(0.5), "per_angle": {"0": torch.tensor(0.25)}, "epochs": np.int64(3)},
    )
    info = read_info(path)
    assert info.name == "gmr_resnet18"
    assert info.options == {"num_classes": 3, "width": 4, "kernel_size": [5, 5, 3, 3]}
    assert info.class_names == ("grass", "coins", "gravel")
    assert info.preprocessing == Preprocessing((64, 64), (0.5, 0.4, 0.3), (0.2, 0.2, 0.2), "bicubic")
    assert info.metrics == {"accuracy": 0.5, "per_angle": {"0": 0.25}, "epochs": 3}
    with safetensors.safe_open(path, "pt") as file:  # readable without ringconv
        assert json.loads(file.metadata()["ringconv"])["class_names"] == ["grass", "coins", "gravel"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype(model, path, dtype):
    model = model.to(dtype)
    save_model(path, model)
    loaded = load_model(path)
    assert {p.dtype for p in loaded.parameters()} == {dtype}
    x = torch.randn(1, 3, 16, 16, dtype=dtype)
    assert torch.equal(loaded(x), model(x))


def test_mixed_dtypes(model, path):
    model.head.double()
    save_model(path, model)
    loaded = load_model(path)
    assert loaded.head.weight.dtype == torch.float64
    assert loaded.stem.conv.weight.dtype == torch.float32


def test_saving_is_all_or_nothing(model, path, monkeypatch):
    save_model(path, model)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_model(path, model)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_weights_are_on_the_disk_before_they_have_their_name(model, path, monkeypatch):
    done, fsync, replace = [], os.fsync, os.replace

    def record_fsync(descriptor):
        fsync(descriptor)
        status = os.fstat(descriptor)
        done.append((status.st_ino, status.st_size))

    def record_replace(source, target):
        done.append("replaced")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    save_model(path, model)
    assert done[:2] == [(path.stat().st_ino, path.stat().st_size), "replaced"]


def test_the_file_has_ordinary_permissions(model, path):
    save_model(path, model)
    other = path.with_name("other")
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode


# -- what cannot be saved


def test_models_that_cannot_be_rebuilt_are_refused(model, path):
    with pytest.raises(ValueError, match="create_model"):
        save_model(path, nn.Linear(2, 2))
    with pytest.raises(ValueError, match="create_model"):
        save_model(path, gmr_resnet(width=4))
    with pytest.raises(ValueError, match="create_model"):
        save_model(path, fold(model))
    model.head = nn.Linear(32, 5)
    with pytest.raises(CheckpointError, match=r"head\.weight is \(5, 32\) instead of \(3, 32\)"):
        save_model(path, model)
    assert not path.exists()


def test_layers_that_were_exchanged_are_refused(model, path):
    norm = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    save_model(path, norm)
    path.unlink()
    name = next(name for name, layer in model.named_modules() if isinstance(layer, nn.ReLU))
    model.set_submodule(name, nn.LeakyReLU(0.5))
    with pytest.raises(CheckpointError, match=f"compared with .*{name} is a LeakyReLU instead of a ReLU"):
        save_model(path, model)
    assert not path.exists()


def exchanged_stem(model):
    model.stem.conv = GMRConv2d(3, 4, 5, padding=2, bias=False, padding_mode="reflect")


def other_eps(model):
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (exchanged_stem, r"stem\.conv is GMRConv2d\(.*padding_mode='reflect'.*\) instead of GMRConv2d\("),
        (other_eps, r"stem\.norm is BatchNorm\(4, eps=0\.1, .*instead of BatchNorm\(4, eps=1e-05, .*more"),
    ],
)
def test_layers_with_other_settings_are_refused(model, path, change, message):
    change(model)
    with pytest.raises(CheckpointError, match=message):
        save_model(path, model)
    assert not path.exists()


@pytest.mark.parametrize("name", ["gmr_resnet18", "gmr_densenet121", "gmr_convnext_tiny", "gmr_unet", "p4_resnet18"])
def test_settings_of_training_may_change(name, path):
    """They leave the function of a tested network as it is."""
    model = create_model(name, in_chans=np.int64(1), num_classes=2, width=np.int32(8)).eval()
    x = torch.randn(1, 1, 32, 32)
    expected = model(x)
    for layer in model.modules():
        if hasattr(layer, "inplace"):
            layer.inplace = not layer.inplace
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
        if isinstance(layer, nn.Dropout):
            layer.p = 0.7
        if isinstance(layer, GMRConv2d):
            layer.method = "dense"
    save_model(path, model)
    torch.testing.assert_close(load_model(path)(x), expected)


def test_wrapped_models_are_refused(model, path):
    with pytest.raises(ValueError, match=r"save_model takes .* it is a OptimizedModule: .*, model\._orig_mod"):
        save_model(path, torch.compile(model))
    with pytest.raises(ValueError, match=r"it is a DataParallel: .*, model\.module"):
        save_model(path, nn.DataParallel(model))


def test_arguments_are_checked(model, path):
    with pytest.raises(ValueError, match="num_classes=3, but class_names has 2"):
        save_model(path, model, class_names=["a", "b"])
    with pytest.raises(TypeError, match="one string"):
        save_model(path, model, class_names="abc")
    with pytest.raises(TypeError, match="metrics must be numbers"):
        save_model(path, model, metrics={"model": model})
    with pytest.raises(ValueError, match=r"std must be positive, got \(0.0,\)"):
        save_model(path, model, preprocessing={"std": 0.0})
    with pytest.raises(ValueError, match="but class_names has 2"):
        save_model(path, create_model("gmr_resnet18", width=2), class_names=["a", "b"])
    with pytest.raises(ValueError, match="channels, but mean and std have 2"):
        save_model(path, model, preprocessing={"mean": (0.5, 0.5), "std": (1.0, 1.0)})
    with pytest.raises(ValueError, match=r"interpolation must be one of nearest, .* got 'fancy'"):
        Preprocessing(interpolation="fancy")
    with pytest.raises(ValueError, match="same channels"):
        Preprocessing(mean=(0, 0, 0))
    with pytest.raises(ValueError, match="scale must be positive, got 0"):
        Preprocessing(scale=0)


def test_files_from_before_the_scale_was_stored(model, path):
    save_model(path, model, preprocessing={"size": 8, "scale": 65535.0})
    assert read_info(path).preprocessing == Preprocessing((8, 8), scale=65535.0)

    def edit(metadata):
        stored = json.loads(metadata["ringconv"])
        del stored["preprocessing"]["scale"]
        metadata["ringconv"] = json.dumps(stored)

    edited(path, edit)
    assert read_info(path).preprocessing == Preprocessing((8, 8))


# -- files that are something else


def test_one_number_is_the_side_of_a_volume_too(path):
    model = create_model("gmr_r3d_9", num_classes=2, width=2)
    save_model(path, model, preprocessing={"size": 12})
    assert read_info(path).preprocessing.size == (12, 12, 12)
    with pytest.raises(ValueError, match="takes images of 3 dimensions, but size has 2 numbers"):
        save_model(path, model, preprocessing={"size": (12, 12)})


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_model(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load_model(tmp_path)


class Harmful:
    def __reduce__(self):
        return (os.abort, ())


def test_no_pickle_is_loaded(path):
    torch.save(Harmful(), path)
    with pytest.raises(CheckpointError, match=r"reads none.*weights_only=True"):
        load_model(path)
    torch.save(Harmful(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="reads none"):
        read_info(path)


@pytest.mark.parametrize("length", [0, 4, 100, -1, -1000])
def test_truncated(model, path, length):
    save_model(path, model)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        load_model(path)


def test_noise(path):
    path.write_bytes(bytes(range(7, 256)) * 20)
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        load_model(path)


def test_foreign_safetensors(path):
    safetensors.torch.save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="not written by ringconv"):
        load_model(path)


def test_damaged_metadata(model, path):
    save_model(path, model)
    edited(path, lambda metadata: metadata.update(ringconv="{"))
    with pytest.raises(CheckpointError, match="damaged"):
        load_model(path)
    edited(path, lambda metadata: metadata.update(ringconv="[1]"))
    with pytest.raises(CheckpointError, match="damaged"):
        read_info(path)


def test_a_later_format(model, path):
    save_model(path, model)
    edit_info(path, version=99)
    with pytest.raises(CheckpointError, match=r"version 99.*install a later one"):
        load_model(path)


def test_files_of_format_1_have_the_papers_rings(path):
    """The options that such a file does not name are those that were the defaults then."""
    model = create_model("gmr_resnet18", preset="paper", width=2, num_classes=3).eval()
    save_model(path, model)
    edit_info(path, version=1, options={"width": 2, "num_classes": 3})
    x = torch.randn(1, 3, 16, 16)
    assert torch.equal(load_model(path)(x), model(x))
    edit_info(path, version=1, options={"width": 2, "num_classes": 3, "preset": None})
    assert torch.equal(load_model(path)(x), model(x))
    edit_info(path, version=1, options={"width": 2, "num_classes": 3, "sampling": "area"})
    loaded = load_model(path)
    assert torch.equal(loaded(x), reloaded(model, sampling="area")(x))
    save_model(path, loaded)
    assert torch.equal(load_model(path)(x), loaded(x))


def reloaded(model, **options):
    """Its weights in a network with further options."""
    other = create_model(model.model_name, **model.model_options, **options).eval()
    other.load_state_dict(model.state_dict())
    return other


def test_metadata_of_another_model(model, path):
    save_model(path, model)
    edit_info(path, name="gmr_resnet34")
    with pytest.raises(CheckpointError, match="is missing"):
        load_model(path)
    edit_info(path, name="os.system")
    with pytest.raises(CheckpointError, match="there is no model"):
        load_model(path)
    edit_info(path, name="gmr_resnet18", options={"width": 4, "shell": "ls"})
    with pytest.raises(CheckpointError, match="unknown option"):
        load_model(path)
    edit_info(path, name="gmr_resnet18", options={"width": 10**7})  # refused before memory is asked for
    with pytest.raises(CheckpointError, match="instead of"):
        load_model(path)
