"""Make the networks that come with the page: ``python -m ringconv.demo.train [FOLDER]``, a few minutes on two cores.

Trained upright, without turned or mirrored images; the same machine makes the same files.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ringconv._files import write_whole
from ringconv.data.textures import PHOTOGRAPHS, load_textures
from ringconv.demo.examples import SCENE
from ringconv.demo.networks import WEIGHTS, classifier_bytes
from ringconv.demo.scenes import SCENES, Scene, load_scene
from ringconv.demo.views import STEP
from ringconv.equivariance import rotate
from ringconv.models.checkpoint import save_model
from ringconv.models.registry import create_model
from ringconv.training.compare import CompareSettings, accuracy, trained
from ringconv.training.networks import KINDS, Kind
from ringconv.training.objective import bce_and_dice, scores
from ringconv.training.optimise import parameter_groups

TEXTURES = CompareSettings()
"""As `ringconv compare` trains them."""

SEGMENTER: dict[Kind, tuple[str, dict[str, Any]]] = {
    "plain": ("unet", {"in_chans": 3, "num_classes": 1, "width": 8, "kernel_size": 3}),
    "ring": (
        "gmr_unet",
        {
            "in_chans": 3,
            "num_classes": 1,
            "width": 12,
            "kernel_size": [5, 5, 3, 3],
        },
    ),
}
_STEPS = 400
_BATCH = 8
_CROP = 64
_LEARNING_RATE = 4e-3
_WEIGHT_DECAY = 1e-4
_MEAN, _STD = 0.5, 0.25
"""Of pixels on a scale from 0 to 1; instance normalisation does the rest."""

Say = Callable[[str], object]


def make_networks(folder: Path = WEIGHTS, say: Say = lambda line: None) -> None:
    """Train all four and write them to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        _make_classifier(kind, folder / f"textures-{kind}.safetensors", say)
    for kind in KINDS:
        _make_segmenter(kind, folder / f"segmenter-{kind}.safetensors", say)


def _make_classifier(kind: Kind, path: Path, say: Say) -> None:
    train = load_textures("train", TEXTURES.train_patches, TEXTURES.seed)
    test = load_textures("test", TEXTURES.test_patches, TEXTURES.seed)
    network = trained(kind, train, TEXTURES, lambda stage, done, total: None)
    labels = torch.from_numpy(test.labels)
    by_angle = {angle: accuracy(network, patches, labels) for angle, patches in test.turns(STEP)}
    metrics = {"upright": by_angle[0], "rotated": statistics.fmean(by_angle.values())}
    write_whole(path, classifier_bytes(network, [photograph.name for photograph in PHOTOGRAPHS], metrics))
    say(f"{path.name}: accuracy {_in_words(metrics)}")


def _make_segmenter(kind: Kind, path: Path, say: Say) -> None:
    name, options = SEGMENTER[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = create_model(name, **options)
        _train_segmenter(network)
    metrics = _test_segmenter(network)
    save_model(path, network, preprocessing={"mean": [_MEAN] * 3, "std": [_STD] * 3}, metrics=metrics)
    say(f"{path.name}: Dice {_in_words(metrics)}")


def _train_segmenter(network: nn.Module) -> None:
    generator = np.random.default_rng(0)
    scenes = [load_scene(name, "train") for name in SCENES]
    optimizer = torch.optim.AdamW(parameter_groups(network, _WEIGHT_DECAY), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=_STEPS, pct_start=0.1)
    network.train()
    for _ in range(_STEPS):
        drawn = [_crop(scenes[number % len(scenes)], generator) for number in range(_BATCH)]
        images, masks = (torch.stack(each) for each in zip(*drawn, strict=True))
        loss = bce_and_dice(network((images - _MEAN) / _STD), masks).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    network.eval()


def _crop(scene: Scene, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """An upright square of a scene, (3, _CROP, _CROP) in other light, and its mask."""
    row, column = (int(generator.integers(side - _CROP + 1)) for side in scene.mask.shape)
    part = slice(row, row + _CROP), slice(column, column + _CROP)
    light = scene.pixels[part] / 255 * generator.uniform(0.7, 1.3) + generator.uniform(-0.15, 0.15)
    image = torch.from_numpy(light.clip(0, 1).astype(np.float32)).movedim(-1, 0)
    return image, torch.from_numpy(scene.mask[part].astype(np.int64))


@torch.no_grad()
def _test_segmenter(network: nn.Module) -> dict[str, float]:
    """Mean Dice over squares of the test parts, upright and over all angles, the mask turned with the image."""
    border = (SCENE - _CROP) // 2
    middle = (..., slice(border, border + _CROP), slice(border, border + _CROP))
    windows, truths = [], []
    for name in SCENES:
        scene = load_scene(name, "test")
        for row in range(0, scene.mask.shape[0] - SCENE + 1, _CROP // 2):
            for column in range(0, scene.mask.shape[1] - SCENE + 1, _CROP // 2):
                part = slice(row, row + SCENE), slice(column, column + SCENE)
                windows.append(torch.from_numpy(scene.pixels[part] / 255).float().movedim(-1, 0))
                truths.append(torch.from_numpy(scene.mask[part]).float())
    window, truth = torch.stack(windows), torch.stack(truths)
    by_angle = {}
    for angle in range(0, 360, STEP):
        images = rotate(window, angle)[middle].clamp(0, 1)
        masks = (rotate(truth, angle)[middle] > 0.5).long()
        by_angle[angle] = 100 * float(scores(network((images - _MEAN) / _STD), masks).mean())
    return {"upright": by_angle[0], "rotated": statistics.fmean(by_angle.values())}


def _in_words(metrics: dict[str, float]) -> str:
    return f"{metrics['upright']:.1f}% upright, {metrics['rotated']:.1f}% over all angles"


if __name__ == "__main__":
    make_networks(Path(sys.argv[1]) if len(sys.argv) > 1 else WEIGHTS, lambda line: sys.stdout.write(line + "\n"))
