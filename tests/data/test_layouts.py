"""Every loader on a small tree in its official layout: real files with what real files have in them."""

import pickle
import shutil

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from ringconv._torchvision import import_torchvision
from ringconv.data import LAYOUTS, DataOptions, open_data
from ringconv.data.decode import Item, Picture
from ringconv.data.files import read_files

import_torchvision()


def picture(path, seed=0, size=(20, 16), mode="RGB", colour=None):
    """(H, W) noise, or one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = {"RGB": 3, "RGBA": 4, "L": 1}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, channels), dtype=np.uint8)
    if colour is not None:
        pixels[...] = colour
    Image.fromarray(pixels[..., 0] if mode == "L" else pixels).save(path)
    return pixels


def class_folders(root, classes=("benign", "malignant"), count=6, ending="png", **options):
    for number, title in enumerate(classes):
        for row in range(count):
            picture(root / title / f"{row:03d}.{ending}", seed=100 * number + row, **options)
    return root


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


# -- folders of class folders


def test_a_round_trip_split_cached_loaded(tmp_path, cache_of_its_own):
    root = class_folders(tmp_path / "set", count=10)
    data = open_data(root, test=0.3, validation=0.2, seed=4)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 12, "val": 2, "test": 6}
    assert data.classes == ("benign", "malignant")
    assert isinstance(data["train"].images.of.of, np.memmap)
    written = sorted(
        np.asarray(Image.open(path)).tobytes() + bytes([number])
        for number, title in enumerate(data.classes)
        for path in (root / title).iterdir()
    )
    loaded = []
    for split in data.splits.values():
        images, labels = split.batch(range(len(split)))
        pixels = (images * 255).round().byte().movedim(1, -1).numpy()
        loaded += [image.tobytes() + bytes([label]) for image, label in zip(pixels, labels, strict=True)]
    assert sorted(loaded) == written
    again = open_data(root, test=0.3, validation=0.2, seed=4)
    assert torch.equal(again["test"].batch(range(6))[0], data["test"].batch(range(6))[0])
    assert len(list(cache_of_its_own.iterdir())) == 1


def test_lazily_decoded_files_are_the_same(tmp_path, cache_of_its_own):
    root = class_folders(tmp_path / "set")
    cached, lazy = open_data(root), open_data(root, cache=False)
    assert torch.equal(cached["test"].batch([0, 1])[0], lazy["test"].batch([0, 1])[0])
    assert not list(cache_of_its_own.rglob("rows.npy"))[1:], "the second one stores no pixels"


def test_it_is_torchvisions_image_folder(tmp_path):
    from torchvision.datasets import ImageFolder

    root = class_folders(tmp_path / "set" / "test", ("b", "A", "c c"), ending="jpg")
    data, reference = open_data(tmp_path / "set"), ImageFolder(root)
    assert list(data.classes) == reference.classes
    images, labels = data["test"].batch(range(len(reference)))
    for row, (image, label) in enumerate(reference):
        assert labels[row] == label
        assert np.array_equal((images[row] * 255).round().byte().movedim(0, -1).numpy(), np.asarray(image))


def test_odd_names_hidden_files_and_other_types(tmp_path):
    root = tmp_path / "set"
    names = ["UPPER.JPG", "with space (1).jpeg", "ünïcode.png", "two.dots.png", "deeper/still.bmp"]
    for title in ("a", "b"):
        for row, name in enumerate(names):
            picture(root / title / name, seed=row)
        (root / title / ".hidden.png").write_text("no picture")
        (root / title / "Thumbs.db").write_text("no picture")
    (root / ".git").mkdir()
    (root / "readme.txt").write_text("about")
    data = open_data(root)
    assert data.classes == ("a", "b")
    assert sum(map(len, data.splits.values())) == 2 * len(names)


def test_alpha_grey_and_palettes_become_rgb(tmp_path):
    root = tmp_path / "set" / "test"
    picture(root / "a" / "alpha.png", mode="RGBA", colour=(10, 20, 30, 128))
    picture(root / "a" / "grey.png", mode="L", colour=40)
    Image.new("RGB", (16, 20), (60, 70, 80)).convert("P", palette=Image.Palette.ADAPTIVE).save(root / "b.png")
    (root / "b").mkdir()
    shutil.move(root / "b.png", root / "b" / "palette.png")
    images, labels = open_data(tmp_path / "set")["test"].batch(range(3))
    colours = (images[:, :, 0, 0] * 255).round().int().tolist()
    assert colours == [[10, 20, 30], [40] * 3, [60, 70, 80]]
    assert labels.tolist() == [0, 0, 1]
    assert open_data(tmp_path / "set", grey=True)["test"].batch([1])[0].shape == (1, 1, 20, 16)


def test_sizes(tmp_path):
    root = tmp_path / "set"
    picture(root / "a" / "wide.png", size=(10, 40))
    picture(root / "b" / "tall.png", size=(40, 10))
    with pytest.raises(ValueError, match=r"tall.png decodes to the shape \(40, 10, 3\), others to \(10, 40, 3\); give"):
        open_data(root, test=0)
    assert open_data(root, test=0, size=8)["train"].size == (8, 8)
    left_right = np.zeros((8, 24, 3), np.uint8)
    left_right[:, 8:16] = 255
    Image.fromarray(left_right).save(root / "a" / "wide.png")
    squashed, cropped = (open_data(root, test=0, size=8, fit=fit)["train"][0][0] for fit in ("squash", "crop"))
    assert bool((cropped == 1).all())
    assert abs(float(squashed.mean()) - 1 / 3) < 0.05


def test_a_truncated_image_is_named_at_the_start(tmp_path):
    root = class_folders(tmp_path / "set", ending="jpg")
    truncate(root / "benign" / "000.jpg")
    truncate(root / "malignant" / "004.jpg")
    (root / "malignant" / "005.jpg").write_bytes(b"")
    for cache in (True, False):
        with pytest.raises(ValueError, match=r"3 of 12 images cannot be read:\n.*benign/000.jpg.*\n.*004.jpg.*\n.*005"):
            open_data(root, cache=cache)
        data = open_data(root, cache=cache, faults="skip", test=0)
        assert len(data["train"]) == 9
        assert data["train"].labels.tolist() == [0] * 5 + [1] * 4
        assert "3 of 12 images cannot be read" in data.notes[0]
        assert "000.jpg" in data.notes[0]
        whole = np.asarray(Image.open(root / "benign" / "001.jpg"))
        assert np.array_equal((data["train"][0][0] * 255).round().byte().movedim(0, -1).numpy(), whole)


def test_a_repaired_image_is_read_again(tmp_path):
    root = class_folders(tmp_path / "set")
    truncate(root / "benign" / "000.png")
    with pytest.raises(ValueError, match="cannot be read"):
        open_data(root)
    picture(root / "benign" / "000.png", seed=7)
    assert sum(map(len, open_data(root).splits.values())) == 12


def test_an_empty_class(tmp_path):
    root = class_folders(tmp_path / "set")
    (root / "normal").mkdir()
    (root / "normal" / "notes.txt").write_text("nothing yet")
    with pytest.raises(ValueError, match="1 of 3 classes have no image: normal; is the set complete"):
        open_data(root)
    data = open_data(root, faults="skip")
    assert data.classes == ("benign", "malignant", "normal")
    assert data.notes == ("1 of 3 classes have no image: normal",)


def test_a_class_that_is_only_tested(tmp_path):
    class_folders(tmp_path / "set" / "train", ("cat", "dog"))
    class_folders(tmp_path / "set" / "test", ("cat", "unknown"), count=2)
    with pytest.raises(ValueError, match=r"set: 1 of 3 classes have images in other splits, but none .*: unknown; is"):
        open_data(tmp_path / "set")
    data = open_data(tmp_path / "set", faults="skip")
    assert data.classes == ("cat", "dog", "unknown")
    assert data.notes == ("1 of 3 classes have images in other splits, but none to train on: unknown",)
    shutil.rmtree(tmp_path / "set" / "train")
    assert open_data(tmp_path / "set").classes == ("cat", "unknown"), "where there is nothing to train on, all is fine"


def test_one_image_of_each_class(tmp_path):
    data = open_data(class_folders(tmp_path / "set", ("a", "b", "c"), count=1, size=(256, 320)))
    assert data["train"].labels.tolist() == [0, 1, 2]
    assert data["train"].size == (256, 320)


def test_groups_of_a_folder(tmp_path):
    root = class_folders(tmp_path / "set", count=12)
    data = open_data(root, groups=lambda path: str(int(path.stem) // 3), test=0.25)
    assert not set(data["train"].groups) & set(data["test"].groups)
    lines = [f"{path.relative_to(root)},{int(path.stem) // 3}" for path in root.glob("*/*.png")]
    (tmp_path / "groups.csv").write_text("\n".join(["path,group", *lines]))
    for path in (tmp_path / "groups.csv", str(tmp_path / "groups.csv")):
        assert open_data(root, groups=path, test=0.25)["test"].groups.tolist() == data["test"].groups.tolist()
    (tmp_path / "groups.csv").write_text("\n".join(["path,group", *lines[1:]]))
    with pytest.raises(ValueError, match="has no line for"):
        open_data(root, groups=tmp_path / "groups.csv")


def test_per_class(tmp_path):
    root = class_folders(tmp_path / "set")
    data = open_data(root, per_class=2)
    assert np.bincount(data["train"].labels).tolist() == [2, 2]
    assert np.bincount(data["test"].labels).tolist() == [4, 4]
    with pytest.raises(ValueError, match="per_class must be at most 6, got 7"):
        open_data(root, per_class=7)


# -- CSV


def test_a_csv_with_groups_and_splits(tmp_path):
    for row in range(8):
        picture(tmp_path / "images" / f"{row}.png", seed=row)
    lines = ["Path,Class,Patient,Split"]
    lines += [f"images/{row}.png,{'ab'[row % 2]},p{row // 2},{'train' if row < 4 else 'Test'}" for row in range(8)]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    data = open_data(tmp_path / "list.csv")
    assert data.classes == ("a", "b")
    assert data["test"].labels.tolist() == [0, 1, 0, 1]
    assert data["test"].groups.tolist() == ["group p2", "group p2", "group p3", "group p3"]
    assert torch.equal(data["test"][0][0], open_data(tmp_path / "list.csv", cache=False)["test"][0][0])


def test_a_csv_without_splits_keeps_patients_whole(tmp_path):
    for row in range(20):
        picture(tmp_path / f"{row}.png", seed=row)
    lines = ["image,label,patient", *(f"{row}.png,{row % 10 + 1},{row // 2}" for row in range(20))]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    data = open_data(tmp_path / "list.csv", test=0.3)
    assert data.classes == tuple(str(number) for number in range(1, 11)), "numbers in their own order"
    assert not set(data["train"].groups) & set(data["test"].groups)


def test_repeated_files_in_another_order(tmp_path):
    colours = {"dark.png": 10, "light.png": 200}
    for name, colour in colours.items():
        picture(tmp_path / name, colour=colour)
    for names in (["dark.png", "dark.png", "light.png"], ["dark.png", "light.png", "light.png"]):
        items = [Item(tmp_path / name) for name in names]
        rows, _ = read_files("set", items, Picture(), DataOptions(), lambda stage, done, total: None)
        assert rows[:, 0, 0, 0].tolist() == [colours[name] for name in names]


@pytest.mark.parametrize("labels", [("0.0", "1.0"), ("1.5", "3T"), ("10", "9"), ("²", "x")])
def test_labels_that_are_classes(tmp_path, labels):
    for row in range(len(labels)):
        picture(tmp_path / "images" / f"{row}.png", seed=row)
    lines = (f"images/{row}.png,{label}" for row, label in enumerate(labels))
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]), encoding="utf-8")
    assert set(open_data(tmp_path / "list.csv", test=0).classes) == set(labels)


def test_a_file_twice_in_a_csv_is_read_once(tmp_path):
    for row in range(10):
        picture(tmp_path / f"{row}.png", seed=row)
    lines = [f"{row}.png,{'ab'[row % 2]}" for row in range(10)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines, *(f"./{line}" for line in lines[:7])]))
    data = open_data(tmp_path / "list.csv", test=0.4)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 6, "test": 4}
    assert data.notes == ("7 of 17 lines list a file that is in a line above, and are left out",)


def test_columns_that_are_not_used_are_noted(tmp_path):
    for row in range(4):
        picture(tmp_path / f"{row}.png", seed=row)
    for extra, note in (
        ("patient_id,age", ("columns that are not used: patient_id, age; one called group or patient would keep",)),
        ("patient,age", ("columns that are not used: age",)),
        ("patient,slide", ("columns that are not used: slide",)),
        ("patient,", ()),
    ):
        lines = [f"path,label,{extra}", *(f"{row}.png,{'ab'[row % 2]},{row},{row}" for row in range(4))]
        (tmp_path / "list.csv").write_text("\n".join(lines))
        found = open_data(tmp_path / "list.csv").notes
        assert len(found) == len(note)
        assert all(one.startswith(start) for one, start in zip(found, note, strict=True))


def test_a_csv_of_masks(tmp_path):
    for row in range(5):
        picture(tmp_path / f"{row}.png", seed=row)
        Image.fromarray(np.eye(20, 16, dtype=np.uint8) * 255).save(tmp_path / f"mask{row}.png")
    (tmp_path / "list.csv").write_text("\n".join(["path,mask", *(f"{row}.png,mask{row}.png" for row in range(5))]))
    data = open_data(tmp_path / "list.csv")
    assert data.task == "segment"
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 4, "test": 1}
    assert torch.equal(data["test"][0][1], torch.eye(20, 16, dtype=torch.int64))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,label\nno.png,a\n", "line 2: there is no file"),
        ("path,label\n0.png,\n", "no label in line 2, and in 1 lines"),
        ("file,kind\n0.png,a\n", r"needs the columns path and label \(or mask\).*got \['file', 'kind'\]"),
        ("path,label,split\n0.png,a,later\n", "line 2: the split must be of train, val and test, got 'later'"),
        ("path,label,split\n0.png,a,train\n0.png,a,\n", "some lines have a split and some have none"),
        ("path,mask\n0.png,\n", "line 2 has no mask"),
        ("path,label\n0.png,a\n,b\n", "line 3 has no path"),
        ("path,label\n0.png,0.0\n1.png,0.37\n", r"labels must be classes, and '0\.37' in line 3 is a measure"),
        ("path,label\n0.png,1\n1.png,nan\n", "labels must be classes, and 'nan' in line 3 is a measure"),
        ("path,label\n0.png,a\n./0.png,b\n", r"line 3: .*0\.png is in line 2 too, with another label; list it once"),
        ("path,label,split\n0.png,a,train\n0.png,a,test\n", "line 3: .* is in line 2 too, with another split"),
        ("path,mask\n0.png,0.png\n0.png,1.png\n", "line 3: .* is in line 2 too, with another mask"),
        ("path,label,group,split\n0.png,a,p,train\n0.png,a,p,test\n", "the group 'p' is in 'train' and in 'test'"),
    ],
)
def test_a_wrong_csv(content, message, tmp_path):
    picture(tmp_path / "0.png")
    picture(tmp_path / "1.png")
    (tmp_path / "list.csv").write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_data(tmp_path / "list.csv")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_csv_must_be_utf_8(encoding, tmp_path):
    picture(tmp_path / "set" / "a" / "0.png")
    for name, column in (("list", "label"), ("groups", "group")):
        (tmp_path / f"{name}.csv").write_text(f"path,{column}\nset/a/0.png,Äpfel\n", encoding=encoding)
    with pytest.raises(ValueError, match=r"list\.csv must be UTF-8"):
        open_data(tmp_path / "list.csv")
    with pytest.raises(ValueError, match=r"groups\.csv must be UTF-8"):
        open_data(tmp_path / "set", groups=tmp_path / "groups.csv")


# -- bands and volumes


def test_bands(tmp_path):
    bands = np.random.default_rng(0).integers(0, 65536, (4, 9, 7, 12), dtype=np.uint16)
    for row in range(4):
        path = tmp_path / "set" / "ab"[row % 2] / f"{row}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Interleaved and by planes: the same values.
        if row < 2:
            tifffile.imwrite(path, bands[row], planarconfig="contig", photometric="minisblack")
        else:
            planes = np.ascontiguousarray(bands[row].transpose(2, 0, 1))
            tifffile.imwrite(path, planes, planarconfig="separate", photometric="minisblack")
    data = open_data(tmp_path / "set", test=0)
    assert data.channels == 12
    images = data["train"].batch(range(4))[0]
    expected = torch.from_numpy(bands[[0, 2, 1, 3]].astype(np.float32)).movedim(-1, 1) / 65535
    torch.testing.assert_close(images, expected)
    assert len(data.mean) == 12
    assert open_data(tmp_path / "set", test=0, size=5)["train"].batch([0])[0].shape == (1, 12, 5, 5)
    cropped = open_data(tmp_path / "set", test=0, size=7, fit="crop")["train"].batch(range(4))[0]
    torch.testing.assert_close(cropped, expected[:, :, 1:8])


def volume(path, shape=(6, 8, 10), spacing=(1.0, 1.0, 2.5), value=None, flip=False):
    """(X, Y, Z) int16, with a bright corner where x, y and z are smallest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    voxels = np.zeros(shape, np.int16)
    voxels[0, 0, 0] = 100
    if value is not None:
        voxels[...] = value
    affine = np.diag([*spacing, 1.0])
    if flip:
        voxels, affine[0, 0] = voxels[::-1], -spacing[0]
    nibabel.save(nibabel.Nifti1Image(voxels, affine), path)


