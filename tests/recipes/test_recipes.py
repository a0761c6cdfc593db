import functools
import json
import re
from pathlib import Path

import pytest
import torch

from ringconv._extras import MissingExtraError
from ringconv.models import create_model, model_entry
from ringconv.recipes import (
    DRAWN_FROM,
    SCALES,
    Recipe,
    all_recipes,
    differences,
    find_recipe,
    get_recipe,
    list_recipes,
    resolve,
)
from ringconv.recipes.protocols import PROTOCOLS
from ringconv.training import TrainSettings

RECIPES = all_recipes()
BUILT = {name: recipe.settings for name, recipe in RECIPES.items() if recipe.settings is not None}
MAIN = "tab:main/nwpu10/gmr_resnet18"

COUNTS_THAT_DIFFER = {
    "tab:main/cifar10/harmonic_resnet18": 15_025_034,  # the public code that the paper adapts has other layers
    "tab:arch/circular_channel": 7_806_474,
    "tab:ablation1/rings_7_7_5_5": 6_437_933,  # "5.4M": perhaps a misprint of 6.4M
    "tab:ablation1/kernels_7_7_5_5": 3_922_949,
}
"""Our counts where the paper prints another one."""


@functools.cache
def count(model: str, options: str, channels: int, classes: int, device: str) -> int:
    """Parameters; on the device meta, none is allocated."""
    try:
        with torch.device(device):
            network = create_model(model, in_chans=channels, num_classes=classes, **json.loads(options))
    except MissingExtraError as error:
        pytest.skip(str(error))
    return sum(parameter.numel() for parameter in network.parameters())


def count_of(settings: TrainSettings, classes: int = 10, device: str = "meta") -> int:
    # The scale tiny takes other data, which has the channels of the paper's kind.
    channels = PROTOCOLS[settings.data].channels if settings.data in PROTOCOLS else 3
    return count(settings.model, json.dumps(settings.model_options), channels, classes, device)


def test_there_is_one_for_every_row_and_point() -> None:
    labels = [name.partition("/")[0] for name in RECIPES]
    assert {label: labels.count(label) for label in dict.fromkeys(labels)} == {
        "tab:main": 9 * 5,
        "tab:imagenet": 4,
        "tab:arch": 8,
        "tab:ablation1": 12,
        "tab:aug": 4 * 5,
        "tab:modelnet": 4 * 2,
        "tab:seg": 4,
        "tab:speed": 6 * 5,
        "tab:rot_std": 8 * 5,
        "tab:fuhl": 4,
        "tab:other_arch": 8 * 5,
        "fig:param": 4 + 1 + 3 + 3 + 3 + 4 + 3 + 5,
        "fig:partial": 9 * 6,
        "fig:cifar_train": 4,
    }


def test_names_can_be_typed() -> None:
    for name, recipe in RECIPES.items():
        assert re.fullmatch(r"(tab|fig):[a-z0-9_]+(/[a-z0-9_]+){1,2}", name)
        assert recipe.name == name


@pytest.mark.parametrize("scale", SCALES)
def test_every_recipe_resolves_to_settings_that_the_model_takes(scale: str) -> None:
    for name in BUILT:
        settings = resolve(name, scale)
        assert TrainSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
        entry = model_entry(settings.model)
        assert set(settings.model_options) <= set(entry.options), name
        assert PROTOCOLS[BUILT[name].data].dimensions in entry.dimensions
        assert entry.task == ("segmentation" if settings.task == "segment" else "classification")


@pytest.mark.parametrize("model", sorted({settings.model for settings in BUILT.values()}))
def test_every_model_can_be_built_at_every_scale(model: str) -> None:
    for name, settings in BUILT.items():
        if settings.model == model:
            # Small networks are built faster than on the device meta.
            small = [count_of(resolve(name, scale), device="cpu") for scale in ("cpu", "tiny")]
            assert count_of(settings) > max(small), name


