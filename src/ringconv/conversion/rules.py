"""What takes the place of a convolution or a pooling, so that sizes stay and equivariance holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from ringconv.conversion.layer_choice import LayerChoice, by_pattern
from ringconv.conversion.projection import effective_kernel
from ringconv.conversion.report import Action
from ringconv.conversion.resizing import (
    AveragePoolTo,
    ResizedConv,
    SizeRule,
    SymmetricMaxPool,
    UpsampleTo,
    average_pool,
    downsampled_conv,
    symmetric_max_pool,
    upsampled_conv,
)
from ringconv.conversion.windows import (
    CONVS,
    MAX_POOLS,
    AvgPool,
    Conv,
    MaxPool,
    TransposedConv,
    UnknownWindowError,
    Window,
    dimensions_of,
    has_own_forward,
    sizes_given,
    window_of,
)
from ringconv.layers import Downsample, GMRConv1d, GMRConv2d, GMRConv3d, Upsample
from ringconv.rings import as_tuple

ConvFactory = Callable[..., nn.Module]
"""Builds a convolution from the arguments of torch's: channels, then keywords; sizes are one int per axis."""

Strides = Literal["downsample", "downsample_after", "keep"]
STRIDES = ("downsample", "downsample_after", "keep")

RING_CONVS = (GMRConv1d, GMRConv2d, GMRConv3d)
_EQUIVARIANT = (*RING_CONVS, Downsample, Upsample, ResizedConv, AveragePoolTo, SymmetricMaxPool, UpsampleTo)

DRIFTS = "the stride does not sample all borders alike, so that the samples of a turned map are others"
_FLATTENED = "along positions that were flattened, a window does not turn with the image"
_AXES_DIFFER = "its axes are not treated alike: commutes with flips, but with turns of those axes only that are alike"


@dataclass(frozen=True)
class Change:
    """What becomes of a layer: ``new`` takes its place; None: it stays."""

    action: Action
    reason: str
    new: nn.Module | None = None
    breaks: str = ""
    resampling: tuple[int, ...] = ()
    """The down-sampling before the new kernel, as a factor per axis (negative: up-sampling); empty if there is none."""


_PATCH = 4
"""Transformers and mixers cut images into patches of this side or more; smaller ones are a way to halve a map."""

Kind = Literal["pointwise", "patches", "spatial", "one axis", "oblong"]


def kind_of(window: Window) -> Kind:
    """What sort of convolution this window makes.

    Axes of length 1 are none of its business: (1, 3, 3) is a square that a video network slides over every frame. In
    3D, two equal sides of three are a plane to turn in.
    """
    if window.is_pointwise:
        return "pointwise"
    if window.is_disjoint:
        return "patches"
    if len(window.kernel) == 1:
        return "spatial"
    sides = [side for side in window.kernel if side > 1]
    if len(sides) == 1:
        return "one axis"
    return "spatial" if len(set(sides)) < len(sides) else "oblong"


