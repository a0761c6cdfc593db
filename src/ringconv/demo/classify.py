"""The first tab: what two or more classifiers say of a picture while it turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringconv.demo.controls import Controls, Draw, Example, quiet
from ringconv.demo.drawing import (
    ANGLE,
    Axis,
    Line,
    bars,
    card,
    chart,
    coloured,
    figure,
    grid,
    note,
    round_picture,
    rounded_up,
)
from ringconv.demo.networks import Network
from ringconv.demo.pictures import Picture
from ringconv.demo.sweeps import ClassSweep, class_sweep, disc, drift, upright_response
from ringconv.demo.views import ANGLES, shown_side, turned_back, view

_BARS = 7
_LINES = 4
_NOTICED = 0.05
"""Probability that a class must reach at some angle to get a line."""
_MAPS = 4


def classify_card(
    title: str, network: Network, picture: Picture, angle: float, mirrored: bool, layer: str | None
) -> str:
    """All that the page shows of one network, as HTML."""
    side = shown_side(picture, network.side)
    upright = upright_response(network, picture, layer)
    now = network(view(picture, side, network.channels, angle, mirrored), layer)
    sweep = class_sweep(network, picture, mirrored)
    before, shares = (response.output.softmax(1)[0].numpy() for response in (upright, now))
    return card(
        title,
        f"{network.parameters:,} parameters",
        _verdict(network, before, shares),
        bars((network.classes[i], shares[i], before[i]) for i in _shown_classes(before, shares)),
        _probability_chart(network, sweep, int(before.argmax()), angle),
        _drift_chart(sweep, float(drift(now.embedding, upright.embedding)), angle),
        _feature_maps(upright.maps, now.maps, angle, mirrored),
    )


def _verdict(network: Network, before: np.ndarray[Any, Any], shares: np.ndarray[Any, Any]) -> str:
    now, then = network.classes[int(shares.argmax())], network.classes[int(before.argmax())]
    if now == then:
        return note(f"{now}, as upright", "same")
    return note(f"{now}; upright it was {then}", "changed")


def _shown_classes(before: np.ndarray[Any, Any], shares: np.ndarray[Any, Any]) -> list[int]:
    """All of them in their own order; of very many the likeliest."""
    if len(shares) <= _BARS:
        return list(range(len(shares)))
    return sorted(map(int, np.argsort(-np.maximum(before, shares))[:_BARS]))


def _probability_chart(network: Network, sweep: ClassSweep, upright: int, angle: float) -> str:
    most = sweep.probabilities.max(0)
    likeliest = [i for i in np.argsort(-most)[:_LINES] if most[i] >= min(_NOTICED, most.max())]
    # By its own number, so that a class has the same colour from network to network.
    lines = [
        Line(network.classes[i], (*ANGLES, 360), _closed(sweep.probabilities[:, i] * 100), f"c{i % 7}")
        for i in sorted(likeliest)
    ]
    flips = int((sweep.probabilities.argmax(1) != upright).sum())
    title = f"Class probabilities: the class changes at {flips} of {len(ANGLES)} angles"
    return chart(title, lines, ANGLE, Axis("", (0, 25, 50, 75, 100), unit="%"), angle)


def _drift_chart(sweep: ClassSweep, now: float, angle: float) -> str:
    # One scale for all networks, unless something is off it.
    top = rounded_up(max(1.0, float(sweep.drift.max())))
    title = f"Drift of the embedding: {now:.2f} now, at most {sweep.drift.max():.2f}"
    line = Line("", (*ANGLES, 360), _closed(sweep.drift), "ring")
    return chart(title, [line], ANGLE, Axis("", (0, top / 2, top)), angle)


def _closed(values: np.ndarray[Any, Any]) -> list[float]:
    """A full turn is none."""
    return [*values.tolist(), float(values[0])]


def _feature_maps(upright: Tensor | None, now: Tensor | None, angle: float, mirrored: bool) -> str:
    """The strongest channels upright, of the turned picture, and of the turned picture turned back."""
    if upright is None or now is None:
        return note("this layer has no maps")
    strongest = upright[0].flatten(1).std(1, correction=0).argsort(descending=True)[:_MAPS]
    first, second = upright[:, strongest].float(), now[:, strongest].float()
    back = turned_back(second, angle, mirrored)
    inside = disc(first)
    lost = (back - first)[..., inside].norm() / first[..., inside].norm().clamp(min=1e-12)
    # A channel has one scale in all three rows.
    lows, highs = first[0].flatten(1).quantile(torch.tensor([0.01, 0.99]), dim=1).tolist()
    parts = [f"<h4>Feature maps: turned back they differ from upright by {100 * float(lost):.0f}%</h4>"]
    for name, maps, shape in (
        ("upright", first, np.asarray),
        ("turned", second, np.asarray),
        ("turned back", back, round_picture),
    ):
        scaled = [coloured(values.numpy(), *ends) for values, *ends in zip(maps[0], lows, highs, strict=True)]
        parts.append(grid([figure(shape(pixels), pixelated=True) for pixels in scaled], len(strongest)))
        parts.append(f'<p class="rc-label">{name}</p>')
    return "".join(parts)


def classify_tab(gr: Any, networks: dict[str, Network], first: list[str], examples: list[Example]) -> Draw:
    """Lay the tab out; ``first`` are the names of the networks to begin with, one for each column."""
    names = list(networks)
    models, layers, cards = [], [], []
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=260):
            controls = Controls(gr, examples)
        for name in first:
            with gr.Column(scale=3, min_width=300):
                models.append(gr.Dropdown(names, value=name, label="Network"))
                layers.append(_layer_choice(gr, networks[name], label="Layer of the feature maps"))
                cards.append(gr.HTML(elem_classes="rc-html"))

    def frame(picture: Picture, angle: float, mirrored: bool, *chosen: str) -> list[str]:
        shown = [
            classify_card(name, networks[name], picture, angle, mirrored, layer)
            for name, layer in zip(chosen[: len(first)], chosen[len(first) :], strict=True)
        ]
        side = shown_side(picture, networks[chosen[0]].side)
        return [turned_picture(picture, side, angle, mirrored), *shown]

    draw = controls.connect(frame, [*models, *layers], cards)
    for model, layer in zip(models, layers, strict=True):
        model.input(lambda name: _layer_choice(gr, networks[name]), model, layer, **quiet()).then(**draw)
        layer.input(**draw)
    return draw


def turned_picture(picture: Picture, side: int, angle: float, mirrored: bool) -> str:
    shown = view(picture, side, 3, angle, mirrored)[0].movedim(0, -1)
    pixels = torch.round(shown * 255).to(torch.uint8).numpy()
    return figure(pixels, f"{side} x {side} pixels, turned by {angle:g}°{', mirrored' if mirrored else ''}")


def _layer_choice(gr: Any, network: Network, **more: Any) -> Any:
    choices = [(label, name) for name, label in network.layers.items()]
    return gr.Dropdown(choices, value=network.middle_layer, **more)
