"""A run from its settings to its folder, and on from its last checkpoint."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ringconv._extras import needs
from ringconv.data import DataSet, check_outside
from ringconv.training import finish
from ringconv.training.logs import Log
from ringconv.training.loop import Moment, NotFiniteError, Pace, Training
from ringconv.training.runs import CHECKPOINTS, Run, locked, new_run, read_run
from ringconv.training.settings import TrainSettings
from ringconv.training.setup import has_test_images, prepare_data, with_absolute_paths
from ringconv.training.snapshots import load_snapshot, save_snapshot, snapshots
from ringconv.training.stopping import Stop, stop_on_signals

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
_AGREE_EVERY = 10
"""Steps between the times when several devices agree whether to stop."""


class TrainingStoppedError(Exception):
    """A run cannot go on as it is; the message says why and what is left of it."""


class TrainingDivergedError(TrainingStoppedError):
    """The loss was not finite; so it will be if this run goes on."""


class TrainingInterruptedError(Exception):
    """A run was asked to stop, and saved; the message says how to go on."""


class Watch:
    """Told how a run goes; this one does nothing."""

    def trained(self, moment: Moment) -> None:
        """After a step; on GPUs, after some."""

    def testing(self, stage: str, done: int, total: int) -> None:
        """While the data is read and while the network is tested."""

    def note(self, text: str) -> None:
        """Something that a person would want to know."""


def train(
    settings: TrainSettings,
    *,
    out: Path = Path("runs"),
    name: str | None = None,
    recipe: str | None = None,
    data: DataSet | None = None,
    watch: Watch | None = None,
) -> Run:
    """Train, test, and leave a folder with everything that is known about it.

    Args:
        settings: what to do.
        out: where the run's folder goes.
        name: of the folder; default the data's, the model's and the time.
        recipe: what to remember as the recipe's name.
        data: ready data, instead of what ``settings.data`` names.
        watch: told how it goes.

    Raises:
        TrainingStoppedError: the loss was not finite, or the disk full. The last checkpoint is intact.
        TrainingInterruptedError: by Ctrl-C or SIGTERM, after a checkpoint.
    """
    watch = watch or Watch()
    settings = with_absolute_paths(as_launched(settings))
    if data is None:
        check_outside(out, settings.data)
    with _launched(settings) as fabric, _own_randomness(fabric):
        training = Training(fabric, settings, prepare_data(settings, data, watch.testing))
        folder = out / "?"
        if fabric.is_global_zero:
            parameters = sum(parameter.numel() for parameter in training.network.parameters())
            about = {
                "parameters": parameters,
                "data": finish.about_data(training.data),
                "steps": training.steps,
            }
            folder = new_run(out, settings, name, recipe, about)
            for note in training.data.notes:
                watch.note(note)
            if settings.final_test and not has_test_images(training.data):
                watch.note(f"{training.data.name} has no test images: the trained network will not be tested.")
        folder = fabric.broadcast(folder)
        return _run(training, folder, watch)


def resume(folder: Path, *, data: DataSet | None = None, watch: Watch | None = None) -> Run:
    """Go on with a run from its last checkpoint.

    On the CPU the result is, bit for bit, that of a run that never stopped. A finished run is returned as it is.

    Raises:
        ValueError: the data is not what the run began with.
    """
    watch = watch or Watch()
    run = read_run(folder)
    if run.results is not None:
        return run
    settings = as_launched(run.settings)
    with _launched(settings) as fabric, _own_randomness(fabric):
        prepared = prepare_data(settings, data, watch.testing)
        finish.check_same_data(prepared, run.data)
        return _run(Training(fabric, settings, prepared), folder, watch)


def check(settings: TrainSettings, data: DataSet | None = None) -> float:
    """Read the data, build everything and take one step; returns its loss and writes nothing."""
    settings = as_launched(settings)
    with _launched(settings) as fabric, _own_randomness(fabric):
        training = Training(fabric, settings, prepare_data(settings, data))
        training.train_step(next(training.steps_of_epoch()))
        return training.means_since_last_time()[0]


def as_launched(settings: TrainSettings) -> TrainSettings:
    """The number of devices as torchrun started them; batches count all devices, so that nothing else changes."""
    if "LOCAL_WORLD_SIZE" not in os.environ:
        return settings
    local, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return replace(settings, devices=local, nodes=world // local)


@contextlib.contextmanager
def _launched(settings: TrainSettings) -> Iterator[Fabric]:
    fabric = launch(settings)
    try:
        yield fabric
    finally:
        # Its threads must not outlive the interpreter, which aborts if they do.
        if fabric.world_size > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def launch(settings: TrainSettings) -> Fabric:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fp16 is not supported on CPU.*")  # an error says so below
        lightning = needs("lightning_fabric", "train")
        try:
            fabric: Fabric = lightning.Fabric(
                accelerator=settings.accelerator,
                devices=settings.devices,
                num_nodes=settings.nodes,
                strategy=settings.strategy,
                precision=settings.precision,
            )
        except (RuntimeError, TypeError, ModuleNotFoundError) as error:  # what it says of devices that are not there
            raise ValueError(f"accelerator {settings.accelerator!r} cannot be used here: {error}") from error
    used = fabric.strategy.precision.precision
    if used != settings.precision:
        raise ValueError(
            f"precision {settings.precision!r} does not work on this device ({fabric.device.type}); {used!r} does"
        )
    fabric.launch()
    return fabric


@contextlib.contextmanager
def _own_randomness(fabric: Fabric) -> Iterator[None]:
    """The caller's random numbers go on afterwards as if nothing had been."""
    with torch.random.fork_rng(devices=[fabric.device] if fabric.device.type == "cuda" else []):
        yield


