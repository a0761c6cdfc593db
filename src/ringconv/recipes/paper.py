"""The tables of the paper as they are printed.

Figures are kept as strings, to the digit: "88.0" is not "88". A test compares them with the paper's source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One printed row."""

    key: str
    """What it is called here."""
    printed: str
    """What the paper calls it."""
    cells: str
    """Its figures from left to right, separated by spaces (or ±, where a deviation follows)."""


@dataclass(frozen=True)
class PaperTable:
    """One printed table: rows of figures, some of the row and some for each of several groups of columns."""

    label: str
    title: str
    rows: tuple[Row, ...]
    each: tuple[str, ...]
    """Measures of every group, from left to right."""
    groups: tuple[str, ...] = ("",)
    """Groups of columns, mostly data sets; one without a name where the table is not divided."""
    shared: tuple[str, ...] = ()
    """Measures of the row, which stand before the groups."""

    def __post_init__(self) -> None:
        expected = len(self.shared) + len(self.groups) * len(self.each)
        for row in self.rows:
            if len(_cells(row)) != expected:
                raise ValueError(f"{self.label}, {row.key}: expected {expected} figures, got {len(_cells(row))}")

    @property
    def measures(self) -> tuple[str, ...]:
        return self.shared + self.each

    def figures(self, row: Row, group: str) -> dict[str, str]:
        """Printed figures of a row in a group by measure."""
        cells, first = _cells(row), len(self.shared) + self.groups.index(group) * len(self.each)
        return dict(zip(self.measures, cells[: len(self.shared)] + cells[first : first + len(self.each)], strict=True))

    def entries(self) -> Iterator[tuple[str, Row, Mapping[str, str]]]:
        """(group, row, printed figures), group by group."""
        for group in self.groups:
            for row in self.rows:
                yield group, row, self.figures(row, group)


def _cells(row: Row) -> list[str]:
    return re.split(r"[\s±]+", row.cells)


DATA_SETS = ("cifar10", "nwpu10", "mtarsi", "nct_crc", "pcam")
_THREE = ("upright", "rotated", "mirrored")

MAIN = PaperTable(
    "tab:main",
    "Main results: trained upright, tested upright, rotated and mirrored",
    (
        Row(
            "resnet18",
            "R18",
            "11.2M 3.4G 87.7 38.4 64.2 97.6 90.9 95.3 92.7 57.2 65.4 93.7 87.3 92.9 84.8 75.3 82.6",
        ),
        Row(
            "orn_resnet18",
            "ORN-R18",
            "11.2M 9.8G 88.0 38.4 61.4 97.9 91.4 96.7 93.6 87.1 83.2 90.9 91.0 85.5 85.5 72.0 82.6",
        ),
        Row(
            "p4m_resnet18",
            "G-R18",
            "11.2M 22.8G 94.1 40.3 62.5 95.9 91.8 95.8 96.4 79.2 94.3 93.7 90.8 91.7 86.4 78.7 85.4",
        ),
        Row(
            "harmonic_resnet18",
            "H-R18",
            "17.3M 23.5G 86.6 41.2 61.0 93.9 85.9 91.3 96.4 74.4 94.1 89.1 88.7 89.1 77.8 73.5 76.3",
        ),
        Row(
            "e2_wrn16",
            "E(2)-WRN16",
            "10.8M 20.9G 94.4 62.3 84.9 98.3 96.3 97.7 96.7 93.0 95.6 93.8 92.5 93.9 85.4 82.6 85.1",
        ),
        Row(
            "e2_order0_wrn16",
            "- 0th-order filter",
            "2.9M 19.7G 75.7 56.8 68.2 93.6 92.2 93.8 84.7 84.6 84.7 89.7 88.3 89.5 76.7 69.8 75.7",
        ),
        Row(
            "ric_resnet18",
            "RIC-R18",
            "11.2M 3.3G 87.4 40.3 70.7 96.2 92.4 95.2 89.4 63.7 87.7 90.6 91.0 90.7 84.5 67.0 83.1",
        ),
        Row(
            "symm_resnet18",
            "Symm-R18",
            "3.8M 11.6G 82.3 46.1 69.2 93.9 93.8 93.4 91.9 79.3 89.7 94.6 90.4 93.8 81.4 71.9 81.2",
        ),
        Row(
            "gmr_resnet18",
            "GMR-R18",
            "3.9M 6.2G 88.9 75.8 88.6 97.2 97.1 97.2 95.7 94.5 95.7 95.6 95.2 95.6 85.9 84.9 85.9",
        ),
    ),
    each=_THREE,
    groups=DATA_SETS,
    shared=("parameters", "memory"),
)

