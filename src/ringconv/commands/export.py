"""``ringconv export``."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from tyro.conf import Positional

from ringconv import deploy
from ringconv._extras import needs
from ringconv.commands._checkpoint import Loaded, check_file, load_checkpoint
from ringconv.commands._terminal import progress_bars, terminal, usage_errors
from ringconv.deploy import calibration
from ringconv.fold import FORMS, Form
from ringconv.training.run_data import with_classes_of

Format = Literal["onnx", "pt2", "aoti"]

_ENDINGS = {"onnx": ".onnx", "pt2": ".pt2", "aoti": ".aoti.pt2"}


def export(
    checkpoint: Positional[Path],
    /,
    format: Format = "onnx",
    form: Form = "factored",
    out: Path | None = None,
    size: int | None = None,
    fixed_size: bool = False,
    latency: bool = True,
    quantize: Literal["none", "dynamic", "static"] = "none",
    data: str | None = None,
    data_options: tuple[str, ...] = (),
    images: tuple[Path, ...] = (),
    most_images: int = 512,
) -> None:
    """Write a checkpoint for other runtimes, which need no ringconv.

    Ring convolutions become ordinary ones and BatchNorm is folded into them. onnx: one file for onnxruntime and others,
    checked against the network on three sizes. pt2: torch.export.load(FILE).module() runs it wherever there is torch.
    aoti: compiled for this kind of machine, for Python or C++ (torch._inductor.aoti_load_package); it takes minutes.

    Batch and image size stay free, and outputs are equal at every size (pt2 and aoti: that leaves every map more than
    one pixel). With --fixed-size only the batch is free.

    A ring convolution in the form dense is one convolution; factored is a depthwise convolution and a 1x1, which is
    much faster for large kernels. For onnx the latency of both is measured.

    8 bits, with the accuracy they cost: ringconv export net.safetensors --quantize static --data nwpu10.npz

    8 bits, without labels: ringconv export net.safetensors --quantize static --images slides/

    Args:
        checkpoint: File written by training or by ringconv.models.save_model.
        format: Kind of file.
        form: What a ring convolution becomes.
        out: File to write; default beside the checkpoint. Quantised files have .int8 in their name as well.
        size: Side of the images that it is checked and timed on; default the checkpoint's own.
        fixed_size: Fix the size of images instead of leaving it free.
        latency: Measure how long both forms take for one image in onnxruntime (onnx only).
        quantize: Also write a file with 8-bit weights and activations (onnx only). dynamic takes ranges from each
            input, static once from images, and is faster.
        data: Data set with labels to calibrate and test on: an npz in the layout of MedMNIST, or what ringconv data
            lists.
        data_options: How the data is read, as name=value, such as per_class=50; default as in training.
        images: Image files and folders to calibrate on instead; then the share of equal answers is reported.
        most_images: Up to so many images to calibrate on, and to test on.
    """
    console = terminal()
    with usage_errors():
        if quantize != "none" and format != "onnx":
            raise ValueError(f"quantisation is for onnx, not for {format}: give --format onnx")
        if quantize != "none" and data is None and not images:
            raise ValueError("quantisation needs images to calibrate or to compare on: give --data or --images")
        loaded = load_checkpoint(checkpoint, "cpu")
        loaded.network.float()  # whatever it was trained in: other runtimes have little else
        example = _example(loaded, size)
        path = out or checkpoint.with_name(checkpoint.stem + _ENDINGS[format])
        check_file(path)
    free = not fixed_size
    with usage_errors(), console.status(f"Writing {path.name}"):
        if format == "pt2":
            deploy.export_program(loaded.network, path, example, form, free_sizes=free)
        elif format == "aoti":
            deploy.export_aoti(loaded.network, path, example, form, free_sizes=free)
        else:
            deploy.export_onnx(loaded.network, path, example, form, free_sizes=free, metadata=_metadata(loaded))
    sizes = "at this size, any batch" if fixed_size else "any size and batch"
    console.print(f"{form}, {path.stat().st_size / 1e6:.1f} MB, {sizes}: {path}", soft_wrap=True)
    if format != "onnx":
        return
    if latency:
        _report_latency(console, loaded, path, form, example, free)
    if quantize != "none":
        with usage_errors(), progress_bars(console) as progress:
            found = _calibration(loaded, data, data_options, images, most_images, progress)
        _report_quantization(console, path, quantize, found, example)


def _example(loaded: Loaded, size: int | None) -> Tensor:
    """(1, C, *S) of noise."""
    sides = (size,) * loaded.info.dimensions if size else loaded.info.size
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, deploy.input_channels(loaded.network), *sides, generator=generator)


def _metadata(loaded: Loaded) -> dict[str, str]:
    """What whoever runs the file needs to know, as in the checkpoint."""
    prepared = loaded.preprocessing
    return {
        "ringconv": json.dumps(
            {
                "name": loaded.info.name,
                "class_names": list(loaded.info.class_names),
                "preprocessing": None if prepared is None else asdict(prepared),
            }
        )
    }


def _report_latency(console: Any, loaded: Loaded, path: Path, form: Form, example: Tensor, free: bool) -> None:
    other = next(name for name in FORMS if name != form)
    with tempfile.TemporaryDirectory() as folder, console.status(f"Timing both forms on {tuple(example.shape[2:])}"):
        beside = deploy.export_onnx(loaded.network, Path(folder) / "other.onnx", example, other, free_sizes=free)
        seconds = deploy.latencies({form: path, other: beside}, example.numpy())
    table = needs("rich.table", "deploy").Table()
    table.add_column("one image in onnxruntime")
    table.add_column("median, ms", justify="right")
    for name in FORMS:
        table.add_row(name + (" (written)" if name == form else ""), f"{1e3 * seconds[name]:.2f}")
    console.print(table)


def _calibration(
    loaded: Loaded, data: str | None, options: tuple[str, ...], images: tuple[Path, ...], most: int, progress: Any
) -> calibration.Calibration:
    prepared = loaded.preprocessing
    if data is None:
        channels = deploy.input_channels(loaded.network)
        return calibration.from_images(deploy.find_images(images), prepared, channels, most)
    opened = loaded.open_data(data, options, progress)
    return calibration.from_data(with_classes_of(loaded.info.class_names, opened), prepared, most)


def _report_quantization(
    console: Any, path: Path, mode: deploy.Quantization, found: calibration.Calibration, example: Tensor
) -> None:
    small = path.with_suffix(".int8.onnx")
    with console.status(f"Writing {small.name}"):
        deploy.quantize_onnx(path, small, mode, found.calibration)
        cost = deploy.quantization_cost(path, small, found.test, found.labels)
        seconds = deploy.latencies({"float": path, "int8": small}, example.numpy())
    console.print(f"int8, {mode}, {small.stat().st_size / 1e6:.1f} MB: {small}", soft_wrap=True)
    console.print(f"{100 * cost.agreement:.1f}% of {cost.images} images keep their class", end="")
    if cost.accuracy is not None:
        before, after = (100 * share for share in cost.accuracy)
        console.print(f"; accuracy {before:.1f}% before, {after:.1f}% after", end="")
    console.print(f"; {1e3 * seconds['float']:.2f} ms before, {1e3 * seconds['int8']:.2f} ms after.")
