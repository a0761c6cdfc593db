"""Where the taps of a kernel lie, and at which radii its rings are sampled for each of them. Everything in float64."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringconv._areas import areas_within

if TYPE_CHECKING:
    from ringconv.rings import RingGeometry

Array = NDArray[np.float64]

_RADIAL_STEP = 1 / 128
"""Bin width, in pixels, of the radial quadrature behind ``sampling="area"``: below the smallest sigma, so that the
midpoint rule resolves the narrowest ring."""


class Orbits(NamedTuple):
    """The orbits that can be non-zero."""

    of_tap: NDArray[np.int64]
    """(taps,): orbit of every tap, in C order; ``len(radii)`` for a tap that is always zero."""
    offsets: Array
    """(orbits, D): the representative tap, in pixels from the centre; not negative, and ascending over equal axes."""
    radii: Array
    """(orbits,)"""


@functools.lru_cache(maxsize=256)
def orbits_of(geometry: RingGeometry) -> Orbits:
    pixel = np.asarray(geometry.pixel)
    canonical = np.abs(doubled_offsets(geometry))
    kinds = list(zip(geometry.kernel_size, geometry.pixel, strict=True))
    for kind in set(kinds):
        axes = [axis for axis, other in enumerate(kinds) if other == kind]
        canonical[:, axes] = np.sort(canonical[:, axes], axis=1)
    representatives, of_tap = np.unique(canonical, axis=0, return_inverse=True)
    offsets = representatives * 0.5 * pixel
    # A pixel counts for "area" if any of it lies within the circle, else if its centre does.
    nearest = np.maximum(offsets - 0.5 * pixel, 0.0) if geometry.sampling == "area" else offsets
    live = np.full(len(offsets), True)
    if geometry.circular:
        live = np.sqrt((nearest**2).sum(1)) < outer_radius(geometry)
    new_index = np.where(live, np.cumsum(live) - 1, live.sum())
    return Orbits(new_index[of_tap.reshape(-1)], offsets[live], np.sqrt((offsets[live] ** 2).sum(1)))


def doubled_offsets(geometry: RingGeometry) -> NDArray[np.int64]:
    """(taps, D): twice the offset from the centre, an integer for odd and even sides, so that orbits are exact."""
    axes = [2 * np.arange(k) - (k - 1) for k in geometry.kernel_size]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def outer_radius(geometry: RingGeometry) -> float:
    """Where a circular kernel ends."""
    if geometry.edge == "smooth":
        return _smooth_from(geometry) + 1.0
    return float(release_edges(geometry)[-1]) if geometry.sampling == "binned" else geometry.extent / 2


def _smooth_from(geometry: RingGeometry) -> float:
    """Where a smooth edge begins, so that a pixel further out all of the kernel lies within its box.

    The squares of the pixels reach as far as k/2. Points lie a pixel apart: at (k - 1)/2, and next at (k + 1)/2.
    """
    return geometry.extent / 2 - 1.0 if geometry.sampling == "area" else (geometry.extent - 1.0) / 2


def edge_window(geometry: RingGeometry, radii: Array) -> Array:
    """What the rings are multiplied with: 1, and for a smooth edge half a cosine down over a pixel."""
    if geometry.edge == "hard":
        return np.ones_like(radii)
    return 0.5 * (1 + np.cos(np.pi * np.clip(radii - _smooth_from(geometry), 0.0, 1.0)))


@functools.lru_cache(maxsize=256)
def samples_of(geometry: RingGeometry) -> tuple[Array | None, Array | None]:
    """``distance`` and ``mixing`` of :class:`ringconv.rings.RingTables`."""
    radii = orbits_of(geometry).radii
    mu = np.arange(geometry.rings) * geometry.delta
    if geometry.sampling == "binned":
        index = np.arange(geometry.rings, dtype=np.float64)
        between = index[None, :] - index[:, None]
        mixing = _membership(radii, release_edges(geometry)) * edge_window(geometry, radii)
        if not geometry.gaussian:
            return None, mixing
        # Not where there is no tap: the peak of a ring that is scaled to its norm must be at one.
        has_taps = mixing.any(1)
        return between[:, has_taps], mixing[has_taps]
    if geometry.sampling == "area":
        radius, share = _radial_shares(geometry)
        return radius[None, :] - mu[:, None] if geometry.gaussian else None, share
    if geometry.gaussian:
        window = None if geometry.edge == "hard" else np.diag(edge_window(geometry, radii))
        return radii[None, :] - mu[:, None], window
    return None, _membership(radii, hard_edges(geometry)) * edge_window(geometry, radii)


def narrow_edges(geometry: RingGeometry) -> Array:
    """Edges of the radial quadrature's bins."""
    outer = outer_radius(geometry) if geometry.circular else _reach(geometry)
    return np.linspace(0.0, outer, math.ceil(outer / _RADIAL_STEP) + 1)


def _reach(geometry: RingGeometry) -> float:
    """Distance of the farthest point of a live pixel."""
    corners = orbits_of(geometry).offsets + 0.5 * np.asarray(geometry.pixel)
    return float(np.sqrt((corners**2).sum(1)).max())


def _radial_shares(geometry: RingGeometry) -> tuple[Array, Array]:
    """Sample radii (R,), and the share of each orbit's pixel that lies around them (R, orbits).

    The radius is cut into narrow bins, each sampled at its middle; for hard rings, each ring is a bin.
    """
    offsets, pixel = orbits_of(geometry).offsets, np.asarray(geometry.pixel)
    hard_bins = not geometry.gaussian and geometry.edge == "hard"
    edges = hard_edges(geometry) if hard_bins else narrow_edges(geometry)
    share = np.diff(areas_within(np.minimum(edges, _reach(geometry)), offsets, pixel), axis=0)
    middles = (edges[1:] + edges[:-1]) / 2
    share = share if hard_bins else share * edge_window(geometry, middles)[:, None]
    if geometry.gaussian or hard_bins:
        return middles, share
    return middles, _membership(middles, hard_edges(geometry)) @ share


def hard_edges(geometry: RingGeometry) -> Array:
    edges = np.linspace(0.0, geometry.extent / 2, geometry.rings + 1)
    if not geometry.circular or geometry.edge == "smooth":
        edges[-1] = math.inf
    return edges


def release_edges(geometry: RingGeometry) -> Array:
    """Bins of the authors' package: up to floor(k/2) + 1/2, or, not circular, a last ring for the corner alone."""
    if geometry.circular:
        edges = np.linspace(0.0, math.floor(geometry.extent / 2) + 0.5, geometry.rings + 1)
        if geometry.edge == "smooth":
            edges[-1] = math.inf
        return edges
    corner = 0.5 * math.hypot(*[(k - 1) * step for k, step in zip(geometry.kernel_size, geometry.pixel, strict=True)])
    return np.append(np.linspace(0.0, corner, geometry.rings), math.inf)


def bin_of_radius(radii: Array, edges: Array) -> NDArray[np.int64]:
    """Index of the half-open bin [edge, next edge) of each radius."""
    return np.searchsorted(edges, radii, side="right") - 1


def _membership(radii: Array, edges: Array) -> Array:
    """(bins, radii): 1 where the radius falls into the bin, else 0."""
    member: NDArray[np.bool_] = bin_of_radius(radii, edges) == np.arange(len(edges) - 1)[:, None]
    return member.astype(np.float64)
