"""Geometry and Gaussians: from a kernel size and the widths of its rings to the basis M_G.

A kernel is a sum of n rings, K = sum_i w_i G_i, and G_i depends on the distance r to the kernel's centre only.
Taps that a symmetry of the kernel's box maps onto each other form an *orbit*; every value is computed once
per orbit and copied to its taps, so the symmetry holds to the last bit.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv._areas import areas_within

Sampling = Literal["point", "area", "binned"]
SAMPLINGS: tuple[Sampling, ...] = ("point", "area", "binned")

FWHM = 2.355
"""Full width at half maximum of a Gaussian, in units of its sigma, as the paper rounds it."""

SIGMA_MIN = 1e-2

_RELEASE_SQRT_2PI = 2.5066
"""sqrt(2 pi), as the authors' package rounds it; ``sampling="binned"`` reproduces that."""

_RADIAL_STEP = 1 / 128
"""Bin width, in pixels, of the radial quadrature behind ``sampling="area"``: below SIGMA_MIN, so that the midpoint
rule resolves the narrowest ring."""


class RingTables(NamedTuple):
    """The constants of a geometry as tensors; what depends on sigma is computed from these."""

    distance: Tensor | None
    """(n, R): signed distance of R sample radii from the rings' means; None for hard rings."""
    mixing: Tensor | None
    """(R, orbits): weight of each sample radius in an orbit's value; None if each orbit is its own sample. For
    hard rings, the basis (n, orbits) itself."""
    taps_per_orbit: Tensor
    """(orbits,), floating."""
    orbit_of_tap: Tensor
    """(taps,) int64: orbit of every tap of the kernel in C order; ``orbits`` for a tap outside of the circle."""