def test_parameters_are_as_printed() -> None:
    """Rounded or cut, as the paper does both; with the classes of a table's first set."""
    differ = {}
    for name, settings in BUILT.items():
        recipe = RECIPES[name]
        first = next(other for other in RECIPES.values() if other.label == recipe.label)
        printed = recipe.figures.get("parameters")
        if printed is None or recipe.group != first.group or model_entry(settings.model).extra == "escnn":
            continue
        classes = 1 if settings.task == "segment" else PROTOCOLS[settings.data].classes
        exact = count_of(settings, classes)
        if not is_printed_as(exact, printed):
            differ[name] = exact
    in_curves = {"fig:param/harmonic_resnet18_width64": COUNTS_THAT_DIFFER["tab:main/cifar10/harmonic_resnet18"]}
    assert differ == COUNTS_THAT_DIFFER | in_curves


def is_printed_as(exact: int, printed: str) -> bool:
    decimals = len(printed.removesuffix("M").partition(".")[2])
    unit = 10 ** (6 - decimals)
    shown = round(float(printed.removesuffix("M")) * 10**decimals)
    return shown in (exact // unit, (2 * exact + unit) // (2 * unit))


@pytest.mark.parametrize(
    ("exact", "printed", "fits"),
    [
        (3_996_685, "3.9M", True),
        (3_996_685, "4.0M", True),
        (5_069_837, "5.1M", True),
        (3_922_949, "3.8M", False),
        (175_804, "0.17M", True),
        (175_804, "0.19M", False),
    ],
)
def test_what_counts_as_printed(exact: int, printed: str, fits: bool) -> None:
    assert is_printed_as(exact, printed) is fits


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("cifar10", {"size": 32, "batch_size": 128, "epochs": 250, "lr": 2e-2}),
        ("nwpu10", {"size": 64, "batch_size": 128, "epochs": 250, "lr": 2e-2}),
        ("mtarsi", {"size": 64, "batch_size": 128, "epochs": 250, "lr": 2e-2}),
        ("nct_crc", {"size": 224, "batch_size": 24, "epochs": 50, "lr": 2e-2, "translation": 0.1}),
        ("pcam", {"size": 96, "batch_size": 64, "epochs": 100, "lr": 2e-2, "translation": 0.1}),
    ],
)
def test_the_main_table_is_trained_as_the_paper_says(data: str, expected: dict[str, object]) -> None:
    same = {
        "optimiser": "sgd", "momentum": 0.9, "min_lr": 1e-6, "weight_decay": 1e-3, "augmentation": "none",
        "rotation": 0.0, "reflection": False, "keep": "last", "train_images": None,
    }  # fmt: skip
    settings = resolve(f"tab:main/{data}/gmr_resnet18").to_json()
    assert {name: settings[name] for name in {**expected, **same}} == {**expected, **same}
    harmonic = resolve(f"tab:main/{data}/harmonic_resnet18")
    assert harmonic.optimiser == "adamw"


def test_imagenet_is_trained_by_four_processes_in_bfloat16() -> None:
    settings = resolve("tab:imagenet/gmr_resnet50")
    assert (settings.devices, settings.strategy, settings.batch_size) == (4, "ddp", 384)
    assert (settings.precision, settings.lr, settings.weight_decay) == ("bf16-mixed", 0.1, 1e-4)
    assert (settings.epochs, settings.warmup_epochs, settings.size) == (100, 2, 224)
    small = resolve("tab:imagenet/gmr_resnet50", "cpu")
    assert (small.devices, small.precision) == (1, "32-true")


def test_volumes_and_segmentation_are_trained_as_the_paper_says() -> None:
    volumes = resolve("tab:modelnet/modelnet40/gmr_r3d_9")
    assert (volumes.size, volumes.batch_size, volumes.epochs, volumes.lr) == (32, 8, 100, 2e-2)
    nuclei = resolve("tab:seg/gmr_unet")
    assert (nuclei.crop, nuclei.batch_size, nuclei.epochs, nuclei.lr) == (96, 8, 7000, 2e-3)
    assert (nuclei.optimiser, nuclei.task) == ("adamw", "segment")


