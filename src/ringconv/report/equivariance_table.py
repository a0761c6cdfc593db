"""docs/equivariance.md: how equivariant one layer is between quarter turns, by kernel size, sampling and angle."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ringconv.equivariance import kernel_equivariance_error
from ringconv.layers import GMRConv2d

COMMAND = "ringconv equivariance"

KERNEL_SIZES = (3, 5, 7, 9, 11)
ANGLES = (15, 30, 45)
CUTOFF = 0.3
CUTOFFS = (0.1, 0.2, 0.3, 0.4, 0.5)
DRAWS = 100

CIRCULAR: dict[str, dict[str, Any]] = {
    "hard rings": {"sigma": None},
    "binned": {"sampling": "binned"},
    "point": {"sampling": "point"},
    "area": {"sampling": "area"},
    "area, unit norm": {"sampling": "area", "normalize": True},
    "area, unit norm, smooth": {"sampling": "area", "normalize": True, "edge": "smooth"},
    "hard rings, area": {"sigma": None, "sampling": "area"},
}
KINDS = CIRCULAR | {
    f"{name}, not circular": CIRCULAR[name] | {"circular": False} for name in ("hard rings", "binned", "point", "area")
}
"""Name of a row -> options of the layer, beside those of the paper's form."""

Errors = dict[str, dict[int, dict[float, float]]]
"""Row -> kernel size -> angle -> error."""


def drawn_kernels(kernel_size: int, kind: str, draws: int = DRAWS, seed: int = 0) -> Tensor:
    """Kernels (draws, 1, k, k) of freshly initialised layers of the given row of the table, in float64."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Three hard rings that are not circular leave one without a tap on 3x3: the row shows what comes of it.
        warnings.filterwarnings("ignore", message=".* rings are more than the radii of a 3x3 kernel can tell apart")
        torch.manual_seed(seed)
        layer = GMRConv2d(1, draws, kernel_size, preset="paper", dtype=torch.float64, **KINDS[kind])
    return layer.kernel().detach()


def equivariance_table(draws: int = DRAWS, seed: int = 0) -> Errors:
    """The layer's error, pooled over ``draws`` of its weights, for every row, kernel size and angle."""
    return {
        kind: {k: kernel_equivariance_error(drawn_kernels(k, kind, draws, seed), ANGLES, CUTOFF) for k in KERNEL_SIZES}
        for kind in KINDS
    }


