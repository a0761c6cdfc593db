"""What the training loop costs beside a bare one of the same network on the same batches."""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ringconv.data import DataSet
from ringconv.training.loader import Part
from ringconv.training.logs import Log
from ringconv.training.loop import Pace, Training
from ringconv.training.objective import Losses, loss_name, make_losses
from ringconv.training.optimise import make_optimiser
from ringconv.training.settings import TrainSettings
from ringconv.training.setup import prepare_data
from ringconv.training.stopping import Stop
from ringconv.training.train import Watch, after_step, launch, save


@dataclass(frozen=True)
class Overhead:
    """Medians over the steps, in seconds."""

    steps: int
    bare: float
    """Forward pass, loss, backward pass and the optimiser's step, in plain torch."""
    loop: float
    """The same in the training loop, with its logs, without its checkpoints."""
    data: float
    """Reading and augmenting the batch."""
    checkpoint: float
    """Writing a checkpoint."""
    checkpoint_every: int

    @property
    def overhead(self) -> float:
        """What the loop and its checkpoints add, as a share of the bare step."""
        return (self.loop + self.checkpoint / self.checkpoint_every) / self.bare - 1

    @property
    def data_share(self) -> float:
        """Share of a step that is spent on the data."""
        return self.data / (self.data + self.loop)

    def __str__(self) -> str:
        return (
            f"medians of {self.steps} steps: bare {1e3 * self.bare:.1f} ms, loop {1e3 * self.loop:.1f} ms, data"
            f" {1e3 * self.data:.1f} ms; a checkpoint {1e3 * self.checkpoint:.0f} ms, every {self.checkpoint_every}"
            f" steps. The loop adds {self.overhead:.1%}; data is {self.data_share:.1%} of a step"
        )


def measure_overhead(settings: TrainSettings, data: DataSet | None = None, *, seconds: float = 60.0) -> Overhead:
    """Train for some time, each batch with a bare loop and with ours in turn, and compare the medians.

    Both see the same batches, and both networks keep learning. The first steps are not counted.

    Args:
        settings: of one device and whole batches; epochs are as many as there is time for.
        seconds: to measure.
    """
    if settings.devices * settings.nodes > 1 or settings.accumulate > 1:
        raise ValueError("the overhead is measured on one device and whole batches")
    settings = replace(settings, epochs=1_000_000)
    fabric = launch(settings)
    with tempfile.TemporaryDirectory() as where, torch.random.fork_rng(devices=[]):
        training = Training(fabric, settings, prepare_data(settings, data))
        bare = _Bare(training)
        log, pace = Log(Path(where)), Pace(training)
        times: dict[str, list[float]] = {"bare": [], "loop": [], "data": []}
        until = time.perf_counter() + seconds
        batches = training.steps_of_epoch()
        while time.perf_counter() < until or len(times["loop"]) < 5:
            start = time.perf_counter()
            parts = next(batches, None)
            if parts is None:
                training.finish_epoch()
                batches = training.steps_of_epoch()
                continue
            read = time.perf_counter()
            in_turn = ("bare", "loop") if training.step % 2 else ("loop", "bare")
            times["data"].append(read - start)
            for name in in_turn:
                start = time.perf_counter()
                if name == "bare":
                    bare.train_step(parts[0])
                else:
                    training.train_step(parts)
                    after_step(training, Path(where), log, Watch(), pace, Stop())
                times[name].append(time.perf_counter() - start)
        saves = []
        for _ in range(3):
            start = time.perf_counter()
            save(training, Path(where), log, pace)
            saves.append(time.perf_counter() - start)
        log.close()
    counted = {name: statistics.median(values[2:]) for name, values in times.items()}
    return Overhead(
        len(times["loop"]) - 2, counted["bare"], counted["loop"], counted["data"], statistics.median(saves),
        settings.checkpoint_every,
    )  # fmt: skip


class _Bare:
    """The loop that one would write in a minute."""

    def __init__(self, training: Training) -> None:
        self._network: nn.Module = copy.deepcopy(training.network).train()
        self._optimiser = make_optimiser(self._network, training.settings)
        self._losses: Losses = make_losses(
            loss_name(training.settings, training.data), training.settings.label_smoothing
        )

    def train_step(self, part: Part) -> None:
        images, targets = part
        loss = self._losses(self._network(images), targets).mean()
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
