import dataclasses
import json

import pytest

from ringconv.training import TrainSettings

SETTINGS = TrainSettings("gmr_resnet18", "nwpu10")


def test_defaults_are_the_papers_for_small_images() -> None:
    assert (SETTINGS.optimiser, SETTINGS.lr, SETTINGS.momentum, SETTINGS.min_lr) == ("sgd", 2e-2, 0.9, 1e-6)
    assert (SETTINGS.epochs, SETTINGS.batch_size, SETTINGS.augmentation, SETTINGS.rotation) == (250, 128, "none", 0)
    assert (SETTINGS.weight_decay, SETTINGS.keep) == (1e-3, "last")


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        dataclasses.replace(SETTINGS, size=(32, 48), model_options={"kernel_size": (9, 9, 5, 5), "width": 16}),
        dataclasses.replace(SETTINGS, size=64, ema=0.99, loss="ce", data_options={"grouped": True}),
    ],
)
def test_json_and_back(settings: TrainSettings) -> None:
    assert TrainSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": ""}, "model must be a name"),
        ({"optimiser": "adam"}, "one of 'sgd', 'adamw', got 'adam'"),
        ({"task": "regress"}, "one of 'classify', 'segment', None"),
        ({"precision": "fp16"}, "'bf16-mixed'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"crop": 0}, "crop must be at least 1"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr must be above 0"),
        ({"min_lr": 1.0}, "min_lr must not be above lr"),
        ({"warmup_epochs": 250.0}, "warmup_epochs must be less than epochs"),
        ({"rotation": 181.0}, "0 to 180"),
        ({"translation": 1.0}, "translation"),
        ({"validation": 1.0}, r"validation must be in \[0, 1\)"),
        ({"ema": 1.0}, "ema"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"batch_size": 3, "devices": 2, "accumulate": 2}, "cannot share 3 images"),
        ({"loss": "bce+dice", "label_smoothing": 0.1}, "label_smoothing is for the loss 'ce'"),
        ({"size": 0}, "size must be at least 1"),
        ({"epochs": 1.5}, r"epochs must be a whole number, got 1\.5"),
        ({"epochs": "3"}, "epochs must be a whole number, got '3'"),
        ({"batch_size": 8.0}, r"batch_size must be a whole number, got 8\.0"),
        ({"devices": True}, "devices must be a whole number, got True"),
        ({"crop": 2.5}, r"crop must be a whole number or None, got 2\.5"),
        ({"lr": "0.1"}, r"lr must be a number, got '0\.1'"),
        ({"ema": "0.9"}, "ema must be a number or None"),
        ({"reflection": "no"}, "reflection must be true or false, got 'no'"),
        ({"wandb": None}, "wandb must be text"),
        ({"model": 3}, "model must be text"),
        ({"size": "24"}, "size must be a whole number or a tuple of such or None, got '24'"),
        ({"size": [24, 2.5]}, r"size must be a whole number or a tuple .* got \(24, 2\.5\)"),
        ({"model_options": {"num_classes": 3}}, "taken from the data"),
        ({"model_options": {"act": object()}}, "that JSON knows"),
        ({"model_options": ["width"]}, "map names to values"),
        ({"data_options": {"size": 3}}, "give size itself"),
    ],
)
def test_what_is_impossible_is_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **wrong)


def test_whole_numbers_are_numbers() -> None:
    assert dataclasses.replace(SETTINGS, lr=1, rotation=180, clip_norm=2) == dataclasses.replace(
        SETTINGS, lr=1.0, rotation=180.0, clip_norm=2.0
    )


def test_unknown_and_missing_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown settings: learning_rate"):
        TrainSettings.from_json({"model": "a", "data": "b", "learning_rate": 1})
    with pytest.raises(ValueError, match="must say data"):
        TrainSettings.from_json({"model": "a"})