def test_volumes_with_their_spacing(tmp_path):
    for row in range(4):
        volume(tmp_path / "set" / "ab"[row % 2] / f"{row}.nii.gz", flip=row > 1)
    data = open_data(tmp_path / "set", test=0)
    assert data.dimensions == 3
    assert data.spacing == (2.5, 1.0, 1.0)
    images = data["train"].batch(range(4))[0]
    assert images.shape == (4, 1, 10, 8, 6)
    corner = images[:, 0, 0, 0, 0]
    assert bool((corner > 0).all()), "axes point the same way, however the file stores them"
    assert bool((images.flatten(1).sum(1) == corner).all())


def test_volumes_of_unequal_spacing(tmp_path):
    volume(tmp_path / "set" / "a" / "0.nii", value=7)
    volume(tmp_path / "set" / "b" / "1.nii", shape=(6, 8, 30), spacing=(1.0, 1.0, 1.25), value=7)
    with pytest.raises(ValueError, match="decodes to the shape"):
        open_data(tmp_path / "set", test=0)
    with pytest.raises(ValueError, match=r"size, 3\.125 x 1 x 0\.75 in .*0\.nii and 4\.6875 x 1 x 0\.75 in .*; give"):
        open_data(tmp_path / "set", test=0, size=8)
    data = open_data(tmp_path / "set", test=0, spacing=(1.25, 1.0, 1.0), size=(16, 8, 8))
    assert data.spacing == (1.25, 1.0, 1.0)
    images = data["train"].batch([0, 1])[0]
    assert images.shape == (2, 1, 16, 8, 8)
    torch.testing.assert_close(images[0], images[1])


