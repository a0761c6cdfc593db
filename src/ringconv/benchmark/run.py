"""One benchmark run, from the command's options to the files it leaves."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ringconv.benchmark import methods, networks
from ringconv.benchmark.cases import MODES, Mode
from ringconv.benchmark.device import CudnnChoice, DeviceName, device_named
from ringconv.benchmark.plots import plot_growth
from ringconv.benchmark.results import Row, machine, results_path, write_csv
from ringconv.benchmark.suites import LAYER_SUITES, Settings, Step
from ringconv.benchmark.tables import auto_tables, layer_tables, left_out, network_tables, spread

SuiteName = Literal[
    "speed", "methods", "forms", "kernel", "rings", "channels", "pixels", "batch", "3d", "models", "auto"
]  # fmt: skip

_QUICK_ROUNDS = 2


@dataclass(frozen=True)
class _Suite:
    title: str
    steps: Callable[[Settings], list[Step]]
    tables: Callable[[Sequence[Row]], list[Table]]
    plot: bool


_SUITES: dict[str, _Suite] = {
    name: _Suite(suite.title, suite.steps, partial(layer_tables, suite), plot=True)
    for name, suite in LAYER_SUITES.items()
} | {
    "models": _Suite("Networks with equal stems and equal map sizes", networks.steps, network_tables, plot=False),
    "auto": _Suite("Random layer shapes", methods.steps, auto_tables, plot=False),
}


def bench(
    *,
    suite: SuiteName = "speed",
    modes: tuple[Mode, ...] = MODES,
    peers: tuple[str, ...] = (),
    budget: float = 2.0,
    rounds: int = 7,
    device: DeviceName = "cpu",
    cudnn: CudnnChoice = "paper",
    threads: int | None = None,
    seed: int = 0,
    shapes: int = 200,
    directory: Path = Path("benchmarks/results"),
    plot: bool = True,
    quick: bool = False,
) -> Path:
    """Time ring convolutions beside their peers, in turns, in one process.

    Prints medians and their ratios, and writes a CSV file with the 20th and 80th percentiles, the machine and the
    versions, and a plot beside it. The file is written after every step, so Ctrl-C keeps what was measured.

    Set OMP_WAIT_POLICY=PASSIVE in the environment before the start: idle threads that spin take time from the ones that
    work, and torch reads it only once.

    Args:
        suite: speed: the paper's speed table, with the ratios that we hold ourselves to. methods: the same with its
            rows of group and E(2) convolutions, which take half an hour (--rounds 3 --budget 1). forms: the shapes
            of speed in the paper's form, in the default one, and with harmonics. kernel, rings, channels, pixels,
            batch: growth with one of them. 3d: volumes. models: whole networks, images per second and memory. auto:
            random layer shapes, how far method="auto" is from the best method.
        modes: inference: without gradients, in eval. training: forward, and the gradients of the input, the weight and
            sigma (models: and an update).
        peers: only these; default: all that are installed. For layers: torch, torch_channels_last, e2, group, symm,
            authors, dense, factored, fused, auto, gemm (e2 and group, which are slow, by default in the suite methods
            only), and default_form, harmonics_1, harmonics_2 (by default in the suite forms only). For models:
            resnet18, resnet18_channels_last, gmr_resnet18, e2_wrn16, authors. The suite auto always takes all methods.
        budget: seconds for each step (a case in a mode); rounds go on until they are spent.
        rounds: least number of rounds, whatever they take; a round runs every peer once, in a new order.
        device: cpu, or cuda: the present GPU, timed by its events after a warm-up, with memory by torch's counters.
        cudnn: on a GPU, paper: benchmark off and deterministic on; fast: the opposite, which also lets the Triton
            kernels try their tiles.
        threads: of torch and of the fused kernel; default: as torch has it.
        seed: of inputs, weights, orders and random shapes.
        shapes: number of random shapes of the suite auto.
        directory: where <suite>-<date>.csv and .png go.
        plot: draw time against what varies (layer suites).
        quick: tiny inputs and two rounds, only to see that everything runs.

    Returns:
        The CSV file.
    """
    if suite not in _SUITES:
        raise ValueError(f"suite must be one of {', '.join(_SUITES)}, got {suite!r}")
    chosen = _SUITES[suite]
    settings = Settings(
        modes=modes,
        peers=peers,
        budget=0.0 if quick else budget,
        rounds=_QUICK_ROUNDS if quick else rounds,
        seed=seed,
        shapes=shapes,
        quick=quick,
        device=device_named(device, cudnn),
    )
    if device == "cpu":
        _warn_of_spinning_threads()
    console = Console()
    path = results_path(directory, _file_stem(suite, device, quick), datetime.now())
    with _threads(threads), settings.device.settings():
        where = machine() | settings.device.columns()
        rows = _run(suite, chosen.steps(settings), where, path)
    console.print(chosen.title, style="bold")
    if quick:
        console.print("quick: tiny shapes instead, the figures mean nothing")
    console.print(f"{where['cpu']}, {where['cores']} cores, {where['threads']} threads, torch {where['torch']}")
    if "device" in where:
        console.print(f"{where['device']}, CUDA {where['cuda']}, cudnn settings: {cudnn}", markup=False)
    for table in chosen.tables(rows):
        console.print(table)
    for line in (spread(rows), *left_out(rows)):
        if line:
            console.print(line, style="dim", markup=False)
    console.print(str(path), soft_wrap=True)
    if plot and chosen.plot:
        picture = path.with_suffix(".png")
        plot_growth(picture, chosen.title, rows)
        console.print(str(picture), soft_wrap=True)
    return path


def _file_stem(suite: str, device: DeviceName, quick: bool) -> str:
    return suite + ("-cuda" if device == "cuda" else "") + ("-quick" if quick else "")


def _run(suite: str, steps: Sequence[Step], where: Row, path: Path) -> list[Row]:
    """The rows of all steps, or of those that were done when Ctrl-C came; they are in the file already."""
    rows: list[Row] = []
    with _progress() as progress:
        task = progress.add_task(suite, total=len(steps))
        try:
            for step in steps:
                progress.update(task, description=step.label)
                rows += step.run()
                write_csv(path, [{"suite": suite} | row | where for row in rows])
                progress.advance(task)
        except KeyboardInterrupt:
            if not rows:
                raise
            warnings.warn(f"interrupted: {path} has what was measured before", stacklevel=3)
    return rows


def _progress() -> Progress:
    """On a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextlib.contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _warn_of_spinning_threads() -> None:
    if os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        warnings.warn(
            "OMP_WAIT_POLICY is not PASSIVE: idle threads may spin and disturb the others. Set it in the environment"
            " before Python starts; now it is too late for this process.",
            stacklevel=3,
        )
