"""Augmentation of whole batches, every image by random numbers of its own.

All functions are functions of their arguments: the random numbers come in as uniform ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ringconv._turned import PADDING_MODES, Padding
from ringconv.data import DataSet
from ringconv.training.settings import TrainSettings

COLUMNS = 24
"""Uniform numbers that an image may use."""

_CROP_AREA = (0.5, 1.0)
_CROP_RATIO = (3 / 4, 4 / 3)
_JITTER, _JITTER_HUE, _JITTER_SHARE = 0.4, 0.1, 0.8
_GREY_SHARE = 0.2
_BLUR_SHARE, _BLUR_SIGMA = 0.2, (0.1, 2.0)
_LUMA = (0.2989, 0.587, 0.114)
_LOOKED_AT = 100
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Augment:
    """From images as they are stored, on a scale from 0 to 1, to images as the network sees them in training.

    Colours change first, then the images are normalised, then they are turned, shifted and cropped in one
    interpolation; ``beyond_frame`` says what comes in from outside, by default 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: int | None = None
    release: bool = False
    translation: float = 0.0
    rotation: float = 0.0
    reflection: bool = False
    spacing: tuple[float, ...] | None = None
    """Voxel size per spatial axis; volumes turn by the angle in space, not in voxels."""
    beyond_frame: Padding = "fill"

    @staticmethod
    def of(settings: TrainSettings, data: DataSet) -> Augment:
        """What the settings ask for, or a ValueError if the data has no use for it."""
        size = data["train"].size
        if settings.crop is not None and settings.crop > min(size):
            raise ValueError(f"crop must be at most the images' size {size}, got {settings.crop}")
        release = settings.augmentation == "release"
        if release and data.dimensions != 2:
            raise ValueError(
                "augmentation 'release' is for pictures, and these are volumes: 'none', or rotation, is not"
            )
        if release:
            _check_scale(data)
        return Augment(
            data.mean, data.std, settings.crop, release, settings.translation if release else 0.0, settings.rotation,
            settings.reflection, data.spacing, settings.beyond_frame,
        )  # fmt: skip

    def __call__(self, images: Tensor, targets: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, C, *S) with labels (B,) or masks (B, *S), by ``uniform`` (B, COLUMNS)."""
        draw = iter(uniform.unbind(1))
        masks = targets if targets.ndim > 1 else None
        if self.crop is not None:
            images, masks = random_crop(images, masks, self.crop, draw)
        if self.release:
            images = change_colours(images, draw)
            images = blur_some(images, draw)
        shape = (1, -1, *[1] * (images.ndim - 2))
        images = (images - images.new_tensor(self.mean).view(shape)) / images.new_tensor(self.std).view(shape)
        if self.reflection:
            chosen = next(draw) < 0.5
            images = torch.where(_per_image(chosen, images), images.flip(-1), images)
            masks = None if masks is None else torch.where(_per_image(chosen, masks), masks.flip(-1), masks)
        if self.release or self.rotation:
            theta = self._affine(images, draw)
            images = warp(images, theta, beyond=self.beyond_frame)
            if masks is not None:
                masks = warp(masks.unsqueeze(1), theta, "nearest", self.beyond_frame).squeeze(1)
        return images, targets if masks is None else masks

    def _affine(self, images: Tensor, draw: Iterator[Tensor]) -> Tensor:
        """(B, D, D + 1): from a pixel to where its value comes from, both from the centre in half sides (W, H)."""
        if images.ndim == 5:
            return random_turns_3d(images, self.rotation, draw, self.spacing)
        theta = torch.eye(2, 3).repeat(len(images), 1, 1)
        if self.rotation:
            theta[:, :, :2] = turn_2d(_between(next(draw), -self.rotation, self.rotation), images)
        if self.release:
            linear = theta[:, :, :2].clone()
            shift = torch.stack([_between(next(draw), -2 * self.translation, 2 * self.translation) for _ in "xy"], 1)
            scale, middle = random_crop_box(draw)
            # Output pixel -> within the crop -> before the shift -> before the turn.
            theta[:, :, :2] = linear * scale[:, None, :]
            theta[:, :, 2] = (linear @ (middle - shift)[:, :, None])[:, :, 0]
        return theta


def _check_scale(data: DataSet) -> None:
    """Raise ValueError if images are not on a scale from 0 to 1, by a hundred spread over the set."""
    split = data["train"]
    dtype = split.images.dtype
    if np.issubdtype(dtype, np.unsignedinteger) and np.iinfo(dtype).max <= split.scale:
        return
    rows = np.unique(np.linspace(0, len(split) - 1, min(len(split), _LOOKED_AT)).astype(np.int64))
    seen = [(float(pixels.min()), float(pixels.max())) for pixels, _ in (split.batch([row]) for row in rows)]
    low, high = min(least for least, _ in seen), max(most for _, most in seen)
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        raise ValueError(
            f"augmentation 'release' changes colours on a scale from 0 to 1, and the pixels of {data.name} are from"
            f" {low:g} to {high:g}: take augmentation 'none' (rotation, reflection and crop go with any scale), or"
            " store the images as bytes, or as fractions from 0 to 1"
        )


def random_crop(
    images: Tensor, masks: Tensor | None, side: int, draw: Iterator[Tensor]
) -> tuple[Tensor, Tensor | None]:
    """(B, C, *S) -> (B, C, side, ...), every image from another place, and its mask from the same one."""
    starts = [(next(draw) * (length - side + 1)).long().tolist() for length in images.shape[2:]]
    boxes = [(slice(None), *(slice(start, start + side) for start in place)) for place in zip(*starts, strict=True)]
    cropped = torch.stack([image[box] for image, box in zip(images, boxes, strict=True)])
    if masks is None:
        return cropped, None
    return cropped, torch.stack([mask[box[1:]] for mask, box in zip(masks, boxes, strict=True)])


def random_crop_box(draw: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    """Crops of 50 to 100% of the area: sizes (B, 2) as shares of (W, H), and centres (B, 2) in half sides."""
    area = _between(next(draw), *_CROP_AREA)
    ratio = torch.exp(_between(next(draw), math.log(_CROP_RATIO[0]), math.log(_CROP_RATIO[1])))
    size = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], 1).clamp(max=1)
    middle = torch.stack([_between(next(draw), -1, 1) for _ in "xy"], 1) * (1 - size)
    return size, middle


def turn_2d(degrees: Tensor, images: Tensor) -> Tensor:
    """(B, 2, 2) in half sides (W, H) of frames of any proportions."""
    height, width = images.shape[-2:]
    angle = torch.deg2rad(degrees)
    cos, sin = angle.cos(), angle.sin()
    rows = [torch.stack([cos, -sin * (height / width)], 1), torch.stack([sin * (width / height), cos], 1)]
    return torch.stack(rows, 1)


def random_turns_3d(
    images: Tensor, most: float, draw: Iterator[Tensor], spacing: Sequence[float] | None = None
) -> Tensor:
    """(B, 3, 4): turns of up to ``most`` degrees about one of the three axes each; ``spacing`` is of (D, H, W)."""
    angle = torch.deg2rad(_between(next(draw), -most, most))
    axis = (next(draw) * 3).long()
    sides = torch.tensor(images.shape[:1:-1], dtype=torch.float32)  # (W, H, D), the order of affine_grid
    if spacing is not None:
        sides = sides * torch.tensor(spacing[::-1])
    rotation = torch.eye(3).repeat(len(images), 1, 1)
    image = torch.arange(len(images))
    first, second = (axis + 1) % 3, (axis + 2) % 3
    rotation[image, first, first] = rotation[image, second, second] = angle.cos()
    rotation[image, first, second], rotation[image, second, first] = -angle.sin(), angle.sin()
    rotation = rotation * sides[None, None, :] / sides[None, :, None]
    return torch.cat([rotation, torch.zeros(len(images), 3, 1)], 2)


def warp(images: Tensor, theta: Tensor, mode: str = "bilinear", beyond: Padding = "fill") -> Tensor:
    """(B, C, *S) sampled where ``theta`` (B, D, D + 1) says, "fill": 0 outside. "nearest" keeps whole numbers whole."""
    grid = F.affine_grid(theta.to(images.device), list(images.shape), align_corners=False)
    values = images if images.is_floating_point() else images.float()
    sampled = F.grid_sample(values, grid.to(values.dtype), mode, PADDING_MODES[beyond], align_corners=False)
    return sampled.to(images.dtype)


def change_colours(images: Tensor, draw: Iterator[Tensor]) -> Tensor:
    """(B, C, H, W) on a scale from 0 to 1: brightness, contrast, saturation and hue of most images, some turned grey.

    Saturation, hue and grey are for three channels.
    """
    share, brightness, contrast, saturation, hue, grey = (next(draw) for _ in range(6))
    chosen = share < _JITTER_SHARE
    factor = (1 - _JITTER, 1 + _JITTER)
    changed = adjust_brightness(images, _between(brightness, *factor))
    changed = adjust_contrast(changed, _between(contrast, *factor))
    if images.shape[1] == 3:
        changed = adjust_saturation(changed, _between(saturation, *factor))
        changed = adjust_hue(changed, _between(hue, -_JITTER_HUE, _JITTER_HUE))
    images = torch.where(_per_image(chosen, images), changed, images)
    if images.shape[1] == 3:
        images = torch.where(_per_image(grey < _GREY_SHARE, images), luminance(images), images)
    return images


def luminance(images: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, 1, H, W); other numbers of channels as they are."""
    if images.shape[1] != 3:
        return images
    return (images * images.new_tensor(_LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    return (images * _per_image(factor, images)).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Away from, or towards, the mean luminance of each image."""
    mean = luminance(images).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, _per_image(factor, images)).clamp(0, 1)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Away from, or towards, the luminance of each pixel."""
    return torch.lerp(luminance(images).expand_as(images), images, _per_image(factor, images)).clamp(0, 1)


def adjust_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Shift the hue of (B, 3, H, W) by ``turns`` (B,) of the colour circle.

    In the hexagon of hues, a channel is value - chroma * distance of the hue from that channel's own, which saturates;
    so one formula per channel gives the colour back.
    """
    red, green, blue = images.unbind(1)
    value, least = images.amax(1), images.amin(1)
    chroma = value - least
    per_chroma = 1 / torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sextant = torch.where(
        value == red,
        (green - blue) * per_chroma,
        torch.where(value == green, 2 + (blue - red) * per_chroma, 4 + (red - green) * per_chroma),
    )
    sextant = sextant + 6 * turns[:, None, None].to(images)
    channels = []
    for offset in (5, 3, 1):
        k = sextant + offset
        k = k - 6 * torch.floor(k / 6)  # k % 6, which torch is slow at
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, 1)


def blur_some(images: Tensor, draw: Iterator[Tensor]) -> Tensor:
    """Blur a fifth of (B, C, H, W) by a Gaussian of random width, with a window of about a tenth of the side."""
    chosen = torch.nonzero(next(draw) < _BLUR_SHARE).flatten()
    sigma = _between(next(draw), *_BLUR_SIGMA)[chosen]
    radius = max(1, round(min(images.shape[-2:]) / 20))
    if not len(chosen) or radius >= min(images.shape[-2:]):
        return images
    offset = torch.arange(-radius, radius + 1)
    window = torch.exp(-0.5 * (offset / sigma[:, None]) ** 2)
    window = (window / window.sum(1, keepdim=True)).to(images)
    some = images[chosen].movedim(1, 0)  # (C, N, H, W): a group of the convolution per image
    padded = F.pad(some, (radius,) * 4, mode="reflect")
    rows = F.conv2d(padded, window[:, None, None, :], groups=len(chosen))
    blurred = F.conv2d(rows, window[:, None, :, None], groups=len(chosen))
    return images.index_copy(0, chosen, blurred.movedim(0, 1))


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * uniform


def _per_image(values: Tensor, like: Tensor) -> Tensor:
    """(B,) -> (B, 1, ...), of the same number of axes as ``like``; numbers get its dtype."""
    shaped = values.view(-1, *[1] * (like.ndim - 1)).to(like.device)
    return shaped if values.dtype == torch.bool else shaped.to(like.dtype)
