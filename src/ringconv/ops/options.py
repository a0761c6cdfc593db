"""What every way of computing the convolution needs to know besides its tensors."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
PADDING_MODES: tuple[PaddingMode, ...] = ("zeros", "reflect", "replicate", "circular")


class ConvOptions(NamedTuple):
    """The options of a convolution, one value per axis."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    """(before, after) per axis."""
    dilation: tuple[int, ...]
    groups: int
    padding_mode: PaddingMode

    @property
    def flat_padding(self) -> list[int]:
        """As torch's ``pad`` takes it: the last axis first."""
        return [side for pair in reversed(self.padding) for side in pair]


def pad_input(x: Tensor, options: ConvOptions) -> tuple[Tensor, tuple[int, ...]]:
    """Pad what a torch convolution cannot pad itself; returns the input and the padding left to the convolution."""
    if options.padding_mode == "zeros" and all(before == after for before, after in options.padding):
        return x, tuple(before for before, _ in options.padding)
    mode = "constant" if options.padding_mode == "zeros" else options.padding_mode
    return F.pad(x, options.flat_padding, mode=mode), (0,) * len(options.padding)
