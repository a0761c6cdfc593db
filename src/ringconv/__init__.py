"""Convolutions made of Gaussian rings: equivariant to rotation and reflection by construction."""

from typing import TYPE_CHECKING, Any

from ringconv._version import __version__
from ringconv.convert import convert
from ringconv.equivariance import assert_equivariant, equivariance_error
from ringconv.fold import fold
from ringconv.layers import Downsample, EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d, Upsample
from ringconv.rings import RingGeometry

if TYPE_CHECKING:
    from ringconv.models import create_model, list_models, load_model, save_model

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
    "convert",
    "create_model",
    "equivariance_error",
    "fold",
    "list_models",
    "load_model",
    "save_model",
]

_FROM_MODELS = ("create_model", "list_models", "load_model", "save_model")


def __getattr__(name: str) -> Any:
    # The zoo is found when it is asked for: a layer should not wait for the models, nor need their packages.
    if name in _FROM_MODELS:
        import ringconv.models

        return getattr(ringconv.models, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
