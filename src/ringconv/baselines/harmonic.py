"""Harmonic networks (Worrall et al. 2017): complex streams whose phase turns with the image.

A stream of order m turns its phase by m times the angle of the image. With filters

    W_d(r, phi) = R(r) exp(i (d phi + beta)),     radial profile R and offset beta learned,

convolving a stream of order m gives one of order m + d, so an output of order p is the sum of W_(p - m) over all input
orders m = 0..M. Magnitudes do not depend on the phase: nonlinearity and normalisation act on them, and the head sees
their sum.

Kept exactly: quarter turns, by every layer at stride 1, up to the phase. Angles in between: nearly, as far as the
filter's taps sample it well. Not kept: reflections, which would need the opposite orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv._checks import check_positive_int
from ringconv._computed_weights import of_weight
from ringconv.baselines._kernel_conv import KernelConv, check_square
from ringconv.baselines.fields import FieldLayers
from ringconv.models.factories import GlobalAverage, Size, per_stage
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet_of_depth
from ringconv.rings import RingGeometry, as_tuple

_TINY = 1e-4
"""Added to squared magnitudes: the magnitude has no gradient at zero."""


class HarmonicConv2d(KernelConv):
    """(B, in_channels * (M + 1) * 2, H, W) -> (B, out_channels * (M + 1) * 2, H', W').

    A channel is a field of orders 0..M, each with its real and imaginary part. The bias, if any, is added to the real
    part of order 0: only there it does not depend on the angle.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in ``nn.Conv2d``; the kernel must be square.
        max_order: M.
        rings: values of the radial profile; default as in ``GMRConv2d``, whose area-sampled Gaussian rings it uses.
        lifting: the input is an image, (B, in_channels, H, W): real, of order 0.

    Attributes:
        weight: (differences, out, in / groups, rings), R of W_d for d = -M..M. A 1x1 kernel has d = 0 only, and a
            lifting layer d = 0..M.
        phase: (differences, out, in / groups), beta.
    """

    def __init__(
        self, *conv: Any, max_order: int = 1, rings: int | None = None, lifting: bool = False, **options: Any
    ) -> None:
        if max_order < 0:
            raise ValueError(f"max_order must be at least 0, got {max_order}")
        if rings is not None:
            check_positive_int("rings", rings)
        self.max_order = max_order
        self.rings = rings
        self.lifting = lifting
        components = 2 * (max_order + 1)
        super().__init__(*conv, **options, orders=(1 if lifting else components, components))

    def differences(self) -> range:
        """The orders d of the filters."""
        reach = self.max_order if self.kernel_size[0] > 1 else 0
        return range(0 if self.lifting else -reach, reach + 1)

    def geometry(self) -> RingGeometry:
        return RingGeometry(self.kernel_size, rings=self.rings or 0, sampling="area", normalize=True)

    def weight_shape(self) -> tuple[int, ...]:
        check_square(self.kernel_size, "HarmonicConv2d")
        return (len(self.differences()), *self.pair_shape, self.geometry().rings)

    def reset_parameters(self) -> None:
        """Gain of Kaiming's weights: rings have unit norm, and an output adds the filters of all input orders."""
        if not hasattr(self, "phase"):
            self.phase = nn.Parameter(torch.empty_like(self.weight[..., 0]))
        orders_in = 1 if self.lifting else self.max_order + 1
        fan = self.pair_shape[1] * self.weight.shape[-1] * orders_in
        nn.init.normal_(self.weight, 0.0, math.sqrt(2.0 / fan))
        nn.init.uniform_(self.phase, -math.pi, math.pi)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def new_tables(self) -> dict[str, Tensor]:
        geometry = self.geometry()
        # Named, because a device that is set for the time being (meta) has no values.
        log_sigma = torch.full((geometry.rings,), geometry.initial_log_sigma, dtype=torch.float64, device="cpu")
        rings = geometry.basis(log_sigma).numpy()
        steps = np.arange(self.kernel_size[0]) - (self.kernel_size[0] - 1) / 2
        phi = np.arctan2(-steps[:, None], steps[None, :])  # anticlockwise, as torch.rot90
        off_centre = np.hypot(steps[:, None], steps[None, :]) > 0
        waves = []
        for d in self.differences():
            wave = np.exp(1j * d * phi) * (off_centre if d else 1)
            waves.append(np.stack([wave.real, wave.imag])[:, None] * rings)
        differences = list(self.differences())
        filter_of = [
            differences.index(order_out - order_in) if order_out - order_in in differences else len(differences)
            for order_out in range(self.max_order + 1)
            for order_in in range(1 if self.lifting else self.max_order + 1)
        ]
        like = of_weight(self)
        return {
            # (differences, re/im, rings, k, k)
            "_rings": torch.tensor(np.stack(waves), dtype=like.dtype, device=like.device),
            "_filter_of": torch.tensor(filter_of, device=like.device),
        }

    def kernel(self) -> Tensor:
        profile = torch.einsum("doin,dcnt->cdoit", self.weight, self.table("_rings").flatten(3))
        cos, sin = self.phase.cos().unsqueeze(-1), self.phase.sin().unsqueeze(-1)
        complex_filters = torch.stack([cos * profile[0] - sin * profile[1], cos * profile[1] + sin * profile[0]])
        # A filter of zeros at the end, for orders that no filter connects.
        padded = nn.functional.pad(complex_filters, (0, 0, 0, 0, 0, 0, 0, 1))
        real, imag = padded.index_select(1, self.table("_filter_of")).unbind()  # (orders out * in, out, in, taps)
        # [[re, -im], [im, re]]; an image has no imaginary part.
        columns = [torch.stack([real, imag])] + ([] if self.lifting else [torch.stack([-imag, real])])
        parts = torch.unflatten(torch.stack(columns, 1), 2, (self.max_order + 1, -1))
        out_channels, in_channels = self.pair_shape
        # (part out, part in, order out, order in, out, in, taps) -> (out, order, part, in, order, part, taps)
        return parts.permute(4, 2, 0, 5, 3, 1, 6).reshape(
            out_channels * self.orders[1], in_channels * self.orders[0], *self.kernel_size
        )

    def field_bias(self) -> Tensor | None:
        if self.bias is None:
            return None
        return nn.functional.pad(self.bias.unsqueeze(1), (0, self.orders[1] - 1)).flatten()


