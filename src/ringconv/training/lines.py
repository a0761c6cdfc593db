"""How a run goes, in lines: for logs, and for whoever has no bars."""

from __future__ import annotations

import time
from collections.abc import Callable

from ringconv.training.loop import Moment
from ringconv.training.train import Watch


class Lines(Watch):
    """Writes how far a run is, not more often than every so many seconds, and every note at once."""

    def __init__(self, write: Callable[[str], object] = print, seconds: float = 60) -> None:
        self._write, self._seconds = write, seconds
        self._last = time.monotonic()

    def trained(self, moment: Moment) -> None:
        self._now_and_then(
            f"epoch {moment.epoch}/{moment.epochs}: loss {moment.loss:.4f}, {moment.score_name} {moment.score:.1f}%,"
            f" {moment.images_per_second:,.0f} images/s, {moment.seconds_left / 60:.1f} minutes left"
        )

    def testing(self, stage: str, done: int, total: int) -> None:
        self._now_and_then(f"{stage}: {done:,} of {total:,}")

    def note(self, text: str) -> None:
        self._write(text)

    def _now_and_then(self, text: str) -> None:
        if time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self._write(text)
