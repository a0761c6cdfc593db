"""All methods on one budget: trained upright on the same images with equally many operations, then tested turned.

One small file per contender keeps what was found, so that a run that was stopped goes on where it was, and so that
contenders that need another environment can be added from there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._extras import MissingExtraError
from ringconv._files import write_whole
from ringconv._progress import Progress
from ringconv._version import __version__
from ringconv.data import DataSet, open_data, stratified_subset
from ringconv.evaluation import Evaluation, EvaluationSettings, evaluate
from ringconv.models import create_model, model_entry
from ringconv.models.operations import count_operations
from ringconv.training.augment import turn_2d, warp
from ringconv.training.optimise import learning_rate, parameter_groups

BACKWARD = 2
"""The backward pass is counted as twice the forward one: a gradient of the input and one of the weights."""


@dataclass(frozen=True)
class Budget:
    """What all contenders have in common."""

    teraflops: float = 2.0
    """Operations of training, in units of 10^12: forward and backward of all images that are seen."""
    most_epochs: int = 40
    """Cheap networks stop here, before they have used up their operations."""
    epochs: int | None = None
    """Instead of equal operations: so many epochs for all, whatever they cost."""
    width: int = 16
    """Base width, in channels of the plain network."""
    size: int = 32
    """Images are squashed to this side."""
    batch_size: int = 32
    lr: float = 5e-3
    """Highest learning rate of AdamW, on a cosine after a tenth of the steps."""
    weight_decay: float = 1e-2
    train_images: int | None = None
    """Only so many, every class in its proportion."""
    test_images: int = 500
    """So many, every class in its proportion, at every angle."""
    step: float = 30
    """Degrees between angles."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.teraflops) and self.teraflops > 0):
            raise ValueError(f"teraflops must be above 0, got {self.teraflops}")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        for name in ("most_epochs", "width", "size", "batch_size", "test_images"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Contender:
    """A network and how it is trained and tested."""

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    width_share: float = 1.0
    """Of the budget's width, for networks that are far more expensive at equal width."""
    turned: bool = False
    """Train on images turned by any angle."""
    averages: tuple[int, ...] = ()
    """Also test its mean over so many turned and mirrored views."""


@dataclass(frozen=True)
class Found:
    """What a contender reached. Accuracies are in percent."""

    name: str
    model: str
    note: str
    parameters: int
    forward_gigaflops: float
    """Of one image in a batch."""
    teraflops: float
    """Used in training."""
    epochs: float
    train_seconds: float
    saved_megabytes: float
    """What one training batch keeps for its backward pass."""
    loss: float
    """Mean over the last twentieth of the steps."""
    scores: dict[str, dict[str, Any]]
    """Of the network itself (""), and of its mean over "4" or "8" views."""
    budget: dict[str, Any]
    data: str
    versions: dict[str, str]


CONTENDERS = (
    Contender("plain", "resnet18", averages=(4, 8)),
    Contender("plain, turned in training", "resnet18", turned=True),
    Contender("GMR-Conv", "gmr_resnet18", {"preset": "paper"}),
    Contender("GMR-Conv, area, unit norm", "gmr_resnet18", {"preset": "paper", "sampling": "area", "normalize": True}),
    Contender("SRE-Conv", "sre_resnet18"),
    Contender("Symm-Conv", "symm_resnet18"),
    Contender("G-CNN p4", "p4_resnet18"),
    Contender("G-CNN p4m", "p4m_resnet18"),
    Contender("ORN", "orn_resnet18"),
    Contender("H-Net, 3x3, half width", "harmonic_resnet18", {"kernel_size": 3, "stem_kernel_size": 3}, 0.5),
    Contender("RIC-CNN", "ric_resnet18"),
    Contender("RAD-3, ResNet-34", "rad_resnet34"),
    Contender("RSDW-3, ResNet-34", "rsdw_resnet34"),
    Contender("E(2)-WRN16, half width", "e2_wrn16", {"stem_pool": True}, 0.5),
    Contender("E(2)-WRN16 of order 0, half width", "e2_order0_wrn16", {"stem_pool": True}, 0.5),
)


def run_budget(
    data: DataSet | str | Path,
    out: Path,
    budget: Budget | None = None,
    contenders: Sequence[Contender] = CONTENDERS,
    progress: Progress | None = None,
) -> tuple[list[Found], dict[str, str]]:
    """Train and test every contender that ``out`` does not have yet.

    Returns:
        what was found, earlier or now, and why contenders are missing, by their names.

    Raises:
        ValueError: ``out`` holds results of another budget or other data.
    """
    budget = budget or Budget()
    opened = data if isinstance(data, DataSet) else open_data(data, size=budget.size)
    out.mkdir(parents=True, exist_ok=True)
    found, missing = [], {}
    for contender in contenders:
        path = out / f"{_file_name(contender.name)}.json"
        earlier = _read(path) if path.exists() else None
        if earlier is None:
            try:
                earlier = _train_and_test(contender, opened, budget, progress)
            except MissingExtraError as error:
                missing[contender.name] = str(error)
                continue
            write_whole(path, json.dumps(asdict(earlier), indent=1) + "\n")
        elif earlier.budget != asdict(budget) or earlier.data != opened.name:
            raise ValueError(
                f"{path} is of another budget or other data ({earlier.data}, {earlier.budget}); take another folder"
            )
        found.append(earlier)
    return found, missing


def read_budget(out: Path) -> list[Found]:
    """What a folder holds, in the order of CONTENDERS, others after them."""
    order = {contender.name: place for place, contender in enumerate(CONTENDERS)}
    found = [_read(path) for path in sorted(out.glob("*.json"))]
    return sorted(found, key=lambda row: order.get(row.name, len(order)))


def _train_and_test(contender: Contender, data: DataSet, budget: Budget, progress: Progress | None) -> Found:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(budget.seed)
        network = create_model(
            contender.model, num_classes=len(data.classes), in_chans=data.channels,
            width=max(1, round(contender.width_share * budget.width)),
            **contender.options,
        )  # fmt: skip
        images, labels = _training_images(data, budget)
        first = images[: budget.batch_size]
        forward = forward_operations(network, first) / len(first)
        batches = max(1, len(images) // budget.batch_size)
        per_step = (1 + BACKWARD) * forward * len(first)
        steps = min(budget.most_epochs * batches, math.ceil(budget.teraflops * 1e12 / per_step))
        if budget.epochs is not None:
            steps = budget.epochs * batches
        saved = _saved_bytes(network.train(), first)
        started = time.perf_counter()
        loss = _train(network, images, labels, contender, budget, steps, batches, progress)
        seconds = time.perf_counter() - started
    scores = {"": _scores(network, data, budget, None, progress)}
    for views in contender.averages:
        scores[str(views)] = _scores(network, data, budget, views, progress)
    return Found(
        name=contender.name,
        model=contender.model,
        note=model_entry(contender.model).note,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        forward_gigaflops=forward / 1e9,
        teraflops=steps * per_step / 1e12,
        epochs=steps / batches,
        train_seconds=round(seconds, 2),
        saved_megabytes=round(saved / 1e6, 2),
        loss=round(loss, 4),
        scores=scores,
        budget=asdict(budget),
        data=data.name,
        versions={"ringconv": __version__, "torch": torch.__version__},
    )


def forward_operations(network: nn.Module, x: Tensor) -> int:
    """:func:`count_operations` in eval mode, also of networks of escnn; mode and ``requires_grad`` are restored."""
    was_training = network.training
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    # torch's counter cannot follow slices of parameters that want a gradient, which escnn passes between modules.
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        return count_operations(network.eval(), x)
    finally:
        network.train(was_training)
        for parameter in trained:
            parameter.requires_grad_()


def _training_images(data: DataSet, budget: Budget) -> tuple[Tensor, Tensor]:
    """All of them at once, normalised: (N, C, H, W), with labels (N,)."""
    train = data["train"]
    if budget.train_images is not None and train.labels is not None:
        train = train.take(stratified_subset(train.labels, budget.train_images, budget.seed))
    images, labels = train.batch(slice(None))
    return data.normalise(images), labels


def _train(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    contender: Contender,
    budget: Budget,
    steps: int,
    batches: int,
    progress: Progress | None,
) -> float:
    """Train in place; the mean loss at the end."""
    optimiser = torch.optim.AdamW(parameter_groups(network, budget.weight_decay, "weights"), lr=budget.lr)
    losses: list[float] = []
    order = torch.empty(0, dtype=torch.int64)
    for step in range(steps):
        if step % batches == 0:
            order = torch.randperm(len(images))
        at = step % batches * budget.batch_size
        chosen = order[at : at + budget.batch_size]
        batch = images[chosen]
        if contender.turned:
            batch = warp(batch, F.pad(turn_2d(360 * torch.rand(len(batch)), batch), (0, 1)))
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, steps, steps // 10, budget.lr, 0.0)
        loss = F.cross_entropy(network(batch), labels[chosen])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(f"train {contender.name}", step + 1, steps)
    last = losses[-max(1, steps // 20) :]
    return sum(last) / len(last)


def _scores(
    network: nn.Module, data: DataSet, budget: Budget, views: int | None, progress: Progress | None
) -> dict[str, Any]:
    settings = EvaluationSettings(
        step=budget.step, symmetrise=views, subset=budget.test_images, seed=budget.seed, batch_size=100
    )
    tested: Evaluation = evaluate(network, data, settings, progress=progress)
    return next(iter(tested.scores.values())).as_dict()


def _saved_bytes(network: nn.Module, images: Tensor) -> int:
    # Not at the top: the benchmarks need rich.
    from ringconv.benchmark.memory import saved_bytes

    return saved_bytes(network, images)


def _read(path: Path) -> Found:
    return Found(**json.loads(path.read_text(encoding="utf-8")))


def _file_name(name: str) -> str:
    """Letters, digits and dashes only."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in name.lower())
    return "-".join(part for part in kept.split("-") if part)


# -- the table

_HEADER = (
    "method", "parameters", "GFLOP per image", "TFLOP of training", "epochs", "upright", "rotated", "std", "reflected",
    "loss", "training, s", "kept for backward, MB",
)  # fmt: skip


def budget_table(found: Iterable[Found]) -> str:
    """Markdown: one row per contender, and one for every averaging of its views."""
    rows: list[Sequence[str]] = [_HEADER, ["---", *["---:"] * (len(_HEADER) - 1)]]
    for row in found:
        mark = " (our reading)" if row.note.startswith("our reading") else ""
        for views, scores in row.scores.items():
            name = f"{row.name}{mark}" if not views else f"{row.name}, mean of {views} views"
            costs = (
                [f"{row.loss:.2f}", f"{row.train_seconds:.0f}", f"{row.saved_megabytes:.0f}"]
                if not views
                else ["", "", ""]
            )
            rows.append(
                [
                    name,
                    f"{row.parameters:,}",
                    f"{row.forward_gigaflops * int(views or 1):.3f}",
                    f"{row.teraflops:.2f}",
                    f"{row.epochs:.1f}",
                    *(f"{scores[key]:.1f}" for key in ("upright", "rotated_mean")),
                    f"{scores['rotated_std']:.2f}",
                    f"{scores['reflected_mean']:.1f}",
                    *costs,
                ]
            )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
