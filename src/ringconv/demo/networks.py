"""The networks of the page: those that come with the package, and any checkpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ringconv._extras import needs
from ringconv._network import input_channels
from ringconv.data import normalise
from ringconv.data.scales import from_0_to_1
from ringconv.models.checkpoint import Preprocessing, load_model, read_info
from ringconv.models.registry import Task, model_entry
from ringconv.training.networks import KINDS, Kind, small_network

WEIGHTS = Path(__file__).with_name("weights")
_KEY = "ringconv-demo"
_SPARE = 64
"""Side of the image that a network without a size of its own is tried on."""
_DEPTH = 2
"""Layers whose name has more parts than this are inside of blocks, and too many to choose from."""


@dataclass(frozen=True)
class Response:
    """What a network made of images (B, C, H, W)."""

    output: Tensor
    """(B, classes), or (B, classes, H, W) of a segmentation."""
    embedding: Tensor
    """(B, E): what the last linear layer saw; without one, the output."""
    maps: Tensor | None
    """(B, C', h, w), of the layer that was asked for."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network, and how pictures come to it."""

    name: str
    module: nn.Module
    task: Task
    channels: int
    prepare: Callable[[Tensor], Tensor]
    """(B, channels, H, W) on a scale from 0 to 1 -> as the network takes it."""
    classes: tuple[str, ...] = ()
    side: int | None = None
    """Of its images; None: any."""
    layers: dict[str, str] = field(init=False)
    """Layers that give maps: name -> what to call it."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self.module.eval()
        side = self.side or _SPARE
        image = torch.full((1, self.channels, side, side), 0.5)
        with torch.inference_mode(), _listening(self.module, _of_some_depth) as heard:
            output = self.module(self.prepare(image))
        _check_output(self, output, side)
        names = {
            name: f"{name} · {kind} · {maps.shape[1]} channels" for name, (kind, _, maps) in heard.items()
            if maps.ndim == 4 and maps.shape[-1] > 1
        }  # fmt: skip
        object.__setattr__(self, "layers", names)
        if self.task == "classification" and not self.classes:
            object.__setattr__(self, "classes", tuple(f"class {number}" for number in range(output.shape[1])))

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def middle_layer(self) -> str | None:
        """The one to begin with."""
        names = list(self.layers)
        return names[len(names) // 2] if names else None

    def __call__(self, images: Tensor, layer: str | None = None) -> Response:
        """Run it on (B, channels, H, W), on a scale from 0 to 1."""

        def wanted(name: str, module: nn.Module) -> bool:
            return name == layer or isinstance(module, nn.Linear)

        # One at a time: a hook hears whoever runs the network.
        with self._lock, torch.inference_mode(), _listening(self.module, wanted) as heard:
            output = self.module(self.prepare(images))
        vectors = [before for _, before, after in heard.values() if before.ndim == 2 and after.ndim == 2]
        maps = heard[layer][2] if layer in heard else None
        return Response(output.float(), (vectors[-1] if vectors else output).float(), maps)


@contextmanager
def _listening(
    module: nn.Module, wanted: Callable[[str, nn.Module], bool]
) -> Iterator[dict[str, tuple[str, Tensor, Tensor]]]:
    """Name -> kind, input and output of the submodules that are wanted, in the order of their (last) calls."""
    heard: dict[str, tuple[str, Tensor, Tensor]] = {}

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hear(part: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
                heard.pop(name, None)
                # Copied, since the next layer may work in place.
                heard[name] = type(part).__name__, inputs[0], output.clone()

        return hear

    handles = [part.register_forward_hook(hook(name)) for name, part in module.named_modules() if wanted(name, part)]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def _of_some_depth(name: str, module: nn.Module) -> bool:
    return 0 < len(name.split(".")) <= _DEPTH and name != ""


def _check_output(network: Network, output: object, side: int) -> None:
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if network.task == "classification":
        if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] < 2:
            raise ValueError(f"{network.name} must give (images, classes) with two classes or more, but gives {shape}")
        if network.classes and len(network.classes) != shape[1]:
            raise ValueError(f"{network.name} has {shape[1]} outputs, but {len(network.classes)} class names")
    elif not isinstance(shape, tuple) or len(shape) != 4 or shape[2:] != (side, side):
        raise ValueError(f"{network.name} must give a map of the image's size, but gives {shape} for {side} x {side}")


# -- any checkpoint


def checkpoint_network(path: Path, name: str | None = None) -> Network:
    """The network of a file; ValueError or OSError if it is none, or none that the page can show."""
    info = read_info(path)
    entry = model_entry(info.name)
    if info.dimensions != 2:
        raise ValueError(f"{path} is a network of {info.dimensions} dimensions; the page turns images")
    module = load_model(path).float()
    channels = input_channels(module)
    if channels not in (1, 3):
        raise ValueError(f"{path} takes images of {channels} channels; the page has grey (1) and colour (3)")
    prepared = info.preprocessing or Preprocessing()
    if prepared.size is not None and len(set(prepared.size)) > 1:
        raise ValueError(f"{path} takes images of {prepared.size}; the page turns squares")
    if not from_0_to_1(prepared.scale, prepared.mean, prepared.std):
        raise ValueError(f"{path} was trained on floats that are not from 0 to 1; the page has pictures")
    return Network(
        name=name or f"{path.stem} ({info.name})",
        module=module,
        task=entry.task,
        channels=channels,
        prepare=lambda images: normalise(images, prepared.mean, prepared.std),
        classes=info.class_names if entry.task == "classification" else (),
        side=prepared.size[0] if prepared.size else None,
    )


def with_names_of_their_own(networks: Sequence[Network]) -> dict[str, Network]:
    """By name; what shares a name with an earlier one gets a number."""
    named: dict[str, Network] = {}
    for network in networks:
        name, number = network.name, 1
        while name in named:
            number += 1
            name = f"{network.name} #{number}"
        named[name] = network
    return named


# -- those that come with the package


def bundled_networks() -> list[Network]:
    """The plain and the ring network, for textures and for segmentation."""
    classifiers = [_bundled_classifier(kind) for kind in KINDS]
    segmenters = [checkpoint_network(WEIGHTS / f"segmenter-{kind}.safetensors", f"{kind} U-Net") for kind in KINDS]
    return [*classifiers, *segmenters]


def _bundled_classifier(kind: Kind) -> Network:
    with needs("safetensors", "demo").safe_open(WEIGHTS / f"textures-{kind}.safetensors", framework="pt") as file:
        said = json.loads(file.metadata()[_KEY])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    module = small_network(kind, len(said["classes"]))
    module.load_state_dict(tensors)
    return Network(f"{kind} network", module, "classification", 1, equal_contrast, tuple(said["classes"]))


def classifier_bytes(module: nn.Module, classes: Sequence[str], metrics: dict[str, float]) -> bytes:
    """The file of a bundled classifier, which is none of ``create_model``'s."""
    metadata = {"format": "pt", _KEY: json.dumps({"classes": list(classes), "metrics": metrics})}
    content: bytes = needs("safetensors.torch", "demo").save(module.state_dict(), metadata)
    return content


def equal_contrast(images: Tensor) -> Tensor:
    """(B, C, H, W): each image at mean 0 and standard deviation 1, as the texture patches are."""
    centred = images - images.mean((1, 2, 3), keepdim=True)
    return centred / centred.std((1, 2, 3), correction=0, keepdim=True).clamp(min=1e-3)
