"""Which method computes a layer: what the compiled kernel covers, and what was fastest for layers like it.

The rule is data. ``measured.csv`` beside this file holds the time of every method on many layers; for a new layer the
times are read off a smooth surface through the measured ones, and the least wins. It looks at channels, groups, kernel,
rings, stride and the number of pixels; a compiled or exported graph, which must have no branch on that, gets what suits
a usual number. ``ringconv methods`` measures it anew.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import math
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringconv.ops import fused, native
from ringconv.ops.gpu import operators as gpu

Method = Literal["auto", "dense", "factored", "fused"]
METHODS: tuple[Method, ...] = ("auto", "dense", "factored", "fused")
Mode = Literal["inference", "training"]
MODES: tuple[Mode, ...] = ("inference", "training")
"""inference: without gradients, in eval. training: forward, and the gradients of the input and all parameters."""
Computable = Literal["dense", "factored", "fused"]

MEASURED = Path(__file__).with_name("measured.csv")

_COMPUTABLE: tuple[Computable, ...] = ("dense", "factored", "fused")

# Looked up once: a compiler cannot trace the search for a library.
FUSED_IS_THERE = fused.available()
HARMONICS_ARE_THERE = native.harmonics_available()
TRITON_IS_THERE = importlib.util.find_spec("triton") is not None
_said_why_unavailable = False

# A ring pass of torch does little arithmetic for every value it moves: so many multiply-adds of a matrix product per
# response, a part for each tap and a part for the value itself. Only their order of magnitude matters.
_PASS_PER_TAP = 5
_PASS_PER_VALUE = 600


class LayerShape(NamedTuple):
    """What the cost of a ring convolution depends on, but for the image."""

    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    rings: int
    stride: tuple[int, ...]


def mixes_first(shape: LayerShape) -> bool:
    """Whether "factored" should mix the channels before the ring pass: the pass then runs over the outputs."""

    def pass_cost(channels: int) -> int:
        return shape.rings * channels * (_PASS_PER_TAP * math.prod(shape.kernel_size) + _PASS_PER_VALUE)

    mixing = shape.rings * shape.in_channels * shape.out_channels // shape.groups
    before_stride = mixing * math.prod(shape.stride)
    return before_stride + pass_cost(shape.out_channels) < mixing + pass_cost(shape.in_channels)


USUAL_OCTAVE = 13
"""8 images of 32x32."""


def octave_of(pixels: int) -> int:
    """The power of two at or below the number of pixels that a batch of outputs has."""
    return max(pixels, 1).bit_length() - 1


@functools.lru_cache(maxsize=4096)
def fastest_method(shape: LayerShape, mode: Mode, octave: int = USUAL_OCTAVE, *, with_fused: bool) -> Computable:
    """The method that should take least time, going by measured layers.

    Args:
        octave: of the pixels of all outputs of the batch, see :func:`octave_of`.
    """
    if math.prod(shape.kernel_size) == 1:
        return "dense"
    methods = _COMPUTABLE if with_fused else _COMPUTABLE[:2]
    surface = _surface(mode, methods)
    if surface is None:
        return methods[-1]
    features, heights, trend = surface
    here = _features(shape, octave)[None]
    times = _linear(here) @ trend + _likeness(here, features) @ heights
    return _COMPUTABLE[int(np.argmin(times))]


_Floats = NDArray[np.floating[Any]]


@functools.cache
def _surface(mode: Mode, methods: tuple[Computable, ...]) -> tuple[_Floats, _Floats, _Floats] | None:
    """Gaussian-process regression of the log of each method's time, but for the layer's mean over the methods.

    Returns:
        Features (rows, F) of the measured layers, the surface's heights there (rows, methods) above a linear trend,
        which is what remains far from all of them, and the trend (1 + F, methods). None if the table was made without
        one of the methods.
    """
    with MEASURED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == mode and all(row[f"{m}_ms"] for m in methods)]
    if not rows:
        return None
    features = np.stack([_features(layer_of_row(row), octave_of_row(row)) for row in rows])
    times = np.log([[float(row[f"{method}_ms"]) for method in methods] for row in rows])
    times -= times.mean(1, keepdims=True)
    trend: _Floats = np.linalg.lstsq(_linear(features), times, rcond=None)[0]
    noisy = _likeness(features, features) + _NOISE * np.eye(len(rows))
    heights: _Floats = np.linalg.solve(noisy, times - _linear(features) @ trend)
    return features, heights, trend


_NOISE = 0.06
"""Variance of a measurement, as a share of what it measures. It and the scales of the features are those with which
each measured layer is told best from all others."""


def _linear(features: _Floats) -> _Floats:
    """(A, F) -> (A, 1 + F)."""
    return np.concatenate([np.ones((len(features), 1)), features], 1)


def _likeness(one: _Floats, other: _Floats) -> _Floats:
    """exp(-d^2 / 2) of features (A, F) and (B, F): (A, B)."""
    squares = np.square(one).sum(1)[:, None] + np.square(other).sum(1) - 2 * one @ other.T
    likeness: _Floats = np.exp(-0.5 * squares)
    return likeness


def layer_of_row(row: dict[str, str]) -> LayerShape:
    return LayerShape(
        int(row["in_channels"]),
        int(row["out_channels"]),
        int(row["groups"]),
        _sizes(row["kernel_size"]),
        int(row["rings"]),
        _sizes(row["stride"]),
    )


def octave_of_row(row: dict[str, str]) -> int:
    """Layers are measured with padding that keeps the size, but for the stride."""
    sides = zip(_sizes(row["size"]), _sizes(row["stride"]), strict=True)
    return octave_of(int(row["batch"]) * math.prod(-(-side // stride) for side, stride in sides))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def _features(shape: LayerShape, octave: int) -> _Floats:
    """Coordinates in which layers a unit apart behave alike."""
    dimensions = len(shape.kernel_size)
    return np.array(
        [
            0.5 * dimensions,
            0.25 * math.log2(shape.in_channels / shape.groups),
            0.5 * math.log2(shape.out_channels / shape.groups),
            0.75 * math.log2(shape.groups),
            math.log2(math.prod(shape.kernel_size)) / dimensions,
            0.5 * math.log2(shape.rings),
            math.log2(math.prod(shape.stride)) / dimensions,
            0.25 * octave,
        ]
    )


_FUSED_DTYPES = {"cpu": fused.DTYPES, "cuda": gpu.DTYPES}


def is_exporting() -> bool:
    """Whether a program is being made that should run without ringconv, so of torch's own operators only."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


