"""Turning tensors: the exact symmetries of the grid, any other angle by interpolation, and noise to try them on."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

HALF_WIDTH = 16
"""Reach of the interpolation, in pixels: a sinc under a Kaiser window of twice this length."""

_KAISER_BETA = 10.0
"""Exact to about 1e-5 for content below 0.35 cycles per pixel; a larger value is better below and worse above."""

_CHUNK = 1 << 20
"""Padded values interpolated at once: bounds the memory of large batches, and stays within the caches."""


@dataclass(frozen=True)
class Symmetry:
    """A symmetry of the square (interval, cube): axes exchanged, then flipped. Acts on the last axes of a tensor.

    Attributes:
        permutation: which of the last D axes each axis of the result is.
        flips: axes of the result, counted from the first of the D, that are reversed.
    """

    permutation: tuple[int, ...]
    flips: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """(..., *S) -> (..., *S), with the D sizes exchanged as the axes are."""
        first = x.ndim - len(self.permutation)
        permuted = x.permute(*range(first), *(first + axis for axis in self.permutation))
        return permuted.flip([first + axis for axis in self.flips])

    @property
    def inverse(self) -> Symmetry:
        """What undoes it."""
        back = tuple(self.permutation.index(axis) for axis in range(len(self.permutation)))
        return Symmetry(back, tuple(axis for axis, source in enumerate(back) if source in self.flips))

    @property
    def is_rotation(self) -> bool:
        """Whether it is a proper rotation; if not, it has a reflection in it."""
        exchanges = sum(a > b for a, b in itertools.combinations(self.permutation, 2))
        return (exchanges + len(self.flips)) % 2 == 0

    @property
    def name(self) -> str:
        known = {
            ((0,), (0,)): "reflection",
            ((0, 1), (0,)): "vertical flip",
            ((0, 1), (1,)): "horizontal flip",
            ((0, 1), (0, 1)): "rotation by 180 degrees",
            ((1, 0), ()): "transposition",
            ((1, 0), (0,)): "rotation by 90 degrees",
            ((1, 0), (1,)): "rotation by 270 degrees",
            ((1, 0), (0, 1)): "transposition across the other diagonal",
        }
        if self.permutation == tuple(range(len(self.permutation))) and not self.flips:
            return "identity"
        if (self.permutation, self.flips) in known:
            return known[self.permutation, self.flips]
        signed = [("-" if i in self.flips else "") + "DHW"[axis] for i, axis in enumerate(self.permutation)]
        return f"{'rotation' if self.is_rotation else 'reflection'} (D, H, W) -> ({', '.join(signed)})"


def symmetries(dimensions: int) -> tuple[Symmetry, ...]:
    """All symmetries of the interval (2), the square (8) or the cube (48), the identity first."""
    if dimensions not in (1, 2, 3):
        raise ValueError(f"dimensions must be 1, 2 or 3, got {dimensions!r}")
    axes = range(dimensions)
    subsets = [s for size in range(dimensions + 1) for s in itertools.combinations(axes, size)]
    return tuple(Symmetry(order, flips) for order in itertools.permutations(axes) for flips in subsets)


@dataclass(frozen=True)
class Turn:
    """A rotation by any angle. Acts on the last axes of a tensor.

    Attributes:
        angle: degrees, in the sense of ``torch.rot90``.
        plane: the two axes that turn, counted from the end; one axis for a line, where half a turn is a flip.
    """

    angle: float
    plane: tuple[int, ...]
    name: str

    def __call__(self, x: Tensor) -> Tensor:
        if len(self.plane) == 1:
            return x.flip(self.plane) if self.angle % 360 else x
        return rotate(x, self.angle, (self.plane[0], self.plane[1]))

    @property
    def is_exact(self) -> bool:
        return self.angle % 90 == 0

    @property
    def back(self) -> Turn:
        """The inverse."""
        return Turn(-self.angle, self.plane, f"back by {self.name}")


def as_degrees(angles: Iterable[float | Tensor]) -> list[float]:
    """The angles as plain numbers, also those of a tensor, and checked."""
    degrees = [angle.item() if isinstance(angle, Tensor) else angle for angle in angles]
    if not all(math.isfinite(angle) for angle in degrees):
        raise ValueError(f"angles must be finite, got {degrees}")
    return degrees


def turns(angles: Iterable[float], axes: Sequence[int] | None, dimensions: int) -> list[Turn]:
    """All angles, in 3D about each of ``axes`` (default all three); on a line, those that exist."""
    angles = as_degrees(angles)
    if axes is not None and dimensions != 3:
        raise ValueError(f"axes are for 3 dimensions, x has {dimensions}")
    if dimensions == 1:
        return [Turn(angle, (-1,), f"{angle:g} degrees") for angle in angles if angle % 180 == 0]
    if dimensions == 2:
        return [Turn(angle, (-2, -1), f"{angle:g} degrees") for angle in angles]
    planes = {0: (-2, -1), 1: (-3, -1), 2: (-3, -2)}
    about = tuple(planes if axes is None else axes)
    if not set(about) <= set(planes):
        raise ValueError(f"axes must be of 0 (D), 1 (H) and 2 (W), got {about}")
    return [Turn(angle, planes[axis], f"{angle:g} degrees about {'DHW'[axis]}") for angle in angles for axis in about]


def rotate(x: Tensor, angle: float, plane: tuple[int, int] = (-2, -1)) -> Tensor:
    """Rotate about the centre, in the sense of ``torch.rot90``.

    Multiples of 90 degrees are ``torch.rot90`` itself. What remains beyond the nearest one, at most 45 degrees, is done
    by three shears, each of which shifts rows or columns by a windowed sinc: local, and close to exact for content
    below 0.4 cycles per pixel. The image is continued by its mirror image. A frame of unequal sides turns
    with the nearest multiple of 90.

    Args:
        x: (..., H, W), floating; computed in float64 and returned in its own dtype.
        angle: degrees.
        plane: the two axes to turn, from the first towards the second.
    """
    quarters = round(angle / 90)
    turned = torch.rot90(x, quarters % 4, plane)
    if angle % 90 == 0:
        return turned
    last = turned.movedim(plane, (-2, -1))
    images = last.reshape(-1, *last.shape[-2:])
    padded_area = math.prod(side + 2 * pad for side, pad in zip(images.shape[-2:], _padding(images), strict=True))
    remaining = math.radians(angle - 90 * quarters)
    parts = [_rotate_images(part.double(), remaining) for part in torch.split(images, max(1, _CHUNK // padded_area))]
    return torch.cat(parts).reshape(last.shape).movedim((-2, -1), plane).to(x.dtype)


def _padding(images: Tensor) -> list[int]:
    """Pixels to add on each side of the two axes: all that a turn brings into the frame, and the window's reach."""
    diagonal = math.hypot(*images.shape[-2:]) / 2
    return [math.ceil(diagonal + HALF_WIDTH - side / 2) for side in images.shape[-2:]]


