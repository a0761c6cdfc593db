"""The training loop: a run's state in memory, one step, one epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ringconv._machine import peak_bytes
from ringconv._ring_kernel import RingKernel
from ringconv.data import DataSet
from ringconv.rings import clipped_sigma
from ringconv.training.augment import Augment
from ringconv.training.average import Average
from ringconv.training.loader import Part, Plan, Steps, load_steps
from ringconv.training.objective import loss_name, make_losses, score_name, scores
from ringconv.training.optimise import learning_rate, make_optimiser
from ringconv.training.order import seed_network
from ringconv.training.settings import TrainSettings
from ringconv.training.setup import build_network, check_data
from ringconv.training.snapshots import Snapshot

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class NotFiniteError(ArithmeticError):
    """The loss or the weights became infinite or not a number."""


@dataclass(frozen=True)
class Moment:
    """How far a run is; means are over the epoch so far."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    score: float
    score_name: str
    images_per_second: float
    seconds_left: float


class Training:
    """A network in training, with everything that decides how it goes on.

    The random numbers of a step are a function of the seed, the step and the device, so that there is no generator
    whose state would have to be kept; neither has the learning rate a state.

    Attributes:
        network: as it was built, on its device.
        step: steps done, over all epochs.
        epochs_done: epochs done and evaluated.
        best: the best validation score so far, in percent; None before the first.
        best_network: the weights that had it, if they are to be kept.
        last_means: mean loss and score, in percent, of the last complete epoch.
    """

    def __init__(self, fabric: Fabric, settings: TrainSettings, data: DataSet) -> None:
        self.fabric, self.settings, self.data = fabric, settings, data
        check_data(settings, data)
        self._losses = make_losses(loss_name(settings, data), settings.label_smoothing)
        self._augment = Augment.of(settings, data)
        self.plan = Plan(
            len(data["train"]), settings.batch_size, settings.accumulate, settings.seed,
            fabric.global_rank, fabric.world_size,
        )  # fmt: skip
        self.steps_per_epoch = self.plan.steps_per_epoch
        self.steps = settings.epochs * self.steps_per_epoch
        self._warmup = round(settings.warmup_epochs * self.steps_per_epoch)

        torch.manual_seed(settings.seed)
        network = build_network(settings, data)
        if settings.sync_batch_norm and fabric.world_size > 1:
            if fabric.device.type != "cuda":
                raise ValueError(f"sync_batch_norm needs GPUs, and the device is {fabric.device.type}")
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        if settings.channels_last:
            _lay_out(network, self._memory_format)
        self.network = network
        self.model, self.optimiser = fabric.setup(network, make_optimiser(network, settings))
        self.average = None if settings.ema is None else Average(network, settings.ema)

        self.step = self.epochs_done = 0
        self.best: float | None = None
        self.best_network: dict[str, Tensor] | None = None
        self.last_means = (math.nan, math.nan)
        self._earlier_peak: int | None = None
        # Sums over the images of the epoch so far: loss, score, number; and what they were when last logged.
        precise = torch.float32 if fabric.device.type == "mps" else torch.float64
        self._sums = torch.zeros(3, dtype=precise, device=fabric.device)
        self._logged = self._sums.clone()

    # -- the loop

    def steps_of_epoch(self) -> Iterator[list[Part]]:
        """The batches that are left of the present epoch."""
        first = self.epochs_done * self.steps_per_epoch
        steps = Steps(self.data["train"], self._augment, self.plan, self.epochs_done, first)
        self._batch_sizes = [steps.batch_size(index) for index in range(len(steps))]
        self.model.train()
        pin = self.fabric.device.type == "cuda"
        return load_steps(steps, self.step - first, self.settings.workers, pin)

    def train_step(self, parts: list[Part]) -> None:
        """One step of the optimiser, on the parts of a batch that this device does."""
        fabric, batch = self.fabric, self._batch_sizes[self.step - self.epochs_done * self.steps_per_epoch]
        seed_network(self.settings.seed, self.step, fabric.global_rank)
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr
        self.optimiser.zero_grad()
        for number, (images, targets) in enumerate(parts, 1):
            images, targets = self._to_device(images, targets)
            with fabric.no_backward_sync(self.model, enabled=number < len(parts)):
                output = self.model(images)
                losses = self._losses(output, targets)
                total = losses.sum()
                if self.checks_every_step and not math.isfinite(total.item()):
                    raise NotFiniteError(f"the loss became {total.item()}")
                # Devices' gradients are averaged; this makes their mean that of the whole batch, whatever their shares.
                fabric.backward(total * (fabric.world_size / batch))
            with torch.no_grad():
                score = scores(output, targets).sum()
                count = score.new_tensor(len(images))
                self._sums += torch.stack([total.detach().to(score), score, count])
        if self.settings.clip_norm is not None:
            fabric.clip_gradients(
                self.model, self.optimiser, max_norm=self.settings.clip_norm, error_if_nonfinite=False
            )
        self.optimiser.step()
        if self.average is not None:
            self.average.update(self.network, self.step)
        self.step += 1

    def finish_epoch(self) -> None:
        self.last_means = self.means()
        self.epochs_done += 1
        self._sums.zero_()
        self._logged.zero_()

    @property
    def epoch(self) -> float:
        """Epochs done, with the fraction of the present one."""
        return self.step / self.steps_per_epoch

    @property
    def lr(self) -> float:
        s = self.settings
        return learning_rate(min(self.step, self.steps - 1), self.steps, self._warmup, s.lr, s.min_lr)

    @property
    def checks_every_step(self) -> bool:
        """Reading the loss makes a GPU wait, and one of several devices must not stop alone."""
        return self.fabric.device.type == "cpu" and self.fabric.world_size == 1

    @property
    def _memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.data.dimensions == 2 else torch.channels_last_3d

    def _to_device(self, images: Tensor, targets: Tensor) -> Part:
        images, targets = self.fabric.to_device((images, targets))
        if self.settings.channels_last:
            images = images.contiguous(memory_format=self._memory_format)
        return images, targets

    # -- what can be seen of it

    def means(self) -> tuple[float, float]:
        """Mean loss and score, in percent, of the epoch so far, over all devices."""
        return self._means_of(self._sums)

    def means_since_last_time(self) -> tuple[float, float]:
        """Mean loss and score, in percent, since this was last asked in this epoch. Raises NotFiniteError."""
        loss, score = self._means_of(self._sums - self._logged)
        self._logged.copy_(self._sums)
        if not math.isfinite(loss):
            raise NotFiniteError(f"the loss became {loss}")
        return loss, score

    def _means_of(self, sums: Tensor) -> tuple[float, float]:
        total = self.fabric.all_reduce(sums.clone(), reduce_op="sum")
        assert isinstance(total, Tensor)
        loss, score, count = total.tolist()
        return loss / max(count, 1), 100 * score / max(count, 1)

    @property
    def score_name(self) -> str:
        return score_name(self.data)

    def tested_network(self) -> nn.Module:
        """What is validated and tested: the average of the weights, if there is one."""
        return self.network if self.average is None else self.average.module

    def ring_widths(self) -> dict[str, list[float]]:
        """sigma of every ring that is trained, as its layer uses it, by layer; of layers with a width per channel, the
        mean of each ring's. In pixels, or with ``sampling="binned"`` in ring indices."""
        widths = {}
        for name, layer in self.network.named_modules():
            if isinstance(layer, RingKernel) and isinstance(layer.log_sigma, nn.Parameter):
                sigma = clipped_sigma(layer.log_sigma.detach().float(), layer.geometry.sigma_range)
                widths[name] = sigma.reshape(-1, layer.rings).mean(0).tolist()
        return widths

    # -- stopping and going on

    def check_finite(self) -> None:
        """Raises NotFiniteError if a weight is not a finite number: such a state is not worth keeping."""
        for name, parameter in self.network.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise NotFiniteError(f"{name} became infinite or not a number")

    def peak_bytes(self) -> int | None:
        """The most memory that a process of this run held until now; None where the system does not tell."""
        known = [peak for peak in (self._earlier_peak, peak_bytes()) if peak is not None]
        return max(known, default=None)

    def snapshot(self, **more: Any) -> Snapshot:
        """Everything that decides how the run goes on, and ``more`` plain values."""
        state = {
            "epochs_done": self.epochs_done,
            "best": self.best,
            "best_network": self.best_network,
            "last_means": self.last_means,
            "sums": self._sums.cpu(),
            "logged": self._logged.cpu(),
            "optimiser": self.optimiser.state_dict(),
            "average": None if self.average is None else self.average.module.state_dict(),
            "scaler": self.fabric.strategy.precision.state_dict(),
            "peak_bytes": self.peak_bytes(),
            **more,
        }
        return Snapshot(self.step, self.network.state_dict(), state)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to where a snapshot was taken."""
        state = snapshot.state
        self._earlier_peak = state.get("peak_bytes")  # which earlier versions did not write
        self.network.load_state_dict(snapshot.network)
        self.optimiser.load_state_dict(state["optimiser"])
        if self.average is not None:
            self.average.module.load_state_dict(state["average"])
        self.fabric.strategy.precision.load_state_dict(state["scaler"])
        self.step, self.epochs_done = snapshot.step, state["epochs_done"]
        self.best, self.best_network, self.last_means = state["best"], state["best_network"], state["last_means"]
        self._sums.copy_(state["sums"])
        self._logged.copy_(state["logged"])


def _lay_out(network: nn.Module, memory_format: torch.memory_format) -> None:
    """As ``network.to(memory_format=...)``, which fails at tensors of other numbers of axes, as escnn's tables are."""
    axes = 4 if memory_format == torch.channels_last else 5
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.dim() == axes:
            tensor.data = tensor.data.contiguous(memory_format=memory_format)


