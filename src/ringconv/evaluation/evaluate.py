"""A network's test, upright, turned and mirrored."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from ringconv._network import device_of, dtype_of
from ringconv._progress import Progress
from ringconv.data import DataSet, Split, normalise, stratified_subset
from ringconv.equivariance import evaluating
from ringconv.evaluation.meters import Classified, Meter, Segmented
from ringconv.evaluation.results import Evaluation, EvaluationSettings
from ringconv.evaluation.symmetrise import Symmetrised
from ringconv.evaluation.views import Plan, Viewer, plan_views


def evaluate(
    network: nn.Module,
    data: DataSet,
    settings: EvaluationSettings | None = None,
    *,
    split: str = "test",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Test ``network`` on every view of every image of a split.

    Images are normalised, then turned. The network runs in eval mode and without gradients; its mode is restored.

    Args:
        network: (B, C, *S) -> logits (B, classes); of a segmentation maps (B, classes, *S); for two classes one output
            is enough. It is asked in the precision of its parameters.
        settings: default ``EvaluationSettings()``, as in the paper.
        mean, std: of the normalisation that the network was trained with; default the data's.
        device: default where the network's parameters are.
        progress: told after every batch in every view.
    """
    settings = settings or EvaluationSettings()
    images = _chosen(data[split], settings)
    if not len(images):
        raise ValueError(f"{data.name} has no image in {split}")
    plan = plan_views(data.dimensions, settings.step, settings.reflections)
    viewer = Viewer(plan, settings.turning, data.spacing)
    meter: Meter = Classified(len(data.classes)) if data.task == "classify" else Segmented(len(data.classes))
    asked: nn.Module = network
    if settings.symmetrise is not None:
        asked = Symmetrised(network, settings.symmetrise, data.dimensions)
    mean, std = data.mean if mean is None else mean, data.std if std is None else std

    started = time.perf_counter()
    with evaluating(asked), torch.inference_mode():
        _run(asked, images, viewer, meter, settings, mean, std, torch.device(device or device_of(network)), progress)
    return Evaluation(
        data=data.name,
        split=split,
        task=data.task,
        images=len(images),
        settings=settings,
        scores=meter.scores(plan),
        drift=meter.drift(),
        seconds=time.perf_counter() - started,
    )


def _run(
    network: nn.Module,
    images: Split,
    viewer: Viewer,
    meter: Meter,
    settings: EvaluationSettings,
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device,
    progress: Progress | None,
) -> None:
    segments = images.labels is None
    dtype = dtype_of(network)
    counted_on = "cpu" if device.type == "mps" else device  # Apple's GPUs have no float64
    starts = range(0, len(images), settings.batch_size)
    total = len(starts) * _number_of_views(viewer.plan)
    done = 0
    for start in starts:
        pixels, targets = images.batch(slice(start, start + settings.batch_size))
        pixels, targets = normalise(pixels.to(device), mean, std), targets.to(device)
        for name, view, turned in viewer.show(pixels, targets if segments else None):
            output = network(view.to(dtype))
            meter.add(name, *(tensor.to(counted_on) for tensor in (output, *(turned or (targets,)))))
            done += 1
            if progress is not None:
                progress("test", done, total)


def _number_of_views(plan: Plan) -> int:
    return 1 + sum(turn.angle != 0 for turn in plan.turns.values()) + len(plan.flips)


def _chosen(images: Split, settings: EvaluationSettings) -> Split:
    if settings.subset is None:
        return images
    labels = images.labels
    strata = np.zeros(len(images)) if labels is None else labels
    return images.take(stratified_subset(strata, settings.subset, settings.seed))
