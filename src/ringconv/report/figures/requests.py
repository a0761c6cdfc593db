"""Figures from what a person names: paths, and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ringconv._network import dtype_of
from ringconv._progress import Progress
from ringconv.data.textures import PHOTOGRAPHS, load_textures
from ringconv.equivariance import band_limited_noise, equivariance_error
from ringconv.evaluation.audit import audit
from ringconv.layers import GMRConv2d
from ringconv.report.figures import build, changes, cost, embeddings, features, kernels, progress, speed, symmetry
from ringconv.report.figures.layers import layer_named, recorded, spatial_layers
from ringconv.report.figures.networks import Shown, Trained, images_for, read_networks
from ringconv.report.figures.sources import Curve, curves_of, read_tests

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Request:
    """What a figure is drawn from. Each figure takes some of this; see ``DRAWINGS``."""

    paths: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    """Labels instead of those made from the settings."""
    data: str | None = None
    """Path or name of a data set; default what the first run was trained on."""
    root: Path | None = None
    """Where names of data sets are looked up."""
    split: str = "test"
    images: int | None = None
    """How many; each figure has its own default."""
    image: int = 0
    """Its place in the split, where one is shown."""
    layer: str | None = None
    """Name of a layer."""
    channel: int | None = None
    seed: int = 0
    report: Progress | None = field(default=None, compare=False)


# -- runs


def curves(request: Request) -> list[Curve]:
    return curves_of(read_tests(request.paths, request.names))


def parameters(request: Request) -> Figure:
    tests = read_tests(request.paths, request.names)
    return cost.accuracy_against_parameters(tests if request.names else cost.without_widths(tests))


def bubbles(request: Request) -> Figure:
    return cost.bubbles(cost.with_memory(read_tests(request.paths, request.names)))


def ring_widths(request: Request) -> Figure:
    runs = progress.read_runs(request.paths)
    if len(runs) > 1:
        raise ValueError(f"sigma is drawn of one run, got {len(runs)}: {', '.join(run.name for run in runs)}")
    return progress.ring_widths(runs[0])


def time(request: Request) -> Figure:
    if len(request.paths) != 1:
        raise ValueError(f"speed is drawn from one file of ringconv bench, got {len(request.paths)}")
    return speed.time_against_kernel_width(request.paths[0])


# -- networks


def _one_network(request: Request) -> Trained:
    networks = read_networks(request.paths)
    if len(networks) > 1:
        raise ValueError(f"this figure is of one network, got {', '.join(one.label for one in networks)}")
    return networks[0]


def _ring_layer(request: Request) -> tuple[GMRConv2d, Trained | None]:
    """Of the given network, or one with its initial weights."""
    if not request.paths:
        if request.layer is not None:
            raise ValueError("--layer names a layer of a network, and there is none: give a run or a checkpoint")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(request.seed)
            return GMRConv2d(len(PHOTOGRAPHS), 64, 9, padding=4, bias=False), None
    trained = _one_network(request)
    rings = {name: one for name, one in spatial_layers(trained.network).items() if isinstance(one, GMRConv2d)}
    if not rings:
        raise ValueError(f"{trained.label} has no GMRConv2d layer: this figure is of ring convolutions of images")
    name, layer = layer_named(trained.network, request.layer, 0)
    if isinstance(layer, GMRConv2d):
        return layer, trained
    if request.layer is None:
        return next(iter(rings.values())), trained
    raise ValueError(f"{name} is a {type(layer).__name__}; ring convolutions of images are {', '.join(rings)}")


def kernel(request: Request) -> Figure:
    return build.kernel_from_rings(_ring_layer(request)[0], in_channel=request.channel or 0)


def two_steps(request: Request) -> Figure:
    layer, trained = _ring_layer(request)
    patches = load_textures("test", 1, request.seed).view()
    if trained is None:
        return build.two_steps(layer, patches[:, 0])
    network: nn.Module = trained.network
    with recorded(layer, what="input") as inputs, torch.inference_mode():
        network(patches[1].expand(1, trained.channels, -1, -1).to(dtype_of(network)))
    return build.two_steps(layer, inputs[0][0].clone())


def learned_kernels(request: Request) -> Figure:
    return kernels.learned_kernels(_one_network(request).network, seed=request.seed)


def correlations(request: Request) -> Figure:
    found = {}
    for trained in read_networks(request.paths, request.names):
        name, layer = layer_named(trained.network, request.layer, 1)
        found[f"{trained.label}\n{name}"] = layer
    return kernels.kernel_correlations(found, request.channel or 0)


def errors_by_angle(request: Request) -> Figure:
    found = {}
    networks = read_networks(request.paths, request.names)
    for done, (trained, x) in enumerate(_inputs(networks, request), 1):
        found[trained.label] = equivariance_error(trained.network, x, range(0, 361, 15), reflections=False)
        if request.report is not None:
            request.report("measure", done, len(networks))
    return symmetry.error_against_angle(found)


def errors_by_depth(request: Request) -> Figure:
    networks = read_networks(request.paths, request.names)
    return symmetry.error_against_depth(
        {trained.label: audit(trained.network, x, progress=request.report) for trained, x in _inputs(networks, request)}
    )


def _inputs(networks: Sequence[Trained], request: Request) -> list[tuple[Trained, Tensor]]:
    """Images of a data set if one is named, else smooth noise, which can be turned without an error of its own."""
    count = request.images or 2
    if request.data is not None:
        shown = _shown(networks, request, count)
        return [(trained, trained.prepared(shown.images, shown.data)) for trained in networks]
    found = []
    for trained in networks:
        size = trained.info.size
        dtype = dtype_of(trained.network)
        noise = band_limited_noise(size, channels=trained.channels, batch=count, seed=request.seed, dtype=dtype)
        found.append((trained, noise))
    return found


# -- networks and images


def _shown(networks: Sequence[Trained], request: Request, count: int = 1, image: int | None = None) -> Shown:
    return images_for(
        networks, request.data, root=request.root, split=request.split, count=request.images or count,
        seed=request.seed, image=image, progress=request.report,
    )  # fmt: skip


def clusters(request: Request) -> Figure:
    networks = read_networks(request.paths, request.names)
    found = embeddings.find_clusters(networks, _shown(networks, request, 150), seed=request.seed)
    return embeddings.clusters(found)


def feature_maps(request: Request) -> Figure:
    networks = read_networks(request.paths, request.names)
    shown = _shown(networks, request, image=request.image)
    (image,) = shown.images
    maps = [
        features.feature_maps_of(trained, image, shown.data, layer=request.layer, channel=request.channel)
        for trained in networks
    ]
    return features.feature_maps(image, maps)


def changed_answers(request: Request) -> Figure:
    networks = read_networks(request.paths, request.names)
    return changes.changed_answers(changes.find_answers(networks, _shown(networks, request, 200)))
