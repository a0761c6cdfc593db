"""Ring convolutions with the signature of torch's layers, and resizing that keeps their equivariance."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv.ops import (
    METHODS,
    PADDING_MODES,
    Computable,
    ConvOptions,
    LayerShape,
    Method,
    PaddingMode,
    dense_conv,
    factored_conv,
    fastest_method,
    fused_conv,
    fused_covers,
    fused_is_there,
    gpu_covers,
    method_on_gpu,
    mixes_first,
)
from ringconv.rings import RingGeometry, RingTables, Sampling, as_tuple, orbit_values, taps_of_orbits

if TYPE_CHECKING:
    from typing_extensions import Never

SigmaMode = Literal["layer", "channel", "fixed"]
Init = Literal["paper", "unit"]

_SIGMA_MODES = ("layer", "channel", "fixed", None)
_INITS = ("paper", "unit")
_TABLE_BUFFERS = tuple(f"_{name}" for name in RingTables._fields)


class EquivarianceWarning(UserWarning):
    """A layer is used in a way that breaks its equivariance."""


class _GMRConvNd(nn.Module):
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
        sampling: ``"point"`` takes the ring function at each tap's centre, as the paper does; ``"area"`` takes its mean
            over each tap's pixel, which is more equivariant between quarter turns; ``"binned"`` does as the authors'
            package 1.0.3.
        normalize: scale every ring to unit L2 norm.
        init: ``"paper"``: normal weights of std sqrt(2 / (n C_in / groups)); ``"unit"``: gain 1 on white noise.
        spacing: voxel size per axis, for anisotropic volumes; only the ratios matter.
        method: ``"dense"`` builds the kernel; ``"factored"`` runs a ring pass and a mixing product; ``"fused"`` does
            both at once in one kernel, compiled on the CPU (float32 and bfloat16), in Triton on a GPU (and float16;
            stride 1, one group, zero padding); elsewhere it is "factored". ``"auto"`` takes the one that was fastest
            for layers like this on the CPU, "fused" on a GPU, and exports torch's operators only.

    Attributes:
        weight: (out_channels, in_channels / groups, n).
        log_sigma: (n,), or (out_channels, in_channels / groups, n) for ``sigma="channel"``; log sigma in pixels
            (``sampling="binned"``: in ring indices, and called ``log_sigma_index`` in the state dict). None for hard
            rings and for a single tap, which is a plain 1x1 convolution.
        bias: (out_channels,) or None.
    """

    _dimensions: int

    weight: nn.Parameter
    bias: nn.Parameter | None

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
        sampling: Sampling = "point",
        normalize: bool = False,
        init: Init = "paper",
        spacing: Sequence[float] | None = None,
        method: Method = "auto",
        **unknown: Never,
    ) -> None:
        super().__init__()
        if unknown:
            raise TypeError(_unknown_options(type(self), list(unknown)))
        n_dims = self._dimensions
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            _check_positive_int(name, value)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups, got {name}={channels} and groups={groups}")
        _check_choice("padding_mode", padding_mode, PADDING_MODES)
        _check_choice("sigma", sigma, _SIGMA_MODES)
        _check_choice("init", init, _INITS)
        _check_choice("method", method, METHODS)
        if rings is not None:
            _check_positive_int("rings", rings)
        if spacing is not None and not isinstance(spacing, Sequence):
            raise TypeError(f"spacing must be one voxel size per axis, got {spacing!r}")
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be floating, got {dtype}")
        if sigma == "channel" and method not in ("auto", "dense"):
            raise ValueError(
                f'sigma="channel" has a ring of its own for every pair of channels, so no pass can be shared:'
                f' use method="dense" (or "auto"), not {method!r}'
            )

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
                stacklevel=3,
            )
        self.geometry = RingGeometry(
            kernel_size=self.kernel_size,
            rings=rings or 0,
            circular=circular,
            gaussian=sigma is not None,
            sampling=sampling,
            normalize=normalize,
            spacing=None if spacing is None else tuple(float(step) for step in spacing),
        )
        if rings is not None:
            self.geometry.warn_of_empty_rings(stacklevel=3)
        self.rings = self.geometry.rings
        self.sigma = sigma
        self.init = init
        self.method = method
        # Decided here, since a compiler could not trace the look-up in the table of measurements.
        self._fastest = {
            (training, with_fused): fastest_method(
                self._shape(), "training" if training else "inference", with_fused=with_fused
            )
            for training in (False, True)
            for with_fused in (False, True)
        }
        self._warned_of_stride = False
        self._kept: tuple[Tensor, Tensor] | None = None

        parameter = {"device": device, "dtype": dtype}
        per_pair = (out_channels, in_channels // groups, self.rings)
        self.weight = nn.Parameter(torch.empty(per_pair, **parameter))  # type: ignore[arg-type]
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, **parameter)) if bias else None)  # type: ignore[arg-type]
        shape = per_pair if sigma == "channel" else (self.rings,)
        if not self.geometry.gaussian:
            self.register_parameter(self._sigma_name, None)
        elif sigma == "fixed":
            self.register_buffer(self._sigma_name, torch.empty(shape, **parameter), persistent=False)  # type: ignore[arg-type]
        else:
            self.register_parameter(self._sigma_name, nn.Parameter(torch.empty(shape, **parameter)))  # type: ignore[arg-type]
        for name in _TABLE_BUFFERS:
            self.register_buffer(name, None, persistent=False)
        self._build_tables()
        self.reset_parameters()

    # -- parameters and constants

    @property
    def _sigma_name(self) -> str:
        """The units are in the name, so that a file of one kind cannot be loaded into a layer of the other."""
        return "log_sigma_index" if self.geometry.sampling == "binned" else "log_sigma"

    def __getattr__(self, name: str) -> Any:
        # Only reached for what torch keeps in its own dictionaries: parameters, buffers and submodules.
        return super().__getattr__(self._sigma_name if name == "log_sigma" else name)

    def reset_parameters(self) -> None:
        """Initialise weight, sigma and bias anew."""
        log_sigma = getattr(self, self._sigma_name)
        if log_sigma is not None:
            nn.init.constant_(log_sigma, self.geometry.initial_log_sigma)
        fan_in = self.rings * self.in_channels // self.groups
        with torch.no_grad():
            if self.init == "unit":
                norms = self._orbit_values(shared=True).square().mul(self._taps_per_orbit).sum(-1).sqrt()
                scale = torch.where(norms > 0, norms, math.inf).reciprocal() / math.sqrt(fan_in)
                self.weight.normal_().mul_(scale.to(self.weight.dtype))
            else:
                self.weight.normal_(0.0, math.sqrt(2.0 / fan_in))
            if self.bias is not None:
                bound = 1 / math.sqrt(fan_in)
                self.bias.uniform_(-bound, bound)

    @property
    def _tables(self) -> RingTables:
        return RingTables(*(getattr(self, name) for name in _TABLE_BUFFERS))

    @property
    def _table_dtype(self) -> torch.dtype:
        return torch.float64 if self.weight.dtype == torch.float64 else torch.float32

    def _build_tables(self) -> None:
        """(Re)build the geometry's constants beside the weight, in float32 or, for a float64 layer, float64."""
        tables = self.geometry.tables(self._table_dtype, self.weight.device)
        for name, table in zip(_TABLE_BUFFERS, tables, strict=True):
            setattr(self, name, table)
        self._kept = None
        if self.sigma == "fixed" and self.geometry.gaussian:
            fixed = torch.full((self.rings,), self.geometry.initial_log_sigma).to(self.weight)
            setattr(self, self._sigma_name, fixed)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> _GMRConvNd:
        # Constants are rebuilt rather than converted: half precision would spoil the radii, and to_empty() leaves
        # its buffers undefined.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._build_tables()
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        other, units, own_units = (
            ("log_sigma", "pixels", "ring indices")
            if self._sigma_name == "log_sigma_index"
            else ("log_sigma_index", "ring indices", "pixels")
        )
        if prefix + other in state_dict:
            error_msgs.append(
                f'"{prefix}{other}" holds log sigma in {units}, but this layer (sampling={self.geometry.sampling!r})'
                f" takes it in {own_units}: the two are different kernels. Build the layer with the sampling it was"
                " trained with."
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        # With assign=True the weight may have come from another device or dtype.
        if self._taps_per_orbit.device != self.weight.device or self._taps_per_orbit.dtype != self._table_dtype:
            self._build_tables()

    # -- the kernel

    def _orbit_values(self, *, shared: bool = False) -> Tensor:
        """(n, orbits), or (out, in / groups, n, orbits) for ``sigma="channel"`` unless ``shared``."""
        log_sigma: Tensor | None = getattr(self, self._sigma_name)
        tables = self._tables
        if log_sigma is None:
            return orbit_values(self.geometry, tables, None)
        if shared and log_sigma.dim() > 1:
            log_sigma = log_sigma[0, 0]
        if not self._may_keep(log_sigma):
            return orbit_values(self.geometry, tables, log_sigma.to(tables.taps_per_orbit.dtype))
        if self._kept is None or not torch.equal(self._kept[0], log_sigma):
            # An inference tensor could not be used in a later call with gradients.
            with torch.inference_mode(False):
                values = orbit_values(self.geometry, tables, log_sigma.detach().to(tables.taps_per_orbit.dtype))
                self._kept = log_sigma.detach().clone(), values
        return self._kept[1]

    def _may_keep(self, log_sigma: Tensor) -> bool:
        """Whether the orbit values of this sigma may be kept for the next call in eval.

        They are found again by the values of sigma, not by a version counter, so that no kind of edit leaves them
        stale; on an accelerator the comparison would wait for the device, and under a transformation or a trace
        there are no values to compare.
        """
        return (
            not self.training
            and type(log_sigma) is nn.Parameter
            and log_sigma.device.type == "cpu"
            and log_sigma.dim() == 1
            and not (log_sigma.requires_grad and torch.is_grad_enabled())
            and not torch.compiler.is_compiling()
            and not torch._C._get_tracing_state()
        )

    def _taps(self, values: Tensor) -> Tensor:
        return taps_of_orbits(self.geometry, self._tables, values)

    def basis(self) -> Tensor:
        """M_G: (n, *kernel_size); with ``sigma="channel"`` (out, in / groups, n, *kernel_size). Differentiable."""
        with _without_autocast(self.weight):
            return self._taps(self._orbit_values()).to(self.weight.dtype)

    def kernel(self) -> Tensor:
        """The dense kernel, (out, in / groups, *kernel_size). Differentiable."""
        with _without_autocast(self.weight):
            values = self._orbit_values()
            weight = self.weight.to(values.dtype)
            per_orbit = (weight.unsqueeze(-1) * values).sum(2) if self.sigma == "channel" else weight @ values
            return self._taps(per_orbit).to(self.weight.dtype)

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
        method = self._method_for(x)
        if method == "fused":
            with _without_autocast(self.weight):
                values = self._orbit_values()
            return fused_conv(x, self.weight, values, self.bias, self._orbit_of_tap, self.kernel_size, self._options)
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
        # An exported program should run without ringconv, so it gets torch's own operators only.
        with_fused = not torch.compiler.is_exporting() and self._fused_covers(x)
        if device == "cuda":
            return method_on_gpu(self._shape(), with_fused=with_fused and fused_is_there(device))
        fastest = self._fastest[torch.is_grad_enabled(), with_fused]
        if fastest == "fused" and not fused_is_there():
            return self._fastest[torch.is_grad_enabled(), False]
        return fastest

    def _fused_covers(self, x: Tensor) -> bool:
        if x.device.type == "cuda" and not gpu_covers(self.stride, self.groups, self.padding_mode, self.rings):
            return False
        return fused_covers(x, self.weight)

    def _shape(self) -> LayerShape:
        return LayerShape(self.in_channels, self.out_channels, self.groups, self.kernel_size, self.rings, self.stride)

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
        }
        parts += [f"{name}={getattr(self, name)!r}" for name, value in defaults.items() if getattr(self, name) != value]
        geometry_defaults: dict[str, object] = {
            "circular": True, "sampling": "point", "normalize": False, "spacing": None
        }  # fmt: skip
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


