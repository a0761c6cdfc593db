"""Geometry and Gaussians: from a kernel size and the widths of its rings to the basis M_G.

A kernel is a sum of n rings, K = sum_i w_i G_i, and G_i depends on the distance r to the kernel's centre only.
Taps that a symmetry of the kernel's box maps onto each other form an *orbit*; every value is computed once
per orbit and copied to its taps, so the symmetry holds to the last bit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ringconv._checks import is_integer
from ringconv._ring_samples import bin_of_radius, hard_edges, orbits_of, release_edges, samples_of

Sampling = Literal["point", "area", "binned"]
SAMPLINGS: tuple[Sampling, ...] = ("point", "area", "binned")
Normalize = bool | Literal["orthonormal"]
NORMALIZATIONS: tuple[Normalize, ...] = (False, True, "orthonormal")
Edge = Literal["hard", "smooth"]
EDGES: tuple[Edge, ...] = ("hard", "smooth")

FWHM = 2.355
"""Full width at half maximum of a Gaussian, in units of its sigma, as the paper rounds it."""

SIGMA_MIN = 1e-2

_RELEASE_SQRT_2PI = 2.5066
"""sqrt(2 pi), as the authors' package rounds it; ``sampling="binned"`` reproduces that."""

_SMALLEST_PART = 1e-3
"""Of a unit ring that is not a mixture of those before it: what is smaller counts as rounding, and the ring as zero."""


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
    """Where the rings of a kernel lie and how they are sampled on its taps; by default as in the paper.

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
        normalize: True: every ring scaled to unit L2 norm. ``"orthonormal"``: also, from the centre outwards, what a
            ring has in common with those before it is taken away; a ring that has nothing else becomes zero.
        spacing: size of a voxel along each axis; the radius is then measured in units of the smallest one, and
            so are ``k`` and sigma. Only the ratios matter.
        edge: how a circular kernel ends. ``"hard"``: at r = k/2, as in the paper. ``"smooth"``: the rings are
            multiplied by (1 + cos(pi t)) / 2 with t = r - e cut to [0, 1]: down over one pixel. For ``"area"``
            e = k/2 - 1, so that it ends where the pixels do; else e = (k - 1)/2, so that it is 1 at the last tap of an
            axis and 0 where the next one would be.
    """

    kernel_size: tuple[int, ...]
    rings: int = 0
    circular: bool = True
    gaussian: bool = True
    sampling: Sampling = "point"
    normalize: Normalize = False
    spacing: tuple[float, ...] | None = None
    edge: Edge = "hard"

    def __post_init__(self) -> None:
        # A list would do but for being looked up in caches.
        object.__setattr__(self, "kernel_size", tuple(self.kernel_size))
        if not 1 <= len(self.kernel_size) <= 3 or any(size < 1 for size in self.kernel_size):
            raise ValueError(f"kernel_size must be 1 to 3 sizes of at least 1, got {self.kernel_size}")
        for name, value, choices in (
            ("sampling", self.sampling, SAMPLINGS),
            ("normalize", self.normalize, NORMALIZATIONS),
            ("edge", self.edge, EDGES),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
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
            object.__setattr__(self, "edge", "hard")
        if self.edge == "smooth" and not self.circular:
            raise ValueError('edge="smooth" ends the kernel at a circle: it needs circular=True')
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
        orbits = orbits_of(self)
        distance, mixing = samples_of(self)

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
        radii = orbits_of(self).radii
        if self.sampling == "binned":
            members = bin_of_radius(radii, release_edges(self))
        elif not self.gaussian and self.sampling == "area":
            # A ring is never without pixels here, but rings beyond the number of orbits are mixtures of the others.
            members = np.arange(self.rings) if self.rings <= len(radii) else bin_of_radius(radii, hard_edges(self))
        elif not self.gaussian:
            members = bin_of_radius(radii, hard_edges(self))
        elif self.rings > len(np.unique(np.round(radii, 9))):
            members = np.floor(radii / self.delta + 0.5)
        else:
            return []
        return sorted(set(range(self.rings)) - set(members.astype(int).tolist()))

    def zero_rings(self) -> list[int]:
        """Rings, from 0, that are 0 at every tap. Gaussian ones are not, unless others are taken out of them."""
        if self.gaussian and self.normalize != "orthonormal":
            return []
        # Layers are also made where tensors have no values: on the meta device, and as fake ones.
        with torch.device("cpu"), _disable_current_modes():
            return [ring for ring, taps in enumerate(self.basis()) if not taps.any()]

    def warn_of_empty_rings(self, chosen: bool = True, stacklevel: int = 2) -> None:
        """Warn if some rings cannot be told apart on this kernel, and name them.

        Args:
            chosen: somebody asked for this number of rings. If not, only rings that do nothing at all are named.
        """
        empty = sorted({*(self.empty_rings() if chosen else ()), *self.zero_rings()})
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
        sigma = clipped_sigma(log_sigma, geometry.sigma_range)
        # The scale cancels if the rings are normalised; they would vanish if narrow and between two radii.
        values = gaussians(tables.distance, sigma, from_peak=bool(geometry.normalize))
        if geometry.sampling == "binned":
            values = values / (sigma.unsqueeze(-1) * _RELEASE_SQRT_2PI)
        if tables.mixing is not None:
            values = values @ tables.mixing
    if geometry.normalize:
        values = _scaled_to_unit_norm(values, tables.taps_per_orbit)
    if geometry.normalize == "orthonormal":
        values = _orthonormal(values, tables.taps_per_orbit)
    return values


def gaussians(distance: Tensor, sigma: Tensor, *, from_peak: bool) -> Tensor:
    """exp(-distance^2 / 2 sigma^2), (..., n, R); ``from_peak``: each divided by its largest value over R."""
    exponent = -0.5 * (distance / sigma.unsqueeze(-1)).square()
    if from_peak:
        exponent = exponent - exponent.detach().amax(-1, keepdim=True)
    return exponent.exp()


def _scaled_to_unit_norm(values: Tensor, taps_per_orbit: Tensor) -> Tensor:
    # The largest value first: the square of a faint ring, and the cube in its gradient, would leave the range.
    largest = values.detach().abs().amax(-1, keepdim=True)
    values = values / torch.where(largest > 0, largest, 1.0)
    squares = (values.square() * taps_per_orbit).sum(-1, keepdim=True)
    return values * torch.where(squares > 0, squares, 1.0).rsqrt()


def _orthonormal(values: Tensor, taps_per_orbit: Tensor) -> Tensor:
    """Gram and Schmidt's procedure from the first ring on, for rings (..., n, orbits) of unit norm.

    Every step is taken twice, since what is left of two rings that are almost alike is mostly rounding.
    """
    done: list[Tensor] = []
    for ring in values.unbind(-2):
        rest = ring
        for _ in range(2):
            for other in done:
                rest = rest - (rest * other * taps_per_orbit).sum(-1, keepdim=True) * other
        squares = (rest.square() * taps_per_orbit).sum(-1, keepdim=True)
        is_new = squares > _SMALLEST_PART**2
        done.append(torch.where(is_new, rest * torch.where(is_new, squares, 1.0).rsqrt(), 0.0))
    return torch.stack(done, -2)


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


def as_tuple(value: int | Sequence[int], dimensions: int, name: str) -> tuple[int, ...]:
    """``value`` once per axis, as the torch layers take it."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    if len(values) == 1:
        values = values * dimensions
    if len(values) != dimensions or not all(map(is_integer, values)):
        raise ValueError(f"{name} must be an int or {dimensions} ints, got {value!r}")
    return tuple(int(v) for v in values)
