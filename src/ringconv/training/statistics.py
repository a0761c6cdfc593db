"""The statistics of batch norms, taken anew for the test."""

from __future__ import annotations

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ringconv._network import device_of, dtype_of
from ringconv.convert import recalibrate_batchnorm
from ringconv.data import DataSet

_BATCHES = 16


def renew_statistics(network: nn.Module, data: DataSet, batch_size: int, seed: int = 0) -> None:
    """Take mean and variance of every batch norm anew, from up to 16 batches of training images as they are.

    In training every norm sees what the norms before it made of a batch by that batch's own statistics. In small
    batches these scatter, and so the averages that training keeps are not those of what a tested network sees, whose
    norms all have one mean and variance. In large batches they are.

    Args:
        batch_size: images at a time; several times that of training.
        seed: which images.
    """
    if not any(isinstance(layer, _BatchNorm) and layer.track_running_stats for layer in network.modules()):
        return
    images = data["train"]
    rows = np.random.default_rng(seed).permutation(len(images))[: _BATCHES * batch_size]
    # Parts of equal size, or a last one of a few images would count as much as the others.
    parts = np.array_split(rows, -(-len(rows) // batch_size))
    device, dtype = device_of(network), dtype_of(network)
    recalibrate_batchnorm(network, (data.normalise(images.batch(part)[0].to(device)).to(dtype) for part in parts))
