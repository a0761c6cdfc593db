"""Programs that run without ringconv: torch.export and AOTInductor."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ringconv._files import written_whole
from ringconv.deploy._pooling import for_free_sizes, written_out
from ringconv.deploy.check import all_tensors, check_file
from ringconv.equivariance import evaluating
from ringconv.fold import Form, fold

_LEAST_SIDE = 67
"""Of the example that is traced where sizes are free: every map in it must have sides above 1, or they get fixed."""


def trace(
    model: nn.Module, example: Tensor, form: Form = "dense", *, free_sizes: bool = True, average_pooling: bool = True
) -> ExportedProgram:
    """The folded model, BatchNorm included, as a program of torch's operators.

    Args:
        example: (B, C, *S), of the shape that inputs will have.
        free_sizes: leave batch and size free; every map in the network must then be larger than one pixel, or an
            assertion of the program fails. Otherwise the size is that of ``example`` and only the batch is free.
        average_pooling: with free sizes, write all adaptive pooling out for other runtimes; without, only what torch
            cannot export itself.
    """
    with evaluating(model):
        folded = for_free_sizes(fold(model, form, batch_norm=True), average=free_sizes and average_pooling)
    dimensions = example.dim() - 2
    free = {0: Dim.DYNAMIC}
    batch = example[:1].expand(2, *example.shape[1:]) if len(example) < 2 else example
    if free_sizes:
        free |= dict.fromkeys(range(2, example.dim()), Dim.DYNAMIC)
        # Unequal sides, or the program would ask for equal ones.
        sides = [max(side, _LEAST_SIDE) + 3 * axis for axis, side in enumerate(example.shape[2:])]
        batch = example.new_zeros(2, example.shape[1], *sides[:dimensions])
    with torch.no_grad(), _torchs_own_warnings_ignored():
        program = torch.export.export(
            folded, (batch,), dynamic_shapes=(free,), prefer_deferred_runtime_asserts_over_guards=True
        )
        return written_out(program) if free_sizes and average_pooling else program


def export_program(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Tensor,
    form: Form = "dense",
    *,
    free_sizes: bool = True,
) -> Path:
    """Write a program that ``torch.export.load(path).module()`` runs wherever there is torch, and run it once.

    Arguments: :func:`trace`.
    """
    program = trace(model, example, form, free_sizes=free_sizes, average_pooling=False)
    with written_at_once(Path(path)) as partial, _torchs_own_warnings_ignored():
        torch.export.save(program, partial)
        _check(torch.export.load(partial).module(), model, example)
    return Path(path)


def export_aoti(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Tensor,
    form: Form = "dense",
    *,
    free_sizes: bool = True,
) -> Path:
    """Compile to a package that ``torch._inductor.aoti_load_package(path)`` runs, from Python or C++.

    It is machine code for this kind of machine; compiling needs a C++ compiler and takes a minute or more. Arguments:
    :func:`trace`.
    """
    program = trace(model, example, form, free_sizes=free_sizes)
    with written_at_once(Path(path)) as partial, _torchs_own_warnings_ignored():
        torch._inductor.aoti_compile_and_package(program, package_path=str(partial))
        _check(torch._inductor.aoti_load_package(str(partial)), model, example)
    return Path(path)


def _check(program: Callable[[Tensor], Any], model: nn.Module, example: Tensor) -> None:
    """On noise of the example's shape."""
    with torch.no_grad():
        check_file(lambda x: all_tensors(program(x)), model, [torch.randn_like(example)], "the program")


@contextlib.contextmanager
def written_at_once(path: Path) -> Iterator[Path]:
    """A file to write to, which gets its name when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path, ending=path.suffix) as partial:  # exporters look at the ending
        yield partial


@contextlib.contextmanager
def _torchs_own_warnings_ignored() -> Iterator[None]:
    """torch's exporters use what torch has deprecated."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield
