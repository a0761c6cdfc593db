"""What torch.compile makes of a whole network on the CPU: kernels, operators left as they are, and time."""

from __future__ import annotations

import collections
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from ringconv.benchmark.networks import Setting, inference, prepare_network, training_step
from ringconv.benchmark.results import Row, machine, results_path, timing_columns, write_csv
from ringconv.benchmark.timing import interleave

_KEPT = ("convolution", "mm", "addmm", "ring_conv", "ring_conv_backward", "convolution_backward")
_NAMES = ("resnet18", "gmr_resnet18")


SETTING = Setting(16, 32, stem_pool=False)


def time_compiled(directory: Path, *, setting: Setting = SETTING, budget: float = 8.0, rounds: int = 5) -> Path:
    """Compile the plain and the ring network, in inference and in training, and time both beside the eager ones.

    Writes compiled-<date>.csv into ``directory``: a row for each network and mode, with the graphs that were compiled
    (one means that nothing broke the graph), the operators in them, the loops that inductor made of those it fuses, the
    operators it calls as they are, and the medians of eager and compiled.
    """
    rows: list[Row] = []
    where = machine()
    for mode in ("inference", "training"):
        calls: dict[str, Callable[[], object]] = {}
        found: dict[str, Row] = {}
        for name in _NAMES:
            network, x = prepare_network(name, setting)
            calls[name] = _step(network, x, mode)
            compiled, x = prepare_network(name, setting)
            calls[f"{name}, compiled"], found[name] = _compile(compiled, x, mode)
        timings = interleave(calls, budget=budget, rounds=rounds)
        for name in calls:
            row: Row = {"suite": "compiled", "mode": mode, "peer": name, "batch": setting.batch, "side": setting.side}
            rows.append(row | timing_columns(timings[name]) | found.get(name.removesuffix(", compiled"), {}) | where)
    path = results_path(directory, "compiled", datetime.now())
    write_csv(path, rows)
    return path


def _step(network: nn.Module, x: Tensor, mode: str) -> Callable[[], Any]:
    return training_step(network, x) if mode == "training" else inference(network, x)


def _compile(network: nn.Module, x: Tensor, mode: str) -> tuple[Callable[[], Any], Row]:
    """The step of the compiled network, after its first call, and what the compiler did."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._inductor import metrics
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.decomposition import select_decomp_table

    torch._dynamo.reset()
    metrics.reset()
    counts: collections.Counter[str] = collections.Counter()
    graphs = 0

    def backend(graph: fx.GraphModule, inputs: list[Tensor]) -> Any:
        nonlocal graphs
        graphs += 1
        return compile_fx(graph, inputs)

    def count(graph: fx.GraphModule, inputs: list[Tensor]) -> Any:
        for node in graph.graph.nodes:
            if node.op == "call_function":
                counts[str(node.target).partition(".")[2].partition(".")[0] or str(node.target)] += 1
        return make_boxed_func(graph.forward)

    # Once to read the graphs that inductor is given, forward and backward, and once for the code.
    reading = aot_autograd(fw_compiler=count, bw_compiler=count, decompositions=select_decomp_table())
    _step(torch.compile(network, backend=reading), x, mode)()  # type: ignore[arg-type]
    torch._dynamo.reset()
    call = _step(torch.compile(network, backend=backend), x, mode)  # type: ignore[arg-type]
    call()
    kept = {name: counts[name] for name in _KEPT if counts[name]}
    return call, {
        "graphs": graphs,
        "operators": sum(counts.values()),
        "fused_loops": metrics.generated_kernel_count,
        "kept": "; ".join(f"{name} {number}" for name, number in kept.items()),
    }
