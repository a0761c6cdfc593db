"""The page on scaling: the cost model, how well it predicts, and what it predicts where nothing has been measured."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ringconv.benchmark.cases import MODES
from ringconv.benchmark.cost_model import (
    METHODS,
    Fit,
    Measurement,
    Rates,
    fit,
    grouped,
    judge,
    live,
    read_suites,
    read_table,
)
from ringconv.benchmark.gpu_prediction import (
    A100,
    A5000,
    GPUS,
    PAPER_CASES,
    gpu_seconds,
    paper_measurements,
    paper_rates,
)
from ringconv.benchmark.network_cost import NetworkCost, all_reduce_seconds, network_cost
from ringconv.models import gmr_resnet, resnet
from ringconv.ops import Computable
from ringconv.ops.choice import TRITON_IS_THERE
from ringconv.ops.gpu.blocks import chosen
from ringconv.ops.gpu.resources import TASKS, kernel_resources

_IMAGES, _EPOCHS, _BATCH = 1_281_167, 100, 96
"""ImageNet-1k, and the paper's training: epochs, and images for each GPU."""
_NETWORK_LINK = 25e9
"""Bytes per second between machines of a cluster, per GPU, as assumed (200 Gbit/s each)."""


class ModelFit(NamedTuple):
    """The constants, fitted to the grid, and their errors on the suites, which are other runs of other shapes."""

    rates: Mapping[Computable, Rates]
    suites: list[Measurement]

    def overall(self) -> Fit | None:
        return judge(self.rates, self.suites)

    def by_suite(self) -> dict[str, Fit]:
        return self._judged(grouped(self.suites, lambda m: m.source))

    def by_method(self) -> dict[str, Fit]:
        return self._judged(grouped(self.suites, lambda m: f"{m.method}, {m.mode}"))

    def _judged(self, groups: Mapping[str, list[Measurement]]) -> dict[str, Fit]:
        return {name: found for name, group in groups.items() if (found := judge(self.rates, group)) is not None}


def fit_cpu(results: Path, table: Path) -> ModelFit:
    """Fit the constants to the grid in ``table``; the same CPU's suites in the folder ``results`` are for judging."""
    grid = read_table(table)
    return ModelFit(fit(grid), read_suites(results, {measurement.cpu for measurement in grid}))


def scaling_page(fitted: ModelFit, results: Path) -> str:
    """Markdown. Counting the networks and compiling the kernels takes some ten seconds."""
    sections = [
        _INTRODUCTION,
        _model(fitted),
        _layers(),
        _networks(),
        _memory(),
        _kernels(),
        _compiled(results),
    ]
    blocks = [block for section in sections for block in section.strip().split("\n\n") if block]
    return "\n\n".join(_wrapped(block) for block in blocks) + "\n"


def _wrapped(block: str) -> str:
    """Prose to the width of the page; tables, headings and code as they are."""
    return block if block.startswith(("|", "#", " ")) else textwrap.fill(" ".join(block.split()), 120)


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """The first column to the left, figures to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


_INTRODUCTION = """
# How cost grows with shape

Made by `ringconv scaling`; do not edit by hand. Figures of the CPU are measured. There was no GPU to measure on: every
figure for one is marked as predicted, and comes from a model with the assumptions stated here. To measure them:
`ringconv bench --device cuda`.
"""


def _model(fitted: ModelFit) -> str:
    rates = [
        [
            method,
            f"{1e3 * rate.overhead:.2f}",
            _giga(rate.products),
            _giga(rate.passes),
            _giga(rate.bandwidth, 1),
        ]
        for method, rate in fitted.rates.items()
    ]
    overall = fitted.overall()
    judged = "There is no suite to compare with." if overall is None else (
        f"On the suites, which are other shapes in other runs, the median relative error of {overall.number} timings is"
        f" **{overall.median:.0%}**; {overall.within_quarter:.0%} of them are within 25%."
    )  # fmt: skip
    errors = [
        [name, found.number, f"{found.median:.0%}", f"{found.within_quarter:.0%}"]
        for name, found in (fitted.by_suite() | fitted.by_method()).items()
    ]
    taps, orbits = live(PAPER_CASES[9])
    return f"""
## The model

A layer with C inputs, O outputs, P output positions (over the batch), a kernel of K taps, of which T lie within the
circle in J symmetry orbits, and n rings:

| | products | ring passes | values moved |
|---|---|---|---|
| dense | 2 P K C O | - | P (C + O) + K C O |
| factored | 2 P n C O | 2 P n K M | P (C + O) + 2 P n M + n C O |
| fused | 2 P n C O | P C (T + 2 n J) | P (C + O) + n C O |

M is C or O: "factored" runs its pass over the inputs or over the outputs, whichever is cheaper. A training step takes
three times that for dense and factored; fused takes four products and three passes (over x, over the output's
gradient, and over x for sigma), and keeps x alone. So dense grows with k^2, factored with n k^2 in
its pass and with n in its memory, and fused with n: for a 9x9 kernel K = 81, T = {taps}, J = {orbits}, n = 5.

    seconds = operators x overhead + products / rate + passes / rate + bytes / bandwidth

