"""Feature maps of a network's stages, described as detection and segmentation heads ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StageInfo:
    """One feature map: (B, channels, *S / reduction). Sides are rounded up; in DenseNets and ConvNeXts by the stem,
    and down after it."""

    name: str
    """Of the module that gives it."""
    channels: int
    reduction: int


@dataclass(frozen=True)
class FeatureInfo:
    """The feature maps that a network made with ``features_only=True`` returns, in order; read as timm's."""

    stages: tuple[StageInfo, ...]

    @classmethod
    def halving(cls, names: Sequence[str], channels: Sequence[int], reduction: int) -> FeatureInfo:
        """Stages of which each but the first halves the maps; the first has maps reduced by ``reduction``."""
        both = zip(names, channels, strict=True)
        return cls(tuple(StageInfo(name, count, reduction * 2**i) for i, (name, count) in enumerate(both)))

    def channels(self) -> list[int]:
        return [stage.channels for stage in self.stages]

    def reduction(self) -> list[int]:
        return [stage.reduction for stage in self.stages]

    def module_name(self) -> list[str]:
        return [stage.name for stage in self.stages]

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[StageInfo]:
        return iter(self.stages)