IMAGENET = PaperTable(
    "tab:imagenet",
    "ImageNet-1k, top-1",
    (
        Row("resnet50", "ResNet50", "25.5M 19.3G 74.20 28.41 57.24"),
        Row("e2_resnet50", "E(2)-ResNet50", "26.1M 23.7G 73.45 42.39 70.49"),
        Row("symm_resnet50", "Symm-ResNet50", "18.0M 19.4G 63.50 53.81 62.94"),
        Row("gmr_resnet50", "GMR-ResNet50", "18.1M 18.9G 73.09 69.68 73.09"),
    ),
    each=_THREE,
    shared=("parameters", "memory"),
)

ARCH = PaperTable(
    "tab:arch",
    "Kernel design on CIFAR-10: square or circular, and whose the widths of the rings are",
    (
        Row("square_hard", "w/o GMR", "87.85 66.21 5.2M"),
        Row("square_fixed", "Fixed", "88.19 67.18 5.2M"),
        Row("square_layer", "Layer", "88.59 70.98 5.2M"),
        Row("square_channel", "Ch.", "87.18 70.77 10.2M"),
        Row("circular_hard", "CK, w/o GMR", "87.42 72.67 3.9M"),
        Row("circular_fixed", "CK, Fixed", "86.57 70.89 3.9M"),
        Row("circular_layer", "CK, Layer", "88.96 75.82 3.9M"),
        Row("circular_channel", "CK, Ch.", "86.36 73.31 8.0M"),
    ),
    each=("upright", "rotated", "parameters"),
)

ABLATION = PaperTable(
    "tab:ablation1",
    "Kernel sizes and numbers of rings, stage by stage, on CIFAR-10",
    (
        Row("kernels_3_3_3_3", "Kernel Size [3, 3, 3, 3]", "64.86 2.6M"),
        Row("kernels_5_5_5_5", "Kernel Size [5, 5, 5, 5]", "69.46 3.8M"),
        Row("kernels_7_7_7_7", "Kernel Size [7, 7, 7, 7]", "74.74 5.1M"),
        Row("kernels_9_9_9_9", "Kernel Size [9, 9, 9, 9]", "75.51 6.3M"),
        Row("rings_5_5_3_3", "Number of Rings [5, 5, 3, 3]", "75.82 3.9M"),
        Row("rings_5_5_4_4", "Number of Rings [5, 5, 4, 4]", "72.98 5.1M"),
        Row("rings_6_6_3_3", "Number of Rings [6, 6, 3, 3]", "73.38 4.1M"),
        Row("rings_7_7_5_5", "Number of Rings [7, 7, 5, 5]", "67.36 5.4M"),
        Row("kernels_9_9_5_5", "Layer-wise Kernel Size [9, 9, 5, 5]", "75.82 3.9M"),
        Row("kernels_7_7_5_5", "Layer-wise Kernel Size [7, 7, 5, 5]", "74.69 3.8M"),
        Row("kernels_11_11_9_9", "Layer-wise Kernel Size [11, 11, 9, 9]", "74.07 6.4M"),
        Row("kernels_11_9_7_5", "Layer-wise Kernel Size [11, 9, 7, 5]", "73.63 4.2M"),
    ),
    each=("rotated", "parameters"),
)

