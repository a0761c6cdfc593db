"""What a ring convolution is made of: its parameters, the constants of its geometry, and the kernels they give."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ringconv._computed_weights import of_weight
from ringconv._fx_leaf import FxLeaf
from ringconv.harmonics import HarmonicTables, harmonic_tables, harmonic_values, taps_of_harmonics
from ringconv.rings import RingGeometry, RingTables, orbit_values, taps_of_orbits

SigmaMode = Literal["layer", "channel", "fixed"]
Init = Literal["paper", "unit"]

_TABLES = tuple(f"_{name}" for name in RingTables._fields)
_HARMONIC_TABLES = tuple(f"_harmonic_{name}" for name in HarmonicTables._fields)
"""Attributes, and no buffers: who averages the buffers of networks, as torch's AveragedModel does, must not average
constants, some of which are integers."""


class RingKernel(FxLeaf):
    """The parameters of a ring convolution, and its kernels; what is done with them is a subclass's."""

    in_channels: int
    out_channels: int
    groups: int
    geometry: RingGeometry
    rings: int
    sigma: SigmaMode | None
    init: Init
    harmonics: int
    harmonic_rings: tuple[int, ...]

    weight: nn.Parameter
    bias: nn.Parameter | None
    harmonic_weight: nn.Parameter | None

    def _make_parameters(self, bias: bool, device: torch.device | str | int | None, dtype: torch.dtype | None) -> None:
        """Once the attributes above are set."""

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self._kept: dict[str, tuple[Tensor, Tensor]] = {}
        pair = (self.out_channels, self.in_channels // self.groups)
        self.weight = parameter(*pair, self.rings)
        self.register_parameter("bias", parameter(self.out_channels) if bias else None)
        lengths = len(self.harmonic_rings) * self.harmonics
        self.register_parameter("harmonic_weight", parameter(*pair, lengths) if lengths else None)
        if not self.geometry.gaussian:
            self.register_parameter(self._sigma_name, None)
        elif self.sigma == "fixed":
            self.register_buffer(self._sigma_name, parameter(self.rings).detach(), persistent=False)
        else:
            shape = (*pair, self.rings) if self.sigma == "channel" else (self.rings,)
            self.register_parameter(self._sigma_name, parameter(*shape))
        self._build_tables()
        self.reset_parameters()

    @property
    def _sigma_name(self) -> str:
        """The units are in the name, so that a file of one kind cannot be loaded into a layer of the other."""
        return "log_sigma_index" if self.geometry.sampling == "binned" else "log_sigma"

    def __getattr__(self, name: str) -> Any:
        # Only reached for what torch keeps in its own dictionaries: parameters, buffers and submodules.
        return super().__getattr__(self._sigma_name if name == "log_sigma" else name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self._sigma_name if name == "log_sigma" else name, value)

    def reset_parameters(self) -> None:
        """Initialise weight, sigma and bias anew."""
        log_sigma = getattr(self, self._sigma_name)
        if log_sigma is not None:
            nn.init.constant_(log_sigma, self.geometry.initial_log_sigma)
        fan_in = self.rings * self.in_channels // self.groups
        with torch.no_grad():
            if self.init == "unit":
                norms = self._orbit_values(shared=True).square().mul(self._taps_per_orbit).sum(-1).sqrt()
                scale = torch.where(norms > 0, norms, math.inf).reciprocal() / math.sqrt(self._responses_per_output)
                self.weight.normal_().mul_(scale.to(self.weight.dtype))
            else:
                self.weight.normal_(0.0, math.sqrt(2.0 / fan_in))
            if self.harmonic_weight is not None:
                self.harmonic_weight.normal_(0.0, self._harmonic_weight_std())
            if self.bias is not None:
                bound = 1 / math.sqrt(fan_in)
                self.bias.uniform_(-bound, bound)

    @property
    def _harmonics_per_output(self) -> int:
        return len(self.harmonic_rings) * self.harmonics * self.in_channels // self.groups

    @property
    def _responses_per_output(self) -> int:
        """Rings without a tap give none."""
        rings = self.rings - len(self.geometry.zero_rings())
        return rings * self.in_channels // self.groups + self._harmonics_per_output

    def _harmonic_weight_std(self) -> float:
        """On white noise the mean square of a length is 2. "unit": rings and harmonics share the gain of 1 evenly;
        "paper": the harmonics together add what rings of unit norm do, a mean square of 2."""
        if self.init == "unit":
            return math.sqrt(0.5 / self._responses_per_output)
        return math.sqrt(1.0 / self._harmonics_per_output)

    @property
    def _tables(self) -> RingTables:
        tables = RingTables(*(getattr(self, name) for name in _TABLES))
        # Others if the weight is another network's, as in torch.func's ensembles, or a copy of DataParallel's.
        return tables if self._is_beside_weight(tables.taps_per_orbit) else self._new_tables()

    @property
    def _harmonic_tables(self) -> HarmonicTables:
        tables = HarmonicTables(*(getattr(self, name) for name in _HARMONIC_TABLES))
        return tables if self._is_beside_weight(tables.angular) else self._new_harmonic_tables()

    def _is_beside_weight(self, table: Tensor) -> bool:
        return table.device == of_weight(self).device and table.dtype == self._table_dtype

    def _new_tables(self) -> RingTables:
        return self.geometry.tables(self._table_dtype, of_weight(self).device)

    def _new_harmonic_tables(self) -> HarmonicTables:
        device = of_weight(self).device
        return harmonic_tables(self.geometry, self.harmonics, self.harmonic_rings, self._table_dtype, device)

    @property
    def _table_dtype(self) -> torch.dtype:
        return torch.float64 if of_weight(self).dtype == torch.float64 else torch.float32

    def _build_tables(self) -> None:
        """(Re)build the geometry's constants beside the weight, in float32 or, for a float64 layer, float64."""
        for name, table in zip(_TABLES, self._new_tables(), strict=True):
            setattr(self, name, table)
        if self.harmonics:
            for name, table in zip(_HARMONIC_TABLES, self._new_harmonic_tables(), strict=True):
                setattr(self, name, table)
        self._kept = {}
        if self.sigma == "fixed" and self.geometry.gaussian:
            log_sigma = of_weight(self).new_full((self.rings,), self.geometry.initial_log_sigma)
            setattr(self, self._sigma_name, log_sigma)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> RingKernel:
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
        if not self._is_beside_weight(self._taps_per_orbit):
            self._build_tables()

    # -- the kernel

    def _orbit_values(self, *, shared: bool = False) -> Tensor:
        """(n, orbits), or (out, in / groups, n, orbits) for ``sigma="channel"`` unless ``shared``."""
        tables = self._tables
        return self._at_sigma("rings", lambda sigma: orbit_values(self.geometry, tables, sigma), shared=shared)

    def _harmonic_taps(self) -> Tensor:
        """(rings with harmonics, m, 2, *kernel_size), in the dtype of the tables"""
        tables, harmonics = self._tables, self._harmonic_tables

        def compute(log_sigma: Tensor | None) -> Tensor:
            values = harmonic_values(self.geometry, tables, harmonics, log_sigma)
            return taps_of_harmonics(self.geometry, tables, harmonics, values)

        with without_autocast(self.weight):
            return self._at_sigma("harmonics", compute)

    def _at_sigma(self, what: str, compute: Callable[[Tensor | None], Tensor], *, shared: bool = False) -> Tensor:
        """``compute`` of log sigma, or what is kept of the last call."""
        log_sigma: Tensor | None = getattr(self, self._sigma_name)
        if log_sigma is None:
            return compute(None)
        if shared and log_sigma.dim() > 1:
            log_sigma = log_sigma[0, 0]
        if not self._may_keep(log_sigma):
            return compute(log_sigma.to(self._table_dtype))
        kept = self._kept.get(what)
        if kept is None or kept[1].dtype != self._table_dtype or not torch.equal(kept[0], log_sigma):
            # An inference tensor could not be used in a later call with gradients.
            with torch.inference_mode(False):
                kept = log_sigma.detach().clone(), compute(log_sigma.detach().to(self._table_dtype))
                self._kept[what] = kept
        return kept[1]

    def _may_keep(self, log_sigma: Tensor) -> bool:
        """Whether the values at this sigma may be kept for the next call: if it is fixed, or the layer is in eval.

        They are found again by the values of sigma, not by a version counter, so that no kind of edit leaves them
        stale; on an accelerator the comparison would wait for the device, and under a transformation or a trace
        there are no values to compare.
        """
        is_fixed = self.sigma == "fixed" and type(log_sigma) is Tensor
        return (
            (is_fixed or (not self.training and type(log_sigma) is nn.Parameter))
            and log_sigma.device.type == "cpu"
            and log_sigma.dim() == 1
            and not (log_sigma.requires_grad and torch.is_grad_enabled())
            and not torch.compiler.is_compiling()
            and not torch._C._get_tracing_state()
            and not torch._C._are_functorch_transforms_active()
        )

    def _taps(self, values: Tensor) -> Tensor:
        return taps_of_orbits(self.geometry, self._tables, values)

    def basis(self) -> Tensor:
        """M_G: (n, *kernel_size); with ``sigma="channel"`` (out, in / groups, n, *kernel_size). Differentiable."""
        with without_autocast(self.weight):
            return self._taps(self._orbit_values()).to(self.weight.dtype)

    def harmonic_basis(self) -> Tensor:
        """The kernels g cos(o t) and g sin(o t), (rings with harmonics, m, 2, *kernel_size). Differentiable."""
        if not self.harmonics:
            raise ValueError("the layer has no harmonics: build it with harmonics=1 or more")
        return self._harmonic_taps().to(self.weight.dtype, copy=True)  # others are the layer's own

    def kernel(self) -> Tensor:
        """The dense kernel of the rings, (out, in / groups, *kernel_size). Differentiable.

        With harmonics, the layer is this convolution plus a part that is no convolution.
        """
        with without_autocast(self.weight):
            values = self._orbit_values()
            weight = self.weight.to(values.dtype)
            per_orbit = (weight.unsqueeze(-1) * values).sum(2) if self.sigma == "channel" else weight @ values
            return self._taps(per_orbit).to(self.weight.dtype)


def without_autocast(like: Tensor) -> contextlib.AbstractContextManager[Any]:
    """The basis needs full precision: autocast would run its small products in half."""
    device = like.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False)
