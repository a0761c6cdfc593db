"""The layouts that are known by name: how they look, where to get them, how they are read."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ringconv._progress import Progress
from ringconv.data import official
from ringconv.data.cifar import load_cifar10
from ringconv.data.dataset import DataSet
from ringconv.data.fetch import Download
from ringconv.data.options import DataOptions

_ZENODO = "https://zenodo.org/records"
_PCAM_MD5 = {
    "train_x": "1571f514728f59376b705fc836ff4b63",
    "train_y": "35c2d7259d906cfc8143347bb8e05be7",
    "valid_x": "d5b63470df7cfa627aeec8b9dc0c066e",
    "valid_y": "2b85f58b927af9964a4c15b8f7e8f179",
    "test_x": "d8c2d60d490dbd479f8199bdfa0cf6ec",
    "test_y": "60a7035772fbdb7f34eb86d4420cf66a",
}


@dataclass(frozen=True)
class Layout:
    """A published set.

    Attributes:
        marker: a pattern of paths that is found in its folder, and in no other layout's.
        tree: what the folder must look like, for people.
        source: where to get it.
        downloads: what ``ringconv data fetch`` gets, where the host gives it to anybody.
    """

    title: str
    load: Callable[[Path, DataOptions, Progress], DataSet]
    marker: str
    tree: str
    source: str
    downloads: tuple[Download, ...] = ()

    def root(self, path: Path) -> Path | None:
        """The folder that the tree starts in: the given one, one below it, or the one above if the given one is the
        first of the tree; None if it is not there."""
        if not path.is_dir():
            return None
        first = self.marker.partition("/")[0]
        above = [path.absolute().parent] if first != "*" and fnmatch.fnmatch(path.absolute().name, first) else []
        below = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
        places = (path, *above, *below)
        return next((place for place in places if next(place.glob(self.marker), None) is not None), None)

    def missing(self, name: str, path: Path) -> str:
        fetched = f"\nor, into {path}: ringconv data fetch {name} --root {path}" if self.downloads else ""
        return f"there is no {self.title} in {path}. Expected is\n\n{self.tree}\n\nGet it from {self.source}{fetched}"


LAYOUTS = {
    "cifar10": Layout(
        "CIFAR-10",
        load_cifar10,
        "cifar-10-batches-py/*_batch*",
        "cifar-10-batches-py/\n    data_batch_1 ... data_batch_5\n    test_batch",
        "https://www.cs.toronto.edu/~kriz/cifar.html (the Python version)",
        (Download("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
    ),
    "nwpu10": Layout(
        "NWPU VHR-10",
        official.load_nwpu10,
        "ground truth/*.txt",
        "positive image set/\n    001.jpg ... 650.jpg\nground truth/\n    001.txt ... 650.txt",
        "https://gcheng-nwpu.github.io (NWPU VHR-10, for research only)",
    ),
    "mtarsi": Layout(
        "MTARSI",
        official.load_mtarsi,
        "*KC-10*/*",
        "A-10/*.jpg\nB-1/*.jpg\n... (20 types)",
        "https://doi.org/10.5281/zenodo.3464319",
    ),
    "nct_crc": Layout(
        "NCT-CRC-HE-100K with CRC-VAL-HE-7K",
        official.load_nct_crc,
        "*-HE-[17]*K/*/*.tif",
        "NCT-CRC-HE-100K/\n    ADI/*.tif ... TUM/*.tif\nCRC-VAL-HE-7K/\n    ADI/*.tif ... TUM/*.tif",
        "https://doi.org/10.5281/zenodo.1214456",
        (
            Download(f"{_ZENODO}/1214456/files/NCT-CRC-HE-100K.zip", "035777cf327776a71a05c95da6d6325f"),
            Download(f"{_ZENODO}/1214456/files/CRC-VAL-HE-7K.zip", "2fd1651b4f94ebd818ebf90ad2b6ce06"),
        ),
    ),
    "pcam": Layout(
        "PatchCamelyon",
        official.load_pcam,
        "camelyonpatch_level_2_split_*_x.h5",
        "camelyonpatch_level_2_split_{train,valid,test}_{x,y}.h5",
        "https://doi.org/10.5281/zenodo.2546921",
        tuple(
            Download(f"{_ZENODO}/2546921/files/camelyonpatch_level_2_split_{part}.h5.gz", md5, "pcam")
            for part, md5 in _PCAM_MD5.items()
        ),
    ),
    "imagenet": Layout(
        "ImageNet-1k",
        official.load_imagenet,
        "*/n[0-9]*/*.JPEG",
        "train/\n    n01440764/*.JPEG ... (1000 folders)\nval/\n    n01440764/*.JPEG ... (1000 folders)",
        "https://image-net.org/download.php (with an account)",
    ),
    "modelnet40": Layout(
        "ModelNet40",
        official.load_modelnet,
        "airplane/*/*.off",
        "airplane/\n    train/*.off\n    test/*.off\nbathtub/ ... (40 classes)",
        "https://modelnet.cs.princeton.edu",
    ),
    "modelnet10": Layout(
        "ModelNet10",
        official.load_modelnet,
        "*/*/*.off",
        "bathtub/\n    train/*.off\n    test/*.off\nbed/ ... (10 classes)",
        "https://modelnet.cs.princeton.edu",
    ),
    "cryonuseg": Layout(
        "CryoNuSeg",
        official.load_cryonuseg,
        "tissue images/*.tif",
        "tissue images/\n    Human_AdrenalGland_01.tif ... (30 images)\nAnnotator 1 (...)/\n    ... mask binary/*.png",
        "https://www.kaggle.com/datasets/ipateam/segmentation-of-nuclei-in-cryosectioned-he-images",
    ),
}
