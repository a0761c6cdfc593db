"""The second tab: a kernel made of rings, drawn as its options change."""

from __future__ import annotations

import functools
import html
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv.demo.controls import Draw, quiet
from ringconv.demo.drawing import DIVERGING, Axis, Line, card, chart, coloured, figure, grid, note, rounded_up
from ringconv.rings import SAMPLINGS, Edge, RingGeometry, Sampling

Weights = Literal["equal", "alternating", "random 1", "random 2", "random 3"]

SIZES = (1, 15)
RINGS = (1, 9)
SIGMAS = (0.05, 3.0)
CUTOFF = 0.3
"""Cycles per pixel: the error is that on noise up to here."""
_SPECTRUM = 64
_SPECTRUM_CAPTION = f"spectrum to 0.5 cycles per pixel; the circle is at {CUTOFF}"
_STEP = 5
"""Degrees between two angles of the error."""


@dataclass(frozen=True)
class KernelChoice:
    """What the sliders say."""

    size: int = 9
    rings: int = 5
    sigma: float = 0.5
    gaussian: bool = True
    circular: bool = True
    sampling: Sampling = "area"
    normalize: bool = True
    smooth: bool = True
    """Where there is a circle."""
    weights: Weights = "random 1"

    @property
    def geometry(self) -> RingGeometry:
        sides = (self.size, self.size)
        return RingGeometry(
            sides, self.rings, self.circular, self.gaussian, self.sampling, self.normalize, edge=self.edge
        )

    @property
    def edge(self) -> Edge:
        return "smooth" if self.smooth and self.circular else "hard"

    @property
    def ring_weights(self) -> Tensor:
        """(n,)"""
        if self.weights == "equal":
            return torch.ones(self.rings, dtype=torch.float64)
        if self.weights == "alternating":
            return torch.tensor([(-1.0) ** ring for ring in range(self.rings)], dtype=torch.float64)
        generator = torch.Generator().manual_seed(int(self.weights.split()[1]))
        return torch.randn(self.rings, generator=generator, dtype=torch.float64)

    @property
    def basis(self) -> Tensor:
        """(n, k, k)"""
        return self.geometry.basis(torch.full((self.rings,), math.log(self.sigma), dtype=torch.float64))

    @property
    def code(self) -> str:
        """The layer, as it is typed."""
        sigma = "" if self.gaussian else ", sigma=None"
        return (
            f"GMRConv2d(in_channels, out_channels, {self.size}, padding={self.size // 2}, rings={self.rings}{sigma},"
            f' circular={self.circular}, sampling="{self.sampling}", normalize={self.normalize}, edge="{self.edge}")'
        )


def kernel_card(choice: KernelChoice) -> str:
    """The rings, the kernel, its profile, its spectrum and its equivariance error, as HTML."""
    basis, weights = choice.basis, choice.ring_weights
    kernel = torch.einsum("n,nhw->hw", weights, basis)
    taps = int((kernel != 0).sum())
    empty = choice.geometry.empty_rings()
    return card(
        f"{choice.size} x {choice.size} kernel",
        f"{choice.rings} weights for {taps} taps",
        note(_said_of(empty), "changed") if empty else "",
        grid([figure(_signed(ring), f"ring {i + 1}", pixelated=True) for i, ring in enumerate(basis)], 9),
        '<div class="rc-two">',
        grid([figure(_signed(kernel), "kernel", pixelated=True), figure(_spectrum(kernel), _SPECTRUM_CAPTION)], 1),
        f"<div>{_profile(choice, basis, weights, kernel)}{_error_chart(kernel)}</div>",
        "</div>",
        f"<pre>{html.escape(choice.code)}</pre>",
    )


def _said_of(empty: list[int]) -> str:
    rings = ", ".join(str(ring + 1) for ring in empty)
    return f"More rings than this size can tell apart: no tap is nearest to ring {rings}."


def _signed(values: Tensor) -> NDArray[np.uint8]:
    """(k, k): blue below zero, red above."""
    largest = float(values.abs().max()) or 1.0
    return coloured(values.numpy(), -largest, largest, DIVERGING)


