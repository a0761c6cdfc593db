"""A run on one picture: how it learned, and how it does at every angle."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ringconv._extras import needs
from ringconv.evaluation import Evaluation
from ringconv.training.files import write_whole
from ringconv.training.logs import read_log

_TRAIN, _TEST, _THIRD = "#8c8c8c", "#1f6f8b", "#d1603d"
_INK, _FAINT = "#333333", "#d9d9d9"


def save_picture(folder: Path, path: Path, evaluation: Evaluation | None) -> None:
    """Draw the log of a run's folder and, if there is one, its test."""
    figure = needs("matplotlib.figure", "train").Figure(figsize=(10, 4), layout="constrained")
    learning, turning = figure.subplots(1, 2)
    _draw_learning(learning, folder)
    _draw_angles(turning, evaluation)
    for axes in (learning, turning):
        axes.grid(axis="y", color=_FAINT, linewidth=0.8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(colors=_INK, length=0)
    figure.suptitle(folder.name, fontsize=11, color=_INK)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130, facecolor="white")
    write_whole(path, content.getvalue())


def _draw_learning(axes: Any, folder: Path) -> None:
    """Scores of training, validation and the turned test images, epoch by epoch."""
    epochs = read_log(folder, "epoch")
    name = "dice" if epochs and "dice" in epochs[0] else "accuracy"
    curves = (
        ("epoch", name, "training", _TRAIN),
        ("validation", name, "validation", _INK),
        ("rotated", f"{name}_upright", "test, upright", _TEST),
        ("rotated", f"{name}_rotated", "test, turned", _THIRD),
    )
    for kind, key, label, colour in curves:
        lines = read_log(folder, kind)
        if lines:
            style = {"marker": "o", "markersize": 3} if len(lines) < 30 else {}
            axes.plot(
                [line["epoch"] for line in lines], [line[key] for line in lines], color=colour, label=label, **style
            )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch", color=_INK)
    axes.set_ylabel(f"{name} (%)", color=_INK)
    axes.legend(frameon=False, labelcolor=_INK)


def _draw_angles(axes: Any, evaluation: Evaluation | None) -> None:
    """The score at every angle; of volumes a line for every axis."""
    if evaluation is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not tested", ha="center", color=_INK)
        return
    name = "dice" if "dice" in evaluation.scores else "accuracy"
    scores = evaluation.scores[name]
    lines: dict[str, list[tuple[float, float]]] = {}
    for turn, score in scores.per_turn.items():
        axis, _, angle = turn.rpartition(" ")
        lines.setdefault(axis, []).append((float(angle), score))
    for (axis, points), colour in zip(lines.items(), (_TEST, _THIRD, _TRAIN), strict=False):
        closed = [*points, (360.0, points[0][1])]
        label = f"about {axis}" if axis else f"mean {scores.rotated:.1f}, std {scores.std:.2f}"
        axes.plot(*zip(*closed, strict=True), color=colour, marker="o", markersize=3, label=label)
    low, high = min(scores.per_turn.values()), max(scores.per_turn.values())
    axes.set_ylim(max(0.0, low - max(5.0, (high - low) / 4)), min(100.0, high + 5.0) + 0.5)
    axes.set_xticks(range(0, 361, 45))
    axes.set_xlabel("the test images are turned by (degrees)", color=_INK)
    axes.set_ylabel(f"{name} (%)", color=_INK)
    axes.legend(frameon=False, labelcolor=_INK)
