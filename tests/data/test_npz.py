"""npz in the layout of MedMNIST."""

import zipfile

import numpy as np
import pytest
import torch

from ringconv.data import open_data


def save(path, count=20, shape=(8, 8, 3), **more):
    generator = np.random.default_rng(1)
    arrays = {}
    for split in ("train", "test"):
        arrays[f"{split}_images"] = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"{split}_labels"] = (np.arange(count) % 4)[:, None].astype(np.uint8)
    np.savez_compressed(path, **(arrays | more))
    return arrays


def test_by_path_and_by_name(tmp_path, monkeypatch):
    arrays = save(tmp_path / "cells.npz", class_names=np.array(["a", "b", "c", "d"]))
    monkeypatch.setenv("RINGCONV_DATA", str(tmp_path))
    for data in (open_data(tmp_path / "cells.npz"), open_data("cells"), open_data("cells", root=tmp_path)):
        assert data.name == "cells"
        assert data.task == "classify"
        assert data.classes == ("a", "b", "c", "d")
        assert {name: len(split) for name, split in data.splits.items()} == {"train": 20, "test": 20}
        assert torch.equal(data["test"][3][0], torch.from_numpy(arrays["test_images"][3]).movedim(-1, 0) / 255)
        assert data["test"][3][1] == 3


def test_arrays_are_memory_mapped_and_unpacked_once(tmp_path, cache_of_its_own):
    save(tmp_path / "set.npz")
    data = open_data(tmp_path / "set.npz")
    assert isinstance(data["test"].images, np.memmap)
    (folder,) = cache_of_its_own.iterdir()
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    open_data(tmp_path / "set.npz")
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    save(tmp_path / "set.npz", count=12)
    assert len(open_data(tmp_path / "set.npz")["test"]) == 12, "a changed file is read again"


@pytest.mark.parametrize(
    ("shape", "dimensions", "channels"),
    [
        ((8, 8), 2, 1),
        ((8, 8, 1), 2, 1),
        ((8, 8, 3), 2, 3),
        ((8, 8, 8), 3, 1),
        ((8, 8, 8, 2), 3, 2),
    ],
)
def test_pictures_and_volumes(tmp_path, shape, dimensions, channels):
    save(tmp_path / "set.npz", shape=shape)
    data = open_data(tmp_path / "set.npz")
    assert (data.dimensions, data.channels) == (dimensions, channels)
    assert data["train"].batch([0])[0].shape == (1, channels, *[8] * dimensions)


@pytest.mark.parametrize(
    ("shape", "doubtful"),
    [
        ((3, 20, 20), True),
        ((20, 20, 5), True),
        ((16, 20, 20), True),
        ((17, 20, 20), False),
        ((8, 8, 8), False),
        ((8, 10, 12), False),
        ((20, 20, 3), False),
        ((20, 20, 3, 1), False),
        ((3, 20, 20, 1), False),
        ((20, 20), False),
    ],
)
def test_volumes_that_may_be_pictures_have_a_note(tmp_path, shape, doubtful):
    save(tmp_path / "set.npz", shape=shape)
    data = open_data(tmp_path / "set.npz")
    assert [f"shape {shape} are read as volumes" in note for note in data.notes] == [True] * doubtful
    assert data.dimensions == (2 if shape[2:] in ((), (3,)) else 3)


def test_masks_groups_and_validation(tmp_path):
    images = np.zeros((12, 4, 6, 3), np.uint8)
    np.savez(
        tmp_path / "set.npz",
        train_images=images,
        train_masks=np.ones((12, 4, 6), np.uint8),
        train_groups=np.repeat(np.arange(4), 3),
    )
    data = open_data(tmp_path / "set.npz", validation=0.25)
    assert data.task == "segment"
    assert data.classes == ("background", "foreground")
    assert not set(data["train"].groups) & set(data["val"].groups)
    assert len(data["val"]) == 3