def _rotate_images(images: Tensor, angle: float) -> Tensor:
    """(N, H, W) by at most 45 degrees, in radians."""
    height, width = images.shape[-2:]
    top, left = _padding(images)
    image = images.index_select(-2, _mirrored(height, top, images)).index_select(-1, _mirrored(width, left, images))
    y, x = (_centered(side, images) for side in image.shape[-2:])
    # Rotation = shear along x, shear along y, shear along x. Each shift is a function of the other coordinate.
    along_x = _shift_filters(-math.tan(angle / 2) * y, image.shape[-1])
    along_y = _shift_filters(math.sin(angle) * x, image.shape[-2])
    image = _filter_rows(image, along_x)
    image = _filter_rows(image.mT, along_y).mT
    rows = slice(top, top + height)
    return _filter_rows(image[..., rows, :], along_x[rows])[..., left : left + width]


def _centered(side: int, like: Tensor) -> Tensor:
    return torch.arange(side, dtype=torch.float64, device=like.device) - (side - 1) / 2


def _mirrored(side: int, pad: int, like: Tensor) -> Tensor:
    """Indices into an axis that continue it by ``pad`` mirrored pixels on each side, repeatedly if need be."""
    index = torch.arange(-pad, side + pad, device=like.device) % (2 * side)
    return torch.where(index < side, index, 2 * side - 1 - index)


def _shift_filters(shifts: Tensor, length: int) -> Tensor:
    """Spectra (rows, length // 2 + 1) of the filters by which row j takes its values ``shifts[j]`` to the right."""
    whole = shifts.floor()
    tap = torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, dtype=torch.float64, device=shifts.device)
    distance = tap - (shifts - whole)[:, None]
    window = torch.special.i0(_KAISER_BETA * (1 - (distance / HALF_WIDTH) ** 2).clamp(min=0).sqrt())
    weights = torch.sinc(distance) * window
    weights = weights / weights.sum(-1, keepdim=True)  # a constant image stays constant
    position = -(whole[:, None] + tap).long() % length
    filters = torch.zeros(len(shifts), length, dtype=torch.float64, device=shifts.device)
    spectra: Tensor = torch.fft.rfft(filters.scatter_(1, position, weights))
    return spectra


