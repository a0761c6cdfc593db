"""Every method on many layer shapes: how well "auto" chooses, and the table that it chooses by."""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ringconv.benchmark.cases import MODES, Case, Mode
from ringconv.benchmark.peers import prepare
from ringconv.benchmark.results import Row, machine, milliseconds, write_csv
from ringconv.benchmark.suites import Settings, Step
from ringconv.benchmark.timing import Timing, interleave

METHODS = ("dense", "factored", "fused")

CLOSE = 1.15
"""Within this ratio of the best method a choice counts as good, ..."""
SHARE_CLOSE = 0.95
"""... which it must be for this share of the shapes."""
WORST = 1.4
"""No choice may be worse than this."""
RETIMINGS = 3
"""So often is a shape timed again whose choice does not look good: two timings of one method may differ as much."""

_MOST_PRODUCTS = 10**10
"""Larger cases, in multiply-adds of the dense convolution, are not drawn: they take long and tell nothing new."""


_TABLE_SEEDS = (0, 1, "sweep 2", "test 5", "test 6", "test 7")
"""Three seeds of the suite's have tested the rule and then become part of its table: they no longer test it."""


def steps(settings: Settings) -> list[Step]:
    """The suite "auto": random shapes, each of which gives one row for a mode."""
    # No draw of the table, but for three seeds: the shapes that test a rule are not among those it was made from.
    draw = random.Random(f"test {settings.seed}")
    cases = list(itertools.islice(random_cases(draw), settings.shapes))
    if settings.quick:
        cases = [case.shrunk() for case in cases]
    return [
        Step(f"{case}, {mode}", functools.partial(_auto_against_best, case, mode, settings))
        for case in cases
        for mode in settings.modes
    ]


def _auto_against_best(case: Case, mode: Mode, settings: Settings) -> list[Row]:
    """``ratio`` is that of the first timing, ``retimed_ratio`` the lowest after up to three more."""
    with settings.device.building():
        calls, reasons = prepare((*METHODS, "auto"), case, mode, settings.seed)
    timings = interleave(calls, **settings.timing())
    first = lowest = _ratio_to_best(timings)
    retimings = 0
    while lowest > CLOSE and retimings < RETIMINGS:
        retimings += 1
        lowest = min(lowest, _ratio_to_best(interleave(calls, **settings.timing(retimings))))
    best = min(timings.keys() - {"auto"}, key=lambda method: timings[method].median)
    outcome = {"best": best, "ratio": first, "retimed_ratio": lowest, "retimings": retimings}
    return [_row(case, mode, timings, (*METHODS, "auto")) | outcome | {"note": _note(reasons)}]


def _ratio_to_best(timings: dict[str, Timing]) -> float:
    best = min(timing.median for method, timing in timings.items() if method != "auto")
    return round(timings["auto"].median / best, 4)


def auto_table(
    path: Path,
    *,
    cases: Iterable[Case] | None = None,
    modes: Sequence[Mode] = MODES,
    budget: float = 0.5,
    rounds: int = 7,
    seed: int = 0,
) -> Path:
    """Measure every method on a grid of layer shapes: what a rule for method="auto" can be made from.

    Run with OMP_WAIT_POLICY=PASSIVE on an idle machine. Rows are kept beside the file as they come, in
    ``<name>.partial.csv``; only when all are there do they take its place, for layers are built by it.

    Args:
        path: CSV file; a row has the layer's shape, batch, map size, mode, and the median of each method in
            milliseconds (empty where a method does not apply).
        cases: default: :func:`table_grid`.
        modes: inference, training, or both.
        budget: seconds for each shape and mode.
        rounds: at least this many timings of each method.
        seed: of inputs, weights and the order of the methods.
    """
    where = machine()
    rows: list[Row] = []
    partial = path.with_suffix(".partial.csv")
    for case, mode in itertools.product(table_grid() if cases is None else cases, modes):
        calls, reasons = prepare(METHODS, case, mode, seed)
        timings = interleave(calls, budget=budget, rounds=rounds, seed=seed)
        rows.append(_row(case, mode, timings, METHODS) | {"note": _note(reasons)} | where)
        write_csv(partial, rows)
    os.replace(partial, path)
    return path


