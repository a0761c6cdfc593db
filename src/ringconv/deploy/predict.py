"""Classes of image files, as a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ringconv._network import device_of, dtype_of, input_channels
from ringconv._progress import Progress
from ringconv.deploy.images import read_image
from ringconv.deploy.programs import written_at_once
from ringconv.equivariance import evaluating
from ringconv.models.checkpoint import CheckpointInfo, Preprocessing


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of one image, best first."""

    path: Path
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Predictions:
    rows: list[Prediction]
    unreadable: dict[Path, str]
    """File -> why it could not be read."""


def predict(
    model: nn.Module,
    info: CheckpointInfo,
    paths: Sequence[Path],
    *,
    top: int = 1,
    batch: int = 32,
    progress: Progress = lambda stage, done, total: None,
) -> Predictions:
    """Classify image files; what cannot be read is named and left out.

    Args:
        info: of the model's file: how images are prepared and what the classes are called.
        top: how many classes of each image.
        batch: images at a time; one, if the file names no size, since images then keep theirs.
    """
    if top < 1 or batch < 1:
        raise ValueError(f"top and batch must be at least 1, got top={top} and batch={batch}")
    if info.dimensions != 2:
        raise ValueError(
            f"images have 2 dimensions, and {info.name} takes {info.dimensions} here: it cannot predict them"
        )
    preparation = info.preprocessing or Preprocessing()
    channels = input_channels(model)
    if preparation.size is None:
        batch = 1
    device, dtype = device_of(model), dtype_of(model)
    result = Predictions([], {})
    for start in range(0, len(paths), batch):
        readable, images = [], []
        for path in paths[start : start + batch]:
            try:
                images.append(read_image(path, preparation, channels))
                readable.append(path)
            except ImportError:
                raise
            except Exception as error:  # whatever a format's library raises, it is about this file, which gets named
                result.unreadable[path] = str(error) or type(error).__name__
        if images:
            with evaluating(model), torch.inference_mode():
                logits = model(torch.stack(images).to(device, dtype))
            result.rows.extend(_best(readable, logits, info.class_names, top))
        progress("predict", min(start + batch, len(paths)), len(paths))
    return result


def _best(paths: Sequence[Path], logits: object, names: Sequence[str], top: int) -> list[Prediction]:
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2 or logits.shape[1] < 2:
        what = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(f"predict is for classifiers, whose output is (images, classes), but the model gives {what}")
    names = names or [str(number) for number in range(logits.shape[1])]
    if len(names) != logits.shape[1]:
        raise ValueError(f"the file names {len(names)} classes, but the model has {logits.shape[1]} outputs")
    values, indices = logits.float().softmax(1).topk(min(top, logits.shape[1]), 1)
    return [
        Prediction(path, tuple(names[i] for i in best), tuple(shares))
        for path, best, shares in zip(paths, indices.tolist(), values.tolist(), strict=True)
    ]


def write_predictions(predictions: Predictions, out: Path) -> Path:
    """A CSV with the columns path, class, probability; class_2, probability_2, ... if more than one was asked for."""
    most = max((len(row.classes) for row in predictions.rows), default=1)
    columns = [f"{name}{'' if rank == 1 else f'_{rank}'}" for rank in range(1, most + 1) for name in _COLUMNS]
    # A file's name may be no text, but the bytes of another encoding: they stay what they are.
    with (
        written_at_once(out) as partial,
        partial.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        table = csv.writer(file)
        table.writerow(["path", *columns])
        for row in predictions.rows:
            pairs = zip(row.classes, row.probabilities, strict=True)
            table.writerow([row.path, *(cell for name, share in pairs for cell in (name, f"{share:.6f}"))])
    return out


_COLUMNS = ("class", "probability")
