"""All figures by name, and what each needs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ringconv._extras import MissingExtraError
from ringconv.report.figures import angles, progress, requests
from ringconv.report.figures.requests import Request
from ringconv.report.figures.sources import read_tests
from ringconv.training.runs import MODEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Takes = Literal["runs", "networks", "networks and images", "a file of ringconv bench", "a network, or nothing"]


@dataclass(frozen=True)
class Drawing:
    """A figure that can be asked for by name."""

    summary: str
    takes: Takes
    draw: Callable[[Request], Figure]
    options: tuple[str, ...] = ()
    """Fields of :class:`Request` that it heeds, beside the paths."""
    paper: str = ""
    """Label of the paper's figure."""
    single: bool = False
    """Whether it is of one run or network."""


def draw(name: str, request: Request) -> Figure:
    """A figure by its name; what it does not heed must be left out of the request."""
    if name not in DRAWINGS:
        of_the_paper = [one for one, drawing in DRAWINGS.items() if name.startswith("fig:") and name in drawing.paper]
        close = of_the_paper or difflib.get_close_matches(name, DRAWINGS, 1)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        raise ValueError(f"there is no figure {name!r}{hint} The figures are {', '.join(DRAWINGS)}")
    drawing = DRAWINGS[name]
    given = [one.name for one in fields(Request) if getattr(request, one.name) != one.default]
    ignored = [option for option in given if option not in ("paths", "report", *drawing.options)]
    if ignored:
        taken = ", ".join(map(_option, drawing.options)) or "no option"
        raise ValueError(f"{name} takes {taken}, not {', '.join(map(_option, ignored))}")
    if not request.paths and drawing.takes != "a network, or nothing":
        raise ValueError(f"{name} is drawn from {drawing.takes}: give their paths")
    return drawing.draw(request)


def draw_all(request: Request) -> Iterator[tuple[str, Figure | str]]:
    """Every figure of runs and networks, as (file name, figure), or (name, why it cannot be drawn from these).

    Each takes what it heeds of the request; figures of a single run are drawn of each.
    """
    for name, drawing in DRAWINGS.items():
        if drawing.takes == "a file of ringconv bench":
            continue
        heeded = {option: getattr(request, option) for option in (*drawing.options, "report")}
        each = drawing.single and len(request.paths) > 1
        parts = _parts_of_names(request.paths) if each else [""]
        for part, paths in zip(parts, [(path,) for path in request.paths] if each else [request.paths], strict=True):
            title = f"{name}-{part}" if each else name
            try:
                yield title, draw(name, Request(paths=paths, **heeded))
            except (ValueError, OSError, MissingExtraError) as error:
                yield title, str(error)


def _parts_of_names(paths: Sequence[Path]) -> list[str]:
    """For the file of each path: its name, that of its folder where all networks have one name, and a number if need
    be."""
    found: list[str] = []
    for path in paths:
        stem = name = path.parent.name if path.name == MODEL else path.name
        number = 1
        while name in found:
            number += 1
            name = f"{stem}-{number}"
        found.append(name)
    return found


def _option(name: str) -> str:
    return f"--{name}"


_IMAGES = ("names", "data", "root", "split", "images", "seed")

DRAWINGS: dict[str, Drawing] = {
    "radar": Drawing(
        "Score against angle, around a circle",
        "runs",
        lambda request: angles.radar(requests.curves(request)),
        ("names",),
        "fig:radar3, fig:cifar_kdesign, fig:cifar_abla",
    ),
    "lines": Drawing(
        "Score against angle, as lines",
        "runs",
        lambda request: angles.lines(requests.curves(request)),
        ("names",),
        "fig:cifar_line, ...",
    ),
    "boxes": Drawing(
        "Spread of the score over the angles",
        "runs",
        lambda request: angles.boxes(requests.curves(request)),
        ("names",),
        "fig:radar3",
    ),
    "parameters": Drawing(
        "Score against the number of parameters",
        "runs",
        requests.parameters,
        ("names",),
        "fig:param",
    ),
    "bubbles": Drawing(
        "Score, memory of training and size",
        "runs",
        requests.bubbles,
        ("names",),
        "fig:teaser (a)",
    ),
    "speed": Drawing(
        "Time against the width of the kernel",
        "a file of ringconv bench",
        requests.time,
        (),
        "fig:teaser (b)",
    ),
    "kernel": Drawing(
        "How a kernel is built from its rings",
        "a network, or nothing",
        requests.kernel,
        ("layer", "channel", "seed"),
        "fig:build (a)",
        single=True,
    ),
    "two-steps": Drawing(
        "How a ring convolution is computed",
        "a network, or nothing",
        requests.two_steps,
        ("layer", "seed"),
        "fig:build (b)",
        single=True,
    ),
    "kernels": Drawing(
        "Learned kernels of each stage",
        "networks",
        requests.learned_kernels,
        ("seed",),
        "fig:sri_kernel",
        single=True,
    ),
    "correlations": Drawing(
        "How alike the kernels of a layer are",
        "networks",
        requests.correlations,
        ("names", "layer", "channel"),
        "fig:corr",
    ),
    "clusters": Drawing(
        "t-SNE of embeddings of turned images",
        "networks and images",
        requests.clusters,
        _IMAGES,
        "fig:cluster",
    ),
    "features": Drawing(
        "Feature maps of an image, turned back",
        "networks and images",
        requests.feature_maps,
        ("names", "data", "root", "split", "image", "layer", "channel"),
        "fig:feat",
    ),
    "training": Drawing(
        "Score on turned images during training",
        "runs",
        lambda request: progress.rotated_during_training(progress.read_runs(request.paths), request.names),
        ("names",),
        "fig:cifar_train",
    ),
    "sigma": Drawing("Widths of the rings during training", "runs", requests.ring_widths, single=True),
    "augmentation": Drawing(
        "Score against turning in training",
        "runs",
        lambda request: progress.partial_augmentation(read_tests(request.paths)),
        (),
        "fig:partial",
    ),
    "error-angle": Drawing(
        "Equivariance error against the angle",
        "networks",
        requests.errors_by_angle,
        _IMAGES,
    ),
    "error-depth": Drawing(
        "Equivariance error against the depth",
        "networks",
        requests.errors_by_depth,
        _IMAGES,
    ),
    "changes": Drawing(
        "Which answers change when images turn", "networks and images", requests.changed_answers, _IMAGES
    ),
}
"""In the order of the paper, then ours."""
