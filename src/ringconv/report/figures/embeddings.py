"""Where a network puts its images when they turn: t-SNE of what its last layer sees."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringconv._extras import needs
from ringconv._figure_style import FAINT, INK, PAGE, SMALL, headline, legend, new_figure, picture, point
from ringconv.report.figures.layers import recorded
from ringconv.report.figures.networks import Shown, Trained, turned, turns_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANGLES = tuple(range(0, 360, 60))
_MOST_NAMED = 14
"""Classes that a legend has room for."""
_BATCH = 64


@dataclass(frozen=True, eq=False)
class Clusters:
    """Where the images lie on the plane, at every angle."""

    angles: tuple[float, ...]
    labels: NDArray[np.int64]
    """(N,)"""
    classes: tuple[str, ...]
    places: Mapping[str, NDArray[np.float64]]
    """Network -> (angles, N, 2)"""

    def moved(self, network: str) -> NDArray[np.float64]:
        """(angles,): mean distance from where the image lies at the first angle, in units of the map's radius."""
        places = self.places[network]
        radius = np.sqrt(((places - places.mean((0, 1))) ** 2).sum(-1).mean())
        distances: NDArray[np.float64] = np.linalg.norm(places - places[0], axis=-1).mean(-1) / max(radius, 1e-30)
        return distances


def find_clusters(
    networks: Sequence[Trained], shown: Shown, angles: Sequence[float] = ANGLES, seed: int = 0
) -> Clusters:
    """t-SNE of every network's embeddings at all angles together, so that the panels of a network share their axes."""
    places = {}
    for trained in networks:
        vectors = embeddings(trained, shown, angles)
        places[trained.label] = on_a_plane(vectors.flatten(0, 1), seed).reshape(*vectors.shape[:2], 2)
    return Clusters(tuple(angles), shown.labels.numpy(), shown.data.classes, places)


def embeddings(trained: Trained, shown: Shown, angles: Sequence[float]) -> Tensor:
    """(angles, N, D): what the last linear layer sees of the turned images; of a network without one, its answer."""
    images = trained.prepared(shown.images, shown.data)
    heads = [module for module in trained.network.modules() if isinstance(module, nn.Linear)]
    found = []
    with torch.inference_mode():
        for turn in turns_of(angles):
            with recorded(heads[-1] if heads else trained.network, what="input" if heads else "output") as vectors:
                for some in torch.split(turned(images, turn), _BATCH):
                    trained.network(some)
            found.append(torch.cat(vectors).flatten(1).float())
    if shown.data.task != "classify":
        raise ValueError(f"{shown.data.name} has no classes to tell clusters by: this figure is of classifiers")
    return torch.stack(found)


def on_a_plane(vectors: Tensor, seed: int = 0) -> NDArray[np.float64]:
    """(M, D) -> (M, 2) by t-SNE."""
    if len(vectors) < 3:
        raise ValueError(f"t-SNE needs at least 3 points, got {len(vectors)}: show more images or angles")
    manifold = needs("sklearn.manifold", "evaluate")
    # An invariant network may give all turns of an image the very same vector: those have no principal axes.
    start = "pca" if min(vectors.shape) > 2 and bool((vectors != vectors[0]).any()) else "random"
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    points: NDArray[np.float64] = manifold.TSNE(
        perplexity=perplexity, init=start, random_state=seed
    ).fit_transform(vectors.numpy())  # fmt: skip
    return points


def clusters(found: Clusters) -> Figure:
    """A row for every network, a panel for every angle; colours and markers are classes."""
    columns, rows = len(found.angles), len(found.places)
    present = [label for label in range(len(found.classes)) if bool((found.labels == label).any())]
    named = len(present) <= _MOST_NAMED
    side = (PAGE - 0.9) / columns
    figure = new_figure(PAGE, rows * (side + 0.28) + (0.22 * math.ceil(len(present) / 5) if named else 0) + 0.35)
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for row, (network, places) in enumerate(found.places.items()):
        low, high = places.min((0, 1)), places.max((0, 1))
        room = 0.05 * (high - low) + 1e-3
        for axes, angle, points, distance in zip(grid[row], found.angles, places, found.moved(network), strict=True):
            for label in present:
                inside = points[found.labels == label]
                style = point(label, s=7, alpha=0.8)
                handles[found.classes[label]] = axes.scatter(inside[:, 0], inside[:, 1], **style)
            axes.set_xlim(low[0] - room[0], high[0] + room[0])
            axes.set_ylim(low[1] - room[1], high[1] + room[1])
            beside = textwrap.fill(network, 12) if axes is grid[row, 0] else ""
            picture(axes, title=f"{angle:g}°" if row == 0 else "", y=beside)
            axes.spines[:].set(visible=True, color=FAINT)
            axes.set_xlabel(f"moved {distance:.2f}", fontsize=SMALL, color=INK, labelpad=2)
    headline(figure, "t-SNE of turned images. Moved: mean way from the place upright, in radii of the map")
    if named:
        legend(figure, list(handles.values()), list(handles))
    return figure
