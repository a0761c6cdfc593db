"""Packages that the core does without."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError):
    """A package that comes with one of ringconv's extras is not installed."""


def needs(module: str, extra: str) -> Any:
    """Import ``module``; if its package is not installed, say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is there, but something of its own is not: not for us to explain
        raise MissingExtraError(
            f"{package} is not installed; it comes with: pip install 'ringconv[{extra}]'", name=package
        ) from error
