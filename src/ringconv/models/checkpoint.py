"""Models as files: weights and everything needed to use them, in one safetensors file.

No pickle is ever read: a file holds numbers and JSON. The model is rebuilt by :func:`ringconv.models.create_model` from
the name and the options in the file.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ringconv._extras import needs
from ringconv._files import write_whole
from ringconv._network import input_channels, refuse_wrappers
from ringconv._ring_kernel import RingKernel
from ringconv._version import __version__
from ringconv.models.registry import create_model, list_models, model_entry

FORMAT = 2
"""Of the metadata; higher numbers are files of later versions. In files of format 1, ring layers have the paper's form
where the options do not say otherwise: it was the default."""

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]

_KEY = "ringconv"
_NOT_ON_META = ("escnn",)
"""Extras whose models cannot be built without a device, and take minutes with one."""

_ONLY_IN_TRAINING: tuple[tuple[type[nn.Module], tuple[str, ...]], ...] = (
    (nn.Module, ("inplace", "drop_prob")),
    (nn.modules.dropout._DropoutNd, ("p",)),
    (nn.modules.batchnorm._BatchNorm, ("momentum",)),
    (RingKernel, ("init", "method")),
)
"""What layers of these kinds say of themselves and does not change what a tested network computes."""


class CheckpointError(ValueError):
    """A file is not a model that this version of ringconv can rebuild, and the message says why."""


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the model's input: resized, on a scale from 0 to 1, minus ``mean``, by ``std``."""

    size: tuple[int, ...] | None = None
    """(H, W); None if images are taken as they are."""
    mean: tuple[float, ...] = (0.0,)
    """Per channel, or one for all."""
    std: tuple[float, ...] = (1.0,)
    interpolation: Interpolation = "bilinear"
    fit: Literal["squash", "crop"] = "squash"
    """How images of other proportions get to ``size``: squashed, or scaled to cover it and cropped in the middle."""
    scale: float | None = None
    """The stored value that became 1 in training: 255 of bytes, 1 of floats, which stay as they are; None: unknown."""

    def __post_init__(self) -> None:
        for name in ("size", "mean", "std"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value) if isinstance(value, Sequence) else (value,))
        if self.size is not None and len(self.size) == 1:
            object.__setattr__(self, "size", self.size * 2)
        if self.size is not None and any(not isinstance(side, int) or side < 1 for side in self.size):
            raise ValueError(f"size must be positive ints, got {self.size}")
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must have a value for the same channels, got {self.mean} and {self.std}")
        if not all(deviation > 0 for deviation in self.std):
            raise ValueError(f"std must be positive, got {self.std}")
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")
        for name, allowed in (("interpolation", get_args(Interpolation)), ("fit", ("squash", "crop"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")


_USUAL_SIDES = {1: 256, 2: 64, 3: 32}


@dataclass(frozen=True)
class CheckpointInfo:
    """What a file says of its model."""

    name: str
    """As :func:`ringconv.models.create_model` takes it."""
    options: dict[str, Any]
    class_names: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    ringconv_version: str = __version__

    @property
    def dimensions(self) -> int:
        """Spatial axes of what the model takes."""
        return int(self.options.get("dimensions", model_entry(self.name).dimensions[0]))

    @property
    def size(self) -> tuple[int, ...]:
        """Sides of the images that it was made for; where the file does not say, usual ones."""
        if self.preprocessing is not None and self.preprocessing.size is not None:
            return self.preprocessing.size
        return (_USUAL_SIDES[self.dimensions],) * self.dimensions


def save_model(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    class_names: Sequence[str] | None = None,
    preprocessing: Preprocessing | Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model that :func:`ringconv.models.create_model` made, all of it or nothing, and return the path.

    Args:
        class_names: what each logit means.
        preprocessing: what images must go through first; a :class:`Preprocessing` or its fields.
        metrics: whatever should be known about the model; numbers, strings, lists and dicts.
    """
    path = Path(path)
    refuse_wrappers(model, "save_model")
    name, options = _made_by_create_model(model)
    if isinstance(class_names, str):
        raise TypeError(f"class_names must be a sequence of names, got one string: {class_names!r}")
    names = tuple(map(str, class_names or ()))
    classes = options.get("num_classes", getattr(model, "num_classes", None))
    if names and isinstance(classes, int) and len(names) != classes:
        raise ValueError(f"{name} has num_classes={classes}, but class_names has {len(names)} names")
    sides = CheckpointInfo(name, options).dimensions
    if isinstance(preprocessing, Mapping):
        given = dict(preprocessing)
        if isinstance(given.get("size"), int):
            given["size"] = (given["size"],) * sides
        preprocessing = Preprocessing(**given)
    if preprocessing is not None and preprocessing.size is not None and len(preprocessing.size) != sides:
        raise ValueError(f"{name} takes images of {sides} dimensions, but size has {len(preprocessing.size)} numbers")
    channels = input_channels(model)
    if preprocessing is not None and len(preprocessing.mean) not in (1, channels):
        raise ValueError(f"{name} takes {channels} channels, but mean and std have {len(preprocessing.mean)}")
    info = CheckpointInfo(name, options, names, preprocessing, dict(metrics or {}))
    # Cloned, since safetensors refuses tensors that share memory, as those of a shared layer do.
    tensors = {key: value.detach().cpu().clone().contiguous() for key, value in model.state_dict().items()}
    _check_shapes(tensors, info, f"the {type(model).__name__} is not what create_model makes any more", model)
    metadata = {"format": "pt", _KEY: _to_json(info)}
    data = _in_order(needs("safetensors.torch", "models").save(tensors, metadata))
    write_whole(path, data)
    return path


def read_info(path: str | os.PathLike[str]) -> CheckpointInfo:
    """What a file says of its model, without reading the weights."""
    with _opened(Path(path)) as file:
        return _from_json(Path(path), file.metadata())


def load_model(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> nn.Module:
    """The model of a file, rebuilt from the file alone; in eval mode, in the dtype it was saved in."""
    path = Path(path)
    with _opened(path) as file:
        info = _from_json(path, file.metadata())
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    # On no device first: a wrong file must not cost the memory that it asks for.
    _check_shapes(tensors, info, f"{path} does not fit")
    model = create_model(info.name, **info.options)
    try:
        _cast_like(model, tensors)
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path} does not fit {info.name}: {error}") from error
    return model.to(device).eval()


def _made_by_create_model(model: nn.Module) -> tuple[str, dict[str, Any]]:
    name, options = getattr(model, "model_name", None), getattr(model, "model_options", None)
    if not isinstance(name, str) or not isinstance(options, dict):
        raise ValueError(
            f"save_model takes models of ringconv.models.create_model, which know how to be rebuilt, got a"
            f" {type(model).__name__} that does not say how it was made. (Of other models save the state dict, or what"
            " torch.export makes of them.)"
        )
    return name, options


def _cast_like(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give every parameter and buffer the dtype that it has in the file; shared ones stay shared."""
    for key, value in model.state_dict(keep_vars=True).items():
        if value.dtype != tensors[key].dtype:
            value.data = value.data.to(tensors[key].dtype)


def _check_shapes(
    tensors: Mapping[str, Tensor], info: CheckpointInfo, what: str, model: nn.Module | None = None
) -> None:
    """Whether the tensors, and the layers of ``model``, are those of the model that the name and the options make."""
    try:
        if model_entry(info.name).extra in _NOT_ON_META:
            return  # loading them says the same, later
        with torch.device("meta"), _WithoutDrawing():
            twin = create_model(info.name, **_through_json(info.options))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{what}: create_model({info.name!r}, **{info.options}) fails: {error}") from error
    expected = twin.state_dict()
    wrong = [f"{key} is missing" for key in expected if key not in tensors]
    wrong += [f"{key} is not in it" for key in tensors if key not in expected]
    wrong += [
        f"{key} is {tuple(tensors[key].shape)} instead of {tuple(value.shape)}"
        for key, value in expected.items()
        if key in tensors and tensors[key].shape != value.shape
    ]
    wrong += [] if model is None else _other_layers(model, twin)
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(
            f"{what}: compared with create_model({info.name!r}, **{info.options}), {'; '.join(wrong[:3])}{more}"
        )


def _other_layers(model: nn.Module, twin: nn.Module) -> list[str]:
    """Layers of another class, or with other settings, compute something else with the same tensors."""
    layers, expected = (dict(net.named_modules(remove_duplicate=False)) for net in (model, twin))
    wrong = [f"the layer {name} is missing" for name in expected if name not in layers]
    wrong += [f"the layer {name} is not in it" for name in layers if name not in expected]
    wrong += [
        f"{name or 'the model'} is a {_kind(layers[name])} instead of a {_kind(layer)}"
        for name, layer in expected.items()
        if name in layers and _kind(layers[name]) != _kind(layer)
    ]
    wrong += [
        f"{name or 'the model'} is {_kind(layer)}({_settings(layers[name])}) instead of"
        f" {_kind(layer)}({_settings(layer)})"
        for name, layer in expected.items()
        if name in layers and _kind(layers[name]) == _kind(layer) and _settings(layers[name]) != _settings(layer)
    ]
    return wrong


def _kind(layer: nn.Module) -> str:
    """Its class; batch norms of all sorts are one, since they have the same statistics."""
    return "BatchNorm" if isinstance(layer, nn.modules.batchnorm._BatchNorm) else type(layer).__name__


def _settings(layer: nn.Module) -> str:
    """What it says of itself, without what matters in training only."""
    left_out = [name for kind, names in _ONLY_IN_TRAINING if isinstance(layer, kind) for name in names]
    return re.sub(rf"(^|, )({'|'.join(left_out)})=[^,]*", "", layer.extra_repr())


class _WithoutDrawing(TorchFunctionMode):
    """Leaves out the drawing of initial weights, for which torch would import its compiler on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **(kwargs or {}))


# -- the metadata


def _in_order(data: bytes) -> bytes:
    """The same file with its metadata sorted: safetensors has it in an order that changes from call to call, and equal
    models are to be equal files."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _to_json(info: CheckpointInfo) -> str:
    try:
        return json.dumps({"version": FORMAT} | asdict(info), default=_plain_number)
    except TypeError as error:
        raise TypeError(f"options and metrics must be numbers, strings, lists or dicts: {error}") from error


def _plain_number(value: object) -> Any:
    """Scalars of numpy and torch."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _through_json(options: dict[str, Any]) -> dict[str, Any]:
    """As they will come back from a file, where tuples are lists."""
    result: dict[str, Any] = json.loads(json.dumps(options, default=_plain_number))
    return result


def _from_json(path: Path, metadata: Mapping[str, str] | None) -> CheckpointInfo:
    if not metadata or _KEY not in metadata:
        raise CheckpointError(
            f"{path} holds tensors, but does not say which model they belong to: it was not written by"
            " ringconv.models.save_model"
        )
    try:
        stored = json.loads(metadata[_KEY])
        version = stored.pop("version")
        if version > FORMAT:
            raise CheckpointError(
                f"{path} was written by ringconv {stored.get('ringconv_version')} in a format (version {version}) that"
                f" this ringconv {__version__} does not know; install a later one"
            )
        preprocessing = stored.pop("preprocessing", None)
        names = tuple(stored.pop("class_names", ()))
        if version == 1:
            stored["options"] = options_of_format_1(stored["name"], stored["options"])
        prepared = None if preprocessing is None else Preprocessing(**preprocessing)
        return CheckpointInfo(**stored, class_names=names, preprocessing=prepared)
    except CheckpointError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"what {path} says of its model is damaged: {error}") from error


def options_of_format_1(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What options meant when the paper's form of the rings was the default."""
    takes_preset = name in list_models() and "preset" in model_entry(name).options
    preset = {"preset": options.get("preset") or "paper"} if takes_preset else {}
    return {**options, **preset}


def _opened(path: Path) -> Any:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a checkpoint is one file, such as model.safetensors")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    safetensors = needs("safetensors", "models")
    try:
        return safetensors.safe_open(path, framework="pt")
    except safetensors.SafetensorError as error:
        with path.open("rb") as file:
            start = file.read(2)
        if start == b"PK" or start[:1] == b"\x80":
            raise CheckpointError(
                f"{path} is a pickle or a zip file, as torch.save writes them. A pickle can run any program when it is"
                " read, so ringconv reads none: load its state dict yourself, torch.load(path, weights_only=True), into"
                " a model of create_model (checkpoints of the authors' package: ringconv.models.import_official), and"
                " save_model that"
            ) from error
        raise CheckpointError(f"{path} is not a complete safetensors file: {error}") from error
