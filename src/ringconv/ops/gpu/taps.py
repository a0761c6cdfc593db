"""The taps of a kernel as the Triton kernels read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


class Taps(NamedTuple):
    """The taps of a kernel, orbit by orbit, on the device of its input."""

    offsets: Tensor
    """(taps, 3) int32: from an output's position to the input's."""
    backward: Tensor
    """(taps, 3) int32: from an input's position to the output's."""
    starts: Tensor
    """(orbits + 1,) int32"""


_known_taps: WeakIdKeyDictionary = WeakIdKeyDictionary()


def taps_of(
    orbit_of_tap: Tensor, orbits: int, kernel_size: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Taps:
    """Kept as long as ``orbit_of_tap`` lives: a layer must not wait for its device in every call."""
    if orbit_of_tap not in _known_taps:
        _known_taps[orbit_of_tap] = {}
    by_geometry: dict[tuple[int, ...], Taps] = _known_taps[orbit_of_tap]
    key = (orbits, *kernel_size, *padding, *dilation)
    if key not in by_geometry:
        by_geometry[key] = _build_taps(orbit_of_tap, orbits, kernel_size, padding, dilation)
    return by_geometry[key]


def _build_taps(
    orbit_of_tap: Tensor, orbits: int, kernel_size: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Taps:
    of_tap = orbit_of_tap.cpu().numpy()
    axes = [
        step * np.arange(size) - begin for size, begin, step in zip(kernel_size, padding[::2], dilation, strict=True)
    ]
    in_front = [np.zeros(1, np.int64)] * (3 - len(axes))
    offsets = np.stack(np.meshgrid(*in_front, *axes, indexing="ij"), -1).reshape(-1, 3)
    order = np.argsort(of_tap, kind="stable")
    starts = np.searchsorted(of_tap[order], np.arange(orbits + 1))

    def placed(array: Any) -> Tensor:
        return torch.tensor(array, dtype=torch.int32, device=orbit_of_tap.device)

    return Taps(placed(offsets[order]), placed(-offsets[order]), placed(starts))