AUGMENTATION = PaperTable(
    "tab:aug",
    "With and without random rotations in training",
    (
        Row("resnet18", "R18", "87.7 38.4 64.2 97.6 90.9 95.3 92.7 57.2 65.4 93.7 87.3 92.9 84.8 75.3 82.6"),
        Row("resnet18_turned", "R18", "87.5 86.2 85.9 97.3 97.3 97.1 94.6 94.0 93.5 92.0 92.2 91.6 85.8 84.2 84.3"),
        Row("gmr_resnet18", "GMR-R18", "88.9 75.8 88.6 97.2 97.1 97.2 95.7 94.5 95.7 95.6 95.2 95.6 85.9 84.9 85.9"),
        Row(
            "gmr_resnet18_turned",
            "GMR-R18",
            "87.4 86.7 87.4 96.2 96.3 96.2 95.0 94.6 95.0 95.2 94.5 95.2 86.6 85.4 86.6",
        ),
    ),
    each=_THREE,
    groups=DATA_SETS,
)

MODELNET = PaperTable(
    "tab:modelnet",
    "ModelNet: objects as voxels",
    (
        Row("r3d_9", "R3D", "2.02M 92.3 42.0 91.4 33.5"),
        Row("se3_cnn", "SE(3)-CNN", "0.23M 87.1 55.4 78.9 50.5"),
        Row("symm_r3d_9", "Symm. R3D", "0.25M 88.4 55.6 85.1 52.3"),
        Row("gmr_r3d_9", "GMR-R3D", "0.17M 90.5 65.4 88.0 61.9"),
    ),
    each=("upright", "rotated"),
    groups=("modelnet10", "modelnet40"),
    shared=("parameters",),
)

SEGMENTATION = PaperTable(
    "tab:seg",
    "CryoNuSeg: nuclei, masks rotated with the images",
    (
        Row("unet", "U-Net", "0.48M 95.9 92.3 67.5 63.9 80.3 77.7"),
        Row("e2_unet", "E(2) U-Net", "0.37M 96.6 94.3 66.0 65.4 79.1 78.7"),
        Row("symm_unet", "Symm. U-Net", "0.11M 95.6 91.3 60.9 60.4 75.1 74.8"),
        Row("gmr_unet", "GMR U-Net", "0.18M 96.0 94.8 66.6 65.9 79.8 79.2"),
    ),
    each=("auc", "auc_rotated", "iou", "iou_rotated", "dice", "dice_rotated"),
    shared=("parameters",),
)

SPEED = PaperTable(
    "tab:speed",
    "Seconds of 1,000 convolutions of (2, 128, 64, 64) to 128 channels, by kernel width",
    (
        Row("torch", "Torch Conv", "0.974 0.391 1.524 0.727 3.579 1.418 5.148 2.347 6.887 3.493"),
        Row("e2", "E(2)-Conv", "20.815 10.981 57.967 28.940 122.772 67.052 204.149 114.796 313.260 175.155"),
        Row("group", "Group-Conv", "23.997 10.686 67.881 29.520 138.377 62.295 229.881 104.849 345.862 162.366"),
        Row("symm", "Symm.-Conv", "1.058 0.412 1.467 0.738 3.112 1.429 4.119 2.415 7.258 3.544"),
        Row("gmr_dense", "Naive GMR-Conv", "1.456 0.635 1.561 0.766 3.115 0.817 4.858 2.440 7.162 3.558"),
        Row("gmr", "Efficient GMR-Conv", "1.194 0.276 1.139 0.270 1.680 0.485 2.542 0.689 2.869 0.927"),
    ),
    each=("training_seconds", "inference_seconds"),
    groups=("k3", "k5", "k7", "k9", "k11"),
)

