"""All recipes, made from the printed tables and the lists of the paper's curves."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ringconv.recipes import paper
from ringconv.recipes.networks import NETWORKS
from ringconv.recipes.paper import Row
from ringconv.recipes.protocols import PROTOCOLS
from ringconv.recipes.recipe import Recipe
from ringconv.training.settings import TrainSettings

Options = Mapping[str, Any]

FULL_TURN = 180.0
"""Largest angle, either way, of training that sees all rotations."""

DRAWN_FROM = {
    "fig:teaser": ("tab:main", "tab:speed"),
    "fig:radar3": ("tab:main",),
    "fig:cifar_line": ("tab:main",),
    "fig:vhr_line": ("tab:main",),
    "fig:mtarsi_line": ("tab:main",),
    "fig:crc_line": ("tab:main",),
    "fig:pcam_line": ("tab:main",),
    "fig:cifar_kdesign": ("tab:arch",),
    "fig:cifar_abla": ("tab:ablation1",),
    "fig:sri_kernel": ("tab:main",),
    "fig:corr": ("tab:main", "tab:arch"),
    "fig:cluster": ("tab:main",),
    "fig:feat": ("tab:main",),
}
"""Figures that need no training of their own: the runs of these tables hold what they show."""

CURVES = {
    "fig:param": ("Rotated CIFAR-10 by number of channels", ("parameters", "rotated")),
    "fig:partial": ("Rotated CIFAR-10 by the largest rotation in training", ("rotated",)),
    "fig:cifar_train": ("Rotated CIFAR-10 during training", ("rotated",)),
}
"""Figures with recipes of their own: title and measures."""

_WIDTHS = {
    "resnet18": (8, 16, 32, 64),
    "orn_resnet18": (64,),
    "p4m_resnet18": (32, 64, 96),
    "harmonic_resnet18": (32, 64, 96),
    "e2_wrn16": (32, 64, 96),
    "ric_resnet18": (32, 64, 96, 128),
    "symm_resnet18": (32, 64, 96),
    "gmr_resnet18": (8, 16, 32, 64, 96),
}
"""Base channels of the curves of fig:param, as the supplement lists them; for ORN it lists none."""
_PAPER_WIDTH = 64
_OTHER_UNITS = "the supplement's 64 channels are taken to be the network of the main table, and others in proportion"

_PARTIAL_ANGLES = (0, 15, 30, 45, 90, 180)
"""Largest rotations of fig:partial."""
_STATED_ANGLES = (0, 15, 30, 180)
_OUR_ANGLE = "the text names 15, 30 and 180 degrees only; this angle is ours"

_QUOTED = "quoted by the paper from Fuhl et al., who publish neither code nor a full description"
_TIMED = "a measurement of speed, not a training: run `ringconv bench`"


LABELS = {label: (table.title, table.measures) for label, table in paper.TABLES.items()} | CURVES
"""Title and measures of everything that has recipes."""


@functools.cache
def all_recipes() -> dict[str, Recipe]:
    """Every recipe by name, in the order of the paper."""
    recipes = [
        *_plain_table(paper.MAIN),
        *_plain_table(paper.IMAGENET, "imagenet"),
        *_kernel_designs(),
        *_kernel_shapes(),
        *_augmentations(),
        *_plain_table(paper.MODELNET),
        *_plain_table(paper.SEGMENTATION, "cryonuseg"),
        *_timings(),
        *_plain_table(paper.ROTATION_STD),
        *_plain_table(paper.FUHL, "cifar10"),
        *_plain_table(paper.OTHER_ARCHITECTURES),
        *_widths(),
        *_partial_rotations(),
        *_convergence(),
    ]
    named = {recipe.name: recipe for recipe in recipes}
    assert len(named) == len(recipes), "two recipes of one name"
    return named


def _plain_table(table: paper.PaperTable, data: str = "") -> Iterator[Recipe]:
    """Rows that differ in their network only."""
    for group, row, figures in table.entries():
        if row.key in NETWORKS:
            yield _recipe(table.label, group, row, figures, row.key, data or group)
        else:
            yield Recipe(table.label, group, row.key, row.printed, figures, None, _QUOTED)


def _kernel_designs() -> Iterator[Recipe]:
    shapes: dict[str, Options] = {"square": {"circular": False}, "circular": {}}
    widths: dict[str, Options] = {
        "hard": {"sigma": None},
        "fixed": {"sigma": "fixed"},
        "layer": {},
        "channel": {"sigma": "channel"},
    }
    for _, row, figures in paper.ARCH.entries():
        shape, width = row.key.split("_")
        options = {**shapes[shape], **widths[width]}
        yield _recipe(paper.ARCH.label, "", row, figures, "gmr_resnet18", "cifar10", options)


def _kernel_shapes() -> Iterator[Recipe]:
    defaults = {"kernels": [9, 9, 5, 5], "rings": [5, 5, 3, 3]}
    options_of = {"kernels": "kernel_size", "rings": "rings"}
    for _, row, figures in paper.ABLATION.entries():
        what, *numbers = row.key.split("_")
        sizes = [int(number) for number in numbers]
        # The full model is that of the main table, so that its run serves here too.
        options = {} if sizes == defaults[what] else {options_of[what]: sizes}
        yield _recipe(paper.ABLATION.label, "", row, figures, "gmr_resnet18", "cifar10", options)


def _augmentations() -> Iterator[Recipe]:
    for data, row, figures in paper.AUGMENTATION.entries():
        network = row.key.removesuffix("_turned")
        training = {"rotation": FULL_TURN} if row.key != network else {}
        yield _recipe(paper.AUGMENTATION.label, data, row, figures, network, data, training=training)


def _timings() -> Iterator[Recipe]:
    for group, row, figures in paper.SPEED.entries():
        yield Recipe(paper.SPEED.label, group, row.key, row.printed, figures, None, _TIMED)


def _widths() -> Iterator[Recipe]:
    for network, widths in _WIDTHS.items():
        for width in widths:
            known = width == _PAPER_WIDTH
            row = Row(f"{network}_width{width}", f"{_printed(network)}, {width} channels", "")
            figures = _main_figures(network, "parameters", "rotated") if known else {}
            options = {} if known else {"width": width * NETWORKS[network].width // _PAPER_WIDTH}
            notes = (_OTHER_UNITS,) if NETWORKS[network].width != _PAPER_WIDTH else ()
            yield _recipe("fig:param", "", row, figures, network, "cifar10", options, notes=notes)


def _partial_rotations() -> Iterator[Recipe]:
    for main in paper.MAIN.rows:
        for angle in _PARTIAL_ANGLES:
            row = Row(f"{main.key}_{angle}deg", f"{main.printed}, ±{angle}°", "")
            figures = _main_figures(main.key, "rotated") if angle == 0 else {}
            if angle == FULL_TURN:
                figures = _turned_figures(main.key)
            training = {"rotation": float(angle)} if angle else {}
            notes = () if angle in _STATED_ANGLES else (_OUR_ANGLE,)
            yield _recipe("fig:partial", "", row, figures, main.key, "cifar10", training=training, notes=notes)


def _convergence() -> Iterator[Recipe]:
    for row in paper.AUGMENTATION.rows:
        network = row.key.removesuffix("_turned")
        turned = {"rotation": FULL_TURN} if row.key != network else {}
        at_the_end = {"rotated": paper.AUGMENTATION.figures(row, "cifar10")["rotated"]}
        training = {**turned, "rotated_every": 1}
        yield _recipe("fig:cifar_train", "", row, at_the_end, network, "cifar10", training=training)


def _recipe(
    label: str,
    group: str,
    row: Row,
    figures: Mapping[str, str],
    network_name: str,
    data: str,
    options: Options | None = None,
    training: Options | None = None,
    notes: tuple[str, ...] = (),
) -> Recipe:
    network, protocol = NETWORKS[network_name], PROTOCOLS[data]
    settings = TrainSettings(
        model=network.model,
        data=data,
        model_options={**network.options_for(data), **(options or {})},
        **{**protocol.paper, **network.training, **(training or {})},
    )
    return Recipe(
        label,
        group,
        row.key,
        row.printed,
        figures,
        settings,
        differences=protocol.differences + network.differences_for(data),
        notes=protocol.notes + network.notes + notes,
    )


def _printed(network: str) -> str:
    return next(row.printed for row in paper.MAIN.rows if row.key == network)


def _main_figures(network: str, *measures: str) -> dict[str, str]:
    row = next(row for row in paper.MAIN.rows if row.key == network)
    figures = paper.MAIN.figures(row, "cifar10")
    return {measure: figures[measure] for measure in measures}


def _turned_figures(network: str) -> dict[str, str]:
    """What tab:aug has about training with all rotations, if anything."""
    for row in paper.AUGMENTATION.rows:
        if row.key == f"{network}_turned":
            return {"rotated": paper.AUGMENTATION.figures(row, "cifar10")["rotated"]}
    return {}
