"""SRE-Conv (Du et al. 2025), the authors' earlier method: hard rings, one weight each, no Gaussian.

It is the ring convolution with ``preset="paper", sigma=None``.

Kept exactly: quarter turns and reflections. Not kept: angles in between, for which hard rings are coarser than
Gaussian ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Unpack

from ringconv.models.registry import register_model
from ringconv.models.resnet import ResNet, RingResNetOptions, gmr_resnet


@register_model("sre_resnet18", "resnet", symmetry="rotations and reflections", parameters=3_996_618, paper="3.9M")
def sre_resnet18(
    *,
    kernel_size: int | Sequence[int] = (9, 9, 5, 5),
    rings: int | Sequence[int | None] | None = None,
    stem_kernel_size: int = 5,
    **options: Unpack[RingResNetOptions],
) -> ResNet:
    """The residual network of hard rings; the options are those of ``gmr_resnet18``, without ``sigma``.

    Args:
        kernel_size: of the ring convolutions, one or one per stage.
        rings: one number or one per stage; None for the default of the kernel size.
    """
    if options.get("sigma") is not None:
        raise ValueError(f"hard rings have no sigma, got sigma={options['sigma']!r}; use gmr_resnet18")
    published: RingResNetOptions = {**options, "preset": options.get("preset") or "paper", "sigma": None}
    return gmr_resnet(18, kernel_size=kernel_size, rings=rings, stem_kernel_size=stem_kernel_size, **published)
