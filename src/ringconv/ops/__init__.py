"""One operation, several ways to compute it: y = bias + sum_i W_i (G_i * x).

"dense" builds the kernel and is the reference; "factored" never builds it; "fused" is "factored" in one kernel that
never stores the ring responses: compiled C on the CPU, Triton on a GPU. They are equal but for rounding.
"""

from ringconv.ops.choice import (
    METHODS,
    MODES,
    Computable,
    LayerShape,
    Method,
    Mode,
    fastest_method,
    fused_covers,
    fused_covers_harmonics,
    fused_is_there,
    is_exporting,
    method_on_gpu,
    mixes_first,
    octave_of,
)
from ringconv.ops.dense import dense_conv
from ringconv.ops.factored import factored_conv
from ringconv.ops.fused import fused_conv
from ringconv.ops.fused_harmonic import fused_harmonic_conv
from ringconv.ops.gpu.operators import covers as gpu_covers
from ringconv.ops.harmonic import harmonic_conv
from ringconv.ops.options import PADDING_MODES, ConvOptions, PaddingMode

__all__ = [
    "METHODS",
    "MODES",
    "PADDING_MODES",
    "Computable",
    "ConvOptions",
    "LayerShape",
    "Method",
    "Mode",
    "PaddingMode",
    "dense_conv",
    "factored_conv",
    "fastest_method",
    "fused_conv",
    "fused_covers",
    "fused_covers_harmonics",
    "fused_harmonic_conv",
    "fused_is_there",
    "gpu_covers",
    "harmonic_conv",
    "is_exporting",
    "method_on_gpu",
    "mixes_first",
    "octave_of",
]
