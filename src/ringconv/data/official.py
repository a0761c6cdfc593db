"""The sets of the paper, each in the layout that it is published in."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ringconv._extras import needs
from ringconv._progress import Progress
from ringconv._torchvision import import_torchvision
from ringconv.data import cache
from ringconv.data.assemble import Record, assemble
from ringconv.data.dataset import DataSet, Rows, Split
from ringconv.data.decode import Item, Mesh, Picture
from ringconv.data.folders import class_folders, images_below, load_folder, records_of_classes
from ringconv.data.known import known_statistics
from ringconv.data.options import DataOptions
from ringconv.data.splits import with_validation

VHR10_CLASSES = (
    "airplane",
    "ship",
    "storage tank",
    "baseball diamond",
    "tennis court",
    "basketball court",
    "ground track field",
    "harbor",
    "bridge",
    "vehicle",
)
_BOX = re.compile(r"\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)\s*,\s*\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)\s*,\s*(\d+)\s*")
_PCAM_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def load_nwpu10(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """Every ground-truth box of NWPU VHR-10 cropped and resized to 64 x 64; 100 per class to train on.

    The group of a crop is its scene. The paper draws crops one by one, so that scenes are on both sides of its split;
    ``grouped=True`` keeps them whole.
    """
    records = [
        Record(Item(root / "positive image set" / f"{path.stem}.jpg", box), label, group=path.stem)
        for path in sorted((root / "ground truth").glob("*.txt"))
        for box, label in _boxes(path)
    ]
    for record in records:
        if not record.item.path.is_file():
            raise FileNotFoundError(f"{record.item.path} is missing, and its boxes are in {root / 'ground truth'}")
    options = replace(options, per_class=options.per_class or 100)
    decoder = Picture(options.sides(2, 64), options.fit, options.grey)
    data = assemble("nwpu10", records, VHR10_CLASSES, options, progress, decoder=decoder, grouped=False)
    train, test = (data[split].groups for split in ("train", "test"))
    assert train is not None
    assert test is not None
    shared = 100 * float(np.isin(test, train).mean())
    return replace(data, notes=(*data.notes, f"{shared:.0f}% of the test crops come from scenes that are trained on"))


def _boxes(path: Path) -> list[tuple[tuple[int, int, int, int], int]]:
    boxes = []
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        found = _BOX.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"{path}, line {number}: expected (x1,y1),(x2,y2),class, got {line!r}")
        x1, y1, x2, y2, label = map(int, found.groups())
        if not 1 <= label <= len(VHR10_CLASSES):
            raise ValueError(f"{path}, line {number}: the class must be from 1 to {len(VHR10_CLASSES)}, got {label}")
        boxes.append(((x1, y1, x2, y2), label - 1))
    return boxes


def load_mtarsi(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """A folder per type of aircraft; 64 x 64; 200 per class to train on."""
    options = replace(options, per_class=options.per_class or 200, size=options.size or 64)
    return load_folder(root, options, progress, "mtarsi")


def load_nct_crc(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """NCT-CRC-HE-100K to train on, CRC-VAL-HE-7K to test on."""
    folders = {"train": root / "NCT-CRC-HE-100K", "test": root / "CRC-VAL-HE-7K"}
    records, classes = records_of_classes((split, folder) for split, folder in folders.items() if folder.is_dir())
    return assemble("nct_crc", records, classes, options, progress)


def load_imagenet(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """train to train on, val to test on, 224 x 224. Class names are torchvision's, where its meta.bin is there."""
    options = replace(options, size=options.size or 224)
    folders = {"train": root / "train", "test": root / "val"}
    records, classes = records_of_classes((split, folder) for split, folder in folders.items() if folder.is_dir())
    if (root / "meta.bin").is_file():
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()
        names = needs("torchvision.datasets.imagenet", "data").load_meta_file(str(root))[0]
        classes = [", ".join(names.get(wnid, (wnid,))) for wnid in classes]
    return assemble("imagenet", records, classes, options, progress)


