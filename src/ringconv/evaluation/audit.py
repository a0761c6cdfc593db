"""Where in a network is equivariance lost?

Every layer is asked the same question as the whole: does its map turn as the image turns? What it adds to the
error that its own input has already is what is lost there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ringconv._progress import Progress
from ringconv._rotate import Symmetry, Turn, distance_from, fading_disc, middle, turns
from ringconv.equivariance import evaluating

_SMALLEST_DISC = 2.0
"""Radius in pixels below which turning a map by interpolation says nothing."""


@dataclass(frozen=True)
class LayerAudit:
    """One layer's map, over all transformations by their names.

    Attributes:
        shape: of its output, without the batch.
        errors: |layer(turned x) - turned layer(x)| / |layer(x)|; NaN where the map is too small to be interpolated, and
            inf where its shape changed.
        added: the error beyond that of the layer's input.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    errors: dict[str, float]
    added: dict[str, float]


@dataclass(frozen=True)
class Audit:
    """What :func:`audit` found, layer by layer in the order of the network."""

    layers: tuple[LayerAudit, ...]
    transformations: tuple[str, ...]

    def lost(self, count: int = 3) -> list[LayerAudit]:
        """The layers that add most, over all transformations, the worst first."""
        return sorted(self.layers, key=lambda layer: -worst(layer.added))[:count]

    def as_dict(self) -> dict[str, Any]:
        def clean(values: dict[str, float]) -> dict[str, float | None]:
            return {name: value if math.isfinite(value) else None for name, value in values.items()}

        return {
            "transformations": list(self.transformations),
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "shape": list(layer.shape),
                    "errors": clean(layer.errors),
                    "added": clean(layer.added),
                }
                for layer in self.layers
            ],
            "lost_most": [layer.name for layer in self.lost()],
        }


def worst(values: dict[str, float]) -> float:
    """The largest that is a number, or 0."""
    return max((value for value in values.values() if not math.isnan(value)), default=0.0)


def audit(
    network: nn.Module,
    x: Tensor,
    angles: Sequence[float] = (15, 30, 45, 90),
    reflections: bool = True,
    *,
    progress: Progress | None = None,
) -> Audit:
    """The equivariance error of every layer's output, and what the layer adds to its input's.

    x is faded to zero outside of its largest disc, so that nothing turns out of the frame, and at angles between
    quarter turns maps are compared within half of the way to their nearest side: what padding does at the border is
    not counted. Vectors must not change at all. Maps are turned by :func:`ringconv.equivariance.rotate`.

    Args:
        network: any module; its layers are the modules without submodules that map (B, C, *S) tensors.
        x: (B, C, H, W) or (B, C, D, H, W).
        angles: degrees; in 3D about the first axis.
        reflections: also flip the last axis.
    """
    dimensions = x.ndim - 2
    if dimensions not in (2, 3) or not x.is_floating_point():
        raise ValueError(f"x must be a floating (B, C, H, W) or (B, C, D, H, W), got {x.dtype}, {tuple(x.shape)}")
    if not x.numel():
        raise ValueError(f"x must hold at least one image, got {tuple(x.shape)}")
    about = turns(angles, None if dimensions == 2 else [0], dimensions)
    transformations: dict[str, Callable[[Tensor], Tensor]] = {f"{turn.angle:g}": turn for turn in about}
    if reflections:
        transformations["flip"] = Symmetry(tuple(range(dimensions)), (dimensions - 1,))
    if not transformations:
        raise ValueError("nothing to audit: no angle, and reflections=False")

    def faded(image: Tensor) -> Tensor:
        return image * fading_disc(image.shape[-dimensions:], image.device).to(image.dtype)

    with evaluating(network):
        upright = _Recorder(dimensions)
        with upright.listening(network):
            network(faded(x))
        rows: dict[str, LayerAudit] = {}
        for done, (name, transform) in enumerate(transformations.items(), 1):
            comparison = _Comparer(dimensions, upright, transform)
            with comparison.listening(network):
                network(faded(transform(x)))  # after the turn: nothing may turn in from beyond the frame
            for layer, (error, before) in comparison.errors.items():
                kind, _, output = upright.seen[layer]
                row = rows.setdefault(layer, LayerAudit(layer, kind, tuple(output.shape[1:]), {}, {}))
                row.errors[name] = error
                row.added[name] = math.nan if math.isnan(before) else max(0.0, error - before)
            if progress is not None:
                progress("audit", done, len(transformations))
    return Audit(tuple(rows.values()), tuple(transformations))


class _Listener:
    """Hears what goes into and comes out of every layer; a layer's second call gets "#2" after its name."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._calls: dict[str, int] = {}
        self._before: dict[str, Tensor] = {}

    def hear(self, name: str, kind: str, before: Tensor, after: Tensor) -> None:
        raise NotImplementedError

    @contextmanager
    def listening(self, network: nn.Module) -> Iterator[None]:
        handles = []
        for name, module in network.named_modules():
            if next(module.children(), None) is None:
                # Taken before the call, since a layer may work in place.
                handles.append(module.register_forward_pre_hook(self._pre_hook(name)))
                handles.append(module.register_forward_hook(self._hook(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _pre_hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs and self._is_image(inputs[0]):
                self._before[name] = inputs[0].detach().clone()

        return hook

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            before = self._before.pop(name, None)
            if before is None or not self._is_image(output):
                return
            number = self._calls[name] = self._calls.get(name, 0) + 1
            title = (name or "network") if number == 1 else f"{name or 'network'}#{number}"
            self.hear(title, type(module).__name__, before, output.detach().clone())

        return hook

    def _is_image(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.is_floating_point() and value.ndim in (2, 2 + self.dimensions)


class _Recorder(_Listener):
    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.seen: dict[str, tuple[str, Tensor, Tensor]] = {}

    def hear(self, name: str, kind: str, before: Tensor, after: Tensor) -> None:
        self.seen[name] = kind, before, after


class _Comparer(_Listener):
    def __init__(self, dimensions: int, upright: _Recorder, transform: Callable[[Tensor], Tensor]) -> None:
        super().__init__(dimensions)
        self._upright = upright
        self._transform = transform
        self._exact = not isinstance(transform, Turn) or transform.is_exact
        self.errors: dict[str, tuple[float, float]] = {}
        """Layer -> error of its output and of its input."""

    def hear(self, name: str, kind: str, before: Tensor, after: Tensor) -> None:
        if name in self._upright.seen:
            _, upright_before, upright_after = self._upright.seen[name]
            self.errors[name] = self._error(upright_after, after), self._error(upright_before, before)

    def _error(self, upright: Tensor, turned: Tensor) -> float:
        expected = upright.double()
        size = expected.shape[-self.dimensions :] if expected.ndim > 2 else ()
        if math.prod(size) > 1:
            if not self._exact and min(size) / 4 < _SMALLEST_DISC:
                return math.nan
            expected = self._transform(expected)
            size = expected.shape[-self.dimensions :]  # a quarter turn exchanges sides
        if turned.shape != expected.shape:
            return math.inf
        difference = turned.double() - expected
        if math.prod(size) > 1 and not self._exact:
            inside = distance_from(middle(size), size, expected.device) <= min(size) / 4
            difference, expected = difference[..., inside], expected[..., inside]
        norm, error = float(expected.norm()), float(difference.norm())
        if norm == 0:
            return 0.0 if error == 0 else math.inf
        return error / norm
