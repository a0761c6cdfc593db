"""Run as a process of its own: writes the peak memory, in bytes, of building and training a network for two steps.

The second step has the gradients and the optimiser's momentum of the first beside its activations.
"""

from __future__ import annotations

import sys

from ringconv.benchmark.memory import peak_bytes
from ringconv.benchmark.networks import Setting, prepare_network, training_step


def main(name: str, batch: str, side: str, stem_pool: str, width: str) -> None:
    setting = Setting(int(batch), int(side), bool(int(stem_pool)), int(width))

    # What is imported and set up once belongs to the process, not to the step.
    training_step(*prepare_network(name, Setting(2, 16, setting.stem_pool, width=8)))()

    def work() -> None:
        step = training_step(*prepare_network(name, setting))
        step()
        step()

    sys.stdout.write(f"{peak_bytes(work)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
