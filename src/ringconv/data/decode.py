"""From a file to an array: pictures, bands, volumes, meshes.

A decoder is a frozen dataclass: its fields say all that it does to a file, so that its ``repr`` can be part of a
cache's key, and worker processes can be sent a copy.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ringconv._extras import needs

PICTURES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp")
TIFFS = (".tif", ".tiff")
VOLUMES = (".nii", ".nii.gz")
SUFFIXES = PICTURES + TIFFS + VOLUMES

_ORIENTATION = 0x0112
"""The tag of EXIF and TIFF; from 5 on, height and width change places."""
_ALPHA = (1, 2)
"""Of the TIFF tag ExtraSamples, which otherwise means bands."""
_COLOURED = (2, 5, 6, 8)
"""Of the TIFF tag PhotometricInterpretation: RGB, CMYK, YCbCr and CIELab, whose channels are a picture."""

Array = NDArray[Any]
Fit = Literal["squash", "crop"]


@dataclass(frozen=True)
class Item:
    """A file, or a part of one."""

    path: Path
    box: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom: the part of a picture that is meant."""


class Decoder(Protocol):
    dimensions: ClassVar[int]

    def __call__(self, item: Item, /) -> Array:
        """(*S) or (*S, C)"""
        ...


@dataclass(frozen=True)
class Picture:
    """A photograph: (H, W, 3), or (H, W) if grey, uint8; upright as its camera noted. An alpha channel is dropped."""

    dimensions: ClassVar[int] = 2
    size: tuple[int, ...] | None = None
    fit: Fit = "squash"
    grey: bool = False

    def __call__(self, item: Item) -> Array:
        if item.box is None:
            image = _opened(item.path)
        else:
            image = _cut(_scene(item.path, item.path.stat().st_mtime_ns), item.box)
        image = image.convert("L" if self.grey else "RGB")
        if self.size is not None:
            image = _resized(image, self.size, self.fit, needs("PIL.Image", "data").Resampling.BILINEAR)
        return np.asarray(image)


@dataclass(frozen=True)
class Mask:
    """A picture of class numbers: (H, W) uint8."""

    dimensions: ClassVar[int] = 2
    size: tuple[int, ...] | None = None
    fit: Fit = "squash"
    classes: int = 2
    """Of two, everything that is not 0 is the second."""

    def __call__(self, item: Item) -> Array:
        values = stored_mask(item.path)
        if self.classes == 2:
            values = values > 0
        elif values.max() >= self.classes:
            raise ValueError(f"masks must hold class numbers below {self.classes}, got {values.max()}")
        values = values.astype(np.uint8)
        if self.size is None:
            return values
        pillow = needs("PIL.Image", "data")
        return np.asarray(_resized(pillow.fromarray(values), self.size, self.fit, pillow.Resampling.NEAREST))


@dataclass(frozen=True)
class Bands:
    """A TIFF with any number of bands of any depth, or a PNG or PGM of 16 bits: (H, W, C), upright as it notes, in the
    file's own type. An alpha channel of a PNG is dropped."""

    dimensions: ClassVar[int] = 2
    size: tuple[int, ...] | None = None
    fit: Fit = "squash"

    def __call__(self, item: Item) -> Array:
        pixels = _tiff(item.path) if suffix(item.path) in TIFFS else _deep_picture(item.path)
        return pixels if self.size is None else _fitted(pixels, self.size, self.fit)