def test_rows_of_ablations_differ_in_what_they_are_named_after() -> None:
    full = resolve("tab:main/cifar10/gmr_resnet18").model_options
    for name, options in {
        "tab:arch/square_hard": {"circular": False, "sigma": None},
        "tab:arch/circular_channel": {"sigma": "channel"},
        "tab:arch/circular_layer": {},
        "tab:ablation1/kernels_11_9_7_5": {"kernel_size": [11, 9, 7, 5]},
        "tab:ablation1/rings_6_6_3_3": {"rings": [6, 6, 3, 3]},
        "fig:param/gmr_resnet18_width8": {"width": 8},
    }.items():
        assert resolve(name).model_options == {**full, **options}
    assert resolve("fig:partial/resnet18_15deg").rotation == 15
    assert resolve("tab:aug/pcam/resnet18_turned").rotation == 180
    assert resolve("fig:cifar_train/resnet18").rotated_every == 1


def test_stems_are_the_text_s() -> None:
    assert resolve("tab:main/cifar10/resnet18").model_options == {"stem_kernel_size": 7, "stem_pool": False}
    assert resolve("tab:main/pcam/resnet18").model_options == {"stem_kernel_size": 7, "stem_stride": 2}
    assert resolve("tab:main/cifar10/gmr_resnet18").model_options == {"preset": "paper", "stem_pool": False}
    assert resolve("tab:main/pcam/gmr_resnet18").model_options == {"preset": "paper"}


def test_ring_networks_are_of_the_published_form_whatever_the_defaults() -> None:
    settings = [recipe.settings for recipe in list_recipes() if recipe.settings is not None]
    rings = [one for one in settings if one.model.startswith("gmr_")]
    assert rings
    assert all(one.model_options["preset"] == "paper" for one in rings)
    assert all("preset" not in one.model_options for one in settings if one not in rings)


def test_differences_of_text_and_release_are_named_where_they_matter() -> None:
    def named(name: str) -> set[str]:
        return {difference.name for difference in get_recipe(name).differences}

    everywhere = {"weight decay", "tested weights", "angles"}
    assert named("tab:main/cifar10/gmr_resnet18") == everywhere | {"augmentation", "stem pooling", "rings"}
    assert named("tab:main/pcam/gmr_resnet18") == everywhere | {"augmentation", "first maps", "rings"}
    assert named("tab:main/cifar10/resnet18") == everywhere | {"augmentation"}
    assert named("tab:seg/unet") == everywhere
    said = find_recipe(MAIN).notes
    assert any("--augmentation release" in note for note in said)
    assert any("--model-options stem_pool=true" in note for note in said)


@pytest.mark.parametrize("option", ["sampling=binned", "stem_pool=true", "stem_stride=2"])
def test_the_options_that_notes_suggest_exist(option: str) -> None:
    name, _, value = option.partition("=")
    value = json.loads(value) if value != "binned" else value
    settings = resolve("tab:main/pcam/gmr_resnet18", "tiny", model_options={name: value})
    assert count_of(settings, device="cpu") > 0


def test_small_scales_say_what_they_change() -> None:
    chosen = find_recipe(MAIN, "cpu")
    assert chosen.recipe == f"{MAIN}@cpu"
    assert chosen.changes == [
        "test_images: 1,000 instead of all",
        "epochs: 25 instead of 250",
        "batch_size: 32 instead of 128",
        "width: 16 instead of 64",
    ]
    assert chosen.notes[0] == "test_images: 1,000 instead of all (scale cpu)"
    assert find_recipe(MAIN).changes == []
    widths = [resolve(f"fig:param/gmr_resnet18_width{width}", "cpu").model_options["width"] for width in (8, 64, 96)]
    assert widths == [2, 16, 24]


