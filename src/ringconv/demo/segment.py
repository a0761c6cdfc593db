"""The third tab: a segmentation that turns with its image, or does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv.demo.classify import turned_picture
from ringconv.demo.controls import Controls, Draw, Example
from ringconv.demo.drawing import ANGLE, Axis, Line, card, chart, figure, grid, round_picture
from ringconv.demo.networks import Network
from ringconv.demo.pictures import Picture, resized
from ringconv.demo.sweeps import overlap, overlap_sweep, segmentation, segmentation_back, upright_response
from ringconv.demo.views import ANGLES, shown_side, view

_ENLARGED = 192
"""Side, about, at which outlines are drawn, so that they are thinner than a pixel of the image."""
_OUTLINE = (255, 176, 59)
_PALETTE = np.array(
    [(20, 24, 30), (245, 243, 238), (86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (213, 94, 0)],
    np.uint8,
)
"""Background, then the classes, over and over."""
_LOST, _CAME, _SAME = (209, 96, 61), (86, 180, 233), (245, 243, 238)


def segment_card(title: str, network: Network, picture: Picture, angle: float, mirrored: bool) -> str:
    """All that the page shows of one network, as HTML."""
    side = shown_side(picture, network.side)
    upright = segmentation(upright_response(network, picture).output)
    output = network(view(picture, side, network.channels, angle, mirrored)).output
    found, back = segmentation(output), segmentation_back(output, angle, mirrored)
    turned = view(picture, side, 3, angle, mirrored)
    figures = [
        figure(_outlined(turned, found), "outlined"),
        figure(_classes(found), "segmentation", pixelated=True),
        figure(round_picture(_classes(back)), "turned back", pixelated=True),
        figure(_difference(upright, back), "against upright", pixelated=True),
    ]
    sweep = overlap_sweep(network, picture, mirrored)
    line = Line("", (*ANGLES, 360), [*(100 * sweep).tolist(), float(100 * sweep[0])], "ring")
    title_of_chart = f"Overlap with the upright segmentation: {100 * overlap(back, upright):.0f}% now"
    return card(
        title,
        f"{network.parameters:,} parameters",
        grid(figures, 2),
        '<div class="rc-legend"><span class="lost">lost</span><span class="came">new</span></div>',
        chart(title_of_chart, [line], ANGLE, Axis("", (0, 25, 50, 75, 100), unit="%"), angle),
    )


def _outlined(image: Tensor, found: Tensor) -> NDArray[np.uint8]:
    """(1, 3, S, S) and (S, S) -> the image, enlarged, with a line around what was found."""
    pixels = torch.round(image[0].movedim(0, -1) * 255).to(torch.uint8).numpy()
    times = max(1, _ENLARGED // len(pixels))
    large: NDArray[np.uint8] = resized(pixels, times * len(pixels)).copy()
    classes = np.kron(found.numpy(), np.ones((times, times), np.int64))
    edge = np.zeros(classes.shape, bool)
    edge[1:] |= classes[1:] != classes[:-1]
    edge[:, 1:] |= classes[:, 1:] != classes[:, :-1]
    large[edge] = _OUTLINE
    return large


def _classes(found: Tensor) -> NDArray[np.uint8]:
    numbers = found.numpy()
    pixels: NDArray[np.uint8] = _PALETTE[np.where(numbers > 0, (numbers - 1) % (len(_PALETTE) - 1) + 1, 0)]
    return pixels


def _difference(upright: Tensor, back: Tensor) -> NDArray[np.uint8]:
    """What is the same, what was lost and what came by turning, within the disc that stays in the frame."""
    pixels = np.empty((*upright.shape, 3), np.uint8)
    pixels[:] = _PALETTE[0]
    pixels[(upright > 0).numpy()] = _SAME
    pixels[((upright > 0) & (back != upright)).numpy()] = _LOST
    pixels[((back > 0) & (back != upright) & (upright == 0)).numpy()] = _CAME
    return round_picture(pixels)


def segment_tab(gr: Any, networks: dict[str, Network], first: list[str], examples: list[Example]) -> Draw:
    """Lay the tab out; ``first`` are the names of the networks to begin with, one for each column."""
    names = list(networks)
    models, cards = [], []
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=260):
            controls = Controls(gr, examples)
        for name in first:
            with gr.Column(scale=3, min_width=300):
                models.append(gr.Dropdown(names, value=name, label="Network"))
                cards.append(gr.HTML(elem_classes="rc-html"))

    def frame(picture: Picture, angle: float, mirrored: bool, *chosen: str) -> list[str]:
        shown = [segment_card(name, networks[name], picture, angle, mirrored) for name in chosen]
        side = shown_side(picture, networks[chosen[0]].side)
        return [turned_picture(picture, side, angle, mirrored), *shown]

    draw = controls.connect(frame, models, cards)
    for model in models:
        model.input(**draw)
    return draw
