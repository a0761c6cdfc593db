"""A run on one picture: how it learned, and how it does at every angle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringconv._figure_style import INK, NORMAL, PAGE, SMALL, dress, line, new_figure, percent_axis, png
from ringconv._files import write_whole
from ringconv.evaluation import Evaluation
from ringconv.training.logs import read_log


def save_picture(folder: Path, path: Path, evaluation: Evaluation | None) -> None:
    """Draw the log of a run's folder and, if there is one, its test."""
    figure = new_figure(PAGE, 2.8, "train")
    learning, turning = figure.subplots(1, 2)
    _draw_learning(learning, folder)
    _draw_angles(turning, evaluation)
    figure.suptitle(folder.name, fontsize=NORMAL, color=INK, parse_math=False)
    write_whole(path, png(figure, 200))


def _draw_learning(axes: Any, folder: Path) -> None:
    """Scores of training, validation and the turned test images, epoch by epoch."""
    epochs = read_log(folder, "epoch")
    name = "dice" if epochs and "dice" in epochs[0] else "accuracy"
    curves = (
        ("epoch", name, "training"),
        ("validation", name, "validation"),
        ("rotated", f"{name}_upright", "test, upright"),
        ("rotated", f"{name}_rotated", "test, turned"),
    )
    for number, (kind, key, label) in enumerate(curves):
        entries = read_log(folder, kind)
        if entries:
            style = line(number, markevery=max(1, len(entries) // 10))
            axes.plot([entry["epoch"] for entry in entries], [entry[key] for entry in entries], label=label, **style)
    axes.xaxis.get_major_locator().set_params(integer=True)
    dress(axes, x="epoch", y=f"{name} (%)")
    axes.legend(frameon=False, labelcolor=INK, fontsize=SMALL)


def _draw_angles(axes: Any, evaluation: Evaluation | None) -> None:
    """The score at every angle; of volumes a line for every axis."""
    if evaluation is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not tested", ha="center", color=INK, fontsize=NORMAL)
        return
    name = "dice" if "dice" in evaluation.scores else "accuracy"
    scores = evaluation.scores[name]
    lines: dict[str, list[tuple[float, float]]] = {}
    for turn, score in scores.per_turn.items():
        axis, _, angle = turn.rpartition(" ")
        lines.setdefault(axis, []).append((float(angle), score))
    for number, (axis, points) in enumerate(lines.items()):
        closed = [*points, (360.0, points[0][1])]
        label = f"about {axis}" if axis else f"mean {scores.rotated:.1f}, std {scores.std:.2f}"
        axes.plot(*zip(*closed, strict=True), label=label, **line(number, markevery=max(1, len(points) // 12)))
    percent_axis(axes, scores.per_turn.values())
    axes.set_xticks(range(0, 361, 60))
    dress(axes, x="the test images are turned by (degrees)", y=f"{name} (%)")
    axes.legend(frameon=False, labelcolor=INK, fontsize=SMALL)
