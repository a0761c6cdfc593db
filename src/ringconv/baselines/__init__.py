"""The methods that ring convolutions are compared with: one file each, registered as models when imported."""

from ringconv.baselines import e2, fuhl, group, harmonic, orn, ric, se3, sre, symm
from ringconv.baselines.group import GroupConv2d
from ringconv.baselines.harmonic import HarmonicConv2d
from ringconv.baselines.orn import ORConv2d
from ringconv.baselines.ric import RICConv2d
from ringconv.baselines.symm import SymmConv2d, SymmConv3d

__all__ = [
    "GroupConv2d",
    "HarmonicConv2d",
    "ORConv2d",
    "RICConv2d",
    "SymmConv2d",
    "SymmConv3d",
    "e2",
    "fuhl",
    "group",
    "harmonic",
    "orn",
    "ric",
    "se3",
    "sre",
    "symm",
]
