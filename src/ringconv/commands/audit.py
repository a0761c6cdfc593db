"""``ringconv audit``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from tyro.conf import Positional

from ringconv._extras import needs
from ringconv._files import write_whole
from ringconv._network import dtype_of
from ringconv.commands._checkpoint import check_file, load_checkpoint
from ringconv.commands._terminal import progress_bars, terminal, usage_errors
from ringconv.data import normalise
from ringconv.equivariance import band_limited_noise
from ringconv.evaluation.audit import Audit, worst
from ringconv.evaluation.audit import audit as run_audit


def audit(
    checkpoint: Positional[Path],
    /,
    data: str | None = None,
    data_options: tuple[str, ...] = (),
    root: Path | None = None,
    size: int | None = None,
    images: int = 2,
    angles: tuple[float, ...] = (15, 30, 45, 90),
    rows: int = 25,
    out: Path | None = None,
) -> None:
    """Where in a network is equivariance lost? Its error by layer and angle.

    Prints the layers that add most, in the order of the network, and writes all of them to a JSON file. An error is
    |layer(turned x) - turned layer(x)| / |layer(x)|; "added" is what a layer adds to the error of its own input, at its
    worst angle. Quarter turns and flips are exact, and should have none.

    Args:
        checkpoint: File written by training.
        data: Take images of this data set; default smooth noise, which can be turned without an error of its own.
        data_options: How the data is read, as name=value, such as grey=true; default as in training.
        root: Where names are looked up.
        size: Side of the images in pixels; default what the network was trained on, or 64 (3D: 32).
        images: How many to try.
        angles: Degrees.
        rows: How many layers to print.
        out: JSON to write; default <checkpoint>.audit.json beside it.
    """
    console = terminal()
    path = out or checkpoint.with_name(f"{checkpoint.stem}.audit.json")
    with usage_errors(), progress_bars(console) as progress:
        if images < 1:
            raise ValueError(f"images must be at least 1, got {images}")
        check_file(path)
        loaded = load_checkpoint(checkpoint, "cpu")
        prepared = loaded.preprocessing
        if data is not None:
            opened = loaded.open_data(data, data_options, progress, root=root, size=size)
            split = opened.splits.get("test", next(iter(opened.splits.values())))
            pixels = split.batch(range(min(images, len(split))))[0]
            x = normalise(pixels, *(prepared.mean, prepared.std) if prepared else (opened.mean, opened.std))
        else:
            sides = (size,) * loaded.info.dimensions if size else loaded.info.size
            x = band_limited_noise(sides, channels=loaded.channels, batch=images, dtype=torch.float32)
        found = run_audit(loaded.network, x.to(dtype_of(loaded.network)), angles, progress=progress)
    document = {"checkpoint": str(checkpoint), "data": data or "band-limited noise", "size": list(x.shape)}
    with usage_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(document | found.as_dict(), indent=2) + "\n")
    console.print(audit_table(found, rows, with_kinds=console.width >= 100))
    console.print(f"Lost most in: {', '.join(layer.name for layer in found.lost())}", soft_wrap=True)
    console.print(f"All {len(found.layers)} layers: {path}", soft_wrap=True)


def audit_table(found: Audit, rows: int, with_kinds: bool) -> Any:
    """The layers that add most, in the order of the network; less than 80 columns wide with up to five angles, unless
    it has the layers' kinds as well."""
    table = needs("rich.table", "data").Table(title="equivariance error by layer and angle", title_justify="left")
    table.add_column("layer", overflow="fold")
    if with_kinds:
        table.add_column("kind", overflow="ellipsis", no_wrap=True, max_width=13)
    for name in found.transformations:
        table.add_column(name if name == "flip" else f"{name}°", justify="right", no_wrap=True)
    table.add_column("added", justify="right", no_wrap=True)
    shown = {layer.name for layer in found.lost(rows)}
    for layer in found.layers:
        if layer.name in shown:
            cells = [_short(layer.errors.get(name, math.nan)) for name in found.transformations]
            kind = [layer.kind] if with_kinds else []
            table.add_row(layer.name, *kind, *cells, _short(worst(layer.added)))
    return table


def _short(error: float) -> str:
    if math.isnan(error):
        return "-"
    return f"{error:.3f}" if error >= 5e-4 or error == 0 else f"{error:.0e}"