def test_volumes_that_are_cropped(tmp_path):
    for title in "ab":
        volume(tmp_path / "set" / title / "0.nii", shape=(6, 8, 10))
    whole, cropped = (open_data(tmp_path / "set", test=0, **options) for options in ({}, {"size": 3, "fit": "crop"}))
    assert cropped["train"].size == (3, 3, 3)
    assert cropped.spacing == (5.0, 2.0, 2.0), "of a cube of 6, not of all 10 x 8 x 6"
    cropped = open_data(tmp_path / "set", test=0, size=(10, 6, 6), fit="crop")
    assert torch.equal(cropped["train"].batch([0])[0], whole["train"].batch([0])[0][..., 1:7, :])


def test_volumes_of_a_spacing_are_cropped_about_their_middle(tmp_path):
    for title in "ab":
        (tmp_path / "set" / title).mkdir(parents=True)
        voxels = np.arange(10, dtype=np.int16)[:, None, None] * np.ones((1, 4, 4), np.int16)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / "set" / title / "0.nii")
    whole, part = (
        open_data(tmp_path / "set", test=0, spacing=(1.0, 1.0, 1.0), size=size)["train"].batch([0])[0]
        for size in ((4, 4, 10), (4, 4, 6))
    )
    assert len(whole.unique()) == 10
    assert torch.equal(part, whole[..., 2:8])


