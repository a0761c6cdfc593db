"""A run's folder: all of it or nothing."""

from __future__ import annotations

import csv
import itertools
import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ringconv._version import __version__
from ringconv.data.textures import PHOTOGRAPHS
from ringconv.report.html import REPORT, entries_of_comparison, write_entries
from ringconv.report.picture import save_accuracy_picture
from ringconv.training.compare import Comparison


def check_out(out: Path) -> None:
    """Raise if no run can be written to ``out``: better before an hour of training than after."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(f"out must be a folder, or the name of a new one, but {existing} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"out must be a folder that can be written to, but {existing} cannot")


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Write results.json, accuracy.csv, accuracy.png and report.html to a new folder, and return it.

    It is ``out/compare-<time>``.
    """

    def fill(folder: Path) -> None:
        results = json.dumps(comparison_results(comparison), indent=2) + "\n"
        (folder / "results.json").write_text(results, encoding="utf-8")
        _write_csv(comparison, folder / "accuracy.csv")
        save_accuracy_picture(comparison, folder / "accuracy.png")
        write_entries(entries_of_comparison(comparison), folder / REPORT)

    return _new_folder(out, time.strftime("compare-%Y%m%d-%H%M%S"), fill)


def comparison_results(comparison: Comparison) -> dict[str, Any]:
    """Everything there is to know about a comparison, as JSON has it; accuracies in percent."""
    settings = comparison.settings
    return {
        "settings": {name: getattr(settings, name) for name in settings.__dataclass_fields__},
        "classes": [photograph.name for photograph in PHOTOGRAPHS],
        "models": {
            model.kind: {
                "parameters": model.parameters,
                "train_seconds": round(model.train_seconds, 2),
                "upright": model.upright,
                "rotated_mean": model.rotated,
                "rotated_std": model.std,
                "worst": model.worst,
                "worst_angle": model.worst_angle,
                "mirrored_mean": model.mirrored,
                "per_angle": {str(angle): accuracy for angle, accuracy in model.per_angle.items()},
                "per_mirror": dict(model.per_mirror),
            }
            for model in comparison.models
        },
        "versions": {
            "ringconv": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }


def _write_csv(comparison: Comparison, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["angle", *(model.kind for model in comparison.models)])
        for angle in comparison.plain.per_angle:
            rows.writerow([angle, *(f"{model.per_angle[angle]:.4f}" for model in comparison.models)])


def _new_folder(out: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Fill a hidden folder and then give it its name, so that whoever sees the name sees a complete run."""
    out.mkdir(parents=True, exist_ok=True)
    partial = out / f".{name}-{os.getpid()}"
    partial.mkdir()
    try:
        fill(partial)
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        return partial.rename(next(out / free for free in names if not (out / free).exists()))
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # there is none any more if all went well
