"""Files of several kinds in one set: read alike, or refused, but never made something else."""

import imagecodecs
import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image

from ringconv.data import open_data
from ringconv.data.decode import Item, Picture, has_bands


def save_volumes(folder, *types):
    """A class folder for each type, with volumes of all numbers from -128, or 0, to 127."""
    values = np.arange(-128, 128).repeat(2).reshape(8, 8, 8)
    for number, dtype in enumerate(types):
        (folder / f"{number}").mkdir(parents=True)
        stored = (values.clip(0) if dtype.startswith("u") else values).astype(dtype)
        for row in range(3):
            nibabel.save(nibabel.Nifti1Image(stored, np.eye(4)), folder / f"{number}" / f"{row}.nii.gz")
    return folder


@pytest.mark.parametrize(
    ("types", "common"),
    [
        (("uint8", "int16"), "int16"),
        (("int16", "uint8"), "int16"),
        (("int16", "float32"), "float32"),
        (("int32", "float64"), "float32"),
        (("int16", ">i2"), "int16"),
        (("uint16", "int16"), "int32"),
    ],
)
@pytest.mark.parametrize("cache", [True, False])
def test_volumes_of_several_types_keep_their_numbers(tmp_path, types, common, cache):
    data = open_data(save_volumes(tmp_path, *types), test=0, cache=cache)
    split = data["train"]
    assert np.dtype(split.images.dtype).newbyteorder("=") == common
    for row in range(len(split)):
        low = 0 if types[split.targets[row]].startswith("u") else -128
        voxels = np.asarray(split.images[row])
        assert (voxels.min(), voxels.max()) == (low, 127)


def save_tiffs(folder, **types):
    """A class folder of 5 TIFFs for each of these types."""
    for title, dtype in types.items():
        (folder / title).mkdir(parents=True)
        for row in range(5):
            tifffile.imwrite(folder / title / f"{row}.tif", np.full((8, 8), 7 + row, dtype))
    return folder


@pytest.mark.parametrize("types", [("uint16", "uint8"), ("uint8", "uint16"), ("float32", "uint16")])
@pytest.mark.parametrize("cache", [True, False])
def test_tiffs_of_several_depths_are_refused_since_their_scales_differ(tmp_path, types, cache):
    folder = save_tiffs(tmp_path, **dict(zip("ab", types, strict=True)))
    with pytest.raises(ValueError, match=rf"b/0.tif holds {types[1]} numbers, others {types[0]}"):
        open_data(folder, cache=cache)


def test_tiffs_that_are_found_out_late_are_refused_too(tmp_path):
    folder = save_tiffs(tmp_path, a="uint16", b="uint8")
    with pytest.raises(ValueError, match="holds uint8 numbers, others uint16"):
        open_data(folder, cache=False, verify=False)["train"].batch(range(8))


def test_deep_tiffs_beside_pictures_are_refused(tmp_path):
    folder = save_tiffs(tmp_path, b="uint16")
    (folder / "a").mkdir()
    Image.new("L", (8, 8), 7).save(folder / "a" / "0.png")
    with pytest.raises(ValueError, match=r"5 of 6 files are like a TIFF .*0\.tif\), and .*0\.png is not"):
        open_data(folder)


def test_tiffs_that_are_pictures_go_with_other_pictures(tmp_path):
    folder = save_tiffs(tmp_path, b="uint8")
    (folder / "a").mkdir()
    Image.new("L", (8, 8), 7).save(folder / "a" / "0.png")
    pixels = open_data(folder, test=0)["train"].batch([0, 1])[0]
    np.testing.assert_allclose(pixels, 7 / 255)


def test_volumes_beside_pictures_are_refused(tmp_path):
    folder = save_volumes(tmp_path, "uint8")
    Image.new("L", (8, 8), 7).save(folder / "0" / "0.png")
    with pytest.raises(ValueError, match=r"3 of 4 files are like a volume, and .*0\.png is not"):
        open_data(folder)


