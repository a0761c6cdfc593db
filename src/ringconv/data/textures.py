"""Patches of real photographs that have no "up", for comparing networks with no download at all.

The photographs lie in the wheel of scikit-image and are opened as local files: nothing here can reach the network.

* **Grey and contrast-normalised.** Every patch has mean 0 and standard deviation 1, so that neither colour nor
  brightness gives the class away. Windows without texture (a blank part of a slide) are left out.
* **Disjoint.** Each photograph is cut into square cells, and every third one is for testing; no pixel of a patch was
  computed from a pixel outside of its cell, so training and testing share nothing.
* **Rotated without corners.** A test window is larger than the patch: it is rotated as a whole and the patch is cut
  out of its middle, so that no black corner gives the angle away and every pixel shown is a real one.
* **Equally sharp at every angle.** The photographs are smoothed a little first: interpolation would otherwise blur
  the rotated patches, but not the upright ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv._extras import needs

Split = Literal["train", "test"]
Mirror = Literal["horizontal", "vertical"]

PATCH = 32
"""Side of what a network sees, in pixels."""
CELL = 64
"""Side of the squares that belong to either training or testing."""
_WINDOW: dict[Split, int] = {"train": PATCH, "test": 48}
"""Side of a window. A test window holds the patch at every angle: 48 > 32 sqrt(2)."""
_SMOOTHING = 0.7
"""Standard deviation of the smoothing Gaussian, in pixels: what is finer, interpolation would lose."""
_REACH = 2
"""How far the smoothing looks, in pixels. Windows stay that far inside of their cell."""
_CONTRAST = 0.02
"""Standard deviation, on a scale from black = 0 to white = 1, below which a patch counts as blank."""


@dataclass(frozen=True)
class Photograph:
    """One class of the data set."""

    name: str
    file: str
    margin: int = 0
    """Pixels left out on every side."""
    reduce: int = 1
    """Every ``reduce x reduce`` pixels are averaged to one."""


PHOTOGRAPHS = (
    Photograph("brick", "brick.png"),
    Photograph("coins", "coins.png"),
    Photograph("galaxies", "hubble_deep_field.jpg"),
    Photograph("grass", "grass.png"),
    Photograph("gravel", "gravel.png"),
    Photograph("retina", "retina.jpg", margin=210, reduce=2),  # the square within the round field of view
    Photograph("tissue", "ihc.png"),
)


@dataclass(frozen=True)
class Textures:
    """Windows of all photographs, in the order of the classes.

    Attributes:
        windows: (N, side, side) float32, grey, on a scale from black = 0 to white = 1.
        labels: (N,) int64, an index into ``PHOTOGRAPHS``.
        corners: (N, 2), row and column of each window's first pixel in its photograph.
    """

    windows: NDArray[np.float32]
    labels: NDArray[np.int64]
    corners: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def view(self, angle: float = 0.0, mirror: Mirror | None = None) -> Tensor:
        """The patches (N, 1, PATCH, PATCH), mirrored if asked for, then turned counter-clockwise by ``angle`` degrees.

        Quarter turns are exact; what remains of the angle is a cubic spline through the window's own pixels.
        """
        windows = self.windows
        if mirror is not None:
            windows = np.flip(windows, axis=2 if mirror == "horizontal" else 1)
        quarters, rest = divmod(angle, 90.0)
        patches = torch.from_numpy(_normalised(_turned(windows, rest) if rest else _middle(windows)))
        return patches.rot90(int(quarters), (1, 2)).unsqueeze(1)

    def turns(self, step: int = 10) -> Iterator[tuple[int, Tensor]]:
        """Every multiple of ``step`` degrees (a divisor of 90) with its view, but not in order.

        Angles that differ by quarter turns follow each other, since they share one interpolation.
        """
        if step < 1 or 90 % step:
            raise ValueError(f"step must divide 90, got {step}")
        for rest in range(0, 90, step):
            patches = self.view(rest)
            for quarter in range(4):
                yield rest + 90 * quarter, patches.rot90(quarter, (2, 3))


def load_textures(split: Split, per_class: int, seed: int = 0) -> Textures:
    """Draw ``per_class`` windows of every photograph, at random places of the cells that belong to ``split``."""
    if split not in _WINDOW:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if per_class < 1:
        raise ValueError(f"per_class must be at least 1, got {per_class}")
    side = _WINDOW[split]
    generator = np.random.default_rng(seed)
    windows, corners = [], []
    for photograph in PHOTOGRAPHS:
        pixels = read_photograph(photograph)
        drawn = list(itertools.islice(_corners(pixels, split, generator), per_class))
        if len(drawn) < per_class:
            raise ValueError(
                f"per_class must be at most {len(drawn)}, got {per_class}: the {photograph.name} photograph has no"
                f" more places to {split} on"
            )
        windows += [_cut(pixels, corner, side) for corner in drawn]
        corners += drawn
    return Textures(np.stack(windows), np.repeat(np.arange(len(PHOTOGRAPHS)), per_class), np.array(corners))


def read_photograph(photograph: Photograph) -> NDArray[np.float32]:
    """(H, W): grey, on a scale from black = 0 to white = 1, as the patches are cut from it."""
    skimage, ndimage = needs("skimage", "compare"), needs("scipy.ndimage", "compare")
    path = Path(skimage.data.__file__).parent / photograph.file
    if not path.is_file():
        raise FileNotFoundError(f"scikit-image {skimage.__version__} does not carry {photograph.file}; 0.22 to 0.26 do")
    pixels = skimage.util.img_as_float(skimage.io.imread(path))
    if pixels.ndim == 3:
        pixels = skimage.color.rgb2gray(pixels)
    margin, reduce = photograph.margin, photograph.reduce
    rows, columns = ((side - 2 * margin) // reduce for side in pixels.shape)
    pixels = pixels[margin : margin + rows * reduce, margin : margin + columns * reduce]
    pixels = pixels.reshape(rows, reduce, columns, reduce).mean((1, 3))
    smooth: NDArray[np.float32] = ndimage.gaussian_filter(pixels, _SMOOTHING, radius=_REACH).astype(np.float32)
    return smooth


def is_test_cell(row: int, column: int) -> bool:
    """Every third cell, along diagonals, so that test cells come from all parts of a photograph."""
    return (row + column) % 3 == 0


def _corners(pixels: NDArray[np.float32], split: Split, generator: np.random.Generator) -> Iterator[tuple[int, int]]:
    """All windows of the split that show texture, once each: one from every cell, then the next one."""
    side = _WINDOW[split]
    rows, columns = (length // CELL for length in pixels.shape)
    cells = [
        (row * CELL, column * CELL)
        for row, column in itertools.product(range(rows), range(columns))
        if is_test_cell(row, column) == (split == "test")
    ]
    places = list(itertools.product(range(_REACH, CELL - _REACH - side + 1), repeat=2))
    orders = [generator.permutation(len(places)) for _ in cells]
    for turn in range(len(places)):
        for (top, left), order in zip(cells, orders, strict=True):
            down, right = places[order[turn]]
            corner = (top + down, left + right)
            if _middle(_cut(pixels, corner, side)).std() >= _CONTRAST:
                yield corner


def _cut(pixels: NDArray[np.float32], corner: tuple[int, int], side: int) -> NDArray[np.float32]:
    row, column = corner
    return pixels[row : row + side, column : column + side]


def _middle(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(..., side, side) -> (..., PATCH, PATCH)"""
    border = (windows.shape[-1] - PATCH) // 2
    return windows[..., border : border + PATCH, border : border + PATCH]


def _turned(windows: NDArray[np.float32], degrees: float) -> NDArray[np.float32]:
    """(N, side, side) -> (N, PATCH, PATCH): each window turned counter-clockwise about its middle by a cubic spline."""
    ndimage = needs("scipy.ndimage", "compare")
    side = windows.shape[-1]
    if side < PATCH * math.sqrt(2):
        raise ValueError(f"a window of {side} pixels does not hold a patch of {PATCH} at every angle")
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Rows run down, so that a counter-clockwise turn of the picture takes its pixels from here:
    to_source = np.array([[cos, sin], [-sin, cos]])
    offset = (side - 1) / 2 - to_source @ np.full(2, (PATCH - 1) / 2)
    turned = np.empty((len(windows), PATCH, PATCH), np.float32)
    for window, patch in zip(windows, turned, strict=True):
        ndimage.affine_transform(window, to_source, offset, output_shape=patch.shape, output=patch, order=3)
    return turned


def _normalised(patches: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each of the (N, PATCH, PATCH) at mean 0 and standard deviation 1."""
    centred = patches - patches.mean((1, 2), keepdims=True)
    return np.ascontiguousarray(centred / centred.std((1, 2), keepdims=True))
