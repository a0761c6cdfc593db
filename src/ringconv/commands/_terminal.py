"""What the commands share: the terminal they write to, and errors that need no traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ringconv._extras import needs
from ringconv._progress import Progress


class UsageError(Exception):
    """What was asked for cannot be done, and the message says why."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Errors in here are about what the user gave, so that a message does and a traceback would not help."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def terminal() -> Any:
    return needs("rich.console", "compare").Console(highlight=False, markup=False)  # paths and names may have brackets


@contextlib.contextmanager
def progress_bars(console: Any) -> Iterator[Progress]:
    """One bar per stage, and none if nobody is watching."""
    rich = needs("rich.progress", "compare")
    columns = (
        rich.TextColumn("{task.description:<11}", markup=False),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(elapsed_when_finished=True),
    )
    with rich.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield show
