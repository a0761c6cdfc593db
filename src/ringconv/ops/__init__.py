"""One operation, several ways to compute it: y = bias + sum_i W_i (G_i * x).

"dense" builds the kernel and is the reference; "factored" never builds it. They are equal but for rounding.
"""

from ringconv.ops.cost import METHODS, LayerShape, Method, cheapest_method, mixes_first
from ringconv.ops.dense import dense_conv
from ringconv.ops.factored import factored_conv
from ringconv.ops.options import PADDING_MODES, ConvOptions, PaddingMode

__all__ = [
    "METHODS",
    "PADDING_MODES",
    "ConvOptions",
    "LayerShape",
    "Method",
    "PaddingMode",
    "cheapest_method",
    "dense_conv",
    "factored_conv",
    "mixes_first",
]
