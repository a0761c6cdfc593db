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
    batch, channels = x.shape[:2]
    out_channels, _, rings = weight.shape
    dimensions = basis.dim() - 1
    convolve = CONVOLUTIONS[dimensions]
    ones = (1,) * dimensions

    if mix_first:
        # (O, C/g, n) -> (O n, C/g): the n partial sums of an output lie side by side.
        mixing = weight.transpose(1, 2).reshape(out_channels * rings, -1, *ones)
        mixed = convolve(x, mixing, None, groups=options.groups)
        mixed = mixed.reshape(batch * out_channels, rings, *mixed.shape[2:])
        y = convolve(mixed, basis.unsqueeze(0), None, options.stride, padding, options.dilation)
        y = y.reshape(batch, out_channels, *y.shape[2:])
        return y if bias is None else y + bias.reshape(-1, *ones)

    maps = x.reshape(batch * channels, 1, *x.shape[2:])
    responses = convolve(maps, basis.unsqueeze(1), None, options.stride, padding, options.dilation)
    responses = responses.reshape(batch, channels * rings, *responses.shape[2:])
    return convolve(responses, weight.reshape(out_channels, -1, *ones), bias, groups=options.groups)
