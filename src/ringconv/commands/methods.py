"""``ringconv methods``."""

from __future__ import annotations

from pathlib import Path

from ringconv.benchmark import auto_table
from ringconv.commands._terminal import terminal
from ringconv.ops.choice import MEASURED


def methods(out: Path = MEASURED, budget: float = 0.5, rounds: int = 5) -> None:
    """Measure which method is fastest, layer by layer.

    Times every method on a grid of layer shapes and writes the table that method="auto" decides by. It takes
    about half an hour on an idle machine of two cores. Set OMP_WAIT_POLICY=PASSIVE in the environment first.

    Args:
        out: CSV file to write; by default the one that is in use.
        budget: Seconds for each shape, in inference and in training.
        rounds: Least number of timings of each method.
    """
    terminal().print(f"Written: {auto_table(out, budget=budget, rounds=rounds)}", soft_wrap=True)
