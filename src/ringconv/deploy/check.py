"""Whether an exported file computes what its model computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ringconv.equivariance import evaluating

TOLERANCES = {torch.float16: 3e-2, torch.bfloat16: 1e-1}
TOLERANCE = 1e-3
"""Of all other types. Two runtimes round differently, layer after layer; a wrong tap costs far more."""
_ADVICE = (
    ". If the model takes its sizes from something else than its input, or has maps of a single pixel, export it with a"
    " fixed size (free_sizes=False, or --fixed-size)"
)


class ExportError(ValueError):
    """A model cannot be exported, or what was exported does not compute what the model computes."""


def check_file(
    run: Callable[[Tensor], Sequence[Tensor]], model: nn.Module, inputs: Iterable[Tensor], runtime: str
) -> float:
    """The largest error of a file relative to the model's largest output; above its tolerance an :class:`ExportError`.

    Args:
        run: an input to all outputs of the file.
        inputs: (B, C, *S) each.
        runtime: what runs it, for messages.
    """
    worst = 0.0
    for x in inputs:
        with evaluating(model):
            outputs = model(x)
        try:
            results = run(x)
        except Exception as failure:  # onnxruntime has a class of its own for each
            raise ExportError(
                f"an input of {tuple(x.shape)} fails in {runtime}{_ADVICE}. It says: {failure}"
            ) from failure
        for expected, got in zip(map(Tensor.cpu, all_tensors(outputs)), results, strict=True):
            if got.shape != expected.shape:
                raise ExportError(
                    f"an input of {tuple(x.shape)} gives {tuple(got.shape)} in {runtime}, {tuple(expected.shape)} in"
                    f" torch{_ADVICE}"
                )
            error = float((got.cpu() - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
            tolerance = TOLERANCES.get(x.dtype, TOLERANCE)
            if not error <= tolerance:
                raise ExportError(
                    f"on an input of {tuple(x.shape)} the file differs from the model by {error:.1e} of its largest"
                    f" output in {runtime} (allowed: {tolerance:.0e}){_ADVICE}"
                )
            worst = max(worst, error)
    return worst


def all_tensors(outputs: Any) -> list[Tensor]:
    """The tensors in the order in which an exported model gives them, whatever they are wrapped in."""
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
