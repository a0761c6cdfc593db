"""Real runs to draw figures from, trained in seconds, and what can be checked of any figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.text
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ringconv.training import TrainSettings, train

CLASSES = 3


@dataclass(frozen=True)
class Runs:
    """Folders."""

    data: Path
    ring: Path
    plain: Path
    turned: Path
    """As ring, but trained with turned images, for an epoch only and without tests during training."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGCONV_CACHE", str(folder / "cache"))
        torch.set_num_threads(1)
        yield _train_runs(folder)


def _train_runs(folder: Path) -> Runs:
    data = folder / "marks.npz"
    arrays = {}
    for seed, (split, count) in enumerate((("train", 32), ("test", 12))):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = _pictures(count, seed)
    np.savez(data, **arrays)
    ring = {"width": 2, "kernel_size": [5, 5, 3, 3]}

    def run(name: str, model: str, options: dict[str, Any], **more: Any) -> Path:
        settings = TrainSettings(
            model, str(data), options, batch_size=16, rotated_images=6, lr=0.05, accelerator="cpu", **more
        )
        return train(settings, out=folder / "runs", name=name).folder

    return Runs(
        data,
        run("ring", "gmr_resnet18", ring, epochs=2, rotated_every=1),
        run("plain", "resnet18", {"width": 2}, epochs=2, rotated_every=1),
        run("turned", "gmr_resnet18", ring, epochs=1, rotation=30.0),
    )


def _pictures(count: int, seed: int, size: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, H, W) of dots, stripes and noise, and their kind."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    images = generator.integers(0, 60, (count, size, size))
    images[labels == 0, ::4, ::4] += 180
    images[labels == 1, ::3] += 150
    return images.astype(np.uint8), labels.astype(np.int64)


# -- what can be checked of any figure


@dataclass(frozen=True)
class Word:
    """A text as it was drawn, in pixels."""

    text: str
    size: float
    box: Any
    upright: bool


def _words_of(figure: Figure) -> list[Word]:
    """All texts that a reader sees, where they stand."""
    canvas = FigureCanvasAgg(figure)
    found: list[Word] = []
    with _listening(found):
        canvas.draw()
    return found


@contextmanager
def _listening(found: list[Word]) -> Iterator[None]:
    draw = matplotlib.text.Text.draw

    def listened(self: Any, renderer: Any, *args: Any, **kwargs: Any) -> None:
        draw(self, renderer, *args, **kwargs)
        if self.get_visible() and self.get_text().strip():
            box = self.get_window_extent(renderer)
            found.append(Word(self.get_text(), self.get_fontsize(), box, self.get_rotation() % 90 == 0))

    matplotlib.text.Text.draw = listened  # type: ignore[method-assign]
    try:
        yield
    finally:
        matplotlib.text.Text.draw = draw  # type: ignore[method-assign]


def _collisions(words: list[Word]) -> list[tuple[str, str]]:
    """Texts that lie on each other by more than a pixel or two."""
    upright = [word for word in words if word.upright]
    return [
        (one.text, other.text)
        for number, one in enumerate(upright)
        for other in upright[number + 1 :]
        if one.box.padded(-2).overlaps(other.box.padded(-2))
        and not (one.text == other.text and np.allclose(one.box.extents, other.box.extents))
    ]


def _outside(figure: Figure, words: list[Word]) -> list[str]:
    """Texts that are cut off at the figure's edge."""
    edge = figure.bbox.padded(1)
    return [
        word.text
        for word in words
        if not (edge.x0 <= word.box.x0 and word.box.x1 <= edge.x1 and edge.y0 <= word.box.y0 and word.box.y1 <= edge.y1)
    ]


@pytest.fixture
def drawn() -> Callable[[Figure], list[str]]:
    """Draws a figure, checks that all of its text can be read, and returns the text."""

    def check(figure: Figure) -> list[str]:
        words = _words_of(figure)
        assert _collisions(words) == []
        assert _outside(figure, words) == []
        assert min(word.size for word in words) >= 6
        return [word.text for word in words]

    return check