## On the CPU, against measurements

The four constants of each method are fitted to the [grid of layers](../src/ringconv/ops/measured.csv) that
`method="auto"` decides by (stride 1, one group; 1, 2 and 3 axes):

{_table(["method", "overhead, ms", "products, G/s", "passes, G/s", "bandwidth, GB/s"], rates)}

{judged}

{_table(["timings", "number", "median error", "within 25%"], errors)}

Where it is wrong: torch's depthwise convolutions, which "factored" consists of, do not have one rate, least of all
backward. The fused kernel has. And a faster machine that calls itself by the same name, as the one that the suite
`forms` ran on, is another one.
"""


def _giga(rate: float, digits: int = 0) -> str:
    return "-" if rate == float("inf") else f"{rate / 1e9:.{digits}f}"


def _layers() -> str:
    rows = []
    for gpu in GPUS:
        for mode in MODES:
            for method in METHODS:
                cells = [f"{1e3 * gpu_seconds(case, method, mode, gpu):.2f}" for case in PAPER_CASES.values()]
                rows.append([f"{gpu.name}, {mode}, {method}: predicted", *cells])
    quality = judge(paper_rates(), paper_measurements())
    assert quality is not None
    share = paper_rates()["dense"].products / A5000.tensor
    return f"""
## One layer on a GPU: predicted

Milliseconds at the paper's shape, (2, 128, 64, 64) to 128 channels, with TF32 products:

{_table(["", *[f"k = {k}" for k in PAPER_CASES]], rows)}

Behind what is predicted for dense and factored: constants fitted to the paper's own table for an RTX A5000 (median
error {quality.median:.0%} on its {quality.number} entries, which are those it was fitted to), scaled to the A100 by the
makers' peaks. Behind what is predicted for fused: it reaches the {share:.0%} of the tensor cores' peak that the paper's
dense convolution does, half of the other cores' peak in its ring pass at six slots for every tap, and has the overhead
of one convolution. The ring pass runs on the ordinary cores, so what a GPU with fast tensor cores gains is predicted to
be less than what a CPU gains.
"""


def _networks() -> str:
    plain = network_cost(lambda: resnet(50, num_classes=1000), _BATCH, 224)
    ring = network_cost(lambda: gmr_resnet(50, num_classes=1000, preset="paper"), _BATCH, 224, "fused")
    small = {
        "ResNet-18": network_cost(lambda: resnet(18, num_classes=10), 2, 32),
        "GMR-ResNet-18": network_cost(lambda: gmr_resnet(18, num_classes=10, preset="paper"), 2, 32, "fused"),
    }
    rows = []
    for gpu, count in ((A5000, 4), (A100, 4), (A100, 64)):
        link = gpu.link if count <= 8 else _NETWORK_LINK
        kinds: dict[str, tuple[NetworkCost, Computable]] = {
            "ResNet-50": (plain, "dense"),
            "GMR-ResNet-50, factored": (ring, "factored"),
            "GMR-ResNet-50, fused": (ring, "fused"),
        }
        for name, (cost, method) in kinds.items():
            step = cost.seconds(gpu, "bf16", method)
            reduce = all_reduce_seconds(cost.parameters, count, link)
            hours = [_EPOCHS * _IMAGES / (_BATCH * count) * seconds / 3600 for seconds in (step, step + reduce)]
            rows.append(
                [
                    f"{count} x {gpu.name}, {name}: predicted",
                    f"{1e3 * step:.0f}",
                    f"{1e3 * reduce:.1f}",
                    f"{hours[0]:.1f} to {hours[1]:.1f}",
                ]
            )
    slower = [f"{ring.seconds(gpu, 'bf16', 'fused') / plain.seconds(gpu, 'bf16', 'dense'):.2f}" for gpu in GPUS]
    traffic = [
        [name, f"{cost.parameters:,}", f"{4 * cost.parameters / 1e6:.1f}"]
        for name, cost in (small | {"ResNet-50": plain, "GMR-ResNet-50": ring}).items()
    ]
    return f"""
## ImageNet on 4 and 64 GPUs: predicted

The paper's training: batch {_BATCH} on each GPU, 224 x 224, bfloat16, {_EPOCHS} epochs. A step is predicted from the
convolutions as above, in bfloat16 and without the host's overhead, and twelve passes over every convolution's output
for what stands between them. The gradients are exchanged in a ring, 2 (N - 1) / N times their size in float32 for each
GPU. Hours are for an exchange that is wholly hidden behind the backward pass, and for one that is not hidden at all.

{_table(["", "step, ms", "exchange, ms", "hours"], rows)}

The kernels of the ring network are 9x9 and 5x5 where those of the plain one are 3x3. Its fused step is predicted to
take {slower[0]} times the plain network's on an {GPUS[0].name} and {slower[1]} times on an {GPUS[1].name}.