def test_volumes_are_smoothed_before_they_shrink(tmp_path):
    """Of planes that are black and white by turns, not every other one may be left."""
    for title in "ab":
        (tmp_path / "set" / title).mkdir(parents=True)
        voxels = (np.arange(24, dtype=np.int16) % 3 == 1)[:, None, None] * np.full((1, 24, 24), 300, np.int16)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / "set" / title / "0.nii")
    whole, small = (open_data(tmp_path / "set", test=0, size=size)["train"].batch([0])[0] for size in (None, 8))
    middle = small[..., 2:-2]
    assert middle.std() < 0.5 * whole.std()
    assert 0.5 * whole.mean() < middle.mean() < 1.5 * whole.mean()


def test_wide_integers(tmp_path):
    """32 bits hold far more than any picture: what is there must not be black."""
    levels = np.random.default_rng(0).integers(0, 2001, (2, 4, 4, 4), dtype=np.int32)
    for title, voxels in zip("ab", levels, strict=True):
        (tmp_path / "set" / title).mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / "set" / title / "0.nii")
    data = open_data(tmp_path / "set", test=0)
    images = data["train"].batch([0, 1])[0]
    assert images.max() == 1
    assert 0.8 < float(data.normalise(images).std()) < 1.2


def test_volumes_with_masks(tmp_path):
    for row in range(4):
        volume(tmp_path / f"{row}.nii.gz")
        volume(tmp_path / f"mask{row}.nii.gz")
    lines = ["path,mask", *(f"{row}.nii.gz,mask{row}.nii.gz" for row in range(4))]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    data = open_data(tmp_path / "list.csv", test=0.25)
    assert (data.task, data.dimensions) == ("segment", 3)
    assert data["test"][0][1].sum() == 1, "100 means foreground"


