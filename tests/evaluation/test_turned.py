"""Images turned as networks are tested."""

import math

import pytest
import torch

from ringconv._rotate import symmetries, turns
from ringconv._torchvision import import_torchvision
from ringconv._turned import Turner, Turning


def turn(angle, dimensions=2, axis=0):
    return turns([angle], [axis] if dimensions == 3 else None, dimensions)[0]


@pytest.mark.parametrize("angle", [10, 44, 50, 130, 200, 350, 17.5])
@pytest.mark.parametrize("size", [(32, 32), (31, 31)])
@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_torchvisions_rotation(angle, size, channels):
    import_torchvision()
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.functional import rotate

    x = torch.randn(2, channels, *size)
    expected = rotate(x, angle, InterpolationMode.BILINEAR)
    # torchvision computes its grid in float32.
    torch.testing.assert_close(Turner().turn(x, turn(angle), 2), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("quarters", range(-1, 6))
def test_quarter_turns_are_exact(quarters):
    x = torch.randn(2, 3, 8, 12)
    assert torch.equal(Turner().turn(x, turn(90 * quarters), 2), torch.rot90(x, quarters, (2, 3)))


def test_a_frame_of_unequal_sides_turns_with_the_nearest_quarter():
    x = torch.randn(1, 1, 8, 12)
    assert Turner().turn(x, turn(80), 2).shape == (1, 1, 12, 8)
    assert Turner().turn(x, turn(40), 2).shape == (1, 1, 8, 12)
    assert torch.equal(Turner().turn(x, turn(100), 2), torch.rot90(Turner().turn(x, turn(10), 2), 1, (2, 3)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("padding", ["fill", "reflect", "edge"])
def test_paddings_work_on_grey_and_colour(padding, channels):
    x = torch.full((2, channels, 16, 16), 3.0)
    turned = Turner(Turning(padding=padding)).turn(x, turn(45), 2)
    assert turned.shape == x.shape
    if padding == "fill":
        assert turned[0, 0, 0, 0] == 0
        assert turned[0, 0, 8, 8] == 3
    else:
        torch.testing.assert_close(turned, x, msg="a constant image has no corners to lose")


def test_fill_is_what_comes_in():
    x = torch.randn(2, 3, 16, 16)
    plain, filled = (Turner(Turning(fill=fill)).turn(x, turn(45), 2) for fill in (0.0, 5.0))
    assert bool((filled[..., 0, 0] == 5).all())
    torch.testing.assert_close(filled[..., 6:10, 6:10], plain[..., 6:10, 6:10], atol=1e-5, rtol=0)


def test_the_disc_is_the_same_at_every_angle():
    turner = Turner(Turning(mask="disc", fill=-1.0))
    x = torch.zeros(1, 1, 16, 16)
    upright = turner.turn(x, turn(0), 2)
    assert upright[0, 0, 0, 0] == -1
    assert upright[0, 0, 8, 8] == 0
    for angle in (10, 45, 90, 200):
        # Within the disc there is image at every angle, and nothing of what is beyond it.
        torch.testing.assert_close(turner.turn(x, turn(angle), 2), upright, atol=1e-5, rtol=0)


def test_an_expanded_frame_loses_nothing():
    turner = Turner(Turning(expand=True))
    x = turner.framed(torch.ones(1, 1, 16, 20), 2)
    assert min(x.shape[2:]) >= math.hypot(16, 20)
    assert x.shape[2] % 2 == 0, "the centre stays between the same pixels"
    for angle in (30, 45, 80):
        assert abs(float(turner.turn(x, turn(angle), 2).sum()) - 320) < 3.2


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_there_and_back(interpolation):
    y, x = torch.meshgrid(torch.linspace(-1, 1, 64), torch.linspace(-1, 1, 64), indexing="ij")
    smooth = torch.exp(-8 * ((x - 0.2) ** 2 + (y + 0.1) ** 2))[None, None]
    turner = Turner(Turning(interpolation))
    back = turner.turn(turner.turn(smooth, turn(33), 2), turn(-33), 2)
    # A step of one pixel changes this bump by 0.08 at most.
    assert float((back - smooth).abs().max()) < (0.12 if interpolation == "nearest" else 0.01)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_volumes_turn_about_each_axis(axis):
    x = torch.randn(2, 1, 8, 8, 8)
    plane = {0: (3, 4), 1: (2, 4), 2: (2, 3)}[axis]
    assert torch.equal(Turner().turn(x, turn(90, 3, axis), 3), torch.rot90(x, 1, plane))
    turned = Turner().turn(x, turn(30, 3, axis), 3)
    for place in range(8):
        # A volume turns slice by slice.
        image = x.select(2 + axis, place)
        torch.testing.assert_close(turned.select(2 + axis, place), Turner().turn(image, turn(30), 2))


def test_voxels_of_unequal_sides_turn_in_space():
    """A ball in space, with slices twice as far apart as pixels, is round at every angle; voxels are not."""
    z, y, x = torch.meshgrid(2 * (torch.arange(16) - 7.5), *[torch.arange(32) - 15.5] * 2, indexing="ij")
    bump = torch.exp(-(z**2 + y**2 + x**2) / 50)[None, None]
    turner = Turner(spacing=(2.0, 1.0, 1.0))
    for axis in (0, 1, 2):
        for angle in (30, 90, 180):
            turned = turner.turn(bump, turn(angle, 3, axis), 3)
            assert turned.shape == bump.shape
            assert float((turned - bump).abs().max()) < 0.05
    assert float((Turner().turn(bump, turn(30, 3, 1), 3) - bump).abs().max()) > 0.1
    assert torch.equal(turner.turn(bump, turn(180, 3, 1), 3), bump.rot90(2, (2, 4)))


def test_the_ball_and_the_frame_are_of_space():
    """17 slices twice as far apart as the 33 pixels of a row: a cube, and a ball of its width in it."""
    spacing = (2.0, 1.0, 1.0)
    turner = Turner(Turning(mask="disc", expand=True), spacing)
    volume = torch.zeros(1, 1, 17, 33, 33)
    ball = turner.disc(volume, 3)
    assert ball[:, 16, 16].all()
    assert ball[8, 16].all()
    assert not ball[0, 15, 16]
    framed = turner.framed(volume, 3)
    diagonal = math.hypot(34, 33, 33)
    assert framed.shape[2:] == (29, 59, 59), "as few as hold the diagonal, and as many more on either side"
    assert all(side * step >= diagonal for side, step in zip(framed.shape[2:], spacing, strict=True))
    assert torch.equal(Turner().disc(volume, 3), Turner(spacing=(3.0,) * 3).disc(volume, 3))


def test_float64_and_half():
    for dtype in (torch.float64, torch.bfloat16):
        assert Turner().turn(torch.randn(1, 1, 8, 8, dtype=dtype), turn(30), 2).dtype == dtype


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interpolation": "cubic"}, "interpolation must be one of nearest, bilinear, bicubic, got 'cubic'"),
        ({"padding": "zeros"}, "padding must be one of"),
        ({"mask": "circle"}, "mask must be one of"),
        ({"fill": math.nan}, "fill must be finite"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ValueError, match=message):
        Turning(**options)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_every_symmetry_has_its_inverse(dimensions):
    x = torch.arange(2 * 3**dimensions).reshape(2, *[3] * dimensions)
    for symmetry in symmetries(dimensions):
        assert torch.equal(symmetry.inverse(symmetry(x)), x)
        assert symmetry.inverse.inverse == symmetry
