"""One convolution and its input: what every peer is timed on."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringconv.ops import MODES, LayerShape, Mode

__all__ = ["MODES", "Case", "Mode", "times"]


@dataclass(frozen=True)
class Case:
    """A convolution without bias, of equal sides, padded by k // 2, and the size of its input."""

    batch: int
    in_channels: int
    out_channels: int
    size: tuple[int, ...]
    """Of the input, 1 to 3 axes."""
    kernel_size: int
    rings: int = 0
    """0: the default, k // 2 + 1."""
    stride: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        if self.rings == 0:
            object.__setattr__(self, "rings", self.kernel_size // 2 + 1)

    @property
    def dimensions(self) -> int:
        return len(self.size)

    @property
    def padding(self) -> int:
        return self.kernel_size // 2

    @property
    def layer(self) -> LayerShape:
        return LayerShape(
            self.in_channels,
            self.out_channels,
            self.groups,
            (self.kernel_size,) * self.dimensions,
            self.rings,
            (self.stride,) * self.dimensions,
        )

    @property
    def output_size(self) -> tuple[int, ...]:
        return tuple((side + 2 * self.padding - self.kernel_size) // self.stride + 1 for side in self.size)

    @property
    def dense_products(self) -> int:
        """Multiply-adds of the dense convolution."""
        positions = self.batch * math.prod(self.output_size)
        taps = math.prod(self.layer.kernel_size)
        return positions * taps * self.in_channels * self.out_channels // self.groups

    def input(self, seed: int = 0) -> Tensor:
        """(B, C, *S), standard normal, contiguous, on the default device; the same values on every device."""
        generator = torch.Generator("cpu").manual_seed(seed)
        drawn = torch.randn(self.batch, self.in_channels, *self.size, generator=generator, device="cpu")
        return drawn.to(torch.get_default_device())

    def shrunk(self) -> Case:
        """The same kernel on a map and with channels that take no time.

        Not fewer than 8 channels: with 2 or 4 of them and two threads, the weight's gradient of torch 2.13 in
        channels_last can wait for ever (seen with 1x1 kernels, in a barrier of oneDNN).
        """
        in_channels, out_channels = min(self.in_channels, 8), min(self.out_channels, 8)
        return dataclasses.replace(
            self,
            batch=min(self.batch, 2),
            in_channels=in_channels,
            out_channels=out_channels,
            groups=in_channels if self.groups > 1 else 1,
            size=tuple(min(side, 6) for side in self.size),
        )

    def columns(self) -> dict[str, Any]:
        """The fields of the layer's shape, then batch and map size, as they stand in a CSV file."""
        columns = {name: times(value) for name, value in self.layer._asdict().items()}
        return columns | {"batch": self.batch, "size": times(self.size)}

    def __str__(self) -> str:
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        stride = f" stride {self.stride}" if self.stride > 1 else ""
        return (
            f"{self.batch}x{self.in_channels}x{times(self.size)} -> {self.out_channels},"
            f" k {self.kernel_size} n {self.rings}{stride}{groups}"
        )


def times(value: object) -> object:
    """(64, 64) as "64x64"; anything but a tuple as it is."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
