"""How equivariant is it? Errors per angle and reflection, for any layer or model in 1, 2 or 3 dimensions.

    error = |module(turned x) - turned module(x)| / |module(x)|

Quarter turns and reflections move pixels onto pixels and are exact. Any other angle needs interpolation, which has an
error of its own: it is reported beside every figure as its *floor*, and a figure near its floor says nothing about the
module.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ringconv._rotate import (
    Region,
    Symmetry,
    as_degrees,
    band_limited_noise,
    distance_from,
    fading_disc,
    middle,
    rotate,
    symmetries,
    turns,
)

__all__ = [
    "EquivarianceResult",
    "Measurement",
    "SubregionResult",
    "Symmetry",
    "assert_equivariant",
    "band_limited_noise",
    "equivariance_error",
    "kernel_equivariance_error",
    "rotate",
    "subregion_error",
    "symmetries",
]

Function = Callable[[Tensor], Tensor]

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
"""What :func:`assert_equivariant` allows for an exact symmetry, by the dtype of its input."""

_MARGIN = 8
"""Pixels between a module's reach and the border that the default mask leaves to the interpolation."""

_FELT = 1e-4
"""A response below this share of the largest one is beyond a module's reach."""


@dataclass(frozen=True)
class Measurement:
    """One transformation, and what it did."""

    name: str
    error: float
    """|module(turned x) - turned module(x)| / |module(x)|; inf if the two differ in shape."""
    floor: float
    """What the interpolation alone does; 0 for an exact symmetry."""
    angle: float | None = None
    """Degrees; None for a reflection."""


