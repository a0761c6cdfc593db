"""8-bit weights and activations in ONNX, and what they cost."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ringconv._extras import needs
from ringconv.deploy.onnx import EXTRA, INPUT, runner
from ringconv.deploy.programs import written_at_once

Quantization = Literal["dynamic", "static"]
Array = NDArray[Any]

_WITH_WEIGHTS = ("Conv", "Gemm", "MatMul")


def quantize_onnx(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    mode: Quantization = "dynamic",
    calibration: Iterable[Array] = (),
) -> Path:
    """Write an ONNX file with 8-bit convolutions and matrix products.

    Args:
        mode: ``"dynamic"`` takes the range of activations anew from each input; ``"static"`` takes it once from
            ``calibration``, which makes a faster file.
        calibration: batches (B, C, *S) as the model sees them; some hundred images are enough.
    """
    if mode not in get_args(Quantization):
        raise ValueError(f"mode must be one of {', '.join(get_args(Quantization))}, got {mode!r}")
    batches = iter(calibration)
    first = next(batches, None)
    if mode == "static" and first is None:
        raise ValueError("static quantisation needs calibration images, got none")
    quantization = needs("onnxruntime.quantization", EXTRA)
    options: dict[str, Any] = {"op_types_to_quantize": _WITH_WEIGHTS, "nodes_to_exclude": _without_weights(path)}
    level, root = logging.WARNING, logging.getLogger()
    level, root.level = root.level, logging.ERROR  # it advises on a step that is for other kinds of files
    try:
        with written_at_once(Path(out)) as partial, tempfile.TemporaryDirectory() as folder:
            named = Path(folder) / "named.onnx"
            _prepare(path, named)
            # onnxruntime's convolution for dynamic ranges takes nothing else; and where a processor adds pairs of
            # products in 16 bits, as those before VNNI do, signed weights overflow.
            unsigned = quantization.QuantType.QUInt8
            if mode == "dynamic":
                quantization.quantize_dynamic(named, partial, weight_type=unsigned, **options)
            else:
                assert first is not None
                reader = _reader(quantization, _chain(first, batches))
                # Weights of 7 bits: sums of 8-bit products overflow on processors without instructions for them.
                quantization.quantize_static(named, partial, reader, per_channel=True, reduce_range=True, **options)
    finally:
        root.level = level
    return Path(out)


@dataclass(frozen=True)
class Cost:
    """What quantisation changed, over a number of images."""

    images: int
    agreement: float
    """Share of images with the same class before and after."""
    accuracy: tuple[float, float] | None = None
    """Before and after, if labels are known."""


def quantization_cost(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    batches: Iterable[Array],
    labels: NDArray[np.int64] | None = None,
) -> Cost:
    """Run both files on batches (B, C, *S) of images and compare their classes, with each other and with the labels."""
    runs = runner(before), runner(after)
    found: tuple[list[Array], list[Array]] = ([], [])
    for batch in batches:
        for run, classes in zip(runs, found, strict=True):
            classes.append(run(batch)[0].argmax(1))
    old, new = (np.concatenate(classes) if classes else np.zeros(0) for classes in found)
    if not len(old):
        raise ValueError("there are no images to compare the files on")
    accuracy = None if labels is None else (float((old == labels).mean()), float((new == labels).mean()))
    return Cost(len(old), float((old == new).mean()), accuracy)


def _reader(quantization: Any, batches: Iterator[Array]) -> Any:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Array] | None:
            batch = next(batches, None)
            return None if batch is None else {INPUT: batch}

    return Reader()


def _chain(first: Array, rest: Iterator[Array]) -> Iterator[Array]:
    yield first
    yield from rest


def _prepare(path: str | os.PathLike[str], out: Path) -> None:
    """Nodes are excluded by name, so each needs one of its own; and shapes, which quantisation changes, must go."""
    onnx = needs("onnx", EXTRA)
    model = onnx.load(path)
    del model.graph.value_info[:]
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    onnx.save(model, out)


def _without_weights(path: str | os.PathLike[str]) -> list[str]:
    """Products of two computed matrices, as in pooling to free sizes: they have no weights that could be quantised."""
    graph = needs("onnx", EXTRA).load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [
        f"{node.op_type}_{number}"
        for number, node in enumerate(graph.node)
        if node.op_type in _WITH_WEIGHTS and not weights.intersection(node.input)
    ]
