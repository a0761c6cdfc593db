"""How the paper would train on data that it does not have, and what two cores get through instead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringconv._progress import Progress
from ringconv.data import DataSet, open_data
from ringconv.data.borders import has_even_border
from ringconv.models.registry import model_entry
from ringconv.recipes.networks import Network, published_form
from ringconv.recipes.protocols import PROTOCOLS, Protocol
from ringconv.recipes.scales import SCALES, TINY, TINY_SIZE, TINY_WIDTH, Scale, changes_between, network_like
from ringconv.training.settings import TrainSettings

Options = Mapping[str, Any]
_Kind = tuple[str, int]
"""Task and dimensions."""

DEFAULT_MODELS: dict[_Kind, tuple[str, str]] = {
    ("classify", 2): ("resnet18", "gmr_resnet18"),
    ("classify", 3): ("r3d_9", "gmr_r3d_9"),
    ("segment", 2): ("unet", "gmr_unet"),
    ("segment", 3): ("unet", "gmr_unet"),
}
"""A plain network, and the same of rings."""

_ALIKE: dict[_Kind, str] = {
    ("classify", 2): "nwpu10",
    ("classify", 3): "modelnet10",
    ("segment", 2): "cryonuseg",
    ("segment", 3): "cryonuseg",
}
"""The set of the paper whose training is taken for others of its kind."""

_SMALL_KERNELS: Options = {"kernel_size": 3, "harmonics": 1}
"""Of ring networks of images: what learned best on the validation images of docs/results.md."""
_TRIED_ON = ("gmr_resnet", "gmr_unet")
"""Beginnings of the names of such networks."""

_SMALL_IMAGE = 64
"""Longest side up to which the paper's networks keep the full resolution after the stem."""
_FASTER_WITH_CHANNELS_LAST = ("resnet", "gmr_resnet", "r3d", "gmr_r3d")
"""Beginnings of names: a training step took two cores 0.6 to 0.8 of the time. Not all methods can be laid out so."""
_ADAMW_LR = 1e-3
"""What AdamW usually wants; the paper gives one learning rate for all."""


@dataclass(frozen=True)
class _Small:
    """What two cores get through in about six minutes a model, testing included."""

    side: int
    """Longest side of the images."""
    batch_size: int
    train_images: int
    test_images: int
    test_pixels: int
    """Pixels (voxels) of all test images together."""
    pixels: float
    """Pixels that training may see, over all epochs, at the resolution of the first stage."""
    most_epochs: int
    crop: int | None = None
    norm_batch: int | None = None
    """Of small batches, what their norms average is not what a tested network sees."""


_CPU: dict[_Kind, _Small] = {
    ("classify", 2): _Small(128, 32, 10_000, 2_000, 1_000 * 64**2, 1.2e8, 60),
    ("classify", 3): _Small(32, 8, 1_000, 1_000, 200 * 32**3, 2.0e8, 30, norm_batch=64),
    ("segment", 2): _Small(320, 8, 500, 200, 21 * 256 * 320, 1.5e8, 400, crop=64),
    ("segment", 3): _Small(64, 4, 100, 50, 8 * 64**3, 1.0e8, 100, crop=32),
}


@dataclass(frozen=True)
class OwnData:
    """Settings for one model on somebody's own data."""

    settings: TrainSettings
    changes: list[str]
    """What the scale changes against the paper's training."""


@dataclass(frozen=True)
class Opened:
    """Somebody's data, as it is to be trained on."""

    where: str
    """What settings name as their data: an absolute path, or a name."""
    data: DataSet
    size: int | None
    """That all images are brought to; None: they have one size of their own."""
    notes: tuple[str, ...] = ()


def open_own_data(
    where: str, scale: Scale = "cpu", size: int | None = None, progress: Progress | None = None
) -> Opened:
    """Open data by its path or name. At the small scales, pictures of many sizes are brought to one."""
    path = Path(where).expanduser()
    found = str(path.resolve()) if path.exists() else where
    notes = []
    if size is not None or scale == "paper":
        data = open_data(found, size=size, progress=progress)
    else:
        try:
            data = open_data(found, progress=progress)
        except ValueError as error:
            # If it was about sizes, there is one now; if not, the same error comes again.
            size = _SMALL_IMAGE
            data = open_data(found, size=size, progress=progress)
            notes.append(f"Brought to {size} x {size} pixels (--size to choose): {error}")
    if "train" in data.splits and _continues_border(data):
        notes.append(
            "The images have an even border, so turned ones are continued with its colour, not filled with the mean"
            " colour as in the paper (ringconv evaluate does that)."
        )
    return Opened(found, data, size, tuple(notes))


def default_models(data: DataSet) -> tuple[str, ...]:
    return DEFAULT_MODELS[data.task, data.dimensions]


