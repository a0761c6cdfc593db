"""``ringconv figures``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tyro.conf import Positional

from ringconv._extras import needs
from ringconv.commands._terminal import UsageError, progress_bars, terminal, usage_errors
from ringconv.report import check_out
from ringconv.report.figures.catalogue import DRAWINGS, draw, draw_all
from ringconv.report.figures.files import FORMATS, Format, save_figure
from ringconv.report.figures.requests import Request

ALL = "all"


def figures(
    name: Positional[str] = "",
    paths: Positional[tuple[Path, ...]] = (),
    /,
    *,
    out: Path = Path("figures"),
    names: tuple[str, ...] = (),
    data: str | None = None,
    root: Path | None = None,
    split: str = "test",
    images: int | None = None,
    image: int = 0,
    layer: str | None = None,
    channel: int | None = None,
    seed: int = 0,
    formats: tuple[Format, ...] = FORMATS,
) -> None:
    """Draw the figures of the paper from your own runs.

    Without a name it lists the figures, and what each is drawn from: folders of runs (ringconv train), folders that
    hold such folders, folders of ringconv compare and ringconv budget, files of ringconv evaluate, checkpoints, or a
    file of ringconv bench. Runs that differ in their seed only are averaged.

    Two runs around the circle: ringconv figures radar runs/plain runs/ring

    Their feature maps, of the images that they were tested on: ringconv figures features runs/plain runs/ring

    All that can be drawn from them: ringconv figures all runs/plain runs/ring

    Args:
        name: Of the figure, or "all".
        paths: What to draw it from.
        out: Folder that gets the files.
        names: What to call the networks, in their order; default made from their settings.
        data: Take images of this data set; default the one that the first run was trained on.
        root: Where names of data sets are looked up.
        split: Of the data.
        images: How many images.
        image: Place of the image in the split, where one is shown.
        layer: Name of a layer, where one is shown.
        channel: Number of a channel, where one is shown.
        seed: Decides which images or kernels are drawn.
        formats: Kinds of file to write.
    """
    console = terminal()
    if not name:
        console.print(figures_table())
        console.print("To draw one: ringconv figures NAME PATH ... (options: ringconv figures --help)")
        return
    with usage_errors(), progress_bars(console) as progress:
        check_out(out)
        request = Request(paths, names, data, root, split, images, image, layer, channel, seed, progress)
        if name != ALL:
            written = save_figure(draw(name, request), out, name, formats)
        else:
            written = _write_all(request, out, formats, console)
    for path in written:
        console.print(f"Written: {path}", soft_wrap=True)


def _write_all(request: Request, out: Path, formats: tuple[Format, ...], console: Any) -> list[Path]:
    written = []
    for title, drawn in draw_all(request):
        if isinstance(drawn, str):
            console.print(f"Not drawn: {title}: {drawn}", soft_wrap=True)
        else:
            written += save_figure(drawn, out, title, formats)
    if not written:
        raise UsageError("nothing could be drawn from these")
    return written


def figures_table() -> Any:
    """Less than 80 columns wide."""
    table = needs("rich.table", "compare").Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows", no_wrap=True)
    table.add_column("in the paper")
    for takes in dict.fromkeys(drawing.takes for drawing in DRAWINGS.values()):
        table.add_row()
        table.add_row("", needs("rich.text", "compare").Text(f"from {takes}", style="bold"))
        for name, drawing in DRAWINGS.items():
            if drawing.takes == takes:
                table.add_row(name, drawing.summary, drawing.paper)
    return table