# -- the published sets


def cifar_batch(path, count=20, label=None, seed=0, key=str):
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = [label if label is not None else int(row % 10) for row in range(count)]
    with path.open("wb") as file:
        content = {"batch_label": b"x", "labels": labels, "data": images, "filenames": [b"a.png"]}
        pickle.dump({key(name): value for name, value in content.items()}, file, 2)
    return images


def test_cifar10(tmp_path, monkeypatch):
    root = tmp_path / "cifar-10-batches-py"
    batches = [cifar_batch(root / f"data_batch_{number}", seed=number) for number in range(1, 6)]
    test = cifar_batch(root / "test_batch", seed=9)
    for where in (tmp_path, root):
        data = open_data(where)
        assert data.name == "cifar10"
        assert {name: len(split) for name, split in data.splits.items()} == {"train": 100, "test": 20}
    images, labels = data["train"].batch([25, 3])
    assert torch.equal(images[0], torch.from_numpy(batches[1][5].reshape(3, 32, 32)) / 255)
    assert labels.tolist() == [5, 3]
    assert torch.equal(data["test"][7][0], torch.from_numpy(test[7].reshape(3, 32, 32)) / 255)
    assert data.mean == (0.4914, 0.4822, 0.4465)

    from torchvision.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(CIFAR10, "_load_meta", lambda self: None)
    assert np.array_equal(CIFAR10(tmp_path).data, np.stack([np.asarray(data["train"].images[r]) for r in range(100)]))


