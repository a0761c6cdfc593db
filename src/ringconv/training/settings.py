"""What a training run can be asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ringconv._turned import Padding

Options = Mapping[str, Any]
"""Named options whose values JSON knows: numbers, text, true, false, null, lists."""

Task = Literal["classify", "segment"]
Loss = Literal["ce", "bce+dice"]
Optimiser = Literal["sgd", "adamw"]
Decay = Literal["all", "weights"]
Augmentation = Literal["none", "release"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
Kept = Literal["last", "best"]


@dataclass(frozen=True)
class TrainSettings:
    """Everything that decides a run; the same settings give the same weights on the same machine.

    Defaults are the paper's for small images: SGD with momentum for 250 epochs in batches of 128, a cosine from 0.02 to
    1e-6, and no augmentation. The weight decay is that of the authors' code.
    """

    model: str
    """Name of the network; `ringconv models` lists them."""
    data: str
    """Path or name of the data; `ringconv data list` lists the names."""

    model_options: Options = field(default_factory=dict)
    """Options of the network, as name=value, such as width=16 kernel_size=[9,9,5,5]. How many channels and classes
    there are is taken from the data."""
    data_options: Options = field(default_factory=dict)
    """How the data is read, as name=value, such as per_class=50 grouped=true: the fields of ringconv.data.DataOptions,
    and layout and root of ringconv.data.open_data."""
    task: Task | None = None
    """classify or segment; default: what the data is for."""
    size: int | tuple[int, ...] | None = None
    """Size of the images, one number for all sides; default: as they are, or as the set's paper has it."""
    crop: int | None = None
    """Train on random crops of this size; tests see whole images."""
    train_images: int | None = None
    """Train on so many images only, of every class in its proportion."""
    test_images: int | None = None
    """Test on so many images only, of every class in its proportion."""
    validation: float = 0.0
    """Share of the training images held out for validation, where the data has no split for it."""

    epochs: int = 250
    """Passes over the training images."""
    batch_size: int = 128
    """Images per step of the optimiser, over all devices and accumulated parts together."""
    accumulate: int = 1
    """Parts that a batch is worked through in, on each device, for want of memory."""
    loss: Loss | None = None
    """ce (cross-entropy) or bce+dice; default: ce to classify, bce+dice to segment."""
    label_smoothing: float = 0.0
    """Of the cross-entropy."""

    optimiser: Optimiser = "sgd"
    """sgd or adamw."""
    lr: float = 2e-2
    """Highest learning rate."""
    momentum: float = 0.9
    """Of sgd."""
    weight_decay: float = 1e-3
    """Of the weights. The rings' widths never decay."""
    decay: Decay = "all"
    """What decays beside the widths: all, or the weights but neither norms nor biases."""
    min_lr: float = 1e-6
    """Where the cosine ends."""
    warmup_epochs: float = 0.0
    """Epochs of a linear start from 0 to the learning rate; the cosine follows."""
    clip_norm: float | None = None
    """Scale gradients down to this norm where they are larger."""
    ema: float | None = None
    """Test a moving average of the weights with this decay per step, such as 0.999."""
    norm_batch: int | None = None
    """Before a test, take the statistics of batch norms anew, in batches of so many training images: for trainings in
    batches so small that their averages are not what a test sees. Default: the averages of training."""

    augmentation: Augmentation = "none"
    """none: the paper's text. release: the authors' commands, with crops resized, colours changed, blur and shifts."""
    translation: float = 0.2
    """Largest shift of the release's augmentation, as a share of the side; 0.1 for NCT-CRC and PCam."""
    rotation: float = 0.0
    """Turn training images by a random angle of up to so many degrees either way; 180 for all angles."""
    reflection: bool = False
    """Mirror half of the training images."""
    beyond_frame: Padding = "fill"
    """What turned images show beyond their frame, in training and in tests: fill (the mean colour, as in the paper),
    reflect (the image mirrored) or edge (its edge continued)."""

    seed: int = 0
    """Of the initial weights, the order of the images, their augmentation and the network's own randomness."""
    keep: Kept = "last"
    """Which weights are tested and kept at the end: of the last epoch, or of the best one in validation."""
    validate_every: int = 1
    """Epochs between validations, where there is a validation split; the last epoch always is."""
    rotated_every: int = 0
    """Epochs between tests on turned images during training; 0: only at the end."""
    rotated_images: int = 500
    """Test images, of every class in its proportion, that those tests use."""
    final_test: bool = True
    """Test at every angle and mirrored at the end."""

    checkpoint_every: int = 200
    """Steps between checkpoints; there is one at the end too, and when the run is asked to stop."""
    log_every: int = 20
    """Steps between lines in the log."""
    wandb: str = ""
    """Log to this project of Weights & Biases too."""

    precision: Precision = "32-true"
    """32-true, bf16-mixed, 16-mixed or 64-true."""
    channels_last: bool = False
    """Keep maps with channels last, which some devices are faster with."""
    workers: int = 0
    """Processes that read and augment; 0: in the training process. The results do not depend on it."""
    accelerator: str = "auto"
    """auto, cpu, gpu, cuda, mps or tpu."""
    devices: int = 1
    """Devices per node. More than one starts the processes, unless torchrun did."""
    nodes: int = 1
    """Nodes; start each with torchrun."""
    strategy: str = "auto"
    """How devices work together: auto, ddp, or another of Lightning Fabric's."""
    sync_batch_norm: bool = False
    """Take batch statistics over all devices."""

    def __post_init__(self) -> None:
        self._check_types()
        _nonempty(self, "model", "data")
        _at_least(self, 1, "epochs", "batch_size", "accumulate", "checkpoint_every", "log_every", "devices", "nodes")
        _at_least(self, 1, "crop", "norm_batch", "train_images", "test_images", "rotated_images", "validate_every")
        _at_least(self, 0, "weight_decay", "min_lr", "warmup_epochs", "rotated_every", "workers", "seed")
        _below(self, 1, "validation", "label_smoothing", "momentum", "ema")
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, got {self.lr}")
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr must not be above lr ({self.lr}), got {self.min_lr}")
        if self.warmup_epochs >= self.epochs and self.warmup_epochs:
            raise ValueError(f"warmup_epochs must be less than epochs ({self.epochs}), got {self.warmup_epochs}")
        if not 0 <= self.rotation <= 180:
            raise ValueError(f"rotation must be from 0 to 180 degrees either way, got {self.rotation}")
        if not 0 <= self.translation < 1:
            raise ValueError(f"translation must be a share of the side in [0, 1), got {self.translation}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, got {self.clip_norm}")
        if self.devices * self.nodes * self.accumulate > self.batch_size:
            raise ValueError(
                f"batch_size counts all devices and parts: {self.nodes} x {self.devices} devices of {self.accumulate}"
                f" parts cannot share {self.batch_size} images"
            )
        if self.label_smoothing and self.loss == "bce+dice":
            raise ValueError("label_smoothing is for the loss 'ce', got 'bce+dice'")
        sides = (self.size,) if isinstance(self.size, int) else self.size or ()
        if any(side < 1 for side in sides):
            raise ValueError(f"size must be at least 1, got {self.size}")

    def _check_types(self) -> None:
        size: Any = self.size
        if isinstance(size, list):  # JSON has lists only
            object.__setattr__(self, "size", tuple(size))
        for name, hint in get_type_hints(TrainSettings).items():
            value, choices = getattr(self, name), _choices(hint)
            if choices and value not in choices:
                allowed = ", ".join(map(repr, choices))
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
            if not choices and hint != Options and not _is_a(hint, value):
                raise ValueError(f"{name} must be {_said(hint)}, got {value!r}")
        for name in ("model_options", "data_options"):
            options = getattr(self, name)
            if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
                raise ValueError(f"{name} must map names to values, got {options!r}")
            try:
                # What JSON makes of it, so that settings are equal to those read back from a run's folder.
                object.__setattr__(self, name, json.loads(json.dumps(dict(options), allow_nan=False)))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} must have values that JSON knows, got {options!r}") from error
        for name in ("size", "validation"):
            if name in self.data_options:
                raise ValueError(f"give {name} itself, not within data_options")
        for name in ("num_classes", "in_chans"):
            if name in self.model_options:
                raise ValueError(f"{name} is taken from the data; leave it out of model_options")

    def to_json(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_json` reads it back."""
        values = asdict(self)
        values["size"] = list(self.size) if isinstance(self.size, tuple) else self.size
        return values

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> TrainSettings:
        """What :meth:`to_json` wrote; refuses names it does not know."""
        known = {f.name for f in fields(TrainSettings)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        missing = sorted({"model", "data"} - set(values))
        if missing:
            raise ValueError(f"settings must say {' and '.join(missing)}")
        return TrainSettings(**values)


def _choices(hint: Any) -> Sequence[Any]:
    """The values of a Literal, or of a Literal or None; nothing for any other type."""
    literals = [part for part in (hint, *get_args(hint)) if getattr(part, "__origin__", None) is Literal]
    if not literals:
        return ()
    optional = type(None) in get_args(hint)
    return (*get_args(literals[0]), *((None,) if optional else ()))


_SAID = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "None"}


def _is_a(hint: Any, value: Any) -> bool:
    """Whether a value is of such a type. Whole numbers are numbers too; True and False are none here."""
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_a(get_args(hint)[0], part) for part in value)
    if get_args(hint):  # a union
        return any(_is_a(part, value) for part in get_args(hint))
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _said(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "a tuple of such"
    return " or ".join(map(_said, get_args(hint))) or _SAID[hint]


def _nonempty(settings: TrainSettings, *names: str) -> None:
    for name in names:
        if not getattr(settings, name):
            raise ValueError(f"{name} must be a name, got {getattr(settings, name)!r}")


def _at_least(settings: TrainSettings, least: int, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def _below(settings: TrainSettings, most: int, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 <= value < most:
            raise ValueError(f"{name} must be in [0, {most}), got {value}")
