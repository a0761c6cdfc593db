"""What there is to know of a model before training it: parameters, operations, and the sizes of its maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ringconv._extras import MissingExtraError
from ringconv.models._timm import EXTRA as TIMM_EXTRA
from ringconv.models.operations import count_operations
from ringconv.models.paper_counts import PaperCount, paper_counts
from ringconv.models.registry import ModelEntry, create_model, list_models, model_entry

FRAMES = 8
"""Of the clips by which video networks are measured."""


@dataclass(frozen=True)
class ModelRow:
    """One model under some options, for an input of ``input_size``."""

    entry: ModelEntry
    parameters: int | None
    flops: int | None = None
    """Of the forward pass of one image; a multiplication with its addition counts as two."""
    input_size: tuple[int, ...] = ()
    maps: tuple[tuple[int, ...], ...] = ()
    """Size of each stage's feature map."""
    missing: str = ""
    """Why the model could not be built here."""


def describe_model(name: str, input_size: int = 64, **options: Any) -> ModelRow:
    """Count a model's parameters and operations, without memory for either.

    Args:
        input_size: side of its images; volumes get half of it, clips 8 frames.
        options: of the model.
    """
    entry = model_entry(name)
    if entry.extra not in (None, TIMM_EXTRA):
        return ModelRow(entry, None if options else entry.parameters, missing="built by another library")
    has_features = "features_only" in entry.options
    try:
        with torch.device("meta"):
            network = create_model(name, **{**options, "features_only": False} if has_features else options).eval()
            backbone = create_model(name, **{**options, "features_only": True}) if has_features else network
    except MissingExtraError as error:
        return ModelRow(entry, entry.parameters, missing=str(error))
    size = _input_size(entry, options.get("dimensions", entry.dimensions[0]), input_size)
    x = torch.empty(1, getattr(network, "in_chans", 3), *size, device="meta")
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return ModelRow(entry, parameters, count_operations(network, x), size, _map_sizes(backbone, x))


def describe_models(pattern: str = "*", input_size: int = 64, **options: Any) -> list[ModelRow]:
    """:func:`describe_model` of every model that matches a shell pattern; ValueError if none does."""
    names = list_models(pattern)
    if not names:
        raise ValueError(f"no model matches {pattern!r}; there are {', '.join(list_models())}")
    return [describe_model(name, input_size, **options) for name in names]


def _input_size(entry: ModelEntry, dimensions: int, input_size: int) -> tuple[int, ...]:
    if dimensions == 2:
        return (input_size,) * 2
    if entry.family == "r2plus1d":
        return (FRAMES, input_size, input_size)
    return (max(1, input_size // 2),) * dimensions


def _map_sizes(network: nn.Module, x: Tensor) -> tuple[tuple[int, ...], ...]:
    """Sizes of what the modules give that ``feature_info`` names."""
    info = getattr(network, "feature_info", None)
    if info is None:
        return ()
    sizes: list[tuple[int, ...]] = []
    handles = [
        network.get_submodule(name).register_forward_hook(lambda *call: sizes.append(tuple(call[-1].shape[2:])))
        for name in info.module_name()
    ]
    with torch.no_grad():
        network(x)
    for handle in handles:
        handle.remove()
    return tuple(sizes)


def table_cells(row: ModelRow) -> list[str]:
    """Name, parameters, paper's parameters, GFLOPs, map sizes, symmetry; as text."""
    entry = row.entry
    return [
        entry.name,
        "" if row.parameters is None else f"{row.parameters:,}",
        entry.paper,
        "" if row.flops is None else f"{row.flops / 1e9:.3g}",
        ", ".join(_times(size) for size in row.maps) or row.missing,
        _symmetry(entry),
    ]


TABLE_HEADER = ("model", "parameters", "paper", "GFLOP", "maps of the stages", "symmetric to")


def _symmetry(entry: ModelEntry) -> str:
    if entry.symmetry == "none":
        return ""
    return entry.symmetry if entry.symmetric_axes in (None, *entry.dimensions) else f"{entry.symmetry} of frames"


def write_models_page(path: Path, input_size: int = 64) -> Path:
    """Write the page of all models, and of the paper's counts beside ours."""
    path.write_text(_page(describe_models(input_size=input_size), paper_counts(), input_size), encoding="utf-8")
    return path


def _page(rows: Sequence[ModelRow], counts: Sequence[PaperCount], input_size: int) -> str:
    notes = [f"- `{row.entry.name}`: {row.entry.note}" for row in rows if row.entry.note]
    lines = [
        "# Models",
        "",
        "Written by `ringconv models --out docs/models.md`. `ringconv.create_model(name, ...)` builds one;",
        "`ringconv.models.model_entry(name).options` names its options.",
        "",
        f"Counts are exact, under default options. GFLOP is the forward pass of one image of {input_size}x{input_size}",
        f"(volumes: {input_size // 2} per side, clips: {FRAMES}x{input_size}x{input_size}); a multiplication and its",
        "addition are two operations. Ring layers count as the pass over the rings and the product that they are, not",
        "as dense kernels. Plain networks have the stem of the ring ones, so that maps have equal sizes; the paper's",
        "counts of plain networks are those of their usual stems (below).",
        "",
        "Symmetric: quarter turns, and flips if it says reflections, leave the logits as they are, or turn a",
        "segmentation along, within the rounding of float32. Tested on narrow networks: `gmr_` models at every size",
        "from 32 to 65, the others at 33, 40 and 50, U-Nets and residual networks of volumes at 17 and 22; what",
        "another library builds is tested only where that is installed. For angles in between see",
        "[equivariance.md](equivariance.md).",
        "",
        *_markdown(TABLE_HEADER, [[f"`{cells[0]}`", *cells[1:]] for cells in map(table_cells, rows)]),
        "",
        *notes,
        "",
        "## The paper's counts",
        "",
        "The paper rounds some counts and cuts others; a count agrees if either gives the printed one.",
        "",
        *_markdown(
            ("model", "options", "parameters", "paper", ""),
            [
                [f"`{count.name}`", _options(count), f"{count.parameters:,}", count.printed, _verdict(count)]
                for count in counts
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def _verdict(count: PaperCount) -> str:
    disagrees = "does not match" if count.agrees is False else ""
    return "; ".join(part for part in (disagrees, count.remark) if part)


def _options(count: PaperCount) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in count.options.items())


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _times(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
