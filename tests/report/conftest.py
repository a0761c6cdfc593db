"""Small runs of every kind, trained once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringconv.recipes.own_data import default_models, open_own_data, settings_for_data
from ringconv.training import finish
from ringconv.training.compare_runs import compare_models

HOSTILE = "<script>alert(1)</script>"
"""A name of a class that must never become markup."""


def _arrays(size: tuple[int, ...], masks: bool, classes: list[str]) -> dict[str, Any]:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {"class_names": np.array(classes)}
    for split, count in (("train", 24), ("test", 9)):
        labels = np.arange(count) % len(classes)
        images = random.integers(0, 100, (count, *size))
        images[labels == 0, ..., ::2] += 120  # stripes along one axis, which a turn takes to the other
        arrays[f"{split}_images"] = images.astype(np.uint8)
        if masks:
            arrays[f"{split}_masks"] = (images > 150).astype(np.uint8)
        else:
            arrays[f"{split}_labels"] = labels
    return arrays


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a comparison of two small networks: "pictures", "masks" or "volumes"."""
    pytest.importorskip("lightning_fabric")
    base = tmp_path_factory.mktemp("small_runs")
    kinds = {
        "pictures": ((16, 16), False, ["ship", HOSTILE, "harbour"]),
        "masks": ((18, 22), True, ["background", "nucleus"]),
        "volumes": ((8, 8, 8), False, ["chair", "desk"]),
    }
    done: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in done:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RINGCONV_CACHE", str(base / "cache"))
                patch.setattr(finish, "save_picture", lambda folder, path, evaluation: None)  # takes most of the time
                path = base / f"{kind}.npz"
                np.savez(path, **_arrays(*kinds[kind]))
                opened = open_own_data(str(path), "tiny")
                size = min(opened.data["train"].size)
                asked = {
                    model: settings_for_data(str(path), opened.data, model, "tiny", width=2, size=size).settings
                    for model in default_models(opened.data)
                }
                done[kind] = compare_models(asked, out=base / kind).folder
        return done[kind]

    return make
