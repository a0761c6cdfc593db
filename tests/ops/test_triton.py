"""The fused kernels for GPUs, as far as a machine without one can tell: interpreted, compiled, chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ringconv import GMRConv1d, GMRConv2d, GMRConv3d
from ringconv.ops import choice, fused_conv
from ringconv.ops.gpu import launch
from ringconv.ops.gpu.blocks import MOST_RINGS, Blocks, chosen, to_try
from ringconv.ops.gpu.calls import Problem
from ringconv.ops.gpu.resources import TASKS, kernel_resources
from ringconv.ops.gpu.taps import taps_of
from ringconv.rings import RingGeometry

needs_triton = pytest.mark.skipif(not choice.TRITON_IS_THERE, reason="Triton is not installed")
INTERPRETED = Path(__file__).with_name("triton_interpreted.py")


@needs_triton
def test_interpreted_kernels_match_the_reference() -> None:
    """See triton_interpreted.py: a process of its own, since the interpreter is chosen when Triton is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(INTERPRETED)]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


# -- compiled for GPUs that are not there


@needs_triton
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("task", TASKS)
def test_compiles_within_registers_and_shared_memory(task, capability, tmp_path, monkeypatch) -> None:
    """The smallest GPU of these families lets a program have 99 kB of shared memory (sm86)."""
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    for dtype in (torch.float32, torch.float16):
        used = kernel_resources(task, 9, 128, 128, dtype, capability)
        blocks = chosen(task, 5, 128, 128)
        sys.stdout.write(f"sm{capability} {task} {dtype} {blocks}: {used}\n")
        assert used.registers <= 255
        assert used.spilled == 0
        assert 0 < used.shared <= 99 << 10


@needs_triton
def test_compiles_for_volumes_and_the_most_rings(tmp_path, monkeypatch) -> None:
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    assert kernel_resources("maps", 3, 16, 24, torch.bfloat16, 80, dimensions=3).spilled == 0
    assert kernel_resources("weight", 2 * MOST_RINGS - 1, 64, 64, torch.bfloat16, 80).spilled < 256


@pytest.mark.parametrize("task", TASKS)
def test_there_are_tiles_for_every_layer(task) -> None:
    for rings in range(1, MOST_RINGS + 1):
        for c_in, c_out in ((1, 1), (3, 64), (64, 3), (100, 100), (512, 512)):
            tried = to_try(task, rings, c_in, c_out)
            assert chosen(task, rings, c_in, c_out) in tried
            assert len(tried) <= 8
            for blocks in tried:
                assert blocks.in_channels == 16 or blocks.in_channels < 2 * c_in
                assert blocks.out_channels == 16 or blocks.out_channels < 2 * c_out


def test_the_fastest_tile_is_kept(monkeypatch) -> None:
    testing = pytest.importorskip("triton.testing")
    slow, fast = Blocks(32, 16, 16, 4), Blocks(64, 16, 16, 4)
    ran: list[Blocks] = []

    def pretend(run, **_) -> float:
        run()
        return {slow: 2.0, fast: 1.0}[ran[-1]]

    monkeypatch.setattr(testing, "do_bench", pretend)
    assert launch.fastest_blocks(ran.append, [slow, fast]) == fast
    assert ran == [slow, fast]


def test_taps_are_kept_with_the_layer() -> None:
    table = RingGeometry((3, 3)).tables().orbit_of_tap
    first = taps_of(table, 3, (3, 3), (1, 1, 1, 1), (1, 1))
    assert taps_of(table, 3, (3, 3), (1, 1, 1, 1), (1, 1)) is first
    other = taps_of(table, 3, (3, 3), (2, 2, 0, 0), (1, 1))
    assert first.starts.tolist() == [0, 1, 5, 9]
    assert first.offsets[0].tolist() == [0, 0, 0]
    assert (other.offsets - first.offsets).unique(dim=0).tolist() == [[0, -1, 1]]
    assert torch.equal(other.backward, -other.offsets)


# -- chosen on CUDA tensors


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name().partition(".")[0])
        return func(*args, **(kwargs or {}))


@pytest.fixture
def on_gpu(monkeypatch):
    """Tensors that say they are on a GPU and hold nothing: they show which operators run, and the outputs' shapes."""
    monkeypatch.setattr(choice, "TRITON_IS_THERE", True)
    with FakeTensorMode():
        yield {"device": "cuda", "bias": False}  # a bias would be initialised with a generator of that device


def method(layer, *size: int, dtype: torch.dtype = torch.float32) -> str:
    return layer._method_for(torch.empty(size, dtype=dtype, device=layer.weight.device))


