"""What strangers send is shown, or refused with a message."""

import io

import numpy as np
import pytest
from PIL import Image

from ringconv.demo import pictures
from ringconv.demo.pictures import KEPT_SIDE, Picture, PictureError, read_picture, square_picture


def test_odd_pictures_are_shown(good_file, hostile, tmp_path):
    path = tmp_path / good_file
    path.write_bytes(hostile.PICTURES[good_file])
    picture = read_picture(path)
    assert picture.pixels.shape == (40, 40, 3)
    assert picture.pixels.std() > 10, "there is something to see"


def test_others_are_refused_with_a_message(bad_file, hostile, tmp_path):
    content, word = hostile.REFUSED[bad_file]
    path = tmp_path / bad_file
    path.write_bytes(content)
    with pytest.raises(PictureError, match=word) as error:
        read_picture(path)
    assert str(tmp_path) not in str(error.value), "nobody is told where files lie"


def test_too_many_bytes_are_not_even_opened(hostile, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "LARGEST_FILE", 1000)
    path = tmp_path / "photo.png"
    path.write_bytes(hostile.PICTURES["plain.png"])
    with pytest.raises(PictureError, match="MB"):
        read_picture(path)


def test_pixels_are_those_of_the_middle(hostile, tmp_path):
    path = tmp_path / "plain.png"
    path.write_bytes(hostile.PICTURES["plain.png"])
    np.testing.assert_array_equal(read_picture(path).pixels, hostile.PIXELS[:, 10:50])


def test_a_photo_taken_sideways_is_put_upright(tmp_path):
    halves = np.zeros((40, 40, 3), np.uint8)
    halves[:20] = 255  # white above, as the sensor saw it
    exif = Image.Exif()
    exif[0x0112] = 6
    content = io.BytesIO()
    Image.fromarray(halves).save(content, "JPEG", exif=exif, quality=95)
    path = tmp_path / "photo.jpg"
    path.write_bytes(content.getvalue())
    upright = read_picture(path).pixels
    assert upright[:, 30:].min() > 200, "white on the right"
    assert upright[:, :10].max() < 50


def test_sixteen_bits_are_scaled_not_clipped(hostile, tmp_path):
    path = tmp_path / "sixteen-bits.png"
    path.write_bytes(hostile.PICTURES["sixteen-bits.png"])
    np.testing.assert_array_equal(read_picture(path).pixels[..., 0], hostile.PIXELS[:, 10:50, 0])


def test_large_pictures_are_reduced():
    picture = square_picture(np.zeros((KEPT_SIDE + 300, KEPT_SIDE + 100, 3), np.uint8))
    assert picture.side == KEPT_SIDE


def test_pictures_are_equal_by_their_pixels():
    first, second = (Picture(np.full((20, 20, 3), 7, np.uint8)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Picture(np.full((20, 20, 3), 8, np.uint8))
    with pytest.raises(ValueError, match="uint8 of shape"):
        Picture(np.zeros((20, 30, 3), np.uint8))
