"""What every loader returns: splits of images with their targets, read a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ringconv.data.decode import Fit, resampled_type, shown_part

Task = Literal["classify", "segment"]

_SAMPLED_FOR_STATISTICS = 1_000
"""Images that the mean and standard deviation of an unknown set are taken from."""


class Rows(Protocol):
    """Something to take rows from: an array, a memory map, or files that are decoded when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some rows of another :class:`Rows`, in the given order, without a copy."""

    of: Rows
    chosen: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.chosen), *self.of.shape[1:]

    @property
    def dtype(self) -> Any:
        return self.of.dtype

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, rows: Any, /) -> Any:
        return self.of[self.chosen[rows]]


@dataclass(frozen=True, eq=False)
class Resized:
    """Another :class:`Rows` (N, *S) or (N, *S, C), resized as it is read; class numbers are never mixed."""

    of: Rows
    sides: tuple[int, ...]
    fit: Fit = "squash"
    are_classes: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.of), *self.sides, *self.of.shape[1 + len(self.sides) :]

    @property
    def dtype(self) -> Any:
        return self.of.dtype if self.are_classes else resampled_type(self.of.dtype)

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, rows: Any, /) -> Any:
        part = (slice(None), *shown_part(self.of.shape[1 : 1 + len(self.sides)], self.sides, self.fit))
        values = torch.from_numpy(np.ascontiguousarray(self.of[rows][part]).astype(np.float32))
        has_channels = values.ndim == len(self.sides) + 2
        images = values.movedim(-1, 1) if has_channels else values[:, None]
        if self.are_classes:
            resized = F.interpolate(images, self.sides, mode="nearest-exact")
        elif len(self.sides) == 2:
            resized = F.interpolate(images, self.sides, mode="bilinear", antialias=True)
        else:
            resized = F.interpolate(images, self.sides, mode="trilinear")
        if np.issubdtype(self.dtype, np.integer):
            resized = resized.round()
        resized = resized.movedim(1, -1) if has_channels else resized[:, 0]
        return resized.numpy().astype(self.dtype)


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their targets; a map-style data set that torch's ``DataLoader`` takes as it is.

    Attributes:
        images: (N, *S) or (N, *S, C).
        targets: labels (N,), or masks (N, *S) of class numbers.
        dimensions: number of spatial axes S, 2 or 3.
        scale: the stored value that becomes 1.
        groups: (N,), the patient, slide or scene of each image; None if not known.
    """

    images: Rows
    targets: Rows
    dimensions: int = 2
    scale: float = 255.0
    groups: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        counts = {"images": len(self.images), "targets": len(self.targets)}
        if self.groups is not None:
            counts["groups"] = len(self.groups)
        if len(set(counts.values())) != 1:
            raise ValueError(f"a split needs one target (and group) per image, got {counts}")
        if len(self.images.shape) not in (self.dimensions + 1, self.dimensions + 2):
            raise ValueError(
                f"images of {self.dimensions} dimensions must be (N, *S) or (N, *S, C), got {tuple(self.images.shape)}"
            )
        if len(self.targets.shape) > 1 and tuple(self.targets.shape[1:]) != self.size:
            raise ValueError(f"masks must have the images' size {self.size}, got {tuple(self.targets.shape[1:])}")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        """Image (C, *S) on a scale from 0 to 1, and its label () or mask (*S)."""
        images, targets = self.batch([range(len(self))[row]])
        return images[0], targets[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """What a ``DataLoader`` asks for when it can: a batch in one read."""
        return list(zip(*self.batch(rows), strict=True))

    def batch(self, rows: ArrayLike | slice) -> tuple[Tensor, Tensor]:
        """Images (B, C, *S) float32 on a scale from 0 to 1, with labels (B,) or masks (B, *S) int64."""
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        index = np.asarray(rows, np.int64)
        pixels = torch.from_numpy(np.ascontiguousarray(self.images[index]).astype(np.float32, copy=False))
        pixels = pixels.unsqueeze(1) if pixels.ndim == self.dimensions + 1 else pixels.movedim(-1, 1)
        if self.scale != 1:
            pixels = pixels / self.scale
        targets = torch.from_numpy(np.ascontiguousarray(self.targets[index]).astype(np.int64))
        return pixels.contiguous(), targets

    def take(self, rows: ArrayLike) -> Split:
        """Only these rows, in this order."""
        index = np.asarray(rows, np.int64)
        targets = Chosen(self.targets, index) if len(self.targets.shape) > 1 else self.targets[index]
        groups = None if self.groups is None else self.groups[index]
        return replace(self, images=Chosen(self.images, index), targets=targets, groups=groups)

    def resized(self, sides: tuple[int, ...], fit: Fit = "squash") -> Split:
        """Brought to these sides as it is read."""
        if self.size == sides:
            return self
        masks = len(self.targets.shape) > 1
        targets = Resized(self.targets, sides, fit, are_classes=True) if masks else self.targets
        return replace(self, images=Resized(self.images, sides, fit), targets=targets)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """(N,) of a classification; None where the targets are masks."""
        return np.asarray(self.targets[:], np.int64) if len(self.targets.shape) == 1 else None

    @property
    def channels(self) -> int:
        return self.images.shape[-1] if len(self.images.shape) == self.dimensions + 2 else 1

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.images.shape[1 : self.dimensions + 1])


