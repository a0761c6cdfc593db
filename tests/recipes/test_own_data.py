"""Settings for data that no recipe is about."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringconv.data import DataSet, Split
from ringconv.models import create_model
from ringconv.models.registry import list_models, model_entry
from ringconv.recipes.own_data import default_models, open_own_data, settings_for_data
from ringconv.recipes.scales import network_like


def data(
    name: str = "mine", size: tuple[int, ...] = (28, 28), train: int = 60, test: int = 20, masks: bool = False
) -> DataSet:
    def split(count: int) -> Split:
        images = np.broadcast_to(np.uint8(7), (count, *size))
        targets = np.broadcast_to(np.uint8(0), (count, *size)) if masks else np.arange(count) % 2
        return Split(images, targets, len(size))

    splits = {"train": split(train), "test": split(test)}
    return DataSet(name, "segment" if masks else "classify", ("a", "b"), splits, (0.5,), (0.5,))


@pytest.mark.parametrize(
    ("size", "masks", "expected"),
    [
        ((28, 28), False, ("resnet18", "gmr_resnet18")),
        ((8, 8, 8), False, ("r3d_9", "gmr_r3d_9")),
        ((16, 20), True, ("unet", "gmr_unet")),
        ((8, 8, 8), True, ("unet", "gmr_unet")),
    ],
)
def test_defaults_are_a_plain_network_and_the_same_of_rings(
    size: tuple[int, ...], masks: bool, expected: tuple[str, ...]
) -> None:
    plain, ring = default_models(data(size=size, masks=masks))
    assert (plain, ring) == expected
    assert model_entry(plain).family == model_entry(ring).family
    assert (model_entry(plain).symmetry, model_entry(ring).symmetry) == ("none", "rotations and reflections")


def test_a_set_of_the_paper_is_known_by_its_name_and_kind() -> None:
    paper = settings_for_data("x", data("modelnet10_vox32", (32, 32, 32)), "gmr_r3d_9", "paper").settings
    assert (paper.epochs, paper.batch_size, paper.lr) == (100, 8, 2e-2)
    # Of this name the paper has pictures: volumes are treated as volumes.
    other = settings_for_data("x", data("cifar10", (32, 32, 32)), "gmr_r3d_9", "paper").settings
    assert (other.epochs, other.batch_size, other.size) == (100, 8, None)
    assert settings_for_data("x", data("pcam_b", (96, 96)), "resnet18", "paper").settings.batch_size == 64


def test_figures_on_an_even_ground_turn_on_that_ground(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, border, expected in (("digits", 0, "edge"), ("photographs", None, "fill"), ("nwpu10", 0, "fill")):
        images = random.integers(0, 256, (40, 16, 16), np.uint8)
        if border is not None:
            images[:, [0, -1]] = images[:, :, [0, -1]] = border
        arrays = {f"{split}_images": images for split in ("train", "test")}
        labels = {f"{split}_labels": np.arange(40)[:, None] % 2 for split in ("train", "test")}
        np.savez(tmp_path / f"{name}.npz", **arrays, **labels)
        opened = open_own_data(str(tmp_path / f"{name}.npz"))
        settings = settings_for_data(opened.where, opened.data, "gmr_resnet18").settings
        assert settings.beyond_frame == expected
        assert any("even border" in note for note in opened.notes) == (expected == "edge")
    masks = settings_for_data("x", data(size=(16, 20), masks=True), "gmr_unet").settings
    assert masks.beyond_frame == "fill"


def test_small_images_are_not_pooled_after_the_stem_and_stems_are_equal() -> None:
    for side, options in ((64, {"stem_pool": False}), (65, {})):
        for model, form in (("resnet18", {}), ("gmr_resnet18", {"preset": "paper"})):
            found = settings_for_data("x", data(size=(side, 20)), model, "paper")
            assert found.settings.model_options == {**form, **options}
            assert found.changes == []


def test_the_form_of_the_rings_is_the_papers_at_its_scale_only_and_said() -> None:
    found = settings_for_data("x", data(size=(32, 32)), "gmr_resnet18", "cpu")
    assert "preset" not in found.settings.model_options
    assert "preset: the default form of the rings instead of paper" in found.changes
    asked = settings_for_data("x", data(size=(32, 32)), "gmr_resnet18", "cpu", model_options={"preset": "paper"})
    assert asked.settings.model_options == {"preset": "paper", "width": 16, "stem_pool": False}
    assert not any("preset" in change for change in asked.changes)


def test_ring_networks_of_images_have_small_kernels_and_harmonics_below_the_papers_scale() -> None:
    for model, of in (("gmr_resnet50", data()), ("gmr_unet", data(size=(40, 40), masks=True))):
        found = settings_for_data("x", of, model, "cpu")
        options = found.settings.model_options
        assert (options["kernel_size"], options["harmonics"]) == (3, 1)
        assert "harmonics: 1 instead of none" in found.changes
        create_model(model, **options)
        paper = settings_for_data("x", of, model, "paper").settings.model_options
        assert not {"kernel_size", "harmonics"} & set(paper)
    larger = settings_for_data("x", data(), "gmr_resnet18", "cpu", model_options={"kernel_size": 5})
    assert larger.settings.model_options["kernel_size"] == 5
    volumes = settings_for_data("x", data(size=(8, 8, 8)), "gmr_r3d_9", "cpu").settings.model_options
    assert not {"kernel_size", "harmonics"} & set(volumes)


def test_networks_are_given_options_that_they_take() -> None:
    for model in list_models():
        entry = model_entry(model)
        for dimensions in {2, 3} & set(entry.dimensions):  # no data has one
            masks = entry.task == "segmentation"
            of = data(size=(16,) * dimensions, masks=masks)
            assert set(settings_for_data("x", of, model, "cpu").settings.model_options) <= set(entry.options), model


def test_u_nets_of_images_have_equal_norms() -> None:
    for scale, norm in (("cpu", "batch"), ("tiny", "batch"), ("paper", None)):
        for model in ("unet", "gmr_unet", "symm_unet"):
            found = settings_for_data("x", data(size=(40, 40), masks=True), model, scale).settings
            assert found.model_options.get("norm") == norm
    volumes = settings_for_data("x", data(size=(16, 16, 16), masks=True), "gmr_unet", "cpu").settings
    assert "norm" not in volumes.model_options


def test_the_cpu_scale_bounds_the_work_whatever_the_data() -> None:
    work = []
    for size, train in (
        ((28, 28), 60),
        ((32, 32), 50_000),
        ((64, 64), 1_000),
        ((500, 400), 3_000),
        ((128, 128), 10**6),
    ):
        s = settings_for_data("x", data(size=size, train=train, test=10**5), "gmr_resnet18", "cpu").settings
        sides = s.size or size
        assert isinstance(sides, tuple)
        assert max(sides) <= 128
        assert s.train_images is None or s.train_images < train
        assert math.prod(sides) * (s.test_images or 10**5) <= 1.01 * 1_000 * 64**2
        pixels = math.prod(sides) / (1 if max(size) <= 64 else 4)
        work.append(s.epochs * min(train, s.train_images or train) * pixels)
        assert s.epochs <= 60
        assert s.model_options["width"] == 16
    assert max(work) <= 1.2e8
    assert max(work) > 0.9e8, "the work that is allowed is used"


def test_images_keep_their_proportions() -> None:
    assert settings_for_data("x", data(size=(500, 400)), "resnet18", "cpu").settings.size == (128, 102)
    assert settings_for_data("x", data(size=(256, 320), masks=True), "unet", "cpu").settings.size is None


def test_all_models_get_the_same_training() -> None:
    """But for what each asks for itself."""
    own = {
        model: settings_for_data("x", data(size=(70, 70)), model, "cpu").settings
        for model in list_models()
        if model_entry(model).task == "classification" and 2 in model_entry(model).dimensions
    }
    assert len(own) > 15
    reference = own.pop("resnet18")
    for model, settings in own.items():
        asked = {} if model != "harmonic_resnet18" else {"optimiser": "sgd", "lr": 2e-2}
        layout = {"channels_last": reference.channels_last}  # of memory, which changes the time only
        same = replace(settings, model="resnet18", model_options=reference.model_options, **asked, **layout)
        assert same == reference, model
        network = network_like(model)
        assert network is not None
        assert settings.model_options["width"] == max(1, network.width // network.narrowing)


def test_what_the_scale_changes_is_told() -> None:
    found = settings_for_data("x", data("nwpu10", (64, 64), 1_000, 2_896), "gmr_resnet18", "cpu", seed=3)
    assert "width: 16 instead of 64" in found.changes
    assert "test_images: 1,000 instead of all" in found.changes
    assert "batch_size: 32 instead of 128" in found.changes
    assert any(change.startswith("epochs: ") and change.endswith("instead of 250") for change in found.changes)
    assert not any("seed" in change for change in found.changes)
    assert settings_for_data("x", data(), "gmr_resnet18", "paper").changes == []


def test_what_was_asked_for_wins() -> None:
    own = settings_for_data(
        "x", data(size=(300, 300)), "gmr_resnet18", "cpu",
        model_options={"sampling": "area"}, epochs=3, width=5, size=200, seed=9,
    ).settings  # fmt: skip
    assert (own.epochs, own.size, own.seed) == (3, (200, 200), 9) or (own.epochs, own.size, own.seed) == (3, 200, 9)
    assert own.model_options == {"width": 5, "sampling": "area", "kernel_size": 3, "harmonics": 1}
    tiny = settings_for_data("x", data(), "resnet18", "tiny", size=20).settings
    assert (tiny.size, tiny.epochs, tiny.model_options["width"]) == (20, 1, 4)


def test_crops_fit_small_images() -> None:
    own = settings_for_data("x", data(size=(40, 90), masks=True), "gmr_unet", "cpu").settings
    assert own.crop == 40
    assert settings_for_data("x", data(size=(40, 90), masks=True), "gmr_unet", "paper").settings.crop == 40


def test_unknown_scales_and_models() -> None:
    with pytest.raises(ValueError, match="scale must be one of 'paper', 'cpu', 'tiny', got 'huge'"):
        settings_for_data("x", data(), "resnet18", "huge")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no model 'resnet19'; did you mean"):
        settings_for_data("x", data(), "resnet19")


def test_pictures_of_many_sizes_are_brought_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    for label, side in (("cats", 20), ("dogs", 31)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(5):
            image.new("RGB", (side + number, 25), "red").save(tmp_path / "photos" / label / f"{number}.png")
    opened = open_own_data(str(tmp_path / "photos"))
    assert opened.data["train"].size == (64, 64)
    assert opened.size == 64
    note = opened.notes[0]
    assert note.startswith("Brought to 64 x 64 pixels")
    assert open_own_data(str(tmp_path / "photos"), size=32).data["train"].size == (32, 32)
    with pytest.raises(ValueError, match="give a size"):
        open_own_data(str(tmp_path / "photos"), "paper")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        open_own_data(str(tmp_path / "nothing"))
