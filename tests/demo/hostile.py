"""Files that people send: odd ones that are pictures all the same, and those that are not."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

_GENERATOR = np.random.default_rng(0)
PIXELS = _GENERATOR.integers(0, 256, (40, 60, 3), dtype=np.uint8)


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def _bomb(width: int, height: int) -> bytes:
    """A PNG of few bytes that says it is very large."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


_COLOUR = Image.fromarray(PIXELS)
_UPRIGHT = Image.Exif()
_UPRIGHT[0x0112] = 6  # the camera was held on its side

PICTURES = {
    "plain.png": _saved(_COLOUR, "PNG"),
    "photo.jpg": _saved(_COLOUR, "JPEG"),
    "grey.png": _saved(_COLOUR.convert("L"), "PNG"),
    "black-and-white.png": _saved(_COLOUR.convert("1"), "PNG"),
    "palette.png": _saved(_COLOUR.convert("P"), "PNG"),
    "alpha.png": _saved(_COLOUR.convert("RGBA"), "PNG"),
    "grey-alpha.png": _saved(_COLOUR.convert("LA"), "PNG"),
    "cmyk.jpg": _saved(_COLOUR.convert("CMYK"), "JPEG"),
    "sixteen-bits.png": _saved(Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 257), "PNG"),
    "float.tif": _saved(Image.fromarray(PIXELS[..., 0].astype(np.float32)), "TIFF"),
    "animated.gif": _saved(_COLOUR, "GIF", save_all=True, append_images=[_COLOUR.rotate(90)]),
    "animated.webp": _saved(_COLOUR, "WEBP", save_all=True, append_images=[_COLOUR.rotate(90)]),
    "on-its-side.jpg": _saved(_COLOUR, "JPEG", exif=_UPRIGHT),
    "wrong-name.png": _saved(_COLOUR, "JPEG"),
    "without-name": _saved(_COLOUR, "PNG"),
    "ünïcode näme ✓.png": _saved(_COLOUR, "PNG"),
}
"""Name -> content: all of these are shown."""

REFUSED = {
    "empty.png": (b"", "empty"),
    "text.png": (b"this is not an image\n" * 100, "not an image"),
    "vector.svg": (b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', "not an image"),
    "page.html.png": (b"<html><script>alert(1)</script></html>", "not an image"),
    "postscript.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n", "not an image"),
    "truncated.png": (PICTURES["plain.png"][:-2000], "damaged"),
    "truncated.jpg": (PICTURES["photo.jpg"][:900], "damaged"),
    "header-only.png": (PICTURES["plain.png"][:33], "not an image"),
    "bomb.png": (_bomb(60_000, 60_000), "too large"),
    "large.png": (_bomb(8_000, 8_000), "too large"),
    "warned-of.png": (_bomb(10_000, 10_000), "too large"),
    "one-pixel.png": (_saved(_COLOUR.crop((0, 0, 1, 1)), "PNG"), "too small"),
    "thin.png": (_saved(_COLOUR.crop((0, 0, 60, 5)), "PNG"), "too small"),
}
"""Name -> content, and a word of the message."""
