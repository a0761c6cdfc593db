"""The paper's two steps: one pass per ring that all channels share, and a product that mixes rings and channels.

The steps commute, so the pass can run over the inputs or, where there are fewer of them, over the outputs.
"""

from __future__ import annotations

from torch import Tensor

from ringconv.ops.dense import CONVOLUTIONS
from ringconv.ops.options import ConvOptions, pad_input


def factored_conv(
    x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None, options: ConvOptions, *, mix_first: bool = False
) -> Tensor:
    """Convolve with the kernel sum_i weight[..., i] basis[i] without building it.

    Args:
        x: (B, C, *S).
        weight: (O, C / groups, n).
        basis: (n, *K).
        bias: (O,) or None.
        mix_first: mix the channels before the ring pass instead of after it.

    Returns:
        (B, O, *S')
    """
    x, padding = pad_input(x, options)
    in_channels = x.shape[1]
    out_channels, _, rings = weight.shape
    dimensions = basis.dim() - 1
    convolve = CONVOLUTIONS[dimensions]
    ones = (1,) * dimensions

    if mix_first:
        # (O, C/g, n) -> (O n, C/g): the n partial sums of an output lie side by side.
        mixing = weight.transpose(1, 2).reshape(out_channels * rings, -1, *ones)
        mixed = convolve(x, mixing, None, groups=options.groups)
        rings_per_output = basis.expand(out_channels, *basis.shape)
        return convolve(mixed, rings_per_output, bias, options.stride, padding, options.dilation, out_channels)

    rings_per_input = basis.unsqueeze(1).repeat(in_channels, 1, *ones)
    responses = convolve(x, rings_per_input, None, options.stride, padding, options.dilation, in_channels)
    return convolve(responses, weight.reshape(out_channels, -1, *ones), bias, groups=options.groups)
