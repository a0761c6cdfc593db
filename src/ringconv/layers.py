"""Ring convolutions with the signature of torch's layers."""

from __future__ import annotations

import difflib
import inspect
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ringconv._checks import check_choice, check_positive_int, is_integer
from ringconv._ring_kernel import Init, RingKernel, SigmaMode, without_autocast
from ringconv.harmonics import HarmonicRings, chosen_rings
from ringconv.ops import (
    METHODS,
    MODES,
    PADDING_MODES,
    Computable,
    ConvOptions,
    LayerShape,
    Method,
    Mode,
    PaddingMode,
    dense_conv,
    factored_conv,
    fastest_method,
    fused_conv,
    fused_covers,
    fused_covers_harmonics,
    fused_harmonic_conv,
    fused_is_there,
    gpu_covers,
    harmonic_conv,
    is_exporting,
    method_on_gpu,
    mixes_first,
    octave_of,
)
from ringconv.pooling import Downsample, Upsample
from ringconv.presets import Preset, takes_preset
from ringconv.rings import Edge, Normalize, RingGeometry, Sampling, as_tuple

if TYPE_CHECKING:
    from typing_extensions import Never

__all__ = [
    "Downsample",
    "EquivarianceWarning",
    "GMRConv1d",
    "GMRConv2d",
    "GMRConv3d",
    "Init",
    "SigmaMode",
    "Upsample",
]

_SIGMA_MODES = ("layer", "channel", "fixed", None)
_INITS = ("paper", "unit")


class EquivarianceWarning(UserWarning):
    """A layer is used in a way that breaks its equivariance."""


