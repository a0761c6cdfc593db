"""Registers and shared memory that the Triton kernels take on a GPU, found by compiling for it; none need be there."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ringconv._extras import needs
from ringconv.ops.gpu.blocks import Blocks, Task, chosen
from ringconv.ops.gpu.calls import Call, basis_call, maps_call, weight_call
from ringconv.ops.gpu.taps import taps_of
from ringconv.rings import RingGeometry

TASKS: tuple[Task, ...] = ("maps", "weight", "basis")


class Resources(NamedTuple):
    """What one kernel takes of a multiprocessor."""

    registers: int
    """Per thread, of 255."""
    spilled: int
    """Bytes per thread that did not fit registers."""
    shared: int
    """Bytes of shared memory per program."""


def kernel_resources(
    task: Task, kernel_size: int, c_in: int, c_out: int, dtype: torch.dtype, capability: int,
    blocks: Blocks | None = None, *, dimensions: int = 2,
) -> Resources:  # fmt: skip
    """Compile a kernel as it would be launched for a layer and a GPU.

    Args:
        capability: 80 for an A100, 86 for an RTX A5000, 90 for an H100.
        blocks: default: by the rule.
    """
    geometry = RingGeometry((kernel_size,) * dimensions)
    blocks = blocks or chosen(task, geometry.rings, c_in, c_out)
    return _compiled(_example(task, geometry, c_in, c_out, dtype, blocks), capability)


def _example(task: Task, geometry: RingGeometry, c_in: int, c_out: int, dtype: torch.dtype, blocks: Blocks) -> Call:
    side = 16  # sizes enter as numbers, so any that is a multiple of 16 gives the same code
    tables = geometry.tables(torch.float32)
    axes, rings, orbits = len(geometry.kernel_size), geometry.rings, len(tables.taps_per_orbit)
    padding = [k // 2 for k in geometry.kernel_size for _ in range(2)]
    taps = taps_of(tables.orbit_of_tap, orbits, geometry.kernel_size, padding, (1,) * axes)
    x = torch.empty((2, c_in) + (side,) * axes, dtype=dtype, device="meta")
    y = torch.empty((2, c_out) + (side,) * axes, dtype=dtype, device="meta")
    basis = torch.empty(rings, orbits, device="meta")
    if task == "maps":
        weight = torch.empty(rings, c_in, c_out, dtype=dtype, device="meta")
        return maps_call(x, weight, basis, None, taps.offsets, taps.starts, y, blocks)
    if task == "weight":
        return weight_call(x, y, basis, taps, blocks)[0]
    return basis_call(x, y, torch.empty(rings, c_out, c_in, dtype=dtype, device="meta"), orbits, taps, blocks)[0]


def _compiled(call: Call, capability: int) -> Resources:
    from ringconv.ops.gpu import kernels

    with _compiling_for(capability):
        compiled = getattr(kernels, call.kernel).warmup(*call.arguments, grid=call.grid, **call.options)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        command = [needs("triton", "gpu").knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage))
    return Resources(int(found["REG"]), int(found["STACK"]) + int(found["LOCAL"]), compiled.metadata.shared)


@contextlib.contextmanager
def _compiling_for(capability: int) -> Iterator[None]:
    """Triton asks its driver what to compile for; here one that only knows the answer."""
    target = needs("triton.backends.compiler", "gpu").GPUTarget("cuda", capability, 32)
    driver = needs("triton.runtime.driver", "gpu").driver

    class CompileOnly:
        def get_current_device(self) -> int:
            return capability  # code for different targets must not share a cache

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return target

    before = driver._active
    driver.set_active(CompileOnly())
    try:
        yield
    finally:
        driver._active = before