def write_equivariance_table(path: Path = Path("docs/equivariance.md"), draws: int = DRAWS, seed: int = 0) -> Path:
    """Write the tables, how they were made and what they say, as markdown."""
    errors = equivariance_table(draws, seed)
    by_cutoff = {
        kind: [kernel_equivariance_error(drawn_kernels(9, kind, draws, seed), [45], c)[45] for c in CUTOFFS]
        for kind in CIRCULAR
    }
    parts = [_protocol(draws, seed)]
    for angle in ANGLES:
        rows = {kind: [by_size[k][angle] for k in KERNEL_SIZES] for kind, by_size in errors.items()}
        parts += [f"## {angle} degrees", _markdown_table("kernel", [f"k = {k}" for k in KERNEL_SIZES], rows)]
    parts += [
        "## Finer and coarser content (k = 9, 45 degrees)",
        _markdown_table("cutoff, cycles per pixel", [f"{c:g}" for c in CUTOFFS], by_cutoff),
        "## What this says",
        _conclusions(errors, by_cutoff),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _protocol(draws: int, seed: int) -> str:
    return f"""# How equivariant is one layer?

Made by `{COMMAND}`; do not edit by hand.

A ring kernel is symmetric as a function of the plane. Sampled on a grid of pixels it keeps the symmetry of the grid:
quarter turns and reflections commute with the layer exactly, for every row below. In between it is approximate, and
how good the approximation is depends on how the rings are sampled. The figures are

    |layer(turned x) - turned layer(x)| / |layer(x)|

for a `GMRConv2d` at initialisation (`preset="paper"` with the row's options: normal weights; initial sigma; default
number of rings, which is one more if not circular), without bias and away from the borders. x is isotropic noise, white
below {CUTOFF} cycles per pixel and zero above. Squares are pooled over {draws} draws of the weights (seed {seed})
before the ratio is taken. Nothing is interpolated and no noise is drawn: a convolution multiplies each wave by its
transfer function H(f), and turning x turns f, so that error^2 = E |H(R f) - H(f)|^2 / E |H(f)|^2 over the disc of
frequencies (`ringconv.equivariance.kernel_equivariance_error`). The tests compare this with turned noise.

- *hard rings*: no Gaussian (`sigma=None`). *binned*: as the authors' package 1.0.3. *point*: the paper's formula.
  *area*: the mean of the ring function over each pixel. *unit norm*: `normalize=True`. *smooth*: `edge="smooth"`;
  with area and unit norm it is what the layer does by default.
- *not circular*: `circular=False`, the corners of the kernel are used too. All other rows end at the radius k/2."""


def _markdown_table(corner: str, columns: Sequence[str], rows: dict[str, list[float]]) -> str:
    lines = [f"| {corner} | {' | '.join(columns)} |", "|---" + "|---:" * len(columns) + "|"]
    lines += [f"| {name} | {' | '.join(f'{value:.3f}' for value in values)} |" for name, values in rows.items()]
    return "\n".join(lines)


def _conclusions(errors: Errors, by_cutoff: dict[str, list[float]]) -> str:
    at45 = {kind: {k: by_angle[45] for k, by_angle in by_size.items()} for kind, by_size in errors.items()}
    area, binned, point = at45["area"], at45["binned"], at45["point"]
    best = {k: min(("hard rings", "binned", "point"), key=lambda kind: at45[kind][k]) for k in KERNEL_SIZES}
    better = [
        f"at k = {k} {kind} has {at45[kind][k]:.3f} against {area[k]:.3f}"
        for k, kind in best.items()
        if at45[kind][k] < area[k]
    ]
    worst_angle = max(ANGLES, key=lambda angle: errors["point"][9][angle])
    points = [
        f'At k = 9 and 45 degrees `sampling="area"` has {area[9] / binned[9]:.2f} times the error of "binned"'
        f" ({area[9]:.3f} against {binned[9]:.3f}) and {area[9] / point[9]:.2f} times that of"
        f' "point" ({point[9]:.3f}).',
        f"Over all kernel sizes at 45 degrees area stays within {min(area.values()):.3f} to {max(area.values()):.3f};"
        f" point varies from {min(point.values()):.3f} to {max(point.values()):.3f}, by how the pixels happen to fall"
        " on the rings.",
        "Is area better than hard rings, binned and point at every size?"
        f" {'No: ' + '; '.join(better) if better else 'Yes'} (45 degrees).",
        f"The worst of these angles need not be 45 degrees: for point at k = 9 it is {worst_angle}.",
        f"Leave the circle on: at k = 9 and 45 degrees the corners change area from {area[9]:.3f} to"
        f" {at45['area, not circular'][9]:.3f}, and the worst circular row has"
        f" {max(at45[kind][9] for kind in CIRCULAR):.3f}.",
        f"Rings of unit norm: area at k = 9 and 45 degrees has {area[9]:.3f} without and"
        f" {at45['area, unit norm'][9]:.3f} with them, and {at45['area, unit norm, smooth'][9]:.3f} with a smooth edge"
        " as well. What they do for training is in [results.md](results.md).",
        f"The error grows with the content's frequency: area at k = 9 and 45 degrees goes from"
        f" {by_cutoff['area'][0]:.3f} for content below {CUTOFFS[0]} cycles per pixel to"
        f" {by_cutoff['area'][-1]:.3f} up to {CUTOFFS[-1]}. Content that is smooth on the scale of pixels fares better"
        " than in the tables by size, pixel-sharp content worse.",
        "No row is zero, and a layer is not a network: training moves weights and sigma, errors pass from layer to"
        " layer, and nonlinearities and down-sampling make content above the band. For a model of your own use"
        " `ringconv.equivariance.equivariance_error`, and mind the floor that it reports.",
    ]
    return "\n".join(f"- {point}" for point in points)
