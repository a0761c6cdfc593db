"""What a convolution or a pooling does along each axis, whatever class it is of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from ringconv._copied import copied
from ringconv._network import dtype_of
from ringconv.conversion.resizing import SizeRule
from ringconv.rings import as_tuple

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
TransposedConv = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
MaxPool = nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d
AvgPool = nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d

CONVS: tuple[type[Conv], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_CONVS: tuple[type[TransposedConv], ...] = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
MAX_POOLS: tuple[type[MaxPool], ...] = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVG_POOLS: tuple[type[AvgPool], ...] = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ALL_CONVS: tuple[type[Conv | TransposedConv], ...] = (*CONVS, *TRANSPOSED_CONVS)
POOLS: tuple[type[MaxPool | AvgPool], ...] = (*MAX_POOLS, *AVG_POOLS)


class UnknownWindowError(ValueError):
    """A subclass computes something that its attributes do not tell."""


@dataclass(frozen=True)
class Window:
    """A window that slides over a map. All tuples have one entry per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    """Before and after. Padding by the size of the map ("same" of TensorFlow) is its total for stride 1: it gives the
    same number of samples."""
    dilation: tuple[int, ...]
    rounds_up: bool = False
    """``ceil_mode`` of a pooling."""

    @property
    def shrink(self) -> tuple[int, ...]:
        """Input length - output length at stride 1."""
        return tuple(d * (k - 1) - sum(pad) for k, d, pad in zip(self.kernel, self.dilation, self.padding, strict=True))

    @property
    def rule(self) -> SizeRule:
        slack = tuple(-shrink - 1 for shrink in self.shrink)
        return SizeRule(self.stride, slack, tuple(before for before, _ in self.padding) if self.rounds_up else ())

    @property
    def is_strided(self) -> bool:
        return any(step > 1 for step in self.stride)

    @property
    def is_pointwise(self) -> bool:
        return max(self.kernel) == 1

    @property
    def is_disjoint(self) -> bool:
        """Windows side by side, as of a patch embedding or MaxPool(2)."""
        padded = any(pad != (0, 0) for pad in self.padding)
        return self.kernel == self.stride and not padded and all(d == 1 for d in self.dilation)

    @property
    def is_lopsided(self) -> bool:
        """Whether one side is padded more than the other."""
        return any(before != after for before, after in self.padding)

    @property
    def treats_axes_alike(self) -> bool:
        return len(set(zip(self.kernel, self.stride, self.padding, self.dilation, strict=True))) == 1

    def padded_as_same(self) -> Window:
        totals = [d * (k - 1) for k, d in zip(self.kernel, self.dilation, strict=True)]
        return replace(self, padding=tuple((total // 2, total - total // 2) for total in totals), rounds_up=False)


def dimensions_of(layer: nn.Module) -> int:
    """1, 2 or 3, from torch's class that the layer is of."""
    for classes in (CONVS, TRANSPOSED_CONVS, MAX_POOLS, AVG_POOLS):
        for dimensions, kind in enumerate(classes, 1):
            if isinstance(layer, kind):
                return dimensions
    raise TypeError(f"{type(layer).__name__} is neither a convolution nor a pooling of torch")


def has_own_forward(layer: nn.Module) -> bool:
    """Whether a subclass computes something else than torch's class does with the same attributes."""
    kind = next(k for k in (*CONVS, *TRANSPOSED_CONVS, *MAX_POOLS, *AVG_POOLS) if isinstance(layer, k))
    methods = [name for name in ("forward", "_conv_forward") if hasattr(kind, name)]
    return any(getattr(type(layer), name) is not getattr(kind, name) for name in methods)


def window_of(layer: Conv | MaxPool | AvgPool) -> Window:
    """The window of a convolution or a pooling.

    A subclass with a forward of its own is tried on a few sizes: it must pad as its attributes say, or by the size of
    the map. Else :class:`UnknownWindowError` says what it did.
    """
    n_dims = dimensions_of(layer)
    kernel = as_tuple(layer.kernel_size, n_dims, "kernel_size")
    stride = as_tuple(layer.stride or layer.kernel_size, n_dims, "stride")
    dilation = as_tuple(getattr(layer, "dilation", 1), n_dims, "dilation")
    window = Window(kernel, stride, ((0, 0),) * n_dims, dilation, bool(getattr(layer, "ceil_mode", False)))
    if layer.padding == "same":
        window = window.padded_as_same()
    elif layer.padding != "valid":
        sides = as_tuple(layer.padding, n_dims, "padding")  # type: ignore[arg-type]
        window = replace(window, padding=tuple((side, side) for side in sides))
    return _tried(layer, window) if has_own_forward(layer) else window


def _tried(layer: Conv | MaxPool | AvgPool, window: Window) -> Window:
    candidates = [window, window.padded_as_same()]
    reach = max(d * (k - 1) + 1 for k, d in zip(window.kernel, window.dilation, strict=True))
    sides = range(reach, reach + 2 * max(window.stride) + 2)
    given = sizes_given(layer, getattr(layer, "in_channels", 1), len(window.kernel), sides)
    for candidate in candidates:
        if all(candidate.rule([side] * len(size)) == size for side, size in zip(sides, given, strict=True)):
            return candidate
    raise UnknownWindowError(
        f"{type(layer).__name__} gives other sizes than its stride and padding say:"
        f" {'x'.join(map(str, given[0]))} for {'x'.join([str(sides[0])] * len(given[0]))}"
    )


def sizes_given(layer: nn.Module, channels: int, n_dims: int, sides: range) -> list[list[int]]:
    """Output sizes of a layer on square maps of these sides, found without computing anything."""
    trial = copied(layer).to("meta").eval()
    dtype = dtype_of(trial)
    try:
        # Not called as a module: its hooks are not to be run.
        outputs = [
            type(trial).forward(trial, torch.empty(1, channels, *[side] * n_dims, device="meta", dtype=dtype))
            for side in sides
        ]
    except Exception as error:
        raise UnknownWindowError(f"{type(layer).__name__} could not be tried: {error}") from error
    if not all(isinstance(y, torch.Tensor) and y.dim() == n_dims + 2 for y in outputs):
        raise UnknownWindowError(f"{type(layer).__name__} does not return a map")
    return [list(y.shape[2:]) for y in outputs]
