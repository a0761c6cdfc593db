"""What the cost model predicts for GPUs. Nothing here was measured by us.

"dense" and "factored" take their constants from the paper's table of speeds on an RTX A5000, scaled to another GPU by
the peaks that its maker publishes. "fused" has never run: its counts are those of our Triton kernels, and how much of
the peaks they reach is assumed.
"""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple

from ringconv.benchmark.cases import Case, Mode
from ringconv.benchmark.cost_model import Measurement, Rates, Work, fit, live, positions, work
from ringconv.ops import Computable
from ringconv.ops.gpu.blocks import MOST_RINGS, Task, chosen

Precision = Literal["tf32", "bf16"]


class Gpu(NamedTuple):
    """Published peaks, without sparsity."""

    name: str
    tensor: float
    """TF32 operations per second; twice as many in bfloat16."""
    cores: float
    """Float32 operations per second beside the tensor cores."""
    bandwidth: float
    """Bytes per second."""
    link: float
    """Bytes per second that a GPU exchanges with the others of its machine, as assumed."""


A5000 = Gpu("RTX A5000", 55.6e12, 27.8e12, 768e9, 12e9)
A100 = Gpu("A100", 156e12, 19.5e12, 1555e9, 200e9)
GPUS = (A5000, A100)

PAPER_CASES = {k: Case(2, 128, 128, (64, 64), k) for k in (3, 5, 7, 9, 11)}
_PAPER_MILLISECONDS: dict[tuple[Computable, Mode], tuple[float, ...]] = {
    ("dense", "inference"): (0.391, 0.727, 1.418, 2.347, 3.493),
    ("dense", "training"): (0.974, 1.524, 3.579, 5.148, 6.887),
    ("factored", "inference"): (0.276, 0.270, 0.485, 0.689, 0.927),
    ("factored", "training"): (1.194, 1.139, 1.680, 2.542, 2.869),
}
"""The paper's seconds for 1,000 convolutions of PAPER_CASES."""

_SHARE_OF_BANDWIDTH = 0.8
# Assumed of the Triton kernels:
_SHARE_OF_CORES = 0.5
_SLOTS_PER_TAP = 6  # of an addition: a load takes two, its address and mask three


def paper_measurements() -> list[Measurement]:
    return [
        Measurement(case, method, mode, milliseconds / 1e3, "paper")
        for (method, mode), times in _PAPER_MILLISECONDS.items()
        for case, milliseconds in zip(PAPER_CASES.values(), times, strict=True)
    ]


@functools.cache
def paper_rates() -> dict[Computable, Rates]:
    return fit(paper_measurements(), bandwidth=_SHARE_OF_BANDWIDTH * A5000.bandwidth)


def gpu_seconds(
    case: Case, method: Computable, mode: Mode, gpu: Gpu, precision: Precision = "tf32", *, alone: bool = True
) -> float:
    """Predicted seconds of one call; ``alone``: with the host's overhead, which a network hides behind other work."""
    faster, size = (2.0, 2) if precision == "bf16" else (1.0, 4)
    if method != "fused":
        rates = paper_rates()[method]
        scaled = Rates(
            rates.overhead if alone else 0.0,
            rates.products * faster * gpu.tensor / A5000.tensor,
            rates.passes * gpu.cores / A5000.cores,
            rates.bandwidth * gpu.bandwidth / A5000.bandwidth,
        )
        return scaled.seconds(work(case, method, mode, size))
    done = fused_work(case, mode, size)
    # The share of the tensor cores' peak that the paper's dense convolution reaches.
    share = paper_rates()["dense"].products / A5000.tensor
    overhead = done.calls * paper_rates()["dense"].overhead if alone else 0.0
    computing = done.products / (share * faster * gpu.tensor) + done.passes / (_SHARE_OF_CORES * gpu.cores / 2)
    moving = done.bytes / (_SHARE_OF_BANDWIDTH * gpu.bandwidth)
    return overhead + max(computing, moving)


def fused_work(case: Case, mode: Mode, size_of_value: int) -> Work:
    """Of the Triton kernels: the pass is repeated for each block of outputs, and each gradient takes its own."""
    if case.rings > MOST_RINGS or case.stride != 1 or case.groups != 1:
        raise ValueError(f"the Triton kernels do not compute {case}")
    live_taps, orbits = live(case)
    per_channel = positions(case) * (_SLOTS_PER_TAP * live_taps + case.rings * orbits)

    def repeated(task: Task, c_in: int, c_out: int) -> float:
        width = chosen(task, case.rings, c_in, c_out).out_channels
        return per_channel * c_in * -(-c_out // width)

    c_in, c_out = case.in_channels, case.out_channels
    counted = work(case, "fused", mode, size_of_value)
    passes = repeated("maps", c_in, c_out)
    if mode == "training":
        passes += repeated("maps", c_out, c_in) + repeated("weight", c_in, c_out) + per_channel * c_in
    # The operators of a training step are as many as those of a convolution.
    return counted._replace(calls=1 if mode == "inference" else 3, passes=passes)