def test_cifar10_with_keys_of_bytes(tmp_path):
    images = cifar_batch(tmp_path / "cifar-10-batches-py" / "test_batch", key=str.encode)
    assert torch.equal(open_data(tmp_path)["test"][7][0], torch.from_numpy(images[7].reshape(3, 32, 32)) / 255)


def test_cifar10_does_not_run_what_a_pickle_says(tmp_path):
    class Harm:
        def __reduce__(self):
            return (tmp_path.joinpath("harmed").write_text, ("x",))

    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    cifar_batch(path)
    path.write_bytes(pickle.dumps({b"data": Harm(), b"labels": []}, 2))
    with pytest.raises(ValueError, match="only numpy arrays are read"):
        open_data(tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_cifar10_that_is_broken(tmp_path):
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    cifar_batch(path, label=11)
    with pytest.raises(ValueError, match="test_batch: 20 images need as many labels from 0 to 9"):
        open_data(tmp_path)
    cifar_batch(path)
    truncate(path)
    with pytest.raises(ValueError, match="test_batch is not a complete batch"):
        open_data(tmp_path)


def vhr10(root, scenes=12):
    """Each scene is one grey per box, so that a crop shows which box it is."""
    truth = root / "ground truth"
    truth.mkdir(parents=True)
    (root / "positive image set").mkdir()
    for scene in range(1, scenes + 1):
        pixels = np.zeros((120, 160, 3), np.uint8)
        lines = []
        for label in range(1, 11):
            x, y = 15 * (label - 1), 10 + scene
            pixels[y : y + 20, x : x + 14] = 20 * label
            spaces = " " if scene % 2 else ""
            lines.append(f"({x},{spaces}{y}),({x + 14},{y + 20}),{spaces}{label} ")
        Image.fromarray(pixels).save(root / "positive image set" / f"{scene:03d}.jpg", quality=95)
        (truth / f"{scene:03d}.txt").write_text("\r\n".join(lines) + "\r\n\r\n")
    return root


def test_nwpu10(tmp_path):
    root = vhr10(tmp_path / "NWPU VHR-10 dataset")
    data = open_data(root, per_class=4)
    assert data.name == "nwpu10"
    assert data.classes[9] == "vehicle"
    assert np.bincount(data["train"].labels).tolist() == [4] * 10
    assert np.bincount(data["test"].labels).tolist() == [8] * 10
    assert data["train"].size == (64, 64)
    images, labels = data["test"].batch(range(80))
    shown = (images[:, :, 24:40, 24:40].mean((1, 2, 3)) * 255).round()
    assert bool(((shown - 20 * (labels + 1)).abs() <= 4).all()), "every crop is its own box"
    assert "% of the test crops come from scenes that are trained on" in data.notes[-1]
    whole = open_data(root, per_class=4, grouped=True)
    assert not set(whole["train"].groups) & set(whole["test"].groups)
    assert whole.notes[-1].startswith("0% of the test crops")
    with pytest.raises(ValueError, match="per_class must be at most 12, got 100"):
        open_data(root)


def test_nwpu10_that_is_broken(tmp_path):
    root = vhr10(tmp_path / "set")
    first = root / "ground truth" / "001.txt"
    lines = first.read_text()
    first.write_text(lines + "(1,2),(3,4),11\n")
    with pytest.raises(ValueError, match=r"001.txt, line 12: the class must be from 1 to 10, got 11"):
        open_data(root, per_class=4)
    first.write_text("1 2 3 4 5\n")
    with pytest.raises(ValueError, match=r"001.txt, line 1: expected \(x1,y1\),\(x2,y2\),class, got '1 2 3 4 5'"):
        open_data(root, per_class=4)
    first.write_text(lines + "(500,2),(600,4),1\n")
    with pytest.raises(ValueError, match=r"1 of 121 images cannot be read:\n.*001.jpg.*box .* is empty in a picture"):
        open_data(root, per_class=4)
    first.write_text(lines)
    truncate(root / "positive image set" / "003.jpg")
    assert len(open_data(root, per_class=4, faults="skip")["test"]) == 70
    (root / "positive image set" / "004.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"004.jpg is missing"):
        open_data(root, per_class=4)


def test_mtarsi(tmp_path):
    root = class_folders(tmp_path / "MTARSI", ("A-10", "B-1", "KC-10"), count=5, ending="jpg", size=(33, 47))
    for data in (open_data(root, per_class=3), open_data(root, layout="mtarsi", per_class=3)):
        assert data.name == "mtarsi"
        assert data["train"].size == (64, 64)
        assert np.bincount(data["train"].labels).tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="at most 5, got 200"):
        open_data(root)


def test_nct_crc(tmp_path):
    classes = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
    class_folders(tmp_path / "NCT-CRC-HE-100K", classes, count=3, ending="tif")
    class_folders(tmp_path / "CRC-VAL-HE-7K", classes, count=2, ending="tif")
    for where in (tmp_path, tmp_path / "NCT-CRC-HE-100K"):
        data = open_data(where, validation=1 / 3)
        assert data.name == "nct_crc"
        assert data.classes == classes
        assert {name: len(split) for name, split in data.splits.items()} == {"train": 18, "val": 9, "test": 18}
    assert data.mean == (0.485, 0.456, 0.406)
    truncate(tmp_path / "NCT-CRC-HE-100K" / "ADI" / "000.tif")
    with pytest.raises(ValueError, match=r"1 of 45 images cannot be read:\n.*ADI/000.tif"):
        open_data(tmp_path)
    assert len(open_data(tmp_path, faults="skip")["train"]) == 26


def pcam(root, part, count=10):
    root.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 96, 96, 3), dtype=np.uint8)
    with h5py.File(root / f"camelyonpatch_level_2_split_{part}_x.h5", "w") as file:
        file["x"] = images
    with h5py.File(root / f"camelyonpatch_level_2_split_{part}_y.h5", "w") as file:
        file["y"] = (np.arange(count) % 2).reshape(-1, 1, 1, 1).astype(np.uint8)


