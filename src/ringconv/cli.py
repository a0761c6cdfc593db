"""The command ``ringconv``: every subcommand calls one function that Python users can call too."""

from __future__ import annotations

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

    def function(self) -> Callable[..., object]:
        module, _, name = self.where.partition(":")
        function: Callable[..., object] = getattr(importlib.import_module(module), name)
        return function


COMMANDS = {
    "compare": Command(
        "Train a plain and a ring network upright, then turn the images.", "ringconv.commands.compare:compare"
    ),
    "equivariance": Command(
        "Tabulate how equivariant one layer is between quarter turns.", "ringconv.commands.equivariance:equivariance"
    ),
    "bench": Command("Time ring convolutions beside their peers.", "ringconv.benchmark:bench"),
    "methods": Command('Measure the table that method="auto" decides by.', "ringconv.commands.methods:methods"),
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
            needs("tyro", "compare").cli(COMMANDS[name].function(), prog=f"ringconv {name}", args=options)
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
