"""The reference: build the kernel, convolve."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ringconv.ops.options import ConvOptions, pad_input

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def dense_conv(x: Tensor, kernel: Tensor, bias: Tensor | None, options: ConvOptions) -> Tensor:
    """Convolve ``x`` (B, C, *S) with ``kernel`` (O, C / groups, *K): (B, O, *S')."""
    x, padding = pad_input(x, options)
    convolve = CONVOLUTIONS[kernel.dim() - 2]
    return convolve(x, kernel, bias, options.stride, padding, options.dilation, options.groups)