def _run(training: Training, folder: Path, watch: Watch) -> Run:
    """Train to the end and test. The first device writes, the others only train."""
    if not training.fabric.is_global_zero:
        _restore(training, folder)
        _epochs(training, folder, None, Watch(), 0.0)
        return read_run(folder)
    with locked(folder), _explained(training, folder):
        position, earlier = _restore(training, folder)
        settings = training.settings
        log = Log(folder, position, training.step, settings.wandb, settings.to_json())
        try:
            seconds = _epochs(training, folder, log, watch, earlier)
        finally:
            log.close()
        finish.finish(training, folder, seconds, watch.testing)
    return read_run(folder)


def _restore(training: Training, folder: Path) -> tuple[int, float]:
    """Go to the last checkpoint; returns how much of the log is from before it, and the seconds until then."""
    snapshot = load_snapshot(folder / CHECKPOINTS)
    if snapshot is None:
        return 0, 0.0
    training.restore(snapshot)
    return int(snapshot.state["log_position"]), float(snapshot.state["seconds"])


def _epochs(training: Training, folder: Path, log: Log | None, watch: Watch, earlier: float) -> float:
    """The epochs that are left; returns the seconds that training took, with those ``earlier`` ones."""
    settings = training.settings
    pace = Pace(training, earlier)
    with stop_on_signals() as stop:
        while training.epochs_done < settings.epochs:
            batches = training.steps_of_epoch()
            while True:
                asked = time.perf_counter()
                parts = next(batches, None)
                pace.waited_for_data(time.perf_counter() - asked)
                if parts is None:
                    break
                training.train_step(parts)
                after_step(training, folder, log, watch, pace, stop)
            evaluating = time.perf_counter()
            _after_epoch(training, log, watch)
            pace.leave_out(time.perf_counter() - evaluating)
            training.finish_epoch()
        save(training, folder, log, pace)
        if _agreed(training, stop):  # asked while the last epoch was validated
            raise _interrupted(training, folder)
    return pace.total_seconds


