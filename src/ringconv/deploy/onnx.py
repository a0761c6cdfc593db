"""ONNX: written by torch's exporter, checked in onnxruntime."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringconv._extras import needs
from ringconv.deploy.check import ExportError, check_file
from ringconv.deploy.programs import trace, written_at_once
from ringconv.equivariance import evaluating
from ringconv.fold import Form

EXTRA = "deploy"
INPUT = "image"


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Tensor,
    form: Form = "dense",
    *,
    free_sizes: bool = True,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write the folded model, BatchNorm included, as one ONNX file, and check it in onnxruntime.

    With free sizes it is checked at three of them, odd ones too, one about twice as large; its values are those of the
    model at every size.

    Args:
        example: (B, C, *S), of the shape that inputs will have.
        form: ``"dense"`` or ``"factored"``, see :func:`ringconv.fold`.
        free_sizes: leave batch and size free; otherwise only the batch.
        metadata: texts to keep in the file.
    """
    needs("onnx", EXTRA)
    needs("onnxscript", EXTRA)
    program = trace(model, example, form, free_sizes=free_sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        try:
            exported = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                custom_translation_table={operator.floordiv: _floor_division()},
            )
        except torch.onnx.OnnxExporterError as failure:
            raise ExportError(
                "torch cannot write this model as ONNX; a program of torch may do (export_program, or --format pt2)."
                f" It says: {failure.__cause__ or failure}"
            ) from failure
    assert exported is not None
    exported.model.metadata_props.update(metadata or {})
    with written_at_once(Path(path)) as partial:
        exported.save(partial, external_data=False)
        check_onnx(partial, model, _inputs_to_try(model, example, free_sizes=free_sizes))
    return Path(path)


def _inputs_to_try(model: nn.Module, example: Tensor, *, free_sizes: bool) -> Iterator[Tensor]:
    channels, size = example.shape[1], example.shape[2:]
    yield torch.randn(1, channels, *size).to(example)
    if free_sizes:
        yield torch.randn(2, channels, *(side + 1 + 2 * axis for axis, side in enumerate(size))).to(example)
        larger = torch.randn(1, channels, *(2 * side + 1 for side in size)).to(example)
        if _takes(model, larger):
            yield larger


def _takes(model: nn.Module, x: Tensor) -> bool:
    """Whether the model itself can do with an input of this size; some have a largest one."""
    try:
        with evaluating(model):
            model(x)
    except Exception:  # whatever a forward raises
        return False
    return True


def check_onnx(path: str | os.PathLike[str], model: nn.Module, inputs: Iterable[Tensor]) -> float:
    """The largest error of the file relative to the model's largest output; above 0.001 an :class:`ExportError`."""
    run = runner(path)
    return check_file(lambda x: [torch.from_numpy(y) for y in run(x.cpu().numpy())], model, inputs, "onnxruntime")


def runner(path: str | os.PathLike[str]) -> Any:
    """A function from an array (B, C, *S) to the list of outputs that onnxruntime computes from it on the CPU."""
    onnxruntime = needs("onnxruntime", EXTRA)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads that wait by spinning would take the cores from the other files that are timed beside this one.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        outputs: list[NDArray[np.float32]] = session.run(None, {name: x})
        return outputs

    return run


def latencies(
    paths: Mapping[str, str | os.PathLike[str]], x: NDArray[np.float32], budget: float = 3.0
) -> dict[str, float]:
    """Median seconds that each file takes for ``x`` in onnxruntime, timed in turns."""
    from ringconv.benchmark.timing import interleave  # here, since its package needs an extra

    runs = {name: runner(path) for name, path in paths.items()}
    timings = interleave({name: lambda run=run: run(x) for name, run in runs.items()}, budget=budget)  # type: ignore[misc]
    return {name: timing.median for name, timing in timings.items()}


def _floor_division() -> Any:
    """Python's division of sizes, which rounds down; torch's translation of it rounds towards 0, as ONNX does."""
    op = needs("onnxscript", EXTRA).opset18

    def floor_division(a: Any, b: Any) -> Any:
        return op.Div(op.Sub(a, op.Mod(a, b)), b)

    return floor_division
