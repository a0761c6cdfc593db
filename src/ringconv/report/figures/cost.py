"""The score against what a network costs: its parameters, and the memory of training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ringconv._extras import needs
from ringconv._figure_style import (
    COLOURS,
    COLUMN,
    INK,
    PAGE,
    SMALL,
    dress,
    headline,
    hide_unused,
    legend,
    line,
    new_figure,
    outlined,
    percent_axis,
)
from ringconv._network import dtype_of, input_channels
from ringconv.models.checkpoint import load_model, read_info
from ringconv.report.figures.sources import Outcome, relabelled
from ringconv.training.runs import MODEL
from ringconv.training.settings import TrainSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGEST_BUBBLE = 900.0
"""Square points."""
_BATCH = 2
"""Images that the memory is measured with: one alone cannot be normalised over its batch where maps are 1x1."""


def accuracy_against_parameters(tests: Sequence[Outcome]) -> Figure:
    """A line through the tests of one label, over their numbers of parameters; where these are equal, their mean.

    :func:`without_widths` gives runs that differ in the width of their network one label.
    """
    panels = _by_data([test for test in tests if test.parameters])
    figure = new_figure(COLUMN if len(panels) == 1 else PAGE, 2.6 * math.ceil(len(panels) / 2) + 0.3)
    grid = figure.subplots(math.ceil(len(panels) / 2), min(2, len(panels)), squeeze=False)
    labels = {label: number for number, label in enumerate(dict.fromkeys(test.label for test in tests))}
    handles: dict[str, Any] = {}
    for axes, ((data, metric), shown) in zip(grid.flat, panels.items(), strict=False):
        for label, number in labels.items():
            points = _mean_by_parameters(test for test in shown if test.label == label)
            if points:
                (handles[label],) = axes.plot(*zip(*points, strict=True), **line(number, markersize=4.5))
        _count_axis(axes, [test.parameters or 1 for test in shown])
        percent_axis(axes, [test.rotated for test in shown])
        dress(axes, x="parameters", y=f"{metric} over all angles (%)", title=data, grid="both")
    hide_unused(grid, len(panels))
    legend(figure, list(handles.values()), list(handles))
    return figure


def bubbles(tests: Sequence[Outcome]) -> Figure:
    """The score over all angles against the memory of training; the area of a bubble is the number of parameters."""
    known = [test for test in tests if test.parameters and test.megabytes]
    panels = _by_data(known)
    figure = new_figure(COLUMN if len(panels) == 1 else PAGE, 2.8 * math.ceil(len(panels) / 2) + 0.4)
    grid = figure.subplots(math.ceil(len(panels) / 2), min(2, len(panels)), squeeze=False)
    labels = {label: number for number, label in enumerate(dict.fromkeys(test.label for test in known))}
    largest = max(test.parameters or 1 for test in known)
    handles: dict[str, Any] = {}
    for axes, ((data, metric), shown) in zip(grid.flat, panels.items(), strict=False):
        # The large ones first, so that they do not hide the small ones.
        for test in sorted(shown, key=lambda test: -(test.parameters or 0)):
            number = labels[test.label]
            size = _LARGEST_BUBBLE * (test.parameters or 1) / largest
            colour = COLOURS[number % len(COLOURS)]
            drawn = axes.scatter(test.megabytes, test.rotated, s=size, color=colour, alpha=0.65, edgecolor=INK)
            axes.annotate(
                str(number + 1), (test.megabytes, test.rotated), ha="center", va="center", fontsize=SMALL, color=INK,
                path_effects=outlined(),
            )  # fmt: skip
            handles[test.label] = drawn
        percent_axis(axes, [test.rotated for test in shown], room=0.2)
        axes.margins(x=0.2)
        axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
        axes.xaxis.get_major_locator().set_params(nbins=5)
        dress(axes, x="kept for the backward pass (MB per image)", y=f"{metric} over all angles (%)", title=data)
    hide_unused(grid, len(panels))
    named = {label: next(test for test in known if test.label == label) for label in labels}
    names = [f"{labels[label] + 1}: {label} ({short(named[label].parameters or 0)})" for label in labels]
    dots = needs("matplotlib.lines", "compare").Line2D
    marks = [
        dots([], [], linestyle="", marker="o", color=COLOURS[number % len(COLOURS)], markersize=5)
        for number in labels.values()
    ]
    legend(figure, marks, names)
    headline(figure, "The area of a circle is the number of parameters")
    return figure


def with_memory(tests: Iterable[Outcome]) -> list[Outcome]:
    """The tests with what a training image keeps for the backward pass, measured on the run's network."""
    measured: dict[str, float] = {}
    filled = []
    for test in tests:
        if test.megabytes is None:
            if test.run is None:
                raise ValueError(
                    f"{test.label}: the memory is known of runs of ringconv train and ringconv budget only"
                )
            if test.experiment not in measured:
                path = test.run.folder / MODEL
                info = read_info(path)
                size = info.preprocessing.size if info.preprocessing else None
                if size is None:
                    raise ValueError(f"{path} does not say the size of its images")
                network = load_model(path)
                measured[test.experiment] = training_megabytes(network, input_channels(network), size)
            test = dataclasses.replace(test, megabytes=measured[test.experiment])
        filled.append(test)
    return filled


def training_megabytes(network: nn.Module, channels: int, size: Sequence[int]) -> float:
    """What one image (channels, *size) keeps for the backward pass of a training step."""
    # Not at the top: the benchmarks need rich.
    from ringconv.benchmark.memory import saved_bytes

    was_training = network.training
    try:
        images = torch.zeros(_BATCH, channels, *size, dtype=dtype_of(network))
        return saved_bytes(network.train(), images) / _BATCH / 1e6
    finally:
        network.train(was_training)


def short(count: float) -> str:
    """64,197 -> "64k", 3,996,685 -> "4.0M"."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.1f}{letter}" if count < 10 * unit else f"{count / unit:.0f}{letter}"
    return f"{count:.0f}"


def without_widths(tests: Sequence[Outcome]) -> list[Outcome]:
    """With labels that do not tell the widths of networks apart."""

    def unwidened(settings: TrainSettings) -> TrainSettings:
        options = {name: value for name, value in settings.model_options.items() if name != "width"}
        return dataclasses.replace(settings, model_options=options)

    return relabelled(tests, unwidened)


def _mean_by_parameters(tests: Iterable[Outcome]) -> list[tuple[int, float]]:
    scores: dict[int, list[float]] = {}
    for test in tests:
        scores.setdefault(test.parameters or 0, []).append(test.rotated)
    return [(count, float(np.mean(scores[count]))) for count in sorted(scores)]


def _count_axis(axes: Any, counts: Sequence[int]) -> None:
    """Logarithmic, with at most six round numbers."""
    low, high = min(counts) / 1.3, max(counts) * 1.3
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        finer = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
        if len(finer) > 6:
            break
        ticks = finer
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks or [float(counts[0])], [short(tick) for tick in ticks or [float(counts[0])]])
    axes.minorticks_off()


def _by_data(tests: Sequence[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    if not tests:
        raise ValueError("none of these says how many parameters its network has: give runs of ringconv train")
    panels: dict[tuple[str, str], list[Outcome]] = {}
    for test in tests:
        panels.setdefault((test.data, test.metric), []).append(test)
    return panels
