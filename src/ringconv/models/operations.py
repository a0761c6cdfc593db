"""How many floating-point operations a network's forward pass takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ringconv.layers import GMRConv1d, GMRConv2d, GMRConv3d

_RingConv = (GMRConv1d, GMRConv2d, GMRConv3d)


def count_operations(network: nn.Module, x: Tensor) -> int:
    """Operations of ``network(x)``: products and convolutions, where a multiplication and its addition are two.

    A ring convolution is counted as what it is, whichever method computes it: pixels of one orbit are added first, then
    multiplied once for every ring, and the rings are mixed by a product. torch's own counter would see its dense
    kernel. Other layers whose ways of computing differ say their number by a method ``own_operations(output)``. Network
    and input may be on the meta device, where nothing is computed.
    """
    counter = FlopCounterMode(display=False)
    seen_by_torch: list[int] = []
    counted_here: list[int] = []

    def enter(*_call: Any) -> None:
        seen_by_torch.append(-counter.get_total_flops())

    def leave(layer: nn.Module, _inputs: Any, output: Tensor) -> None:
        seen_by_torch.append(counter.get_total_flops())
        counted_here.append(_operations(layer, output))

    layers = [layer for layer in network.modules() if _has_rings(layer) or hasattr(type(layer), "own_operations")]
    handles = [layer.register_forward_pre_hook(enter) for layer in layers]
    handles += [layer.register_forward_hook(leave) for layer in layers]
    try:
        with torch.no_grad(), counter:
            network(x)
    finally:
        for handle in handles:
            handle.remove()
    return int(counter.get_total_flops()) - sum(seen_by_torch) + sum(counted_here)


def _has_rings(layer: nn.Module) -> bool:
    """Rings that its channels share, that is."""
    return isinstance(layer, _RingConv) and layer.sigma != "channel"


def _operations(layer: Any, output: Tensor) -> int:
    return _ring_operations(layer, output) if _has_rings(layer) else int(layer.own_operations(output))


def _ring_operations(layer: Any, output: Tensor) -> int:
    pixels = output.numel() // layer.out_channels
    taps_per_orbit = layer.geometry.tables(device="cpu").taps_per_orbit
    orbits, taps = len(taps_per_orbit), int(taps_per_orbit.sum())
    ring_pass = layer.in_channels * (taps - orbits + 2 * layer.rings * orbits)
    mixing = 2 * layer.rings * layer.in_channels // layer.groups * layer.out_channels
    if layer.harmonic_weight is None:
        return int(pixels * (ring_pass + mixing))
    lengths = layer.harmonic_weight.shape[2]
    # A tap and its opposite are added or subtracted, then multiplied for two kernels; two squares, their sum, the root.
    of_pairs = layer.in_channels * lengths * (5 * taps // 2 + 4)
    mixing += 2 * lengths * layer.in_channels // layer.groups * layer.out_channels
    return int(pixels * (ring_pass + of_pairs + mixing))