def is_transformed() -> bool:
    """Whether a transform of torch.func is at work, which needs formulas that torch has only for its own operators."""
    return torch._C._are_functorch_transforms_active()


def fused_covers(x: Tensor, weight: Tensor) -> bool:
    """Whether the fused kernel of this device, if it is installed, takes such tensors."""
    device = x.device.type
    # It has no rule for forward-mode derivatives; and those for torch.func are not for its compiler.
    if device not in _FUSED_DTYPES or torch.autograd.forward_ad._current_level >= 0:
        return False
    if torch.compiler.is_compiling() and is_transformed():
        return False
    dtypes = _FUSED_DTYPES[device]
    if torch.is_autocast_enabled(device):
        # Autocast leaves float64 alone.
        castable = (torch.float32, torch.bfloat16, torch.float16)
        return torch.get_autocast_dtype(device) in dtypes and x.dtype in castable and weight.dtype in castable
    return x.dtype in dtypes and weight.dtype == x.dtype


def fused_covers_harmonics(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether the compiled kernel is there and takes these tensors: not one channel per group, nor to be exported."""
    depthwise = groups > 1 and weight.shape[:2] == (groups, 1)
    if not HARMONICS_ARE_THERE or depthwise or x.device.type != "cpu" or is_exporting() or is_transformed():
        return False
    return fused_covers(x, weight)


def fused_is_there(device: str = "cpu") -> bool:
    """Whether the fused kernel of a device is installed; says once if the compiled one is not."""
    global _said_why_unavailable
    if device == "cuda":
        return TRITON_IS_THERE
    if not FUSED_IS_THERE and not _said_why_unavailable and not torch.compiler.is_compiling():
        _said_why_unavailable = True
        warnings.warn(
            f"without its compiled kernel ringconv uses torch's operators, which are slower: {fused.why_unavailable()}",
            stacklevel=2,
        )
    return FUSED_IS_THERE


def method_on_gpu(shape: LayerShape, *, with_fused: bool) -> Computable:
    """By counting, since nothing has been measured there: fused moves least memory; a depthwise layer gains nothing
    from rings that its channels do not share."""
    if math.prod(shape.kernel_size) == 1 or shape.groups == shape.in_channels > 1:
        return "dense"
    return "fused" if with_fused else "factored"