@dataclass(frozen=True)
class Volume:
    """A NIfTI volume: (D, H, W) or (D, H, W, C), axes towards superior, anterior and right, in the file's own type.

    With ``spacing`` it is resampled to that voxel size, and then cropped or padded with its smallest value to ``size``;
    without, it becomes ``size`` as ``fit`` says.
    """

    dimensions: ClassVar[int] = 3
    size: tuple[int, ...] | None = None
    spacing: tuple[float, ...] | None = None
    fit: Fit = "squash"
    is_mask: bool = False
    """Class numbers: never mixed."""
    binary: bool = False
    """Everything that is not 0 is 1."""
    dtype: str | None = None
    """Read as this type, which all files of a set fit into; default the file's own."""

    def __call__(self, item: Item) -> Array:
        nibabel = needs("nibabel", "data")
        image = nibabel.as_closest_canonical(nibabel.load(item.path))
        voxels = np.asanyarray(image.dataobj)
        if self.dtype is not None and not self.binary:
            voxels = voxels.astype(self.dtype)
        elif voxels.dtype == np.float64:  # what nibabel makes of scaled integers
            voxels = voxels.astype(np.float32)
        if voxels.ndim not in (3, 4):
            raise ValueError(f"a volume must have 3 axes, or 4 with channels, got shape {voxels.shape}")
        voxels = np.ascontiguousarray(voxels.transpose(2, 1, 0, *range(3, voxels.ndim)))
        order = 0 if self.is_mask else 1
        if self.binary:
            voxels = (voxels > 0).astype(np.uint8)
        if self.spacing is not None:
            steps = self.spacing_of(item)
            factors = [own / asked for own, asked in zip(steps, self.spacing, strict=True)]
            sides = tuple(max(1, round(n * factor)) for n, factor in zip(voxels.shape, factors, strict=False))
            voxels = _interpolated(voxels, sides, order)
            return voxels if self.size is None else _cropped_or_padded(voxels, self.size)
        return voxels if self.size is None else _fitted(voxels, self.size, self.fit, order)

    def spacing_of(self, item: Item) -> tuple[float, ...]:
        """Voxel size along (D, H, W) as the file has it."""
        nibabel = needs("nibabel", "data")
        zooms = nibabel.as_closest_canonical(nibabel.load(item.path)).header.get_zooms()
        return tuple(float(step) for step in zooms[2::-1])

    def decoded_spacing(self, item: Item) -> tuple[float, ...]:
        """Voxel size along (D, H, W) of what is returned."""
        if self.spacing is not None:
            return self.spacing
        steps = self.spacing_of(item)
        if self.size is None:
            return steps
        sides = needs("nibabel", "data").as_closest_canonical(needs("nibabel", "data").load(item.path)).shape[2::-1]
        shown = shown_part(sides, self.size, self.fit)
        return tuple(
            step * (part.stop - part.start) / new for step, part, new in zip(steps, shown, self.size, strict=True)
        )


@dataclass(frozen=True)
class Mesh:
    """A surface as occupancy: (D, H, W) uint8 of 0 and 1, with D along z.

    The mesh is centred and scaled to fill the grid along its longest side, points are drawn evenly from its surface,
    and every voxel with a point in it is 1.
    """

    dimensions: ClassVar[int] = 3
    side: int = 32
    points: int = 2048
    seed: int = 0

    def __call__(self, item: Item) -> Array:
        trimesh = needs("trimesh", "data")
        mesh = trimesh.load(item.path, force="mesh", process=False)
        if len(mesh.faces) == 0 or not np.isfinite(mesh.vertices).all() or not mesh.area > 0:
            raise ValueError("the mesh has no surface")
        # The file's own name decides its points, so that they do not depend on what else is in the folder.
        seed = zlib.crc32(item.path.name.encode()) ^ self.seed
        points = trimesh.sample.sample_surface(mesh, self.points, seed=seed)[0]
        low, high = mesh.bounds
        # A hair smaller than the grid, so that a face on a voxel's border falls to the inside on both sides.
        unit = (points - (low + high) / 2) / (high - low).max() * (1 - 1e-6) + 0.5
        cells = np.clip((unit * self.side).astype(np.int64), 0, self.side - 1)
        grid = np.zeros((self.side,) * 3, np.uint8)
        grid[cells[:, 2], cells[:, 1], cells[:, 0]] = 1
        return grid


def suffix(path: Path) -> str:
    """In lower case; ".nii.gz" counts as one."""
    name = path.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else path.suffix.lower()


def stored_mask(path: Path) -> Array:
    """The values of a mask, as they stand in its file: (*S)."""
    if suffix(path) in VOLUMES:
        return np.asanyarray(needs("nibabel", "data").load(path).dataobj)
    image = _opened(path, scaled=False)
    if image.mode in ("RGBA", "LA"):
        *colours, opacity = (np.asarray(channel) for channel in image.split())
        if np.ptp(opacity) > 0 and all(np.ptp(colour) == 0 for colour in colours):
            return opacity  # one colour, drawn where something is
    if _is_lossy(path):  # which blurs 0 and 255 into all that lies between
        return np.asarray(image.convert("L")) > 127
    # 16 bits (I) and floats (F) too may be class numbers; colours are not.
    numbers = image.mode in ("1", "L", "P", "F") or image.mode.startswith("I")
    return np.asarray(image if numbers else image.convert("L"))


