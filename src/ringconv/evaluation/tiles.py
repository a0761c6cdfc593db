"""Maps of images that are larger than memory, tile by tile, as if they had been made at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ringconv._network import device_of, dtype_of
from ringconv._progress import Progress
from ringconv.equivariance import evaluating

_FELT = 1e-6
"""A response below this share of the largest one does not show."""


def tiled(
    network: nn.Module,
    image: Any,
    tile: int = 512,
    *,
    margin: int | None = None,
    align: int = 16,
    out: Any = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Any:
    """The network's map of one image, of which only a tile is in memory at a time.

    Every tile is cut out with a margin around it, and of the network's answer only the tile itself is kept, so that no
    pixel is closer to a cut than the network can see. Where the image ends, so does the tile: its borders are treated
    as they would be at once. The result equals that of the whole image, unless the network looks at all of it
    at once (instance normalisation, attention, squeeze-and-excitation): that is refused unless a margin is given.

    Args:
        network: (1, C, *S) -> (1, K, *S), for any size.
        image: (C, *S), an array or memory map, as the network wants it.
        tile: side of what is kept of each tile; a multiple of ``align``.
        margin: pixels around each tile; default how far the network sees, as measured on noise. Sides that ``align``
            does not divide are then refused if the network's windows depend on them, as those of :class:`Downsample`
            do.
        align: cuts are at multiples of this: of all strides multiplied, so that pooling sees the same squares.
        out: (K, *S) to write to, such as a memory map; default a new array.
        device: default where the network's parameters are.
        progress: told after every tile.
    """
    size = tuple(image.shape[1:])
    if tile < 1 or align < 1 or tile % align:
        raise ValueError(f"tile must be a multiple of align, got {tile} and {align}")
    device = device or device_of(network)
    with evaluating(network), torch.inference_mode():
        if margin is None and any(side > tile for side in size):
            margin = sight(network, image.shape[0], len(size), tile, device)
            _check_sides(network, image.shape[0], size, tile, margin, align, device)
        margin = align * math.ceil((margin or 0) / align)
        corners = list(itertools.product(*(range(0, side, tile) for side in size)))
        for done, corner in enumerate(corners, 1):
            kept = tuple(slice(at, min(at + tile, side)) for at, side in zip(corner, size, strict=True))
            seen = tuple(
                slice(max(0, at.start - margin), min(side, at.stop + margin))
                for at, side in zip(kept, size, strict=True)
            )
            answer = network(_tensor(image[_all_channels(seen)], network, device))[0]
            if answer.shape[1:] != tuple(part.stop - part.start for part in seen):
                raise ValueError(f"a map must have its image's size, got {tuple(answer.shape)} for a tile {seen}")
            inner = tuple(slice(k.start - s.start, k.stop - s.start) for k, s in zip(kept, seen, strict=True))
            kept_part = answer[_all_channels(inner)].cpu()
            values = (kept_part.float() if kept_part.dtype == torch.bfloat16 else kept_part).numpy()
            if out is None:
                out = np.empty((len(values), *size), values.dtype)
            out[_all_channels(kept)] = values
            if progress is not None:
                progress("tiles", done, len(corners))
    return out


def sight(network: nn.Module, channels: int, dimensions: int, largest: int, device: torch.device | str = "cpu") -> int:
    """How many pixels away a change is felt in the network's map, measured on noise.

    Raises:
        ValueError: if it is felt everywhere, farther than ``largest``.
    """
    start = 64 if dimensions == 2 else 24
    for side in _growing(start, max(start, 4 * largest)):
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(1, channels, *[side] * dimensions, generator=generator).to(device, dtype_of(network))
        center = side // 2
        changed = noise.clone()
        # A block, since a network with strides may not look at every single pixel.
        block = (slice(center - 8, center + 8),) * dimensions
        changed[0][_all_channels(block)] += noise.abs().amax()
        response = (network(changed) - network(noise)).abs()[0].amax(0)
        felt = (response > _FELT * response.amax()).nonzero() - center
        reach = int(torch.maximum(-8 - felt, felt - 7).amax()) if len(felt) else 0
        if reach < center - 8:
            return max(reach, 0)
    raise ValueError(
        f"a change is felt more than {2 * largest} pixels away: the network looks at the whole image, as instance"
        " normalisation does, and tiles would show; give a margin to accept that"
    )


def _check_sides(
    network: nn.Module, channels: int, size: tuple[int, ...], tile: int, margin: int, align: int,
    device: torch.device | str,
) -> None:  # fmt: skip
    """Raise ValueError if the windows of a whole image would lie elsewhere than those of its tiles.

    On noise of a side that ``align`` divides, and on the same noise with as much more as the image has.
    """
    more = [side % align if side > tile else 0 for side in size]
    if not any(more):
        return
    side = align * math.ceil((2 * margin + 64) / align)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, channels, *(side + rest for rest in more), generator=generator)
    noise = noise.to(device, dtype_of(network))
    cut = _all_channels((slice(side),) * len(size))
    compared = _all_channels((slice(side - margin),) * len(size))
    whole, part = network(noise)[0][compared], network(noise[0][cut][None])[0][compared]
    # Far more than rounding and what lies beyond the network's sight, and far less than windows that lie elsewhere.
    if float((whole - part).abs().amax()) > 1e-4 * float(whole.abs().amax()):
        wanted = tuple(-(-side // align) * align for side in size)
        raise ValueError(
            f"the network's windows depend on the size of the image, {size}, of which align={align} does not divide all"
            f" sides, and tiles would show: pad the image to {wanted} and cut the map, or give a margin to accept that"
        )


def _growing(start: int, end: int) -> Iterator[int]:
    while start <= end:
        yield start
        start *= 2


def _all_channels(part: tuple[slice, ...]) -> tuple[slice, ...]:
    return slice(None), *part


def _tensor(part: Any, network: nn.Module, device: torch.device | str) -> Tensor:
    values = part if isinstance(part, Tensor) else torch.from_numpy(np.ascontiguousarray(part))
    return values.to(device, dtype_of(network))[None]
