"""What became of every layer of a converted model, to read and as data."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

Action = Literal["converted", "replaced", "kept", "left"]

_WIDTH = 100


@dataclass(frozen=True)
class LayerReport:
    """What happened to one layer, and why."""

    name: str
    action: Action
    """"converted": a ring convolution; "replaced": by another layer of torch or a resizing; "kept": does no harm;
    "left": could not be converted, or cannot be judged."""
    before: str
    after: str
    parameters_before: int
    parameters_after: int
    reason: str
    breaks: str = ""
    """How it still breaks equivariance, or may; empty if it does not."""
    lost: str = ""
    """What the original did and the new layer does not."""


@dataclass(frozen=True)
class Loss:
    """Where equivariance was measured to be lost: the input of this layer still turned with the image."""

    name: str
    layer: str
    """Its class; or "in the forward of" it, if the loss is not in one of its parts."""
    error: float
    """Relative error of the layer's output under the worst quarter turn or flip."""


@dataclass(frozen=True)
class ConversionReport:
    """Every layer with parameters and every pooling of a model. ``str()`` of it is a table."""

    layers: tuple[LayerReport, ...]
    parameters_before: int
    parameters_after: int
    measured: float | None = None
    """Relative error of the converted model's output under the worst quarter turn or flip of the example."""
    losses: tuple[Loss, ...] | None = field(default=None)
    """Where the measurement found equivariance lost; None if there was no example to measure with, or it failed."""
    unmeasured: str = ""
    """Why nothing could be measured on the example."""

    @property
    def converted(self) -> int:
        """Number of convolutions that became ring convolutions."""
        return sum(row.action == "converted" for row in self.layers)

    @property
    def breaks(self) -> tuple[tuple[str, str], ...]:
        """(layer, how it breaks equivariance), found without running the model."""
        return tuple((row.name, row.breaks) for row in self.layers if row.breaks)

    @property
    def functions_lost(self) -> tuple[tuple[str, str], ...]:
        """(layer, what its replacement does not do any more)."""
        return tuple((row.name, row.lost) for row in self.layers if row.lost)

    def __str__(self) -> str:
        count = f"{self.parameters_before:,} => {self.parameters_after:,} parameters"
        lines = [f"{self.converted} of {len(self.layers)} layers became ring convolutions; {count}", ""]
        notes: dict[str, int] = {}
        inside = ""
        for row in self.layers:
            parent = row.name.rpartition(".")[0]
            if parent != inside:
                lines.append(_shortened(parent, _WIDTH) or "(the model)")
                inside = parent
            lines.append(_row(row, notes.setdefault(row.reason, len(notes) + 1)))
        lines += ["", *(_wrapped(f"[{number}] ", reason) for reason, number in notes.items())]
        lines += ["", *self._remainder()]
        return "\n".join(lines)

    def _remainder(self) -> list[str]:
        lines = []
        if self.functions_lost:
            lines += ["Lost:", *_grouped(self.functions_lost), ""]
        if self.breaks:
            nothing_lost = self.losses is not None and not self.losses
            heading = "Could break equivariance at other sizes" if nothing_lost else "Still breaks equivariance, or may"
            lines += [f"{heading}:", *_grouped(self.breaks)]
        else:
            lines += ["No layer that is known to break equivariance is left."]
        if self.losses is None:
            measured = "with example_input= they are measured."
            if self.unmeasured:
                measured = f"they could not be measured, since the model did not run on the example: {self.unmeasured}"
            lines += [
                _wrapped("", "Functions that a forward calls (flatten, F.pad, F.max_pool2d) are not layers and are not"
                         f" seen here; {measured}"),
            ]  # fmt: skip
        elif self.measured is not None:
            lines += ["", f"Measured on the example, worst quarter turn or flip: {self.measured:.2g}"]
            lines += [_wrapped("  ", f"{loss.name} ({loss.layer}) loses it: {loss.error:.2g}") for loss in self.losses]
            if not self.losses:
                lines += ["  no layer loses it"]
        return lines


def describe(layer: nn.Module) -> str:
    """A layer in a few words, such as ``Conv2d 3->64 7x7 /2`` for stride 2."""
    if isinstance(layer, nn.Sequential) and len(layer) == 2 and hasattr(layer, "in_channels"):
        return " + ".join(map(describe, layer))
    words = [type(layer).__name__]
    if hasattr(layer, "in_channels") and hasattr(layer, "out_channels"):
        words.append(f"{layer.in_channels}->{layer.out_channels}")
    sizes = {name: getattr(layer, name, None) for name in ("kernel_size", "stride", "dilation")}
    if sizes["kernel_size"] is not None:
        words.append(_times(sizes["kernel_size"]))
        signs = {"stride": "/", "dilation": "d"}
        words += [sign + _once(sizes[name]) for name, sign in signs.items() if _over_one(sizes[name])]
    if getattr(layer, "groups", 1) != 1:
        words.append(f"g{layer.groups}")
    return " ".join(words)


def _times(sizes: Any) -> str:
    return "x".join(map(str, sizes if isinstance(sizes, (tuple, list)) else (sizes,)))


def _once(sizes: Any) -> str:
    """One number if all axes have the same."""
    return _times(sizes[0] if isinstance(sizes, (tuple, list)) and len(set(sizes)) == 1 else sizes)


def _over_one(sizes: Any) -> bool:
    return sizes is not None and any(size > 1 for size in (sizes if isinstance(sizes, (tuple, list)) else (sizes,)))


def _row(row: LayerReport, note: int) -> str:
    what = row.before
    if row.after != row.before:
        channels = next((word for word in row.before.split() if "->" in word), "")
        what += f" => {row.after.replace(f' {channels} ', ' ')}"
    count = f"{row.parameters_before:,}"
    if row.parameters_after != row.parameters_before:
        count += f" => {row.parameters_after:,}"
    name = row.name.rpartition(".")[2] or "(the model)"
    left = f"  {_shortened(name, 16):<16} {row.action:<9} "
    right = f" {count} [{note}]"
    return f"{left}{_shortened(what, _WIDTH - len(left) - len(right)):<{_WIDTH - len(left) - len(right)}}{right}"


def _shortened(text: str, width: int) -> str:
    """With dots in the middle: the ends of a name tell more."""
    if len(text) <= width:
        return text
    tail = (width - 2) * 2 // 3
    return f"{text[: width - 2 - tail]}..{text[-tail:]}"


def _wrapped(start: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def _grouped(remarks: tuple[tuple[str, str], ...]) -> list[str]:
    """One line per remark, with the layers it is about."""
    names: dict[str, list[str]] = {}
    for name, remark in remarks:
        names.setdefault(remark, []).append(name or "(the model)")
    lines = []
    for remark, layers in names.items():
        shown = ", ".join(layers[:3]) + (f" and {len(layers) - 3} more" if len(layers) > 3 else "")
        lines.append(_wrapped("  ", f"{shown}: {remark}"))
    return lines