class Pace:
    """Images per second and the time left, from the steps of this process."""

    def __init__(
        self, training: Training, earlier: float = 0.0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._training, self._earlier, self._clock = training, earlier, clock
        self._started, self._first_step = clock(), training.step
        self._apart = self._data = 0.0

    def leave_out(self, seconds: float) -> None:
        """Time that was not spent on training steps."""
        self._apart += seconds

    def waited_for_data(self, seconds: float) -> None:
        self._data += seconds

    @property
    def data_share(self) -> float:
        """Share of the training time spent waiting for images."""
        return self._data / max(self._seconds, 1e-9)

    @property
    def total_seconds(self) -> float:
        """Spent on training steps, in this process and those before it."""
        return self._earlier + self._seconds

    @property
    def _seconds(self) -> float:
        return self._clock() - self._started - self._apart

    def moment(self) -> Moment:
        training = self._training
        loss, score = training.means()
        done = training.step - self._first_step
        per_step = self._seconds / max(done, 1)
        images = training.plan.images / training.steps_per_epoch
        return Moment(
            training.step, training.steps, min(training.epochs_done + 1, training.settings.epochs),
            training.settings.epochs, loss, score, training.score_name,
            images / max(per_step, 1e-9), per_step * (training.steps - training.step),
        )  # fmt: skip