class Rules:
    """How to convert one layer.

    Args:
        to: builds the new convolutions; None: ring convolutions.
        options: further keywords for it.
        strides: what becomes of strides: one of STRIDES, or {name pattern: one of them}.
        kernel_size, rings: per layer.
        dimensions: of the model's maps.
    """

    def __init__(
        self,
        to: ConvFactory | None,
        options: Mapping[str, Any],
        strides: Strides | Mapping[str, Strides],
        kernel_size: LayerChoice,
        rings: LayerChoice,
        dimensions: int,
    ) -> None:
        self._to = to
        self._options = options
        self._strides = strides
        self._kernel_size = kernel_size
        self._rings = rings
        self._dimensions = dimensions

    # -- convolutions

    def conv(self, name: str, conv: Conv, *, only_patches: bool) -> Change:
        """
        Args:
            only_patches: the model has no spatial convolution but for patch embeddings.
        """
        try:
            window = window_of(conv)
        except UnknownWindowError as error:
            return Change("left", "a subclass with sizes of its own", breaks=str(error))
        kind = kind_of(window)
        if conv.weight.is_complex():
            return Change("left", "ring convolutions are real", breaks="kernels without symmetry")
        if kind == "pointwise":
            return self._pointwise(name, conv, window)
        # Of a kernel that is not square, a size makes one that is.
        extent = window.kernel if kind in ("patches", "spatial") else (max(window.kernel),) * len(window.kernel)
        chosen = self._kernel_size.per_axis("kernel_size", name, conv, extent)
        if chosen is None and self._is_along_one_axis(window):
            return _along_channels_or_positions(conv)
        if kind == "patches":
            return self._patches(name, conv, window, chosen, only_patches=only_patches)
        if chosen is None and kind == "one axis":
            return Change(
                "left",
                "extends along one axis only: there is no plane to be symmetric in",
                breaks="a kernel along one axis does not turn with the image"
                if len(window.kernel) == 2
                else "a kernel along one axis commutes with turns about that axis, not with a flip along it",
            )
        if chosen is None and kind == "oblong":
            return Change("left", "the sides of its kernel differ", breaks="a kernel that is not square does not turn")
        return self._spatial(name, conv, window, chosen or window.kernel, asked=chosen is not None)

    def _pointwise(self, name: str, conv: Conv, window: Window) -> Change:
        if not window.is_strided:
            return Change("kept", "1x1: acts on every pixel alone")
        if self._strides_of(name) == "keep":
            return Change("kept", "strides are kept", breaks=DRIFTS)
        if conv.padding_mode != "zeros" and any(pad != (0, 0) for pad in window.padding):
            return Change("left", "1x1 with padding and a stride", breaks=DRIFTS)
        pointwise = CONVS[len(window.kernel) - 1]
        has_bias = conv.bias is not None
        new = pointwise(conv.in_channels, conv.out_channels, 1, groups=conv.groups, bias=has_bias, device="meta")
        weight = conv.weight
        if not isinstance(weight, nn.Parameter) or has_own_forward(conv):
            # It is computed, by a parametrization or in forward: what it is now becomes the weight.
            weight = nn.Parameter(effective_kernel(conv).clone())
        new.weight, new.bias = weight, conv.bias
        return Change(
            "replaced",
            "a strided 1x1: down-sampling, then the same 1x1",
            downsampled_conv(average_pool(window.rule), new, window.stride),
            breaks=_breaks_of(window),
        )

    def _patches(
        self, name: str, conv: Conv, window: Window, chosen: tuple[int, ...] | None, *, only_patches: bool
    ) -> Change:
        if chosen is not None:
            return self._spatial(name, conv, window, chosen, asked=True)
        if only_patches and name and max(window.kernel) >= _PATCH:
            return Change(
                "left",
                "a patch embedding, and no other spatial convolution in the model: not a convolutional network",
                breaks="its patches and what is done with their positions do not turn with the image",
            )
        if self._strides_of(name) == "keep":
            return self._spatial(name, conv, window, window.kernel, asked=False)
        pointwise = self._new_conv(name, conv, (1,) * len(window.kernel), (0,) * len(window.kernel), window)
        lossy = max(window.stride) > 2
        return Change(
            "replaced",
            "disjoint patches: averaged, then 1x1"
            + ("; detail within them is lost, unless a kernel size is given for this layer" if lossy else ""),
            downsampled_conv(average_pool(window.rule), pointwise, window.stride),
            breaks=_breaks_of(window),
            resampling=window.stride,
        )

    def _spatial(self, name: str, conv: Conv, window: Window, kernel: tuple[int, ...], *, asked: bool) -> Change:
        strides = self._strides_of(name)
        if not window.is_strided or strides == "keep":
            return self._same_grid(name, conv, window, kernel, asked=asked)
        kernel, why = self._odd(name, kernel, asked=asked)
        padding = _keeping_size(kernel, window.dilation)
        new = self._new_conv(name, conv, kernel, padding, window)
        down = average_pool(window.rule)
        breaks = _breaks_of(window)
        if strides == "downsample_after":
            after = ResizedConv(OrderedDict(conv=new, down=down))
            after.stride = window.stride
            return Change("converted", f"strided: ring convolution, then down-sampling{why}", after, breaks)
        reason = f"strided: down-sampling, then a ring convolution of stride 1{why}{_least_map(conv, window, padding)}"
        return Change("converted", reason, downsampled_conv(down, new, window.stride), breaks, window.stride)

    def _same_grid(self, name: str, conv: Conv, window: Window, kernel: tuple[int, ...], *, asked: bool) -> Change:
        """A convolution of the same stride, with the padding that keeps the output's size."""
        why = ""
        if window.is_strided and window.is_lopsided:
            return Change("left", "strided, and padded by the size of the map", breaks=DRIFTS)
        if not _fits(kernel, window):
            # One odd size for all layers is not meant for the even kernels among them.
            if asked and (self._kernel_size.is_explicit(name) or any(side % 2 == 0 for side in kernel)):
                fitting = _one_more(kernel, window)
                raise ValueError(
                    f"kernel_size {_times(kernel)} cannot give layer {name!r} the output size of its"
                    f" {_times(window.kernel)} kernel with padding {conv.padding!r}; {_times(fitting)} can"
                )
            kernel = window.kernel if _fits(window.kernel, window) else _one_more(window.kernel, window)
            why = ": only an even kernel gives the same output size" if asked else ": an odd kernel is padded evenly"
        padding = tuple(
            (d * (k - 1) - shrink) // 2 for k, d, shrink in zip(kernel, window.dilation, window.shrink, strict=True)
        )
        cropped = tuple(-min(side, 0) for side in padding)
        new = self._new_conv(name, conv, kernel, tuple(max(side, 0) for side in padding), window, window.stride)
        if any(cropped):
            pads = (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d)[len(kernel) - 1]
            crop = pads(tuple(-side for side in reversed(cropped) for _ in range(2)))  # type: ignore[arg-type]
            new = downsampled_conv(crop, new, window.stride)
        if window.is_strided:
            return Change("converted", f"spatial convolution, its stride kept{why}", new, DRIFTS)
        return Change("converted", f"spatial convolution{why}", new, _breaks_of(window))

    def _odd(self, name: str, kernel: tuple[int, ...], *, asked: bool) -> tuple[tuple[int, ...], str]:
        """After a down-sampling only odd kernels keep the size of the map."""
        if all(side % 2 for side in kernel):
            return kernel, ""
        if asked:
            raise ValueError(f"kernel_size of the strided layer {name!r} must be odd, got {_times(kernel)}")
        odd = tuple(side - 1 + side % 2 for side in kernel)
        return odd, f" ({_times(odd)}: an even kernel would shift the map by half a pixel)"

    def _new_conv(
        self,
        name: str,
        conv: Conv | TransposedConv,
        kernel: tuple[int, ...],
        padding: tuple[int, ...],
        window: Window,
        stride: tuple[int, ...] | None = None,
    ) -> nn.Module:
        options: dict[str, Any] = {
            "stride": stride or (1,) * len(kernel),
            "padding": padding,
            "dilation": window.dilation,
            "groups": conv.groups,
            "bias": conv.bias is not None,
            "padding_mode": conv.padding_mode,
            "device": conv.weight.device,
            "dtype": conv.weight.dtype,
        }
        if max(kernel) == 1:
            return CONVS[len(kernel) - 1](conv.in_channels, conv.out_channels, kernel, **options)  # type: ignore[arg-type]
        rings = self._rings.value(name, conv)
        if rings is not None:
            options["rings"] = rings
        build = self._to or RING_CONVS[len(kernel) - 1]
        try:
            return build(conv.in_channels, conv.out_channels, kernel, **options, **self._options)
        except (TypeError, ValueError) as error:
            raise type(error)(f"layer {name!r} ({type(conv).__name__}): {error}") from error

    def transposed(self, name: str, conv: TransposedConv) -> Change:
        n_dims = dimensions_of(conv)
        kernel, stride, dilation = conv.kernel_size, conv.stride, conv.dilation
        padding = as_tuple(conv.padding, n_dims, "padding")  # type: ignore[arg-type]
        extra = tuple(
            d * (k - 1) + 1 - 2 * p + more
            for k, d, p, more in zip(kernel, dilation, padding, conv.output_padding, strict=True)
        )
        uneven = "a transposed convolution places its kernels unevenly"
        if self._strides_of(name) == "keep":
            return Change("left", "strides are kept", breaks=uneven)
        if conv.weight.is_complex():
            return Change("left", "its weights are complex", breaks=uneven)
        if has_own_forward(conv):
            sides = range(max(4, max(padding) + 1), max(4, max(padding) + 1) + 3)
            try:
                given = sizes_given(conv, conv.in_channels, n_dims, sides)
            except UnknownWindowError as error:
                return Change("left", "a subclass whose sizes are not known", breaks=str(error))
            if any(size != [(side - 1) * s + e for s, e in zip(stride, extra, strict=True)]
                   for side, size in zip(sides, given, strict=True)):  # fmt: skip
                return Change("left", "a subclass with sizes of its own", breaks=uneven)
        if max(kernel) == 1 and max(stride) == 1 and not any(conv.output_padding):
            return Change("kept", "1x1: acts on every pixel alone")
        # A full convolution: the window reaches over the border as far as it can.
        reach = tuple(d * (k - 1) - p for k, d, p in zip(kernel, dilation, padding, strict=True))
        window = Window(kernel, (1,) * n_dims, tuple((side, side) for side in reach), dilation)
        asked = self._kernel_size.per_axis("kernel_size", name, conv, kernel)
        chosen = asked or kernel
        if max(stride) == 1 and not any(conv.output_padding) and _fits(chosen, window) and min(reach) >= 0:
            new = self._new_conv(name, conv, chosen, tuple(
                (d * (k - 1) - shrink) // 2 for k, d, shrink in zip(chosen, dilation, window.shrink, strict=True)
            ), window)  # fmt: skip
            why = "transposed of stride 1: a convolution with its kernel turned over"
            return Change("converted", why, new, breaks=_breaks_of(replace(window, kernel=chosen)))
        if any(side % 2 == 0 for side in chosen) and asked:
            raise ValueError(f"kernel_size of the transposed layer {name!r} must be odd, got {_times(asked)}")
        odd = tuple(side + 1 - side % 2 for side in chosen)
        new = self._new_conv(name, conv, odd, _keeping_size(odd, dilation), window)
        return Change(
            "converted",
            "transposed: up-sampling by linear interpolation, then a ring convolution",
            upsampled_conv(UpsampleTo(stride, extra), new),
            breaks="" if len(set(zip(stride, extra, odd, dilation, strict=True))) == 1 else _AXES_DIFFER,
            resampling=tuple(-step for step in stride),
        )

    # -- pooling

    def pool(self, name: str, pool: MaxPool | AvgPool) -> Change:
        try:
            window = window_of(pool)
        except UnknownWindowError as error:
            return Change("left", "a subclass with sizes of its own", breaks=str(error))
        is_max = isinstance(pool, MAX_POOLS)
        if self._is_along_one_axis(window):
            return Change("left", "a pooling along one axis in a network of maps", breaks=_FLATTENED)
        if not window.is_strided:
            return Change(
                "kept", "stride 1: its windows lie evenly",
                breaks="one side is padded more than the other" if window.is_lopsided else _breaks_of(window),
            )  # fmt: skip
        if self._strides_of(name) == "keep":
            return Change("kept", "strides are kept", breaks=DRIFTS)
        if getattr(pool, "divisor_override", None) is not None:
            return Change("left", "an average with a divisor of its own", breaks=DRIFTS)
        returns_indices = bool(getattr(pool, "return_indices", False))
        disjoint = window.kernel == window.stride and all(d == 1 for d in window.dilation)
        if is_max and disjoint and (window.is_disjoint or window.rule.is_ceil_division):
            return Change(
                "replaced",
                "max over disjoint windows: as before on sizes that they fill, symmetric on others",
                symmetric_max_pool(window.rule, returns_indices),
                _breaks_of(window),
            )
        if returns_indices:
            return Change("left", "the places of its maxima are used", breaks=DRIFTS)
        reason = (
            "overlapping or lopsided maxima depend on where the windows start: average pooling"
            if is_max
            else "average pooling to the same size, symmetric at every size"
        )
        return Change("replaced", reason, average_pool(window.rule), _breaks_of(window))

    def blur_pool(self, name: str, pool: nn.Module) -> Change:
        """Anti-aliasing layers are known by their name; what they do to sizes is tried."""
        if self._strides_of(name) == "keep":
            return Change("kept", "strides are kept", breaks=DRIFTS)
        channels = int(getattr(pool, "channels", None) or 1)
        stride = as_tuple(getattr(pool, "stride", 2) or 2, 2, "stride")
        candidates = [SizeRule.ceil_division(stride), SizeRule(stride, tuple(-step for step in stride))]
        sides = range(8, 8 + 2 * max(stride))
        try:
            given = sizes_given(pool, channels, 2, sides)
        except UnknownWindowError as error:
            return Change("left", "an anti-aliasing layer that is not known", breaks=str(error))
        for rule in candidates:
            if all(rule([side, side]) == size for side, size in zip(sides, given, strict=True)):
                return Change("replaced", "blur and stride: average pooling to the same size", average_pool(rule))
        return Change("left", "an anti-aliasing layer with sizes of its own", breaks=DRIFTS)

    def _is_along_one_axis(self, window: Window) -> bool:
        """Of maps, that is: a signal has no other."""
        return len(window.kernel) == 1 < self._dimensions

    def _strides_of(self, name: str) -> str:
        strides = self._strides
        return by_pattern(strides, name) or "downsample" if isinstance(strides, Mapping) else strides


