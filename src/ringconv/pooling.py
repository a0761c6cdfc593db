"""Resizing and pooling that commute with turns and flips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._checks import check_choice, check_positive_int
from ringconv._fx_leaf import FxLeaf
from ringconv.ops.dense import CONVOLUTIONS

Downsampling = Literal["average", "lowpass"]
DOWNSAMPLINGS: tuple[Downsampling, ...] = get_args(Downsampling)
Pooling = Literal["average", "disc"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
View = Literal["square", "disc"]
VIEWS: tuple[View, ...] = get_args(View)


class Downsample(FxLeaf):
    """Average pooling to ceil(size / factor) that commutes with turns and flips at every size.

    On sizes that the factor divides it is ``AvgPool(factor)``; elsewhere the windows overlap a little but stay
    symmetric about the map's centre, where a strided layer or a pooling that drops the last row does not.
    Takes (B, C, *S) or (C, *S); the number of axes of S must be given for anything but images.

    Args:
        mode: ``"average"``: that and no more. ``"lowpass"``: after a :class:`LowPass`, which takes away the detail that
            the coarser map cannot hold, and of which a square window lets more pass along the diagonals.
    """

    def __init__(self, factor: int = 2, dimensions: int = 2, mode: Downsampling = "average") -> None:
        super().__init__()
        check_positive_int("factor", factor)
        check_choice("dimensions", dimensions, (1, 2, 3))
        check_choice("mode", mode, DOWNSAMPLINGS)
        self.factor = factor
        self.dimensions = dimensions
        self.mode = mode
        self.lowpass = LowPass((factor,) * dimensions) if mode == "lowpass" and factor > 1 else None

    def forward(self, input: Tensor) -> Tensor:
        if self.factor == 1:
            return input
        if self.lowpass is not None:
            input = self.lowpass(input)
        size = [-(-side // self.factor) for side in input.shape[-self.dimensions :]]
        if self.dimensions == 1:
            # torch.export fixes the size of adaptive_avg_pool1d, not that of the 2D one.
            return F.adaptive_avg_pool2d(input.unsqueeze(-2), (1, size[0])).squeeze(-2)
        if self.dimensions == 2:
            return F.adaptive_avg_pool2d(input, (size[0], size[1]))
        return F.adaptive_avg_pool3d(input, (size[0], size[1], size[2]))

    def extra_repr(self) -> str:
        mode = "" if self.mode == "average" else f", mode={self.mode!r}"
        return f"factor={self.factor}, dimensions={self.dimensions}{mode}"


class LowPass(nn.Module):
    """A Gaussian blur before the maps are made smaller by ``factor`` per axis: sigma = factor / 3 pixels.

    The Gaussian is the one radial function that can be applied axis by axis. It ends at 3 sigma, and pixels beyond the
    border are taken to be those at the border. A factor of 1 leaves the axis as it is. Takes (B, C, *S) or (C, *S).
    """

    def __init__(self, factor: Sequence[int]) -> None:
        super().__init__()
        self.factor = tuple(factor)
        self._weights = [
            [math.exp(-4.5 * (tap / reach) ** 2) for tap in range(-reach, reach + 1)] for reach in self.factor
        ]

    def forward(self, input: Tensor) -> Tensor:
        d = len(self.factor)
        convolve = CONVOLUTIONS[d]
        channels = input.shape[-d - 1]
        for axis, (reach, weights) in enumerate(zip(self.factor, self._weights, strict=True)):
            if reach == 1:
                continue
            shape = [channels, 1] + [2 * reach + 1 if other == axis else 1 for other in range(d)]
            sides = [reach if other == axis else 0 for other in reversed(range(d)) for _ in range(2)]
            kernel = torch.tensor([weight / sum(weights) for weight in weights], dtype=input.dtype, device=input.device)
            kernel = kernel.view(shape[1:]).expand(shape)
            input = convolve(F.pad(input, sides, mode="replicate"), kernel, groups=channels)
        return input

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


class Upsample(FxLeaf):
    """Linear interpolation to size * factor (or to the size of a given map) that commutes with turns and flips.

    Followed by a ring convolution it takes the place of a transposed convolution. Takes (B, C, *S).
    """

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        check_positive_int("factor", factor)
        self.factor = factor

    def forward(self, input: Tensor, size: Sequence[int] | None = None) -> Tensor:
        modes = {3: "linear", 4: "bilinear", 5: "trilinear"}
        if input.dim() not in modes:
            raise ValueError(f"Upsample takes (B, C, *S) with 1 to 3 axes, got an input of shape {tuple(input.shape)}")
        if size is None:
            size = [side * self.factor for side in input.shape[2:]]
        return F.interpolate(input, size=list(size), mode=modes[input.dim()], align_corners=False)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


class GlobalDisc(nn.Module):
    """The mean over the largest disc within the map: (B, C, *S) -> (B, C).

    A turned image has lost its corners, and has something else in their place; so corners do not count. On maps of 1x1
    and 2x2 all pixels count the same; of a 4x4 map the corners count 0.38, and the other pixels of the border 0.92.
    The disc has the diameter of the shortest side: of oblong images, the ends do not count either.

    Args:
        dimensions: the disc lies in the last axes, so many (in three it is a ball); over others, such as the time of a
            video, the plain mean is taken.
    """

    def __init__(self, dimensions: int = 2) -> None:
        super().__init__()
        check_choice("dimensions", dimensions, (1, 2, 3))
        self.dimensions = dimensions

    def forward(self, x: Tensor) -> Tensor:
        d = self.dimensions
        weights = _disc(x, d)
        weights = (weights / weights.sum()).to(x)
        return (x * weights).sum(list(range(-d, 0))).unsqueeze(-1).flatten(2).mean(2)

    def extra_repr(self) -> str:
        return f"dimensions={self.dimensions}"


class DiscView(nn.Module):
    """An image within the largest disc, of the diameter of its shortest side, and 0, the mean colour, around it.

    For the start of a network: what leaves the frame when an image is turned, and whatever comes in from beyond it, is
    then not seen, but for a trace of it in the pixels at the disc's edge. Takes (B, C, *S) and keeps the shape.

    Args:
        dimensions: the disc lies in the last axes, so many (in three it is a ball).
    """

    def __init__(self, dimensions: int = 2) -> None:
        super().__init__()
        check_choice("dimensions", dimensions, (1, 2, 3))
        self.dimensions = dimensions

    def forward(self, x: Tensor) -> Tensor:
        return x * _disc(x, self.dimensions).to(x)

    def extra_repr(self) -> str:
        return f"dimensions={self.dimensions}"


def _disc(x: Tensor, d: int) -> Tensor:
    """How far each pixel of the last d axes lies within the disc: w = clip(s / 2 - r + 1/2, 0, 1).

    In float32, or float64 for such an input. r is the distance from the centre and s the shortest side in pixels, so
    the edge is a ramp one pixel wide.
    """
    squares, sides = x.new_zeros((), dtype=torch.float32), []
    for axis in range(-d, 0):
        # 1, 2, ...; not by arange, which torch.fx cannot trace. Half precision could not count that far, and not every
        # device has float64: only an input of it makes the product so.
        index = x.new_ones(x.shape[axis], dtype=torch.float32).cumsum(0) * x.new_ones(1)
        sides.append(index[-1])
        place = index - (index[-1] + 1) / 2
        squares = squares + place.square().view([-1] + [1] * (-axis - 1))
    end = (torch.stack(sides).amin(0) + 1) / 2
    # (end - r), from squares, which are exact: the root is rounded, and little would be left of it at the edge.
    return ((end * end - squares) / (end + squares.sqrt())).clamp(0, 1)