def settings_for_data(
    where: str,
    data: DataSet,
    model: str,
    scale: Scale = "cpu",
    *,
    model_options: Options | None = None,
    epochs: int | None = None,
    width: int | None = None,
    size: int | None = None,
    seed: int = 0,
) -> OwnData:
    """The paper's training on its most similar set, at a scale.

    A set that the paper has, by its name, is trained on as the paper does. Models of one backbone have equal stems, so
    that they differ in their convolutions only; images of up to 64 pixels are not pooled after the stem.

    Args:
        where: what the settings name as their data; ``data`` is that, opened.
        model_options, epochs, width, size: win over the scale's.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    network = network_like(model)
    paper = _paper_settings(where, data, model, network, size, seed)
    chosen = replace(paper, **_smaller(paper, data, network, scale, fixed_size=size is not None))
    asked = {**({} if width is None else {"width": width}), **(model_options or {})}
    options = {**chosen.model_options, **asked}
    if scale != "paper":
        options = {**_beyond_paper(model, data, chosen.model_options, published="preset" in asked), **asked}
    chosen = replace(chosen, model_options=options, epochs=chosen.epochs if epochs is None else epochs)
    return OwnData(chosen, changes_between(paper, chosen))


def _beyond_paper(model: str, data: DataSet, of_paper: Options, published: bool) -> dict[str, Any]:
    """Options of a network in the form that learns best.

    Args:
        published: the form of the rings is asked for, and not ours to choose.
    """
    options = {name: value for name, value in of_paper.items() if name != "preset"}
    if data.dimensions != 2:
        return options
    entry = model_entry(model)
    if entry.family == "unet" and "norm" in entry.options:  # e2_unet has norms of its own
        options["norm"] = "batch"  # an instance norm counts what turns in from beyond the frame, everywhere
    if model.startswith(_TRIED_ON) and not published:
        options |= _SMALL_KERNELS
    return options


def _paper_settings(
    where: str, data: DataSet, model: str, network: Network | None, size: int | None, seed: int
) -> TrainSettings:
    named = _named_protocol(data)
    protocol = named or PROTOCOLS[_ALIKE[data.task, data.dimensions]]
    training = {**protocol.paper, **(network.training if network is not None else {})}
    if training.get("optimiser") == "adamw" and "optimiser" not in protocol.paper:
        training["lr"] = _ADAMW_LR
    if named is None:
        training.pop("size", None)
    if size is not None:
        training["size"] = size
    if _continues_border(data):
        training["beyond_frame"] = "edge"
    sides = _sides(training.get("size"), data)
    if "crop" in training:
        training["crop"] = min(training["crop"], *sides)
    keeps = _keeps_resolution(data, sides) and "stem_pool" in model_entry(model).options
    options = {**published_form(model), **({"stem_pool": False} if keeps else {})}
    return TrainSettings(model, where, seed=seed, model_options=options, **training)


def _continues_border(data: DataSet) -> bool:
    """Whether turned images show more of their ground in the corners, where the paper's test has the mean colour.

    Of figures on an even ground, such as black digits on white, that colour is one that no upright image has.
    """
    return data.task == "classify" and _named_protocol(data) is None and has_even_border(data["train"])


def _named_protocol(data: DataSet) -> Protocol | None:
    """Of a set that the paper has; its name may go on after an underscore: cifar10_20k is cifar10."""
    for name, protocol in PROTOCOLS.items():
        same_kind = protocol.dimensions == data.dimensions and protocol.paper.get("task", "classify") == data.task
        if same_kind and (data.name == name or data.name.startswith(f"{name}_")):
            return protocol
    return None


def _smaller(
    paper: TrainSettings, data: DataSet, network: Network | None, scale: Scale, fixed_size: bool
) -> dict[str, Any]:
    """Fields that a scale replaces."""
    if scale == "paper":
        return {}
    has_width = "width" in model_entry(paper.model).options
    if scale == "tiny":
        kind = "volumes" if data.dimensions == 3 and data.task == "classify" else data.task
        options = {**paper.model_options, **({"width": TINY_WIDTH} if has_width else {})}
        kept = {"size": paper.size} if fixed_size else {}
        return {**TINY, **TINY_SIZE[kind], **kept, "model_options": options}
    small = _CPU[data.task, data.dimensions]
    options = dict(paper.model_options)
    if has_width and network is not None:
        options["width"] = max(1, network.width // network.narrowing)
    sides = _sides(paper.size, data)
    size = sides if fixed_size else _at_most(sides, small.side)
    images = min(len(data["train"]), small.train_images)
    crop = None if small.crop is None else min(small.crop, *size)
    seen = math.prod(size) if crop is None else crop**data.dimensions
    # The same for all models, also for those that pool otherwise.
    pooled = (data.task, data.dimensions) == ("classify", 2) and not _keeps_resolution(data, sides)
    epochs = int(small.pixels / (images * seen / (4 if pooled else 1)))
    epochs = max(1, min(epochs, small.most_epochs, paper.epochs))
    tested = max(1, min(small.test_images, round(small.test_pixels / math.prod(size))))
    return {
        "model_options": options,
        "size": paper.size if size == sides else size,
        "crop": crop,
        "batch_size": small.batch_size,
        "norm_batch": small.norm_batch,
        "epochs": epochs,
        "validate_every": epochs if "val" in data.splits else paper.validate_every,
        "train_images": None if images == len(data["train"]) else images,
        "test_images": None if tested >= len(data["test"]) else tested,
        "channels_last": faster_with_channels_last(paper.model),
        "warmup_epochs": 0.0,
        "precision": "32-true",
        "workers": 0,
        "devices": 1,
        "strategy": "auto",
    }


def faster_with_channels_last(model: str) -> bool:
    return model.startswith(_FASTER_WITH_CHANNELS_LAST)


def _keeps_resolution(data: DataSet, sides: tuple[int, ...]) -> bool:
    """Whether images are small enough not to be pooled after the stem."""
    return (data.task, data.dimensions) == ("classify", 2) and max(sides) <= _SMALL_IMAGE


def _sides(size: int | Sequence[int] | None, data: DataSet) -> tuple[int, ...]:
    if size is None:
        return data["train"].size
    return (size,) * data.dimensions if isinstance(size, int) else tuple(size)


def _at_most(sides: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """In their proportions."""
    factor = min(1.0, longest / max(sides))
    return tuple(max(1, round(factor * side)) for side in sides)
