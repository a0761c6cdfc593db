"""``ringconv models``."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from ringconv._extras import needs
from ringconv.commands._terminal import terminal, usage_errors
from ringconv.models.table import TABLE_HEADER, describe_models, table_cells, write_models_page


def models(
    pattern: Positional[str] = "*",
    /,
    input_size: int = 64,
    out: Path | None = None,
) -> None:
    """List the models: parameters, operations, sizes of the maps.

    Parameters are exact, under default options, beside the count that the paper prints. GFLOP is the forward pass of
    one image. Nothing is allocated, so that large inputs are as quick as small ones.

    The residual networks for images of 224 pixels: ringconv models "*resnet*" --input-size 224

    Args:
        pattern: Shell pattern of the names, such as "gmr_*".
        input_size: Side of the images in pixels; volumes have half of it, clips 8 frames.
        out: Markdown page to write, of all models and of the paper's counts beside ours.
    """
    with usage_errors():
        if input_size < 1:
            raise ValueError(f"input_size must be at least 1, got {input_size}")
        if out is not None:
            path = write_models_page(out, input_size)
            terminal().print(f"Written: {path}", soft_wrap=True)
            return
        rows = describe_models(pattern, input_size)
    rich = needs("rich.table", "compare")
    table = rich.Table(box=None, pad_edge=False)
    for column, title in enumerate(TABLE_HEADER):
        table.add_column(title, justify="right" if column in (1, 2, 3) else "left", no_wrap=column < 4)
    for row in rows:
        table.add_row(*table_cells(row))
    terminal().print(table)