@dataclass(frozen=True)
class RingGeometry:
    """Where the rings of a kernel lie and how they are sampled on its taps.

    The radius is Euclidean, in pixels, from the middle of the box: at a tap for an odd side, between two taps
    for an even one. ``k`` is the longest side. A box with unequal sides keeps the symmetry it has: the flips, and
    the exchange of those axes that are equal; it is not equivariant to a quarter turn. A single tap is a plain 1x1
    convolution, whatever the sampling.

    Args:
        kernel_size: taps per axis, 1 to 3 axes.
        rings: n; default ``k // 2 + 1`` for the longest side k in taps, and one more if not circular.
        circular: taps with r >= k/2 are zero.
        gaussian: Gaussian rings; if False, hard rings: the indicators of the bins ``linspace(0, k/2, n + 1)``
            (not circular: the last bin has no outer edge).
        sampling: ``"point"``: the ring function at the tap's centre, as in the paper. ``"area"``: its mean over
            the tap's pixel, circle included. ``"binned"``: as the authors' package 1.0.3 does it, a normalised
            Gaussian over ring indices.
        normalize: every ring scaled to unit L2 norm.
        spacing: size of a voxel along each axis; the radius is then measured in units of the smallest one, and
            so are ``k`` and sigma. Only the ratios matter.
    """

    kernel_size: tuple[int, ...]
    rings: int = 0
    circular: bool = True
    gaussian: bool = True
    sampling: Sampling = "point"
    normalize: bool = False
    spacing: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        # A list would do but for being looked up in caches.
        object.__setattr__(self, "kernel_size", tuple(self.kernel_size))
        if not 1 <= len(self.kernel_size) <= 3 or any(size < 1 for size in self.kernel_size):
            raise ValueError(f"kernel_size must be 1 to 3 sizes of at least 1, got {self.kernel_size}")
        if self.sampling not in SAMPLINGS:
            raise ValueError(f"sampling must be one of {', '.join(map(repr, SAMPLINGS))}, got {self.sampling!r}")
        if self.spacing is not None:
            if len(self.spacing) != len(self.kernel_size):
                raise ValueError(f"spacing needs one value per axis ({len(self.kernel_size)}), got {self.spacing}")
            if not all(math.isfinite(step) and step > 0 for step in self.spacing):
                raise ValueError(f"spacing must be positive and finite, got {self.spacing}")
        if self.rings < 0:
            raise ValueError(f"rings must be at least 1, got {self.rings}")
        if self.single_tap:
            # A plain 1x1 convolution: nothing to sample, and no ring beyond the first.
            object.__setattr__(self, "gaussian", False)
            object.__setattr__(self, "sampling", "point")
            object.__setattr__(self, "circular", True)
        if self.rings == 0:
            object.__setattr__(self, "rings", max(self.kernel_size) // 2 + (1 if self.circular else 2))

    @property
    def single_tap(self) -> bool:
        return max(self.kernel_size) == 1

    @property
    def pixel(self) -> tuple[float, ...]:
        """Size of a tap's pixel along each axis, the smallest being 1."""
        if self.spacing is None:
            return (1.0,) * len(self.kernel_size)
        return tuple(step / min(self.spacing) for step in self.spacing)

    @property
    def extent(self) -> float:
        """k: the longest side, in pixels."""
        return max(size * step for size, step in zip(self.kernel_size, self.pixel, strict=True))

    @property
    def delta(self) -> float:
        """Distance between two rings, in pixels."""
        return self.extent / (2 * (self.rings - 1)) if self.rings > 1 else self.extent / 2

    @property
    def sigma_range(self) -> tuple[float, float]:
        """What sigma is clipped to."""
        return SIGMA_MIN, 2.0 * self.rings

    @property
    def initial_log_sigma(self) -> float:
        """Full width at half maximum = ring distance. The authors' package uses the same number in ring indices."""
        return math.log(self.delta / FWHM)

    def tables(self, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> RingTables:
        """The geometry's constants, as new tensors."""
        orbits = _orbits(self)
        distance, mixing = _samples(self)

        def floating(array: NDArray[np.float64] | None) -> Tensor | None:
            return None if array is None else torch.tensor(array, dtype=dtype, device=device)

        return RingTables(
            floating(distance),
            floating(mixing),
            torch.tensor(np.bincount(orbits.of_tap)[: len(orbits.radii)], dtype=dtype, device=device),
            torch.tensor(orbits.of_tap, dtype=torch.int64, device=device),
        )

    def basis(self, log_sigma: Tensor | None = None) -> Tensor:
        """M_G, (n, *kernel_size), at ``log_sigma`` (n,) and in its dtype; by default the initial one in float64."""
        if log_sigma is None:
            log_sigma = torch.full((self.rings,), self.initial_log_sigma, dtype=torch.float64)
        tables = self.tables(log_sigma.dtype, log_sigma.device)
        values = orbit_values(self, tables, log_sigma if self.gaussian else None)
        return taps_of_orbits(self, tables, values)

    def empty_rings(self) -> list[int]:
        """Rings (counted from 0) that no tap is nearest to, when there are more rings than radii to tell them apart."""
        radii = _orbits(self).radii
        if self.sampling == "binned":
            members = _bin_of_radius(radii, _release_edges(self))
        elif not self.gaussian and self.sampling == "area":
            # A ring is never without pixels here, but rings beyond the number of orbits are mixtures of the others.
            members = np.arange(self.rings) if self.rings <= len(radii) else _bin_of_radius(radii, _hard_edges(self))
        elif not self.gaussian:
            members = _bin_of_radius(radii, _hard_edges(self))
        elif self.rings > len(np.unique(np.round(radii, 9))):
            members = np.floor(radii / self.delta + 0.5)
        else:
            return []
        return sorted(set(range(self.rings)) - set(members.astype(int).tolist()))

    def warn_of_empty_rings(self, stacklevel: int = 2) -> None:
        """Warn if some rings cannot be told apart on this kernel, and name them."""
        empty = self.empty_rings()
        if empty:
            warnings.warn(
                f"{self.rings} rings are more than the radii of a {'x'.join(map(str, self.kernel_size))} kernel can"
                f" tell apart: no tap belongs to ring {', '.join(map(str, empty))} (counted from 0)."
                f" Use fewer rings (rings={max(1, self.rings - len(empty))}) or a larger kernel.",
                stacklevel=stacklevel + 1,
            )


def orbit_values(geometry: RingGeometry, tables: RingTables, log_sigma: Tensor | None) -> Tensor:
    """The basis, one value per orbit.

    Args:
        log_sigma: (..., n), in pixels, or in ring indices for ``sampling="binned"``; None for hard rings.

    Returns:
        (..., n, orbits)
    """
    if tables.distance is None:
        assert tables.mixing is not None
        values = tables.mixing
    else:
        assert log_sigma is not None
        sigma = clipped_sigma(log_sigma, geometry.sigma_range).unsqueeze(-1)
        exponent = -0.5 * (tables.distance / sigma).square()
        if geometry.normalize:
            # The scale cancels below; without this a narrow ring between two radii would vanish.
            exponent = exponent - exponent.detach().amax(-1, keepdim=True)
        values = exponent.exp()
        if geometry.sampling == "binned":
            values = values / (sigma * _RELEASE_SQRT_2PI)
        if tables.mixing is not None:
            values = values @ tables.mixing
    if geometry.normalize:
        # The largest value first: the square of a faint ring, and the cube in its gradient, would leave the range.
        largest = values.detach().abs().amax(-1, keepdim=True)
        values = values / torch.where(largest > 0, largest, 1.0)
        squares = (values.square() * tables.taps_per_orbit).sum(-1, keepdim=True)
        values = values * torch.where(squares > 0, squares, 1.0).rsqrt()
    return values


def taps_of_orbits(geometry: RingGeometry, tables: RingTables, values: Tensor) -> Tensor:
    """Copy orbit values (..., orbits) to the taps: (..., *kernel_size), zero outside of the circle."""
    taps = torch.nn.functional.pad(values, (0, 1)).index_select(-1, tables.orbit_of_tap)
    return taps.reshape(*values.shape[:-1], *geometry.kernel_size)


def clipped_sigma(log_sigma: Tensor, bounds: tuple[float, float]) -> Tensor:
    """exp(log_sigma), clipped to ``bounds``; the gradient passes as if log_sigma were at the bound.

    So a value beyond the clip still moves, and can come back. The clip acts on the logarithm: exp() of a far
    value would underflow and take its gradient with it.
    """
    clipped = log_sigma.detach().clamp(math.log(bounds[0]), math.log(bounds[1]))
    return (clipped + (log_sigma - log_sigma.detach())).exp()


class _Orbits(NamedTuple):
    """The orbits that can be non-zero."""

    of_tap: NDArray[np.int64]
    """(taps,): orbit of every tap, in C order; ``len(radii)`` for a tap that is always zero."""
    offsets: NDArray[np.float64]
    """(orbits, D): the representative tap, in pixels from the centre."""
    radii: NDArray[np.float64]
    """(orbits,)"""


@functools.lru_cache(maxsize=256)
def _orbits(geometry: RingGeometry) -> _Orbits:
    sizes = np.asarray(geometry.kernel_size)
    pixel = np.asarray(geometry.pixel)
    # Twice the offset from the centre is an integer for odd and even sides, so that orbits are found exactly.
    doubled = np.stack(np.meshgrid(*[2 * np.arange(k) - (k - 1) for k in sizes], indexing="ij"), -1)
    canonical = np.abs(doubled.reshape(-1, len(sizes)))
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
        outer = _release_edges(geometry)[-1] if geometry.sampling == "binned" else geometry.extent / 2
        live = np.sqrt((nearest**2).sum(1)) < outer
    new_index = np.where(live, np.cumsum(live) - 1, live.sum())
    return _Orbits(new_index[of_tap.reshape(-1)], offsets[live], np.sqrt((offsets[live] ** 2).sum(1)))


@functools.lru_cache(maxsize=256)
def _samples(geometry: RingGeometry) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """``distance`` and ``mixing`` of :class:`RingTables`, in float64."""
    radii = _orbits(geometry).radii
    mu = np.arange(geometry.rings) * geometry.delta
    if geometry.sampling == "binned":
        index = np.arange(geometry.rings, dtype=np.float64)
        between = index[None, :] - index[:, None]
        return between if geometry.gaussian else None, _membership(radii, _release_edges(geometry))
    if geometry.sampling == "area":
        radius, share = _radial_shares(geometry)
        return radius[None, :] - mu[:, None] if geometry.gaussian else None, share
    if geometry.gaussian:
        return radii[None, :] - mu[:, None], None
    return None, _membership(radii, _hard_edges(geometry))


def _radial_shares(geometry: RingGeometry) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sample radii (R,), and the share of each orbit's pixel that lies around them (R, orbits).

    The radius is cut into narrow bins, each sampled at its middle; for hard rings, each ring is a bin.
    """
    orbits = _orbits(geometry)
    pixel = np.asarray(geometry.pixel)
    reach = np.sqrt(((orbits.offsets + 0.5 * pixel) ** 2).sum(1)).max()
    outer = geometry.extent / 2 if geometry.circular else reach
    narrow = np.linspace(0.0, outer, math.ceil(outer / _RADIAL_STEP) + 1)
    edges = narrow if geometry.gaussian else _hard_edges(geometry)
    share = np.diff(areas_within(np.minimum(edges, reach), orbits.offsets, pixel), axis=0)
    return (edges[1:] + edges[:-1]) / 2, share


def _hard_edges(geometry: RingGeometry) -> NDArray[np.float64]:
    edges = np.linspace(0.0, geometry.extent / 2, geometry.rings + 1)
    if not geometry.circular:
        edges[-1] = math.inf
    return edges


def _release_edges(geometry: RingGeometry) -> NDArray[np.float64]:
    """Bins of the authors' package: up to floor(k/2) + 1/2, or, not circular, a last ring for the corner alone."""
    if geometry.circular:
        return np.linspace(0.0, math.floor(geometry.extent / 2) + 0.5, geometry.rings + 1)
    corner = 0.5 * math.hypot(*[(k - 1) * step for k, step in zip(geometry.kernel_size, geometry.pixel, strict=True)])
    return np.append(np.linspace(0.0, corner, geometry.rings), math.inf)


def _bin_of_radius(radii: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index of the half-open bin [edge, next edge) of each radius."""
    return np.searchsorted(edges, radii, side="right") - 1


def _membership(radii: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """(bins, orbits): 1 where the orbit's radius falls into the bin, else 0."""
    member: NDArray[np.bool_] = _bin_of_radius(radii, edges) == np.arange(len(edges) - 1)[:, None]
    return member.astype(np.float64)


def as_tuple(value: int | Sequence[int], dimensions: int, name: str) -> tuple[int, ...]:
    """``value`` once per axis, as the torch layers take it."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    if len(values) == 1:
        values = values * dimensions
    if len(values) != dimensions or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise ValueError(f"{name} must be an int or {dimensions} ints, got {value!r}")
    return values
