"""Whole networks with equal stems and equal map sizes: images per second, saved bytes, peak memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._extras import MissingExtraError
from ringconv.benchmark.cases import Mode
from ringconv.benchmark.memory import cuda_peak_bytes, in_fresh_process, saved_bytes
from ringconv.benchmark.peers import Call, Unavailable, import_authors
from ringconv.benchmark.results import Row, timing_columns
from ringconv.benchmark.suites import Settings, Step
from ringconv.benchmark.timing import interleave
from ringconv.models import create_model, gmr_resnet, resnet

_CLASSES = 10
_LARGEST_E2 = 64
_PEAK_RUNS = 3
"""Processes of which the median peak counts: what the allocator keeps differs by up to a tenth between them."""


@dataclass(frozen=True)
class Setting:
    """What all networks of a comparison have in common, and their input."""

    batch: int
    side: int
    stem_pool: bool
    """Whether the stem halves the map. The paper leaves it out for small images."""
    width: int = 64


SETTINGS = (Setting(64, 32, stem_pool=False), Setting(8, 224, stem_pool=True))
QUICK = (Setting(2, 16, stem_pool=False, width=8),)


def _plain(setting: Setting) -> nn.Module:
    return resnet(18, stem_pool=setting.stem_pool, width=setting.width, num_classes=_CLASSES)


def _ring(setting: Setting) -> nn.Module:
    return gmr_resnet(
        18, stem_pool=setting.stem_pool, width=setting.width, num_classes=_CLASSES, preset="paper"
    )  # fmt: skip


def _authors(setting: Setting) -> nn.Module:
    network: nn.Module = import_authors("GMR_Conv.gmr_resnet").gmr_resnet18(
        num_classes=_CLASSES,
        gmr_conv_size=[9, 9, 5, 5],
        inplanes=setting.width,
        skip_first_maxpool=not setting.stem_pool,
    )
    return network


def _e2(setting: Setting) -> nn.Module:
    """A network of its own: neither stem, width nor map sizes are those of the others."""
    if setting.side > _LARGEST_E2:
        raise Unavailable(
            f"its maps are never smaller than the image, which is timed up to {_LARGEST_E2}x{_LARGEST_E2}"
        )
    try:
        return create_model("e2_wrn16", num_classes=_CLASSES)
    except MissingExtraError as error:
        raise Unavailable(str(error)) from error


NETWORKS: dict[str, Callable[[Setting], nn.Module]] = {
    "resnet18": _plain,
    "resnet18_channels_last": _plain,
    "gmr_resnet18": _ring,
    "e2_wrn16": _e2,
    "authors": _authors,
}
"""A name that ends in _channels_last has its network and input in that layout."""


def prepare_network(name: str, setting: Setting, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """The network and a batch of images, (B, 3, H, W)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[name](setting)
        x = torch.randn(setting.batch, 3, setting.side, setting.side)
    if name.endswith("_channels_last"):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    return network, x


def training_step(network: nn.Module, x: Tensor) -> Call:
    """Forward, backward, and an update by SGD with momentum."""
    network.train()
    labels = torch.arange(len(x), device=x.device) % _CLASSES
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def inference(network: nn.Module, x: Tensor) -> Call:
    network.eval()

    def infer() -> Tensor:
        with torch.no_grad():
            y: Tensor = network(x)
            return y

    return infer


def steps(settings: Settings) -> list[Step]:
    """The suite "models"."""
    names = settings.chosen(NETWORKS)
    found: list[Step] = []
    for setting in QUICK if settings.quick else SETTINGS:
        for mode in settings.modes:
            work = functools.partial(_measure_speed, names, setting, mode, settings)
            found.append(Step(f"{setting.side}x{setting.side}, {mode}", work))
        for name in names:
            work = functools.partial(_measure_memory, name, setting, settings)
            found.append(Step(f"{setting.side}x{setting.side}, memory of {name}", work))
    return found


def _measure_speed(names: list[str], setting: Setting, mode: Mode, settings: Settings) -> list[Row]:
    calls: dict[str, Call] = {}
    reasons: dict[str, str] = {}
    for name in names:
        try:
            with settings.device.building():
                network, x = prepare_network(name, setting, settings.seed)
        except Unavailable as reason:
            reasons[name] = str(reason)
        else:
            calls[name] = training_step(network, x) if mode == "training" else inference(network, x)
    timings = interleave(calls, **settings.timing())
    return [
        {"mode": mode, "peer": name}
        | asdict(setting)
        | timing_columns(timings.get(name))
        | {"images_per_second": round(setting.batch / timings[name].median, 3) if name in timings else ""}
        | {"note": reasons.get(name, "")}
        for name in names
    ]


def _measure_memory(name: str, setting: Setting, settings: Settings) -> list[Row]:
    row: Row = {"mode": "memory", "peer": name} | asdict(setting)
    try:
        with settings.device.building():
            network, x = prepare_network(name, setting, settings.seed)
    except Unavailable as reason:
        return [row | {"note": str(reason)}]
    if settings.device.has_memory_counters:
        peaks = [cuda_peak_bytes(training_step(network, x))]
    else:
        numbers = [str(int(value)) for value in asdict(setting).values()]
        runs = range(1 if settings.quick else _PEAK_RUNS)
        peaks = sorted(int(in_fresh_process("ringconv.benchmark._peak", [name, *numbers])) for _ in runs)
    saved = saved_bytes(network.train(), x)
    return [row | {"saved_bytes": saved, "peak_bytes": peaks[len(peaks) // 2], "peak_spread": peaks[-1] - peaks[0]}]
