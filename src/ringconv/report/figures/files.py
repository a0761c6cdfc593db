"""Figures as files, and as text for a page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ringconv._figure_style import png
from ringconv._files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)

_RANDOM_ID = re.compile(r'\bid="(\w*?[0-9a-f]{10})"')
_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'


def svg(figure: Figure, prefix: str = "") -> str:
    """The figure as an ``<svg>`` element, which can stand in a file or within a page of HTML.

    Letters are drawn as outlines, so that it looks the same everywhere. The same figure gives the same text.

    Args:
        prefix: begins the names of the parts that are referred to; different ones for figures of one page.
    """
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    text = content.getvalue().decode()
    element = text[text.index("<svg") :]
    # Matplotlib draws names at random.
    names = {old: f"{prefix}part{number}" for number, old in enumerate(dict.fromkeys(_RANDOM_ID.findall(element)))}
    if not names:
        return element
    return re.sub("|".join(names), lambda found: names[found.group()], element)


def save_figure(figure: Figure, folder: Path, name: str, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """Write ``folder/name.svg`` and ``.png``, each of them whole or not at all, and return the paths."""
    unknown = [one for one in formats if one not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"formats must be of {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}")
    contents = {one: png(figure) if one == "png" else _DECLARATION + svg(figure) for one in formats}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, content in contents.items():
        paths.append(folder / f"{name}.{suffix}")
        write_whole(paths[-1], content)
    return paths
