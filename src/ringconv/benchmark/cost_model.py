"""What a ring convolution costs, as a function of its shape, and four constants of a machine that turn it into seconds.

    seconds = calls * overhead + products / product rate + passes / pass rate + bytes / bandwidth

The counts are exact; the constants are fitted to measurements, one set for every method. Nothing is known of caches,
vectors or threads beyond what the constants absorb, so it is good for tens of percent, not for single percents.
"""

from __future__ import annotations

import csv
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringconv.benchmark.cases import Case, Mode
from ringconv.ops import Computable, mixes_first
from ringconv.rings import RingGeometry

METHODS: tuple[Computable, ...] = ("dense", "factored", "fused")
_FLOAT = 4
_PEERS: dict[str, Computable] = {"torch": "dense", "dense": "dense", "factored": "factored", "fused": "fused"}
"""Columns of a suite that are one of the methods; torch's convolution is what "dense" ends in."""
_REFINEMENTS = 30


class Work(NamedTuple):
    """What one call does."""

    calls: float
    """Operators that torch is asked for."""
    products: float
    """Operations of the matrix products or the dense convolution."""
    passes: float
    """Operations of the ring passes."""
    bytes: float
    """Read and written, each tensor once."""


class Measurement(NamedTuple):
    case: Case
    method: Computable
    mode: Mode
    seconds: float
    source: str
    """The suite it comes from."""
    cpu: str = ""


class Rates(NamedTuple):
    """The constants of a machine and a method; infinite where the time does not depend on it."""

    overhead: float
    """Seconds per operator."""
    products: float
    """Operations per second, as the next."""
    passes: float
    bandwidth: float
    """Bytes per second."""

    def seconds(self, work: Work) -> float:
        return (
            work.calls * self.overhead
            + work.products / self.products
            + work.passes / self.passes
            + work.bytes / self.bandwidth
        )


def work(case: Case, method: Computable, mode: Mode, size_of_value: int = _FLOAT) -> Work:
    """Counts for a layer without bias.

    A training step takes the output and the gradients of the input, the weight and sigma: three products of the dense
    convolution; three products and three passes of "factored"; of "fused" four products, and a pass each for the output
    and for sigma over the input, and one over the output's gradient that serves input and weight.
    """
    training = mode == "training"
    sites, c_in, c_out, rings = positions(case), case.in_channels, case.out_channels, case.rings
    per_pair = c_in * c_out // case.groups
    maps = case.batch * math.prod(case.size) * c_in + sites * c_out
    if method == "dense":
        times = 3 if training else 1
        taps = math.prod(case.layer.kernel_size)
        return Work(times, times * 2.0 * sites * taps * per_pair, 0.0, times * size_of_value * (maps + taps * per_pair))
    products = 2.0 * sites * rings * per_pair
    if method == "factored":
        times = 3 if training else 1
        channels = c_out if mixes_first(case.layer) else c_in
        taps = math.prod(case.layer.kernel_size)
        # The responses are written once and read once.
        values = maps + 2 * sites * rings * channels + rings * per_pair
        passes = 2.0 * sites * rings * channels * taps
        return Work(2 * times, times * products, times * passes, times * size_of_value * values)
    live_taps, orbits = live(case)
    per_channel = sites * (live_taps + 2.0 * rings * orbits)
    passes = per_channel * (2 * c_in + c_out) if training else per_channel * c_in
    values = maps + rings * per_pair
    return Work(
        2 if training else 1, (4 if training else 1) * products, passes, (3 if training else 1) * size_of_value * values
    )


def positions(case: Case) -> int:
    """Of the output, over all samples."""
    return case.batch * math.prod(case.output_size)


def live(case: Case) -> tuple[int, int]:
    """Taps inside the circle, and the orbits that they form."""
    return _live(case.layer.kernel_size, case.rings)


@functools.cache
def _live(kernel_size: tuple[int, ...], rings: int) -> tuple[int, int]:
    taps = RingGeometry(kernel_size, rings=rings).tables().taps_per_orbit
    return int(taps.sum()), len(taps)


# -- measurements


def read_suites(directory: Path, cpus: Collection[str] | None = None) -> list[Measurement]:
    """Plain layers (stride 1, one group) of all CPU suites in a folder, of certain CPUs or all; other rows are passed
    over, as are quick runs, which mean nothing."""
    found = []
    for path in sorted(directory.glob("*.csv")):
        if "quick" in path.stem or "cuda" in path.stem:
            continue
        for row in _rows(path):
            if row.get("kernel_size") and row.get("peer") in _PEERS and row.get("median_ms"):
                found += _measured(row, _PEERS[row["peer"]], row["median_ms"], row["suite"])
    return [measurement for measurement in found if cpus is None or measurement.cpu in cpus]