def save_deep(path, pixels):
    """Grey by Pillow, colours by imagecodecs, which Pillow would cut to 8 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".tif":
        tifffile.imwrite(path, pixels, photometric="rgb" if pixels.ndim == 3 else "minisblack")
    elif pixels.ndim == 2:
        Image.fromarray(pixels).save(path)
    else:
        path.write_bytes(imagecodecs.png_encode(pixels))


@pytest.mark.parametrize("largest", [1, 255, 4095, 65535])
@pytest.mark.parametrize(("ending", "channels"), [("png", 1), ("pgm", 1), ("png", 3)])
@pytest.mark.parametrize("options", [{}, {"size": (6, 7)}, {"size": 6, "fit": "crop"}])
def test_pictures_of_16_bits_are_read_like_such_tiffs(tmp_path, largest, ending, channels, options):
    pixels = np.random.default_rng(0).integers(0, largest + 1, (4, 12, 14, channels)).astype(np.uint16)
    for row, image in enumerate(pixels.squeeze(-1) if channels == 1 else pixels):
        for kind in (ending, "tif"):
            save_deep(tmp_path / f"of {kind}" / "ab"[row % 2] / f"{row}.{kind}", image)
    found, expected = (open_data(tmp_path / f"of {kind}", test=0, **options) for kind in (ending, "tif"))
    assert found["train"].images.dtype == np.uint16
    assert (found.mean, found.std, found["train"].scale) == (expected.mean, expected.std, expected["train"].scale)
    np.testing.assert_array_equal(found["train"].images[:], expected["train"].images[:])
    if not options:
        np.testing.assert_array_equal(found["train"].images[:], pixels[[0, 2, 1, 3]])


@pytest.mark.parametrize("channels", [2, 4])
def test_alpha_of_16_bits_is_dropped(tmp_path, channels):
    pixels = np.random.default_rng(0).integers(0, 65536, (9, 7, channels)).astype(np.uint16)
    for title in "ab":
        save_deep(tmp_path / title / "0.png", pixels)
    np.testing.assert_array_equal(open_data(tmp_path, test=0)["train"].images[0], pixels[..., :-1])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pngs_of_16_bits_are_read_upright(tmp_path, orientation):
    pixels = np.arange(48, dtype=np.uint8).reshape(6, 8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "0.png", exif=exif)
    for title in "ab":
        (tmp_path / "set" / title).mkdir(parents=True)
        Image.fromarray(pixels.astype(np.uint16)).save(tmp_path / "set" / title / "0.png", exif=exif)
    found = open_data(tmp_path / "set", test=0)["train"].images[0]
    np.testing.assert_array_equal(found, Picture()(Item(tmp_path / "0.png"))[..., :1])


@pytest.mark.parametrize("shallow", ["png", "jpg", "pgm"])
def test_pictures_of_16_bits_beside_those_of_8_are_refused(tmp_path, shallow):
    for row in range(3):
        save_deep(tmp_path / "b" / f"{row}.png", np.full((8, 8), 700, np.uint16))
    (tmp_path / "a").mkdir()
    Image.new("L", (8, 8), 7).save(tmp_path / "a" / f"0.{shallow}")
    with pytest.raises(ValueError, match=rf"3 of 4 files .* more than 8 bits .*0\.png\), and .*0\.{shallow} is not"):
        open_data(tmp_path)


@pytest.mark.parametrize("left", [0, 20, 60])
def test_a_damaged_picture_among_those_of_16_bits_is_named(tmp_path, left):
    for row in range(4):
        save_deep(tmp_path / "ab"[row % 2] / f"{row}.png", np.full((8, 8), 700 + row, np.uint16))
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "0.png").write_bytes(whole[:left])
    with pytest.raises(ValueError, match=r"1 of 4 images cannot be read:\n.*0\.png"):
        open_data(tmp_path)
    assert len(open_data(tmp_path, faults="skip", test=0)["train"]) == 3


@pytest.mark.parametrize("compression", ["lzw", "zlib", "jpeg2000"])
def test_packed_tiffs_are_read(tmp_path, compression):
    pixels = np.random.default_rng(0).integers(0, 60000, (5, 16, 16)).astype(np.uint16)
    for row, image in enumerate(pixels):
        for title in "ab":
            (tmp_path / title).mkdir(exist_ok=True)
            tifffile.imwrite(tmp_path / title / f"{row}.tif", image, compression=compression)
    read = open_data(tmp_path, test=0)["train"].images[:]
    assert {int(image.sum()) for image in read} == {int(image.sum()) for image in pixels}


@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_resized_tiffs_of_one_bit_are_shares(tmp_path, fit):
    """Like floats; also beside a file that has the size already."""
    for row in range(4):
        lines = np.zeros((12, 16) if row else (6, 8), bool)
        lines[::4] = True
        for dtype in (bool, np.float32):
            path = tmp_path / np.dtype(dtype).name / "ab"[row % 2] / f"{row}.tif"
            path.parent.mkdir(parents=True, exist_ok=True)
            tifffile.imwrite(path, lines.astype(dtype))
    found, expected = (
        open_data(tmp_path / name, test=0, size=(6, 8), fit=fit)["train"].images[:] for name in ("bool", "float32")
    )
    np.testing.assert_array_equal(found, expected)


CONTIGUOUS = {"photometric": "minisblack", "planarconfig": "contig"}
PLANES = {"photometric": "minisblack", "planarconfig": "separate"}


@pytest.mark.parametrize(
    ("bands", "stored"),
    [
        (4, {"photometric": "rgb", "extrasamples": ["unspecified"]}),
        (2, CONTIGUOUS),
        (3, CONTIGUOUS),
        (4, CONTIGUOUS),
        (4, PLANES),
    ],
)
def test_bands_of_8_bits_are_all_read(tmp_path, bands, stored):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, bands), dtype=np.uint8)
    for title in "ab":
        (tmp_path / title).mkdir()
        axes = (2, 0, 1) if stored is PLANES else (0, 1, 2)
        tifffile.imwrite(tmp_path / title / "0.tif", np.ascontiguousarray(pixels.transpose(axes)), **stored)
    np.testing.assert_array_equal(open_data(tmp_path, test=0)["train"].images[0], pixels)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "P"])
def test_tiffs_of_one_picture_have_no_bands(tmp_path, mode):
    Image.new("RGB", (8, 6), (9, 9, 9)).convert(mode).save(tmp_path / "0.tif")
    assert not has_bands(tmp_path / "0.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_tiffs_are_read_upright(tmp_path, orientation, dtype, channels):
    """Like PNGs with the same tag."""
    pixels = np.arange(6 * 8 * channels, dtype=dtype).reshape(6, 8, channels)
    tag = (0x0112, "H", 1, orientation, True)
    for title in "ab":
        (tmp_path / title).mkdir()
        tifffile.imwrite(tmp_path / title / "0.tif", pixels.squeeze(), extratags=[tag])
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels.astype(np.uint8).squeeze()).save(tmp_path / "0.png", exif=exif)
    expected = Picture()(Item(tmp_path / "0.png"))
    found = open_data(tmp_path, test=0)["train"].images[0]
    np.testing.assert_array_equal(found, expected[..., : found.shape[-1]])


def save_pairs(folder, image_size, mask_size):
    """A CSV of 4 images (width, height) and masks."""
    for row in range(4):
        Image.new("RGB", image_size, (row, 0, 99)).save(folder / f"{row}.png")
        mask = Image.new("L", mask_size)
        mask.putpixel((1, 1), 255)
        mask.save(folder / f"mask{row}.png")
    (folder / "list.csv").write_text("path,mask\n" + "\n".join(f"{row}.png,mask{row}.png" for row in range(4)))
    return folder / "list.csv"


@pytest.mark.parametrize("mask_size", [(32, 48), (48, 48), (48, 40)])
def test_masks_of_other_proportions_are_refused_at_every_size(tmp_path, mask_size):
    path = save_pairs(tmp_path, (48, 32), mask_size)
    message = rf"0\.png \(its mask has the size \({mask_size[1]}, {mask_size[0]}\), and the image \(32, 48\)\)"
    with pytest.raises(ValueError, match=message):
        open_data(path, size=16)


@pytest.mark.parametrize("mask_size", [(48, 32), (24, 16), (25, 17), (96, 64)])
def test_coarser_and_finer_masks_are_brought_to_the_size(tmp_path, mask_size):
    assert open_data(save_pairs(tmp_path, (48, 32), mask_size), size=16)["train"].size == (16, 16)


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_masks_of_photographs_that_lie_on_their_side(tmp_path, ending):
    """EXIF turns the image; a mask that was drawn on the stored pixels does not fit, one on the upright image does."""
    path = save_pairs(tmp_path, (48, 32), (48, 32))
    path.write_text(path.read_text().replace(".png,", f".{ending},"))
    exif = Image.Exif()
    exif[0x0112] = 6
    for row in range(4):
        Image.new("RGB", (48, 32)).save(tmp_path / f"{row}.{ending}", exif=exif)
    with pytest.raises(ValueError, match="its mask has the size"):
        open_data(path, size=16)
    for row in range(4):
        Image.new("L", (32, 48), 255).save(tmp_path / f"mask{row}.png")
    assert open_data(path, size=16)["train"].size == (16, 16)


def save_pictures(*folders):
    for folder in folders:
        folder.mkdir(parents=True)
        for row in range(5):
            Image.new("L", (8, 8), row).save(folder / f"{row}.png")


def test_train_may_be_a_class(tmp_path):
    save_pictures(tmp_path / "bus", tmp_path / "car", tmp_path / "train")
    assert open_data(tmp_path).classes == ("bus", "car", "train")


def test_a_folder_that_may_be_a_class_or_a_split_is_refused(tmp_path):
    save_pictures(*(tmp_path / title / part for title in ("bus", "car", "train") for part in "ab"))
    with pytest.raises(ValueError, match=r"has train, which is called like a split .* beside bus, car: is it"):
        open_data(tmp_path)


def test_splits_by_several_names(tmp_path):
    save_pictures(*(tmp_path / split / title for split in ("train", "training", "test") for title in "ab"))
    (tmp_path / "notes").mkdir()
    data = open_data(tmp_path)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 20, "test": 10}


@pytest.mark.parametrize("names", [("images", "masks"), ("img", "mask"), ("Images", "labels"), ("input", "target")])
@pytest.mark.parametrize("inside", [".", "train"])
def test_images_and_masks_are_not_two_classes(tmp_path, names, inside):
    save_pictures(*(tmp_path / inside / name for name in names))
    with pytest.raises(ValueError, match=r"are these images and their masks.*CSV"):
        open_data(tmp_path)


def test_people_with_a_mask_and_without_are_two_classes(tmp_path):
    save_pictures(tmp_path / "mask", tmp_path / "no_mask")
    assert open_data(tmp_path).classes == ("mask", "no_mask")


def test_an_unknown_option_is_answered_with_those_there_are(tmp_path):
    with pytest.raises(TypeError, match=r"no option 'gray'; its options are size, fit, grey"):
        open_data(tmp_path, gray=True)
