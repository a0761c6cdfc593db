"""Interleaved timing: every candidate meets the same disturbances, so that ratios mean something on a busy machine."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Timing:
    """The seconds that one candidate took, round by round."""

    seconds: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent))

    @property
    def median(self) -> float:
        return self.percentile(50)


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    budget: float,
    rounds: int = 7,
    most_rounds: int = 200,
    warmup: int = 1,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    timer: Callable[[Callable[[], object]], float] | None = None,
) -> dict[str, Timing]:
    """Time the calls round by round; a round runs each of them once, in an order that is shuffled anew.

    What a call returns is freed within its own time.

    Args:
        budget: go on for this many seconds, if ``rounds`` are done before.
        rounds: at least this many, whatever they take.
        most_rounds: at most this many, however fast they are.
        warmup: calls of each candidate before the first round, which are not timed.
        timer: from a call to the seconds it took; default: by ``clock``.
    """
    if not 1 <= rounds <= most_rounds:
        raise ValueError(f"rounds must be within 1 and most_rounds={most_rounds}, got {rounds}")
    order = list(calls)
    shuffle = random.Random(seed).shuffle
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for name in order:
        for _ in range(warmup):
            calls[name]()
    done, start = 0, clock()
    with _without_garbage_collection():
        while done < rounds or (done < most_rounds and clock() - start < budget):
            shuffle(order)
            for name in order:
                if timer is None:
                    before = clock()
                    calls[name]()
                    seconds[name].append(clock() - before)
                else:
                    seconds[name].append(timer(calls[name]))
            done += 1
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection would hit one candidate at random."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