def read_table(path: Path) -> list[Measurement]:
    """Plain layers of the grid that method="auto" decides by."""
    return [
        measurement
        for row in _rows(path)
        for method in METHODS
        if row[f"{method}_ms"]
        for measurement in _measured(row, method, row[f"{method}_ms"], "grid")
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _measured(row: Mapping[str, str], method: Computable, milliseconds: str, source: str) -> list[Measurement]:
    kernel_size, stride, size = (_sizes(row[name]) for name in ("kernel_size", "stride", "size"))
    if row["groups"] != "1" or set(stride) != {1} or len(set(kernel_size)) != 1:
        return []
    case = Case(
        int(row["batch"]), int(row["in_channels"]), int(row["out_channels"]), size, kernel_size[0], int(row["rings"])
    )
    mode: Mode = "training" if row["mode"] == "training" else "inference"
    return [Measurement(case, method, mode, float(milliseconds) / 1e3, source, row["cpu"])]


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


# -- the constants


def fit(measurements: Iterable[Measurement], bandwidth: float | None = None) -> dict[Computable, Rates]:
    """Rates of every method that was measured, for which relative errors are small.

    Their sizes count rather than their squares, so that a few disturbed timings do not decide.

    Args:
        bandwidth: bytes per second where it is known; measurements of a single map size cannot tell it from overhead.
    """
    by_method: dict[Computable, list[Measurement]] = {}
    for measurement in measurements:
        by_method.setdefault(measurement.method, []).append(measurement)
    return {method: _fit_method(group, bandwidth) for method, group in by_method.items()}


def _fit_method(measurements: Sequence[Measurement], bandwidth: float | None) -> Rates:
    counts = np.array([work(m.case, m.method, m.mode) for m in measurements], dtype=np.float64)
    scale = np.where(counts.max(0) > 0, counts.max(0), 1.0)
    seconds = np.array([m.seconds for m in measurements])
    relative = counts / scale / seconds[:, None]
    target = np.ones(len(measurements))  # what relative, times the constants, should be
    if bandwidth is not None:
        target -= counts[:, -1] / bandwidth / seconds
        relative[:, -1] = 0.0
    trust = np.ones(len(measurements))
    for _ in range(_REFINEMENTS):
        constants = _nonnegative_least_squares(relative * trust[:, None], target * trust)
        trust = 1 / np.sqrt(np.maximum(np.abs(relative @ constants - target), 0.05))
    overhead, *slowness = (constants / scale).tolist()
    products, passes, fitted_bandwidth = (1 / value if value > 0 else math.inf for value in slowness)
    return Rates(overhead, products, passes, fitted_bandwidth if bandwidth is None else bandwidth)


def _nonnegative_least_squares(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """argmin |matrix c - target| over c >= 0: with four columns, the best of all sets of columns that may be used."""
    columns = matrix.shape[1]
    best, least = np.zeros(columns), math.inf
    for used in itertools.product((False, True), repeat=columns):
        mask = np.array(used)
        if not mask.any():
            continue
        solution = np.linalg.lstsq(matrix[:, mask], target, rcond=None)[0]
        if (solution < 0).any():
            continue
        residual = float(np.square(matrix[:, mask] @ solution - target).sum())
        if residual < least:
            least, best = residual, np.zeros(columns)
            best[mask] = solution
    return best


# -- how good it is


class Fit(NamedTuple):
    """Relative errors |predicted / measured - 1| of measurements that the constants were not fitted to."""

    number: int
    median: float
    within_quarter: float
    """Share of them within 25%."""


def judge(rates: Mapping[Computable, Rates], measurements: Iterable[Measurement]) -> Fit | None:
    """None if there is nothing to compare with."""
    errors = [
        abs(rates[m.method].seconds(work(m.case, m.method, m.mode)) / m.seconds - 1)
        for m in measurements
        if m.method in rates
    ]
    if not errors:
        return None
    return Fit(len(errors), float(np.median(errors)), sum(error <= 0.25 for error in errors) / len(errors))


def grouped(measurements: Iterable[Measurement], key: Callable[[Measurement], str]) -> dict[str, list[Measurement]]:
    groups: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault(key(measurement), []).append(measurement)
    return groups
