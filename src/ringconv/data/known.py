"""How the paper normalises its sets."""

from __future__ import annotations

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation per channel, on a scale from 0 to 1."""

_CIFAR: Statistics = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

_STATISTICS: dict[str, Statistics] = {
    "cifar10": _CIFAR,
    "nwpu10": _CIFAR,
    "mtarsi": _CIFAR,
    "imagenet": _IMAGENET,
    "nct_crc": _IMAGENET,
    "pcam": ((0.7007, 0.5383, 0.6916), (0.1386, 0.1843, 0.1259)),
}


def known_statistics(name: str, channels: int) -> Statistics | None:
    """By the name of the set, which may go on after an underscore: cifar10_20k is cifar10."""
    for key, statistics in _STATISTICS.items():
        if (name == key or name.startswith(f"{key}_")) and channels == len(statistics[0]):
            return statistics
    return None
