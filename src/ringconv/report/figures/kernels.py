"""What a network's kernels look like, and how alike they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ringconv._figure_style import (
    COLUMN,
    INK,
    PAGE,
    SMALL,
    headline,
    hide_unused,
    new_figure,
    picture,
    signed_map,
    spread,
)
from ringconv.report.figures.layers import RINGS, stages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_STAGES = 8
_MOST_KERNELS = 256
"""Of a correlation map; more would be finer than its pixels."""


def learned_kernels(model: nn.Module, per_stage: int = 8, seed: int = 0) -> Figure:
    """A row of kernels of each stage, drawn at random.

    Each kernel has a scale of its own, on which zero is always the same grey. Of volumes the middle slice is shown.

    Args:
        model: with plain or ring convolutions.
        per_stage: kernels per row; fewer where a stage has fewer.
        seed: decides which.
    """
    if per_stage < 1:
        raise ValueError(f"per_stage must be at least 1, got {per_stage}")
    found = {stage: _drawn(layers, per_stage, seed) for stage, layers in stages(model).items()}
    if not found:
        raise ValueError(f"this {type(model).__name__} has no plain or ring convolution of more than one tap")
    rows = [list(found.items())[place] for place in spread(len(found), _MOST_STAGES)]
    figure = new_figure(COLUMN, 0.37 * len(rows) + 0.3)
    grid = figure.subplots(len(rows), per_stage, squeeze=False)
    colours = signed_map()
    for cells, (stage, kernels) in zip(grid, rows, strict=True):
        for axes, kernel in zip(cells, kernels, strict=False):
            image = _as_image(kernel)
            largest = float(image.abs().max()) or 1.0
            axes.imshow(image.numpy(), cmap=colours, vmin=-largest, vmax=largest, interpolation="nearest")
        for axes in cells:
            picture(axes)
            axes.set_visible(bool(axes.images))
        picture(cells[0], y=f"{stage}\n{_size(kernels[0])}")
    headline(figure, f"{per_stage} kernels per stage; dark < 0, light > 0")
    return figure


def kernel_correlations(layers: Mapping[str, nn.Module], channel: int = 0) -> Figure:
    """Cosines between the kernels that look at one input channel, a map for each layer.

    A kernel is the vector of its free parameters, as in the paper: n weights of a ring kernel, k^2 of a plain one.

    Args:
        layers: title -> plain or ring convolution.
        channel: of the layer's input (within its group).
    """
    if not layers:
        raise ValueError("there is no layer to draw")
    maps = {title: cosines(layer, channel) for title, layer in layers.items()}
    columns = min(len(maps), 3)
    rows = -(-len(maps) // columns)
    width = COLUMN if columns == 1 else PAGE
    figure = new_figure(width, rows * (width / columns) * 0.95 + 0.4)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (title, cosine) in zip(grid.flat, maps.items(), strict=False):
        drawn = axes.imshow(cosine.numpy(), cmap=signed_map(), vmin=-1, vmax=1, interpolation="nearest")
        off_diagonal = cosine[~torch.eye(len(cosine), dtype=torch.bool)]
        mean = f"\nmean |cosine| {float(off_diagonal.abs().mean()):.2f}" if len(cosine) > 1 else ""
        axes.set_title(f"{title}{mean}", fontsize=SMALL, color=INK, parse_math=False)
        axes.set_xlabel("kernel", fontsize=SMALL, color=INK)
        axes.set_ylabel("kernel", fontsize=SMALL, color=INK)
        axes.xaxis.get_major_locator().set_params(integer=True, nbins=4)
        axes.yaxis.get_major_locator().set_params(integer=True, nbins=4)
        axes.tick_params(colors=INK, labelsize=SMALL, length=0)
        axes.spines[:].set_visible(False)
    hide_unused(grid, len(maps))
    bar = figure.colorbar(drawn, ax=grid, shrink=0.8, aspect=25)
    bar.set_label("cosine between two kernels", fontsize=SMALL, color=INK)
    bar.ax.tick_params(colors=INK, labelsize=SMALL, length=0)
    bar.outline.set_visible(False)
    return figure


def cosines(layer: nn.Module, channel: int = 0) -> Tensor:
    """(kernels, kernels) between the free parameters of the kernels of one input channel."""
    if not isinstance(layer, (_ConvNd, *RINGS)):
        raise ValueError(f"kernels of a plain or ring convolution can be compared, got a {type(layer).__name__}")
    weight = layer.weight.detach().float().cpu()
    if not 0 <= channel < weight.shape[1]:
        raise ValueError(f"channel must be from 0 to {weight.shape[1] - 1}, got {channel}")
    vectors = F.normalize(weight[:_MOST_KERNELS, channel].flatten(1), dim=1)
    return vectors @ vectors.T


def _drawn(layers: Mapping[str, nn.Module], count: int, seed: int) -> list[Tensor]:
    """Kernels (*K) of a stage, of all its kernels of the size that most of its layers have."""
    kernels = [_kernels(layer) for layer in layers.values()]
    sizes = [tuple(kernel.shape[1:]) for kernel in kernels]
    size = max(sizes, key=sizes.count)
    every = torch.cat([kernel for kernel in kernels if tuple(kernel.shape[1:]) == size])
    chosen = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:count]
    return list(every[chosen.sort().values])


def _kernels(layer: nn.Module) -> Tensor:
    """(out * in, *K)"""
    dense = layer.kernel() if isinstance(layer, RINGS) else layer.weight
    assert isinstance(dense, Tensor)
    return dense.detach().float().cpu().flatten(0, 1)


def _as_image(kernel: Tensor) -> Tensor:
    """(K), (K, K) or (K, K, K) -> two axes."""
    if kernel.ndim == 1:
        return kernel[None]
    return kernel[kernel.shape[0] // 2] if kernel.ndim == 3 else kernel


def _size(kernel: Tensor) -> str:
    return "x".join(map(str, kernel.shape))