def _spectrum(kernel: Tensor) -> NDArray[np.uint8]:
    """|transfer function| up to half a cycle per pixel, with a circle at the cutoff."""
    side = 2 * _SPECTRUM
    response = torch.fft.fftshift(torch.fft.fft2(kernel, (side, side))).abs().numpy()
    pixels = coloured(response, 0.0, float(response.max()) or 1.0)
    axis = (np.arange(side) - side // 2) / side
    radius = np.hypot(axis[:, None], axis)
    pixels[np.abs(radius - CUTOFF) < 0.5 / side] = (255, 255, 255)
    return pixels


def _profile(choice: KernelChoice, basis: Tensor, weights: Tensor, kernel: Tensor) -> str:
    """Every tap's value at its distance from the centre, and every ring's share of it."""
    axis = torch.arange(choice.size, dtype=torch.float64) - (choice.size - 1) / 2
    radius = torch.hypot(axis[:, None], axis).flatten()
    order = radius.argsort()
    far = math.ceil(float(radius.max())) or 1
    shares = weights[:, None, None] * basis
    largest = max(float(kernel.abs().max()), float(shares.abs().max())) or 1.0
    top = rounded_up(largest)
    radii = radius[order].tolist()
    lines = [Line("", radii, share.flatten()[order].tolist(), "faint") for share in shares]
    lines[0] = lines[0]._replace(label="its rings")
    lines.append(Line("taps of the kernel", radius.tolist(), kernel.flatten().tolist(), "ring", dots=True))
    x = Axis("distance from the centre (pixels)", tuple(range(far + 1)))
    return chart("Profile", lines, x, Axis("", (-top, 0, top)))


def _error_chart(kernel: Tensor) -> str:
    errors, plain = errors_by_angle(kernel), _plain_errors(len(kernel))
    lines = [
        Line("this kernel", list(errors), list(errors.values()), "ring"),
        Line("plain kernels, random", list(plain), list(plain.values()), "plain"),
    ]
    x = Axis("angle", (0, 15, 30, 45, 60, 75, 90), unit="°")
    y = Axis("", (0.001, 0.01, 0.1, 1, 10), logarithmic=True)
    return chart(f"Equivariance error: at most {max(errors.values()):.3f}", lines, x, y)


@functools.lru_cache
def _plain_errors(size: int) -> dict[int, float]:
    """Of kernels without any symmetry."""
    generator = torch.Generator().manual_seed(0)
    return errors_by_angle(torch.randn(8, size, size, generator=generator, dtype=torch.float64))


def errors_by_angle(kernels: Tensor) -> dict[int, float]:
    """What ``kernel_equivariance_error`` gives for (..., k, k) at angles up to a quarter turn, fast enough to be live.

    The transfer function is worked out once on circles; turning it by one of these angles shifts it along them.
    """
    taps = torch.arange(kernels.shape[-1], dtype=torch.float64) - (kernels.shape[-1] - 1) / 2
    phase = math.ceil(2 * math.pi * CUTOFF * math.hypot(2 * float(taps[-1]), 2 * float(taps[-1])))
    nodes, shares = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(24 + phase))
    directions = 360 // _STEP * math.ceil((32 + 2 * phase) / (360 // _STEP))
    angle = torch.arange(directions, dtype=torch.float64) * (2 * math.pi / directions)
    radius = CUTOFF * ((nodes + 1) / 2).sqrt()
    rows, columns = (
        torch.exp(-2j * math.pi * radius[:, None, None] * f[:, None] * taps) for f in (angle.sin(), angle.cos())
    )
    planes = kernels.reshape(-1, 1, *kernels.shape[-2:]).to(rows.dtype)
    response = ((columns @ planes.mT) * rows).sum(-1)

    def energy(values: Tensor) -> float:
        return float((values.abs().square() * shares[:, None]).sum())

    total = energy(response)
    shifts = {turn: turn * directions // 360 for turn in range(0, 91, _STEP)}
    return {
        turn: math.sqrt(energy(response.roll(-shift, -1) - response) / total) if total else 0.0
        for turn, shift in shifts.items()
    }


def kernel_tab(gr: Any) -> Draw:
    """Lay the tab out."""
    start = KernelChoice()
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=260):
            size = gr.Slider(*SIZES, value=start.size, step=1, label="Size", elem_classes="rc-size")
            rings = gr.Slider(*RINGS, value=start.rings, step=1, label="Rings")
            sigma = gr.Slider(*SIGMAS, value=start.sigma, step=0.05, label="Sigma (pixels)")
            gaussian = gr.Checkbox(start.gaussian, label="Gaussian rings (else hard)")
            circular = gr.Checkbox(start.circular, label="Circle: zero in the corners")
            normalize = gr.Checkbox(start.normalize, label="Normalize: every ring at unit norm")
            smooth = gr.Checkbox(start.smooth, label="Smooth edge of the circle")
            sampling = gr.Radio(list(SAMPLINGS), value=start.sampling, label="Sampling")
            weights = gr.Dropdown(list(get_args(Weights)), value=start.weights, label="Weights of the rings")
        with gr.Column(scale=6, min_width=300):
            drawn = gr.HTML(elem_classes="rc-html")

    def frame(*values: Any) -> str:
        return kernel_card(KernelChoice(*values))

    inputs = [size, rings, sigma, gaussian, circular, sampling, normalize, smooth, weights]
    draw: Draw = {"fn": frame, "inputs": inputs, "outputs": drawn, **quiet()}
    for control in inputs:
        control.input(**draw)
    return draw