def _note(reasons: dict[str, str]) -> str:
    return "; ".join(f"{method}: {reason}" for method, reason in reasons.items())


def _row(case: Case, mode: Mode, timings: dict[str, Timing], methods: Sequence[str]) -> Row:
    medians = {f"{method}_ms": milliseconds(t.median) if (t := timings.get(method)) else "" for method in methods}
    return case.columns() | {"mode": mode} | medians


def table_grid() -> list[Case]:
    """Shapes that cover what networks use: axes, channels in and out, kernels, map sizes, strides, depthwise; and as
    many drawn at random between them."""
    grid = [
        Case(batch, c_in, c_out, (side,) * axes, k, stride=stride)
        for axes, batch, sides in ((1, 16, (64, 1024)), (2, 8, (8, 32)), (3, 2, (8, 16)))
        for side in sides
        for c_in, c_out in ((3, 64), (16, 16), (64, 64), (256, 256), (64, 256), (256, 64), (64, 4))
        for k in (3, 5, 9, 15)
        for stride in (1, 2)
    ]
    grid += [Case(128, c, c, (side, side), k) for c in (256, 512) for side in (4, 8) for k in (3, 5)]
    grid += [
        Case(batch, c, 64, (side, side), k) for batch, side in ((1, 64), (8, 32)) for c in (1, 4) for k in (3, 5, 7)
    ]
    # With a single channel at one end, methods differ in the side that their ring pass is on.
    grid += [
        Case(batch, 1, c, (side,), k)
        for batch, side in ((8, 64), (8, 1024), (32, 100), (32, 512))
        for c in (64, 256)
        for k in (3, 7, 15, 31)
    ]
    grid += [Case(batch, 1, 64, (side, side), k) for batch, side in ((4, 96), (16, 64)) for k in (3, 5, 7)]
    grid += [
        Case(batch, c, 1, (side, side), k) for batch, side in ((1, 32), (8, 64)) for c in (32, 128) for k in (3, 5, 9)
    ]
    grid += [Case(batch, 1, 64, (side, side), k) for batch in (1, 4, 16) for side in (32, 96, 128) for k in (3, 5, 7)]
    grid += [
        Case(batch, c, 1, (side,), k)
        for side in (32, 256, 2048)
        for batch in (1, 8)
        for c in (64, 256)
        for k in (3, 7, 15, 31)
    ]
    # So do signals of few channels, which are done in no time whatever the method.
    grid += [
        Case(batch, c_in, c_out, (side,), k)
        for batch, side in ((1, 128), (1, 2048), (32, 512), (32, 2048))
        for c_in, c_out in ((1, 1), (1, 8), (8, 1), (8, 8), (8, 64), (64, 8))
        for k in (3, 9, 31)
    ]
    grid += [
        Case(batch, c_in, c_out, (side,), k)
        for batch, side in ((1, 32), (8, 32), (1, 100), (8, 100), (32, 100))
        for c_in, c_out in ((1, 1), (1, 8), (8, 1), (8, 8), (1, 32), (32, 1), (8, 32), (32, 8))
        for k in (3, 7, 15)
    ]
    # And signals that get or lose many channels, where a stride turns the order of the methods.
    grid += [
        Case(batch, c_in, c_out, (side,), k, stride=2)
        for batch, side in ((8, 512), (32, 512), (32, 2048))
        for c_in, c_out in ((128, 1), (128, 8), (256, 8), (256, 32))
        for k in (3, 9, 31)
    ]
    grid += [
        Case(batch, c_in, c_out, (side,), k, stride=stride)
        for batch, side in ((1, 32), (32, 512), (32, 2048))
        for c_in, c_out in ((8, 256), (32, 256), (256, 256), (32, 128))
        for k in (3, 7, 31)
        for stride in (1, 2)
    ]
    grid += [
        Case(batch, c_in, c_out, (24, 24, 24), k, stride=stride)
        for batch in (2, 8)
        for c_in, c_out in ((1, 4), (1, 96), (48, 1))
        for k in (3, 7)
        for stride in (1, 2)
    ]
    # The smallest layers, whose time is that of the calls.
    grid += [
        Case(1, c_in, c_out, (side,) * 3, k)
        for side in (8, 12)
        for c_in, c_out in ((1, 1), (1, 4), (4, 1), (4, 4), (1, 16), (16, 1))
        for k in (3, 5)
    ]
    grid += [Case(1, c_in, c_out, (16, 16), k) for c_in in (32, 128) for c_out in (1, 4) for k in (3, 5, 9)]
    # Depthwise layers gain or lose by their width and the size of their maps, so these are denser.
    grid += [
        Case(batch, c, c, (side, side), k, groups=c)
        for batch in (1, 8)
        for c in (32, 96, 128, 192, 384)
        for side in (7, 14, 28, 56)
        for k in (3, 5, 7, 9)
    ]
    drawn = [case for seed in _TABLE_SEEDS for case in itertools.islice(random_cases(random.Random(seed)), 200)]
    return list(dict.fromkeys(case for case in grid + drawn if case.dense_products <= _MOST_PRODUCTS))