class Downsample(nn.Module):
    """Average pooling to ceil(size / factor) that commutes with turns and flips at every size.

    On sizes that the factor divides it is ``AvgPool(factor)``; elsewhere the windows overlap a little but stay
    symmetric about the map's centre, where a strided layer or a pooling that drops the last row does not.
    Takes (B, C, *S) or (C, *S); the number of axes of S must be given for anything but images.
    """

    def __init__(self, factor: int = 2, dimensions: int = 2) -> None:
        super().__init__()
        _check_positive_int("factor", factor)
        _check_choice("dimensions", dimensions, (1, 2, 3))
        self.factor = factor
        self.dimensions = dimensions

    def forward(self, input: Tensor) -> Tensor:
        if self.factor == 1:
            return input
        size = [-(-side // self.factor) for side in input.shape[-self.dimensions :]]
        if self.dimensions == 1:
            # torch.export fixes the size of adaptive_avg_pool1d, not that of the 2D one.
            return F.adaptive_avg_pool2d(input.unsqueeze(-2), (1, size[0])).squeeze(-2)
        if self.dimensions == 2:
            return F.adaptive_avg_pool2d(input, (size[0], size[1]))
        return F.adaptive_avg_pool3d(input, (size[0], size[1], size[2]))

    def extra_repr(self) -> str:
        return f"factor={self.factor}, dimensions={self.dimensions}"


class Upsample(nn.Module):
    """Linear interpolation to size * factor (or to the size of a given map) that commutes with turns and flips.

    Followed by a ring convolution it takes the place of a transposed convolution. Takes (B, C, *S).
    """

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        _check_positive_int("factor", factor)
        self.factor = factor

    def forward(self, input: Tensor, size: Sequence[int] | None = None) -> Tensor:
        modes = {3: "linear", 4: "bilinear", 5: "trilinear"}
        if input.dim() not in modes:
            raise ValueError(f"Upsample takes (B, C, *S) with 1 to 3 axes, got an input of shape {tuple(input.shape)}")
        if size is None:
            size = [side * self.factor for side in input.shape[2:]]
        return F.interpolate(input, size=list(size), mode=modes[input.dim()], align_corners=False)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


def _without_autocast(like: Tensor) -> contextlib.AbstractContextManager[Any]:
    """The basis needs full precision: autocast would run its small products in half."""
    device = like.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False)


def _in_memory_format_of(x: Tensor, y: Tensor) -> Tensor:
    """``y`` in channels_last if ``x`` is, as torch's convolutions return it."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() not in formats or x.is_contiguous():
        return y
    memory_format = formats[x.dim()]
    return y.contiguous(memory_format=memory_format) if x.is_contiguous(memory_format=memory_format) else y


def _check_positive_int(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


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
