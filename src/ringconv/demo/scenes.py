"""Coins and cells to segment: photographs in the wheel of scikit-image, with masks that classical methods make.

Nobody drew these masks: coins are found by flooding from the flat background to the edges, nuclei by the blue stain.
Each photograph is cut in two, one part for training and one for testing, with a gap between them; everything, also the
mask, is worked out within a part, so that the two share nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ringconv._extras import needs
from ringconv.data.textures import Split

SceneName = Literal["coins", "cells"]
SCENES: tuple[SceneName, ...] = get_args(SceneName)

_FILES: dict[SceneName, str] = {"coins": "coins.png", "cells": "ihc.png"}
_PARTS: dict[tuple[SceneName, Split], tuple[slice, slice]] = {
    # Left and right: twelve coins each.
    ("coins", "train"): (slice(0, 303), slice(0, 184)),
    ("coins", "test"): (slice(0, 303), slice(190, 384)),
    # Above and below.
    ("cells", "train"): (slice(0, 304), slice(0, 512)),
    ("cells", "test"): (slice(320, 512), slice(0, 512)),
}
_REDUCED: dict[SceneName, int] = {"coins": 2, "cells": 1}
"""Pixels that are averaged to one, along each axis: coins are large."""


_BLUER = 8.0
_PAPER = 205.0
"""Of 255."""


class Scene(NamedTuple):
    pixels: NDArray[np.uint8]
    """(H, W, 3)"""
    mask: NDArray[np.bool_]
    """(H, W)"""


def load_scene(name: SceneName, split: Split) -> Scene:
    """One part of a photograph and its mask."""
    skimage = needs("skimage", "demo")
    path = Path(skimage.data.__file__).parent / _FILES[name]
    if not path.is_file():
        raise FileNotFoundError(f"scikit-image {skimage.__version__} does not carry {path.name}; 0.22 to 0.26 do")
    pixels = skimage.io.imread(path)[_PARTS[name, split]]
    mask = _coins(pixels) if name == "coins" else _nuclei(pixels)
    colour = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
    return Scene(_reduced(colour, _REDUCED[name]).round().astype(np.uint8), _reduced(mask, _REDUCED[name]) > 0.5)


def _coins(grey: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Flood from what is surely background and surely coin; the two meet where the edge is steepest."""
    filters, segmentation = needs("skimage.filters", "demo"), needs("skimage.segmentation", "demo")
    ndimage = needs("scipy.ndimage", "demo")
    # The light falls off across the picture: judged against its surroundings, a coin is bright everywhere.
    relief = grey - ndimage.gaussian_filter(grey.astype(float), 40)
    seeds = np.zeros(grey.shape, np.int32)
    seeds[relief < -10] = 1
    seeds[relief > 30] = 2
    flooded = segmentation.watershed(filters.sobel(grey), seeds) == 2
    return _cleaned(flooded, 200)


def _nuclei(colour: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where it is bluer than its surroundings, and not paper."""
    ndimage = needs("scipy.ndimage", "demo")
    red, green, blue = (ndimage.gaussian_filter(plane.astype(float), 1.0) for plane in np.moveaxis(colour, -1, 0))
    relief = blue - red - ndimage.gaussian_filter(blue - red, 12)
    return _cleaned((relief > _BLUER) & (green < _PAPER), 30)


def _cleaned(mask: NDArray[np.bool_], smallest: int) -> NDArray[np.bool_]:
    """Without holes, and without specks of fewer than ``smallest`` pixels."""
    ndimage = needs("scipy.ndimage", "demo")
    filled = ndimage.binary_opening(ndimage.binary_fill_holes(mask), iterations=1)
    labels, _ = ndimage.label(filled)
    kept: NDArray[np.bool_] = (np.bincount(labels.ravel()) >= smallest)[labels] & filled
    return kept


def _reduced(values: NDArray[np.generic], times: int) -> NDArray[np.float64]:
    rows, columns = (side // times for side in values.shape[:2])
    cut = values[: rows * times, : columns * times].astype(np.float64)
    means: NDArray[np.float64] = cut.reshape(rows, times, columns, times, *values.shape[2:]).mean((1, 3))
    return means
