"""The layer suites: one quantity varies, every peer is timed at each of its values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringconv.benchmark.cases import MODES, Case, Mode
from ringconv.benchmark.device import CPU, Device
from ringconv.benchmark.peers import FORMS, PEERS, SLOW_PEERS, USUAL_PEERS, prepare
from ringconv.benchmark.results import Row, timing_columns
from ringconv.benchmark.timing import interleave


@dataclass(frozen=True)
class Settings:
    """How a suite is run; see :func:`ringconv.benchmark.bench`."""

    modes: tuple[Mode, ...]
    peers: tuple[str, ...]
    """Empty: all."""
    budget: float
    rounds: int
    seed: int
    shapes: int
    quick: bool
    device: Device = CPU

    def timing(self, again: int = 0) -> dict[str, Any]:
        """How :func:`interleave` is to time; ``again``: how often it was done before."""
        return {
            "budget": self.budget,
            "rounds": self.rounds,
            "warmup": self.device.warmup,
            "seed": self.seed + again,
            "timer": self.device.time,
        }

    def chosen(self, known: Mapping[str, object]) -> list[str]:
        """The peers asked for, in the order of ``known``; all of them by default."""
        unknown = set(self.peers) - set(known)
        if unknown:
            raise ValueError(f"peers must be among {', '.join(known)}, got {', '.join(sorted(unknown))}")
        return [name for name in known if not self.peers or name in self.peers]


@dataclass(frozen=True)
class Step:
    """A part of a suite that ends with rows worth keeping."""

    label: str
    run: Callable[[], list[Row]]


@dataclass(frozen=True)
class Check:
    """A ratio of medians, of the fastest of ``over`` to the fastest of ``under``, and what it must be."""

    label: str
    mode: Mode
    over: tuple[str, ...]
    under: tuple[str, ...]
    bounds: Mapping[int, float] = field(default_factory=dict)
    """By the value that varies; where there is none, the ratio is only shown."""
    at_least: bool = True


_TORCH = ("torch", "torch_channels_last")
"""Whichever layout is faster, case by case."""
_OURS = ("auto",)
"""What a user gets who asks for nothing."""

_FASTER = (
    Check("torch / ours, inference", "inference", _TORCH, _OURS),
    Check("torch / ours, training", "training", _TORCH, _OURS),
)


@dataclass(frozen=True)
class LayerSuite:
    title: str
    variable: str
    cases: Mapping[int, Case]
    """By the value that varies."""
    checks: tuple[Check, ...] = _FASTER
    linear_growth: bool = False
    """Show the growth of our time per unit of the variable, which must not exceed 1."""
    peers: tuple[str, ...] = USUAL_PEERS
    """Those that are timed if none are asked for."""

    def steps(self, settings: Settings) -> list[Step]:
        names = settings.chosen(PEERS) if settings.peers else [name for name in PEERS if name in self.peers]
        cases = {value: case.shrunk() if settings.quick else case for value, case in self.cases.items()}
        return [
            Step(
                f"{self.variable} = {value}, {mode}",
                functools.partial(self._measure, value, case, mode, names, settings),
            )
            for value, case in cases.items()
            for mode in settings.modes
        ]

    def _measure(self, value: int, case: Case, mode: Mode, names: list[str], settings: Settings) -> list[Row]:
        with settings.device.building():
            calls, reasons = prepare(names, case, mode, settings.seed)
        timings = interleave(calls, **settings.timing())
        return [
            {"mode": mode, "peer": name, "variable": self.variable, "value": value}
            | case.columns()
            | timing_columns(timings.get(name))
            | {"note": reasons.get(name, "")}
            for name in names
        ]


_PAPER = Case(batch=2, in_channels=128, out_channels=128, size=(64, 64), kernel_size=9)


def _kernels(case: Case, *sizes: int) -> dict[int, Case]:
    return {k: replace(case, kernel_size=k, rings=0) for k in sizes}


def _by_kernel_size(*bounds: float) -> dict[int, float]:
    return dict(zip((3, 5, 7, 9, 11), bounds, strict=True))


LAYER_SUITES: dict[str, LayerSuite] = {
    "speed": LayerSuite(
        "The paper's speed table: (2, 128, 64, 64) -> 128",
        "k",
        _kernels(_PAPER, 3, 5, 7, 9, 11),
        checks=(
            Check("torch / ours, inference", "inference", _TORCH, _OURS, _by_kernel_size(2.5, 3.5, 6, 8, 10)),
            Check("torch / ours, training", "training", _TORCH, _OURS, _by_kernel_size(2.2, 3, 5, 6.5, 7.5)),
            Check("authors / ours, inference", "inference", ("authors",), _OURS, _by_kernel_size(3, 2.5, 2.5, 4, 4)),
            Check("authors / ours, training", "training", ("authors",), _OURS),
            Check("ours / GEMM, inference", "inference", _OURS, ("gemm",), {7: 1.6, 9: 1.6, 11: 1.6}, at_least=False),
            Check("ours / 3 GEMMs, training", "training", _OURS, ("gemm",)),
        ),
    ),
    "methods": LayerSuite(
        "The paper's speed table with all its rows: (2, 128, 64, 64) -> 128 channels or fields",
        "k",
        _kernels(_PAPER, 3, 5, 7, 9, 11),
        checks=(
            *_FASTER,
            Check("E(2) / ours, inference", "inference", ("e2",), _OURS, {11: 50}),
            Check("E(2) / ours, training", "training", ("e2",), _OURS, {11: 50}),
            Check("group / ours, inference", "inference", ("group",), _OURS),
            Check("group / ours, training", "training", ("group",), _OURS),
        ),
        peers=USUAL_PEERS + SLOW_PEERS,
    ),
    "forms": LayerSuite(
        "Forms of the rings, and harmonics: (2, 128, 64, 64) -> 128",
        "k",
        _kernels(_PAPER, 3, 5, 7, 9, 11),
        checks=tuple(
            Check(f"torch / {name}, {mode}", mode, _TORCH, (peer,))
            for peer, name in {
                "auto": "the paper's form",
                "default_form": "default form",
                "harmonics_1": "order 1",
                "harmonics_2": "orders 1, 2",
            }.items()
            for mode in MODES
        ),
        peers=(*_TORCH, *_OURS, *FORMS),
    ),
    "kernel": LayerSuite(
        "Growth with the kernel: (2, 128, 64, 64) -> 128",
        "k",
        _kernels(_PAPER, 3, 5, 7, 9, 11, 15, 21, 31),
        checks=(
            Check("torch / ours, inference", "inference", _TORCH, _OURS, {31: 20}),
            Check("torch / ours, training", "training", _TORCH, _OURS),
        ),
    ),
    "rings": LayerSuite(
        "Growth with the rings: (2, 128, 64, 64) -> 128, k = 11",
        "n",
        {n: replace(_PAPER, kernel_size=11, rings=n) for n in (1, 2, 4, 6, 8, 12)},
        linear_growth=True,
    ),
    "channels": LayerSuite(
        "Growth with the channels: (2, C, 32, 32) -> C, k = 9",
        "C",
        {c: replace(_PAPER, in_channels=c, out_channels=c, size=(32, 32)) for c in (16, 32, 64, 128, 256, 512)},
    ),
    "pixels": LayerSuite(
        "Growth with the map: (2, 64, H, H) -> 64, k = 9",
        "H",
        {side: Case(2, 64, 64, (side, side), 9) for side in (8, 16, 32, 64, 128, 256)},
    ),
    "batch": LayerSuite(
        "Growth with the batch: (B, 128, 16, 16) -> 128, k = 9",
        "B",
        {batch: Case(batch, 128, 128, (16, 16), 9) for batch in (1, 2, 4, 8, 16, 32, 64)},
    ),
    "3d": LayerSuite(
        "Volumes: (1, 32, 32, 32, 32) -> 32",
        "k",
        _kernels(Case(1, 32, 32, (32, 32, 32), 3), 3, 5, 7, 9),
    ),
}
