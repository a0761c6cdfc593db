"""The GPU's side of the benchmark, without one: what is asked of torch, and what reaches the table and the file."""

import csv

import pytest
import torch
import tyro

from ringconv.benchmark import bench
from ringconv.benchmark.device import Device, Gpu, device_named
from ringconv.commands._terminal import UsageError
from ringconv.commands.bench import bench as bench_command


@pytest.fixture
def pretended_gpu(monkeypatch):
    """torch.cuda's answers, given by the CPU: the time of a call is what its events were told to be."""
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("record")

        def synchronize(self) -> None:
            log.append("wait for event")

        def elapsed_time(self, end: "Event") -> float:
            return 2.5

    answers = {
        "is_available": lambda: True,
        "Event": Event,
        "synchronize": lambda: log.append("synchronize"),
        "get_device_name": lambda: "Pretended GPU",
        "get_device_capability": lambda: (8, 0),
        "reset_peak_memory_stats": lambda: log.append("reset peak"),
        "max_memory_allocated": lambda: 12_345_678,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91000)
    monkeypatch.setattr(Gpu, "building", Device.building)
    return log


def test_without_a_gpu_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"needs a GPU and a torch built for it; torch .* finds none"):
        bench(device="cuda", quick=True, directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_takes_the_options_and_needs_no_traceback(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ["--device", "cuda", "--cudnn", "fast", "--quick", "--directory", str(tmp_path)]
    with pytest.raises(UsageError, match="needs a GPU"):
        tyro.cli(bench_command, args=arguments)


def test_a_call_is_timed_from_event_to_event(pretended_gpu):
    gpu = Gpu()
    assert gpu.time(lambda: pretended_gpu.append("call")) == 2.5e-3
    assert pretended_gpu == ["synchronize", "record", "call", "record", "wait for event"]
    assert gpu.warmup > Device().warmup


@pytest.mark.parametrize(("choice", "tries"), [("paper", False), ("fast", True)])
def test_cudnn_is_set_as_asked_and_put_back(pretended_gpu, choice, tries):
    cudnn = torch.backends.cudnn
    before = (cudnn.benchmark, cudnn.deterministic, cudnn.enabled)
    with Gpu(choice).settings():
        assert (cudnn.benchmark, cudnn.deterministic, cudnn.enabled) == (tries, not tries, True)
    assert (cudnn.benchmark, cudnn.deterministic, cudnn.enabled) == before


def test_unknown_choices():
    with pytest.raises(ValueError, match="cudnn must be one of paper, fast, got 'best'"):
        Gpu("best")
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda', got 'tpu'"):
        device_named("tpu")


def test_a_whole_run_on_the_pretended_gpu(pretended_gpu, tmp_path, capsys):
    path = bench(
        suite="speed", device="cuda", quick=True, peers=("torch", "auto", "gemm"), directory=tmp_path, plot=False
    )
    assert path.name.startswith("speed-cuda-quick-")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["median_ms"] for row in rows} == {"2.5"}
    assert {row["device"] for row in rows} == {"Pretended GPU"}
    assert {row["cudnn_settings"] for row in rows} == {"paper"}
    assert {row["capability"] for row in rows} == {"8.0"}
    shown = capsys.readouterr().out
    assert "Pretended GPU, CUDA 12.8, cudnn settings: paper" in shown
    assert "torch / ours" in shown


def test_memory_of_networks_is_read_from_torchs_counters(pretended_gpu, tmp_path):
    path = bench(suite="models", device="cuda", quick=True, peers=("gmr_resnet18",), directory=tmp_path)
    with path.open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["mode"] == "memory"]
    assert row["peak_bytes"] == "12345678"
    assert int(row["saved_bytes"]) > 0
    last = len(pretended_gpu) - 1 - pretended_gpu[::-1].index("reset peak")
    assert pretended_gpu[last - 1 :] == ["synchronize", "reset peak", "synchronize"]


def test_tensors_are_made_on_the_device_that_is_asked_for():
    """With a device that needs no driver in the place of a GPU."""
    from ringconv.benchmark.cases import Case
    from ringconv.benchmark.peers import prepare

    with torch.device("meta"):
        x = Case(2, 8, 8, (6, 6), 3).input()
        calls, reasons = prepare(["torch", "factored", "gemm"], Case(2, 8, 8, (6, 6), 3), "training")
    assert x.device.type == "meta"
    assert not reasons
    assert all(gradient.is_meta for name in ("torch", "factored") for gradient in calls[name]())