def test_auto_takes_the_kernel_where_it_covers_the_layer(on_gpu) -> None:
    assert method(GMRConv2d(8, 6, 9, padding=4, **on_gpu), 1, 8, 9, 9) == "fused"
    assert method(GMRConv1d(8, 6, 9, **on_gpu), 1, 8, 19) == "fused"
    assert method(GMRConv3d(8, 6, 3, dilation=2, **on_gpu), 1, 8, 9, 9, 9) == "fused"
    for dtype in (torch.float16, torch.bfloat16):
        assert method(GMRConv2d(8, 6, 9, **on_gpu, dtype=dtype), 1, 8, 9, 9, dtype=dtype) == "fused"
    assert method(GMRConv2d(8, 6, 1, **on_gpu), 1, 8, 9, 9) == "dense"
    assert method(GMRConv2d(8, 8, 9, groups=8, **on_gpu), 1, 8, 9, 9) == "dense"
    assert method(GMRConv2d(8, 6, 9, sigma="channel", **on_gpu), 1, 8, 9, 9) == "dense"


@pytest.mark.parametrize("asked", ["auto", "fused"])
def test_what_the_kernel_does_not_cover_is_factored(on_gpu, asked) -> None:
    for options in (
        {"stride": 2},
        {"groups": 2},
        {"padding_mode": "reflect"},
        {"kernel_size": 2 * MOST_RINGS + 1},
    ):
        layer = GMRConv2d(8, 6, **{"kernel_size": 9, "padding": 4, "method": asked} | on_gpu | options)
        assert method(layer, 1, 8, 9, 9) == "factored", options
    double = GMRConv2d(8, 6, 9, **on_gpu, dtype=torch.float64, method=asked)
    assert method(double, 1, 8, 9, 9, dtype=torch.float64) == "factored"


def test_without_triton_it_is_factored(on_gpu, monkeypatch) -> None:
    monkeypatch.setattr(choice, "TRITON_IS_THERE", False)
    for asked in ("auto", "fused"):
        assert method(GMRConv2d(8, 6, 9, **on_gpu, method=asked), 1, 8, 9, 9) == "factored"


def test_a_layer_on_a_gpu_runs_the_operator(on_gpu) -> None:
    layer = GMRConv2d(8, 6, 5, padding=2, **on_gpu)
    x = torch.empty(2, 8, 9, 10, device="cuda", memory_format=torch.channels_last)
    with torch.no_grad(), Names() as names:
        y = layer(x)
    assert (y.shape, y.device.type) == ((2, 6, 9, 10), "cuda")
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert "ringconv::ring_conv" in names.seen
    assert "aten::convolution" not in names.seen


def test_both_operators_have_a_kernel_for_gpus() -> None:
    for operator in ("ringconv::ring_conv", "ringconv::ring_conv_backward"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA")


def test_autocast_on_a_gpu_casts_what_a_convolution_would(on_gpu, monkeypatch) -> None:
    layer = GMRConv2d(8, 6, 5, padding=2, **on_gpu)
    x = torch.empty(2, 8, 9, 10, device="cuda")
    # torch turns autocast off for a device that is not there, so its answers are given here.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float16)
    values = torch.empty(layer.rings, len(layer._taps_per_orbit), device="cuda")
    assert layer._method_for(x) == "fused"
    with torch.no_grad():
        y = fused_conv(x, layer.weight, values, None, layer._orbit_of_tap, (5, 5), layer._options)
    assert y.dtype == torch.float16


# -- imported by nobody who does not need it


def in_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_kernels_are_not_imported_with_the_package() -> None:
    code = """
import sys, torch, ringconv
ringconv.GMRConv2d(3, 4, 5, padding=2)(torch.randn(1, 3, 6, 6)).sum().backward()
print("ringconv.ops.gpu.kernels" in sys.modules)
"""
    assert in_new_process(code) == "False"


def test_the_package_works_without_triton() -> None:
    code = """
import sys
sys.modules["triton"] = None
import torch, ringconv
from ringconv.ops import choice, fused_conv
print(choice.TRITON_IS_THERE, tuple(ringconv.GMRConv2d(3, 4, 5)(torch.randn(1, 3, 6, 6)).shape))
"""
    assert in_new_process(code) == "False (1, 4, 2, 2)"


def test_more_positions_than_the_kernels_can_count_are_refused() -> None:
    x = torch.empty(1, 1, 1)
    for sites, fits in ((2**31 - 2**24, True), (2**31 - 1, False)):
        problem = Problem("forward", 3, 1, 1, sites)
        if fits:
            assert launch._run(problem, lambda blocks: blocks, x) == chosen(*problem[:4])
        else:
            with pytest.raises(ValueError, match=f"counts positions in 32 bits, got {sites}: use smaller batches"):
                launch._run(problem, lambda blocks: blocks, x)
