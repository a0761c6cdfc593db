"""Measure where in a model equivariance is lost, layer by layer."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ringconv._copied import copied
from ringconv._network import dtype_of
from ringconv._rotate import Symmetry
from ringconv.conversion.projection import recalibrate_batchnorm
from ringconv.conversion.report import Loss

_TOLERANCE = 1e-5
"""Relative, in float64: rounding stays below, also of layers that insist on float32, and what breaks equivariance is
far above. In other dtypes it is the root of their rounding."""


@dataclass
class _Call:
    """One call of a module, and the calls it made."""

    name: str
    kind: str
    inputs: list[Tensor]
    outputs: list[Tensor] = field(default_factory=list)
    inner: list[_Call] = field(default_factory=list)


def where_lost(model: nn.Module, example: Tensor) -> tuple[float, tuple[Loss, ...]]:
    """Relative error of the output under the worst generator of the symmetry, and the layers that lose equivariance.

    A layer loses it if its inputs turn with the image and its output does not. Where this is nothing but what its parts
    do, the part is named; else it is something in its own forward.

    A copy is measured, in eval mode and in float64, or in the model's own dtype if it runs in no other, with random
    numbers for the parameters that are one per channel or zero, and batch norms that fit the example: many networks
    start with branches scaled to nothing, or drown what changes from place to place in what does not, and losses would
    not be seen.

    Args:
        example: (B, C, *S). Quarter turns are tried if S is square (a cube), flips always.
    """
    check_example(model, example)
    try:
        return _where_lost(model, example.detach().double())
    except RuntimeError:  # it casts to a dtype, or holds tensors that are no buffers
        own = dtype_of(model)
        if own == torch.float64:
            raise
        return _where_lost(model, example.detach().to(own))


def check_example(model: nn.Module, example: Tensor) -> None:
    """Raise an error if the example cannot be turned, or has no values."""
    if not example.is_floating_point():
        raise TypeError(f"example_input must be a floating tensor, got {example.dtype}")
    if not 3 <= example.dim() <= 5:
        raise ValueError(f"example_input must be (B, C, *S) with 1 to 3 axes, got shape {tuple(example.shape)}")
    if example.is_meta or any(p.is_meta for p in model.parameters()):
        raise ValueError("nothing can be measured on the meta device")


def _where_lost(model: nn.Module, x: Tensor) -> tuple[float, tuple[Loss, ...]]:
    tolerance = max(_TOLERANCE, torch.finfo(x.dtype).eps ** 0.5)
    trial = _stirred(model, x)
    with torch.no_grad():
        upright = _record(trial, x)
        worst, losses = 0.0, dict[str, Loss]()
        for symmetry in _generators(x.shape[2:]):
            turned = _record(trial, symmetry(x))
            worst = max(worst, _error(upright.outputs, turned.outputs, symmetry))
            for loss in _losses(upright, turned, symmetry, tolerance):
                if loss.name not in losses or losses[loss.name].error < loss.error:
                    losses[loss.name] = loss
    return worst, tuple(losses.values())


def _stirred(model: nn.Module, x: Tensor) -> nn.Module:
    trial = copied(model).eval()
    if x.dtype == torch.float64:
        trial.double()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for name, parameter in trial.named_parameters():
            if name.endswith("bias") and parameter.dim() == 1:
                parameter.uniform_(-0.1, 0.1)
            elif sum(side > 1 for side in parameter.shape) <= 1:
                parameter.uniform_(0.5, 1.5)
            elif not parameter.any():
                parameter.normal_(0.0, 0.02)
        # A second image, since a batch norm needs two values even where maps have shrunk to a pixel.
        return recalibrate_batchnorm(trial, [torch.cat([x, torch.randn_like(x)])])


def _generators(size: torch.Size) -> list[Symmetry]:
    """Flips, and exchanges of equal axes: they make up all quarter turns and reflections."""
    axes = tuple(range(len(size)))
    flips = [Symmetry(axes, (axis,)) for axis in axes]
    swaps = []
    for a, b in itertools.combinations(axes, 2):
        if size[a] == size[b]:
            order = list(axes)
            order[a], order[b] = b, a
            swaps.append(Symmetry(tuple(order), ()))
    return flips + swaps


def _record(model: nn.Module, x: Tensor) -> _Call:
    """All calls of modules in one forward, as a tree."""
    with _recording(model) as root:
        model(x)
    return root.inner[0]


@contextlib.contextmanager
def _recording(model: nn.Module) -> Iterator[_Call]:
    stack = [_Call("", "", [])]
    handles = []
    for name, module in model.named_modules():

        def enter(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            call = _Call(name or "(the model)", type(module).__name__, _tensors((args, kwargs)))
            stack[-1].inner.append(call)
            stack.append(call)

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            stack.pop().outputs = _tensors(output)

        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))
    try:
        yield stack[0]
    finally:
        for handle in handles:
            handle.remove()


def _tensors(values: Any) -> list[Tensor]:
    # Layers that work in place would overwrite what was noted.
    return [v.clone() for v in tree_leaves(values) if isinstance(v, Tensor) and v.is_floating_point()]


def _losses(upright: _Call, turned: _Call, symmetry: Symmetry, tolerance: float) -> list[Loss]:
    error = _error(upright.outputs, turned.outputs, symmetry)
    if error <= tolerance or _error(upright.inputs, turned.inputs, symmetry) > tolerance:
        return []
    pairs = zip(upright.inner, turned.inner, strict=False)
    inner = [loss for one, other in pairs for loss in _losses(one, other, symmetry, tolerance)]
    what = f"in the forward of {upright.kind}" if upright.inner else upright.kind
    return inner or [Loss(upright.name, what, error)]


def _error(upright: list[Tensor], turned: list[Tensor], symmetry: Symmetry) -> float:
    return max((_deviation(y, z, symmetry) for y, z in zip(upright, turned, strict=False)), default=0.0)


def _deviation(y: Tensor, z: Tensor, symmetry: Symmetry) -> float:
    """|z - turned y| / |y|, with the positions of y where they fit best."""
    scale = float(y.norm()) or 1.0
    fits = [float((z - image).norm()) / scale for image in _images(y, symmetry) if image.shape == z.shape]
    return min(fits, default=math.inf)


def _images(y: Tensor, symmetry: Symmetry) -> Iterator[Tensor]:
    """What y may be when the image is turned: maps with channels first or last, tokens, or no positions at all."""
    n_dims = len(symmetry.permutation)
    yield y
    if y.dim() == n_dims + 2:
        yield symmetry(y)
        yield symmetry(y.movedim(-1, 1)).movedim(1, -1)
    if y.dim() == 3 and n_dims > 1:
        for axis in (1, 2):
            tokens = y.transpose(1, axis)
            side = round(tokens.shape[1] ** (1 / n_dims))
            if side**n_dims == tokens.shape[1]:
                grid = tokens.transpose(1, 2).unflatten(2, (side,) * n_dims)  # type: ignore[no-untyped-call]
                yield symmetry(grid).flatten(2).transpose(1, 2).transpose(1, axis)
