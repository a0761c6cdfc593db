"""What happened during training: the score on turned images, and the widths of the rings; and turning in training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringconv._figure_style import (
    COLUMN,
    INK,
    PAGE,
    TINY,
    dress,
    headline,
    hide_unused,
    legend,
    line,
    new_figure,
    percent_axis,
)
from ringconv.report.figures.labels import data_name, run_labels, unique
from ringconv.report.figures.sources import Outcome, relabelled
from ringconv.training.runs import CONFIG, Run, list_runs, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LAYERS = 20


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Runs in any state: their folders, or folders with runs below them."""
    runs: list[Run] = []
    for path in paths:
        if (path / CONFIG).is_file():
            runs.append(read_run(path))
            continue
        below = list_runs(path)
        if not below:
            raise ValueError(f"{path} is not the folder of a run, and has none below it")
        runs += below
    if not runs:
        raise ValueError("give folders of runs (ringconv train)")
    return runs


def rotated_during_training(runs: Sequence[Run], names: Sequence[str] = ()) -> Figure:
    """The score on turned test images, epoch by epoch. Runs that are not finished are drawn as far as they are."""
    curves = {}
    labels = _names(runs, names)
    for label, run in zip(labels, runs, strict=True):
        entries = run.log("rotated")
        if not entries:
            raise ValueError(
                f"{run.folder} has no test on turned images during training; to record one every N epochs, train with"
                " --rotated-every N"
            )
        curves[label] = entries
    metrics = ["dice" if "dice_rotated" in entries[0] else "accuracy" for entries in curves.values()]
    if len(set(metrics)) > 1:
        raise ValueError("runs that classify and runs that segment have no score in common: draw them apart")
    figure = new_figure(COLUMN, 2.7)
    axes: Any = figure.subplots()
    handles: list[Any] = []
    values: list[float] = []
    for number, entries in enumerate(curves.values()):
        epochs, scores = ([entry[key] for entry in entries] for key in ("epoch", f"{metrics[0]}_rotated"))
        style = line(number, markevery=max(1, len(epochs) // 8))
        handles += axes.plot(epochs, scores, **style)
        values += scores
    percent_axis(axes, values)
    axes.xaxis.get_major_locator().set_params(integer=True)
    data = ", ".join(dict.fromkeys(map(data_name, runs)))
    dress(axes, x="epoch", y=f"{metrics[0]} over all angles (%)", title=data)
    legend(figure, handles, labels)
    return figure


def ring_widths(run: Run) -> Figure:
    """sigma of every layer's rings over the epochs, a panel for each layer."""
    entries = run.log("sigma")
    layers = [name for name in (entries[0] if entries else {}) if name not in ("kind", "step", "epoch")]
    if not layers:
        why = "has no layer whose rings have a width that is trained" if entries else "has not finished an epoch yet"
        raise ValueError(f'{run.folder} {why} (ring networks with sigma="layer" or "channel" do)')
    shown = layers[:_MOST_LAYERS]
    columns = min(len(shown), 4)
    rows = math.ceil(len(shown) / columns)
    figure = new_figure(COLUMN if columns == 1 else PAGE, 1.35 * rows + 0.75)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    epochs = [entry["epoch"] for entry in entries]
    unit = "rings" if run.settings.model_options.get("sampling") == "binned" else "pixels"
    handles: dict[str, Any] = {}
    for place, (axes, layer) in enumerate(zip(grid.flat, shown, strict=False)):
        widths = np.asarray([entry[layer] for entry in entries])
        for ring, values in enumerate(widths.T):
            style = line(ring, markevery=max(1, len(epochs) // 5))
            (handles[f"ring {ring + 1}"],) = axes.plot(epochs, values, **style)
        axes.margins(y=0.15)
        axes.xaxis.get_major_locator().set_params(integer=True, nbins=4)
        axes.yaxis.get_major_locator().set_params(nbins=3)
        last_in_column = place + columns >= len(shown)
        dress(
            axes,
            x="epoch" if last_in_column else "",
            y=rf"$\sigma$ ({unit})" if place % columns == 0 else "",
            formulas=True,
        )
        axes.set_title(layer, fontsize=TINY, color=INK)
        axes.tick_params(labelbottom=last_in_column)
    hide_unused(grid, len(shown))
    more = "" if len(shown) == len(layers) else f" (the first {len(shown)} of {len(layers)} layers)"
    headline(figure, f"{run.name}: widths of the rings{more}")
    legend(figure, list(handles.values()), list(handles))
    return figure


def partial_augmentation(tests: Sequence[Outcome]) -> Figure:
    """The score over all angles against how far training images were turned, a line per network."""
    points: dict[str, dict[float, list[float]]] = {}
    for test in relabelled(tests, lambda settings: dataclasses.replace(settings, rotation=0.0)):
        if test.run is None:
            raise ValueError(f"{test.label}: how far images were turned in training is known of ringconv train only")
        by_angle = points.setdefault(test.label, {})
        by_angle.setdefault(test.run.settings.rotation, []).append(test.rotated)
    metrics = dict.fromkeys(test.metric for test in tests)
    if len(metrics) != 1 or len({test.data for test in tests}) != 1:
        found = ", ".join(sorted({f"{test.metric} on {test.data}" for test in tests}))
        raise ValueError(f"runs on one data set can be compared, got {found or 'none'}")
    angles = sorted({angle for by_angle in points.values() for angle in by_angle})
    if len(angles) < 2:
        raise ValueError(
            f"all runs turned their training images by up to {angles[0]:g} degrees; train some with another --rotation"
        )
    figure = new_figure(COLUMN, 2.7)
    axes: Any = figure.subplots()
    handles: list[Any] = []
    for number, by_angle in enumerate(points.values()):
        means = [(angle, float(np.mean(by_angle[angle]))) for angle in sorted(by_angle)]
        # Even steps: the first few degrees matter most.
        places = [angles.index(angle) for angle, _ in means]
        handles += axes.plot(places, [score for _, score in means], **line(number, markersize=4.5))
    axes.set_xticks(range(len(angles)), [f"±{angle:g}" for angle in angles])
    percent_axis(axes, [test.rotated for test in tests])
    axes.margins(x=0.06)
    dress(axes, x="training images turned by up to (degrees)", y=f"{next(iter(metrics))} over all angles (%)",
          title=tests[0].data)  # fmt: skip
    legend(figure, handles, list(points))
    return figure


def _names(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    if names and len(names) != len(runs):
        raise ValueError(f"names must be one for each of {len(runs)} runs, got {len(names)}")
    labels = unique(run_labels(runs), [run.name for run in runs])
    return list(names) or unique(labels, [str(run.folder) for run in runs])