ROTATION_STD = PaperTable(
    "tab:rot_std",
    "Mean and standard deviation over 36 angles",
    (
        Row("resnet18", "R18", "38.4±18.7 90.9±2.7 57.2±12.7 87.3±5.1 75.3±4.9"),
        Row("orn_resnet18", "ORN-R18", "38.4±18.0 91.4±3.2 87.1±9.6 91.0±0.3 72.0±6.9"),
        Row("p4m_resnet18", "G-R18", "40.3±21.3 91.8±2.0 79.2±8.5 90.8±2.0 78.7±3.6"),
        Row("harmonic_resnet18", "H-R18", "41.2±15.3 85.9±3.9 74.4±9.7 88.7±0.5 73.5±1.8"),
        Row("e2_wrn16", "E(2)-WRN16", "62.3±18.2 96.3±1.4 93.0±3.5 92.5±1.2 82.6±1.5"),
        Row("ric_resnet18", "RIC-R18", "40.3±17.4 92.4±1.8 63.7±3.2 91.0±0.2 67.0±7.3"),
        Row("symm_resnet18", "Symm-R18", "46.1±16.7 93.8±0.5 79.3±8.0 90.4±2.0 71.9±4.5"),
        Row("gmr_resnet18", "GMR-R18", "75.8±8.7 97.1±0.2 94.5±0.4 95.2±0.2 84.9±0.6"),
    ),
    each=("rotated", "rotated_std"),
    groups=DATA_SETS,
)

FUHL = PaperTable(
    "tab:fuhl",
    "CIFAR-10 by the protocol of Fuhl et al.: quarter turns (4ROT), every 20 degrees (ALLROT)",
    (
        Row("rad_resnet34", "RAD 3-ResNet34", "69.83 65.92"),
        Row("rsdw_resnet34", "RSDW 3-ResNet34", "65.82 58.97"),
        Row("ring_resnet34", "RING 5x5-ResNet34", "79.96 75.79"),
        Row("gmr_resnet34", "GMR-ResNet34", "90.36 77.86"),
    ),
    each=("quarter_turns", "every_20_degrees"),
)

OTHER_ARCHITECTURES = PaperTable(
    "tab:other_arch",
    "Other backbones",
    (
        Row(
            "resnet50",
            "ResNet-50",
            "23.5M 94.7 37.1 65.7 96.5 88.9 95.2 92.4 57.2 64.9 92.9 88.5 92.4 86.1 75.2 83.7",
        ),
        Row(
            "gmr_resnet50",
            "GMR-ResNet50",
            "16.1M 89.7 80.9 89.8 96.8 96.4 96.8 96.4 92.9 96.3 95.0 94.1 95.0 85.8 84.9 84.9",
        ),
        Row(
            "convnext_tiny",
            "ConvNeXt-T",
            "27.8M 92.1 36.8 62.3 93.9 86.5 91.9 88.3 53.2 62.0 94.0 78.7 91.4 71.5 61.9 69.5",
        ),
        Row(
            "gmr_convnext_tiny",
            "GMR-ConvNeXt-T",
            "26.3M 87.7 64.9 87.7 91.6 93.3 92.3 82.6 82.8 82.6 92.3 91.5 92.3 72.4 72.3 72.4",
        ),
        Row(
            "densenet121",
            "DenseNet-121",
            "7.0M 87.9 34.7 60.0 97.8 93.1 95.9 91.5 55.7 64.4 94.7 84.6 93.1 83.9 71.6 80.8",
        ),
        Row(
            "gmr_densenet121",
            "GMR-DenseNet-121",
            "5.7M 88.6 69.1 88.6 95.1 95.4 95.1 88.7 88.0 88.7 94.1 93.7 94.1 81.1 80.7 81.1",
        ),
        Row(
            "densenet161",
            "DenseNet-161",
            "26.5M 88.5 36.0 61.3 97.3 92.4 96.7 91.6 55.6 64.2 93.9 85.9 92.4 84.3 72.8 82.1",
        ),
        Row(
            "gmr_densenet161",
            "GMR-DenseNet-161",
            "22.5M 89.5 71.3 89.5 94.2 94.7 94.1 87.5 87.5 87.7 94.4 94.0 94.4 83.5 83.8 83.5",
        ),
    ),
    each=_THREE,
    groups=DATA_SETS,
    shared=("parameters",),
)

TABLES = {
    table.label: table
    for table in (
        MAIN,
        IMAGENET,
        ARCH,
        ABLATION,
        AUGMENTATION,
        MODELNET,
        SEGMENTATION,
        SPEED,
        ROTATION_STD,
        FUHL,
        OTHER_ARCHITECTURES,
    )
}
"""The printed tables by label, in the order of the paper's text."""
