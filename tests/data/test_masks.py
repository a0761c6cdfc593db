"""Which classes masks hold."""

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from ringconv.data import open_data
from ringconv.data.decode import Item, Mask


def masks_of(*values, count=4):
    """(count, 8, 10): a column of each value, and 0 beside them."""
    masks = np.zeros((count, 8, 10), np.int64)
    for column, value in enumerate(values):
        masks[:, :, column] = value
    return masks


def save_csv(folder, masks, ending="png"):
    for row, mask in enumerate(masks):
        Image.new("RGB", mask.shape[::-1], (row, 0, 99)).save(folder / f"{row}.png")
        path = folder / f"mask{row}.{ending}"
        if ending == "tif":
            tifffile.imwrite(path, mask)
        else:
            Image.fromarray(mask).save(path)
    lines = ["path,mask", *(f"{row}.png,mask{row}.{ending}" for row in range(len(masks)))]
    (folder / "list.csv").write_text("\n".join(lines))
    return folder / "list.csv"


def save_npz(path, masks, **more):
    np.savez(path, train_images=np.zeros((*masks.shape, 3), np.uint8), train_masks=masks, **more)
    return path


@pytest.mark.parametrize(("kind", "ending"), [("uint16", "png"), ("uint16", "tif"), (">u2", "tif"), ("float32", "tif")])
@pytest.mark.parametrize("options", [{}, {"size": (4, 5)}, {"size": (4, 4), "fit": "crop"}])
def test_dim_masks_of_many_bits(kind, ending, options, tmp_path):
    path = save_csv(tmp_path, masks_of(0, 0, 0, 1, 1, 1, 1).astype(kind), ending)
    masks = open_data(path, test=0, **options)["train"].batch([0, 1])[1]
    assert masks.unique().tolist() == [0, 1]
    share = 0.5 if options.get("fit") else 0.4
    assert float(masks.float().mean()) == pytest.approx(share, abs=0.11)


def test_a_file_with_other_classes_is_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 300, np.uint16)).save(tmp_path / "mask.png")
    with pytest.raises(ValueError, match="class numbers below 3, got 300"):
        Mask(classes=3)(Item(tmp_path / "mask.png"))


@pytest.mark.parametrize("value", [1, 255])
def test_one_value_is_foreground(value, tmp_path):
    data = open_data(save_csv(tmp_path, masks_of(value).astype(np.uint8)))
    assert data.classes == ("background", "foreground")
    assert data.notes == ()
    data = open_data(save_npz(tmp_path / "set.npz", masks_of(value).astype(np.uint8)), validation=0.25)
    assert data.classes == ("background", "foreground")
    assert data.notes == (
        () if value == 1 else ("masks hold the values 0, 255: everything above 0 is read as foreground",)
    )
    for split in data.splits.values():
        assert torch.equal(split.batch([0])[1][0], torch.from_numpy(masks_of(1)[0]))


def test_several_values_are_classes(tmp_path):
    masks = masks_of(1, 3).astype(np.uint8)
    for path in (save_csv(tmp_path, masks), save_npz(tmp_path / "set.npz", masks)):
        data = open_data(path, test=0)
        assert data.classes == ("background", "1", "2", "3")
        assert data.notes == (
            "masks hold the values 0, 1, 3: each is read as a class of its own. Classes that are in no mask: 1 of 4,"
            " for which networks get outputs all the same; number the classes 0 to 2",
        )
        assert torch.equal(data["train"][0][1], torch.from_numpy(masks[0].astype(np.int64)))


def test_classes_that_are_in_no_mask_are_counted(tmp_path):
    """Values keep their numbers, so that they mean the same in a set that lacks one of them."""
    for row, (values, note) in enumerate((((10, 20, 30), "Classes that are in no mask: 27 of 31"), ((1, 2, 3), None))):
        data = open_data(save_npz(tmp_path / f"{row}.npz", masks_of(*values).astype(np.uint8)))
        assert len(data.classes) == max(values) + 1
        assert ("in no mask" in data.notes[0]) == (note is not None)
        assert (note or "") in data.notes[0]


def test_grey_levels_and_objects_are_foreground_and_noted(tmp_path):
    masks = masks_of(1, 2, 500).astype(np.uint16)
    for path in (save_csv(tmp_path, masks), save_npz(tmp_path / "set.npz", masks)):
        data = open_data(path, test=0)
        assert data.classes == ("background", "foreground")
        assert "masks hold the values 0, 1, 2, 500, which do not look like class numbers" in data.notes[0]
        assert torch.equal(data["train"][0][1], torch.from_numpy(masks_of(1, 1, 1)[0]))