def load_modelnet(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """OFF meshes: 2,048 points of the surface in a grid of 32^3, as the paper has it; the official split."""
    sides = options.sides(3, 32)
    assert sides is not None
    if len(set(sides)) != 1:
        raise ValueError(f"meshes are put into a cube: size must be one number, got {options.size}")
    folders = [
        folder for folder in class_folders(root) if any((folder / split).is_dir() for split in ("train", "test"))
    ]
    records = [
        Record(Item(path), number, split=split)
        for number, folder in enumerate(folders)
        for split in ("train", "test")
        for path in images_below(folder / split, (".off",))
    ]
    name = f"modelnet{len(folders)}" if len(folders) in (10, 40) else "modelnet"
    decoder = Mesh(sides[0], seed=options.seed)
    return assemble(name, records, [folder.name for folder in folders], options, progress, decoder=decoder)


def load_cryonuseg(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """Nuclei in 30 tissue images of 10 organs, by the first annotator; two images of each organ to train on.

    The paper does not state its split; ours is drawn within each organ, so that all are trained on and tested.
    """
    folders = sorted(path for path in root.rglob("mask binary") if path.is_dir())
    if not folders:
        raise FileNotFoundError(f"there is no folder 'mask binary' below {root}")
    masks = {path.stem: path for path in images_below(folders[0])}
    images = images_below(root / "tissue images")
    missing = [path.name for path in images if path.stem not in masks]
    if missing:
        raise FileNotFoundError(f"{folders[0]} has no mask for {len(missing)} images: {', '.join(missing[:10])}")
    organs = [path.stem.rpartition("_")[0] for path in images]
    number = {organ: index for index, organ in enumerate(sorted(set(organs)))}
    records = [
        Record(Item(path), number[organ], Item(masks[path.stem])) for path, organ in zip(images, organs, strict=True)
    ]
    options = replace(options, per_class=options.per_class or 2)
    return assemble("cryonuseg", records, ("background", "nucleus"), options, progress)


def load_pcam(root: Path, options: DataOptions, progress: Progress) -> DataSet:
    """PatchCamelyon's HDF5 files, read where they are; ``cache=True`` copies the images into memory maps."""
    splits = {}
    for split, published in _PCAM_SPLITS.items():
        images, labels = (root / f"camelyonpatch_level_2_split_{published}_{part}.h5" for part in "xy")
        if not images.exists():
            continue
        if not labels.exists():
            raise FileNotFoundError(f"{images} is there, but its labels {labels} are not")
        rows: Rows = H5Rows.opened(images, "x")
        if options.cache:
            rows = _copied(rows, images, options, progress)
        targets = H5Rows.opened(labels, "y")[:].reshape(-1).astype(np.int64)
        splits[split] = Split(rows, targets)
    splits = with_validation(splits, options.validation, options.seed)
    mean, std = known_statistics("pcam", 3) or ((), ())
    return DataSet("pcam", "classify", ("normal", "metastasis"), splits, mean, std)


@dataclass(eq=False)
class H5Rows:
    """Rows of an HDF5 data set. The file is opened by whichever process reads, so that workers can be sent a copy."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: Any

    @staticmethod
    def opened(path: Path, key: str) -> H5Rows:
        try:
            with needs("h5py", "data").File(path, "r") as file:
                return H5Rows(path, key, file[key].shape, file[key].dtype)
        except (OSError, KeyError) as error:
            raise ValueError(f"{path} cannot be read, or has no {key!r}: {error}") from error

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> Any:
        with needs("h5py", "data").File(self.path, "r") as file:
            values = file[self.key]
            if isinstance(rows, slice):
                return values[rows]
            # HDF5 wants rows in order and each once.
            order, place = np.unique(np.asarray(rows), return_inverse=True)
            return values[order][place.reshape(-1)]


def _copied(rows: Rows, path: Path, options: DataOptions, progress: Progress) -> Rows:
    def build(folder: Path) -> None:
        out = cache.new_memmap(folder / "rows.npy", rows.dtype, rows.shape)
        for start in range(0, len(rows), 1024):
            out[start : start + 1024] = rows[start : start + 1024]
            progress(f"copy {path.stem}", min(start + 1024, len(rows)), len(rows))
        out.flush()

    folder = cache.stored(path.stem, cache.key_of([path]), build, options.cache_folder)
    copied: Rows = np.load(folder / "rows.npy", mmap_mode="r", allow_pickle=False)
    return copied
