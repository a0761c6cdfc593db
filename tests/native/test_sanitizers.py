"""The kernel's own tests once more, on a build that stops at any access out of bounds and any undefined behaviour.

In that build the parts of a workspace are kept apart by forbidden gaps and start as NaN, so that reading what was never
written shows in the results. The wide vectors are built for AVX2, so that they run here too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringconv
from ringconv.ops.native import LIBRARY_VARIABLE

SOURCE = Path(ringconv.__file__).parent / "ops" / "native" / "ring_conv.c"
TESTS = [Path(__file__).parent.parent / "ops" / name for name in ("test_fused.py", "test_fused_harmonic.py")]

# What traces or compiles calls the kernel no differently, and is slow under the sanitizer.
SELECTION = "not compile and not export and not opcheck"


def runtime(name: str) -> str:
    """A sanitizer's library; python itself is not built with it, so it has to be loaded first."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None or sys.platform != "linux", reason="needs gcc on linux")
def test_clean_under_sanitizers(tmp_path: Path) -> None:
    if not os.path.isabs(runtime("libasan.so")):
        pytest.skip("gcc comes without its sanitizers")
    library = tmp_path / "_ring_conv.so"
    flags = ["-O0", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Wno-psabi", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DRING_CONV_NARROW_AVX512"]
    subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(library)], check=True)
    environment = os.environ | {
        LIBRARY_VARIABLE: str(library),
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # Python frees little at exit.
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", SELECTION, *map(str, TESTS)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert " passed" in result.stdout
    assert "avx512" not in result.stdout  # nothing was skipped for want of it
