"""From image files to what the model of a checkpoint takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ringconv._extras import needs
from ringconv.data.dataset import normalise
from ringconv.data.decode import PICTURES, TIFFS, Item, Picture
from ringconv.models.checkpoint import Preprocessing


def find_images(paths: Sequence[Path]) -> list[Path]:
    """The files that were given, and those in the folders that were given, at any depth, sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in PICTURES + TIFFS)
            if not inside:
                raise ValueError(f"there are no images in the folder {path} (looked for {', '.join(PICTURES + TIFFS)})")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"there is no image or folder {path}")
    return list(dict.fromkeys(found))


def read_image(path: Path, preprocessing: Preprocessing, channels: int) -> Tensor:
    """(C, H, W), ready for the model. Grey, palette, alpha and 16 bits become what the model takes."""
    if channels not in (1, 3):
        raise ValueError(f"images are read as grey or as RGB, but the model takes {channels} channels")
    pixels = Picture(grey=channels == 1)(Item(path))
    size = preprocessing.size
    if size is not None and pixels.shape[:2] != tuple(size):
        pillow = needs("PIL.Image", "data")
        method = pillow.Resampling[preprocessing.interpolation.upper()]
        image, wanted = pillow.fromarray(pixels), (size[1], size[0])
        if preprocessing.fit == "crop":
            pixels = np.asarray(needs("PIL.ImageOps", "data").fit(image, wanted, method))
        else:
            pixels = np.asarray(image.resize(wanted, method))
    planes = torch.from_numpy(np.array(pixels, np.float32) / 255)
    planes = planes[None] if planes.dim() == 2 else planes.movedim(-1, 0)
    return normalise(planes[None], preprocessing.mean, preprocessing.std)[0].contiguous()


def input_channels(model: nn.Module) -> int:
    """Channels that the model's first layer takes."""
    for module in model.modules():
        channels = getattr(module, "in_channels", None) or getattr(module, "in_features", None)
        if isinstance(channels, int):
            return channels
    raise ValueError(f"a {type(model).__name__} without a convolution does not say how many channels it takes")
