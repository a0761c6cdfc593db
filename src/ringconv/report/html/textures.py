"""The comparison on textures, as the report shows it."""

from __future__ import annotations

from typing import Any

from torch import nn

from ringconv.report.html.entries import DataShown, Entries, Entry, as_typed
from ringconv.report.html.images import TestImages, images_of_textures
from ringconv.training.compare import Comparison, ModelResult
from ringconv.training.runs import environment

_MOST_PATCHES = 105


def entries_of_comparison(comparison: Comparison) -> Entries:
    """Both networks; the environment and the command are those of this process."""
    settings = comparison.settings
    first = images_of_textures(settings.seed, 1)
    side = first.turned(0).shape[-1]
    classes = first.classes
    data = DataShown("textures", "classify", settings.test_patches * len(classes), (side, side), "by cubic splines")
    found = environment()

    def entry(result: ModelResult) -> Entry:
        network = comparison.networks.get(result.kind)

        def trained() -> nn.Module:
            if network is None:
                raise ValueError("its weights were not kept")
            return network

        def images(count: int) -> TestImages:
            return images_of_textures(settings.seed, min(count, _MOST_PATCHES))

        patches = settings.train_patches * len(classes)
        return Entry(
            label=f"{result.kind} network",
            name=result.kind,
            model=result.kind,
            data=data,
            scores={"accuracy": _scores(result)},
            parameters=result.parameters,
            costs={
                "train_seconds": result.train_seconds,
                "images_per_second": settings.epochs * patches / max(result.train_seconds, 1e-9),
                "peak_memory_bytes": result.peak_bytes,
            },
            training=f"epochs: {settings.epochs}, on upright patches, seed {settings.seed}",
            settings={name: getattr(settings, name) for name in settings.__dataclass_fields__},
            about_data=[
                f"{patches:,} patches of photographs that come with scikit-image to train on, cut from other parts than"
                " those to test on"
            ],
            environment=found,
            commands=[as_typed(found["command"]), f"ringconv compare --seed {settings.seed}"],
            classes=classes,
            network=trained,
            images=images,
        )

    return Entries([entry(result) for result in comparison.models])


def _scores(result: ModelResult) -> dict[str, Any]:
    return {
        "upright": result.upright,
        "rotated_mean": result.rotated,
        "rotated_std": result.std,
        "reflected_mean": result.mirrored,
        "per_turn": {str(angle): accuracy for angle, accuracy in result.per_angle.items()},
        "per_flip": {f"flip {mirror}": accuracy for mirror, accuracy in result.per_mirror.items()},
    }