class _GMRConvNd(RingKernel):
    """A convolution whose kernels are mixtures of Gaussian rings: equivariant to rotation and reflection.

    The arguments up to ``dtype`` are those of torch's layer, in its order. A quarter turn or a flip of the input
    turns or flips the output, exactly, if kernel sides, strides, padding and dilation are equal on the axes it
    exchanges, the padding is the same before and after, and the stride divides
    ``H + 2 padding - dilation (k - 1) - 1``.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype:
            as in torch.
        rings: number of rings n; default ``k // 2 + 1``, and one more if not circular.
        sigma: width of the rings: ``"layer"`` trains n values, ``"channel"`` trains n values for each pair of
            channels (dense method only), ``"fixed"`` keeps the initial ones, None makes hard rings.
        circular: zero outside of r < k/2.
        sampling: ``"area"`` takes the mean of the ring function over each tap's pixel, which at most kernel
            sizes is more equivariant between quarter turns than ``"point"``, its value at the tap's centre, as in the
            paper; ``"binned"`` does as the authors' package 1.0.3. Default "area", but "point" for
            ``sigma="channel"``, which has as many rings as weights.
        normalize: True scales every ring to unit L2 norm; ``"orthonormal"`` also takes away what it has in common with
            the rings inside of it; False leaves them as the Gaussians are, as in the paper.
        edge: ``"smooth"`` lets a circular kernel fall as half a cosine over one pixel
            (:class:`ringconv.RingGeometry` has the formula); ``"hard"`` ends it at r = k/2, as the paper does. Default
            "smooth" if circular.
        init: ``"paper"``: normal weights of std sqrt(2 / (n C_in / groups)); ``"unit"``: gain 1 on white noise.
        spacing: voxel size per axis, for anisotropic volumes; only the ratios matter.
        method: ``"dense"`` builds the kernel; ``"factored"`` runs a ring pass and a mixing product; ``"fused"`` does
            both at once in one kernel, compiled on the CPU (float32 and bfloat16), in Triton on a GPU (and float16;
            stride 1, one group, zero padding); elsewhere it is "factored". ``"auto"`` takes the one that was fastest
            for layers like this on the CPU, "fused" on a GPU, and exports torch's operators only.
        harmonics: the highest order m of the circular harmonics (2D only); 0: none. For every order o = 1..m and each
            ring g that ``harmonic_rings`` names, sqrt((g cos(o t) * x)^2 + (g sin(o t) * x)^2 + 1e-4) of every channel
            is mixed into the output by ``harmonic_weight``: how strongly the image changes around a pixel, whatever
            the direction. This keeps the equivariance, and makes the layer nonlinear.
        harmonic_rings: ``"middle"``: ring n // 2; ``"all"``: every ring but the first; or the rings' numbers, from 0.
        preset: ``"paper"`` fixes sigma, circular, sampling, normalize, edge, init and harmonics to the published form;
            with ``sampling="binned"`` beside it, to that of the authors' package. Options that are given beside it win.

    Attributes:
        weight: (out_channels, in_channels / groups, n).
        log_sigma: (n,), or (out_channels, in_channels / groups, n) for ``sigma="channel"``; log sigma in pixels
            (``sampling="binned"``: in ring indices, and called ``log_sigma_index`` in the state dict). None for hard
            rings and for a single tap, which is a plain 1x1 convolution.
        bias: (out_channels,) or None.
        harmonic_weight: (out_channels, in_channels / groups, rings with harmonics * m), ring by ring; None without
            harmonics, and for a single tap.
    """

    _dimensions: int

    @takes_preset
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        rings: int | None = None,
        sigma: SigmaMode | None = "layer",
        circular: bool = True,
        sampling: Sampling | None = None,
        normalize: Normalize = True,
        init: Init = "paper",
        spacing: Sequence[float] | None = None,
        method: Method = "auto",
        edge: Edge | None = None,
        harmonics: int = 0,
        harmonic_rings: HarmonicRings = "middle",
        preset: Preset | None = None,
        **unknown: Never,
    ) -> None:
        super().__init__()
        if unknown:
            raise TypeError(_unknown_options(type(self), list(unknown)))
        n_dims = self._dimensions
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            check_positive_int(name, value)
        in_channels, out_channels, groups = int(in_channels), int(out_channels), int(groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups, got {name}={channels} and groups={groups}")
        check_choice("padding_mode", padding_mode, PADDING_MODES)
        check_choice("sigma", sigma, _SIGMA_MODES)
        check_choice("init", init, _INITS)
        check_choice("method", method, METHODS)
        if rings is not None:
            check_positive_int("rings", rings)
        if spacing is not None and not isinstance(spacing, Iterable):
            raise TypeError(f"spacing must be one voxel size per axis, got {spacing!r}")
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be floating, got {dtype}")
        if sigma == "channel" and method not in ("auto", "dense"):
            raise ValueError(
                f'sigma="channel" has a ring of its own for every pair of channels, so no pass can be shared:'
                f' use method="dense" (or "auto"), not {method!r}'
            )
        self._check_harmonics(harmonics, sigma)
        harmonics = int(harmonics)

        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _positive_sizes(kernel_size, n_dims, "kernel_size")
        self.stride = _positive_sizes(stride, n_dims, "stride")
        self.dilation = _positive_sizes(dilation, n_dims, "dilation")
        self.groups = groups
        self.padding_mode: PaddingMode = padding_mode
        self.padding: tuple[int, ...] | str = (
            padding if isinstance(padding, str) else as_tuple(padding, n_dims, "padding")
        )
        self._options = ConvOptions(
            self.stride, self._padding_per_side(), self.dilation, self.groups, self.padding_mode
        )
        if any(before != after for before, after in self._options.padding):
            warnings.warn(
                f'padding="same" with kernel_size={self.kernel_size} and dilation={self.dilation} pads one side more'
                " than the other and shifts the output by half a pixel, which breaks equivariance. Use an odd kernel or"
                " an int padding.",
                EquivarianceWarning,
                stacklevel=4,
            )
        self.geometry = RingGeometry(
            kernel_size=self.kernel_size,
            rings=rings or 0,
            circular=circular,
            gaussian=sigma is not None,
            sampling=_default_sampling(sigma) if sampling is None else sampling,
            normalize=normalize,
            spacing=None if spacing is None else tuple(float(step) for step in spacing),
            edge=_default_edge(circular) if edge is None else edge,
        )
        self.geometry.warn_of_empty_rings(chosen=rings is not None, stacklevel=4)
        self.rings = self.geometry.rings
        self.sigma = sigma
        self.init = init
        self.method = method
        self.harmonics = 0 if self.geometry.single_tap else harmonics
        self.harmonic_rings = chosen_rings(self.geometry, harmonics, harmonic_rings) if self.harmonics else ()
        # Decided here, since a compiler could not trace the look-up in the table of measurements.
        self._usually_fastest = {
            (mode, with_fused): fastest_method(self._shape(), mode, with_fused=with_fused)
            for mode in MODES
            for with_fused in (False, True)
        }
        self._warned_of_stride = False
        self._make_parameters(bias, device, dtype)

    # -- the convolution

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, *S) or (C, *S) -> the same with ``out_channels`` and the output's size."""
        if input.dim() not in (self._dimensions + 1, self._dimensions + 2):
            raise ValueError(
                f"{type(self).__name__} takes {self._dimensions + 2} dimensions, or {self._dimensions + 1} without a"
                f" batch, got an input of shape {tuple(input.shape)}"
            )
        eager = not torch.compiler.is_compiling()
        if eager:
            self._check_stride(input.shape[-self._dimensions :])
        batched = input if input.dim() == self._dimensions + 2 else input.unsqueeze(0)
        if batched.shape[1] != self.in_channels:
            raise ValueError(f"expected {self.in_channels} channels, got an input of shape {tuple(input.shape)}")
        y = self._convolve(batched)
        if eager:
            y = _in_memory_format_of(batched, y)
        return y if input.dim() == self._dimensions + 2 else y.squeeze(0)

    def _convolve(self, x: Tensor) -> Tensor:
        y = self._convolve_with_rings(x)
        return y if self.harmonic_weight is None else y + self._mixed_harmonics(x, self.harmonic_weight)

    def _mixed_harmonics(self, x: Tensor, weight: Tensor) -> Tensor:
        pairs = self._harmonic_taps().flatten(0, 1)
        if self.method in ("auto", "fused") and fused_covers_harmonics(x, weight, self.groups):
            odd = [order % 2 == 0 for _ in self.harmonic_rings for order in range(self.harmonics)]
            return fused_harmonic_conv(x, weight, pairs, self._harmonic_tables.half, odd, self._options)
        return harmonic_conv(x, weight, pairs.to(weight.dtype), self._options)

    def _convolve_with_rings(self, x: Tensor) -> Tensor:
        method = self._method_for(x)
        if method == "fused":
            with without_autocast(self.weight):
                values = self._orbit_values()
            return fused_conv(
                x, self.weight, values, self.bias, self._tables.orbit_of_tap, self.kernel_size, self._options
            )
        if method == "factored":
            mix_first = mixes_first(self._shape())
            return factored_conv(x, self.weight, self.basis(), self.bias, self._options, mix_first=mix_first)
        return dense_conv(x, self.kernel(), self.bias, self._options)

    def _method_for(self, x: Tensor) -> Computable:
        """The method that computes this input: "auto" resolved, and "fused" only where the kernel covers it."""
        if self.method in ("dense", "factored"):
            return self.method
        if self.sigma == "channel":
            return "dense"
        device = x.device.type
        if self.method == "fused":
            return "fused" if self._fused_covers(x) and fused_is_there(device) else "factored"
        with_fused = not is_exporting() and self._fused_covers(x)
        if device == "cuda":
            return method_on_gpu(self._shape(), with_fused=with_fused and fused_is_there(device))
        fastest = self._fastest(x, with_fused=with_fused)
        if fastest == "fused" and not fused_is_there():
            return self._fastest(x, with_fused=False)
        return fastest

    def _fastest(self, x: Tensor, *, with_fused: bool) -> Computable:
        mode: Mode = "training" if torch.is_grad_enabled() else "inference"
        # A graph must not depend on the size that it was traced with.
        if not torch.compiler.is_compiling():
            sides = zip(x.shape[2:], self.stride, strict=True)
            pixels = x.shape[0] * math.prod(-(-side // stride) for side, stride in sides)
            if isinstance(pixels, int):
                return fastest_method(self._shape(), mode, octave_of(pixels), with_fused=with_fused)
        return self._usually_fastest[mode, with_fused]

    def _fused_covers(self, x: Tensor) -> bool:
        if x.device.type == "cuda" and not gpu_covers(self.stride, self.groups, self.padding_mode, self.rings):
            return False
        return fused_covers(x, self.weight)

    def _shape(self) -> LayerShape:
        return LayerShape(self.in_channels, self.out_channels, self.groups, self.kernel_size, self.rings, self.stride)

    def _check_harmonics(self, harmonics: int, sigma: SigmaMode | None) -> None:
        if not is_integer(harmonics) or harmonics < 0:
            raise ValueError(f"harmonics must be an int of at least 0, the highest order, got {harmonics!r}")
        if harmonics and self._dimensions != 2:
            raise ValueError(
                f"circular harmonics are functions of the plane: {type(self).__name__} has none, use GMRConv2d or"
                " harmonics=0"
            )
        if harmonics and sigma == "channel":
            raise ValueError(
                'harmonics need rings that all channels share, which sigma="channel" has not: use sigma="layer",'
                ' "fixed" or None'
            )

    def _padding_per_side(self) -> tuple[tuple[int, int], ...]:
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"padding must be 'same', 'valid' or ints, got {self.padding!r}")
            if self.padding == "valid":
                return ((0, 0),) * self._dimensions
            if any(step != 1 for step in self.stride):
                raise ValueError(f"padding='same' needs stride 1, got stride={self.stride}")
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return tuple((total // 2, total - total // 2) for total in totals)
        if any(side < 0 for side in self.padding):
            raise ValueError(f"padding must not be negative, got {self.padding}")
        return tuple((side, side) for side in self.padding)

    def _check_stride(self, size: Sequence[int]) -> None:
        """Warn once if the stride does not reach all borders alike, so that a turn would shift the samples."""
        if self._warned_of_stride or all(step == 1 for step in self.stride):
            return
        spans = [
            side + sum(pad) - dilation * (k - 1) - 1
            for side, pad, dilation, k in zip(size, self._options.padding, self.dilation, self.kernel_size, strict=True)
        ]
        equal = len(set(self.stride)) == 1
        if equal and all(span % step == 0 for span, step in zip(spans, self.stride, strict=True)):
            return
        self._warned_of_stride = True
        warnings.warn(
            f"stride {self.stride} on an input of size {tuple(size)} does not sample all borders alike, so the output"
            " does not turn with the input. Use Downsample and a layer of stride 1, or equal strides and a size and"
            f" padding for which they divide size + 2 padding - dilation (kernel - 1) - 1 (here {tuple(spans)}).",
            EquivarianceWarning,
            stacklevel=4,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, rings={self.rings}"]
        defaults: dict[str, object] = {
            "stride": (1,) * self._dimensions,
            "padding": (0,) * self._dimensions,
            "dilation": (1,) * self._dimensions,
            "groups": 1,
            "padding_mode": "zeros",
            "sigma": "layer",
            "init": "paper",
            "method": "auto",
            "harmonics": 0,
        }
        parts += [f"{name}={getattr(self, name)!r}" for name, value in defaults.items() if getattr(self, name) != value]
        if self.harmonics:
            parts.append(f"harmonic_rings={self.harmonic_rings}")
        geometry_defaults: dict[str, object] = {"circular": True, "normalize": True, "spacing": None}
        if not self.geometry.single_tap:
            geometry_defaults["sampling"] = _default_sampling(self.sigma)
            geometry_defaults["edge"] = _default_edge(self.geometry.circular)
        parts += [
            f"{name}={getattr(self.geometry, name)!r}"
            for name, value in geometry_defaults.items()
            if getattr(self.geometry, name) != value
        ]
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join(parts)


class GMRConv1d(_GMRConvNd):
    __doc__ = _GMRConvNd.__doc__
    _dimensions = 1


class GMRConv2d(_GMRConvNd):
    __doc__ = _GMRConvNd.__doc__
    _dimensions = 2


class GMRConv3d(_GMRConvNd):
    __doc__ = _GMRConvNd.__doc__
    _dimensions = 3


def _default_sampling(sigma: SigmaMode | None) -> Sampling:
    """Area sampling holds hundreds of samples of every ring, and "channel" has a ring for every weight."""
    return "point" if sigma == "channel" else "area"


def _default_edge(circular: bool) -> Edge:
    return "smooth" if circular else "hard"


def _in_memory_format_of(x: Tensor, y: Tensor) -> Tensor:
    """``y`` in channels_last if ``x`` is, as torch's convolutions return it."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    # Under vmap a tensor does not tell its layout.
    if x.dim() not in formats or torch._C._are_functorch_transforms_active() or x.is_contiguous():
        return y
    memory_format = formats[x.dim()]
    return y.contiguous(memory_format=memory_format) if x.is_contiguous(memory_format=memory_format) else y


def _positive_sizes(value: int | Sequence[int], dimensions: int, name: str) -> tuple[int, ...]:
    sizes = as_tuple(value, dimensions, name)
    if any(size < 1 for size in sizes):
        raise ValueError(f"{name} must be at least 1, got {value!r}")
    return sizes


def _unknown_options(layer: type, names: list[str]) -> str:
    known = [name for name in inspect.signature(layer).parameters if name != "unknown"]
    message = f"{layer.__name__} got unknown option{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
    if "transposed" in names or "output_padding" in names:
        return (
            message
            + ": there is no transposed ring convolution; use ringconv.Upsample and a ring convolution of stride 1"
        )
    close = [match for name in names for match in difflib.get_close_matches(name, known, 1)]
    hint = f" (did you mean {', '.join(map(repr, close))}?)" if close else ""
    return f"{message}{hint}; the options are {', '.join(known)}"