def shown_part(sides: Sequence[int], size: Sequence[int], fit: Fit) -> tuple[slice, ...]:
    """What becomes ``size``: everything, or the largest part in the middle that has its proportions."""
    if fit == "squash":
        return tuple(slice(0, side) for side in sides)
    scale = min(old / new for old, new in zip(sides, size, strict=True))
    parts = [max(1, round(new * scale)) for new in size]
    starts = [(old - part) // 2 for old, part in zip(sides, parts, strict=True)]
    return tuple(slice(start, start + part) for start, part in zip(starts, parts, strict=True))


def resampled_type(dtype: Any) -> Any:
    """Of values between stored ones. Booleans have none between: thin lines would grow, or be lost."""
    return np.dtype(np.float32) if dtype == np.bool_ else dtype


def bits_of(path: Path) -> int | None:
    """Of each channel of a picture that is no TIFF, 8 or 16; None if it does not say, since it is damaged."""
    try:
        if suffix(path) == ".png":
            with path.open("rb") as file:
                return 16 if file.read(25)[24] == 16 else 8
        if suffix(path) in (".pgm", ".ppm"):
            with needs("PIL.Image", "data").open(path) as image:
                return 16 if image.mode == "I" else 8
    except ImportError:
        raise
    except Exception:
        return None
    return 8


def has_bands(path: Path) -> bool:
    """Whether a picture is more than one of 8 bits, grey or coloured, with alpha or without. One that cannot be read is
    named later."""
    if suffix(path) not in TIFFS:
        return bits_of(path) == 16
    tifffile = needs("tifffile", "data")
    try:
        with tifffile.TiffFile(path) as file:
            page, extras = file.pages[0], file.pages[0].extrasamples
            channels = page.samplesperpixel - len(extras)
            too_many = page.samplesperpixel > 4 or (channels > 1 and page.photometric not in _COLOURED)
            other_extras = any(extra not in _ALPHA for extra in extras)
            return bool(page.dtype != np.uint8 or too_many or other_extras or len(file.pages) > 1)
    except ImportError:
        raise
    except Exception:  # tifffile raises all kinds of errors on damaged files
        return False


def stored_sides(item: Item) -> tuple[int, ...]:
    """Height and width of a picture, upright, or (D, H, W) of a volume; as the file has them."""
    if suffix(item.path) in VOLUMES:
        nibabel = needs("nibabel", "data")
        return tuple(nibabel.as_closest_canonical(nibabel.load(item.path)).shape[2::-1])
    if suffix(item.path) in TIFFS:
        with needs("tifffile", "data").TiffFile(item.path) as file:
            orientation = _orientation(file)
            height, width = file.pages[0].imagelength, file.pages[0].imagewidth
    else:
        with needs("PIL.Image", "data").open(item.path) as file:
            orientation = file.getexif().get(_ORIENTATION, 1)
            width, height = file.size
    return (width, height) if orientation >= 5 else (height, width)


def stored_type(item: Item) -> Any:
    """Of the numbers of a volume, as :class:`Volume` reads them."""
    voxels = needs("nibabel", "data").load(item.path).dataobj
    stored = voxels.dtype.newbyteorder("=")
    is_scaled = (voxels.slope, voxels.inter) != (1, 0)
    return np.dtype(np.float32) if is_scaled or stored == np.float64 else stored


@functools.lru_cache(maxsize=4)
def _scene(path: Path, changed: int) -> Any:
    """A picture that several boxes are cut from, one after the other."""
    return _opened(path)


def _opened(path: Path, scaled: bool = True) -> Any:
    pillow = needs("PIL.Image", "data")
    # By its path, Pillow maps a grey TIFF that lies on its side into memory with the sides of the upright one.
    with path.open("rb") as stream, pillow.open(stream) as file:
        image = needs("PIL.ImageOps", "data").exif_transpose(file)
        image.load()
    if scaled and (image.mode.startswith("I") or image.mode == "F"):
        # Pillow would clip 16 bits to 8 instead of scaling them.
        values = np.asarray(image).astype(np.float64)
        top = 65535.0 if image.mode.startswith("I") else max(float(values.max()), 1.0)
        image = pillow.fromarray((values.clip(0, top) * (255 / top)).round().astype(np.uint8))
    return image


def _is_lossy(path: Path) -> bool:
    """Whether pixels come back from this file other than they were: JPEG, and one of the two kinds of WebP."""
    if suffix(path) != ".webp":
        return suffix(path) in (".jpeg", ".jpg")
    with path.open("rb") as file:
        file.seek(12)  # where the chunks begin
        while len(head := file.read(8)) == 8:
            if head[:4] in (b"VP8 ", b"VP8L"):
                return head[:4] == b"VP8 "
            length = int.from_bytes(head[4:], "little")
            file.seek(length + length % 2, os.SEEK_CUR)
    return False


def _tiff(path: Path) -> Array:
    """(H, W, C)"""
    with needs("tifffile", "data").TiffFile(path) as file:
        series, orientation = file.series[0], _orientation(file)
        axes, pixels = series.axes, series.asarray()
    if "Y" not in axes or "X" not in axes:
        raise ValueError(f"a TIFF with the axes {axes} has no rows and columns")
    pixels = np.moveaxis(pixels, (axes.index("Y"), axes.index("X")), (0, 1))
    return _upright(pixels.reshape(*pixels.shape[:2], -1), orientation)


def _deep_picture(path: Path) -> Array:
    """(H, W, C) of a PNG or PGM, as deep as it is; Pillow would cut colours of 16 bits to 8."""
    if suffix(path) != ".png":
        pixels = np.asarray(_opened(path, scaled=False))
        # To Pillow 16 bits are 32, with white at 65535.
        pixels = pixels.astype(np.uint16) if pixels.dtype == np.int32 else pixels
        return pixels.reshape(*pixels.shape[:2], -1)
    pixels = needs("imagecodecs", "data").png_decode(path.read_bytes())
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    with needs("PIL.Image", "data").open(path) as file:
        orientation = file.getexif().get(_ORIENTATION, 1)
    colours = pixels.shape[2] - (pixels.shape[2] in (2, 4))
    return np.ascontiguousarray(_upright(pixels[..., :colours], orientation))


def _orientation(file: Any) -> int:
    """Of an opened TIFF, 1 to 8."""
    return int(file.pages[0].tags.valueof(_ORIENTATION, 1))


def _upright(pixels: Array, orientation: int) -> Array:
    """(H, W, ...) as stored -> as it is meant to be seen."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in (2, 3, 6, 7) else pixels


def _cut(image: Any, box: tuple[int, int, int, int]) -> Any:
    """The part of the box that is in the picture."""
    left, top, right, bottom = box
    inside = (max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height))
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        raise ValueError(f"the box {box} is empty in a picture of {image.width} x {image.height}")
    return image.crop(inside)


def _resized(image: Any, size: tuple[int, ...], fit: Fit, method: Any) -> Any:
    height, width = size
    if fit == "crop":
        return needs("PIL.ImageOps", "data").fit(image, (width, height), method)
    return image if image.size == (width, height) else image.resize((width, height), method)


def _fitted(values: Array, size: tuple[int, ...], fit: Fit, order: int = 1) -> Array:
    return _interpolated(values[shown_part(values.shape[: len(size)], size, fit)], size, order)


def _interpolated(values: Array, size: tuple[int, ...], order: int = 1) -> Array:
    """(*S, ...) -> (*size, ...) linearly or by the nearest; smaller sizes are smoothed first, against aliasing."""
    sides = values.shape[: len(size)]
    dtype = resampled_type(values.dtype) if order else values.dtype
    if sides == tuple(size):
        return values.astype(dtype, copy=False)
    ndimage = needs("scipy.ndimage", "data")
    rest = values.ndim - len(size)
    smooth = values.astype(np.float64)
    if order:
        widths = [max(0.0, old / new - 1) / 2 for old, new in zip(sides, size, strict=True)]
        smooth = ndimage.gaussian_filter(smooth, [*widths, *[0.0] * rest])
    factors = [new / old for old, new in zip(sides, size, strict=True)]
    zoomed = ndimage.zoom(smooth, [*factors, *[1.0] * rest], order=order, mode="nearest", grid_mode=True)
    if np.issubdtype(dtype, np.integer):
        zoomed = zoomed.round()
    result: Array = zoomed.astype(dtype)
    return result


def _cropped_or_padded(values: Array, size: tuple[int, ...]) -> Array:
    """(*S, ...) -> (*size, ...), both about their middles."""
    for axis, side in enumerate(size):
        missing = side - values.shape[axis]
        if missing > 0:
            widths = [(0, 0)] * values.ndim
            widths[axis] = (missing // 2, missing - missing // 2)
            values = np.pad(values, widths, constant_values=values.min())
        else:
            start = -missing // 2
            values = values.take(range(start, start + side), axis)
    return values