def _filter_rows(image: Tensor, spectra: Tensor) -> Tensor:
    filtered: Tensor = torch.fft.irfft(torch.fft.rfft(image) * spectra, image.shape[-1])
    return filtered


def distance_from(center: Sequence[float], size: Sequence[int], device: torch.device | None = None) -> Tensor:
    """Euclidean distance of every pixel from ``center`` (pixel indices, fractions allowed): (*size), float64."""
    axes = [torch.arange(side, dtype=torch.float64, device=device) for side in size]
    squares = [(axis - c).square() for axis, c in zip(axes, center, strict=True)]
    return functools.reduce(torch.add, torch.meshgrid(*squares, indexing="ij")).sqrt()


def middle(size: Sequence[int]) -> tuple[float, ...]:
    """The centre of a map in pixel indices."""
    return tuple((side - 1) / 2 for side in size)


def fading_disc(size: Sequence[int], device: torch.device | None = None) -> Tensor:
    """1 up to three quarters of the way from the centre to the nearest side, falling smoothly to 0 at the side."""
    way = distance_from(middle(size), size, device) / (min(size) / 2)
    return 0.5 + 0.5 * torch.cos(math.pi * (4 * way - 3).clamp(0, 1))


class Region:
    """A disc or ball within a map, to be turned on its own.

    Attributes:
        distance: (*size), of every pixel from the centre.
    """

    def __init__(self, center: Sequence[float], radius: float, size: Sequence[int], device: torch.device) -> None:
        if len(center) != len(size):
            raise ValueError(f"center needs one index per spatial axis ({len(size)}), got {tuple(center)}")
        if any((2 * c) % 1 or (c - center[0]) % 1 for c in center):
            raise ValueError(f"center must be all whole or all half pixel indices, got {tuple(center)}")
        room = min(min(c + 0.5, side - 0.5 - c) for c, side in zip(center, size, strict=True))
        if not 0 < radius <= room:
            raise ValueError(
                f"the disc must lie within the image of size {tuple(size)}: around {tuple(center)} the radius can be up"
                f" to {room}, got {radius}"
            )
        self.distance = distance_from(center, size, device)
        self._disc = self.distance <= radius
        # The largest box about the centre that is all image: outside of it the interpolation would see its mirror.
        self._box: tuple[Any, ...] = (..., *(slice(round(c + 0.5 - room), round(c + 0.5 + room)) for c in center))

    def turn(self, x: Tensor, turn: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., *size) -> (..., *size): what is in the disc turned, the rest as it is."""
        turned = x.clone()
        turned[self._box] = turn(x[self._box])
        return torch.where(self._disc, turned, x)


def band_limited_noise(
    size: Sequence[int],
    cutoff: float = 0.3,
    *,
    batch: int = 1,
    channels: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Isotropic Gaussian noise of unit variance, white below a radial ``cutoff`` and zero above.

    Below half a cycle per pixel, the pattern has one meaning between the pixels, so that turning it by any angle
    is well defined. It is cut from a larger field, so that it does not repeat at its borders.

    Args:
        size: 1 to 3 sides.
        cutoff: cycles per pixel, in (0, 0.5].

    Returns:
        (batch, channels, *size)
    """
    if not 1 <= len(size) <= 3 or any(side < 1 for side in size):
        raise ValueError(f"size must be 1 to 3 sides of at least 1, got {tuple(size)}")
    if not 0 < cutoff <= 0.5:
        raise ValueError(f"cutoff must be in (0, 0.5] cycles per pixel, got {cutoff}")
    # Twice the size, and enough for some hundred waves below the cutoff even in a small image.
    field = [max(2 * side, math.ceil(16 / cutoff)) for side in size]
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(batch, channels, *field, generator=generator, dtype=torch.float64)
    axes = tuple(range(2, white.ndim))
    frequencies = torch.meshgrid(*[torch.fft.fftfreq(side, dtype=torch.float64) for side in field], indexing="ij")
    kept = functools.reduce(torch.add, [f**2 for f in frequencies]) < cutoff**2
    noise: Tensor = torch.fft.ifftn(torch.fft.fftn(white, dim=axes) * kept, dim=axes).real
    for axis, side in zip(axes, size, strict=True):
        noise = noise.narrow(axis, 0, side)
    return (noise / kept.double().mean().sqrt()).to(dtype)
