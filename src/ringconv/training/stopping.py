"""Stopping between two steps, when asked to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, signal_number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        if self.asked:
            raise KeyboardInterrupt  # the second time: now, whatever is lost
        self.asked = True


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM, by which clusters announce that they take a machine away, ask to stop.

    Signals reach the main thread only; elsewhere nobody asks.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.ask) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
