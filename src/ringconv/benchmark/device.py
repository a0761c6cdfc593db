"""What differs between timing on the CPU and on a GPU: where things are built, the clock, and what a file states."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

DeviceName = Literal["cpu", "cuda"]
CudnnChoice = Literal["paper", "fast"]

_CUDNN: dict[str, dict[str, bool]] = {
    "paper": {"benchmark": False, "deterministic": True},
    "fast": {"benchmark": True, "deterministic": False},
}


class Device:
    """The CPU."""

    warmup = 1
    """Calls of each candidate that are not timed."""
    has_memory_counters = False

    def building(self) -> contextlib.AbstractContextManager[Any]:
        """New tensors and layers are made on the device in here; not for timed code, which it would slow down."""
        return torch.device("cpu")

    def time(self, call: Callable[[], object]) -> float:
        """The seconds that a call takes; what it returns is freed within them."""
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def settings(self) -> contextlib.AbstractContextManager[Any]:
        """What is set while the device is timed, and put back after."""
        return contextlib.nullcontext()

    def columns(self) -> dict[str, Any]:
        """Of the CSV file, beyond those that state the CPU."""
        return {}


CPU = Device()


class Gpu(Device):
    """The present CUDA device.

    A call is timed from event to event on its stream, so that what the host takes to launch counts only where the
    device had to wait for it.

    Args:
        cudnn: ``"paper"``: benchmark off, deterministic on; ``"fast"``: the opposite, which lets cudnn and the Triton
            kernels try what is fastest for a shape, in the warm-up.
    """

    warmup = 3
    has_memory_counters = True

    def __init__(self, cudnn: CudnnChoice = "paper") -> None:
        if cudnn not in _CUDNN:
            raise ValueError(f"cudnn must be one of {', '.join(_CUDNN)}, got {cudnn!r}")
        if not torch.cuda.is_available():
            raise ValueError(
                f"device 'cuda' needs a GPU and a torch built for it; torch {torch.__version__} finds none"
                " (torch.cuda.is_available() is False). Use device 'cpu'."
            )
        self.cudnn = cudnn

    def building(self) -> contextlib.AbstractContextManager[Any]:
        return torch.device("cuda")

    def time(self, call: Callable[[], object]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        with torch.backends.cudnn.flags(enabled=True, **_CUDNN[self.cudnn]):
            yield

    def columns(self) -> dict[str, Any]:
        return {
            "device": torch.cuda.get_device_name(),
            "capability": ".".join(map(str, torch.cuda.get_device_capability())),
            "cuda": torch.version.cuda or torch.version.hip,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "cudnn_settings": self.cudnn,
        }


def device_named(name: DeviceName, cudnn: CudnnChoice = "paper") -> Device:
    """ "cpu" or "cuda"."""
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', got {name!r}")
    return Gpu(cudnn) if name == "cuda" else CPU
