"""From image files to what the model of a checkpoint takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ringconv._extras import needs
from ringconv.data.dataset import normalise
from ringconv.data.decode import PICTURES, TIFFS, Array, Bands, Item, Picture, has_bands
from ringconv.data.folders import images_below
from ringconv.data.scales import names_no_unit, says_no_unit, scale_as_trained, scale_of
from ringconv.models.checkpoint import Preprocessing


def find_images(paths: Sequence[Path]) -> list[Path]:
    """The files that were given, and those in the folders that were given, at any depth, sorted and without hidden
    ones."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = images_below(path, PICTURES + TIFFS)
            if not inside:
                raise ValueError(f"there are no images in the folder {path} (looked for {', '.join(PICTURES + TIFFS)})")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"there is no image or folder {path}")
    return list(dict.fromkeys(found))


def read_image(path: Path, preprocessing: Preprocessing, channels: int) -> Tensor:
    """(C, H, W), ready for the model. Grey, palette and alpha become what the model takes.

    Files that are more than 8-bit pictures are read as training reads them: all bands, in full depth.
    """
    read = _bands if has_bands(path) else _picture
    pixels = read(path, preprocessing, channels)
    planes = torch.from_numpy(pixels.astype(np.float32) / _scale(pixels, preprocessing))
    planes = planes[None] if planes.dim() == 2 else planes.movedim(-1, 0)
    return normalise(planes[None], preprocessing.mean, preprocessing.std)[0].contiguous()


def _picture(path: Path, preprocessing: Preprocessing, channels: int) -> Array:
    if channels not in (1, 3):
        raise ValueError(f"images are read as grey or as RGB, but the model takes {channels} channels")
    pixels = Picture(grey=channels == 1)(Item(path))
    size = preprocessing.size
    if size is None or pixels.shape[:2] == tuple(size):
        return pixels
    pillow = needs("PIL.Image", "data")
    method = pillow.Resampling[preprocessing.interpolation.upper()]
    image, wanted = pillow.fromarray(pixels), (size[1], size[0])
    if preprocessing.fit == "crop":
        return np.asarray(needs("PIL.ImageOps", "data").fit(image, wanted, method))
    return np.asarray(image.resize(wanted, method))


def _bands(path: Path, preprocessing: Preprocessing, channels: int) -> Array:
    try:
        pixels = Bands(preprocessing.size, preprocessing.fit)(Item(path))
    except ValueError as error:  # of this file, and no reason to stop at it
        raise OSError(str(error)) from error
    if pixels.shape[-1] == 1 and channels == 3:
        return pixels.repeat(3, -1)  # as grey pictures become RGB
    if pixels.shape[-1] != channels:
        raise OSError(f"it has {pixels.shape[-1]} bands, and the model takes {channels} channels")
    return pixels


def _scale(pixels: Array, preprocessing: Preprocessing) -> float:
    """The stored value that becomes 1, as in training."""
    own, trained = scale_of(pixels[None]), preprocessing.scale
    if names_no_unit(pixels.dtype, own, trained):
        raise OSError(f"its {says_no_unit(pixels.dtype, trained)}")
    return scale_as_trained(pixels.dtype, own, trained, preprocessing.mean, preprocessing.std)