@dataclass(frozen=True, eq=False)
class DataSet:
    """Splits that belong together.

    Attributes:
        classes: name of every class number; ("background", ...) of a segmentation.
        splits: by name, of "train", "val" and "test".
        mean, std: of each channel on the scale from 0 to 1; what networks see is (image - mean) / std.
        spacing: size of a voxel along each spatial axis (D, H, W), in the unit of the files; None if not known.
        notes: what was skipped, and anything else that should stand beside a result.
        drawn: whether a share of it was drawn to test on, since it does not say itself.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    splits: Mapping[str, Split]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    spacing: tuple[float, ...] | None = None
    notes: tuple[str, ...] = field(default=())
    drawn: bool = False

    def __post_init__(self) -> None:
        if not self.splits:
            raise ValueError(f"{self.name} has no split")
        shapes = {name: (split.channels, split.dimensions) for name, split in self.splits.items()}
        if len(set(shapes.values())) != 1:
            raise ValueError(f"the splits of {self.name} differ in channels and dimensions: {shapes}")
        if self.task == "segment" and len(self.classes) < 2:
            raise ValueError(
                f"{self.name}: a segmentation needs at least two classes, the background first, got {self.classes}"
            )
        for name, split in self.splits.items():
            _check_labels(f"{self.name}, {name}", split, self.classes)
        if not self.mean:
            mean, std = statistics(self.splits.get("train", next(iter(self.splits.values()))))
            if not np.isfinite([*mean, *std]).all():
                raise ValueError(
                    f"the images of {self.name} hold values that are not finite (NaN or infinity), as pixels without"
                    " data often do; replace them by a number first"
                )
            object.__setattr__(self, "mean", mean)
            object.__setattr__(self, "std", std)
        if not self.channels == len(self.mean) == len(self.std):
            raise ValueError(
                f"{self.name} has {self.channels} channels, but mean and std are {self.mean} and {self.std}"
            )

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        return self.splits[split]

    @property
    def dimensions(self) -> int:
        return next(iter(self.splits.values())).dimensions

    @property
    def channels(self) -> int:
        return next(iter(self.splits.values())).channels

    def normalise(self, images: Tensor) -> Tensor:
        """(B, C, *S) on a scale from 0 to 1 -> as networks see it."""
        return normalise(images, self.mean, self.std)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(B, C, *S): (images - mean) / std, channel by channel."""
    shape = (1, -1, *[1] * (images.ndim - 2))
    return (images - images.new_tensor(mean).view(shape)) / images.new_tensor(std).view(shape)


def statistics(split: Split, seed: int = 0) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel on the scale from 0 to 1, over up to a thousand images.

    Occupancy (stored as 0 and 1) is left as it is, so that empty space stays 0.
    """
    if split.scale == 1 and np.issubdtype(split.images.dtype, np.integer):
        return (0.0,) * split.channels, (1.0,) * split.channels
    drawn = np.random.default_rng(seed).permutation(len(split))[:_SAMPLED_FOR_STATISTICS]
    total = torch.zeros(split.channels, dtype=torch.float64)
    squares = total.clone()
    count = 0
    for rows in np.array_split(np.sort(drawn), -(-len(drawn) // 16)) if len(drawn) else ():
        pixels = split.batch(rows)[0].double().movedim(1, 0).flatten(1)
        total += pixels.sum(1)
        squares += pixels.square().sum(1)
        count += pixels.shape[1]
    mean = total / max(count, 1)
    deviation = (squares / max(count, 1) - mean.square()).clamp(min=0).sqrt()
    # A constant channel says nothing: its scale does not matter, but dividing by zero (or by what rounding left) would.
    deviation[deviation <= 1e-6 * mean.abs()] = 1.0
    return tuple(mean.tolist()), tuple(deviation.tolist())


def _check_labels(where: str, split: Split, classes: Sequence[str]) -> None:
    labels = split.labels
    if labels is None:
        return
    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        raise ValueError(
            f"{where}: {len(wrong)} labels are not of the {len(classes)} classes 0 to {len(classes) - 1}; the first is"
            f" {labels[wrong[0]]} at row {wrong[0]}"
        )