def _along_channels_or_positions(conv: Conv) -> Change:
    """What a Conv1d among others of more axes runs along, as far as its channels tell."""
    if conv.in_channels == 1:
        return Change("kept", "of one channel, in a network of maps: an attention to channels, which runs along them")
    return Change("left", "a convolution along one axis in a network of maps", breaks=_FLATTENED)


def _fits(kernel: tuple[int, ...], window: Window) -> bool:
    """Whether a symmetric padding gives the window's output size with this kernel."""
    return all(
        (d * (k - 1) - shrink) % 2 == 0 for k, d, shrink in zip(kernel, window.dilation, window.shrink, strict=True)
    )


def _one_more(kernel: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """The next longer kernel that fits, axis by axis."""
    return tuple(
        k + (d * (k - 1) - shrink) % 2 for k, d, shrink in zip(kernel, window.dilation, window.shrink, strict=True)
    )


def _keeping_size(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))


def _least_map(conv: Conv, window: Window, padding: tuple[int, ...]) -> str:
    """A remark on padding with the map's own pixels, of which there are fewer after the down-sampling."""
    own = {"reflect": 1, "circular": 0}  # how many more pixels than the padding there must be
    if conv.padding_mode not in own or not any(padding):
        return ""
    more = own[conv.padding_mode]
    rule = window.rule
    least = max((p + more - 1) * s - slack for p, s, slack in zip(padding, rule.stride, rule.slack, strict=True))
    return f"; its {conv.padding_mode} padding then takes maps of at least {least} pixels"


def _breaks_of(window: Window) -> str:
    return "" if window.treats_axes_alike else _AXES_DIFFER


def _times(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def is_already_equivariant(layer: nn.Module) -> bool:
    return isinstance(layer, _EQUIVARIANT)
