"""How much memory a training step takes: what it saves for its backward pass, and its peak in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ringconv import _machine


def saved_bytes(model: nn.Module, x: Tensor) -> int:
    """Bytes that ``model(x)`` keeps for its backward pass.

    A storage counts once and as a whole, however many saved tensors lie in it. What the model holds anyway,
    parameters, buffers and constants, does not count; the input does.
    """
    # Storages are told apart by their objects, not by their data, which tensors without values do not have.
    constants = (value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor))
    held = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers(), *constants)}
    saved: dict[int, torch.UntypedStorage] = {}  # the storages, not their sizes: a freed address could come back

    def pack(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in held:
            saved[storage._cdata] = storage

    def unpack(packed: None) -> Tensor:
        raise RuntimeError("this graph is for counting: it kept nothing to go backward with")

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        model(x)
    return sum(storage.nbytes() for storage in saved.values())


def peak_bytes(work: Callable[[], object]) -> int:
    """By how much the process grows, at its peak, while it does ``work``; meaningful in a fresh process only.

    Where the system's mark cannot be reset, it is the growth of that mark, which a child process inherits from its
    parent on Linux: there it hides a step smaller than the parent.
    """
    before = _machine.resident_bytes_without_peak()
    work()
    after = _machine.peak_bytes()
    if before is None or after is None:
        raise RuntimeError("this system does not tell the memory of a process")
    return after - before


def cuda_peak_bytes(step: Callable[[], object]) -> int:
    """The most that torch's allocator holds on the GPU in the second of two steps: tensors, not the reserved blocks.

    The network and its input are held before and count too; the first step leaves gradients and momenta beside them.
    """
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def in_fresh_process(module: str, arguments: Sequence[str]) -> str:
    """What ``python -m module arguments`` writes, with as many threads as this process."""
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout
