"""Rings times circular harmonics: g(r) cos(o t) and g(r) sin(o t), with t the angle around the kernel's centre.

Turning the image by an angle a turns the pair of responses to the two kernels by the angle o a, so that the length of
the pair stays as it is: it says how strongly the image changes around a pixel, whatever the direction. A quarter turn
or a flip only exchanges the two responses and their signs. As with the rings, values are computed once per orbit of
taps and copied to its taps, here with the signs that the symmetry gives them, so that this holds to the last bit.

Each pair is scaled so that its two kernels together have the squared norm 2, whatever ``normalize`` does to the rings.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ringconv._checks import is_integer
from ringconv._ring_samples import (
    Array,
    doubled_offsets,
    edge_window,
    hard_edges,
    narrow_edges,
    orbits_of,
    samples_of,
)
from ringconv.rings import RingGeometry, RingTables, clipped_sigma, gaussians

HarmonicRings = Literal["middle", "all"] | Sequence[int]


class HarmonicTables(NamedTuple):
    """Constants of the harmonics 1..m of some rings; what depends on sigma is computed from these."""

    angular: Tensor
    """(m, 2, R, orbits): weight of each sample of a ring in an orbit's value, for the cosine and for the sine. For hard
    rings, R counts the rings that have harmonics, and the weights are the values."""
    signs: Tensor
    """(m, 2, 2, taps): the kernels (cosine, sine) at a tap as mixtures of its orbit's values (cosine, sine)."""
    rings: Tensor
    """(rings with harmonics,) int64"""
    half: Tensor
    """(taps / 2,) int64: of each two opposite taps that can be non-zero, the first one; and the centre."""


