"""What every loader returns."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ringconv.data import DataSet, Split, open_data
from ringconv.data.scales import scale_of

FITS = ("squash", "crop")


def pictures(count=10, channels=3, size=(6, 5)):
    generator = np.random.default_rng(0)
    shape = (count, *size, channels) if channels else (count, *size)
    return generator.integers(0, 256, shape, dtype=np.uint8)


def test_a_batch_is_channels_first_on_a_scale_from_0_to_1():
    images = pictures()
    x, y = Split(images, np.arange(10)).batch([7, 2])
    assert x.shape == (2, 3, 6, 5)
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    assert torch.equal(x[0], torch.from_numpy(images[7]).movedim(-1, 0) / 255)
    assert y.tolist() == [7, 2]
    assert y.dtype == torch.int64


@pytest.mark.parametrize(
    ("shape", "dimensions", "expected"),
    [
        ((4, 6, 5), 2, (1, 6, 5)),
        ((4, 6, 5, 7), 2, (7, 6, 5)),
        ((4, 6, 5, 7), 3, (1, 6, 5, 7)),
        ((4, 6, 5, 7, 2), 3, (2, 6, 5, 7)),
    ],
)
def test_layouts_of_images(shape, dimensions, expected):
    split = Split(np.zeros(shape, np.uint8), np.zeros(4, np.int64), dimensions)
    assert tuple(split[0][0].shape) == expected
    assert (split.channels, *split.size) == expected


def test_a_data_loader_takes_it_with_and_without_workers():
    split = Split(pictures(), np.arange(10))
    for workers in (0, 1):
        batches = list(DataLoader(split, batch_size=4, num_workers=workers))
        assert torch.equal(torch.cat([x for x, _ in batches]), split.batch(range(10))[0])
        assert torch.cat([y for _, y in batches]).tolist() == list(range(10))


def test_negative_and_impossible_rows():
    split = Split(pictures(), np.arange(10))
    assert split[-1][1] == 9
    with pytest.raises(IndexError):
        split[10]


def test_take_keeps_targets_and_groups_together():
    groups = np.array([f"g{row}" for row in range(10)])
    split = Split(pictures(), np.arange(10), groups=groups).take([8, 1, 4]).take([2, 0])
    assert split.targets.tolist() == [4, 8]
    assert split.groups.tolist() == ["g4", "g8"]
    assert torch.equal(split[1][0], torch.from_numpy(pictures()[8]).movedim(-1, 0) / 255)
    masks = Split(pictures(), pictures(channels=0) > 100).take([3])
    assert masks.labels is None
    assert masks[0][1].shape == (6, 5)
    assert len(pickle.loads(pickle.dumps(masks))) == 1, "workers are sent a copy"


def test_scales():
    assert scale_of(pictures()) == 255
    assert scale_of(pictures() % 2) == 1, "occupancy"
    assert scale_of(pictures().astype(np.uint16) * 200) == 65535
    assert scale_of(pictures().astype(np.float32)) == 1
    assert scale_of(pictures(count=0)) == 255
    assert scale_of(pictures().astype(np.int16) - 1) == 32767
    for kind in (np.int32, np.uint32, np.int64):
        assert scale_of(pictures().astype(kind)) == pictures().max(), "nobody fills so many bits"
        assert scale_of(pictures().astype(kind) % 2) == 1
    assert scale_of(-2000 * np.ones((2, 3, 3), np.int32)) == 2000


def test_statistics_are_those_of_the_training_images():
    images = pictures(50)
    data = DataSet("x", "classify", ("a", "b"), {"train": Split(images, np.arange(50) % 2)})
    expected = images.reshape(-1, 3) / 255
    np.testing.assert_allclose(data.mean, expected.mean(0), atol=1e-6)
    np.testing.assert_allclose(data.std, expected.std(0), atol=1e-6)
    x = data.normalise(data["train"].batch(range(50))[0])
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    constant = DataSet("x", "classify", ("a",), {"train": Split(images * 0 + 7, np.zeros(50, np.int64))})
    assert constant.std == (1.0, 1.0, 1.0)
    faint = images.astype(np.float32) * 1e-9
    data = DataSet("x", "classify", ("a", "b"), {"train": Split(faint, np.arange(50) % 2, scale=1.0)})
    np.testing.assert_allclose(data.std, faint.reshape(-1, 3).std(0), rtol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value):
    images = pictures().astype(np.float32)
    images[3, 2, 1, 0] = value
    with pytest.raises(ValueError, match=r"the images of x hold values that are not finite \(NaN or infinity\)"):
        DataSet("x", "classify", ("a",), {"train": Split(images, np.zeros(10, np.int64), scale=1.0)})


def test_wrong_labels_are_counted_and_the_first_is_named():
    with pytest.raises(ValueError, match=r"x, test: 2 labels are not of the 2 classes 0 to 1; the first is 5 at row 1"):
        DataSet("x", "classify", ("a", "b"), {"test": Split(pictures(3), np.array([0, 5, -1]))})


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="one target"):
        Split(pictures(3), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="masks must have the images' size"):
        Split(pictures(3), np.zeros((3, 5, 6), np.uint8))
    with pytest.raises(ValueError, match=r"must be \(N, \*S\)"):
        Split(np.zeros((3, 4), np.uint8), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"x: a segmentation needs at least two classes, .* got \('nucleus',\)"):
        DataSet("x", "segment", ("nucleus",), {"test": Split(pictures(3), pictures(3, 0) > 9)})
    data = DataSet("x", "classify", ("a",), {"test": Split(pictures(3), np.zeros(3, np.int64))})
    with pytest.raises(ValueError, match="no split 'train'; it has test"):
        data["train"]


def test_resizing_what_comes_as_arrays(tmp_path):
    images, masks = pictures(4, size=(12, 16)), (pictures(4, 0, size=(12, 16)) > 128).astype(np.uint8)
    np.savez(tmp_path / "set.npz", test_images=images, test_masks=masks)
    data = open_data(tmp_path / "set.npz", size=(6, 8))
    x, y = data["test"].batch([0, 3])
    assert x.shape == (2, 3, 6, 8)
    assert y.shape == (2, 6, 8)
    assert set(y.unique().tolist()) <= {0, 1}
    assert abs(float(x.mean()) - images[[0, 3]].mean() / 255) < 0.02
    wide = np.zeros((2, 8, 24), np.uint8)
    wide[:, :, 8:16] = 255
    np.savez(tmp_path / "wide.npz", test_images=wide, test_masks=wide)
    squashed, cropped = (open_data(tmp_path / "wide.npz", size=4, fit=fit)["test"].batch([1]) for fit in FITS)
    assert abs(float(squashed[0].mean()) - 1 / 3) < 0.05
    assert bool((cropped[0] == 1).all())
    assert bool((cropped[1] == 1).all()), "the mask along with it"
    volumes = pictures(2, 10, size=(10, 10))
    np.savez(tmp_path / "volumes.npz", test_images=volumes, test_labels=[0, 1], spacing=[2.0, 1.0, 1.0])
    data = open_data(tmp_path / "volumes.npz", size=5)
    assert data["test"].batch([0])[0].shape == (1, 1, 5, 5, 5)
    assert data.spacing == (4.0, 2.0, 2.0)
    assert open_data(tmp_path / "volumes.npz", size=(5, 10, 10), fit="crop").spacing == (2.0, 1.0, 1.0)


def test_resized_booleans_are_shares(tmp_path):
    """Booleans again, lines of one pixel would be everywhere, or nowhere."""
    lines = np.zeros((4, 12, 16), bool)
    lines[:, ::4] = True
    masks = np.repeat(lines, 2, 1)[:, :12]
    for dtype in (bool, np.float32):
        np.savez(tmp_path / f"{np.dtype(dtype)}.npz", test_images=lines.astype(dtype), test_masks=masks)
    assert open_data(tmp_path / "bool.npz")["test"].images.dtype == bool
    found, expected = (
        open_data(tmp_path / f"{name}.npz", size=(6, 8))["test"].batch(slice(None)) for name in ("bool", "float32")
    )
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], torch.from_numpy(masks[:, 1::2, 1::2].astype(np.int64)))
