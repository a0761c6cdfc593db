"""Symm-Conv (Dudar & Semenov 2019): kernels with one weight per set of taps that mirror each other.

    a b a
    b c b      3 weights instead of 9
    a b a

Kept exactly: quarter turns and reflections, by every layer at stride 1. Not kept: angles in between, for which a 3x3
kernel is too coarse; and all of it by the strided layers, which the method keeps (3x3, stride 2, on an even map).
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Unpack

from ringconv._computed_weights import of_weight
from ringconv.baselines._kernel_conv import KernelConv
from ringconv.convert import convert
from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, SkeletonOptions, resnet
from ringconv.models.unet import UNet, UNetOptions, unet
from ringconv.models.video import r3d_9
from ringconv.ops import fused_conv, fused_covers, fused_is_there, is_exporting
from ringconv.rings import RingGeometry

Network = TypeVar("Network", bound=nn.Module)


class _SymmConvNd(KernelConv):
    """A dense convolution with tied weights, innermost first.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in torch.
        weights: free weights of a kernel. By default one per symmetry orbit of its taps (3 for 3x3, 4 for 3x3x3);
            with fewer, the outermost orbits share the last weight.
    """

    def __init__(self, *conv: Any, weights: int | None = None, **options: Any) -> None:
        self.weights = weights
        super().__init__(*conv, **options)

    def weight_shape(self) -> tuple[int, ...]:
        orbits = int(self._orbit_of_tap().max()) + 1
        if self.weights is not None and not 1 <= self.weights <= orbits:
            raise ValueError(
                f"weights must be from 1 to {orbits}, the orbits of a {'x'.join(map(str, self.kernel_size))} kernel,"
                f" got {self.weights}"
            )
        return (*self.pair_shape, self.weights or orbits)

    def _orbit_of_tap(self) -> NDArray[np.int64]:
        """(taps,): the orbit of each tap in C order, numbered by distance from the centre."""
        orbit = RingGeometry(self.kernel_size, circular=False).tables(device="cpu").orbit_of_tap.numpy()
        offsets = itertools.product(*(np.arange(side) - (side - 1) / 2 for side in self.kernel_size))
        radius = np.array([np.hypot.reduce(offset) for offset in offsets])
        first_tap = np.unique(orbit, return_index=True)[1]
        rank = np.argsort(np.argsort(radius[first_tap], kind="stable"))
        by_distance: NDArray[np.int64] = rank[orbit]
        return by_distance

    def new_tables(self) -> dict[str, Tensor]:
        weight_of_tap = np.minimum(self._orbit_of_tap(), self.weight_shape()[-1] - 1)
        return {"_weight_of_tap": torch.tensor(weight_of_tap, device=of_weight(self).device)}

    def kernel(self) -> Tensor:
        return self.weight.index_select(2, self.table("_weight_of_tap")).view(*self.pair_shape, *self.kernel_size)


class SymmConv2d(_SymmConvNd):
    __doc__ = _SymmConvNd.__doc__
    dimensions = 2


class SymmConv3d(_SymmConvNd):
    __doc__ = _SymmConvNd.__doc__
    dimensions = 3

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, *S) or (C, *S) -> the same with ``out_channels`` and the output's size."""
        # Taps that share a weight are a ring to the compiled kernel, which is several times faster than torch on
        # volumes of more than one channel.
        if not self._takes_compiled_kernel(input):
            return super().forward(input)
        one_per_weight = torch.eye(self.weight.shape[-1], device=self.weight.device)
        weight_of_tap = self.table("_weight_of_tap")
        return fused_conv(input, self.weight, one_per_weight, self.bias, weight_of_tap, self.kernel_size, self._options)

    def _takes_compiled_kernel(self, input: Tensor) -> bool:
        worth_it = self.pair_shape[1] > 1 and math.prod(self.kernel_size) > 1
        batched_on_cpu = input.dim() == self.dimensions + 2 and input.device.type == "cpu"
        covered = not is_exporting() and fused_covers(input, self.weight)
        return worth_it and batched_on_cpu and covered and fused_is_there()

    def own_operations(self, output: Tensor) -> int:
        """Those of the dense convolution that the method is, however it is computed."""
        return 2 * output.numel() * self.pair_shape[1] * math.prod(self.kernel_size)


def symmetric(network: Network, weights: int | None = None, *, keep: tuple[str, ...] = ()) -> Network:
    """The network with the kernels of its spatial convolutions tied, all strides and pooling as they are.

    Args:
        weights: free weights of a kernel; see :class:`SymmConv2d`.
        keep: names of layers that stay ordinary convolutions.
    """
    volumes = any(isinstance(layer, nn.Conv3d) for layer in network.modules())
    conv = functools.partial(SymmConv3d if volumes else SymmConv2d, weights=weights)
    tied, _ = convert(network, to=conv, strides="keep", skip=keep, inplace=True, return_report=True)
    assert isinstance(tied, type(network))
    return tied


@register_model("symm_resnet18", "resnet", parameters=3_849_162, paper="3.8M")
def symm_resnet18(*, stem_kernel_size: int = 3, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """The plain network with symmetric 3x3 kernels; the options are those of ``resnet18`` but ``kernel_size``
    and ``pooling``."""
    return symmetric(resnet(18, stem_kernel_size=stem_kernel_size, **skeleton))


@register_model(
    "symm_resnet50",
    "resnet",
    parameters=15_983_690,
    paper="18.0M",
    paper_options=(("num_classes", 1000),),
    paper_parameters=18_012_200,
)
def symm_resnet50(*, stem_kernel_size: int = 7, **skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """The plain network with symmetric 3x3 kernels and an ordinary stem; the options are those of ``resnet50``."""
    return symmetric(resnet(50, stem_kernel_size=stem_kernel_size, **skeleton), keep=("stem.conv",))


@register_model("symm_r3d_9", "r3d", dimensions=(3,), parameters=249_538, paper="0.25M")
def symm_r3d_9(**skeleton: Unpack[SkeletonOptions]) -> ResNet:
    """The plain network of volumes with 3 weights per 3x3x3 kernel: the centre, the faces, the rest."""
    return symmetric(r3d_9(**skeleton), weights=3)


@register_model(
    "symm_unet",
    "unet",
    dimensions=(2, 3),
    symmetry="rotations and reflections",
    task="segmentation",
    parameters=110_257,
    paper="0.11M",
)
def symm_unet(**options: Unpack[UNetOptions]) -> UNet:
    """The plain U-Net with 2 weights per 3x3 kernel: the centre and the rest."""
    return symmetric(unet(**options), weights=2)
