"""Which answers change when the image turns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ringconv._extras import needs
from ringconv._figure_style import FAINT, INK, PAGE, SMALL, TINY, dress, headline, legend, line, new_figure, picture
from ringconv.report.figures.networks import Shown, Trained, show_image, turned, turns_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANGLES = tuple(range(0, 360, 15))
_BATCH = 64
_CHANGED, _SAME = "#0072b2", "#ffffff"


@dataclass(frozen=True, eq=False)
class Answers:
    """The class that every network gives every image at every angle; the first angle is the reference."""

    angles: tuple[float, ...]
    shown: Shown
    classes: Mapping[str, NDArray[np.int64]]
    """Network -> (angles, N)"""

    def changed(self, network: str) -> NDArray[np.bool_]:
        """(angles, N): whether the answer is another than at the first angle."""
        answers = self.classes[network]
        changed: NDArray[np.bool_] = answers != answers[0]
        return changed

    def most_changing(self, count: int) -> list[int]:
        """The images whose answers change at most angles, over all networks, the worst first; none that never do."""
        total = np.sum([self.changed(network).sum(0) for network in self.classes], axis=0)
        order = np.argsort(-total, kind="stable")[:count]
        return [int(image) for image in order if total[image]]


def find_answers(networks: Sequence[Trained], shown: Shown, angles: Sequence[float] = ANGLES) -> Answers:
    if shown.data.task != "classify":
        raise ValueError(f"{shown.data.name} is to {shown.data.task}: this figure is of classifiers")
    classes = {}
    with torch.inference_mode():
        for trained in networks:
            images = trained.prepared(shown.images, shown.data)
            said = []
            for turn in turns_of(angles):
                logits = torch.cat([trained.network(some) for some in torch.split(turned(images, turn), _BATCH)])
                said.append((logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1))
            classes[trained.label] = torch.stack(said).numpy()
    return Answers(tuple(angles), shown, classes)


def changed_answers(answers: Answers, images: int = 8) -> Figure:
    """How many answers change at each angle; and for the images that change most, at which angles they do.

    Args:
        images: how many to show at most.
    """
    rows, networks = answers.most_changing(images), list(answers.classes)
    figure = new_figure(PAGE, 2.6 + 0.36 * len(rows) + 0.4)
    grid = figure.add_gridspec(
        1 + len(rows), 1 + len(networks), height_ratios=(1.8, *[0.36] * len(rows)),
        width_ratios=(0.36, *[5.0 / len(networks)] * len(networks)),
    )  # fmt: skip
    handles = _draw_shares(figure.add_subplot(grid[0, :]), answers)
    names = [*networks]
    if rows:
        _draw_thumbnails([figure.add_subplot(grid[place, 0]) for place in range(1, len(rows) + 1)], answers, rows)
        for column, network in enumerate(networks, 1):
            _draw_cells(figure.add_subplot(grid[1:, column]), answers, network, rows)
        patch = needs("matplotlib.patches", "compare").Patch
        mark = needs("matplotlib.lines", "compare").Line2D
        handles.append(patch(facecolor=_CHANGED, edgecolor=FAINT))
        handles.append(mark([], [], linestyle="", marker="x", color=INK, markersize=4))
        names += ["another answer than upright", "a wrong answer"]
    legend(figure, handles, names)
    never = "" if rows else "; no answer ever changes"
    headline(figure, f"{answers.shown.data.name}: {len(answers.shown.images)} images{never}")
    return figure


def _draw_shares(axes: Any, answers: Answers) -> list[Any]:
    """The lines that were drawn."""
    drawn: list[Any] = []
    for number, network in enumerate(answers.classes):
        share = 100 * answers.changed(network).mean(1)
        drawn += axes.plot(answers.angles, share, **line(number, markevery=max(1, len(answers.angles) // 12)))
    top = max(axes.get_ylim()[1], 5.0)
    axes.set_ylim(-0.02 * top, top)  # a line at 0 should be seen
    axes.set_xticks(range(0, 361, 45))
    axes.set_xlim(-4, 364)
    dress(axes, x="the images are turned by (degrees)", y="other answers\nthan upright (%)")
    return drawn


def _draw_thumbnails(cells: Sequence[Any], answers: Answers, rows: Sequence[int]) -> None:
    labels, classes = answers.shown.labels.numpy(), answers.shown.data.classes
    for axes, row in zip(cells, rows, strict=True):
        show_image(axes, answers.shown.images[row])
        name = classes[labels[row]]
        picture(axes, y=name if len(name) <= 16 else f"{name[:13]}...", size=TINY)


def _draw_cells(axes: Any, answers: Answers, network: str, rows: Sequence[int]) -> None:
    """A row for every image, a cell for every angle."""
    labels = answers.shown.labels.numpy()
    changed = answers.changed(network)[:, rows].T
    wrong = (answers.classes[network][:, rows] != labels[rows]).T
    colours = needs("matplotlib.colors", "compare").ListedColormap([_SAME, _CHANGED])
    axes.pcolormesh(changed.astype(float), cmap=colours, vmin=0, vmax=1, edgecolor=FAINT, linewidth=0.4)
    for kind, colour in ((wrong & ~changed, INK), (wrong & changed, "white")):
        y, x = np.nonzero(kind)
        axes.plot(x + 0.5, y + 0.5, "x", color=colour, markersize=3, markeredgewidth=0.8)
    axes.set_ylim(len(rows), 0)
    step = max(1, round(len(answers.angles) / (8 if len(answers.classes) == 1 else 4)))
    ticks = range(0, len(answers.angles), step)
    axes.set_xticks([tick + 0.5 for tick in ticks], [f"{answers.angles[tick]:g}°" for tick in ticks])
    axes.set_yticks([])
    axes.tick_params(colors=INK, labelsize=SMALL, length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(textwrap.fill(network, 40), fontsize=SMALL, color=INK, pad=3, parse_math=False)
