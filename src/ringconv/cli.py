"""The command ``ringconv``: every subcommand calls one function that Python users can call too."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringconv import report, training
from ringconv._extras import MissingExtraError, needs
from ringconv._version import __version__
from ringconv.ops.choice import MEASURED
from ringconv.report.equivariance_table import DRAWS, write_equivariance_table
from ringconv.training import CompareSettings


def compare(
    epochs: int = CompareSettings.epochs,
    seed: int = CompareSettings.seed,
    train_patches: int = CompareSettings.train_patches,
    test_patches: int = CompareSettings.test_patches,
    out: Path = Path("runs"),
) -> None:
    """Train a plain and a ring network upright, then turn the images.

    Two small networks that differ in their convolutions only learn to tell seven textures apart: brick, coins,
    galaxies, grass, gravel, retina, tissue. These are patches of real photographs that come with scikit-image, so
    nothing is downloaded. Training sees upright patches, without geometric augmentation; testing takes other parts of
    the photographs: upright, turned by every 10 degrees, and mirrored. It takes about a minute on two cores.

    The table shows for each network the accuracy upright, its mean and standard deviation over 36 angles, the worst
    angle, and the mean over both flips. A new folder in OUT gets accuracy.png (accuracy against angle, as a picture),
    accuracy.csv (the same, as figures) and results.json (everything).

    Another draw of patches and weights: ringconv compare --seed 1

    A quick look that is not a result: ringconv compare --epochs 3 --test-patches 20

    Args:
        epochs: Passes over the training patches.
        seed: Decides the patches, the initial weights and the order of training; the same seed gives the same figures
            on the same machine.
        train_patches: Training patches per class.
        test_patches: Test patches per class.
        out: Folder that gets the run's own folder, compare-<date>-<time>.
    """
    with _usage_errors():
        settings = CompareSettings(epochs, seed, train_patches, test_patches)
        report.check_out(out)
    console = _console()
    console.print("Two networks learn textures from upright patches; then the patches are turned and mirrored.")
    with _progress_bars(console) as progress:
        comparison = training.compare(settings, progress)
    folder = report.write_comparison(comparison, out)
    console.print("", report.comparison_table(comparison), "", report.in_a_line(comparison), "", sep="\n")
    console.print(f"Picture and figures: {folder}", soft_wrap=True)


def equivariance(out: Path = Path("docs/equivariance.md"), draws: int = DRAWS, seed: int = 0) -> None:
    """Tabulate how equivariant one layer is between quarter turns.

    Writes a page in markdown: how the error was measured, tables by kernel size, by how the rings are sampled and by
    angle, and what they say.

    Args:
        out: File to write.
        draws: Random weights to pool over.
        seed: Decides the weights.
    """
    with _usage_errors():
        path = write_equivariance_table(out, draws, seed)
    _console().print(f"Written: {path}", soft_wrap=True)


def _load_bench() -> Callable[..., object]:
    from ringconv.benchmark import bench

    return bench


def methods(out: Path = MEASURED, budget: float = 0.5, rounds: int = 5) -> None:
    """Measure which method is fastest, layer by layer.

    Times every method on a grid of layer shapes and writes the table that method="auto" decides by. It takes about ten
    minutes on an idle machine of two cores. Set OMP_WAIT_POLICY=PASSIVE in the environment first.

    Args:
        out: CSV file to write; by default the one that is in use.
        budget: Seconds for each shape, in inference and in training.
        rounds: Least number of timings of each method.
    """
    from ringconv.benchmark import auto_table

    _console().print(f"Written: {auto_table(out, budget=budget, rounds=rounds)}", soft_wrap=True)


@dataclass(frozen=True)
class Command:
    summary: str
    load: Callable[[], Callable[..., object]]
    """The function to call; options and help come from its signature and docstring."""


COMMANDS = {
    "compare": Command("Train a plain and a ring network upright, then turn the images.", lambda: compare),
    "equivariance": Command("Tabulate how equivariant one layer is between quarter turns.", lambda: equivariance),
    "bench": Command("Time ring convolutions beside their peers.", _load_bench),
    "methods": Command('Measure the table that method="auto" decides by.', lambda: methods),
}


class UsageError(Exception):
    """What was asked for cannot be done, and the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0, 1 (something is not installed), 2 (asked for the impossible) or 130 (stopped)."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        if name in ("-h", "--help"):
            sys.stdout.write(_overview())
        elif name == "--version":
            sys.stdout.write(f"ringconv {__version__}\n")
        elif name in COMMANDS:
            needs("tyro", "compare").cli(COMMANDS[name].load(), prog=f"ringconv {name}", args=options)
        else:
            raise UsageError(f"there is no command {name!r}; the commands are {', '.join(COMMANDS)}")
    except KeyboardInterrupt:
        return _failed("stopped; nothing was written", 130)
    except UsageError as error:
        return _failed(str(error), 2)
    except MissingExtraError as error:
        return _failed(str(error), 1)
    return 0


def _overview() -> str:
    lines = [f"  {name:<14}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Convolutions made of Gaussian rings: equivariant to rotation and reflection.",
            "",
            *lines,
            "",
            "Start with:                    ringconv compare",
            "What a command does and takes: ringconv compare --help",
            "Which version this is:         ringconv --version",
            "",
        ]
    )


def _failed(message: str, status: int) -> int:
    sys.stderr.write(f"ringconv: {message}\n")
    return status


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    """Errors in here are about what the user gave, so that a message does and a traceback would not help."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def _console() -> Any:
    return needs("rich.console", "compare").Console(highlight=False)


@contextlib.contextmanager
def _progress_bars(console: Any) -> Iterator[training.Progress]:
    """One bar per stage, and none if nobody is watching."""
    rich = needs("rich.progress", "compare")
    columns = (
        rich.TextColumn("{task.description:<11}"),
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