def test_a_group_in_two_splits_is_refused(tmp_path):
    groups = {"train_groups": np.arange(20), "test_groups": np.arange(19, 39)}
    save(tmp_path / "set.npz", **groups)
    with pytest.raises(ValueError, match=r"set.npz: the group '19' is in 'train' and in 'test'; a split must not cut"):
        open_data(tmp_path / "set.npz")
    save(tmp_path / "set.npz", **groups | {"test_groups": np.arange(20, 40)})
    assert open_data(tmp_path / "set.npz")["test"].groups[0] == "20"


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (np.arange(20) % 4 + 0.5, r"got 0.5 \(float64\) at row 0"),
        (np.where(np.arange(20) < 3, 0, np.nan), r"got nan \(float64\) at row 3"),
        (np.where(np.arange(20) < 3, 0, np.inf), r"got inf \(float64\) at row 3"),
        (np.array([["cat"], ["dog"]] * 10), r"got cat \(<U3\) at row 0; their names belong in class_names"),
        (np.zeros(20, complex), "got 0j .complex128"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(tmp_path, labels, found):
    save(tmp_path / "set.npz", test_labels=labels)
    with pytest.raises(ValueError, match=rf"set.npz: test_labels must be class numbers, .*{found}"):
        open_data(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        ([0, 1], [1, 2], None, "1 of 3 classes have images in other splits, but none to train on: 2"),
        ([1, 2], [1, 2], None, "1 of 3 classes have no image: 0"),
        ([0, 1], [0, 1], ["a", "b", "c"], "1 of 3 classes have no image: c"),
        ([0, 14], [0, 1], None, "12 of 15 classes have no image: 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 2 more; 1 of 15"),
    ],
)
def test_classes_without_images_to_train_on_are_refused(tmp_path, train, test, names, message):
    more = {} if names is None else {"class_names": names}
    save(tmp_path / "set.npz", train_labels=np.tile(train, 10), test_labels=np.tile(test, 10), **more)
    with pytest.raises(ValueError, match=f"set: {message}.* is the set complete"):
        open_data(tmp_path / "set.npz")
    data = open_data(tmp_path / "set.npz", faults="skip")
    assert "; ".join(data.notes).startswith(message)
    assert data["test"].labels.tolist() == test * 10


def test_numbers_that_are_no_class_numbers_are_refused_at_once(tmp_path):
    labels = np.tile([0, 10**15], 10)
    save(tmp_path / "set.npz", train_labels=labels, test_labels=labels)
    with pytest.raises(ValueError, match="set: 999999999999999 of 1000000000000001 classes have no image: 1, 2"):
        open_data(tmp_path / "set.npz")


def test_what_is_only_tested_on_may_lack_classes(tmp_path):
    images = np.zeros((4, 8, 8), np.uint8)
    np.savez(tmp_path / "set.npz", test_images=images, test_labels=[0, 2, 2, 0], class_names=["a", "b", "c", "d"])
    data = open_data(tmp_path / "set.npz")
    assert data.classes == ("a", "b", "c", "d")
    assert data.notes == ("2 of 4 classes have no image: b, d",)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64])
def test_whole_numbers_of_any_type_are_labels(tmp_path, dtype):
    save(tmp_path / "set.npz", test_labels=(np.arange(20) % 4).astype(dtype))
    assert open_data(tmp_path / "set.npz")["test"].targets.tolist() == (np.arange(20) % 4).tolist()


@pytest.mark.parametrize("dtype", [complex, "U3"])
def test_images_must_be_real_numbers(tmp_path, dtype):
    images = np.zeros((20, 8, 8), dtype)
    save(tmp_path / "set.npz", train_images=images, test_images=images)
    with pytest.raises(ValueError, match=rf"set.npz: train_images must be real numbers, got {images.dtype}"):
        open_data(tmp_path / "set.npz")


