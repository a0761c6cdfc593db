"""What this process runs on, and the most memory that it held."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def forget_peak() -> bool:
    """Count from now on, not from the start of the process. Only Linux can; elsewhere the peak stays what it was.

    Returns:
        Whether it was forgotten.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        # Otherwise what an earlier network left free would count for the next one.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    if _CLEAR.exists():
        with contextlib.suppress(OSError):  # not allowed in some containers
            _CLEAR.write_text("5")
            return True
    return False


def peak_bytes() -> int | None:
    """Resident memory at its peak; None where the system does not tell."""
    if _STATUS.exists():
        return _status_bytes("VmHWM")
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_bytes_without_peak() -> int | None:
    """What is resident, with the peak forgotten; where it cannot be forgotten, the peak so far."""
    return _status_bytes("VmRSS") if forget_peak() else peak_bytes()


def _status_bytes(field: str) -> int | None:
    for line in _STATUS.read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return 1024 * int(value.split()[0])
    return None
