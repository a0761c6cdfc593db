import functools
import importlib
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from ringconv._torchvision import import_torchvision
from ringconv.data import DataSet, Split
from ringconv.training import TrainSettings, augment
from ringconv.training.augment import COLUMNS, Augment

PLAIN = Augment((0.0,) * 3, (1.0,) * 3)


@functools.cache
def images(batch: int = 6, channels: int = 3, size: tuple[int, ...] = (10, 14)) -> torch.Tensor:
    return torch.rand(batch, channels, *size, generator=torch.Generator().manual_seed(3))


def uniform(batch: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.rand(batch, COLUMNS, generator=torch.Generator().manual_seed(seed))


def torchvision_functional() -> ModuleType:
    import_torchvision()
    return importlib.import_module("torchvision.transforms.v2.functional")


class TestColours:
    """Against torchvision, one image at a time."""

    FACTORS = torch.tensor([0.6, 0.8, 1.0, 1.1, 1.3, 1.4])

    @pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
    def test_adjustments(self, name: str) -> None:
        functional = torchvision_functional()
        expected = [
            getattr(functional, f"adjust_{name}")(image, float(factor))
            for image, factor in zip(images(), self.FACTORS, strict=True)
        ]
        changed = getattr(augment, f"adjust_{name}")(images(), self.FACTORS)
        torch.testing.assert_close(changed, torch.stack(expected))

    def test_hue(self) -> None:
        functional = torchvision_functional()
        turns = torch.tensor([-0.5, -0.1, 0.0, 0.03, 0.1, 0.5])
        pixels = images().clone()
        pixels[0, :, 0] = 0.5  # grey has no hue
        pixels[1, 0] = pixels[1, 1]  # nor is the largest channel always one
        expected = [functional.adjust_hue(image, float(turn)) for image, turn in zip(pixels, turns, strict=True)]
        torch.testing.assert_close(augment.adjust_hue(pixels, turns), torch.stack(expected), rtol=1e-4, atol=1e-5)

    def test_blur(self) -> None:
        functional = torchvision_functional()
        chosen, sigma = torch.tensor([0.1, 0.9, 0.0, 0.5, 0.5, 0.19]), torch.tensor([0.0, 0.5, 1.0, 0.2, 0.3, 0.4])
        pixels = images(size=(40, 48))
        blurred = augment.blur_some(pixels, iter([chosen, sigma]))
        for row in range(6):
            expected = pixels[row]
            if chosen[row] < 0.2:
                expected = functional.gaussian_blur(expected, [5, 5], [float(0.1 + 1.9 * sigma[row])] * 2)
            torch.testing.assert_close(blurred[row], expected)

    def test_grey_is_for_three_channels(self) -> None:
        for channels in (1, 3, 4):
            changed = augment.change_colours(images(channels=channels), iter(uniform().unbind(1)))
            assert changed.shape == images(channels=channels).shape
            assert not torch.equal(changed, images(channels=channels))
        grey = iter([*torch.ones(5, 6), torch.zeros(6)])
        turned = augment.change_colours(images(), grey)
        assert torch.equal(turned[:, 0], turned[:, 1])

    def test_small_images_are_not_blurred_beyond_their_border(self) -> None:
        assert augment.blur_some(images(size=(1, 1)), iter(torch.zeros(2, 6))).shape == (6, 3, 1, 1)


class TestGeometry:
    def test_nothing_asked_is_normalised_only(self) -> None:
        labels = torch.arange(6)
        seen, targets = Augment((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))(images(), labels, uniform())
        expected = (images() - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.4]).view(
            3, 1, 1
        )
        torch.testing.assert_close(seen, expected)
        assert targets is labels

    @pytest.mark.parametrize("size", [(12, 12), (11, 11)])
    def test_quarter_turns_are_exact(self, size: tuple[int, int]) -> None:
        pixels = images(4, size=size)
        theta = torch.zeros(4, 2, 3)
        theta[:, :, :2] = augment.turn_2d(torch.tensor([0.0, 90.0, 180.0, 270.0]), pixels)
        turned = augment.warp(pixels, theta)
        for quarters in range(4):
            torch.testing.assert_close(
                turned[quarters], torch.rot90(pixels[quarters], quarters, (-2, -1)), rtol=0, atol=1e-5
            )

    def test_what_lies_beyond_the_frame(self) -> None:
        even = torch.full((1, 1, 9, 9), 3.0)
        theta = torch.zeros(1, 2, 3)
        theta[:, :, :2] = augment.turn_2d(torch.tensor([45.0]), even)
        assert augment.warp(even, theta)[0, 0, 0, 0] == 0
        for beyond in ("edge", "reflect"):
            torch.testing.assert_close(augment.warp(even, theta, beyond=beyond), even)
        masks = torch.ones(1, 1, 9, 9, dtype=torch.int64)
        assert torch.equal(augment.warp(masks, theta, "nearest", "edge"), masks)

    def test_turns_keep_proportions(self) -> None:
        """A disc stays a disc in a frame that is not square."""
        y, x = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(41.0) - 20, indexing="ij")
        disc = torch.exp(-(x**2 + y**2) / 18).expand(3, 1, 21, 41)
        theta = torch.zeros(3, 2, 3)
        theta[:, :, :2] = augment.turn_2d(torch.tensor([17.0, 45.0, 90.0]), disc)
        # Interpolating a Gaussian of width 3 linearly is wrong by at most curvature / 8 per axis.
        torch.testing.assert_close(augment.warp(disc, theta), disc, rtol=0, atol=2 / (8 * 9))

    @pytest.mark.parametrize(("axis", "plane"), [(0, (-3, -2)), (1, (-3, -1)), (2, (-2, -1))])
    def test_volumes_turn_about_one_axis(self, axis: int, plane: tuple[int, int]) -> None:
        volume = images(1, 1, (7, 7, 7))
        quarter = augment.random_turns_3d(volume, 90.0, iter([torch.ones(1), torch.full((1,), (axis + 0.5) / 3)]))
        turned = augment.warp(volume, quarter)
        either = [torch.rot90(volume, quarters, plane) for quarters in (1, 3)]
        assert any(torch.allclose(turned, expected, atol=1e-5) for expected in either)

    def test_volumes_turn_in_space(self) -> None:
        """A ball, with slices twice as far apart as pixels, is round after any turn."""
        z, y, x = torch.meshgrid(2 * (torch.arange(16) - 7.5), *[torch.arange(32) - 15.5] * 2, indexing="ij")
        ball = torch.exp(-(z**2 + y**2 + x**2) / 50).expand(6, 1, 16, 32, 32)
        labels = torch.zeros(6)
        in_space, _ = Augment((0.0,), (1.0,), rotation=90.0, spacing=(2.0, 1.0, 1.0))(ball, labels, uniform())
        in_voxels, _ = Augment((0.0,), (1.0,), rotation=90.0)(ball, labels, uniform())
        assert float((in_space - ball).abs().max()) < 0.05
        assert float((in_voxels - ball).abs().max()) > 0.1

    @pytest.mark.parametrize(
        "chosen",
        [
            Augment((0.0,), (1.0,), rotation=180.0),
            Augment((0.0,), (1.0,), reflection=True),
            Augment((0.0,), (1.0,), crop=9),
            Augment((0.0,), (1.0,), crop=16, rotation=30.0, reflection=True),
        ],
    )
    def test_masks_go_along(self, chosen: Augment) -> None:
        """The image of a mask is the mask: smooth it, and compare where it is clear."""
        masks = (
            (images(6, 1, (24, 24))[:, 0] > 0.5)
            .long()
            .repeat_interleave(4, 1)[:, :24]
            .repeat_interleave(4, 2)[:, :, :24]
        )
        pixels, moved = chosen(masks.unsqueeze(1).float(), masks, uniform())
        clear = (pixels[:, 0] < 0.01) | (pixels[:, 0] > 0.99)
        assert moved.dtype == torch.int64
        assert clear.float().mean() > 0.3
        assert torch.equal(pixels[:, 0].round().long()[clear], moved[clear])
        assert not torch.equal(moved, masks[:, : moved.shape[1], : moved.shape[2]])

    def test_each_image_by_its_own_numbers(self) -> None:
        """So that parts of a batch see what the whole would."""
        chosen = Augment((0.4,) * 3, (0.2,) * 3, 8, True, 0.2, 30.0, True)
        whole, _ = chosen(images(), torch.arange(6), uniform())
        parts = [chosen(images()[part], torch.arange(6)[part], uniform()[part])[0] for part in (slice(2), slice(2, 6))]
        torch.testing.assert_close(torch.cat(parts), whole)

    def test_resized_crops_stay_inside(self) -> None:
        size, middle = augment.random_crop_box(iter(torch.rand(4, 10_000)))
        assert bool((middle.abs() + size <= 1 + 1e-6).all())
        area = size.prod(1)
        assert 0.4 < float(area.min()) < 0.52
        assert float(area.max()) > 0.98

    def test_shifts_fill_with_zero(self) -> None:
        chosen = Augment((0.0,) * 3, (1.0,) * 3, release=True, translation=0.9)
        seen, _ = chosen(torch.ones(50, 3, 16, 16), torch.arange(50), uniform(50))
        assert bool((seen == 0).any())


class TestScale:
    SETTINGS = TrainSettings("gmr_resnet18", "own", augmentation="release")

    @staticmethod
    def data(pixels: np.ndarray, scale: float = 1.0) -> DataSet:
        return DataSet("own", "classify", ("a", "b"), {"train": Split(pixels, np.arange(len(pixels)) % 2, 2, scale)})

    @pytest.mark.parametrize(("factor", "shift"), [(255.0, 0.0), (1.0, -0.5), (1.2, 0.0)])
    def test_colours_are_not_changed_on_another_scale(self, factor: float, shift: float) -> None:
        pixels = factor * images()[:, 0].numpy() + shift
        with pytest.raises(ValueError, match=r"scale from 0 to 1, and the pixels of own are from .* 'none'"):
            Augment.of(self.SETTINGS, self.data(pixels))
        assert not Augment.of(replace(self.SETTINGS, augmentation="none"), self.data(pixels)).release

    def test_fractions_and_bytes_are(self) -> None:
        pixels = images()[:, 0].numpy()
        for data in (self.data(pixels), self.data((255 * pixels).astype(np.uint8), 255.0)):
            assert Augment.of(self.SETTINGS, data).release
