"""Which stored value becomes 1, for a set and for a network that was trained on another one."""

import numpy as np
import pytest

from ringconv.data.scales import check_unit, from_0_to_1, names_no_unit, scale_as_trained


@pytest.mark.parametrize(
    ("dtype", "own", "trained", "expected"),
    [
        ("uint8", 255, 255, 255),
        ("uint8", 1, 255, 255),  # dark pictures are no occupancy
        ("uint8", 1, 1, 1),
        ("uint8", 255, 1, 255),  # pictures, for a network trained on floats
        ("uint16", 65535, 255, 65535),
        ("uint8", 255, None, 255),
        ("int32", 900, 30_000, 30_000),
        ("int64", 254, 255, 255),  # bytes that were stored as wider numbers
        ("int64", 4000, 255, 4000),
        ("int32", 900, None, 900),
        ("int32", 900, 1, 900),
        ("float32", 1, 1, 1),
        ("float32", 1, 255, 1),
        ("float32", 1, 30_000, 30_000),
    ],
)
def test_the_scale_of_training_counts(dtype, own, trained, expected):
    assert scale_as_trained(dtype, own, trained, (0.4,), (0.2,)) == expected


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_integers_have_no_unit_for_a_network_trained_on_floats_of_any_size(dtype):
    with pytest.raises(ValueError, match=rf"{dtype}, and the network was trained on floats .*mean 120"):
        scale_as_trained(dtype, 255, 1, (119.7, 120.0), (60.0, 60.0))
    assert scale_as_trained("float32", 1, 1, (120.0,), (60.0,)) == 1


def test_from_0_to_1():
    assert from_0_to_1(255, (0.5,), (0.2,))
    assert from_0_to_1(None, (0.485, 0.456, 0.406), (0.2, 0.2, 0.2))
    assert not from_0_to_1(1, (-500.0,), (300.0,))


def test_single_images_without_a_unit():
    assert not names_no_unit("uint8", 255, None)
    assert not names_no_unit("int32", 900, 30_000)
    assert not names_no_unit("int32", 1, 1)
    assert not names_no_unit("float32", 1, 1)
    for dtype, own, trained in (("float32", 1, 255), ("int32", 900, 255), ("int32", 900, None), ("int32", 900, 1)):
        assert names_no_unit(dtype, own, trained)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "trained", "fits"),
    [
        ("float32", 0, 1, 255, True),
        ("float64", -0.01, 1.2, 255, True),  # what resampling makes of 0 to 1
        ("float32", 0, 255, 255, False),
        ("float32", -1, 1, 255, False),
        ("float32", -1, 1, 32767, True),
        ("float32", -1000, 3000, 32767, False),
        ("float32", -1000, 3000, 1, True),  # as in training
        ("float32", 0, 900, 30_000, True),
        ("float32", 0, 900, None, True),
        ("uint8", 0, 255, 65535, True),
    ],
)
def test_floats_must_be_shares_for_a_network_of_integers(dtype, low, high, trained, fits):
    images = np.array([[[low, high]]], dtype)
    if fits:
        check_unit(images, trained)
    else:
        with pytest.raises(ValueError, match=rf"{dtype}, .* to {trained}: .* and not from {low} to {high}"):
            check_unit(images, trained)