def test_overrides_win_and_options_are_merged() -> None:
    settings = resolve(MAIN, "cpu", epochs=3, data="my.npz", model_options={"width": 8, "sampling": "area"})
    assert (settings.epochs, settings.data, settings.batch_size) == (3, "my.npz", 32)
    assert settings.model_options == {"preset": "paper", "stem_pool": False, "width": 8, "sampling": "area"}


def test_recipes_with_the_same_training_share_their_runs() -> None:
    same = [
        "tab:main/cifar10/gmr_resnet18",
        "tab:arch/circular_layer",
        "tab:ablation1/rings_5_5_3_3",
        "tab:ablation1/kernels_9_9_5_5",
        "tab:aug/cifar10/gmr_resnet18",
        "tab:rot_std/cifar10/gmr_resnet18",
        "fig:param/gmr_resnet18_width64",
        "fig:partial/gmr_resnet18_0deg",
        "fig:cifar_train/gmr_resnet18",
    ]
    assert [name for name in RECIPES if RECIPES[name].experiment == RECIPES[same[0]].experiment] == same


def test_what_is_not_built_says_why() -> None:
    recipe = get_recipe("tab:fuhl/ring_resnet34")
    assert recipe.figures == {"quarter_turns": "79.96", "every_20_degrees": "75.79"}
    with pytest.raises(ValueError, match="tab:fuhl/ring_resnet34 is not built here: quoted by the paper"):
        resolve(recipe.name)
    not_built = {recipe.label for recipe in RECIPES.values() if recipe.settings is None}
    assert not_built == {"tab:fuhl", "tab:speed"}


def test_mistakes_are_answered() -> None:
    with pytest.raises(ValueError, match="did you mean 'tab:main/nwpu10/gmr_resnet18'"):
        resolve("tab:main/nwpu10/gmr_resnet-18")
    with pytest.raises(ValueError, match=r"unknown settings: epoch; known are .*epochs"):
        resolve(MAIN, epoch=3)
    with pytest.raises(ValueError, match="scale must be one of 'paper', 'cpu', 'tiny', got 'small'"):
        resolve(MAIN, "small")
    with pytest.raises(ValueError, match="needs either settings or a reason"):
        Recipe("tab:x", "", "row", "Row", {}, None)


def test_recipes_are_found_by_pattern_part_and_figure() -> None:
    def names(pattern: str) -> list[str]:
        return [recipe.name for recipe in list_recipes(pattern)]

    assert names("*") == list(RECIPES)
    assert names("tab:main/*/gmr_resnet18") == [name for name in RECIPES if re.match("tab:main.*/gmr_resnet18", name)]
    assert names("modelnet40") == [name for name in RECIPES if "modelnet40" in name]
    assert names("fig:radar3") == names("tab:main/*")
    assert names(MAIN) == [MAIN]
    assert names("nothing") == []
    for labels in DRAWN_FROM.values():
        assert all(names(f"{label}/*") for label in labels)


def test_points_that_the_paper_does_not_state_say_so() -> None:
    assert any("this angle is ours" in note for note in get_recipe("fig:partial/resnet18_45deg").notes)
    assert not any("this angle is ours" in note for note in get_recipe("fig:partial/resnet18_15deg").notes)
    half = get_recipe("fig:param/e2_wrn16_width32")
    assert half.settings is not None
    assert half.settings.model_options == {"width": 64}
    assert any("in proportion" in note for note in half.notes)


def test_the_page_about_recipes_is_up_to_date() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text("utf-8")
    labels = [recipe.label for recipe in RECIPES.values()]
    counts = dict(re.findall(r"^\| ((?:tab|fig):\w+) \|.*\| (\d+) \|$", page, re.M))
    assert counts == {label: str(labels.count(label)) for label in labels}
    assert f"There are {len(RECIPES)}, named by" in page
    different = len({RECIPES[name].experiment for name in BUILT})
    assert f"{different} different ones are left" in page
    for difference in differences.ALL:
        assert f"| {difference.name}" in page
        for option in re.findall(r"--[a-z-]+ [a-z_]+(?:=\w+)?", difference.other):
            assert option in page
