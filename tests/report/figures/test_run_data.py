"""Data read again as a run read it, with the classes of its checkpoint."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ringconv.data import open_data
from ringconv.models.checkpoint import Preprocessing
from ringconv.report.figures.networks import images_for, read_networks
from ringconv.training import TrainSettings
from ringconv.training.finish import about_data
from ringconv.training.run_data import reopen_data, settings_beside, with_classes_of
from ringconv.training.runs import new_run
from ringconv.training.setup import prepare_data

PREPARED = Preprocessing((8, 8), (0.5,), (0.25,))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def photos(tmp_path):
    """Thirty colour pictures without splits, each of one grey level."""
    for level in range(30):
        path = tmp_path / "photos" / "abc"[level % 3] / f"{level}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (8 * level,) * 3).save(path)
    return tmp_path / "photos"


def a_run(tmp_path, photos, **options):
    """Settings, and where the checkpoint of their run would be."""
    settings = TrainSettings("gmr_resnet18", str(photos), data_options=options, validation=0.25)
    return settings, new_run(tmp_path, settings, "run", None, {"parameters": 1}) / "model.safetensors"


def levels(data, split):
    return sorted(round(float(image.mean()) * 255 / 8) for image in data[split].batch(slice(None))[0])


def test_what_was_trained_on_is_not_tested_on(tmp_path, photos):
    settings, checkpoint = a_run(tmp_path, photos, per_class=3, seed=7, grey=True)
    trained = prepare_data(settings)
    shutil.copytree(photos, tmp_path / "elsewhere")
    for where in (str(photos), str(tmp_path / "elsewhere"), None):
        found = reopen_data(checkpoint, PREPARED, where)
        for split in ("train", "val", "test"):
            assert levels(found, split) == levels(trained, split)
        assert found.channels == 1
        assert found.notes == ("read as in training, with validation=0.25, per_class=3, seed=7, grey=true",)


def test_all_of_other_data_can_be_tested(tmp_path, photos):
    """By default it is drawn from, and said: it may be what was trained on, under another path."""
    shutil.copytree(photos, tmp_path / "elsewhere")
    where = str(tmp_path / "elsewhere")
    _, checkpoint = a_run(tmp_path, photos)
    found = reopen_data(checkpoint, PREPARED, where)
    assert len(found["test"]) == 6
    assert "6 of its 30 images were drawn" in found.notes[0]
    assert "test=1 tests all" in found.notes[0]
    assert not any("drawn" in note for note in reopen_data(checkpoint, PREPARED).notes)
    found = reopen_data(checkpoint, PREPARED, where, given={"test": 1})
    assert list(found.splits) == ["test"]
    assert levels(found, "test") == list(range(30))
    assert not any("drawn" in note for note in found.notes)
    with pytest.raises(ValueError, match="photos is what the network was trained on: test=1 would"):
        reopen_data(checkpoint, PREPARED, given={"test": 1})


def test_a_share_to_test_on_takes_the_place_of_a_number_to_train_on(tmp_path, photos):
    shutil.copytree(photos, tmp_path / "elsewhere")
    _, checkpoint = a_run(tmp_path, photos, per_class=3)
    assert len(reopen_data(checkpoint, PREPARED, str(tmp_path / "elsewhere"))["test"]) == 21
    assert len(reopen_data(checkpoint, PREPARED, str(tmp_path / "elsewhere"), given={"test": 1})["test"]) == 30


def test_data_with_splits_of_its_own_has_no_note_on_drawing(tmp_path, photos):
    for split in ("train", "test"):
        shutil.copytree(photos, tmp_path / "elsewhere" / split)
    _, checkpoint = a_run(tmp_path, photos)
    assert not any("drawn" in note for note in reopen_data(checkpoint, PREPARED, str(tmp_path / "elsewhere")).notes)


def test_given_options_win(tmp_path, photos):
    _, checkpoint = a_run(tmp_path, photos, per_class=3, grey=True)
    found = reopen_data(checkpoint, PREPARED, given={"per_class": 5, "grey": None, "size": 4})
    assert (len(found["test"]), found.channels, found["test"].size) == (15, 3, (4, 4))
    with pytest.raises(ValueError, match=r"cannot be read with the options .*per_klass"):
        reopen_data(checkpoint, PREPARED, given={"per_klass": 5})


def test_where_the_runs_data_was_does_not_count_for_other_data(tmp_path, photos):
    _, checkpoint = a_run(tmp_path, "nwpu10", layout="nwpu10", root=str(tmp_path), grey=True)
    assert reopen_data(checkpoint, PREPARED, str(photos)).channels == 1
    with pytest.raises(FileNotFoundError, match="no NWPU VHR-10"):
        reopen_data(checkpoint, PREPARED)


def test_a_checkpoint_without_a_run(tmp_path, photos):
    alone = tmp_path / "model.safetensors"
    for content in (None, "no JSON", "[1]", '{"settings": 3}'):
        if content is not None:
            (tmp_path / "config.json").write_text(content)
        assert settings_beside(alone) is None
        assert len(reopen_data(alone, None, str(photos))["test"]) == 6
    with pytest.raises(ValueError, match=r"say which data to take: there is no config.json of a run beside"):
        reopen_data(alone, None)


def test_wide_integers_keep_the_scale_of_training(tmp_path):
    """Of an int32 set the largest value becomes 1, which another set need not have."""
    images = np.random.default_rng(0).integers(0, 900, (4, 8, 8)).astype(np.int32)
    np.savez(tmp_path / "new.npz", test_images=images, test_labels=[0, 1, 0, 1])
    known = replace(PREPARED, scale=30_000.0)
    found = reopen_data(tmp_path / "model.safetensors", known, str(tmp_path / "new.npz"))
    np.testing.assert_allclose(found["test"].batch(slice(None))[0][:, 0], images / 30_000, rtol=1e-6)


def test_pictures_for_a_network_of_floats_from_0_to_255_are_refused(tmp_path, photos):
    known = Preprocessing((8, 8), (120.0,) * 3, (60.0,) * 3, scale=1.0)
    with pytest.raises(ValueError, match=r"photos: the values are uint8, and the network was trained on floats"):
        reopen_data(tmp_path / "model.safetensors", known, str(photos))


def test_floats_from_0_to_255_for_a_network_of_bytes_are_refused(tmp_path):
    images = np.random.default_rng(0).random((4, 8, 8)).astype(np.float32)
    known = replace(PREPARED, scale=255.0)
    for name, values in (("shares", images), ("levels", 255 * images), ("signed", 2 * images - 1)):
        np.savez(tmp_path / f"{name}.npz", test_images=values, test_labels=[0, 1, 0, 1])
    found = reopen_data(tmp_path / "model.safetensors", known, str(tmp_path / "shares.npz"))
    np.testing.assert_array_equal(found["test"].batch(slice(None))[0][:, 0], images)
    for name in ("levels", "signed"):
        message = f"{name}: the values are float32, which have no scale .* trained on values up to 255: give it floats"
        with pytest.raises(ValueError, match=message):
            reopen_data(tmp_path / "model.safetensors", known, str(tmp_path / f"{name}.npz"))


def test_data_that_changed_since_training_has_a_note(tmp_path, photos):
    settings = TrainSettings("gmr_resnet18", str(photos), data_options={"seed": 7}, test_images=3)
    about = {"parameters": 1, "data": about_data(prepare_data(settings))}
    checkpoint = new_run(tmp_path, settings, "run", None, about) / "model.safetensors"
    assert not any("changed" in note for note in reopen_data(checkpoint, PREPARED).notes)
    for number in range(5):
        Image.new("RGB", (8, 8)).save(photos / "a" / f"new{number}.png")
    said = [note for note in reopen_data(checkpoint, PREPARED).notes if "has changed since training" in note]
    assert len(said) == 1
    assert "train 24, test 3 and are train 28, test 3" in said[0]
    assert not any("changed" in note for note in reopen_data(checkpoint, PREPARED, given={"test": 0.5}).notes)


def test_figures_read_data_as_their_run_did(runs, tmp_path, photos):
    config = json.loads((runs.ring / "config.json").read_text())
    config["settings"]["data_options"] = {"per_class": 3, "grey": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((runs.ring / "model.safetensors").read_bytes())
    networks = read_networks([tmp_path / "model.safetensors"])
    assert images_for(networks, str(photos), count=100).images.shape == (21, 1, 20, 20)


# -- classes


def test_classes_in_another_order_are_renumbered(photos):
    data = open_data(photos)
    found = with_classes_of(("c", "a", "b"), data)
    assert found.classes == ("c", "a", "b")
    for split in ("train", "test"):
        assert [found.classes[label] for label in found[split].labels] == [
            data.classes[label] for label in data[split].labels
        ]
    assert with_classes_of(("a", "b", "c"), data) is data
    assert with_classes_of((), data) is data


def test_numbers_that_are_names_are_matched_as_names(photos):
    """Folders are sorted as text, 10 before 2; a CSV and the classes of an npz by number."""
    by_number = tuple(map(str, range(12)))
    data = replace(open_data(photos), classes=tuple(sorted(by_number)))
    found = with_classes_of(by_number, data)
    assert found.classes == by_number
    for split in ("train", "test"):
        assert [found.classes[label] for label in found[split].labels] == [
            data.classes[label] for label in data[split].labels
        ]


def test_other_classes_are_refused(photos):
    data = open_data(photos)
    with pytest.raises(ValueError, match=r"photos has the classes b, c that .* does not know; it knows B, d instead"):
        with_classes_of(("a", "B", "d"), data)
    with pytest.raises(ValueError, match=r"photos has the classes c that .* does not know; it knows a, b only"):
        with_classes_of(("a", "b"), data)


def test_some_classes_may_not_be_there(photos):
    data = open_data(photos)
    found = with_classes_of(("z", "c", "y", "b", "a"), data)
    assert found.classes == ("z", "c", "y", "b", "a")
    for split in ("train", "test"):
        assert [found.classes[label] for label in found[split].labels] == [
            data.classes[label] for label in data[split].labels
        ]
    assert found.notes == ("photos has no images of z, y, which the checkpoint knows too",)


def test_numbers_stand_for_any_names(photos):
    data = open_data(photos)
    numbered = replace(data, classes=("0", "1", "2"))
    for names, of, which in ((("c", "b", "a"), numbered, "photos"), (("0", "1", "2"), data, "the checkpoint")):
        found = with_classes_of(names, of)
        assert np.array_equal(found["test"].labels, of["test"].labels)
        assert found.notes == (f"{which} has numbers for classes instead of names, which are taken in their order",)
