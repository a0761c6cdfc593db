"""SE(3)-steerable network of volumes (Cesa, Lang & Weiler 2022), made of escnn's layers.

Features are fields of SO(3) that sum the tensor powers of vectors up to the third; the nonlinearity samples them on a
grid of 96 rotations, takes the ELU there, and transforms back. Before the head every feature is sampled on the 24
corners of a snub cube and averaged.

Kept exactly: the 24 rotations of the cube, on volumes of 16 n + 1 voxels a side, from 33. Others are padded with zeros
at their end to the next such size, which moves the centre of an even volume by half a voxel. Other rotations: nearly.
Not kept: reflections.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ringconv.baselines._escnn import EXTRA, OnTensors, escnn, steerable_conv
from ringconv.models.registry import register_model

_GRID = {"type": "thomson_cube", "N": 4}
_GRID_POINTS = 96
_HALVINGS = 4


class SE3CNN(nn.Module):
    """Volumes (B, in_chans, D, H, W) to logits (B, num_classes).

    Args:
        width: pooled features before the head; the published network has 128, and the others scale with it.
    """

    def __init__(self, width: int = 128, in_chans: int = 1, num_classes: int = 10) -> None:
        super().__init__()
        enn = escnn("nn")
        space = escnn("gspaces").rot3dOnR3()
        scale = width / 128

        def fields(power: int, count: int) -> Any:
            return enn.FieldType(space, max(1, round(scale * count)) * [_tensor_powers(space, power)])

        volume = enn.FieldType(space, in_chans * [space.trivial_repr])
        types = [fields(2, 3), fields(3, 2), fields(3, 6), fields(3, 12), fields(3, 8)]
        inner = [max(1, round(scale * channels / _GRID_POINTS)) for channels in (200, 480, 480, 960)]
        self.stem = OnTensors(steerable_conv(volume, types[0], 5, padding=2, bias=False))
        self.blocks = nn.Sequential(*(_Block(types[i], count, types[i + 1]) for i, count in enumerate(inner)))
        group = space.fibergroup
        pool = enn.QuotientFourierELU(
            space, (False, -1), width, irreps=group.bl_irreps(2), out_irreps=group.bl_irreps(0),
            grid=group.sphere_grid(type="thomson_cube", N=1),
        )  # fmt: skip
        self.last = OnTensors(steerable_conv(types[-1], pool.in_type, 3, bias=False))
        self.pool = OnTensors(pool)
        self.num_features = width
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.head = nn.Sequential(
            *(nn.Linear(width, 2 * width, bias=False), nn.BatchNorm1d(2 * width), nn.ELU(), nn.Dropout(0.1)),
            *(nn.Linear(2 * width, width, bias=False), nn.BatchNorm1d(width), nn.ELU(), nn.Dropout(0.1)),
            nn.Linear(width, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.last(self.blocks(self.stem(_padded(x)))))
        logits: Tensor = self.head(features.mean((2, 3, 4)))
        return logits


class _Block(nn.Module):
    """Convolution, norm, nonlinearity and a strided convolution, beside a blurred and strided shortcut."""

    def __init__(self, in_type: Any, inner_fields: int, out_type: Any) -> None:
        super().__init__()
        enn = escnn("nn")
        space = in_type.gspace
        elu = enn.FourierELU(space, inner_fields, irreps=space.fibergroup.bl_irreps(2), inplace=True, **_GRID)
        self.conv1 = OnTensors(steerable_conv(in_type, elu.in_type, 3, padding=1, bias=False))
        self.norm = OnTensors(enn.IIDBatchNorm3d(elu.in_type, affine=True))
        self.elu = OnTensors(elu)
        self.conv2 = OnTensors(steerable_conv(elu.out_type, out_type, 3, padding=1, stride=2, bias=False))
        self.blur = OnTensors(enn.PointwiseAvgPoolAntialiased3D(in_type, 0.33, 2, 1))
        self.shortcut = OnTensors(steerable_conv(in_type, out_type, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.elu(self.norm(self.conv1(x)))) + self.shortcut(self.blur(x))
        return y


def _tensor_powers(space: Any, highest: int) -> Any:
    """The sum of the tensor powers 0..highest of vectors, as a representation."""
    vector = space.fibergroup.irrep(1)
    powers = [space.trivial_repr, vector]
    while len(powers) <= highest:
        powers.append(powers[-1].tensor(vector))
    return escnn("group").directsum(powers, name=f"powers_up_to_{highest}")


def _padded(x: Tensor) -> Tensor:
    step = 2**_HALVINGS
    sides = [max(2 * step + 1, -(-(side - 1) // step) * step + 1) for side in x.shape[2:]]
    missing = [wanted - side for wanted, side in zip(sides, x.shape[2:], strict=True)]
    return F.pad(x, [amount for side in reversed(missing) for amount in (0, side)])


@register_model(
    "se3_cnn", "se3", dimensions=(3,), parameters=228_796, paper="0.23M", extra=EXTRA,
    note="keeps the rotations of the cube on sizes 16n + 1 from 33; takes minutes to build for the first time",
)  # fmt: skip
def se3_cnn(*, width: int = 128, in_chans: int = 1, num_classes: int = 10) -> SE3CNN:
    """The SE(3)-steerable network of volumes."""
    return SE3CNN(width, in_chans, num_classes)
