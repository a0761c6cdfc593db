"""Accuracy against angle, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringconv._extras import needs
from ringconv._figure_style import PAGE, dress, headline, legend, line, new_figure, png
from ringconv._files import write_whole
from ringconv.data.textures import load_textures
from ringconv.training.compare import Comparison

_SHOWN_ANGLES = range(0, 361, 45)


def save_accuracy_picture(comparison: Comparison, path: Path) -> None:
    """One line per network over all angles, below a test patch as it looks at some of them."""
    figure = new_figure(PAGE, 4.2)
    strip, chart = figure.subplots(2, 1, height_ratios=(1, 5), sharex=True)
    _draw_patches(strip, comparison.settings.seed)
    drawn = _draw_lines(chart, comparison)
    headline(figure, "Trained upright, tested at every angle")
    legend(figure, list(drawn.values()), list(drawn))
    write_whole(path, png(figure, 200))


def _draw_patches(axes: Any, seed: int) -> None:
    offsetbox = needs("matplotlib.offsetbox", "compare")
    textures = load_textures("test", per_class=1, seed=seed)
    for angle in _SHOWN_ANGLES:
        image = offsetbox.OffsetImage(textures.view(angle)[0, 0].numpy(), cmap="gray", zoom=1.2)
        axes.add_artist(offsetbox.AnnotationBbox(image, (angle, 0.5), frameon=False))
    axes.set_axis_off()
    axes.set_ylim(0, 1)


def _draw_lines(axes: Any, comparison: Comparison) -> dict[str, Any]:
    """Label -> line."""
    drawn = {}
    for number, model in enumerate(comparison.models):
        angles = [*model.per_angle, 360]
        accuracies = [*model.per_angle.values(), model.upright]
        label = f"{model.kind} network: {model.rotated:.1f}% over all angles, {model.parameters:,} parameters"
        (drawn[label],) = axes.plot(angles, accuracies, **line(number, markevery=3))
    lowest = min(model.worst for model in comparison.models)
    axes.set_ylim(max(0.0, 10 * (lowest // 10) - 10), 101)
    axes.set_xlim(-16, 376)
    axes.set_xticks(_SHOWN_ANGLES)
    dress(axes, x="the test patches are turned by (degrees)", y="accuracy (%)")
    return drawn
