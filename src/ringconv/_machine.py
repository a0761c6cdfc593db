"""The most memory that this process held."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Count from now on, not from the start of the process. Only Linux can; elsewhere the peak stays what it was."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        # Otherwise what an earlier network left free would count for the next one.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    if _CLEAR.exists():
        with contextlib.suppress(OSError):  # not allowed in some containers
            _CLEAR.write_text("5")


def peak_bytes() -> int | None:
    """Resident memory at its peak; None where the system does not tell."""
    if _STATUS.exists():
        for line in _STATUS.read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return 1024 * int(value.split()[0])
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
