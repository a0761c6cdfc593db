"""What a network says of a picture at every angle; worked out once for each picture."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv._rotate import distance_from, middle
from ringconv.demo.drawing import LEAST_RADIUS
from ringconv.demo.networks import Network, Response
from ringconv.demo.pictures import Picture
from ringconv.demo.views import ANGLES, all_views, shown_side, turned_back, view

_PIXELS_AT_ONCE = 12 * 64 * 64


@dataclass(frozen=True)
class ClassSweep:
    """Over ``ANGLES``."""

    probabilities: NDArray[np.float32]
    """(angles, classes)"""
    drift: NDArray[np.float32]
    """(angles,): |embedding - upright embedding| / |upright embedding|"""


@functools.lru_cache(maxsize=16)
def upright_response(network: Network, picture: Picture, layer: str | None = None) -> Response:
    """What every frame is compared with."""
    return network(view(picture, shown_side(picture, network.side), network.channels), layer)


@functools.lru_cache(maxsize=64)
def class_sweep(network: Network, picture: Picture, mirrored: bool) -> ClassSweep:
    side = shown_side(picture, network.side)
    probabilities, embeddings = [], []
    for images in torch.split(all_views(picture, side, network.channels, mirrored), _batch(side)):
        response = network(images)
        probabilities.append(response.output.softmax(1))
        embeddings.append(response.embedding)
    upright = upright_response(network, picture).embedding
    return ClassSweep(torch.cat(probabilities).numpy(), drift(torch.cat(embeddings), upright).numpy())


def drift(embeddings: Tensor, upright: Tensor) -> Tensor:
    """(B, E) and (1, E) -> (B,): how far each is from the upright one, relative to its length."""
    distance: Tensor = (embeddings - upright).norm(dim=1) / upright.norm().clamp(min=1e-12)
    return distance


@functools.lru_cache(maxsize=64)
def overlap_sweep(network: Network, picture: Picture, mirrored: bool) -> NDArray[np.float32]:
    """(angles,): how far the segmentation of the turned picture, turned back, is that of the upright one."""
    side = shown_side(picture, network.side)
    views = all_views(picture, side, network.channels, mirrored)
    outputs = torch.cat([network(images).output for images in torch.split(views, _batch(side))])
    upright = segmentation(upright_response(network, picture).output)
    found = [
        segmentation_back(output[None], angle, mirrored) for angle, output in zip(ANGLES, outputs, strict=True)
    ]  # fmt: skip
    return np.array([overlap(each, upright) for each in found], np.float32)


def segmentation(output: Tensor) -> Tensor:
    """Logits (1, classes, H, W) -> class numbers (H, W); one class is foreground against background."""
    return (output[0, 0] > 0).long() if output.shape[1] == 1 else output[0].argmax(0)


def segmentation_back(output: Tensor, angle: float, mirrored: bool) -> Tensor:
    """The segmentation of a turned and mirrored picture, in the picture's own frame: (H, W)."""
    # Probabilities are turned, not logits: interpolation would ring around large values.
    shares = output.sigmoid() if output.shape[1] == 1 else output.softmax(1)
    back = turned_back(shares, angle, mirrored)
    return segmentation(back - 0.5 if output.shape[1] == 1 else back)


def overlap(found: Tensor, upright: Tensor) -> float:
    """Intersection over union of what is not background, within the largest disc; 1 if there is nothing at all."""
    inside = disc(found)
    either = ((found > 0) | (upright > 0)) & inside
    both = (found == upright) & either
    return float(both.sum() / either.sum()) if either.any() else 1.0


def disc(maps: Tensor) -> Tensor:
    """(h, w) bool: what stays in the frame at every angle; at least the pixels around the centre."""
    size = tuple(maps.shape[-2:])
    return distance_from(middle(size), size) <= max((min(size) - 1) / 2, LEAST_RADIUS)


def _batch(side: int) -> int:
    return max(1, _PIXELS_AT_ONCE // side**2)
