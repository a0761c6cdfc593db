"""What a reader sees of a comparison: a table and a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringconv._extras import needs
from ringconv.training.compare import Comparison

if TYPE_CHECKING:
    from rich.table import Table

_EQUAL = 1.0
"""Percentage points that count as no difference: chance alone makes as many on several hundred test patches."""


def comparison_table(comparison: Comparison) -> Table:
    """A table for the terminal, less than 80 columns wide."""
    table: Table = needs("rich.table", "compare").Table(
        title="Accuracy in %, trained on upright patches only", title_justify="left"
    )
    table.add_column("network")
    for heading in ("parameters", "upright", "rotated", "std", "worst angle", "mirrored"):
        table.add_column(heading, justify="right")
    for model in comparison.models:
        table.add_row(
            model.kind,
            f"{model.parameters:,}",
            f"{model.upright:.1f}",
            f"{model.rotated:.1f}",
            f"{model.std:.2f}",
            f"{model.worst:.1f} ({model.worst_angle}°)",
            f"{model.mirrored:.1f}",
        )
    return table


def in_a_line(comparison: Comparison) -> str:
    """What the figures say, whichever network they favour."""
    plain, ring = comparison.models
    gain = ring.rotated - plain.rotated
    so = "; it does not pay off here" if gain <= -_EQUAL else ""
    return (
        f"Compared with the plain network, the ring network is right {_often(gain)} on rotated patches"
        f" ({ring.rotated:.1f}% against {plain.rotated:.1f}%) and {_often(ring.upright - plain.upright)} on upright"
        f" ones{so}. Turning the patches moves its accuracy by up to {ring.spread:.1f} points, the plain network's by"
        f" up to {plain.spread:.1f}."
    )


def _often(points: float) -> str:
    if abs(points) < _EQUAL:
        return "about as often"
    return f"{abs(points):.1f} points {'more' if points > 0 else 'less'} often"