def test_pcam_is_torchvisions(tmp_path):
    from torchvision.datasets import PCAM

    for part in ("train", "valid", "test"):
        pcam(tmp_path / "pcam", part)
    reference = PCAM(tmp_path, "test")
    for options in ({}, {"cache": True}):
        data = open_data(tmp_path, **options)
        assert data.name == "pcam"
        assert {name: len(split) for name, split in data.splits.items()} == {"train": 10, "val": 10, "test": 10}
        images, labels = data["test"].batch([7, 2, 7])
        for image, label, row in zip(images, labels, (7, 2, 7), strict=True):
            assert np.array_equal((image * 255).round().byte().movedim(0, -1).numpy(), np.asarray(reference[row][0]))
            assert label == reference[row][1]
    assert isinstance(data["test"].images, np.memmap)


def test_validation_where_there_is_none(tmp_path):
    pcam(tmp_path, "train")
    data = open_data(tmp_path, validation=0.2)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 8, "val": 2}
    assert np.bincount(data["val"].labels).tolist() == [1, 1]
    data = open_data("textures", validation=0.2)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 840, "val": 210, "test": 700}


def test_pcam_that_is_broken(tmp_path):
    pcam(tmp_path, "test")
    truncate(tmp_path / "camelyonpatch_level_2_split_test_x.h5")
    with pytest.raises(ValueError, match=r"test_x.h5 cannot be read"):
        open_data(tmp_path)
    pcam(tmp_path, "test")
    (tmp_path / "camelyonpatch_level_2_split_test_y.h5").unlink()
    with pytest.raises(FileNotFoundError, match=r"its labels .* are not"):
        open_data(tmp_path)


def test_imagenet(tmp_path):
    class_folders(tmp_path / "train", ("n01440764", "n01443537"), count=3, ending="JPEG", size=(30, 50))
    class_folders(tmp_path / "val", ("n01440764", "n01443537"), count=2, ending="JPEG", size=(40, 30))
    data = open_data(tmp_path, size=32)
    assert data.name == "imagenet"
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 6, "test": 4}
    assert data["test"].batch([0])[0].shape == (1, 3, 32, 32)
    torch.save(({"n01440764": ("tench", "Tinca tinca"), "n01443537": ("goldfish",)}, []), tmp_path / "meta.bin")
    assert open_data(tmp_path, size=32).classes == ("tench, Tinca tinca", "goldfish")


BOX = [(x, y, z) for x in (0, 1) for y in (0, 2) for z in (0, 4)]
FACES = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]