@dataclass(frozen=True)
class EquivarianceResult:
    """What :func:`equivariance_error` found."""

    measurements: tuple[Measurement, ...]
    reach: float | None
    """How far a pixel is felt in the output, in pixels of the input; None where it was not needed."""
    border: float | None
    """Width left out of the comparison at interpolated angles, in pixels of the input; None where there is no mask."""

    @property
    def mean(self) -> float:
        """Over all angles and reflections."""
        return math.fsum(m.error for m in self.measurements) / len(self.measurements)

    @property
    def max(self) -> float:
        return self.worst.error

    @property
    def worst(self) -> Measurement:
        # A NaN is worse than any number.
        return max(self.measurements, key=lambda m: math.inf if math.isnan(m.error) else m.error)

    @property
    def per_angle(self) -> dict[float, float]:
        """Angle -> error; in 3D the mean over the axes."""
        return self._by_angle(lambda m: m.error)

    @property
    def floor(self) -> dict[float, float]:
        """Angle -> error of the interpolation itself; in 3D the mean over the axes."""
        return self._by_angle(lambda m: m.floor)

    @property
    def reflections(self) -> dict[str, float]:
        """Name of the reflection -> error."""
        return {m.name: m.error for m in self.measurements if m.angle is None}

    def _by_angle(self, value: Callable[[Measurement], float]) -> dict[float, float]:
        groups: dict[float, list[float]] = {}
        for m in self.measurements:
            if m.angle is not None:
                groups.setdefault(m.angle, []).append(value(m))
        return {angle: math.fsum(values) / len(values) for angle, values in groups.items()}

    def __str__(self) -> str:
        width = max(len(m.name) for m in self.measurements)
        lines = [f"equivariance error: mean {self.mean:.2e}, max {self.max:.2e} ({self.worst.name})"]
        lines.append(f"  {'':{width}}     error     floor")
        lines += [
            f"  {m.name:{width}}  {m.error:8.2e}  " + (f"{m.floor:8.2e}" if m.floor else "   exact")
            for m in self.measurements
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class SubregionResult:
    """What :func:`subregion_error` found."""

    inside: float
    """Against the rotated output, in the disc less the module's reach."""
    outside: float
    """Against the unrotated output, farther from the disc than the module's reach."""
    floor: float
    """What the interpolation alone does inside; 0 for multiples of 90 degrees."""
    reach: float


def equivariance_error(
    module: Function,
    x: Tensor,
    angles: Iterable[float] = range(0, 360, 10),
    reflections: bool = True,
    *,
    dimensions: int | None = None,
    axes: Sequence[int] | None = None,
    border: float | None = None,
    disc: bool | None = None,
) -> EquivarianceResult:
    """How far ``module`` is from turning its output as its input turns.

    Errors are in the L2 norm over batch, channels and pixels, relative to the output's; a large constant in the
    output (a bias) makes them look small. Multiples of 90 degrees and reflections are exact and compare the whole map.
    At other angles x and the output are interpolated in float64 (:func:`rotate`), and compared within a central disc
    (ball): the corners turn out of the frame, and padding is felt near the borders. A map of another size than x is
    turned about its own centre, and its disc is scaled with it. A vector (or a 1x1 map) must not change at all.

    The floor at an angle is what is left after turning there and back, once for x through the module and once for
    the output, added in squares. Images with edges or noise up to half a cycle per pixel have a floor of several
    percent; see :func:`band_limited_noise` for a test pattern without one.

    The module runs without gradients and in eval mode, in which dropout and batch statistics do not add noise; its mode
    is restored. Each interpolated angle costs two runs of it, and x and its output are turned twice.

    Args:
        module: maps (B, C, *S) to a map (B, K, *T) or a vector (B, K): an ``nn.Module`` or any function.
        x: (B, C, L), (B, C, H, W) or (B, C, D, H, W), floating. Without a batch give ``dimensions``.
        angles: degrees, in the sense of ``torch.rot90``. On a line only multiples of 180 exist: others are left out.
        reflections: also flip each axis.
        dimensions: number of spatial axes; default ``x.ndim - 2``.
        axes: in 3D, the axes to turn about, of 0 (D), 1 (H) and 2 (W); default all three.
        border: pixels of x between the disc and the nearest side; default the module's reach, measured by changing the
            central pixel, and 8 more for the interpolation, but at most half of the way to the centre. A module that
            reaches farther (the result tells its ``reach``) shows the effect of its padding too.
        disc: at interpolated angles, fade x to zero outside of the largest central disc, so that nothing turns out of
            the frame. Default: only if the output is a vector, where no mask could leave the corners out.
    """
    with evaluating(module):
        exact = interpolated = _Probe(module, x, dimensions)
        rotations = turns(angles, axes, exact.dimensions)
        if not all(turn.is_exact for turn in rotations):
            interpolated = exact.masked(border, disc)
        measurements = []
        for turn in rotations:
            error, floor = (exact.error(turn), 0.0) if turn.is_exact else interpolated.error_and_floor(turn, turn.back)
            measurements.append(Measurement(turn.name, error, floor, turn.angle))
        if reflections:
            measurements += [Measurement(name, exact.error(flip), 0.0) for name, flip in _flips(exact.dimensions)]
    if not measurements:
        raise ValueError("nothing to measure: no angle that exists in this dimension, and reflections=False")
    return EquivarianceResult(tuple(measurements), interpolated.reach, interpolated.border)


def assert_equivariant(
    module: Function,
    x: Tensor,
    *,
    tolerance: float | None = None,
    angles: Iterable[float] = (),
    angle_tolerance: float | None = None,
    dimensions: int | None = None,
    axes: Sequence[int] | None = None,
    border: float | None = None,
    disc: bool | None = None,
) -> None:
    """Raise an AssertionError unless ``module`` commutes with every symmetry of the grid.

    These are the 8 symmetries of the square (48 of the cube, 2 of a line), without interpolation. The other
    arguments are those of :func:`equivariance_error`.

    Args:
        tolerance: largest relative error of a symmetry; default by x's dtype: 1e-9 for float64, 1e-3 for float32.
        angles: further angles, in degrees, to be within ``angle_tolerance``, which must then be given: an
            interpolated figure has a floor, and only the caller knows what is small.
    """
    angles = tuple(angles)
    if angles and angle_tolerance is None:
        raise ValueError("angles need an angle_tolerance: between quarter turns no layer on a grid is exact")
    with evaluating(module):
        probe = _Probe(module, x, dimensions)
        if tolerance is None:
            tolerance = TOLERANCES[x.dtype]
        exact = tuple(Measurement(s.name, probe.error(s), 0.0) for s in symmetries(probe.dimensions)[1:])
    _check(module, EquivarianceResult(exact, None, None), tolerance, f"{x.dtype}".removeprefix("torch."))
    if angles:
        assert angle_tolerance is not None
        result = equivariance_error(
            module, x, angles, False, dimensions=dimensions, axes=axes, border=border, disc=disc
        )
        _check(module, result, angle_tolerance, "interpolated")


def subregion_error(
    module: Function,
    x: Tensor,
    angle: float,
    center: Sequence[float],
    radius: float,
    *,
    axis: int = 0,
    reach: float | None = None,
    dimensions: int | None = None,
) -> SubregionResult:
    """Turn a disc (ball) inside an image that stays as it is: does the output turn inside and stay outside?

    A convolution with symmetric kernels does so by being local. Pixels that are closer to the rim than the module's
    reach see both sides, and are left out.

    Args:
        module: maps (B, C, *S) to (B, K, *S).
        x: as in :func:`equivariance_error`.
        angle: degrees; multiples of 90 are exact.
        center: pixel indices along the spatial axes, all whole (a pixel's centre) or all half (between pixels), so
            that a quarter turn about it moves pixels onto pixels.
        radius: of the disc, in pixels; the disc must lie within the image.
        axis: in 3D, the axis to turn about.
        reach: how far a pixel is felt, in pixels; measured if not given.
    """
    with evaluating(module):
        probe = _Probe(module, x, dimensions)
        size = tuple(x.shape[-probe.dimensions :])
        if probe.vector or probe.output_size != size:
            raise ValueError(
                f"a sub-region needs a module that keeps the map's size, got {size} -> {tuple(probe.y.shape)}"
            )
        rotations = turns([angle], [axis] if probe.dimensions == 3 else None, probe.dimensions)
        if not rotations:
            raise ValueError(f"on a line only multiples of 180 degrees exist, got {angle}")
        region = Region(center, radius, size, x.device)
        reach = probe.measured_reach() if reach is None else float(reach)
        inside, outside = region.distance <= radius - reach, region.distance > radius + reach
        for name, other, pixels in (("inside", "larger", inside), ("outside", "smaller", outside)):
            if not pixels.any():
                raise ValueError(
                    f"no pixel lies {name} the disc by more than the module's reach of {reach:.1f} pixels: take a"
                    f" radius {other} than {radius}, or a larger image than {size}"
                )

        def relative(difference: Tensor, pixels: Tensor) -> float:
            return _ratio(difference[..., pixels], probe.y[..., pixels])

        turn = rotations[0]
        turned = probe.run(region.turn(probe.x, turn))
        floor = 0.0
        if not turn.is_exact:
            # There and back before the disc is put into the image, so that the interpolation never sees its rim.
            through = probe.run(region.turn(probe.x, lambda v: turn.back(turn(v))))
            behind = region.turn(probe.y, lambda v: turn.back(turn(v)))
            floor = math.hypot(relative(through - probe.y, inside), relative(behind - probe.y, inside))
        return SubregionResult(
            inside=relative(turned - region.turn(probe.y, turn), inside),
            outside=relative(turned - probe.y, outside),
            floor=floor,
            reach=reach,
        )


def kernel_equivariance_error(
    kernel: Tensor, angles: Iterable[float] = (15, 30, 45), cutoff: float = 0.3
) -> dict[float, float]:
    """The equivariance error of a 2D convolution on endless band-limited noise, without sampling and interpolation.

    A convolution multiplies the wave of frequency f by its transfer function H(f); turning the input turns f. So on
    isotropic noise that is white below ``cutoff``

        error^2 = E |H(R f) - H(f)|^2 / E |H(f)|^2,    f uniform in the disc of radius ``cutoff``.

    Args:
        kernel: (..., k_h, k_w). All leading axes are pooled: channels, or draws of weights.
        angles: degrees.
        cutoff: cycles per pixel.

    Returns:
        angle -> error
    """
    if kernel.ndim < 2 or not kernel.is_floating_point():
        raise ValueError(f"kernel must be floating, of shape (..., k, k), got {kernel.dtype}, {tuple(kernel.shape)}")
    if not 0 < cutoff <= 0.5:
        raise ValueError(f"cutoff must be in (0, 0.5] cycles per pixel, got {cutoff}")
    degrees = as_degrees(angles)
    kernel = kernel.detach().double()
    # Gauss-Legendre over the square of the radius, equal steps in the angle. Between two taps a wave turns by at most
    # `phase`, so |H|^2 has about as many harmonics along a circle: the rule is exact to rounding with a few more.
    phase = 2 * math.pi * cutoff * math.hypot(*(side - 1 for side in kernel.shape[-2:]))
    rule = np.polynomial.legendre.leggauss(24 + math.ceil(phase))
    nodes, weights = (torch.from_numpy(values).to(kernel.device) for values in rule)
    steps = 32 + 2 * math.ceil(phase)
    direction = torch.arange(steps, dtype=torch.float64, device=kernel.device) * (2 * math.pi / steps)
    radius = cutoff * ((nodes + 1) / 2).sqrt()

    def transfer(turn: float) -> Tensor:
        theta = direction + math.radians(turn)
        fy, fx = (radius[:, None] * wave for wave in (theta.sin(), theta.cos()))
        return _transfer_function(kernel, fy, fx)

    def energy(response: Tensor) -> float:
        return float((response.abs().square() * weights[:, None]).sum())

    upright = transfer(0.0)
    total = energy(upright)
    return {angle: math.sqrt(energy(transfer(angle) - upright) / total) if total else 0.0 for angle in degrees}


def _transfer_function(kernel: Tensor, fy: Tensor, fx: Tensor) -> Tensor:
    """H (..., *F) of a kernel (..., k_h, k_w) about its centre, at the frequencies fy, fx (*F)."""
    rows, columns = (
        torch.arange(side, dtype=torch.float64, device=kernel.device) - (side - 1) / 2 for side in kernel.shape[-2:]
    )
    wave = torch.exp(-2j * math.pi * (fy[..., None, None] * rows[:, None] + fx[..., None, None] * columns))
    response = kernel.flatten(-2).to(wave.dtype) @ wave.flatten(-2).flatten(0, -2).T
    return response.reshape(*kernel.shape[:-2], *fy.shape)


class _Probe:
    """A module, an input and its output, and how to compare them under a transformation.

    Attributes:
        vector: the output has no spatial axes, or one pixel: it must not change.
        radius: of the central disc of the output that is compared, in its pixels; None for all of it.
        reach, border: as in :class:`EquivarianceResult`.
    """

    def __init__(self, module: Function, x: Tensor, dimensions: int | None) -> None:
        self.dimensions = _check_input(x, dimensions)
        self._module = module
        self._dtype = x.dtype
        self._fades = False
        self.x = x.detach().double()
        self.y = self.run(self.x)
        if self.y.ndim > x.ndim or x.ndim - self.dimensions < self.y.ndim < x.ndim:
            raise ValueError(
                f"the output must be a vector or a map with {self.dimensions} spatial axes, got {tuple(x.shape)} ->"
                f" {tuple(self.y.shape)}"
            )
        self.vector = self.y.ndim < x.ndim or math.prod(self.output_size) == 1
        self.radius: float | None = None
        self.reach: float | None = None
        self.border: float | None = None

    @property
    def input_size(self) -> tuple[int, ...]:
        return tuple(self.x.shape[-self.dimensions :])

    @property
    def output_size(self) -> tuple[int, ...]:
        return tuple(self.y.shape[-self.dimensions :])

    def run(self, x: Tensor) -> Tensor:
        """The module on x, in its own dtype and back to float64."""
        if self._fades:
            x = x * fading_disc(x.shape[-self.dimensions :], x.device)
        y = self._module(x.to(self._dtype))
        if not isinstance(y, Tensor) or not y.is_floating_point():
            given = y.dtype if isinstance(y, Tensor) else type(y).__name__
            raise TypeError(f"the module must return a floating tensor, got {given}: wrap it in a function that does")
        return y.double()

    def error(self, transform: Function) -> float:
        return self._error(transform(self.x), self.y if self.vector else transform(self.y))

    def error_and_floor(self, there: Function, back: Function) -> tuple[float, float]:
        turned_x = there(self.x)
        turned_y = self.y if self.vector else there(self.y)
        through = self._error(back(turned_x), self.y)
        behind = 0.0 if self.vector else self._relative(back(turned_y) - self.y)
        return self._error(turned_x, turned_y), math.hypot(through, behind)

    def _error(self, x: Tensor, expected: Tensor) -> float:
        y = self.run(x)
        return self._relative(y - expected) if y.shape == expected.shape else math.inf

    def _relative(self, difference: Tensor) -> float:
        return _ratio(self._compared(difference), self._compared(self.y))

    def _compared(self, y: Tensor) -> Tensor:
        if self.radius is None:
            return y
        size = y.shape[-self.dimensions :]
        return y[..., distance_from(middle(size), size, y.device) <= self.radius]

    def masked(self, border: float | None, disc: bool | None) -> _Probe:
        """A copy for what must be interpolated; see :func:`equivariance_error`."""
        if border is not None and not 0 <= border < math.inf:
            raise ValueError(f"border must be a number of pixels, at least 0, got {border}")
        probe = copy.copy(self)
        if disc or (disc is None and self.vector):
            # Applied after each turn, so that nothing from beyond the frame turns into its corners.
            probe._fades = True
            probe.y = probe.run(probe.x)
        if not self.vector:
            if border is None:
                probe.reach = self.measured_reach()
                border = min(probe.reach + _MARGIN, min(self.input_size) / 4)
            probe.border = border
            probe.radius = self._radius(border)
        return probe

    def _radius(self, border: float) -> float:
        """Of the disc in the output that is ``border`` pixels of the input away from the nearest side."""
        size = self.output_size
        border = border * min(size) / min(self.input_size)
        radius = min(size) / 2 - border
        if radius < 2:
            raise ValueError(
                f"a map of {'x'.join(map(str, size))} less a border of {border:.1f} of its pixels leaves no disc to"
                " compare: use a larger x, a smaller border, or multiples of 90 degrees only"
            )
        return radius

    def measured_reach(self) -> float:
        """How far, in pixels of x, a change of the central pixel is felt in the output."""
        scales = [side / out for side, out in zip(self.input_size, self.output_size, strict=True)]
        # A strided module may never look at one given pixel, so as many as one output pixel stands for are changed.
        widths = [math.ceil(scale) for scale in scales]
        starts = [(side - width) // 2 for side, width in zip(self.input_size, widths, strict=True)]
        changed = block = self.x.clone()
        for axis, start, width in zip(range(-self.dimensions, 0), starts, widths, strict=True):
            block = block.narrow(axis, start, width)
        block += self.x.abs().amax() or 1.0
        response = (self.run(changed) - self.y).abs().flatten(0, -self.dimensions - 1).amax(0)
        felt = response > _FELT * response.amax()
        centers = [start + (width - 1) / 2 for start, width in zip(starts, widths, strict=True)]
        # Where an output pixel lies in the input: the two frames share their outlines.
        offsets = [
            (index + 0.5) * scale - 0.5 - center
            for index, scale, center in zip(felt.nonzero(as_tuple=True), scales, centers, strict=True)
        ]
        distances = torch.stack(offsets).norm(dim=0)
        return float(distances.amax()) if len(distances) else 0.0


def _ratio(difference: Tensor, reference: Tensor) -> float:
    error, norm = float(difference.norm()), float(reference.norm())
    if norm == 0:
        return 0.0 if error == 0 else math.inf
    return error / norm


def _check_input(x: Tensor, dimensions: int | None) -> int:
    """The number of spatial axes of x."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating tensor, got {given}")
    axes = x.ndim - 2 if dimensions is None else dimensions
    if axes not in (1, 2, 3) or x.ndim - axes not in (1, 2):
        raise ValueError(
            "x must be (B, C, L), (B, C, H, W) or (B, C, D, H, W), or one axis less with dimensions= given; got shape"
            f" {tuple(x.shape)} and dimensions={dimensions}"
        )
    if 0 in x.shape:
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    return axes


def _flips(dimensions: int) -> list[tuple[str, Symmetry]]:
    flips = [Symmetry(tuple(range(dimensions)), (axis,)) for axis in range(dimensions)]
    return [(f"flip of {'DHW'[flip.flips[0]]}" if dimensions == 3 else flip.name, flip) for flip in flips]


@contextlib.contextmanager
def evaluating(module: Function) -> Iterator[None]:
    """No gradients, and eval mode; every submodule's mode is restored, also when they differ."""
    modes = [(m, m.training) for m in module.modules()] if isinstance(module, nn.Module) else []
    with torch.no_grad():
        if not any(training for _, training in modes):
            yield
            return
        assert isinstance(module, nn.Module)
        module.eval()
        try:
            yield
        finally:
            module.train(modes[0][1])  # lets modules that act on the change of mode do so
            for submodule, training in modes:
                submodule.training = training


def _check(module: Function, result: EquivarianceResult, tolerance: float, kind: str) -> None:
    broken = [m for m in result.measurements if not m.error <= tolerance]
    if not broken:
        return
    worst = result.worst
    what = "an output of another shape" if worst.error == math.inf else f"a relative error of {worst.error:.3g}"
    floor = f", of which the interpolation alone may make {worst.floor:.3g}" if worst.floor else ""
    names = "\n".join(f"  - {suspect}" for suspect in _suspects(module))
    raise AssertionError(
        f"not equivariant: {worst.name} gives {what}{floor}; the tolerance is {tolerance:g} ({kind})."
        f" {len(broken)} of {len(result.measurements)} transformations exceed it. Possible reasons:\n{names}"
    )


def _suspects(module: Function) -> list[str]:
    """What in the module is known to break equivariance."""
    found = []
    for path, m in module.named_modules() if isinstance(module, nn.Module) else ():
        name = f"{path or 'the module'} ({type(m).__name__})"
        if getattr(m, "transposed", False):
            found.append(f"{name} is a transposed convolution: resize, then convolve")
        elif isinstance(m, nn.modules.conv._ConvNd) and not _is_symmetric(m.weight):
            found.append(f"{name} has kernels without symmetry")
        if isinstance(m, nn.Flatten):
            found.append(f"{name} gives each position weights of its own, unless the map is 1x1: pool globally first")
        if any(step > 1 for step in _as_tuple(getattr(m, "stride", 1))):
            found.append(
                f"{name} has stride {m.stride}: exact only if it divides size + 2 padding - dilation (kernel - 1) - 1"
            )
        if getattr(m, "padding", None) == "same" and any(k % 2 == 0 for k in _as_tuple(m.kernel_size)):
            found.append(f"{name} pads one side more than the other: even kernel with padding='same'")
    return found or [
        "a strided or overlapping (max-)pooling on a size that it does not fit, an even kernel with padding='same',"
        " a kernel without symmetry, a flatten before the last pooling, position codes"
    ]


def _as_tuple(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(v for v in values if isinstance(v, int))


def _is_symmetric(weight: Tensor) -> bool:
    """Whether every kernel of (O, I, *K) keeps its values, up to rounding, under the symmetries of square or cube."""
    weight = weight.detach().double()
    allowed = 1e-5 * weight.abs().max()
    images = (symmetry(weight) for symmetry in symmetries(weight.ndim - 2))
    return all(image.shape == weight.shape and bool(((image - weight).abs() <= allowed).all()) for image in images)