def test_known_sets_are_normalised_as_in_the_paper(tmp_path):
    save(tmp_path / "cifar10_20k.npz")
    assert open_data(tmp_path / "cifar10_20k.npz").mean == (0.4914, 0.4822, 0.4465)
    save(tmp_path / "cifar10.npz", shape=(8, 8))
    assert len(open_data(tmp_path / "cifar10.npz").mean) == 1, "but not in another number of channels"


def test_what_is_wrong_is_said(tmp_path):
    path = tmp_path / "set.npz"
    save(path, test_labels=np.full((20, 1), 9), class_names=np.array(["a", "b", "c", "d"]))
    with pytest.raises(ValueError, match="set, test: 20 labels are not of the 4 classes"):
        open_data(path)
    save(path, train_labels=np.arange(20) % 2 - 1)
    with pytest.raises(ValueError, match="set, train: 10 labels are not of the 4 classes 0 to 3; the first is -1"):
        open_data(path)
    save(path, train_labels=np.zeros((20, 3), np.uint8))
    with pytest.raises(ValueError, match="3 labels per image"):
        open_data(path)
    np.savez(path, images=np.zeros(3))
    with pytest.raises(ValueError, match=r"has no train_images.*it has \['images'\]"):
        open_data(path)
    np.savez(path, test_images=np.zeros((3, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="neither test_labels nor test_masks"):
        open_data(path)
    save(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="is not a complete npz"):
        open_data(path)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_splits_of_several_types_are_refused_since_their_scales_differ(tmp_path, dtype):
    images = np.arange(4 * 64).reshape(4, 8, 8).astype(np.uint8)
    arrays = {"train_images": images, "test_images": images.astype(dtype)}
    np.savez(tmp_path / "mixed.npz", train_labels=[0, 1, 0, 1], test_labels=[0, 1, 0, 1], **arrays)
    with pytest.raises(ValueError, match=f"images of several types .train uint8, test {np.dtype(dtype)}"):
        open_data(tmp_path / "mixed.npz")


def test_pickles_in_an_npz_are_refused(tmp_path):
    save(tmp_path / "set.npz", class_names=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(ValueError, match="class_names is not an array of numbers or text"):
        open_data(tmp_path / "set.npz")


def test_entries_cannot_leave_the_cache(tmp_path, cache_of_its_own):
    save(tmp_path / "set.npz")
    with zipfile.ZipFile(tmp_path / "set.npz", "a") as archive:
        archive.writestr("../../escaped.npy", b"x")
    with pytest.raises(ValueError, match="an npz has no folders"):
        open_data(tmp_path / "set.npz")
    assert not list(cache_of_its_own.parent.rglob("escaped.npy"))
    assert not list(cache_of_its_own.iterdir()), "and what was begun is gone"


def test_a_split_without_images(tmp_path):
    nothing = {"test_images": np.zeros((0, 8, 8, 3), np.uint8), "test_labels": np.zeros((0, 1), np.uint8)}
    save(tmp_path / "set.npz", **nothing)
    assert list(open_data(tmp_path / "set.npz").splits) == ["train"]
    np.savez(tmp_path / "set.npz", **nothing)
    with pytest.raises(ValueError, match=r"set.npz has no image in test"):
        open_data(tmp_path / "set.npz")


def test_splits_of_several_sizes_need_one_that_all_are_brought_to(tmp_path):
    arrays = {f"{name}_images": np.zeros((4, 8, side), np.uint8) for name, side in (("train", 8), ("test", 10))}
    np.savez(tmp_path / "x.npz", **arrays, train_labels=np.arange(4) % 2, test_labels=np.arange(4) % 2)
    with pytest.raises(ValueError, match="one size, got train 8 x 8, test 8 x 10; give a size"):
        open_data(tmp_path / "x.npz")
    assert {split.size for split in open_data(tmp_path / "x.npz", size=8).splits.values()} == {(8, 8)}