class MagnitudeBatchNorm2d(nn.Module):
    """Batch norm of the magnitudes, which keeps the phases: X -> X max(BN(|X|), 0) / |X|.

    A normalised magnitude below zero is zero, so that no phase is turned round.

    Args:
        channels: the map is (B, channels * (M + 1) * 2, H, W).
        max_order: M.
    """

    def __init__(self, channels: int, max_order: int = 1, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels * (max_order + 1), eps, momentum)

    def forward(self, input: Tensor) -> Tensor:
        magnitude = magnitudes(input)
        return rescale(input, self.norm(magnitude).relu() / magnitude)


class CReLU(nn.Module):
    """X -> X ReLU(|X| + b) / |X| with a learned b per channel and order, 0 at first."""

    def __init__(self, channels: int, max_order: int = 1) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels * (max_order + 1)))

    def forward(self, input: Tensor) -> Tensor:
        magnitude = magnitudes(input)
        return rescale(input, (magnitude + self.bias.view(-1, 1, 1)).relu() / magnitude)


class MagnitudeSum(nn.Module):
    """The sum of the magnitudes of all orders: (B, channels * (M + 1) * 2, *S) -> (B, channels, *S)."""

    def __init__(self, max_order: int = 1) -> None:
        super().__init__()
        self.max_order = max_order

    def forward(self, input: Tensor) -> Tensor:
        return torch.unflatten(magnitudes(input), 1, (-1, self.max_order + 1)).sum(2)


def magnitudes(x: Tensor) -> Tensor:
    """(B, streams * 2, *S), real and imaginary parts side by side -> (B, streams, *S)"""
    return (torch.unflatten(x, 1, (-1, 2)).square().sum(2) + _TINY).sqrt()


def rescale(x: Tensor, factor: Tensor) -> Tensor:
    """Both parts of every complex number times a real factor (B, streams, *S)."""
    return (torch.unflatten(x, 1, (-1, 2)) * factor.unsqueeze(2)).flatten(1, 2)


@dataclass(frozen=True)
class HarmonicLayers(FieldLayers):
    max_order: int = 1
    rings: int | None = None

    @property
    def order(self) -> int:
        return 2 * (self.max_order + 1)

    def fields(self, channels: int) -> int:
        return channels

    def field_conv(self, in_fields: int, out_fields: int, kernel_size: Size, **options: Any) -> nn.Module:
        single_tap = max(as_tuple(kernel_size, 2, "kernel_size")) == 1
        rings = None if single_tap else self.rings
        return HarmonicConv2d(in_fields, out_fields, kernel_size, max_order=self.max_order, rings=rings, **options)

    def norm(self, channels: int) -> nn.Module:
        return MagnitudeBatchNorm2d(channels, self.max_order)

    def activation(self, channels: int) -> nn.Module:
        return CReLU(channels, self.max_order)

    def global_pool(self, channels: int) -> nn.Module:
        return nn.Sequential(MagnitudeSum(self.max_order), GlobalAverage())

    def pooled_channels(self, channels: int) -> int:
        return channels


@register_model(
    "harmonic_resnet18", "resnet", symmetry="rotations", parameters=15_025_034, paper="17.3M", note="trains with AdamW"
)
def harmonic_resnet18(
    *,
    kernel_size: int | Sequence[int] = 5,
    stem_kernel_size: int = 5,
    max_order: int = 1,
    rings: int | None = None,
    strided: bool = False,
    **skeleton: Unpack[SkeletonOptions],
) -> ResNet:
    """A residual network of harmonic convolutions, with the sum of all magnitudes before its head.

    Args:
        kernel_size: of the spatial convolutions, one or one per stage.
        max_order: M; the streams have orders 0..M.
        rings: values of the radial profiles; default k // 2 + 1.
        strided: stride the convolutions, which breaks quarter turns on even maps.
        skeleton: the other options are those of :class:`ResNet`; ``width`` counts complex channels of all orders.
    """
    layers = HarmonicLayers(
        per_stage("kernel_size", kernel_size, 4), stem_kernel_size, strided=strided, max_order=max_order, rings=rings
    )
    return resnet_of_depth(18, layers, **skeleton)
