"""How strongly an image changes around each pixel: the lengths of the pairs of responses to two kernels, mixed.

Not linear: there is no kernel that does this, so it is added to a ring convolution, not built into it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ringconv.ops.dense import CONVOLUTIONS
from ringconv.ops.options import ConvOptions, pad_input

TINY = 1e-4
"""Added to squared lengths: a length has no derivative at zero. Its first derivative stays within 1, the second within
TINY^(-1/2); where the image is flat the length is TINY^(1/2)."""


def harmonic_conv(x: Tensor, weight: Tensor, pairs: Tensor, options: ConvOptions) -> Tensor:
    """sum_q weight_q sqrt((pairs[q, 0] * x)^2 + (pairs[q, 1] * x)^2 + TINY), channel by channel before it is mixed.

    Args:
        x: (B, C, *S).
        weight: (O, C / groups, Q).
        pairs: (Q, 2, *K).

    Returns:
        (B, O, *S')
    """
    x, padding = pad_input(x, options)
    in_channels = x.shape[1]
    dimensions = pairs.dim() - 2
    convolve = CONVOLUTIONS[dimensions]
    ones = (1,) * dimensions
    # Channel c has the responses 2 Q c .. 2 Q (c + 1), cosine and sine of a pair side by side.
    kernels = pairs.flatten(0, 1).unsqueeze(1).repeat(in_channels, 1, *ones)
    responses = convolve(x, kernels, None, options.stride, padding, options.dilation, in_channels)
    lengths = pair_lengths(responses)
    return convolve(lengths, weight.reshape(weight.shape[0], -1, *ones), None, groups=options.groups)


def pair_lengths(responses: Tensor) -> Tensor:
    """(B, 2 P, *S), pairs side by side -> (B, P, *S). Squares of half precision are summed in float32."""
    dtype = responses.dtype
    wide = responses.float() if dtype in (torch.float16, torch.bfloat16) else responses
    return (torch.unflatten(wide, 1, (-1, 2)).square().sum(2) + TINY).sqrt().to(dtype)