def test_volumes_of_several_classes(tmp_path):
    for row in range(2):
        voxels = masks_of(1, 2)[0].reshape(4, 4, 5).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / f"{row}.nii")
    (tmp_path / "list.csv").write_text("path,mask\n0.nii,0.nii\n1.nii,1.nii\n")
    data = open_data(tmp_path / "list.csv", test=0)
    assert data.classes == ("background", "1", "2")
    assert data["train"][0][1].unique().tolist() == [0, 1, 2]


def test_a_broken_mask_is_named(tmp_path):
    path = save_csv(tmp_path, masks_of(1, 2).astype(np.uint8))
    (tmp_path / "mask2.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match="1 of 4 images cannot be read"):
        open_data(path)
    assert open_data(path, faults="skip").classes == ("background", "1", "2")


def test_names_of_classes_in_an_npz(tmp_path):
    path = tmp_path / "set.npz"
    save_npz(path, masks_of(255).astype(np.uint8), class_names=["background", "nucleus"])
    data = open_data(path)
    assert data.classes == ("background", "nucleus")
    assert data["train"].batch([0])[1].max() == 1
    save_npz(path, masks_of(2).astype(np.uint8), class_names=["background", "nucleus", "stroma"])
    data = open_data(path)
    assert data.notes == ()
    assert data["train"].batch([0])[1].max() == 2
    for names in (["background", "nucleus"], ["background", "nucleus", "stroma"]):
        save_npz(path, masks_of(1, 2, 3).astype(np.uint8), class_names=names)
        with pytest.raises(ValueError, match=rf"with {len(names)} class_names, masks must hold .* but some hold .*3"):
            open_data(path)
    save_npz(path, masks_of(1).astype(np.uint8), class_names=["nucleus"])
    with pytest.raises(ValueError, match="needs at least two classes"):
        open_data(path)


def test_values_are_looked_at_once(tmp_path, monkeypatch):
    path = save_csv(tmp_path, masks_of(1, 2).astype(np.uint8))
    open_data(path)
    monkeypatch.setattr("ringconv.data.masks.stored_mask", None)
    assert len(open_data(path).classes) == 3


def test_masks_without_anything_in_them_are_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing to find"):
        open_data(save_csv(tmp_path, masks_of().astype(np.uint8)))


def test_masks_without_background_are_noted(tmp_path):
    data = open_data(save_csv(tmp_path, masks_of().astype(np.uint8) + 255))
    assert data.notes == ("masks hold the values 255 only, and no background (0)",)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_a_mask_may_be_where_a_colour_is_drawn(tmp_path, mode):
    path = save_csv(tmp_path, masks_of(1).astype(np.uint8))
    drawn = Image.new(mode, (10, 8))
    drawn.putalpha(Image.fromarray(masks_of(255)[0].astype(np.uint8)))
    drawn.save(tmp_path / "mask0.png")
    np.testing.assert_array_equal(Mask()(Item(tmp_path / "mask0.png")), masks_of(1)[0])
    assert open_data(path).classes == ("background", "foreground")


def test_an_opaque_mask_is_what_its_colours_say(tmp_path):
    Image.fromarray(masks_of(255)[0].astype(np.uint8)).convert("RGBA").save(tmp_path / "mask.png")
    np.testing.assert_array_equal(Mask()(Item(tmp_path / "mask.png")), masks_of(1)[0])


@pytest.mark.parametrize(("ending", "mode"), [("jpg", "L"), ("webp", "RGB"), ("webp", "RGBA")])
def test_what_lossy_files_blur_is_not_foreground(tmp_path, ending, mode):
    mask = np.zeros((32, 32), np.uint8)
    mask[9:20, 11:25] = 255
    image = Image.fromarray(mask).convert(mode)
    if mode == "RGBA":
        image.putpixel((0, 0), (0, 0, 0, 254))  # an opaque image would be stored without alpha
    image.save(tmp_path / f"mask.{ending}", quality=60)
    np.testing.assert_array_equal(Mask()(Item(tmp_path / f"mask.{ending}")), mask > 0)


def test_class_numbers_in_a_lossless_webp(tmp_path):
    masks = masks_of(1, 2)[0].astype(np.uint8)
    Image.fromarray(masks).convert("RGB").save(tmp_path / "mask.webp", lossless=True)
    np.testing.assert_array_equal(Mask(classes=3)(Item(tmp_path / "mask.webp")), masks)
