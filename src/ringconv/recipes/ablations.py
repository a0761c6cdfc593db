"""The paper's ablations on real data that two cores get through: what makes a ring kernel, how wide the network is, and
how far training images are turned."""

from __future__ import annotations

from dataclasses import replace

from ringconv.recipes import paper
from ringconv.recipes.on_nwpu import BRIEF, DATA, brief_nwpu_settings
from ringconv.recipes.scales import get_recipe
from ringconv.recipes.study import THREE_SEEDS, Study, Trial

_ABOUT = f"On NWPU-10 as above, but {BRIEF}."
_WIDTH = 8
_NETWORKS = {"resnet18": "R18", "gmr_resnet18": "GMR-R18"}


def _of_table(table: paper.PaperTable, *left_out: str) -> list[Trial]:
    """The rows of a printed table, which differ in the options of their ring layers."""
    trials = []
    for _, row, figures in table.entries():
        if row.key in left_out:
            continue
        settings = get_recipe(f"{table.label}/{row.key}").settings
        assert settings is not None
        options = {name: value for name, value in settings.model_options.items() if name != "stem_pool"}
        printed = {measure: figure for measure, figure in figures.items() if measure != "parameters"}
        trials.append(
            Trial(row.key, row.printed, brief_nwpu_settings("gmr_resnet18", _WIDTH, **options), THREE_SEEDS, printed)
        )
    return trials


KERNELS = Study(
    "kernels",
    "What makes a ring kernel",
    DATA,
    f"{_ABOUT} The paper has this on CIFAR-10: what can be compared is the order. GMR-R18 of width {_WIDTH}; CK is a"
    " circular kernel, which all rows below these eight have. The full"
    " model is CK, Layer: kernels [9, 9, 5, 5] with [5, 5, 3, 3] rings, which the paper's second table repeats twice."
    " The paper's order does not show here: after so short a training, rows differ by little more than their errors.",
    (*_of_table(paper.ARCH), *_of_table(paper.ABLATION, "rings_5_5_3_3", "kernels_9_9_5_5")),
)

WIDTHS = Study(
    "widths",
    "Accuracy by width",
    DATA,
    f"{_ABOUT} The paper has this as a figure, of CIFAR-10.",
    tuple(
        Trial(f"{model}-w{width}", f"{label}, width {width}", brief_nwpu_settings(model, width), THREE_SEEDS)
        for width in (8, 16, 32)
        for model, label in _NETWORKS.items()
    ),
)

PARTIAL_ROTATION = Study(
    "partial",
    "Training images turned by random angles up to a largest one",
    DATA,
    f"{_ABOUT} Width {_WIDTH}. The paper has this as a figure, of CIFAR-10.",
    tuple(
        Trial(
            f"{model}-{angle}deg",
            f"{label}, ±{angle}°",
            replace(brief_nwpu_settings(model, _WIDTH), rotation=float(angle)),
            THREE_SEEDS,
        )
        for angle in (0, 15, 30, 90, 180)
        for model, label in _NETWORKS.items()
    ),
)
