"""A picture as a network is shown it: turned as a whole, then cut, so that no corner is ever empty.

The square that is shown lies within the picture at every angle: it is the middle of a window sqrt(2) times as wide.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from ringconv._extras import needs
from ringconv.demo.pictures import Picture, resized
from ringconv.equivariance import rotate

STEP = 10
"""Degrees between two angles of a sweep."""
ANGLES = tuple(range(0, 360, STEP))
LARGEST_SIDE = 64
SMALLEST_SIDE = 32
"""What a network without a size of its own is shown, at most and at least."""


def shown_side(picture: Picture, wanted: int | None) -> int:
    """Side of the square that a network sees; without a size of its own, what the picture has, within limits."""
    if wanted is not None:
        return wanted
    inside = int(picture.side / math.sqrt(2))
    return min(LARGEST_SIDE, max(SMALLEST_SIDE, inside - inside % 4))


@functools.lru_cache(maxsize=8)
def view(picture: Picture, side: int, channels: int, angle: float = 0.0, mirrored: bool = False) -> Tensor:
    """(1, channels, side, side) on a scale from 0 to 1: mirrored if asked for, then turned counter-clockwise."""
    window = _window(picture, side, channels)
    return _middle(rotate(window.flip(-1) if mirrored else window, angle), side)


@functools.lru_cache(maxsize=16)
def all_views(picture: Picture, side: int, channels: int, mirrored: bool) -> Tensor:
    """(len(ANGLES), channels, side, side), as by :func:`view`."""
    window = _window(picture, side, channels)
    window = window.flip(-1) if mirrored else window
    leaning = [_middle(rotate(window, rest), side) for rest in range(0, 90, STEP)]
    # Quarter turns are exact and share the rest.
    return torch.cat([view.rot90(quarter, (2, 3)) for quarter in range(4) for view in leaning])


def turned_back(maps: Tensor, angle: float, mirrored: bool) -> Tensor:
    """(B, C, h, w): what undoes the turn and the mirror of a view."""
    back = rotate(maps, -angle)
    return back.flip(-1) if mirrored else back


@functools.lru_cache(maxsize=32)
def _window(picture: Picture, side: int, channels: int) -> Tensor:
    width = math.ceil(side * math.sqrt(2))
    width += (width - side) % 2  # the same on both sides, so that the two share their centre
    pixels = picture.pixels if picture.side == width else resized(picture.pixels, width)
    if channels == 1:
        pixels = np.asarray(needs("PIL.Image", "demo").fromarray(pixels).convert("L"))[..., None]
    return torch.from_numpy(np.array(pixels, np.float32) / 255).movedim(-1, 0)[None]


def _middle(window: Tensor, side: int) -> Tensor:
    border = (window.shape[-1] - side) // 2
    return window[..., border : border + side, border : border + side].clamp(0, 1)
