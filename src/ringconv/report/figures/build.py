"""How a ring kernel is built, and how it is computed in two steps: both drawn from a real layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv._figure_style import (
    FAINT,
    INK,
    MAGNITUDES,
    NORMAL,
    PAGE,
    SMALL,
    TINY,
    dress,
    headline,
    line,
    new_figure,
    picture,
    signed_map,
    spread,
)
from ringconv._ring_samples import edge_window, outer_radius
from ringconv._rotate import distance_from, middle
from ringconv.layers import GMRConv2d
from ringconv.ops import dense_conv, factored_conv
from ringconv.rings import clipped_sigma

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_RINGS = 7
_MOST_CHANNELS = 3


def kernel_from_rings(layer: GMRConv2d, out_channel: int = 0, in_channel: int = 0) -> Figure:
    """Rings G_i times weights w_i make the kernel K: as images above, against the radius below.

    Args:
        layer: whose kernel of these two channels is drawn.
    """
    basis, weights, kernel = _parts(layer, out_channel, in_channel)
    shown = spread(len(basis), _MOST_RINGS)
    figure = new_figure(PAGE, 3.5)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.05, 2))
    top, bottom = parts
    cells = top.subplots(1, len(shown) + 1, squeeze=False)[0]
    largest_ring, largest = (float(part.abs().max()) or 1.0 for part in (basis, kernel))
    for axes, ring in zip(cells, shown, strict=False):
        axes.imshow(basis[ring].numpy(), cmap=MAGNITUDES, vmin=0, vmax=largest_ring, interpolation="nearest")
        picture(axes, title=f"$G_{{{ring + 1}}}$", formulas=True)
        plus = "" if ring == shown[0] else "+ "
        axes.set_xlabel(f"{plus}$w_{{{ring + 1}}}$ = {float(weights[ring]):.2f}", fontsize=SMALL, color=INK)
    colours = signed_map()
    cells[-1].imshow(kernel.numpy(), cmap=colours, vmin=-largest, vmax=largest, interpolation="nearest")
    picture(cells[-1], title=r"$K = \Sigma\, w_i G_i$", formulas=True)
    cells[-1].set_xlabel(f"{kernel.shape[0]} x {kernel.shape[1]} pixels", fontsize=SMALL, color=INK)
    rings, sums = bottom.subplots(1, 2)
    _draw_profiles(rings, sums, layer, basis, weights, kernel)
    number = "" if len(shown) == len(basis) else f", {len(shown)} of them shown"
    free = f"{layer.rings} free weights instead of {math.prod(layer.kernel_size)}"
    headline(figure, f"A kernel of {layer.rings} rings{number}: {free}")
    return figure


def two_steps(layer: GMRConv2d, x: Tensor) -> Figure:
    """The convolution as a pass with every ring and a mixing of channels, with the maps of a real input.

    Args:
        layer: one whose rings all channels share, in one group; its harmonics are left out.
        x: (in_channels, H, W).
    """
    if layer.sigma == "channel" or layer.groups != 1:
        raise ValueError("the two steps need rings that all channels share, and one group of channels")
    if x.ndim != 3 or len(x) != layer.in_channels:
        raise ValueError(f"x must be ({layer.in_channels}, H, W) for this layer, got {tuple(x.shape)}")
    with torch.no_grad():
        x = x.detach().to(layer.weight)
        output = dense_conv(x[None], layer.kernel(), layer.bias, layer._options)[0].float()
        mixed = factored_conv(x[None], layer.weight, layer.basis(), layer.bias, layer._options)[0].float()
        responses = _ring_responses(layer, x).float()
    error = float((mixed - output).norm() / output.norm().clamp(min=1e-30))
    rings, channels = spread(layer.rings, 5), spread(layer.in_channels, _MOST_CHANNELS)
    outputs = spread(layer.out_channels, _MOST_CHANNELS)
    figure = new_figure(PAGE, 0.55 * max(len(rings), 3) + 1.15)
    columns: Any = figure.subfigures(1, 5, width_ratios=(1.0, 0.75, 0.75 + 0.45 * len(channels), 0.9, 1.0))
    in_channels, n, out_channels = layer.in_channels, layer.rings, layer.out_channels
    inputs, basis = [x[channel].float() for channel in channels], layer.basis().detach().float()
    maps = [responses[ring, channel] for ring in rings for channel in channels]
    _column(columns[0], inputs, f"input $x$\n{_count(in_channels, 'channel')}")
    _column(columns[1], list(basis[rings]), f"with each of\n{_count(n, 'ring')} $G_i$", MAGNITUDES)
    _column(columns[2], maps, f"= {n} x {in_channels} maps\n$G_i * x$", across=len(channels))
    _matrix(columns[3], layer.weight.detach().float(), f"mixed by weights $w$\n{out_channels} x {n * in_channels}")
    _column(columns[4], [output[c] for c in outputs], f"= output $y$\n{_count(out_channels, 'channel')}")
    _say(figure, layer, error)
    return figure


def _say(figure: Figure, layer: GMRConv2d, error: float) -> None:
    """What the two ways cost, in the figure's heading."""
    taps, n = math.prod(layer.kernel_size), layer.rings
    passes, mixing = n * taps * layer.in_channels, n * layer.in_channels * layer.out_channels
    dense = taps * layer.in_channels * layer.out_channels
    left_out = "" if layer.harmonic_weight is None else "; harmonics are left out"
    headline(
        figure,
        "Step 1: every channel with every ring. Step 2: a 1x1 convolution mixes what comes out.\n"
        f"Multiplications per pixel: {passes:,} + {mixing:,} instead of {dense:,}; difference to dense:"
        f" {error:.0e}{left_out}",
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ring_responses(layer: GMRConv2d, x: Tensor) -> Tensor:
    """(n, C, H', W'): every channel of x with every ring."""
    n, channels = layer.rings, layer.in_channels
    one_each = torch.eye(channels).to(layer.weight)[None, :, :, None] * torch.eye(n).to(layer.weight)[:, None, None, :]
    responses = factored_conv(x[None], one_each.flatten(0, 1), layer.basis(), None, layer._options)
    return responses.reshape(n, channels, *responses.shape[-2:])


def _column(figure: Any, images: Sequence[Tensor], title: str, cmap: str = "gray", across: int = 1) -> None:
    grid = figure.subplots(len(images) // across, across, squeeze=False)
    for axes, image in zip(grid.flat, images, strict=True):
        axes.imshow(image.numpy(), cmap=cmap, interpolation="nearest")
        picture(axes)
    figure.suptitle(title, fontsize=SMALL, color=INK)


def _matrix(figure: Any, weight: Tensor, title: str) -> None:
    """(out, in, n) as a matrix, ring after ring."""
    axes = figure.subplots()
    matrix = weight.movedim(-1, 1).flatten(1)[:64, :64]
    largest = float(matrix.abs().max()) or 1.0
    axes.imshow(matrix.numpy(), cmap=signed_map(), vmin=-largest, vmax=largest, interpolation="nearest")
    picture(axes)
    figure.suptitle(title, fontsize=SMALL, color=INK)


def _parts(layer: GMRConv2d, out_channel: int, in_channel: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rings (n, k, k), weights (n,) and the kernel (k, k) of two channels."""
    if not isinstance(layer, GMRConv2d):
        raise ValueError(f"a kernel of rings is drawn from a GMRConv2d, got a {type(layer).__name__}")
    for name, value, most in (
        ("out_channel", out_channel, layer.out_channels),
        ("in_channel", in_channel, layer.in_channels // layer.groups),
    ):
        if not 0 <= value < most:
            raise ValueError(f"{name} must be from 0 to {most - 1}, got {value}")
    with torch.no_grad():
        basis, kernel = layer.basis().float().cpu(), layer.kernel()[out_channel, in_channel].float().cpu()
    weights = layer.weight[out_channel, in_channel].detach().float().cpu()
    return basis[out_channel, in_channel] if basis.ndim > 3 else basis, weights, kernel


def _draw_profiles(rings: Any, sums: Any, layer: GMRConv2d, basis: Tensor, weights: Tensor, kernel: Tensor) -> None:
    radius = distance_from(middle(layer.kernel_size), layer.kernel_size).flatten().numpy()
    smooth = _continuous(layer, basis)
    for number, ring in enumerate(basis):
        style = line(number)
        rings.plot(radius, ring.flatten().numpy(), color=style["color"], marker=style["marker"], markersize=3, ls="")
        if smooth is not None:
            rings.plot(smooth[0], smooth[1][number], color=style["color"], linestyle=style["linestyle"], linewidth=1.1)
    if smooth is not None:
        sums.plot(smooth[0], weights.numpy() @ smooth[1], color=INK, linewidth=1.1)
    sums.plot(radius, kernel.flatten().numpy(), color=INK, marker="o", markersize=3, ls="")
    # A narrow ring between two pixels has its peak far above what they see of it.
    for axes, values in ((rings, basis), (sums, kernel)):
        (low, high), span = axes.get_ylim(), float(values.max() - values.min())
        if span:
            axes.set_ylim(max(low, float(values.min()) - 0.5 * span), min(high, float(values.max()) + 0.5 * span))
    for axes in (rings, sums):
        edge = layer.geometry.extent / 2
        axes.axvline(edge, color=FAINT, linewidth=1)
        axes.set_xlim(-0.15, max(float(radius.max()), edge) + 0.2)
        axes.annotate(
            "k/2", (edge, 1), xycoords=("data", "axes fraction"), xytext=(2, -1), textcoords="offset points",
            fontsize=TINY, color=INK, va="top",
        )  # fmt: skip
    dress(rings, x="distance r from the centre (pixels)", y="$G_i(r)$", title="the rings", formulas=True)
    dress(
        sums,
        x="distance r from the centre (pixels)",
        y="$K(r)$",
        title="the kernel; dots are its pixels",
        formulas=True,
    )
    for axes in (rings, sums):
        axes.title.set_fontsize(NORMAL)


def _continuous(layer: GMRConv2d, basis: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Radii (R,) and the rings between the pixels (n, R); None where they are not functions of the radius."""
    geometry, log_sigma = layer.geometry, layer.log_sigma
    if not geometry.gaussian or geometry.sampling == "binned" or log_sigma.ndim > 1 or geometry.spacing is not None:
        return None
    if geometry.normalize == "orthonormal":
        return None
    log_sigma = log_sigma.detach().cpu().double()
    sigma = clipped_sigma(log_sigma, geometry.sigma_range).numpy()[:, None]
    reach = outer_radius(geometry) if geometry.circular else math.hypot(*layer.kernel_size) / 2
    r = np.linspace(0, reach, 200)
    mu = np.arange(geometry.rings)[:, None] * geometry.delta
    values = np.exp(-0.5 * ((r - mu) / sigma) ** 2) * edge_window(geometry, r)
    # What the normalisation multiplied each ring by.
    raw = dataclasses.replace(geometry, normalize=False).basis(log_sigma).flatten(1)
    scale = basis.double().flatten(1).amax(1) / raw.amax(1).clamp(min=1e-30)
    return r, values * scale.numpy()[:, None]
