"""What the page draws, as HTML and SVG: light enough for every frame, and in colours that follow light and dark."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringconv._extras import needs

Pixels = NDArray[np.uint8]

SEQUENTIAL = ("#101820", "#1f6f8b", "#f4e9cd")
DIVERGING = ("#1f6f8b", "#f5f3ee", "#d1603d")

LEAST_RADIUS = 0.75
"""Of a disc in pixels: within it lie the four pixels around the centre of a map of even sides."""
_WIDTH, _HEIGHT = 340, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 16, 8, 34


class Line(NamedTuple):
    """A curve of a chart."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "c0"
    """CSS class: c0 to c6, ring, plain or faint."""
    dots: bool = False
    """Points instead of a line."""


class Axis(NamedTuple):
    label: str
    ticks: Sequence[float]
    """The first and the last are where the axis ends."""
    logarithmic: bool = False
    unit: str = ""

    def place(self, value: float) -> float:
        """In [0, 1]; what lies beyond an end is drawn at it."""
        low, high = self.ticks[0], self.ticks[-1]
        if not self.logarithmic:
            return min(1.0, max(0.0, (value - low) / (high - low)))
        return 0.0 if value <= low else min(1.0, math.log(value / low) / math.log(high / low))


ANGLE = Axis("angle", tuple(range(0, 361, 90)), unit="°")


def chart(title: str, lines: Sequence[Line], x: Axis, y: Axis, marker: float | None = None) -> str:
    """An SVG line chart with a legend below; ``marker`` is a vertical line at that x."""
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def across(value: float) -> str:
        return f"{_LEFT + wide * x.place(value):.1f}"

    def up(value: float) -> str:
        return f"{_TOP + high * (1 - y.place(value)):.1f}"

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title)}">']
    for tick in y.ticks:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(tick)}" y2="{up(tick)}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{up(tick)}" dy="0.35em">{tick:g}{y.unit}</text>')
    for tick in x.ticks:
        parts.append(f'<text class="mid" x="{across(tick)}" y="{_HEIGHT - _BOTTOM + 14}">{tick:g}{x.unit}</text>')
    parts.append(f'<text class="mid" x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 4}">{html.escape(x.label)}</text>')
    if marker is not None:
        at = across(marker)
        parts.append(f'<line class="now" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_TOP + high}"/>')
    for line in lines:
        points = [(across(a), up(b)) for a, b in zip(line.x, line.y, strict=True) if math.isfinite(b)]
        if line.dots:
            parts += [f'<circle class="{line.style}" cx="{a}" cy="{b}" r="3"/>' for a, b in points]
        else:
            parts.append(f'<polyline class="{line.style}" points="{" ".join(f"{a},{b}" for a, b in points)}"/>')
    parts.append("</svg>")
    keys = "".join(f'<span class="{line.style}">{html.escape(line.label)}</span>' for line in lines if line.label)
    legend = f'<div class="rc-legend">{keys}</div>' if keys else ""
    return f'<div class="rc-chart"><h4>{html.escape(title)}</h4>{"".join(parts)}{legend}</div>'


def bars(rows: Iterable[tuple[str, float, float]]) -> str:
    """Shares in [0, 1] by name, with a tick at what each was before."""
    lines = [
        f"<span>{html.escape(name)}</span>"
        f'<span class="rc-track"><i style="width:{100 * now:.1f}%"></i><b style="left:{100 * before:.1f}%"></b></span>'
        f"<span>{100 * now:.0f}%</span>"
        for name, now, before in rows
    ]
    return f'<div class="rc-bars">{"".join(lines)}</div>'


def figure(pixels: Pixels, caption: str = "", pixelated: bool = False) -> str:
    """An image (H, W) or (H, W, 3) as large as its place, with a caption below."""
    kind = ' class="pixelated"' if pixelated else ""
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img{kind} src="{data_uri(pixels)}" alt="{html.escape(caption)}"/>{below}</figure>'


def grid(figures: Iterable[str], columns: int) -> str:
    return f'<div class="rc-grid" style="--columns:{columns}">{"".join(figures)}</div>'


def card(title: str, subtitle: str, *content: str) -> str:
    head = f"<h3>{html.escape(title)} <small>{html.escape(subtitle)}</small></h3>"
    return f'<section class="rc-card">{head}{"".join(content)}</section>'


def note(text: str, kind: str = "") -> str:
    return f'<p class="rc-note {kind}">{html.escape(text)}</p>'


def coloured(values: NDArray[np.floating], low: float, high: float, scale: Sequence[str] = SEQUENTIAL) -> Pixels:
    """(H, W) -> (H, W, 3): a colour for every value, linear from ``low`` to ``high``."""
    anchors = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in scale], float)
    share = np.clip((values - low) / (high - low if high > low else 1.0), 0, 1)
    steps = np.linspace(0, 1, len(scale))
    channels = [np.interp(share, steps, anchors[:, channel]) for channel in range(3)]
    pixels: Pixels = np.stack(channels, -1).round().astype(np.uint8)
    return pixels


def rounded_up(value: float) -> float:
    """The next round number, for the end of an axis."""
    step = 10.0 ** math.floor(math.log10(value))
    first = next(number for number in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if number >= value / step - 1e-9)
    return float(f"{first * step:.2g}")


def round_picture(pixels: Pixels) -> Pixels:
    """(S, S, 3): grey outside of the largest disc, which is all that stays in the frame at every angle."""
    axis = np.arange(len(pixels)) - (len(pixels) - 1) / 2
    outside = np.hypot(axis[:, None], axis) > max((len(pixels) - 1) / 2, LEAST_RADIUS)
    return np.where(outside[..., None], np.uint8(128), pixels)


def data_uri(pixels: Pixels) -> str:
    content = io.BytesIO()
    needs("PIL.Image", "demo").fromarray(pixels).save(content, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