def after_step(training: Training, folder: Path, log: Log | None, watch: Watch, pace: Pace, stop: Stop) -> None:
    """Log, tell, save and stop, each if it is time to."""
    settings, step = training.settings, training.step
    due = step % settings.log_every == 0
    if due:
        loss, score = training.means_since_last_time()
        moment = pace.moment()
        if log is not None:
            values = {"loss": loss, training.score_name: score, "lr": training.optimiser.param_groups[0]["lr"]}
            speed = {"images_per_second": moment.images_per_second, "data_share": pace.data_share}
            log.write("train", step, training.epochs_done + 1, {**values, **speed})
        watch.trained(moment)
    elif training.checks_every_step:
        watch.trained(pace.moment())
    if step % settings.checkpoint_every == 0:
        save(training, folder, log, pace)
    if _agreed(training, stop):
        save(training, folder, log, pace)
        raise _interrupted(training, folder)


def _after_epoch(training: Training, log: Log | None, watch: Watch) -> None:
    """Log the epoch, and validate and test on turned images if it is time to."""
    settings, epoch = training.settings, training.epochs_done + 1
    loss, score = training.means()
    if log is not None:
        last = epoch == settings.epochs
        log.write("epoch", training.step, epoch, {"loss": loss, training.score_name: score})
        log.write("sigma", training.step, epoch, training.ring_widths())
        if "val" in training.data.splits and (last or epoch % settings.validate_every == 0):
            found = finish.validate(training)
            log.write("validation", training.step, epoch, found)
            finish.keep_best(training, found[training.score_name])
        if settings.rotated_every and (last or epoch % settings.rotated_every == 0):
            log.write("rotated", training.step, epoch, finish.rotated(training, watch.testing))
        training.model.train()
    training.fabric.barrier()


def save(training: Training, folder: Path, log: Log | None, pace: Pace) -> None:
    training.check_finite()
    if log is not None:
        snapshot = training.snapshot(log_position=log.synced_position(), seconds=pace.total_seconds)
        save_snapshot(folder / CHECKPOINTS, snapshot)
    training.fabric.barrier()


def _interrupted(training: Training, folder: Path) -> TrainingInterruptedError:
    done = f"stopped after step {training.step:,} of {training.steps:,}"
    return TrainingInterruptedError(f"{done}; {_how_to_go_on(folder)}")


def _agreed(training: Training, stop: Stop) -> bool:
    """Whether to stop now; several devices stop together or not at all."""
    if training.fabric.world_size == 1:
        return stop.asked
    if training.step % _AGREE_EVERY:
        return False
    asked = torch.tensor(float(stop.asked), device=training.fabric.device)
    return bool(training.fabric.all_reduce(asked, reduce_op="sum"))


@contextlib.contextmanager
def _explained(training: Training, folder: Path) -> Iterator[None]:
    """Say what is left of a run that cannot go on."""
    try:
        yield
    except KeyboardInterrupt as error:  # in the final test, or the second one
        raise TrainingInterruptedError(f"stopped at once; {_how_to_go_on(folder)}") from error
    except NotFiniteError as error:
        raise TrainingDivergedError(
            f"{error} at step {training.step:,} (epoch {training.epochs_done + 1}). {_what_is_left(folder)}"
            " A smaller lr, warmup_epochs or clip_norm often help"
        ) from error
    except OSError as error:
        if error.errno not in _DISK_IS_FULL:
            raise
        raise TrainingStoppedError(
            f"the disk is full: nothing more can be written to {folder}. {_what_is_left(folder)} Make room;"
            f" {_how_to_go_on(folder)}"
        ) from error


def _what_is_left(folder: Path) -> str:
    found = snapshots(folder / CHECKPOINTS)
    if not found:
        return "There was no checkpoint yet."
    return f"The last checkpoint is intact: {found[-1]}."


def _how_to_go_on(folder: Path) -> str:
    return f"to go on: ringconv train --resume {folder}"
