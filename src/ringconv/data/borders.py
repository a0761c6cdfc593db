"""What images end in."""

from __future__ import annotations

import numpy as np

from ringconv.data.dataset import Split

_LOOKED_AT = 100
_EVEN = 0.05
"""As a share of the range of an image's pixels: what compression leaves of one colour."""
_MOST = 0.9


def has_even_border(split: Split) -> bool:
    """Whether most images end in one colour on all sides, as figures on an empty ground do; by some, spread over all.

    The colour may be another for every image, and in every channel.
    """
    if not len(split):
        return False
    rows = np.unique(np.linspace(0, len(split) - 1, min(len(split), _LOOKED_AT)).astype(np.int64))
    ranges, spreads = [], []
    for row in rows:
        image = split.batch([row])[0][0].numpy()
        ranges.append(np.ptp(image))
        sides = [side for axis in range(1, image.ndim) for side in (image.take(0, axis), image.take(-1, axis))]
        border = np.concatenate([side.reshape(len(image), -1) for side in sides], 1)
        spreads.append(np.ptp(border, axis=1).max())
    # The median: a few images with broken pixels must not make the borders of all others look even.
    return bool(np.mean(np.asarray(spreads) <= _EVEN * np.median(ranges)) >= _MOST)
