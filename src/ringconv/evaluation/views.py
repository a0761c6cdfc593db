"""What a network is shown of each batch: upright, turned, mirrored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringconv._rotate import Turn, turns
from ringconv._turned import Turner, Turning

UPRIGHT = "upright"
_AXES = {(-2, -1): "z", (-3, -1): "y", (-3, -2): "x"}
"""The plane that turns -> the axis it turns about, for volumes (D, H, W) = (z, y, x)."""


@dataclass(frozen=True)
class Plan:
    """All views of a batch, by name.

    Attributes:
        turns: "0", "10", ... or, of volumes, "x 0", "x 30", ...
        flips: "vertical", "horizontal" or, of volumes, "z", "y", "x" -> the axis that is reversed.
    """

    dimensions: int
    turns: dict[str, Turn]
    flips: dict[str, int]

    @property
    def names(self) -> list[str]:
        return [UPRIGHT, *self.turns, *self.flips]


def plan_views(dimensions: int, step: float | None = None, reflections: bool = True) -> Plan:
    """Every ``step`` degrees (default 10, and 30 about each axis of a volume), and a flip of every axis."""
    if dimensions not in (2, 3):
        raise ValueError(f"images must have 2 or 3 dimensions, got {dimensions}")
    step = (10 if dimensions == 2 else 30) if step is None else step
    count = round(360 / step) if 0 < step <= 360 else 0
    if not count or not math.isclose(360 / step, count):
        raise ValueError(f"step must be a number of degrees that divides 360, got {step}")
    angles = [360 * index / count for index in range(count)]  # so that quarter turns are exact whatever the step
    if dimensions == 2:
        named = {f"{turn.angle:g}": turn for turn in turns(angles, None, 2)}
        flips = {"vertical": -2, "horizontal": -1}
    else:
        about = [turn for axis in (2, 1, 0) for turn in turns(angles, [axis], 3)]
        named = {f"{_AXES[turn.plane[0], turn.plane[1]]} {turn.angle:g}": turn for turn in about}
        flips = {"z": -3, "y": -2, "x": -1}
    return Plan(dimensions, named, {f"flip {name}": axis for name, axis in flips.items()} if reflections else {})


class Viewer:
    """Shows images, and masks along with them, in all views of a plan."""

    def __init__(self, plan: Plan, turning: Turning, spacing: Sequence[float] | None = None) -> None:
        self.plan = plan
        steps = None if spacing is None else tuple(spacing)
        self.images = Turner(turning, steps)
        # Class numbers are not mixed; and however images are continued, nothing is known of what lies beyond them.
        self.masks = Turner(Turning("nearest", 0.0, "fill", turning.mask, turning.expand), steps)
        # Turns that differ by quarter turns share one interpolation.
        self._leans: dict[tuple[object, ...], list[str]] = {}
        for name, turn in plan.turns.items():
            degrees = round(self.images.parts(turn, plan.dimensions)[1], 9)
            # All upright frames are the same one, whichever axis they do not turn about.
            self._leans.setdefault((degrees, turn.plane if degrees else None), []).append(name)

    def show(self, images: Tensor, masks: Tensor | None = None) -> Iterator[tuple[str, Tensor, tuple[Tensor, ...]]]:
        """Name and images (B, C, *S) of every view, the upright one first.

        With masks also theirs (B, *S), and where a view shows the images (*S) and not what lies beyond them. The turns
        by 0 degrees are left out: they are the upright view.
        """
        dimensions = self.plan.dimensions
        images = self.images.framed(images, dimensions)
        # What shows the images turns like one more mask, which is 1 all over.
        labels = [] if masks is None else [masks, torch.ones_like(masks[:1])]
        labels = [self.masks.framed(y[:, None].to(images.dtype), dimensions) for y in labels]

        def view(name: str, x: Tensor, labels: Iterable[Tensor]) -> tuple[str, Tensor, tuple[Tensor, ...]]:
            numbers = [y[:, 0].round().long() for y in labels]
            return name, x, (numbers[0], numbers[1][0].bool()) if numbers else ()

        upright = self.images.masked(images, dimensions)
        upright_labels = [self.masks.masked(y, dimensions) for y in labels]
        yield view(UPRIGHT, upright, upright_labels)
        for names in self._leans.values():
            first = self.plan.turns[names[0]]
            leaned = self.images.lean(images, first, dimensions)
            leaned_labels = [self.masks.lean(y, first, dimensions) for y in labels]
            for name in names:
                turn = self.plan.turns[name]
                if turn.angle == 0:
                    continue
                quarters = self.images.parts(turn, dimensions)[0]
                turned = torch.rot90(leaned, quarters, turn.plane)
                yield view(name, turned.contiguous(), (torch.rot90(y, quarters, turn.plane) for y in leaned_labels))
        for name, axis in self.plan.flips.items():
            yield view(name, upright.flip(axis), (y.flip(axis) for y in upright_labels))
