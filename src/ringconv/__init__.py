"""Convolutions made of Gaussian rings: equivariant to rotation and reflection by construction."""

from ringconv._version import __version__
from ringconv.equivariance import assert_equivariant, equivariance_error
from ringconv.layers import Downsample, EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d, Upsample
from ringconv.rings import RingGeometry

__all__ = [
    "Downsample",
    "EquivarianceWarning",
    "GMRConv1d",
    "GMRConv2d",
    "GMRConv3d",
    "RingGeometry",
    "Upsample",
    "__version__",
    "assert_equivariant",
    "equivariance_error",
]
