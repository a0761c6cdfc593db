"""How a data set is to be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal

GroupOf = Callable[[Path], str]


@dataclass(frozen=True)
class DataOptions:
    """How a data set is to be read; what a layout has no use for is ignored."""

    size: int | tuple[int, ...] | None = None
    """Resize to this; one number for all sides. Default: as the set's paper does, or as the files are."""
    fit: Literal["squash", "crop"] = "squash"
    """How pictures of other proportions become ``size``: squashed, or scaled to cover it and cropped in the middle."""
    grey: bool = False
    """Pictures in one channel instead of three."""
    spacing: tuple[float, ...] | None = None
    """Resample volumes to this voxel size (D, H, W), then crop or pad them to ``size``."""
    groups: Path | GroupOf | None = None
    """Groups of a folder of images: a CSV with the columns path and group, or a function of the image's path."""
    grouped: bool | None = None
    """Whether splits keep groups whole. Default: yes, but for NWPU-10, where the paper draws crops one by one."""
    test: float = 0.2
    """Share to test on, where neither the set nor ``per_class`` says what to test on; 1 to test on everything."""
    per_class: int | None = None
    """Train on so many of each class and test on the rest, where the set does not say. NWPU-10: 100, MTARSI: 200."""
    validation: float = 0.0
    """Share of the training images to hold out as the split "val", where the set has none."""
    seed: int = 0
    """Of the splits, and of the points that meshes are sampled at."""
    faults: Literal["refuse", "skip"] = "refuse"
    """What to do about files that cannot be read, and classes without an image (or without one to train on); the notes
    name what is skipped."""
    verify: bool = True
    """Read every file once at the start, so that a truncated one does not show after an hour."""
    cache: bool | None = None
    """Decode once into a memory-mapped file. Default: up to 32 GB, if the disk has twice as much left."""
    cache_folder: Path | None = None
    """Default: the environment's RINGCONV_CACHE, or ringconv in the user's cache folder."""

    def __post_init__(self) -> None:
        for name in ("groups", "cache_folder"):  # text, where they come from JSON or a command line
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)).expanduser())
        sides = (self.size,) if isinstance(self.size, int) else self.size or ()
        if any(side < 1 for side in sides):
            raise ValueError(f"size must be at least 1, got {self.size}")
        for name, allowed in (("fit", ("squash", "crop")), ("faults", ("refuse", "skip"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {getattr(self, name)!r}")
        if not 0 <= self.test <= 1:
            raise ValueError(f"test must be a share in [0, 1], got {self.test}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must be a share in [0, 1), got {self.validation}")
        if self.spacing is not None:
            steps: Any = self.spacing  # of a command line: anything
            is_list = isinstance(steps, list | tuple) and len(steps) == 3
            if not is_list or not all(isinstance(step, Real) and float(step) > 0 for step in steps):
                raise ValueError(
                    f"spacing must be three positive numbers, the size of a voxel along D, H and W, got {self.spacing}"
                )

    def sides(self, dimensions: int, default: int | None = None) -> tuple[int, ...] | None:
        """The size, one number per axis; None to leave files as they are."""
        size = default if self.size is None else self.size
        if size is None:
            return None
        sides = (size,) * dimensions if isinstance(size, int) else tuple(size)
        if len(sides) != dimensions:
            raise ValueError(
                f"the data has {dimensions} dimensions: size must be one number or so many, got {self.size}"
            )
        return sides