def mesh(path, header="OFF\n", scale=1.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    triangles = [t for a, b, c, d in FACES for t in ((a, b, c), (a, c, d))]
    lines = [f"{header}{len(BOX)} {len(triangles)} 0"]
    lines += [" ".join(str(scale * v) for v in vertex) for vertex in BOX]
    lines += [f"3 {a} {b} {c}" for a, b, c in triangles]
    path.write_text("\n".join(lines) + "\n")


def test_modelnet(tmp_path):
    for title in ("bathtub", "bed"):
        for row in range(3):
            split = "train" if row < 2 else "test"
            # As in the real set, some headers are joined to the counts.
            mesh(tmp_path / title / split / f"{title}_{row}.off", "OFF" if row % 2 else "OFF\n", scale=10.0**row)
    data = open_data(tmp_path)
    assert data.name == "modelnet"
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 4, "test": 2}
    grids = data["train"].batch(range(4))[0]
    assert grids.shape == (4, 1, 32, 32, 32)
    assert set(grids.unique().tolist()) == {0.0, 1.0}
    for grid in grids[:, 0]:
        extent = [int(axis.max() - axis.min()) + 1 for axis in grid.nonzero().T]
        assert extent == [32, 16, 8], "z is D, and the longest side fills the grid, whatever the unit"
        assert grid[4:28, 10:22, 13:19].sum() == 0, "a surface is hollow"
    assert torch.equal(grids, open_data(tmp_path, cache=False)["train"].batch(range(4))[0]), "the same points again"
    assert open_data(tmp_path, size=16)["train"].size == (16, 16, 16)
    (tmp_path / "bed" / "train" / "bed_0.off").write_text("OFF\n8 12 0\n0 0")
    with pytest.raises(ValueError, match=r"1 of 6 images cannot be read:\n.*bed_0.off"):
        open_data(tmp_path)
    (tmp_path / "bed" / "train" / "bed_0.off").write_text("OFF\n0 0 0\n")
    assert len(open_data(tmp_path, faults="skip")["train"]) == 3


def test_cryonuseg(tmp_path):
    masks = tmp_path / "Annotator 1 (biologist)" / "Annotator 1" / "mask binary"
    masks.mkdir(parents=True)
    for organ in ("AdrenalGland", "Larynx"):
        for row in (1, 2, 3):
            name = f"Human_{organ}_{row:02d}"
            picture(tmp_path / "tissue images" / f"{name}.tif", seed=row)
            Image.fromarray(np.tri(20, 16, dtype=np.uint8) * (255 if row > 1 else 1)).save(masks / f"{name}.png")
    data = open_data(tmp_path)
    assert (data.name, data.task) == ("cryonuseg", "segment")
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 4, "test": 2}
    for split in data.splits.values():
        _, targets = split.batch(range(len(split)))
        assert torch.equal(targets, torch.tril(torch.ones(20, 16, dtype=torch.int64)).expand_as(targets))
    (masks / "Human_Larynx_02.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"no mask for 1 images: Human_Larynx_02.tif"):
        open_data(tmp_path)


def test_textures():
    data = open_data("textures")
    assert data["train"].batch([0, 1])[0].shape == (2, 1, 32, 32)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 1050, "test": 700}


# -- finding


@pytest.mark.parametrize("name", LAYOUTS)
def test_missing_data_says_what_is_expected_and_where_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("RINGCONV_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as raised:
        open_data(name)
    message = str(raised.value)
    assert LAYOUTS[name].tree in message
    assert LAYOUTS[name].source in message
    assert ("ringconv data fetch" in message) == bool(LAYOUTS[name].downloads)
    (tmp_path / "somewhere").mkdir()
    with pytest.raises(FileNotFoundError, match="Expected is"):
        open_data(tmp_path / "somewhere", layout=name)


def test_a_published_set_by_name(tmp_path):
    cifar_batch(tmp_path / "cifar-10-batches-py" / "test_batch")
    class_folders(tmp_path / "mine")
    assert open_data("cifar10", root=tmp_path).name == "cifar10"
    assert open_data("mine", root=tmp_path).name == "mine"
    assert open_data("mine", root=str(tmp_path), cache_folder=str(tmp_path / "cache")).name == "mine"
    assert list((tmp_path / "cache").iterdir())
    assert open_data(tmp_path / "mine").name == "mine", "not the set that lies beside it"


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder nowhere.*names that are known are textures"):
        open_data("nowhere")
    with pytest.raises(ValueError, match="none of the known layouts"):
        open_data(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match="must be an npz or a csv"):
        open_data(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="layout must be one of cifar10"):
        open_data(tmp_path, layout="cifar")
    with pytest.raises(TypeError, match="sise"):
        open_data(tmp_path, sise=3)
    for options, message in (
        ({"size": 0}, "size must be at least 1"),
        ({"fit": "stretch"}, "fit must be 'squash' or 'crop'"),
        ({"faults": "ignore"}, "faults must be"),
        ({"validation": 1.5}, "validation must be a share"),
        ({"spacing": (1.0, 0.0, 1.0)}, "spacing must be three positive numbers"),
        ({"spacing": 2}, "spacing must be three positive numbers, .* along D, H and W, got 2"),
        ({"spacing": [2, 2]}, r"spacing must be three positive numbers, .*, got \[2, 2\]"),
        ({"spacing": "2,2,2"}, "spacing must be three positive numbers, .*, got 2,2,2"),
    ):
        with pytest.raises(ValueError, match=message):
            open_data(tmp_path, **options)
