"""Testing a network during training and at its end, and writing down what was found."""

from __future__ import annotations

import csv
import io
import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ringconv._files import write_whole
from ringconv._network import dtype_of
from ringconv._progress import Progress
from ringconv._turned import Turning
from ringconv.data import DataSet
from ringconv.evaluation import Evaluation, EvaluationSettings, evaluate
from ringconv.models.checkpoint import Preprocessing, save_model
from ringconv.training.loop import Training
from ringconv.training.objective import loss_name, outputs
from ringconv.training.picture import save_picture
from ringconv.training.runs import MODEL, PER_ANGLE, PICTURE, RESULTS
from ringconv.training.setup import build_network, has_test_images
from ringconv.training.statistics import renew_statistics


def about_data(data: DataSet) -> dict[str, Any]:
    """What the configuration of a run says about its data."""
    return {
        "name": data.name,
        "task": data.task,
        "classes": list(data.classes),
        "images": {name: len(split) for name, split in data.splits.items()},
        "size": list(data["train"].size),
        "channels": data.channels,
        "mean": list(data.mean),
        "std": list(data.std),
        "notes": list(data.notes),
    }


def check_same_data(data: DataSet, before: Mapping[str, Any]) -> None:
    """Raise ValueError if the data is not what a run's configuration says that it began with.

    Args:
        before: as :func:`about_data` gave it; what an older version did not write down is not compared.
    """
    now = json.loads(json.dumps(about_data(data)))
    changed = [
        f"{name} was {reprlib.repr(before[name])} and is {reprlib.repr(now[name])}"
        for name in ("name", "classes", "images", "size", "channels", "mean", "std")
        if name in before and not _are_same(before[name], now[name])
    ]
    if changed:
        raise ValueError(
            f"the data is not what the run began with: {'; '.join(changed)}. To go on, bring back the data as it"
            " was; to train on what is there now, begin a new run"
        )


def _are_same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_are_same, before, now))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-6, abs_tol=1e-9)  # sums are rounded otherwise on other machines
    return bool(before == now)


def validate(training: Training) -> dict[str, float]:
    """Scores on the validation images, in percent."""
    found = _evaluate(training, _network_to_test(training), "val", EvaluationSettings(step=360, reflections=False))
    return {name: scores.upright for name, scores in found.scores.items()}


def rotated(training: Training, progress: Progress | None = None) -> dict[str, float]:
    """Scores on some of the test images, upright and at every angle, in percent."""
    subset = min(training.settings.rotated_images, len(training.data["test"]))
    settings = EvaluationSettings(subset=subset, reflections=False)
    found = _evaluate(training, _network_to_test(training), "test", settings, progress)
    values: dict[str, float] = {}
    for name, scores in found.scores.items():
        values |= {f"{name}_upright": scores.upright, f"{name}_rotated": scores.rotated, f"{name}_std": scores.std}
    return values


def keep_best(training: Training, score: float) -> None:
    """Remember a validation score that is better than all before, and its weights if they are to be kept."""
    if training.best is not None and score <= training.best:
        return
    training.best = score
    if training.settings.keep == "best":
        weights = training.tested_network().state_dict()
        training.best_network = {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}


def finish(training: Training, folder: Path, seconds: float, progress: Progress | None = None) -> None:
    """Test the trained network and write everything down; the results come last, and make the run a finished one."""
    costs = _costs(training, seconds)  # before the test, which has costs of its own
    network = _final_network(training)
    evaluation = None
    if training.settings.final_test and has_test_images(training.data):
        evaluation = _evaluate(training, network, "test", EvaluationSettings(), progress)
        write_whole(folder / PER_ANGLE, per_angle_table(evaluation))
    results = _results(training, evaluation, costs)
    save_model(
        folder / MODEL,
        network.cpu(),
        class_names=_class_names(training),
        preprocessing=_preprocessing(training),
        metrics=_headline(evaluation),
    )
    save_picture(folder, folder / PICTURE, evaluation)
    write_whole(folder / RESULTS, json.dumps(results, indent=2) + "\n")


def per_angle_table(evaluation: Evaluation) -> str:
    """CSV: a row for every turn and flip, a column for every metric, in percent."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    metrics = list(evaluation.scores)
    rows.writerow(["view", *metrics])
    per_view = [{**scores.per_turn, **scores.per_flip} for scores in evaluation.scores.values()]
    for view in per_view[0]:
        rows.writerow([view, *(f"{values[view]:.4f}" for values in per_view)])
    return text.getvalue()


def _evaluate(
    training: Training, network: nn.Module, split: str, settings: EvaluationSettings, progress: Progress | None = None
) -> Evaluation:
    batch = max(1, training.settings.batch_size // (training.fabric.world_size * training.settings.accumulate))
    turning = Turning(padding=training.settings.beyond_frame)
    settings = EvaluationSettings(**{**vars(settings), "batch_size": batch, "turning": turning})
    return evaluate(network, training.data, settings, split=split, device=training.fabric.device, progress=progress)


def _network_to_test(training: Training) -> nn.Module:
    """During training; a copy, if the statistics of its norms are to be taken anew."""
    network = training.tested_network()
    return network if training.settings.norm_batch is None else _plain_network(training, network.state_dict())


def _final_network(training: Training) -> nn.Module:
    kept: Mapping[str, Tensor] | None = training.best_network if training.settings.keep == "best" else None
    return _plain_network(training, training.tested_network().state_dict() if kept is None else kept)


def _plain_network(training: Training, weights: Mapping[str, Tensor]) -> nn.Module:
    """These weights in a network as it was before anything was wrapped or replaced for training, ready to be tested."""
    settings, device = training.settings, training.fabric.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # initial weights are of no use here
        network = build_network(settings, training.data)
    network.to(device, dtype_of(training.network)).load_state_dict(weights)
    if settings.norm_batch is not None:
        renew_statistics(network, training.data, settings.norm_batch, settings.seed)
    return network


def _costs(training: Training, seconds: float) -> dict[str, Any]:
    """Time of all training steps, and the most memory of a process of the run, and of torch on its GPU, until now."""
    device = training.fabric.device
    images = training.plan.images * training.epochs_done
    return {
        "train_seconds": round(seconds, 2),
        "images_per_second": round(images / seconds, 2) if seconds > 0 else None,
        "peak_memory_bytes": training.peak_bytes(),
        "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    }


def _results(training: Training, evaluation: Evaluation | None, costs: Mapping[str, Any]) -> dict[str, Any]:
    loss, score = training.last_means
    return {
        **costs,
        "steps": training.step,
        "epochs": training.epochs_done,
        "train": {"loss": loss, training.score_name: score},
        "best_validation": training.best,
        "kept": training.settings.keep,
        "evaluation": None if evaluation is None else evaluation.as_dict(),
    }


def _headline(evaluation: Evaluation | None) -> dict[str, float]:
    if evaluation is None:
        return {}
    return {
        f"{name} {what}": value
        for name, scores in evaluation.scores.items()
        for what, value in (("upright", scores.upright), ("rotated", scores.rotated), ("std", scores.std))
    }


def _class_names(training: Training) -> tuple[str, ...]:
    """What each output means: a single one is the foreground."""
    classes = training.data.classes
    return classes[-outputs(loss_name(training.settings, training.data), len(classes)) :]


def _preprocessing(training: Training) -> Preprocessing:
    data = training.data
    fit = training.settings.data_options.get("fit", "squash")
    return Preprocessing(data["train"].size, data.mean, data.std, fit=fit, scale=data["train"].scale)
