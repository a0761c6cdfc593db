"""What a network is made of: a set of factories for its layers, plain or of rings.

A network counts channels; what a channel is, is up to the set. In a network of group convolutions, for example, one
channel is a field of several maps, the stem lifts images to fields, and the pooling before the head takes their
maximum. Such a set keeps the skeleton and overrides what differs.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn
from typing_extensions import TypedDict

from ringconv._checks import check_choice, is_integer
from ringconv.convert import convert
from ringconv.harmonics import HarmonicRings
from ringconv.layers import (
    EquivarianceWarning,
    GMRConv1d,
    GMRConv2d,
    GMRConv3d,
    Init,
    SigmaMode,
)
from ringconv.ops import Method
from ringconv.pooling import DOWNSAMPLINGS, POOLINGS, Downsample, Downsampling, GlobalDisc, Pooling
from ringconv.presets import NETWORK_PRESETS, Preset, of_preset
from ringconv.rings import Edge, Normalize, Sampling, as_tuple

Value = TypeVar("Value")
Size = int | Sequence[int]
"""A kernel's size: an int, or one per axis."""

_CONVS: dict[int, type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_RING_CONVS: dict[int, type[GMRConv1d | GMRConv2d | GMRConv3d]] = {1: GMRConv1d, 2: GMRConv2d, 3: GMRConv3d}
_NORMS: dict[int, type[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d]] = {
    1: nn.BatchNorm1d,
    2: nn.BatchNorm2d,
    3: nn.BatchNorm3d,
}


class BackboneOptions(TypedDict, total=False):
    """Options that every backbone takes, whatever its layers."""

    width: int
    in_chans: int
    num_classes: int
    stem_stride: int
    stem_pool: bool
    features_only: bool


class RingOptions(TypedDict, total=False):
    """Keyword options of the ring layers that hold for a whole network."""

    sigma: SigmaMode | None
    circular: bool
    sampling: Sampling | None
    normalize: Normalize
    init: Init
    spacing: Sequence[float] | None
    method: Method
    edge: Edge | None
    harmonics: int
    harmonic_rings: HarmonicRings
    preset: Preset | None


class PoolingOptions(TypedDict, total=False):
    """How a network of ring layers makes its maps smaller."""

    downsampling: Downsampling
    pooling: Pooling


class Layers(Protocol):
    """Factories of a network's layers.

    Every convolution takes maps (B, map_channels(in_channels), *S) to (B, map_channels(out_channels), *S'), where
    S' = ceil(S / stride), and has no bias; the stem takes images (B, in_chans, *S).
    """

    @property
    def dimensions(self) -> int:
        """Axes of S."""
        ...

    @property
    def turned_axes(self) -> int:
        """The last axes of S, so many, are those in which images turn."""
        ...

    def stem(self, in_chans: int, channels: int, stride: int = 1) -> nn.Module:
        """The first convolution, from the image."""
        ...

    def conv(
        self, in_channels: int, out_channels: int, stage: int, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> nn.Module:
        """A spatial convolution of a stage, counted from 0."""
        ...

    def pointwise(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        """A 1x1 convolution."""
        ...

    def norm(self, channels: int) -> nn.Module: ...

    def activation(self, channels: int) -> nn.Module: ...

    def stem_pool(self, channels: int) -> nn.Module:
        """Halves the maps after the stem."""
        ...

    def global_pool(self, channels: int) -> nn.Module:
        """(B, map_channels(channels), *S) -> (B, pooled_channels(channels)), for a linear head."""
        ...

    def map_channels(self, channels: int) -> int:
        """Channels of the tensor that holds this many channels of the network."""
        ...

    def pooled_channels(self, channels: int) -> int: ...


class GlobalAverage(nn.Module):
    """The mean over all axes but batch and channel: (B, C, *S) -> (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


@dataclass(frozen=True)
class PlainLayers:
    """torch's convolutions, strided where the network asks for it; batch norm and ReLU.

    A method that only changes the convolution overrides :meth:`spatial`, and :meth:`pointwise` if strides are its
    concern.
    """

    kernel_size: Sequence[Size]
    """Of each stage's spatial convolutions."""
    stem_kernel_size: Size = 5
    dimensions: int = 2
    head_pooling: Pooling = "average"
    """Over the map, or over the disc in it."""

    def __post_init__(self) -> None:
        if self.dimensions not in _CONVS:
            raise ValueError(f"dimensions must be 1, 2 or 3, got {self.dimensions!r}")
        check_choice("pooling", self.head_pooling, POOLINGS)
        for size in self.kernel_size:
            check_odd("kernel_size", as_tuple(size, self.dimensions, "kernel_size"))
        check_odd("stem_kernel_size", as_tuple(self.stem_kernel_size, self.dimensions, "stem_kernel_size"))

    @property
    def turned_axes(self) -> int:
        return self.dimensions

    def spatial(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> nn.Module:  # fmt: skip
        """A convolution that keeps the size of its input, divided by the stride."""
        return plain_conv(self.dimensions, in_channels, out_channels, kernel_size, stride, dilation, groups)

    def stem(self, in_chans: int, channels: int, stride: int = 1) -> nn.Module:
        return self.spatial(in_chans, channels, self.stem_kernel_size, stride)

    def conv(
        self, in_channels: int, out_channels: int, stage: int, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> nn.Module:
        return self.spatial(in_channels, out_channels, self.kernel_size[stage], stride, dilation, groups)

    def pointwise(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        return plain_conv(self.dimensions, in_channels, out_channels, 1, stride)

    def norm(self, channels: int) -> nn.Module:
        return _NORMS[self.dimensions](channels)

    def activation(self, channels: int) -> nn.Module:
        return nn.ReLU(inplace=True)

    def stem_pool(self, channels: int) -> nn.Module:
        return Downsample(2, self.dimensions)

    def global_pool(self, channels: int) -> nn.Module:
        return GlobalAverage() if self.head_pooling == "average" else GlobalDisc(self.turned_axes)

    def map_channels(self, channels: int) -> int:
        return channels

    def pooled_channels(self, channels: int) -> int:
        return channels


@dataclass(frozen=True)
class RingLayers(PlainLayers):
    """Ring convolutions of stride 1, after an equivariant down-sampling where the network asks for a stride.

    1x1 convolutions are torch's: there is no ring to choose.
    """

    rings: Sequence[int | None] = ()
    """Of each stage; None: the layer's default. Empty: that of all stages. The stem has the default."""
    options: RingOptions = field(default_factory=RingOptions)
    downsampling: Downsampling = "average"
    """What takes the place of a stride, and the pooling after the stem."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("downsampling", self.downsampling, DOWNSAMPLINGS)
        if self.rings and len(self.rings) != len(self.kernel_size):
            raise ValueError(f"rings must be one number per stage ({len(self.kernel_size)}), got {self.rings!r}")
        stem = as_tuple(self.stem_kernel_size, self.dimensions, "stem_kernel_size")
        if len(set(stem)) > 1:
            warnings.warn(
                f"stem_kernel_size={stem} is symmetric in its equal axes only, so the network is not equivariant to"
                " turns that exchange the others. Use one size for all axes.",
                EquivarianceWarning,
                stacklevel=4,
            )

    def spatial(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: int = 1, dilation: int = 1,
        groups: int = 1,
    ) -> nn.Module:  # fmt: skip
        return self.ring_conv(in_channels, out_channels, kernel_size, None, stride, dilation, groups)

    def conv(
        self, in_channels: int, out_channels: int, stage: int, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> nn.Module:
        size, rings = self.kernel_size[stage], self.rings[stage] if self.rings else None
        return self.ring_conv(in_channels, out_channels, size, rings, stride, dilation, groups)

    def ring_conv(
        self, in_channels: int, out_channels: int, kernel_size: Size, rings: int | None, stride: int, dilation: int,
        groups: int,
    ) -> nn.Module:  # fmt: skip
        """What :meth:`conv` and :meth:`spatial` return."""
        sizes = as_tuple(kernel_size, self.dimensions, "kernel_size")
        if max(sizes) == 1:
            conv: nn.Module = plain_conv(self.dimensions, in_channels, out_channels, 1, groups=groups)
        else:
            padding = tuple(dilation * (size // 2) for size in sizes)
            conv = _RING_CONVS[self.dimensions](
                in_channels, out_channels, sizes, padding=padding, dilation=dilation, groups=groups, bias=False,
                rings=rings, **self.options,
            )  # fmt: skip
        return after_downsampling(conv, stride, self.dimensions, self.downsampling)

    def pointwise(self, in_channels: int, out_channels: int, stride: int = 1) -> nn.Module:
        conv = plain_conv(self.dimensions, in_channels, out_channels, 1)
        return after_downsampling(conv, stride, self.dimensions, self.downsampling)

    def stem_pool(self, channels: int) -> nn.Module:
        return Downsample(2, self.dimensions, self.downsampling)


def plain_conv(
    dimensions: int,
    in_channels: int,
    out_channels: int,
    kernel_size: Size,
    stride: Size = 1,
    dilation: int = 1,
    groups: int = 1,
) -> nn.Module:
    """torch's convolution without a bias that keeps the size of its input, divided by the stride.

    Initialised as residual networks are: normal, for the variance of a ReLU's gradient.
    """
    sizes = as_tuple(kernel_size, dimensions, "kernel_size")
    conv = _CONVS[dimensions](
        in_channels,
        out_channels,
        sizes,  # type: ignore[arg-type]
        as_tuple(stride, dimensions, "stride"),  # type: ignore[arg-type]
        padding=tuple(dilation * (size // 2) for size in sizes),  # type: ignore[arg-type]
        dilation=dilation,
        groups=groups,
        bias=False,
    )
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def after_downsampling(
    conv: nn.Module, stride: int, dimensions: int, downsampling: Downsampling = "average"
) -> nn.Module:
    """The equivariant replacement of a stride."""
    if stride == 1:
        return conv
    return nn.Sequential(OrderedDict(down=Downsample(stride, dimensions, downsampling), conv=conv))


def check_odd(name: str, sizes: Sequence[int]) -> None:
    if not all(is_integer(size) and size > 0 and size % 2 for size in sizes):
        given = sizes[0] if len(set(sizes)) == 1 else tuple(sizes)
        raise ValueError(f"{name} must be an odd int, so that maps keep their size, got {given!r}")


def check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if not is_integer(size) or size < 1:
            raise ValueError(f"{name} must be an int of at least 1, got {size!r}")


def per_stage(name: str, value: Value | Sequence[Value], stages: int) -> tuple[Value, ...]:
    """One value for each stage; a single one counts for all."""
    single = value is None or not isinstance(value, Iterable)
    values: tuple[Any, ...] = (value,) * stages if single else tuple(value)  # type: ignore[arg-type]
    if len(values) != stages:
        raise ValueError(f"{name} must be one value or one per stage ({stages}), got {value!r}")
    return values


def split_ring_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], RingOptions]:
    """The options of the network, and those of its ring layers."""
    ring = {name: value for name, value in options.items() if name in RingOptions.__annotations__}
    network = {name: value for name, value in options.items() if name not in ring}
    return network, RingOptions(**ring)  # type: ignore[typeddict-item]


def split_layer_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a residual network's skeleton, and the fields of :class:`RingLayers` that come from the others."""
    network, ring = split_ring_options(options)
    network = {**of_preset(NETWORK_PRESETS, ring.get("preset")), **network}
    chosen = {name: network.pop(name) for name in PoolingOptions.__annotations__ if name in network}
    if "pooling" in chosen:
        chosen["head_pooling"] = chosen.pop("pooling")
    return network, {"options": ring, **chosen}


def with_rings(
    network: nn.Module, stages: Sequence[str], rings: Sequence[int | None], options: RingOptions
) -> nn.Module:
    """The network with ring convolutions of the sizes it has; ``rings`` are those of the stages with these names."""
    chosen = {f"{stage}.*": number for stage, number in zip(stages, rings, strict=True) if number is not None}
    return convert(network, rings=chosen or None, inplace=True, **options)
