"""Images turned the way networks are tested: by interpolation within the frame, batched, on the images' device.

``ringconv._rotate`` turns as exactly as it can, to measure layers. This turns as cameras and other people's
evaluations do. Both leave multiples of 90 degrees to ``torch.rot90``, and turn a frame of unequal sides with the
nearest one.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ringconv._rotate import Turn

Interpolation = Literal["nearest", "bilinear", "bicubic"]
Padding = Literal["fill", "reflect", "edge"]
MaskKind = Literal["none", "disc"]

PADDING_MODES: dict[Padding, str] = {"fill": "zeros", "reflect": "reflection", "edge": "border"}
"""What torch calls them."""

_STACKS = 8
"""Parts that a batch is turned in."""


@dataclass(frozen=True)
class Turning:
    """How images are turned. The defaults are the paper's."""

    interpolation: Interpolation = "bilinear"
    """Between pixels; multiples of 90 degrees need none."""
    fill: float = 0.0
    """What comes in from beyond the frame, after normalisation."""
    padding: Padding = "fill"
    """What lies beyond the frame: the fill, or the image mirrored at its edge, or its edge continued."""
    mask: MaskKind = "none"
    """"disc": only the largest disc in the frame is shown at every angle, also upright; the rest is the fill."""
    expand: bool = False
    """Enlarge the frame at every angle, also upright, so that no corner is cut off."""

    def __post_init__(self) -> None:
        for name, kind in (("interpolation", Interpolation), ("padding", Padding), ("mask", MaskKind)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        if not math.isfinite(self.fill):
            raise ValueError(f"fill must be finite, got {self.fill}")


@dataclass
class Turner:
    """Turns batches (B, C, *S), and keeps the sampling grids for the next batch.

    Args:
        turning: how.
        spacing: voxel size per spatial axis; turning is by the angle in space, not in voxels.
    """

    turning: Turning = field(default_factory=Turning)
    spacing: tuple[float, ...] | None = None
    _grids: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False)

    def framed(self, x: Tensor, dimensions: int) -> Tensor:
        """(B, C, *S): what is turned, with the frame enlarged if asked for."""
        if not self.turning.expand:
            return x
        size = x.shape[-dimensions:]
        steps = self._steps(dimensions)
        diagonal = math.hypot(*(side * step for side, step in zip(size, steps, strict=True)))
        widths = []
        for side, step in reversed([*zip(size, steps, strict=True)]):
            # The same on both sides, so that the centre stays where it is.
            widths += [max(0, -(-(math.ceil(diagonal / step) - side) // 2))] * 2
        return F.pad(x, widths, value=self.turning.fill)

    def turn(self, x: Tensor, turn: Turn, dimensions: int) -> Tensor:
        """The framed x turned: (B, C, *S), with the two sides of the turn's plane exchanged near odd quarter turns."""
        quarters, _ = self.parts(turn, dimensions)
        return torch.rot90(self.lean(x, turn, dimensions), quarters, turn.plane)

    def parts(self, turn: Turn, dimensions: int) -> tuple[int, float]:
        """The exact quarter turns, 0 to 3, and the degrees that remain for interpolation."""
        even = 1 if self._is_square(turn, dimensions) else 2  # voxels of unequal sides: only half turns are exact
        quarters = even * round(turn.angle / (90 * even))
        return quarters % 4, turn.angle - 90 * quarters

    def lean(self, x: Tensor, turn: Turn, dimensions: int) -> Tensor:
        """Only the interpolated part; turns that share it differ by exact quarter turns."""
        _, degrees = self.parts(turn, dimensions)
        if degrees == 0:
            return self.masked(x, dimensions)
        first, second = turn.plane
        planes = x.movedim((first, second), (-2, -1))
        # Whatever does not turn is as good as channels, also the images of a batch and the slices of a volume, and
        # positions are worked out once for all channels. Torch shares out the first axis among its threads.
        stacks = math.gcd(math.prod(planes.shape[:-2]), _STACKS)
        images = planes.reshape(stacks, -1, *planes.shape[-2:])
        grid = self._grid(images, degrees, turn, dimensions).expand(stacks, -1, -1, -1)
        fill = self.turning.fill if self.turning.padding == "fill" else 0.0
        turned = F.grid_sample(
            images - fill if fill else images,
            grid,
            mode=self.turning.interpolation,
            padding_mode=PADDING_MODES[self.turning.padding],
            align_corners=False,
        )
        turned = turned + fill if fill else turned
        return self.masked(turned.reshape(planes.shape).movedim((-2, -1), (first, second)), dimensions)

    def _steps(self, dimensions: int) -> tuple[float, ...]:
        return (1.0,) * dimensions if self.spacing is None else self.spacing

    def _is_square(self, turn: Turn, dimensions: int) -> bool:
        if self.spacing is None:
            return True
        first, second = (self.spacing[axis] for axis in turn.plane)
        return math.isclose(first, second, rel_tol=1e-3)

    def _grid(self, images: Tensor, degrees: float, turn: Turn, dimensions: int) -> Tensor:
        """(1, H, W, 2), where to look in the unturned images; kept for the next batch."""
        rows, columns = images.shape[-2:]
        aspect = 1.0 if self.spacing is None else self.spacing[turn.plane[0]] / self.spacing[turn.plane[1]]
        key = (degrees, rows, columns, round(aspect, 6), images.dtype, images.device)
        if key not in self._grids:
            cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            y = (torch.arange(rows, dtype=torch.float64) - (rows - 1) / 2)[:, None] * aspect
            x = (torch.arange(columns, dtype=torch.float64) - (columns - 1) / 2)[None, :]
            # A turn from the first axis (down) towards the second (right) brings each pixel from here:
            from_y, from_x = cos * y + sin * x, cos * x - sin * y
            grid = torch.stack([2 * from_x / columns, 2 * from_y / (aspect * rows)], dim=-1)
            self._grids[key] = grid[None].to(images.device, images.dtype)
        return self._grids[key]

    def masked(self, x: Tensor, dimensions: int) -> Tensor:
        """(B, C, *S) with the fill outside of the disc, if there is a mask."""
        if self.turning.mask == "none":
            return x
        return torch.where(self.disc(x, dimensions), x, self.turning.fill)

    def disc(self, x: Tensor, dimensions: int) -> Tensor:
        """(*S) bool: the largest disc (ball) that lies between the frame's own pixels at every angle."""
        size = tuple(x.shape[-dimensions:])
        key = ("disc", size, x.device)
        if key not in self._grids:
            halves = [(side - 1) / 2 * step for side, step in zip(size, self._steps(dimensions), strict=True)]
            places = [  # not every device has float64
                torch.linspace(-half, half, side, dtype=torch.float64, device="cpu")
                for half, side in zip(halves, size, strict=True)
            ]
            squares = torch.meshgrid(*(place.square() for place in places), indexing="ij")
            self._grids[key] = (functools.reduce(torch.add, squares) <= min(halves) ** 2).to(x.device)
        return self._grids[key]
