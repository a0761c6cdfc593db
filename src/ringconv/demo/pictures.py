"""Pictures that strangers send: decoded only if they are small enough and of a kind that is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringconv._extras import needs
from ringconv.data import decode

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are pixels and nothing else: Pillow hands some others to outside programs."""
LARGEST_FILE = 20 * 2**20
"""Bytes."""
LARGEST_PICTURE = 40_000_000
"""Pixels."""
SMALLEST_SIDE = 16
KEPT_SIDE = 512
"""Larger pictures are reduced: no network of the page is shown more."""


class PictureError(ValueError):
    """A file is not a picture that can be shown, and the message says why to whoever sent it."""


@dataclass(frozen=True)
class Picture:
    """A square picture; equal to another one if the pixels are."""

    pixels: NDArray[np.uint8] = field(compare=False, repr=False)
    """(S, S, 3)"""
    key: str = ""
    """Stands for the pixels in caches; worked out from them."""

    def __post_init__(self) -> None:
        pixels = np.ascontiguousarray(self.pixels)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.shape[0] != pixels.shape[1]:
            raise ValueError(f"a picture is uint8 of shape (S, S, 3), got {pixels.dtype}, {pixels.shape}")
        object.__setattr__(self, "pixels", pixels)
        object.__setattr__(self, "key", hashlib.sha256(pixels.tobytes()).hexdigest())

    @property
    def side(self) -> int:
        return len(self.pixels)


def read_picture(path: Path) -> Picture:
    """The middle square of an image file, at most ``KEPT_SIDE`` pixels wide; of an animation the first image.

    Raises:
        PictureError: whatever is wrong with the file.
    """
    pillow = needs("PIL.Image", "demo")
    size = path.stat().st_size
    if size == 0:
        raise PictureError("The file is empty.")
    if size > LARGEST_FILE:
        raise PictureError(f"The file has {size / 2**20:.1f} MB; the most is {LARGEST_FILE // 2**20} MB.")
    too_large = f"the most is {LARGEST_PICTURE // 10**6} million pixels."
    try:
        with pillow.open(path, formats=FORMATS) as image:
            width, height = image.size
        if width * height > LARGEST_PICTURE:
            raise PictureError(f"The image is too large: {width} x {height}; {too_large}")
        if min(width, height) < SMALLEST_SIDE:
            raise PictureError(f"The image is too small: {width} x {height}; a side needs {SMALLEST_SIDE} pixels.")
        pixels = decode.Picture()(decode.Item(path))
    except PictureError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise PictureError(f"The image is too large; {too_large}") from error
    except pillow.UnidentifiedImageError as error:
        raise PictureError(f"This is not an image that can be read here. Known are {', '.join(FORMATS)}.") from error
    except Exception as error:  # Pillow's decoders raise all kinds on damaged files
        raise PictureError("The image is damaged or incomplete.") from error
    return square_picture(pixels)


def square_picture(pixels: NDArray[np.uint8]) -> Picture:
    """The middle square of (H, W, 3), at most ``KEPT_SIDE`` pixels wide."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[top : top + side, left : left + side]
    return Picture(square if side <= KEPT_SIDE else resized(square, KEPT_SIDE))


def resized(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """(S, S, ...) -> (side, side, ...), smoothed first where it gets smaller."""
    pillow = needs("PIL.Image", "demo")
    return np.asarray(pillow.fromarray(pixels).resize((side, side), pillow.Resampling.BICUBIC))
