"""CIFAR-10's official files, which are pickles, read without letting them run anything."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ringconv._progress import Progress
from ringconv.data import cache
from ringconv.data.dataset import DataSet, Split
from ringconv.data.known import known_statistics
from ringconv.data.options import DataOptions
from ringconv.data.splits import with_validation

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FILES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}


class _ArraysOnly(pickle.Unpickler):
    """Knows numpy arrays and nothing else: a pickle that names any other function or class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in the old protocols
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it wants {module}.{name}, and only numpy arrays are read")


def read_batch(path: Path) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Images (N, 32, 32, 3) and labels (N,) of one official file."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
        images, labels = (content[key if key in content else key.decode()] for key in (b"data", b"labels"))
        images = np.asarray(images, np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = np.asarray(labels, np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} is not a complete batch of CIFAR-10: {error}") from error
    if len(images) != len(labels) or np.any((labels < 0) | (labels >= len(CLASSES))):
        raise ValueError(f"{path}: {len(images)} images need as many labels from 0 to {len(CLASSES) - 1}")
    return images, labels


def load_cifar10(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """``cifar-10-batches-py``: unpacked once into the cache and memory-mapped from there."""
    folder = root / "cifar-10-batches-py"
    files = {split: [folder / name for name in names if (folder / name).is_file()] for split, names in _FILES.items()}
    every = [path for paths in files.values() for path in paths]

    def build(out: Path) -> None:
        done = 0
        for split, paths in files.items():
            batches = []
            for path in paths:
                batches.append(read_batch(path))
                done += 1
                progress("read cifar10", done, len(every))
            if batches:
                np.save(out / f"{split}_images.npy", np.concatenate([images for images, _ in batches]))
                np.save(out / f"{split}_labels.npy", np.concatenate([labels for _, labels in batches]))

    cached = cache.stored("cifar10", cache.key_of(every), build, options.cache_folder)
    splits = {
        split: Split(*(np.load(cached / f"{split}_{part}.npy", mmap_mode="r") for part in ("images", "labels")))
        for split, paths in files.items()
        if paths
    }
    mean, std = known_statistics("cifar10", 3) or ((), ())
    splits = with_validation(splits, options.validation, options.seed)
    return DataSet("cifar10", "classify", CLASSES, splits, mean, std)
