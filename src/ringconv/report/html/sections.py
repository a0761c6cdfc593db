"""Sections of the report on one data set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import nn

from ringconv._progress import Progress
from ringconv.report.figures import learned_kernels, svg
from ringconv.report.figures.layers import RINGS
from ringconv.report.html.entries import DataShown, Entry
from ringconv.report.html.images import TestImages
from ringconv.report.html.markup import Content, Markup, element
from ringconv.report.html.turning import Answers, Turned, TurningImage, turn_images

_GONE = (OSError, ValueError, ImportError)
"""What opening a checkpoint or data may raise, each with a message that says why."""
_MOST_KERNELS = 4
"""Networks whose kernels are shown."""
_PIXELS = 600_000
"""Of all test images that are turned, together."""
_MOST_IMAGES = 500


_CELLS = {
    False: "A cell for every angle: high and blue where the answer is right, low and orange where it is wrong.",
    True: "A cell for every angle: high and blue where Dice is at least 90, middle from 60, low and orange below.",
}


def trained(data: DataShown, entries: Sequence[Entry]) -> Markup:
    """What was trained on what."""
    classes = list(dict.fromkeys(name for entry in entries for name in entry.classes))
    about = list(dict.fromkeys(line for entry in entries for line in entry.about_data))
    test = f"{data.tested:,} test images"
    turned = f" ({data.how})" if data.how else ""
    items: list[Content] = [element("li", line) for line in about]
    items.append(element("li", f"To {data.task}; tested on {test}, upright, turned and mirrored{turned}"))
    if classes:
        shown = ", ".join(classes[:20]) + (f" and {len(classes) - 20} more" if len(classes) > 20 else "")
        items.append(element("li", f"{len(classes)} classes: {shown}"))
    networks = [element("li", element("b", entry.label), f": {entry.training}") for entry in entries]
    return element("div", element("ul", items), element("ul", networks))


def networks_of(entries: Sequence[Entry]) -> tuple[dict[str, nn.Module], list[str]]:
    """The networks that can be loaded, by label, and why the others cannot."""
    networks, missing = {}, []
    for entry in entries:
        try:
            if entry.network is None:
                raise ValueError("its weights were not kept")
            networks[entry.label] = entry.network()
        except _GONE as error:
            missing.append(f"{entry.label} cannot be shown at work: {error}")
    return networks, missing


def turning(
    entries: Sequence[Entry], networks: Mapping[str, nn.Module], count: int, identity: str, progress: Progress | None
) -> Markup:
    """The images whose answer changes most, turning."""
    images, missing = _images([entry for entry in entries if entry.label in networks])
    if images is None or not networks or count < 1:
        return element("div", [element("p", line, class_="missing") for line in missing])
    try:
        turned = turn_images(networks, images, count, progress)
    except (RuntimeError, ValueError) as error:  # a network that does not fit what the data is now
        return element("p", f"The images could not be shown to the networks: {error}", class_="missing")
    return element(
        "div",
        element("p", _how_many_change(turned, images)),
        [element("p", line, class_="missing") for line in missing],
        _controls(identity, turned) if turned.images else None,
        element("div", [_card(image, turned) for image in turned.images], class_="cards"),
        element("p", _CELLS[images.labels is None], class_="faint") if turned.images else None,
        class_="turning",
        data_angles=" ".join(f"{angle:g}" for angle in turned.angles),
    )


def _images(entries: Sequence[Entry]) -> tuple[TestImages | None, list[str]]:
    """Of the first entry whose data can be opened."""
    missing: list[str] = []
    for entry in entries:
        if entry.images is None:
            continue
        count = _PIXELS // max(1, math.prod(entry.data.size))
        try:
            return entry.images(max(1, min(_MOST_IMAGES, count))), []
        except _GONE as error:
            missing.append(f"The test images cannot be shown: {error}")
    return None, list(dict.fromkeys(missing))


def _how_many_change(turned: Turned, images: TestImages) -> str:
    shares = ", ".join(f"{label} {share:.1f}" for label, share in turned.changed.items())
    if images.labels is None:
        return (
            f"{turned.tested} test images were turned by every {turned.angles[1]:g} degrees. Mean over them of the best"
            f" Dice minus worst, in points: {shares}. Those that change most, with what was found as a veil and the"
            " truth outlined:"
        )
    about = " about the first axis" if images.dimensions == 3 else ""
    angles = f"{len(turned.angles)} angles{about}"
    change = f"Percentage of {turned.tested} test images whose answer changes at any of {angles}"
    if not turned.images:
        return f"{change}: {shares}. No answer changes."
    slices = " (middle slices)" if images.dimensions == 3 else ""
    return f"{change}: {shares}. Those that change most{slices}:"


def _controls(identity: str, turned: Turned) -> Markup:
    name = f"angle-{identity}"
    return element(
        "p",
        element("button", "Pause", type="button", class_="play"),
        element("label", " Turned by ", for_=name),
        element("input", type="range", id=name, min=0, max=len(turned.angles) - 1, value=0),
        element("output", "0°", for_=name),
        class_="controls needs-js",
    )


def _card(image: TurningImage, turned: Turned) -> Markup:
    frames = len(turned.angles)
    shared = _film(image.film, image.truth, image.side, frames) if image.film else None
    rows = []
    for answers in image.answers:
        own = _film(answers.film, f"{image.truth}, {answers.label}", image.side, frames) if answers.film else None
        rows.append(element("div", own, element("div", _answers(answers, turned.angles)), class_="row"))
    return element(
        "figure",
        shared,
        element("figcaption", element("b", image.truth), rows),
        class_="card" if shared else "card wide",
    )


def _film(address: str, title: str, side: int, frames: int) -> Markup:
    style = f"--frames:{frames};background-image:url({address})"
    sharp = "film sharp" if side < 80 else "film"
    return element("div", class_=sharp, style=style, role="img", aria_label=f"{title}, turning")


def _answers(answers: Answers, angles: Sequence[float]) -> Content:
    cells = [
        element("i", class_=_quality(good), title=f"{angle:g}°: {text}", data_text=text)
        for angle, text, good in zip(angles, answers.texts, answers.good, strict=True)
    ]
    said = element("span", answers.texts[0], class_="said needs-js")
    changes = f"changes at {answers.changes} of {len(angles)} angles" if answers.film is None else None
    return [
        element("div", element("span", answers.label, class_="who"), said),
        element("div", cells, class_="cells", role="img", aria_label=changes or "Dice by angle"),
        element("small", changes) if changes else None,
    ]


def _quality(good: float) -> str:
    return "right" if good >= 0.9 else "half" if good >= 0.6 else "wrong"


def kernels(networks: Mapping[str, nn.Module], identity: str) -> Markup | None:
    """Learned kernels of the ring networks."""
    rings = {
        label: network
        for label, network in networks.items()
        if any(isinstance(module, RINGS) for module in network.modules())
    }
    if not rings:
        return None
    figures = []
    for number, (label, network) in enumerate(list(rings.items())[:_MOST_KERNELS]):
        drawing = Markup(svg(learned_kernels(network.cpu()), f"{identity}-kernels{number}-"))
        figures.append(element("figure", element("figcaption", label), element("div", drawing, class_="drawing")))
    more = len(rings) - len(figures)
    return element(
        "div",
        element("div", figures, class_="drawings"),
        element("p", f"{more} more ring networks are not shown here.") if more > 0 else None,
    )