def random_cases(draw: random.Random) -> Iterator[Case]:
    """Endlessly: 1D, 2D and 3D, few and many channels, small maps with many channels and a large batch, depthwise."""
    while True:
        case = draw.choice(_FAMILIES)(draw)
        if case.dense_products <= _MOST_PRODUCTS:
            yield case


def _signal(draw: random.Random) -> Case:
    k = draw.choice((3, 5, 7, 9, 15, 31))
    c_in, c_out = (draw.choice((1, 8, 32, 64, 128, 256)) for _ in range(2))
    return Case(draw.choice((1, 8, 32)), c_in, c_out, (draw.choice((32, 100, 512, 2048)),), k, stride=_stride(draw))


def _image(draw: random.Random) -> Case:
    k = draw.choice((3, 5, 7, 9, 11, 15))
    c_in, c_out = (draw.choice((16, 24, 32, 64, 96, 128, 256)) for _ in range(2))
    side = draw.randint(8, 64)
    return Case(draw.choice((1, 2, 4, 8, 16)), c_in, c_out, (side, side), k, stride=_stride(draw))


def _small_map(draw: random.Random) -> Case:
    c_in, c_out = (draw.choice((256, 384, 512)) for _ in range(2))
    side = draw.randint(4, 8)
    return Case(128, c_in, c_out, (side, side), draw.choice((3, 5)), stride=_stride(draw))


def _stem(draw: random.Random) -> Case:
    side = draw.choice((28, 32, 64, 96, 128))
    return Case(draw.choice((1, 4, 16)), draw.choice((1, 3, 4)), 64, (side, side), draw.choice((3, 5, 7)))


def _few_outputs(draw: random.Random) -> Case:
    c_in, c_out, side = draw.choice((32, 64, 128)), draw.choice((1, 2, 4)), draw.choice((16, 32, 64))
    return Case(draw.choice((1, 4, 8)), c_in, c_out, (side, side), draw.choice((3, 5, 9)))


def _depthwise(draw: random.Random) -> Case:
    channels, side = draw.choice((32, 96, 192, 384)), draw.choice((7, 14, 28, 56))
    return Case(draw.choice((1, 8)), channels, channels, (side, side), draw.choice((3, 5, 7, 9)), groups=channels)


def _volume(draw: random.Random) -> Case:
    c_in, c_out = (draw.choice((1, 4, 16, 24, 48, 96)) for _ in range(2))
    side = draw.choice((8, 12, 16, 24, 32))
    return Case(draw.choice((1, 2, 8)), c_in, c_out, (side,) * 3, draw.choice((3, 5, 7)), stride=_stride(draw))


def _stride(draw: random.Random) -> int:
    return draw.choice((1, 1, 1, 2))


_FAMILIES = (_signal, _image, _image, _small_map, _stem, _few_outputs, _depthwise, _volume)
