"""Import torchvision also beside a torch that its compiled operators were not built for.

The usual wheel is built for CUDA. Beside a CPU-only torch its library does not load, and the import
then fails on the shape rule of an operator that nobody declared. With the declaration, models, transforms, data sets
and what `ops` does in Python work; the compiled operators (`nms`, `deform_conv2d`, `io.read_image`) stay unavailable.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: torch.library.Library | None = None
"""Kept, because the declarations end with their library object."""


def import_torchvision() -> ModuleType:
    """torchvision; ModuleNotFoundError if it is not installed."""
    if "torchvision" not in sys.modules:
        declare_missing_operators()
    return importlib.import_module("torchvision")


def declare_missing_operators() -> None:
    """What an import of torchvision needs, if its own library does not load."""
    global _declared
    if _declared is None and not _compiled_operators_load():
        _declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in _OPERATORS:
            _declared.define(name + _SCHEMA)  # type: ignore[no-untyped-call]


def _compiled_operators_load() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True  # nothing to prepare: the import itself says what is wrong
    folder = Path(spec.origin).parent
    libraries = [file for pattern in ("_C*.so", "_C*.pyd") for file in folder.glob(pattern)]
    try:
        for library in libraries:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except (ImportError, OSError):
        return False
    return bool(libraries)