def chosen_rings(geometry: RingGeometry, harmonics: int, rings: HarmonicRings) -> tuple[int, ...]:
    """The rings that get harmonics of the orders 1..``harmonics``, checked.

    ``"middle"`` is ring n // 2, ``"all"`` is every ring but the first, which is the centre.
    """
    n = geometry.rings
    if isinstance(rings, str):
        if rings not in ("middle", "all"):
            raise ValueError(f"harmonic_rings must be 'middle', 'all' or numbers of rings, got {rings!r}")
        chosen = (n // 2,) if rings == "middle" else tuple(range(min(1, n - 1), n))
    else:
        chosen = () if is_integer(rings) else tuple(rings)
        if not chosen or len(set(chosen)) < len(chosen) or not all(ring in range(n) for ring in chosen):
            raise ValueError(f"harmonic_rings must be different numbers from 0 to {n - 1}, got {rings!r}")
    for ring in chosen:
        highest = _highest_order(geometry, ring)
        if harmonics > highest:
            raise ValueError(
                f"ring {ring} of a {'x'.join(map(str, geometry.kernel_size))} kernel with {n} rings has too few pixels"
                f" around it for harmonics of order {harmonics}: it takes orders up to {highest}"
            )
    return chosen


def harmonic_tables(
    geometry: RingGeometry, harmonics: int, rings: tuple[int, ...], dtype: torch.dtype, device: torch.device | str
) -> HarmonicTables:
    """The constants, as new tensors."""
    angular, signs = _angular(geometry, harmonics), _signs(geometry, harmonics)
    if not geometry.gaussian:
        angular = angular[:, :, list(rings)]
    return HarmonicTables(
        torch.tensor(angular, dtype=dtype, device=device),
        torch.tensor(signs, dtype=dtype, device=device),
        torch.tensor(rings, dtype=torch.int64, device=device),
        torch.tensor(_half_of_taps(geometry), dtype=torch.int64, device=device),
    )


def harmonic_values(
    geometry: RingGeometry, tables: RingTables, harmonics: HarmonicTables, log_sigma: Tensor | None
) -> Tensor:
    """The values of every orbit, (rings, m, 2, orbits), at ``log_sigma`` (n,)."""
    if tables.distance is None:
        values = harmonics.angular.movedim(2, 0)
    else:
        assert log_sigma is not None
        sigma = clipped_sigma(log_sigma.index_select(-1, harmonics.rings), geometry.sigma_range)
        samples = gaussians(tables.distance.index_select(0, harmonics.rings), sigma, from_peak=True)
        values = torch.einsum("nr,mpro->nmpo", samples, harmonics.angular)
    # As for the rings, but cosine and sine together: their norms differ a little, which a turn must not undo.
    largest = values.detach().abs().amax((-2, -1), keepdim=True)
    values = values / torch.where(largest > 0, largest, 1.0)
    squares = (values.square() * tables.taps_per_orbit).sum((-2, -1), keepdim=True)
    return values * (torch.where(squares > 0, squares, 1.0) / 2).rsqrt()


def taps_of_harmonics(geometry: RingGeometry, tables: RingTables, harmonics: HarmonicTables, values: Tensor) -> Tensor:
    """The kernels (rings, m, 2, *kernel_size) of orbit values (rings, m, 2, orbits)."""
    of_orbit = torch.nn.functional.pad(values, (0, 1)).index_select(-1, tables.orbit_of_tap)
    taps = (harmonics.signs * of_orbit.unsqueeze(-3)).sum(-2)
    return taps.reshape(*values.shape[:-1], *geometry.kernel_size)


def _highest_order(geometry: RingGeometry, ring: int) -> int:
    """As many periods as fit around a ring, of two pixels each; its radius is the mean over its taps' squares."""
    radii, values = orbits_of(geometry).radii, _initial_rings(geometry)[ring]
    weights = values**2 * np.bincount(orbits_of(geometry).of_tap)[: len(radii)] * (radii > 0)
    return int(math.pi * (weights @ radii) / weights.sum()) if weights.sum() > 0 else 0


def _initial_rings(geometry: RingGeometry) -> Array:
    """(n, orbits), at the initial sigma and not normalised."""
    distance, mixing = samples_of(geometry)
    if distance is None:
        assert mixing is not None
        return mixing
    values = np.exp(-0.5 * (distance / math.exp(geometry.initial_log_sigma)) ** 2)
    return values if mixing is None else values @ mixing


def _half_of_taps(geometry: RingGeometry) -> list[int]:
    of_tap, radii = orbits_of(geometry).of_tap, orbits_of(geometry).radii
    return [tap for tap in range((len(of_tap) + 1) // 2) if of_tap[tap] < len(radii)]


@functools.lru_cache(maxsize=256)
def _angular(geometry: RingGeometry, harmonics: int) -> Array:
    """``angular`` of :class:`HarmonicTables`, of all rings: (m, 2, R or n, orbits)."""
    y, x = orbits_of(geometry).offsets.T
    orders = range(1, harmonics + 1)
    _, mixing = samples_of(geometry)
    if geometry.sampling == "area":
        edges = narrow_edges(geometry)
        middles = (edges[1:] + edges[:-1]) / 2
        angular = _arcs(geometry, middles, orders) * (np.diff(edges) * edge_window(geometry, middles))[:, None]
        if not geometry.gaussian:
            of_ring = np.searchsorted(hard_edges(geometry), middles, side="right") - 1
            angular = np.stack([angular[:, :, of_ring == ring].sum(2) for ring in range(geometry.rings)], 2)
    else:
        angle = np.array(orders)[:, None] * np.arctan2(y, x)
        # The centre has no direction.
        waves = np.stack([np.cos(angle), np.sin(angle)], 1) * (np.hypot(y, x) > 0)
        angular = waves[:, :, None] * (np.eye(len(y)) if mixing is None else mixing)
    # What is left of a cosine or a sine where the symmetry wants none of it is rounding.
    signs = np.stack([_fixed_by_symmetry(geometry, order, a, b) for order in orders for a, b in zip(y, x, strict=True)])
    projected: Array = np.einsum("moab,mbro->maro", signs.reshape(harmonics, len(y), 2, 2), angular)
    return projected


def _arcs(geometry: RingGeometry, radii: Array, orders: Sequence[int]) -> Array:
    """(m, 2, R, orbits): the integrals of cos(o t) and sin(o t) over the arc of each radius that lies in the pixel,
    times the radius, by the pixel's area."""
    pixel_y, pixel_x = geometry.pixel
    y, x = orbits_of(geometry).offsets.T
    r = radii[:, None]
    low_x, high_x, low_y, high_y = x - pixel_x / 2, x + pixel_x / 2, y - pixel_y / 2, y + pixel_y / 2
    # The arc can begin and end where the circle crosses the line of a side; where it does not, the cut does no harm.
    cuts = [np.full((len(radii), len(x)), side * math.pi) for side in (-1, 1)]
    for line in (low_x, high_x):
        crossing = np.arccos(np.clip(line / r, -1, 1))
        cuts += [crossing, -crossing]
    for line in (low_y, high_y):
        crossing = np.arcsin(np.clip(line / r, -1, 1))
        cuts += [crossing, np.where(crossing > 0, math.pi, -math.pi) - crossing]
    at = np.sort(np.stack(cuts), axis=0)
    middle = (at[1:] + at[:-1]) / 2
    on_x, on_y = r * np.cos(middle), r * np.sin(middle)
    inside = (low_x <= on_x) & (on_x <= high_x) & (low_y <= on_y) & (on_y <= high_y)
    integrals = [
        [(np.diff(np.sin(o * at), axis=0) * inside).sum(0) / o, (np.diff(-np.cos(o * at), axis=0) * inside).sum(0) / o]
        for o in orders
    ]
    return np.array(integrals) * r / (pixel_y * pixel_x)


# -- what the symmetries of the kernel's box do to the pair (cosine, sine) of one order


def _symmetry(order: int, *, exchanged: bool, flip_y: bool, flip_x: bool) -> Array:
    """(2, 2): the pair at a tap, from the pair at the one that the exchange of the axes, then the flips move to it."""
    mirrored = np.diag([1.0, -1.0])
    matrix = np.eye(2)
    if exchanged:
        # The angle becomes a right angle minus itself.
        cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[order % 4]
        matrix = np.array([[cos, sin], [sin, -cos]], dtype=np.float64)
    if flip_x:
        matrix = (-1) ** order * mirrored @ matrix
    return mirrored @ matrix if flip_y else matrix


def _may_exchange(geometry: RingGeometry) -> bool:
    return len(set(zip(geometry.kernel_size, geometry.pixel, strict=True))) == 1


def _fixed_by_symmetry(geometry: RingGeometry, order: int, y: float, x: float) -> Array:
    """(2, 2): projects a pair onto what the symmetries that leave the tap (y, x) in its place leave as it is."""
    moves = itertools.product((False, True) if _may_exchange(geometry) else (False,), (False, True), (False, True))
    keeping = []
    for exchanged, flip_y, flip_x in moves:
        to_y, to_x = (x, y) if exchanged else (y, x)
        if (-to_y if flip_y else to_y, -to_x if flip_x else to_x) == (y, x):
            keeping.append(_symmetry(order, exchanged=exchanged, flip_y=flip_y, flip_x=flip_x))
    projection: Array = np.mean(keeping, axis=0)
    return projection


@functools.lru_cache(maxsize=256)
def _signs(geometry: RingGeometry, harmonics: int) -> Array:
    """``signs`` of :class:`HarmonicTables`; whole and half numbers."""
    may_exchange = _may_exchange(geometry)
    signs = np.zeros((harmonics, 2, 2, math.prod(geometry.kernel_size)))
    for tap, (y, x) in enumerate(doubled_offsets(geometry).tolist()):
        # The representative of an orbit has coordinates that are not negative, the first not larger than the second.
        exchanged = may_exchange and abs(y) > abs(x)
        at = sorted((abs(y), abs(x))) if may_exchange else (abs(y), abs(x))
        for order in range(1, harmonics + 1):
            moved = _symmetry(order, exchanged=exchanged, flip_y=y < 0, flip_x=x < 0)
            signs[order - 1, :, :, tap] = moved @ _fixed_by_symmetry(geometry, order, *at)
    return signs
