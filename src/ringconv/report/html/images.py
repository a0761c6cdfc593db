"""Test images, turned as the test turns them, and pictures of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ringconv._extras import needs
from ringconv._rotate import turns
from ringconv._turned import Padding, Turner, Turning
from ringconv.data import DataSet, load_textures
from ringconv.data.textures import PHOTOGRAPHS
from ringconv.training.runs import Run
from ringconv.training.setup import prepare_data, some_of

Picture = NDArray[np.uint8]
"""(H, W, 3)"""

_QUALITY = 78
GREY = 0.5
"""Beside images that are not square."""


@dataclass(frozen=True)
class TestImages:
    """Some test images that can be turned.

    Attributes:
        classes: names by number.
        dimensions: 2, or 3 for volumes, which turn about their first axis.
        labels: (N,) of a classification, None of a segmentation.
        turned: degrees -> images (N, C, *S) as networks see them.
        masks: degrees -> (N, *S), of a segmentation.
        seen: all of them, (N, C, *S) as networks see them -> as people do, (N, 1 or 3, *S) on a scale from 0 to 1.
    """

    __test__ = False  # its name is not that of a test of pytest's

    classes: tuple[str, ...]
    dimensions: int
    labels: Tensor | None
    turned: Callable[[float], Tensor]
    seen: Callable[[Tensor], Tensor]
    masks: Callable[[float], Tensor] | None = None


def images_of_run(run: Run, count: int) -> TestImages:
    """The images that a run was tested on, or some of them.

    Raises:
        ValueError: what is there now is not what the run was tested on.
    """
    data = prepare_data(run.settings)
    tested = (run.results or {})["evaluation"]["images"]
    known = run.data.get("classes")
    found = len(data["test"]) if "test" in data.splits else 0
    if found != tested or (known is not None and list(data.classes) != list(known)):
        raise ValueError(f"{run.settings.data} is not what it was: {found} test images, and it was {tested}")
    return images_of_data(data, count, run.settings.beyond_frame)


def images_of_data(data: DataSet, count: int, beyond_frame: Padding = "fill") -> TestImages:
    split = some_of(data["test"], count)
    pixels, targets = split.batch(slice(None))
    images = data.normalise(pixels)
    dimensions = data.dimensions
    turner = Turner(Turning(padding=beyond_frame), data.spacing)
    mask_turner = Turner(Turning("nearest", padding=beyond_frame), data.spacing)
    about = [0] if dimensions == 3 else None

    def turned(angle: float) -> Tensor:
        return turner.turn(images, turns([angle], about, dimensions)[0], dimensions).contiguous()

    def masks(angle: float) -> Tensor:
        (turn,) = turns([angle], about, dimensions)
        return mask_turner.turn(targets[:, None].to(images.dtype), turn, dimensions)[:, 0].round().long()

    # One channel, or the first of many bands, is shown from its darkest to its brightest when upright.
    first = pixels[:, :1].flatten(1)
    low, high = first.amin(1), first.amax(1)
    per_image = (-1, *[1] * (dimensions + 1))

    def seen(some: Tensor) -> Tensor:
        shape = (1, -1, *[1] * dimensions)
        values = some * some.new_tensor(data.std).view(shape) + some.new_tensor(data.mean).view(shape)
        if data.channels == 3:
            return values
        span = (high - low).clamp(min=1e-6).view(per_image)
        return (values[:, :1] - low.view(per_image)) / span

    classifies = data.task == "classify"
    labels = targets if classifies else None
    return TestImages(data.classes, dimensions, labels, turned, seen, None if classifies else masks)


def images_of_textures(seed: int, count: int) -> TestImages:
    """Patches that the comparison of textures is tested on."""
    textures = load_textures("test", max(1, count // len(PHOTOGRAPHS)), seed)

    def seen(patches: Tensor) -> Tensor:
        # They are normalised one by one; two standard deviations either way show most of each.
        return 0.5 + patches / 4

    classes = tuple(photograph.name for photograph in PHOTOGRAPHS)
    return TestImages(classes, 2, torch.from_numpy(textures.labels), textures.view, seen)


def pictures(images: Tensor, side: int) -> list[Picture]:
    """Images (N, 1 or 3, *S) on a scale from 0 to 1 -> square pictures of at most ``side`` pixels.

    Of volumes the middle slice.
    """
    if images.ndim == 5:
        images = images[:, :, images.shape[2] // 2]
    squared = fit_square(images.expand(-1, 3, -1, -1), side, GREY)
    shown = (255 * squared.clamp(0, 1)).round().to(torch.uint8)
    return [picture.movedim(0, -1).numpy() for picture in shown]


def fit_square(images: Tensor, side: int, beyond: float = 0.0) -> Tensor:
    """(N, C, H, W) -> (N, C, s, s): smaller if it was larger, and centred on ``beyond`` if it was not square."""
    height, width = images.shape[-2:]
    longest = max(height, width)
    factor = min(1.0, side / longest)
    if factor < 1:
        size = (max(1, round(height * factor)), max(1, round(width * factor)))
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
    height, width = images.shape[-2:]
    square = max(height, width)
    top, left = (square - height) // 2, (square - width) // 2
    return F.pad(images, (left, square - width - left, top, square - height - top), value=beyond)


def film(frames: Sequence[Picture]) -> str:
    """Frames of one size beside each other, as the address of an image that carries its content."""
    image = needs("PIL.Image", "compare")
    strip = image.fromarray(np.concatenate(list(frames), axis=1))
    content = io.BytesIO()
    kind = "webp" if needs("PIL.features", "compare").check("webp") and strip.width <= 16_383 else "png"
    strip.save(content, kind, **({"quality": _QUALITY} if kind == "webp" else {"optimize": True}))
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