Links behind what is predicted: {A5000.link / 1e9:.0f} GB/s for each RTX A5000 (PCIe), {A100.link / 1e9:.0f} GB/s for
each A100 within a machine, {_NETWORK_LINK / 1e9:.0f} GB/s between machines. Reading and decoding images is left
out, and limits small machines first.

What is exchanged in every step (counted):

{_table(["network", "parameters", "gradients, MB"], traffic)}

A GMR-ResNet-18 exchanges a third of what a plain ResNet-18 does, a GMR-ResNet-50 seven tenths of a plain one.
"""


def _memory() -> str:
    builders = {
        "ResNet-18": (lambda: resnet(18, num_classes=10), "auto"),
        "GMR-ResNet-18, fused": (lambda: gmr_resnet(18, num_classes=10, preset="paper"), "fused"),
        "GMR-ResNet-18, factored": (lambda: gmr_resnet(18, num_classes=10, preset="paper"), "factored"),
    }
    rows = []
    for name, (build, method) in builders.items():
        sizes = [network_cost(build, 1, side, method).saved_bytes for side in (224, 1024)]  # type: ignore[arg-type]
        rows.append([name, *[f"{size / 1e6:.0f}" for size in sizes], *[f"{24e9 / size:.0f}" for size in sizes]])
    return f"""
## Memory at 224 and 1024 pixels

What a training step in float32 keeps for its backward pass, in MB for each image, with the stem's pooling: counted by
running the network on tensors without values. On the CPU the same count is measured
(`ringconv bench --suite models`). What the 24 GB of an RTX A5000 would hold of it is predicted: parameters, the
optimiser and work space are left out, and half of it would do in bfloat16.

{_table(["network", "224", "1024", "images in 24 GB at 224, predicted", "at 1024, predicted"], rows)}

Fused keeps the input of each layer and nothing else, so it costs what a plain network costs. Factored keeps n ring
responses of every channel besides.
"""


def _kernels() -> str:
    if not TRITON_IS_THERE:
        return ""
    rows = []
    for capability in (80, 90):
        for task in TASKS:
            for dtype in (torch.float32, torch.bfloat16):
                used = kernel_resources(task, 9, 128, 128, dtype, capability)
                tile = chosen(task, 5, 128, 128)
                what = {"maps": "output, input's gradient", "weight": "weight's gradient", "basis": "sigma's gradient"}
                rows.append(
                    [
                        f"sm{capability}, {what[task]}, {str(dtype).removeprefix('torch.')}",
                        "x".join(map(str, tile[:3])) + f", {tile.warps} warps",
                        used.registers,
                        used.spilled,
                        f"{used.shared / 1024:.0f}",
                    ]
                )
    return f"""
## The Triton kernels, as compiled

For 128 to 128 channels, k = 9, compiled by Triton and read from the machine code; they have run in Triton's interpreter
only. Float32 products are TF32 where torch's convolutions are (`torch.backends.cudnn.allow_tf32`).

{_table(["", "tile: sites x inputs x outputs", "registers", "spilled, bytes", "shared, kB"], rows)}

The rule for a tile: of those whose values (ring responses, an orbit's sum, the outputs and their sums) come to at most
70 for each thread, the one with the widest block of outputs, since the ring pass is repeated for each; then the most
sites, then the most inputs, then the fewest warps. With `torch.backends.cudnn.benchmark = True` the first four of the
two widest blocks are timed for every new shape, and the fastest is kept.
"""


def _compiled(results: Path) -> str:
    paths = sorted(results.glob("compiled-*.csv"))
    if not paths:
        return ""
    with paths[-1].open(newline="") as file:
        rows = list(csv.DictReader(file))
    eager = {(row["mode"], row["peer"]): float(row["median_ms"]) for row in rows}
    shown = [
        [
            f"{row['peer'].removesuffix(', compiled')}, {row['mode']}",
            row["graphs"],
            row["operators"],
            row["fused_loops"],
            row["kept"],
            f"{eager[row['mode'], row['peer'].removesuffix(', compiled')]:.0f}",
            f"{float(row['median_ms']):.0f}",
        ]
        for row in rows
        if row["peer"].endswith(", compiled")
    ]
    first = rows[0]
    return f"""
## torch.compile of whole networks, on the CPU

Measured: batch {first["batch"]}, {first["side"]} x {first["side"]} pixels, float32, {first["threads"]} threads,
{first["cpu"]}, torch {first["torch"]} (`ringconv scaling --time-compile`). Operators are those of the graphs that
inductor gets, forward and backward; what it does not call as it is, it fuses into loops.

{_table(["network", "graphs", "operators", "fused loops", "called as they are", "eager, ms", "compiled, ms"], shown)}

One graph means that nothing breaks it: the fused ring convolution is an operator that the compiler knows the shapes
of, and calls. Between two of them the generated code is one function: the normalisation, the addition and the
activation of a block, and beside them the next layer's basis from its sigma, which the plain network does not have.
"""
