"""How much of a pixel lies within a given radius of the kernel's centre.

The measure behind ``sampling="area"``, exact up to rounding in 1 and 2 dimensions and to about 1e-8 in 3.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TINY = 1e-150
"""Stands in for a radius of 0 in a division."""


def areas_within(radii: Array, centers: Array, pixel: Array) -> Array:
    """Share of each pixel's box that lies within each radius of the origin.

    Args:
        radii: (R,) radii.
        centers: (P, D) centres of the boxes, D = 1, 2 or 3.
        pixel: (D,) side lengths of a box.

    Returns:
        (R, P), each value in [0, 1].
    """
    # The content of ball and box, as a function of the box's upper corner seen from the origin, is odd in
    # every coordinate; a box anywhere is then the alternating sum over its corners.
    total = np.zeros((len(radii), len(centers)))
    for signs in itertools.product((-1.0, 1.0), repeat=len(pixel)):
        corners = centers + 0.5 * pixel * np.asarray(signs)
        # Neighbouring pixels share corners; each is computed once.
        unique, index = np.unique(np.round(np.abs(corners), 12), axis=0, return_inverse=True)
        content = _corner_content(radii[:, None], *unique.T)[:, index.reshape(-1)]
        total += np.prod(signs) * np.prod(np.sign(corners), axis=1) * content
    share: Array = np.clip(total / np.prod(pixel), 0.0, 1.0)
    return share


def _corner_content(r: Array, *corner: Array) -> Array:
    """Content of the ball of radius ``r`` within the box [0, corner], all coordinates >= 0."""
    if len(corner) == 1:
        return np.minimum(corner[0], r)
    if len(corner) == 2:
        return _disc_in_rectangle(r, *corner)
    return _ball_in_cuboid(r, *corner)


def _disc_in_rectangle(r: Array, a: Array, b: Array) -> Array:
    """Area of the disc of radius ``r`` within [0, a] x [0, b]: the integral over x of min(b, sqrt(r^2 - x^2))."""
    r, a, b = np.broadcast_arrays(r, a, b)
    safe_r = np.maximum(r, _TINY)
    right = np.minimum(a, r)
    # Left of x0 the circle runs above the rectangle's top.
    x0 = np.minimum(np.sqrt(np.maximum(r * r - b * b, 0.0)), right)

    def under_circle(x: Array) -> Array:
        return 0.5 * (x * np.sqrt(np.maximum(r * r - x * x, 0.0)) + r * r * np.arcsin(np.minimum(x / safe_r, 1.0)))

    return b * x0 + under_circle(right) - under_circle(x0)


@functools.cache
def _gauss_legendre(order: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def _ball_in_cuboid(r: Array, a: Array, b: Array, c: Array) -> Array:
    """Volume of the ball of radius ``r`` within [0, a] x [0, b] x [0, c]: discs stacked along z.

    The disc's area has kinks where its radius passes a, b and the rectangle's diagonal; the quadrature is
    split there, and z = r sin(t) removes the square root at the ball's pole.
    """
    r, a, b, c = np.broadcast_arrays(r, a, b, c)
    safe_r = np.maximum(r, _TINY)
    top = np.arcsin(np.minimum(c / safe_r, 1.0))
    kinks = [
        np.minimum(np.arccos(np.minimum(radius / safe_r, 1.0)), top)
        for radius in (np.hypot(a, b), np.maximum(a, b), np.minimum(a, b))
    ]
    bounds = [np.zeros_like(top), *kinks, top]
    nodes, weights = _gauss_legendre(12)
    total = np.zeros_like(top)
    for low, high in itertools.pairwise(bounds):
        for node, weight in zip(nodes, weights, strict=True):
            t = low + (high - low) * node
            disc = _disc_in_rectangle(r * np.cos(t), a, b)
            total += weight * (high - low) * disc * r * np.cos(t)
    return total
