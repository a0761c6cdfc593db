"""Which stored value becomes 1, for a set and for a network that was trained on another one."""

import pytest

from ringconv.data.scales import from_0_to_1, names_no_unit, scale_as_trained


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
