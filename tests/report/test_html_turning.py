"""Which images change the answer when they turn, and frames of them turning."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from ringconv.data import DataSet, Split
from ringconv.report.html import page as page_module
from ringconv.report.html import sections, write_entries
from ringconv.report.html.entries import DataShown, Entries, Entry
from ringconv.report.html.images import fit_square, images_of_data, pictures
from ringconv.report.html.turning import Turned, turn_images


class Stripes(nn.Module):
    """Says 1 where an image changes more from column to column, or not at all; 0 where it does from row to row."""

    def forward(self, x: Tensor) -> Tensor:
        along, across = (x.diff(dim=axis).abs().flatten(1).mean(1) for axis in (-1, -2))
        return torch.stack([across, along + 0.05], 1)


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([[0.0, 1.0]]).expand(len(x), -1)


class Bright(nn.Module):
    """Finds what is bright, in the upper half only."""

    def __init__(self, everywhere: bool) -> None:
        super().__init__()
        self.everywhere = everywhere

    def forward(self, x: Tensor) -> Tensor:
        logits = x[:, :1].clone()
        if not self.everywhere:
            logits[:, :, x.shape[2] // 2 :] = -1
        return logits


def stripes(count: int = 6, size: tuple[int, int] = (16, 16)) -> DataSet:
    """Columns, flat for the last one: whatever way it turns, it stays what it is."""
    images = np.full((count, *size), 128, np.uint8)
    images[:-1] = 40
    images[:-1, :, ::4] = 220
    images[:-1, :, 1::4] = 220
    split = Split(images, np.ones(count, np.int64))
    return DataSet("stripes", "classify", ("rows", "columns"), {"train": split, "test": split}, (0.5,), (0.25,))


def discs(size: tuple[int, int] = (24, 32)) -> DataSet:
    y, x = np.mgrid[: size[0], : size[1]]
    masks = np.stack([(y - 6) ** 2 + (x - 15.5) ** 2 < 16, (y - 11.5) ** 2 + (x - 15.5) ** 2 < 16])
    split = Split((200 * masks + 30).astype(np.uint8), masks.astype(np.uint8))
    return DataSet("discs", "segment", ("background", "disc"), {"train": split, "test": split}, (0.4,), (0.25,))


def frames(style: str, count: int) -> np.ndarray:
    """(count, side, side, 3)"""
    (address,) = re.findall(r"url\(([^)]*)\)", style) or [style]
    content = base64.b64decode(address.partition("base64,")[2])
    strip = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(float)
    return np.stack(np.split(strip, count, axis=1))


def test_images_that_change_most_come_first() -> None:
    turned = turn_images({"looks": Stripes(), "never": Constant()}, images_of_data(stripes(), 100), 4)
    assert turned.angles == [float(angle) for angle in range(0, 360, 15)]
    assert turned.tested == 6
    assert turned.changed["never"] == 0
    assert turned.changed["looks"] == pytest.approx(100 * 5 / 6)
    assert len(turned.images) == 4
    for image in turned.images:
        assert image.truth == "columns"
        looks, never = image.answers
        assert looks.texts[0] == looks.texts[12] == "columns"
        assert looks.texts[6] == looks.texts[18] == "rows"
        assert looks.good[6] == 0
        assert looks.changes == sum(text == "rows" for text in looks.texts)
        assert never.changes == 0


def test_nothing_to_show_where_nothing_changes() -> None:
    turned = turn_images({"never": Constant()}, images_of_data(stripes(), 100), 4)
    assert turned.images == []
    assert turned.changed == {"never": 0}


def test_frames_are_the_image_turned() -> None:
    turned = turn_images({"looks": Stripes()}, images_of_data(stripes(), 100), 1)
    film = frames(turned.images[0].film or "", 24)
    assert film.shape == (24, 16, 16, 3)
    # Compressed: a quarter turn is nearly a quarter turn, and not at all the image itself.
    assert np.abs(np.rot90(film[0]) - film[6]).mean() < 8
    assert np.abs(film[0] - film[6]).mean() > 50


def test_masks_turn_along_and_frames_that_are_not_square_fit() -> None:
    networks = {"half": Bright(False), "all": Bright(True)}
    turned = turn_images(networks, images_of_data(discs(), 100), 2)
    assert turned.angles == [float(angle) for angle in range(0, 360, 30)]
    assert turned.changed["half"] > 40
    assert turned.changed["all"] < 10, "but for interpolation"
    first = turned.images[0]
    assert first.truth == "test image 1", "the disc that leaves the upper half"
    half, everything = first.answers
    assert half.good[0] == 1
    assert half.good[6] == 0
    assert half.texts[0] == "Dice 100.0"
    for answers in (half, everything):
        assert frames(answers.film or "", 12).shape == (12, 32, 32, 3)


def test_confusing_two_classes_is_wrong() -> None:
    """The Dice of a report is that of the test: of each class, not of all that is not background."""
    masks = np.zeros((1, 8, 8), np.uint8)
    masks[0, 2:6, 2:6] = 2
    split = Split(100 * masks, masks)
    data = DataSet("squares", "segment", ("background", "a", "b"), {"train": split, "test": split}, (0.0,), (1.0,))

    class SaysA(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found = x[:, 0] > 0.1
            return torch.stack([~found, found, torch.zeros_like(found)], 1).float()

    turned = turn_images({"a": SaysA()}, images_of_data(data, 1), 1)
    assert turned.images[0].answers[0].good[0] == 0


def test_large_and_odd_images_become_small_squares() -> None:
    assert fit_square(torch.rand(2, 3, 300, 100), 96).shape == (2, 3, 96, 96)
    assert fit_square(torch.rand(2, 3, 5, 9), 96).shape == (2, 3, 9, 9)
    volume = torch.zeros(1, 1, 5, 4, 4)
    volume[:, :, 2] = 1
    (slice_,) = pictures(volume, 96)
    assert slice_.shape == (4, 4, 3)
    assert slice_.min() == 255


def test_bands_are_shown_from_their_darkest_to_their_brightest() -> None:
    values = np.linspace(-3, 40, 4 * 8 * 8 * 5, dtype=np.float32).reshape(4, 8, 8, 5)
    split = Split(values, np.arange(4) % 2, 2, 1.0)
    images = images_of_data(DataSet("bands", "classify", ("a", "b"), {"train": split, "test": split}), 4)
    seen = images.seen(images.turned(0))
    assert seen.shape == (4, 1, 8, 8)
    assert seen.flatten(1).amin(1).tolist() == pytest.approx([0] * 4, abs=1e-5)
    assert seen.flatten(1).amax(1).tolist() == pytest.approx([1] * 4, abs=1e-5)


def entry(network: nn.Module, label: str, data: DataSet) -> Entry:
    per_turn = {str(angle): 90.0 for angle in range(0, 360, 10)}
    scores = {"upright": 90.0, "rotated_mean": 90.0, "rotated_std": None, "per_turn": per_turn, "per_flip": {}}
    metric = "accuracy" if data.task == "classify" else "dice"
    shown = DataShown(data.name, data.task, 6, data["test"].size)
    return Entry(
        label, label, "model", shown, {metric: scores}, 10, {}, "not", {}, [], {}, ["ringconv x"], data.classes,
        lambda: network, lambda count: images_of_data(data, count),
    )  # fmt: skip


def test_the_page_shows_what_each_network_says(tmp_path: Path) -> None:
    data = stripes()
    hostile = "<img src=x onerror=alert(1)>"
    shown = [entry(Stripes(), hostile, data), entry(Constant(), "never", data)]
    content = write_entries(Entries(shown), tmp_path / "report.html", images=3).read_text("utf-8")
    assert content.count('class="film sharp"') == 3
    assert content.count('class="row"') == 6
    assert content.count("<i ") == 6 * 24
    assert "<img" not in content
    assert "whose answer changes at any of 24 angles: &lt;img src=x onerror=alert(1)&gt; 83.3, never 0.0" in content
    without = write_entries(Entries(shown), tmp_path / "report.html", images=0).read_text("utf-8")
    assert "film" not in without.partition("</style>")[2].partition("<script>")[0]


def test_a_network_that_does_not_fit_the_data_is_said(tmp_path: Path) -> None:
    wrong = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten())
    content = write_entries(Entries([entry(wrong, "wrong", stripes())]), tmp_path / "r.html").read_text("utf-8")
    assert "could not be shown to the networks" in content


def test_pictures_are_shared_among_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def count(networks: object, images: object, number: int, progress: object) -> Turned:
        asked.append(number)
        return Turned([0.0, 15.0], 1, {}, [])

    monkeypatch.setattr(sections, "turn_images", count)
    shown = [entry(Stripes(), "a", stripes()), entry(Bright(True), "b", discs())]
    page_module.page(Entries(shown), images=6)
    assert asked == [3, 3]
