"""Accuracy against angle, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringconv._extras import needs
from ringconv.data.textures import load_textures
from ringconv.training.compare import Comparison

_COLOURS = {"plain": "#d1603d", "ring": "#1f6f8b"}
_INK, _FAINT = "#333333", "#d9d9d9"
_SHOWN_ANGLES = range(0, 361, 45)


def save_accuracy_picture(comparison: Comparison, path: Path) -> None:
    """One line per network over all angles, below a test patch as it looks at some of them."""
    figure = needs("matplotlib.figure", "compare").Figure(figsize=(8, 5), layout="constrained")
    strip, chart = figure.subplots(2, 1, height_ratios=(1, 5), sharex=True)
    _draw_patches(strip, comparison.settings.seed)
    _draw_lines(chart, comparison)
    figure.suptitle("Trained upright, tested at every angle", fontsize=14, fontweight="bold", color=_INK)
    figure.legend(loc="outside lower center", frameon=False, labelcolor=_INK)
    figure.savefig(path, dpi=150, facecolor="white")


def _draw_patches(axes: Any, seed: int) -> None:
    offsetbox = needs("matplotlib.offsetbox", "compare")
    textures = load_textures("test", per_class=1, seed=seed)
    for angle in _SHOWN_ANGLES:
        image = offsetbox.OffsetImage(textures.view(angle)[0, 0].numpy(), cmap="gray", zoom=1.4)
        axes.add_artist(offsetbox.AnnotationBbox(image, (angle, 0.5), frameon=False))
    axes.set_axis_off()
    axes.set_ylim(0, 1)


def _draw_lines(axes: Any, comparison: Comparison) -> None:
    for model in comparison.models:
        angles = [*model.per_angle, 360]
        accuracies = [*model.per_angle.values(), model.upright]
        label = f"{model.kind} network: {model.rotated:.1f}% over all angles, {model.parameters:,} parameters"
        axes.plot(angles, accuracies, color=_COLOURS[model.kind], linewidth=2, marker="o", markersize=3.5, label=label)
    lowest = min(model.worst for model in comparison.models)
    axes.set_ylim(max(0.0, 10 * (lowest // 10) - 10), 100)
    axes.set_xlim(-16, 376)
    axes.set_xticks(_SHOWN_ANGLES)
    axes.set_xlabel("the test patches are turned by (degrees)", color=_INK)
    axes.set_ylabel("accuracy (%)", color=_INK)
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=_INK, length=0)
