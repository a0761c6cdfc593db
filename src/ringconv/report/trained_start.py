"""Does a converted network learn faster from the kernels of a trained one? Measured, for docs/conversion.md."""

from __future__ import annotations

import copy
import functools
import itertools
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._progress import Progress
from ringconv.convert import convert, recalibrate_batchnorm
from ringconv.models import resnet
from ringconv.report.conversion_table import COMMAND, write_section
from ringconv.training.optimise import parameter_groups

Schedule = Literal["one cycle", "constant"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
"""Of the learning rate: up and down to zero, or always the same."""

_KEYS = ("train_images", "train_labels", "test_images", "test_labels")
_BATCH = 64
_LEARNING_RATE = 2e-3
_WEIGHT_DECAY = 1e-2


@dataclass(frozen=True)
class TrainedStartSettings:
    """How long the networks learn. The same settings give the same figures on the same machine."""

    plain_epochs: int = 12
    """Of the network that is converted."""
    budgets: tuple[int, ...] = (3, 6, 12)
    """Epochs of the converted networks; each budget is a training of its own."""
    width: int = 16
    side: int = 32
    """Images are averaged to this size."""

    def __post_init__(self) -> None:
        for name in ("plain_epochs", "width", "side"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.budgets or min(self.budgets) < 1 or list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError(f"budgets must be rising numbers of epochs from 1 on, got {self.budgets}")


@dataclass(frozen=True)
class Images:
    """Images (N, C, H, W), normalised, and labels (N,)."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def load_images(path: Path, side: int) -> Images:
    """From an npz file in the layout of MedMNIST; 8-bit images (N, H, W[, C])."""
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in _KEYS if key not in file]
        if missing:
            raise ValueError(f"{path} has no {', '.join(missing)}; it has {', '.join(file)}")
        arrays = {key: torch.from_numpy(np.asarray(file[key])) for key in _KEYS}

    def images(part: Tensor) -> Tensor:
        maps = (part if part.dim() == 4 else part.unsqueeze(-1)).permute(0, 3, 1, 2).float().div(255)
        return F.adaptive_avg_pool2d(maps, (side, side))

    train, test = images(arrays["train_images"]), images(arrays["test_images"])
    mean, std = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    labels = [arrays[key].flatten().long() for key in ("train_labels", "test_labels")]
    return Images((train - mean) / std, labels[0], (test - mean) / std, labels[1])


@dataclass(frozen=True)
class TrainedStart:
    """Test accuracies in percent."""

    plain: float
    """Of the network that was converted."""
    untouched: float
    """Of the projected network before batch norm was re-estimated."""
    by_budget: dict[Schedule, dict[str, dict[int, float]]]
    """Schedule -> start -> epochs -> accuracy; 0 epochs is before training."""


NEW, NEW_KERNELS, PROJECTED = "new network", "trained, but new kernels", "projected kernels, batch norm re-estimated"


def trained_start(
    images: Images, settings: TrainedStartSettings, seed: int = 0, progress: Progress | None = None
) -> TrainedStart:
    """Train a plain network, convert it, and train what was converted from several starts and for several budgets.

    All converted networks have the same architecture, and see the images of a budget in the same order.
    """
    report = progress or (lambda stage, done, total: None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classes = int(images.train_labels.max()) + 1
        plain: nn.Module = resnet(18, width=settings.width, in_chans=images.train.shape[1], num_classes=classes)
        fresh = convert(plain)
        _train(plain, images, settings.plain_epochs, "one cycle", functools.partial(report, f"seed {seed}: plain"))
        projected = convert(plain, from_weights=True)
        untouched = _accuracy(projected, images)
        recalibrate_batchnorm(projected, torch.split(images.train, 4 * _BATCH))
        starts = {NEW: fresh, NEW_KERNELS: convert(plain), PROJECTED: projected}
        by_budget: dict[Schedule, dict[str, dict[int, float]]] = {}
        for schedule in SCHEDULES:
            by_budget[schedule] = {}
            for name, start in starts.items():
                accuracies = by_budget[schedule][name] = {0: _accuracy(start, images)}
                for budget in settings.budgets:
                    torch.manual_seed(seed)
                    network = copy.deepcopy(start)
                    tell = functools.partial(report, f"seed {seed}: {schedule}, {name}, {budget} epochs")
                    _train(network, images, budget, schedule, tell)
                    accuracies[budget] = _accuracy(network, images)
    return TrainedStart(_accuracy(plain, images), untouched, by_budget)


def _train(
    network: nn.Module, images: Images, epochs: int, schedule: Schedule, report: Callable[[int, int], None]
) -> None:
    optimizer = torch.optim.AdamW(parameter_groups(network, _WEIGHT_DECAY, "weights"), lr=_LEARNING_RATE)
    steps = epochs * -(-len(images.train) // _BATCH)
    rate: torch.optim.lr_scheduler.LRScheduler = (
        torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps, pct_start=0.2)
        if schedule == "one cycle"
        else torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    )
    network.train()
    for epoch in range(epochs):
        for chosen in torch.split(torch.randperm(len(images.train)), _BATCH):
            loss = F.cross_entropy(network(images.train[chosen]), images.train_labels[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rate.step()
        report(epoch + 1, epochs)


@torch.no_grad()
def _accuracy(network: nn.Module, images: Images) -> float:
    network.eval()
    guesses = torch.cat([network(part).argmax(1) for part in torch.split(images.test, 256)])
    return 100.0 * float((guesses == images.test_labels).float().mean())


def markdown(results: dict[int, TrainedStart], settings: TrainedStartSettings, source: str) -> str:
    """
    Args:
        results: by seed.
    """
    budgets = (0, *settings.budgets)
    head = " | ".join(f"{budget} epochs" for budget in budgets)
    lines = [f"| learning rate | start | {head} |", "|---|---|" + "---:|" * len(budgets)]
    for schedule, start in itertools.product(SCHEDULES, (NEW, NEW_KERNELS, PROJECTED)):
        of_seeds = [result.by_budget[schedule][start] for result in results.values()]
        cells = [_figures(accuracies[budget] for accuracies in of_seeds) for budget in budgets]
        lines.append(f"| {schedule} | {start} | {' | '.join(cells)} |")
    text = _TEXT.format(
        settings=settings,
        rate=_LEARNING_RATE,
        batch=_BATCH,
        plain=_figures(result.plain for result in results.values()),
        untouched=_figures(result.untouched for result in results.values()),
        seeds=_listed(results),
    )
    return _SECTION.format(
        command=f"{COMMAND} --trained-start --data {source} --seeds {' '.join(map(str, results))}",
        table="\n".join(lines),
        text=textwrap.fill(text, 120),
        verdict=textwrap.fill(_verdict(list(results.values()), settings.budgets), 120),
    )


def _figures(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _verdict(results: Sequence[TrainedStart], budgets: Sequence[int]) -> str:
    """What the projected start is worth, in points and in epochs of a new network; means over the seeds."""
    parts = []
    for schedule in SCHEDULES:
        new, projected = (
            {b: statistics.fmean(result.by_budget[schedule][start][b] for result in results) for b in budgets}
            for start in (NEW, PROJECTED)
        )
        for budget, reached in projected.items():
            enough = next((b for b in budgets if new[b] >= reached), None)
            needs = f"at most {enough} epochs" if enough else f"more than {budgets[-1]} epochs"
            gain = f"{reached - new[budget]:+.1f} points"
            parts.append(f"{schedule}, {budget} epochs: {gain}; a new network needs {needs} for as much")
    return (
        f"The projected start against the new network, mean of {len(results)} seeds. {'. '.join(parts)}."
        " One small network and data set: an indication."
    )


_SECTION = """\
## Starting from trained weights

Made by `{command}`; do not edit by hand.

{text}

{table}

{verdict}
"""

_TEXT = (
    "A plain ResNet-18 of width {settings.width} learned {settings.plain_epochs} epochs ({plain}% on the test images,"
    " which are averaged to {settings.side} x {settings.side} pixels) and was converted, kernel sizes kept. Then every"
    " start learned anew for each number of epochs, under the same settings (AdamW, batch {batch}, no augmentation; a"
    " learning rate that goes up to {rate:g} and down to zero in one cycle, or is {rate:g} throughout). *New network*:"
    " all weights new. *Trained, but new kernels*: norms, 1x1 convolutions and head of the plain network, ring kernels"
    " new, as `convert(model)` gives it. *Projected kernels*: `convert(model, from_weights=True)`, then"
    " `recalibrate_batchnorm`; without the latter it has {untouched}% before training. Accuracy on the upright test"
    " images in percent, seeds {seeds}."
)


def write_trained_start(
    data: Path,
    out: Path = Path("docs/conversion.md"),
    seeds: Sequence[int] = (0, 1),
    settings: TrainedStartSettings | None = None,
    progress: Progress | None = None,
) -> Path:
    """Measure, and write the section of the page about it."""
    if not seeds:
        raise ValueError("seeds must be one or more numbers, got none")
    settings = settings or TrainedStartSettings()
    images = load_images(data, settings.side)
    results = {seed: trained_start(images, settings, seed, progress) for seed in seeds}
    return write_section(out, "trained start", markdown(results, settings, data.name))
