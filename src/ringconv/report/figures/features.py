"""Feature maps of a turning image, turned back: those of an equivariant network look all the same."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv._figure_style import INK, MAGNITUDES, PAGE, TINY, headline, new_figure, picture
from ringconv._rotate import distance_from, middle, rotate
from ringconv.data import DataSet
from ringconv.report.figures.layers import layer_named, recorded
from ringconv.report.figures.networks import Trained, show_image, turned, turns_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANGLES = tuple(range(0, 360, 30))
_DISC = 0.42
"""Radius of what is compared, in units of the map's side: what turns out of the frame or lies near the border is left
out."""


@dataclass(frozen=True, eq=False)
class FeatureMaps:
    """The maps of one layer, turned back."""

    label: str
    layer: str
    channel: int
    """The one that is shown: default the one that varies most."""
    maps: NDArray[np.float32]
    """(angles, H, W), NaN outside of the disc."""
    changes: tuple[float, ...]
    """|turned back - upright| / |upright| over all channels, within the disc."""


def feature_maps_of(
    trained: Trained,
    image: Tensor,
    data: DataSet,
    angles: Sequence[float] = ANGLES,
    layer: str | None = None,
    channel: int | None = None,
) -> FeatureMaps:
    """Maps of a turning image.

    Args:
        image: (C, H, W), on a scale from 0 to 1.
        layer: default the first convolution of the first stage.
    """
    name, module = layer_named(trained.network, layer, 0)
    prepared = trained.prepared(image[None], data)
    found = []
    with torch.inference_mode():
        for turn in turns_of(angles):
            with recorded(module) as outputs:
                trained.network(turned(prepared, turn))
            if outputs[0].ndim != 4 or min(outputs[0].shape[-2:]) < 4:
                raise ValueError(
                    f"{trained.label}: {name} gives {tuple(outputs[0].shape[1:])}, not maps of at least 4x4 pixels that"
                    " could be turned back: name another layer"
                )
            found.append(rotate(outputs[0][0].float(), -turn.angle))
    maps = torch.stack(found)
    size = maps.shape[-2:]
    disc = distance_from(middle(size), size) <= max(2.0, _DISC * min(size))
    inside = maps[..., disc]
    if channel is None:
        channel = int(inside[0].var(-1).argmax())
    if not 0 <= channel < maps.shape[1]:
        raise ValueError(f"{trained.label}: channel must be from 0 to {maps.shape[1] - 1}, got {channel}")
    norm = float(inside[0].norm()) or 1.0
    changes = tuple(float((one - inside[0]).norm()) / norm for one in inside)
    shown = torch.where(disc, maps[:, channel], torch.nan)
    return FeatureMaps(trained.label, name, channel, shown.numpy(), changes)


def feature_maps(image: Tensor, maps: Sequence[FeatureMaps], angles: Sequence[float] = ANGLES) -> Figure:
    """The turning image above, and a row of maps for every network, with how far each is from the upright one.

    Args:
        image: (C, H, W), on a scale from 0 to 1.
    """
    if not maps:
        raise ValueError("there are no maps to draw")
    rows, columns = len(maps) + 1, len(angles)
    side = (PAGE - 0.95) / columns
    figure = new_figure(PAGE, rows * (side + 0.06) + 0.6)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, turn in zip(grid[0], turns_of(angles), strict=True):
        show_image(axes, turned(image[None], turn)[0])
        picture(axes, title=f"{turn.angle:g}°")
    picture(grid[0, 0], title=f"{angles[0]:g}°", y="image")
    for cells, found in zip(grid[1:], maps, strict=True):
        low, high = np.nanpercentile(found.maps[0], (1, 99))
        for axes, one, change in zip(cells, found.maps, found.changes, strict=True):
            axes.imshow(one, cmap=MAGNITUDES, vmin=low, vmax=max(high, low + 1e-6), interpolation="nearest")
            picture(axes)
            _crop(axes, one)
            axes.set_xlabel(f"{100 * change:.0f}%", fontsize=TINY, color=INK, labelpad=1)
        picture(cells[0], y=f"{textwrap.fill(found.label, 14)}\n{textwrap.fill(found.layer, 16)}", size=TINY)
    headline(figure, "Feature maps turned back, and how far they are from the upright one (all channels)")
    return figure


def _crop(axes: Any, shown: NDArray[np.float32]) -> None:
    """To the disc."""
    rows, columns = (np.flatnonzero(np.isfinite(shown).any(axis)) for axis in (1, 0))
    axes.set_xlim(columns[0] - 0.5, columns[-1] + 0.5)
    axes.set_ylim(rows[-1] + 0.5, rows[0] - 0.5)
