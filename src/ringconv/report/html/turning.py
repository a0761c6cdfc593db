"""The images whose answer changes most when they turn: which they are, and frames of them turning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._network import dtype_of
from ringconv._progress import Progress
from ringconv.evaluation.overlap import foreground, overlap
from ringconv.report.html.images import GREY, Picture, TestImages, film, fit_square, pictures

_BATCH_PIXELS = 64 * 64 * 64
"""Pixels that a network is shown at once."""
_SIDE = {"classify": 96, "segment": 160}
"""Longest side of a frame, in pixels."""
_FOUND, _TRUE = torch.tensor([0.0, 0.45, 0.70]), torch.tensor([1.0, 0.85, 0.2])
"""Colours of what was found, as a veil, and of what is true, as an outline."""


@dataclass(frozen=True)
class Answers:
    """What one network says about one image, angle by angle."""

    label: str
    texts: list[str]
    good: list[float]
    """From 0 (wrong) to 1 (right); the Dice of a segmentation."""
    film: str | None = None
    """Of a segmentation: the image with what was found."""

    @property
    def changes(self) -> int:
        """At how many angles the answer differs from the upright one."""
        return sum(text != self.texts[0] for text in self.texts)


@dataclass(frozen=True)
class TurningImage:
    truth: str
    film: str | None
    """Of a classification: the image, which is the same for all networks."""
    side: int
    answers: list[Answers]


@dataclass(frozen=True)
class Turned:
    """What turning does to some test images."""

    angles: list[float]
    tested: int
    changed: dict[str, float]
    """Of each network: percentage of the images whose answer is another at any angle; of a segmentation, the mean over
    images of the best Dice minus the worst, in percent."""
    images: list[TurningImage]


def turn_images(
    networks: Mapping[str, nn.Module], images: TestImages, count: int, progress: Progress | None = None
) -> Turned:
    """Show networks some images at every angle, and keep the ``count`` images whose answer changes most."""
    classifies = images.labels is not None
    angles = [float(angle) for angle in range(0, 360, 15 if classifies and images.dimensions == 2 else 30)]
    for network in networks.values():
        network.eval()
    said: dict[str, list[Tensor]] = {label: [] for label in networks}
    total = len(angles) * len(networks)
    with torch.inference_mode():
        for angle in angles:
            turned = images.turned(angle)
            for label, network in networks.items():
                said[label].append(_answers(network, turned))
                if progress is not None:
                    progress("turn", sum(map(len, said.values())), total)
    if classifies:
        return _classified(images, angles, {label: torch.stack(all_) for label, all_ in said.items()}, count)
    return _segmented(images, angles, said, count)


def _answers(network: nn.Module, images: Tensor) -> Tensor:
    """Class numbers (N,), or maps of them (N, *S)."""
    batch = max(1, _BATCH_PIXELS // math.prod(images.shape[2:]))
    outputs = [network(some.to(dtype_of(network))) for some in torch.split(images, batch)]
    return torch.cat([out.argmax(1) if out.shape[1] > 1 else (out[:, 0] > 0).long() for out in outputs])


# -- classes


def _classified(images: TestImages, angles: list[float], said: Mapping[str, Tensor], count: int) -> Turned:
    """``said``: (angles, N) of each network."""
    assert images.labels is not None
    changes = torch.stack([(all_ != all_[0]).double().mean(0) for all_ in said.values()])  # (networks, N)
    # An answer that was right says more when it changes.
    right = torch.stack([all_[0] == images.labels for all_ in said.values()])
    order = torch.where(right, changes, changes / 2).amax(0).argsort(descending=True, stable=True)
    chosen = [int(row) for row in order[:count] if changes[:, row].amax() > 0]
    frames = _frames(images, angles, chosen)
    shown = [
        TurningImage(
            images.classes[int(images.labels[row])],
            film(frames[place]),
            frames[place][0].shape[0],
            [_class_answers(images, label, all_[:, row], int(images.labels[row])) for label, all_ in said.items()],
        )
        for place, row in enumerate(chosen)
    ]
    changed = {label: 100 * float((row > 0).double().mean()) for label, row in zip(said, changes, strict=True)}
    return Turned(angles, changes.shape[1], changed, shown)


def _class_answers(images: TestImages, label: str, said: Tensor, truth: int) -> Answers:
    numbers = said.tolist()
    return Answers(label, [images.classes[n] for n in numbers], [float(n == truth) for n in numbers])


def _frames(images: TestImages, angles: Sequence[float], chosen: Sequence[int]) -> list[list[Picture]]:
    """Of each chosen image, a frame for every angle."""
    if not chosen:
        return []
    by_angle = [pictures(images.seen(images.turned(angle))[list(chosen)], _SIDE["classify"]) for angle in angles]
    return [list(frames) for frames in zip(*by_angle, strict=True)]


# -- masks


def _segmented(images: TestImages, angles: list[float], said: Mapping[str, list[Tensor]], count: int) -> Turned:
    """``said``: of each network, by angle, maps (N, *S)."""
    assert images.masks is not None
    truth = [images.masks(angle) for angle in angles]
    classes = len(images.classes)
    wanted = [foreground(masks, classes) for masks in truth]
    dice = {  # (angles, N)
        label: torch.stack(
            [overlap(foreground(map_, classes), mask)[1] for map_, mask in zip(maps, wanted, strict=True)]
        )
        for label, maps in said.items()
    }
    spread = torch.stack([values.amax(0) - values.amin(0) for values in dice.values()])
    chosen = spread.amax(0).argsort(descending=True, stable=True)[:count].tolist()
    views = [images.seen(images.turned(angle)) for angle in angles]
    shown = []
    for row in chosen:
        answers = []
        for label, maps in said.items():
            frames = [_overlay(*(part[row] for part in view)) for view in zip(views, maps, truth, strict=True)]
            values = dice[label][:, row].tolist()
            answers.append(Answers(label, [f"Dice {100 * value:.1f}" for value in values], values, film(frames)))
        side = frames[0].shape[0]
        shown.append(TurningImage(f"test image {row + 1}", None, side, answers))
    changed = {label: 100 * float(row.mean()) for label, row in zip(said, spread, strict=True)}
    return Turned(angles, spread.shape[1], changed, shown)


def _overlay(image: Tensor, found: Tensor, truth: Tensor) -> Picture:
    """The image (1 or 3, *S), what was found (*S) as a veil, and the truth (*S) as an outline."""
    said, true = found > 0, truth > 0
    if image.ndim == 4:
        middle = image.shape[1] // 2
        image, said, true = image[:, middle], said[middle], true[middle]
    shown = fit_square(image.expand(3, -1, -1)[None].clamp(0, 1), _SIDE["segment"], GREY)[0]
    masks = fit_square(torch.stack([said, true]).float()[None], _SIDE["segment"])[0] > 0.5
    veiled = torch.where(masks[0], 0.55 * shown + 0.45 * _FOUND.view(3, 1, 1), shown)
    outline = masks[1] & (F.max_pool2d((~masks[1]).float()[None], 3, 1, 1)[0] > 0)
    drawn = torch.where(outline, _TRUE.view(3, 1, 1), veiled)
    return pictures(drawn[None], _SIDE["segment"])[0]
