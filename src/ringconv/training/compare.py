"""Train a plain and a ring network on upright images; test them upright, at every angle and mirrored."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._machine import forget_peak, peak_bytes
from ringconv._progress import Progress
from ringconv.data.textures import PHOTOGRAPHS, Mirror, Textures, load_textures
from ringconv.training.networks import KINDS, Kind, small_network
from ringconv.training.optimise import parameter_groups

ANGLE_STEP = 10
MIRRORS: tuple[Mirror, ...] = ("horizontal", "vertical")

_ALLOWED = {
    "epochs": (1, 10_000),
    "seed": (0, 2**32 - 1),
    # The photographs have places for a few more.
    "train_patches": (1, 3_000),
    "test_patches": (1, 1_000),
}
_BATCH = 64
_LEARNING_RATE = 1e-2
_WEIGHT_DECAY = 1e-2


@dataclass(frozen=True)
class CompareSettings:
    """What a comparison can be asked for. The same settings give the same figures on the same machine."""

    epochs: int = 20
    """Passes over the training patches."""
    seed: int = 0
    """Decides which patches are drawn, the initial weights and the order of training."""
    train_patches: int = 150
    """Training patches per class."""
    test_patches: int = 100
    """Test patches per class."""

    def __post_init__(self) -> None:
        for name, (least, most) in _ALLOWED.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} must be from {least:,} to {most:,}, got {value:,}")


@dataclass(frozen=True)
class ModelResult:
    """How one network did. Accuracies are in percent."""

    kind: Kind
    parameters: int
    train_seconds: float
    per_angle: dict[int, float]
    """Accuracy on the test patches turned by 0, 10, ..., 350 degrees."""
    per_mirror: dict[Mirror, float]
    """Accuracy on the test patches mirrored."""
    peak_bytes: int | None = None
    """The most memory that the process held during training; None if not known."""

    @property
    def upright(self) -> float:
        return self.per_angle[0]

    @property
    def rotated(self) -> float:
        """Mean over all angles."""
        return statistics.fmean(self.per_angle.values())

    @property
    def std(self) -> float:
        """Standard deviation over all angles, which are the whole population."""
        return statistics.pstdev(self.per_angle.values())

    @property
    def worst_angle(self) -> int:
        return min(self.per_angle, key=self.per_angle.__getitem__)

    @property
    def worst(self) -> float:
        return self.per_angle[self.worst_angle]

    @property
    def spread(self) -> float:
        """Best angle minus worst angle."""
        return max(self.per_angle.values()) - self.worst

    @property
    def mirrored(self) -> float:
        """Mean over both flips."""
        return statistics.fmean(self.per_mirror.values())


@dataclass(frozen=True)
class Comparison:
    """Both networks, trained and tested on the same patches."""

    settings: CompareSettings
    plain: ModelResult
    ring: ModelResult
    networks: Mapping[Kind, nn.Module] = field(default_factory=dict, compare=False, repr=False)
    """As they were tested."""

    @property
    def models(self) -> tuple[ModelResult, ModelResult]:
        return self.plain, self.ring


def compare(settings: CompareSettings | None = None, progress: Progress | None = None) -> Comparison:
    """Train both networks on upright patches of real photographs, and test them upright, turned and mirrored.

    Args:
        settings: default ``CompareSettings()``, about a minute on two cores.
        progress: called after every step of training and testing.
    """
    settings = settings or CompareSettings()
    report = progress or (lambda stage, done, total: None)
    train = load_textures("train", settings.train_patches, settings.seed)
    test = load_textures("test", settings.test_patches, settings.seed)

    networks: dict[Kind, nn.Module] = {}
    seconds: dict[Kind, float] = {}
    memory: dict[Kind, int | None] = {}
    for kind in KINDS:
        forget_peak()
        started = time.perf_counter()
        networks[kind] = trained(kind, train, settings, report)
        seconds[kind] = time.perf_counter() - started
        memory[kind] = peak_bytes()

    per_angle: dict[Kind, dict[int, float]] = {kind: {} for kind in KINDS}
    per_mirror: dict[Kind, dict[Mirror, float]] = {kind: {} for kind in KINDS}
    labels = torch.from_numpy(test.labels)
    turns = 360 // ANGLE_STEP
    for done, (angle, patches) in enumerate(test.turns(ANGLE_STEP), 1):
        for kind, network in networks.items():
            per_angle[kind][angle] = accuracy(network, patches, labels)
        report("test both", done, turns + len(MIRRORS))
    for done, mirror in enumerate(MIRRORS, turns + 1):
        for kind, network in networks.items():
            per_mirror[kind][mirror] = accuracy(network, test.view(mirror=mirror), labels)
        report("test both", done, turns + len(MIRRORS))

    def result(kind: Kind) -> ModelResult:
        parameters = sum(parameter.numel() for parameter in networks[kind].parameters())
        in_order = dict(sorted(per_angle[kind].items()))
        return ModelResult(kind, parameters, seconds[kind], in_order, per_mirror[kind], memory[kind])

    return Comparison(settings, result("plain"), result("ring"), networks)


@torch.no_grad()
def accuracy(network: nn.Module, patches: Tensor, labels: Tensor, batch: int = 256) -> float:
    """Percentage of ``patches`` (N, 1, H, W) that ``network`` gives their label (N,)."""
    network.eval()
    guesses = torch.cat([network(some).argmax(1) for some in torch.split(patches, batch)])
    return 100.0 * int((guesses == labels).sum()) / len(labels)


def trained(kind: Kind, train: Textures, settings: CompareSettings, report: Progress) -> nn.Module:
    """A network trained on the patches as they are."""
    patches, labels = train.view(), torch.from_numpy(train.labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = small_network(kind, len(PHOTOGRAPHS))
        # Each epoch is its own shuffle; a last short batch would only make the batch statistics noisy.
        batches = max(1, len(patches) // _BATCH)
        steps = settings.epochs * batches
        optimizer = torch.optim.AdamW(parameter_groups(network, _WEIGHT_DECAY, "weights"), lr=_LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps, pct_start=0.2)
        network.train()
        for epoch in range(settings.epochs):
            order = torch.randperm(len(patches))
            for batch in range(batches):
                chosen = order[batch * _BATCH : (batch + 1) * _BATCH]
                loss = F.cross_entropy(network(patches[chosen]), labels[chosen])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                report(f"train {kind}", epoch * batches + batch + 1, steps)
    return network
