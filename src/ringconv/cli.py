"""The command ``ringconv``: every subcommand calls one function that Python users can call too."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringconv._extras import MissingExtraError, needs
from ringconv._version import __version__
from ringconv.commands._terminal import UsageError


@dataclass(frozen=True)
class Command:
    summary: str
    where: str
    """module:function; imported when it is called, since one command should not wait for the packages of another."""

    raw: bool = False
    """Whether the function takes the options as they were typed, since the first decides what the others may be."""

    def function(self) -> Callable[..., object]:
        module, _, name = self.where.partition(":")
        function: Callable[..., object] = getattr(importlib.import_module(module), name)
        return function


_COMMANDS = "ringconv.commands."

COMMANDS = {
    "compare": Command(
        "Train a plain and a ring network upright, then turn the images.", _COMMANDS + "compare:compare"
    ),
    "train": Command(
        "Train a model, by a recipe of the paper or your own settings.", _COMMANDS + "train:train", raw=True
    ),
    "evaluate": Command("Test a checkpoint upright, turned and mirrored.", _COMMANDS + "evaluate:evaluate"),
    "audit": Command("Find the layers where a checkpoint loses equivariance.", _COMMANDS + "audit:audit"),
    "predict": Command("Classify images with a checkpoint.", _COMMANDS + "predict:predict"),
    "export": Command("Write a checkpoint as ONNX, torch program or library.", _COMMANDS + "export:export"),
    "demo": Command("Show a page where images turn and networks answer.", _COMMANDS + "demo:demo"),
    "models": Command("List the models: parameters, operations, map sizes.", _COMMANDS + "models:models"),
    "data": Command("Look at data: list what is known, check, draw a sheet.", _COMMANDS + "data:data"),
    "recipes": Command("List the paper's rows as recipes, with its figures.", _COMMANDS + "recipes:recipes"),
    "runs": Command("List and compare trained runs.", _COMMANDS + "runs:runs"),
    "report": Command("Write one HTML file on one or many runs.", _COMMANDS + "report:report"),
    "table": Command("Fill a table of the paper from runs.", _COMMANDS + "table:table"),
    "figures": Command("Draw the figures of the paper from your own runs.", _COMMANDS + "figures:figures"),
    "results": Command("Run the studies on real data, and write their page.", _COMMANDS + "results:results"),
    "budget": Command("Train every method of the paper on one budget.", _COMMANDS + "baselines:budget"),
    "bench": Command("Time ring convolutions beside their peers.", _COMMANDS + "bench:bench"),
    "methods": Command('Measure the table that method="auto" decides by.', _COMMANDS + "methods:methods"),
    "equivariance": Command(
        "Write the page on the equivariance of one layer.", _COMMANDS + "equivariance:equivariance"
    ),
    "conversions": Command("Write the page on converting ready-made networks.", _COMMANDS + "conversions:conversions"),
    "methods-page": Command("Write the page on all methods of the paper.", _COMMANDS + "baselines:methods_page"),
    "scaling": Command("Write the page on cost, fitted to measurements.", _COMMANDS + "scaling:scaling"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0, 1 (something is not installed), 2 (asked for the impossible) or 130 (stopped)."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        if name in ("-h", "--help"):
            sys.stdout.write(_overview())
        elif name == "--version":
            sys.stdout.write(f"ringconv {__version__}\n")
        elif name in COMMANDS:
            _run(COMMANDS[name], f"ringconv {name}", options)
        else:
            close = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise UsageError(f"there is no command {name!r}{hint} The commands are {', '.join(COMMANDS)}")
    except KeyboardInterrupt as error:
        return _failed(str(error) or "stopped; nothing was written", 130)
    except UsageError as error:
        return _failed(str(error), 2)
    except MissingExtraError as error:
        return _failed(str(error), 1)
    return 0


def _run(command: Command, prog: str, options: Sequence[str]) -> None:
    if command.raw:
        command.function()(options, prog)
    else:
        needs("tyro", "compare").cli(command.function(), prog=prog, args=options)


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
