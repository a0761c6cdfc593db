"""The report: one file that needs nothing else."""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Sequence
from pathlib import Path

from ringconv._files import write_whole
from ringconv._progress import Progress
from ringconv._version import __version__
from ringconv.report.html import sections
from ringconv.report.html.charts import charts
from ringconv.report.html.entries import DataShown, Entries, Entry, entries_of
from ringconv.report.html.markup import Content, Markup, element, join
from ringconv.report.html.tables import angles_table, environment_table, scores_tables, settings_table
from ringconv.training.runs import Run

REPORT = "report.html"
"""How the file is called in a folder of runs."""

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"
"""The browser is told to ask nobody for anything."""

_LEGEND = (
    "Scores in %. rotated: mean over all angles; std: standard deviation over them; reflected: mean over the flips."
    " memory: peak of the training process. The best of each column is marked."
)

_NOT_COMPARABLE = "Other sections are about other tests; their figures cannot be compared with these."
_REPRODUCIBLE = "On the same machine with the same versions, the same seed gives the same figures."


def write_report(
    runs: Sequence[Run], path: Path, *, images: int = 6, title: str | None = None, progress: Progress | None = None
) -> Path:
    """Write one HTML file on runs, in the order they are given, and return its path.

    Runs on different data sets, or tested differently, stand in sections of their own. What cannot be shown, since a
    run is not finished or a checkpoint or the data is gone, is said in the report.

    Args:
        images: how many turning images to show, over all data sets; 0 for none, which is quick.
        title: default what was trained on.
        progress: told while networks are shown turning images.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    return write_entries(entries_of(runs), path, images=images, title=title, progress=progress)


def write_entries(
    entries: Entries, path: Path, *, images: int = 6, title: str | None = None, progress: Progress | None = None
) -> Path:
    """As :func:`write_report`, of networks from anywhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page(entries, images=images, title=title, progress=progress))
    return path


def page(entries: Entries, *, images: int = 6, title: str | None = None, progress: Progress | None = None) -> Markup:
    groups = entries.by_data
    names = list(dict.fromkeys(data.name for data in groups))
    title = title or (f"{', '.join(names)}, upright and turned" if names else "No finished run")
    each = -(-images // max(1, len(groups)))
    body: list[Content] = [
        element(
            "header",
            element("h1", title),
            element("p", f"ringconv {__version__}, {time.strftime('%Y-%m-%d %H:%M')}", class_="faint"),
            element("button", "Dark", type="button", id="theme", class_="needs-js"),
        )
    ]
    for number, (data, own) in enumerate(groups.items()):
        body.append(_on_data(data, own, f"d{number}", each, len(groups) > 1, progress))
    if entries.left_out:
        items = [element("li", element("b", run.name), f" {run.why}") for run in entries.left_out]
        body.append(element("section", element("h2", "Without figures"), element("ul", items)))
    if entries.shown:
        body += [_environments(entries.shown), _reproduce(entries.shown)]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(_resource("style.css"))),
    )
    script = element("script", Markup(_resource("script.js")))
    document = element("html", head, element("body", element("main", body), script), lang="en", class_="no-js")
    return Markup(f"<!doctype html>\n{document}\n")


def _on_data(
    data: DataShown, entries: Sequence[Entry], identity: str, images: int, several: bool, progress: Progress | None
) -> Markup:
    networks, missing = sections.networks_of(entries)
    parts: list[Content] = [
        element("h2", data.name),
        sections.trained(data, entries),
        element("p", _NOT_COMPARABLE) if several else None,
        scores_tables(entries),
        element("p", _LEGEND, class_="faint"),
        element("h3", "At every angle"),
        element("div", charts(entries, identity), class_="charts"),
        angles_table(entries),
    ]
    if images:
        turning = sections.turning(entries, networks, images, identity, progress)
        parts += [element("h3", "Images that change the answer when they turn"), turning]
    parts += [element("p", line, class_="missing") for line in missing]
    kernels = sections.kernels(networks, identity)
    if kernels is not None:
        parts += [element("h3", "Learned kernels"), kernels]
    parts.append(settings_table(entries))
    return element("section", parts, id=identity)


def _environments(entries: Sequence[Entry]) -> Markup:
    """Each different one once, with the networks that were trained in it."""
    tables: dict[str, list[Entry]] = {}
    for entry in entries:
        same = {name: value for name, value in entry.environment.items() if name not in ("started", "command")}
        tables.setdefault(join(environment_table(same)), []).append(entry)
    parts: list[Content] = []
    for table, own in tables.items():
        if len(tables) > 1:
            parts.append(
                element("h3", ", ".join(dict.fromkeys(f"{entry.label} on {entry.data.name}" for entry in own)))
            )
        parts.append(Markup(table))
    return element("section", element("h2", "Environment"), parts)


def _reproduce(entries: Sequence[Entry]) -> Markup:
    commands = list(dict.fromkeys(command for entry in entries for command in entry.commands[:-1]))
    again = list(dict.fromkeys(entry.commands[-1] for entry in entries if entry.commands))
    return element(
        "section",
        element("h2", "How to reproduce it"),
        [element("p", "It was made by:") if commands else None],
        [element("pre", command) for command in commands],
        [element("p", "A single network again, with the same settings:") if again else None],
        [element("pre", command) for command in again],
        element("p", _REPRODUCIBLE, class_="faint"),
    )


def _resource(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")
