"""The compiled ring convolution: finding it, describing a convolution to it, calling it.

Everything here is plain sizes and arrays; :mod:`ringconv.ops.fused` makes torch operators of it.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LIBRARY_VARIABLE = "RINGCONV_LIBRARY"
"""Environment variable that names another build of the library, for instance one with a sanitizer."""

_INTERFACE = 1
"""RING_CONV_INTERFACE of native/ring_conv.h"""

_Int32Array = NDArray[np.int32]
_int32_pointer = ctypes.POINTER(ctypes.c_int32)


class _Pass(ctypes.Structure):
    """struct ring_pass of ring_conv.h"""

    _fields_ = (
        ("rings", ctypes.c_int32),
        ("orbits", ctypes.c_int32),
        ("classes", ctypes.c_int32),
        ("target", ctypes.c_int32 * 3),
        ("source", ctypes.c_int32 * 3),
        ("step", ctypes.c_int32 * 3),
        ("span", ctypes.c_int32),
        ("source_of", _int32_pointer * 3),
        ("class_start", _int32_pointer),
        ("row_offset", _int32_pointer),
        ("orbit_start", _int32_pointer),
        ("entry_class", _int32_pointer),
        ("entry_offset", _int32_pointer),
    )


class _Maps(ctypes.Structure):
    """struct ring_maps"""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("channels", ctypes.c_int64),
        ("bfloat16", ctypes.c_int32),
        ("channels_last", ctypes.c_int32),
    )


class _Mixing(ctypes.Structure):
    """struct ring_mixing"""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("basis", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("threads", ctypes.c_int32),
    )


class _Pairs(ctypes.Structure):
    """struct ring_pairs"""

    _fields_ = (("odd", ctypes.c_int32), ("even", ctypes.c_int32), ("order", _int32_pointer))


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or None and the reason."""
    here = Path(__file__).parent.parent
    named = os.environ.get(LIBRARY_VARIABLE)
    # The name that setuptools gave it: a library of another Python may lie beside it.
    path = Path(named) if named else here / f"_ring_conv{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not path.exists():
        return None, f"ringconv was installed without its compiled kernel (there is no {path})"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"the compiled kernel {path} does not load: {error}"
    interface = library.ring_conv_interface() if hasattr(library, "ring_conv_interface") else 0
    if interface != _INTERFACE:
        return None, f"the compiled kernel {path} is of another version of ringconv; install ringconv again"
    for name in ("ring_conv_forward", "ring_conv_backward"):
        getattr(library, name).restype = ctypes.c_int
    library.ring_conv_instruction_set.restype = ctypes.c_char_p
    library.ring_conv_instruction_set.argtypes = [ctypes.c_char_p]
    library.ring_conv_share_threads.argtypes = [ctypes.c_void_p]
    # Torch has brought its OpenMP library into the process. A second pool of threads would fight with that one.
    gomp_parallel = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    library.ring_conv_share_threads(ctypes.cast(gomp_parallel, ctypes.c_void_p) if gomp_parallel else None)
    return library, ""


def available() -> bool:
    """Whether the compiled kernel is there."""
    return _load()[0] is not None


def harmonics_available() -> bool:
    """Whether it also has the harmonics, which a library built from older sources has not."""
    library = _load()[0]
    return library is not None and hasattr(library, "ring_harmonics_forward")


def why_unavailable() -> str:
    """Why it is not; empty if it is."""
    return _load()[1]


def instruction_set(name: str | None = None) -> str:
    """The instruction set in use, or "auto": the widest that the channels fill.

    With a name ("baseline", "avx2", "avx512", "auto") switch to it; to "auto" if this machine does not have it.
    """
    chosen: bytes = _library().ring_conv_instruction_set(None if name is None else name.encode())
    return chosen.decode()


def _library() -> ctypes.CDLL:
    library, reason = _load()
    if library is None:
        raise RuntimeError(f"method 'fused' is not available: {reason}; use method 'factored'")
    return library


@dataclass(frozen=True)
class Geometry:
    """A ring convolution but for its batch and channels. One value per axis, 1 to 3 axes; padding has two."""

    orbit_of_tap: bytes
    """(taps,) int64"""
    orbits: int
    rings: int
    source: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    """begin and end of the first axis, of the second, ..."""
    dilation: tuple[int, ...]
    padding_mode: str = "zeros"
    of_harmonics: bool = False
    """Then ``orbit_of_tap`` names the taps (half of them, int64) that are followed by their opposites, and ``rings``
    counts pairs of kernels."""

    @property
    def target(self) -> tuple[int, ...]:
        """Output positions per axis."""
        sizes = output_size(self.source, self.kernel_size, self.stride, self.padding, self.dilation)
        if min(sizes) < 1:
            raise ValueError(
                f"the kernel {self.kernel_size} with dilation {self.dilation} is larger than the padded input:"
                f" size {self.source}, padding {self.padding}"
            )
        return sizes


def output_size(
    source: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Output positions per axis."""
    padded = [size + begin + end for size, begin, end in zip(source, padding[::2], padding[1::2], strict=True)]
    return tuple(
        (size - step * (taps - 1) - 1) // stride_ + 1
        for size, taps, stride_, step in zip(padded, kernel_size, stride, dilation, strict=True)
    )


def padded_index(size: int, begin: int, end: int, mode: str) -> _Int32Array:
    """(begin + size + end,): the position that each position of the padded axis is a copy of, -1 for a zero."""
    position = np.arange(-begin, size + end)
    if mode == "reflect":
        if max(begin, end) >= size:
            raise ValueError(f"reflect padding must be less than the size {size} of its axis, got ({begin}, {end})")
        position = size - 1 - np.abs(size - 1 - np.abs(position))
    elif mode == "replicate":
        position = position.clip(0, size - 1)
    elif mode == "circular":
        if max(begin, end) > size:
            raise ValueError(f"circular padding must be at most the size {size} of its axis, got ({begin}, {end})")
        position = position % size
    elif mode == "zeros":
        position = np.where((position >= 0) & (position < size), position, -1)
    else:
        raise ValueError(f"padding_mode must be 'zeros', 'reflect', 'replicate' or 'circular', got {mode!r}")
    return position.astype(np.int32)


@functools.lru_cache(maxsize=128)
def _forward_pass(geometry: Geometry) -> _PassTables:
    """Output site p and tap t meet at the padded position stride * p + dilation * t."""
    source_of = [
        padded_index(size, begin, end, geometry.padding_mode)
        for size, begin, end in zip(geometry.source, geometry.padding[::2], geometry.padding[1::2], strict=True)
    ]
    return _PassTables(geometry, geometry.target, geometry.source, geometry.stride, source_of)


@functools.lru_cache(maxsize=128)
def _adjoint_pass(geometry: Geometry) -> _PassTables:
    """Input site p receives from output site q by tap t if stride * q = p + begin - dilation * t.

    Orbits are closed under flips, so t may be counted from the other end: p + dilation * t is then the coordinate, and
    the outputs lie ``stride`` apart in it. For zero padding only.
    """
    source_of = []
    rows = (geometry.source, geometry.target, geometry.kernel_size, geometry.stride, geometry.dilation)
    for begin, (size, outputs, taps, stride, dilation) in zip(
        geometry.padding[::2], zip(*rows, strict=True), strict=True
    ):
        reach = dilation * (taps - 1)
        position = np.arange(size + reach) + begin - reach
        inside = (position % stride == 0) & (position >= 0) & (position < stride * outputs)
        source_of.append(np.where(inside, position // stride, -1).astype(np.int32))
    return _PassTables(geometry, geometry.source, geometry.target, (1,) * len(geometry.source), source_of)


class _PassTables:
    """A ``struct ring_pass`` and the arrays it points to."""

    def __init__(
        self,
        geometry: Geometry,
        target: tuple[int, ...],
        source: tuple[int, ...],
        step: tuple[int, ...],
        source_of: list[_Int32Array],
    ) -> None:
        if geometry.of_harmonics:
            kernel = _KernelTables.of_opposite_taps(geometry.orbit_of_tap, geometry.kernel_size)
        else:
            kernel = _KernelTables.of(geometry.orbit_of_tap, geometry.orbits, geometry.kernel_size)
        lead = 3 - len(source)
        dilation = (1,) * lead + geometry.dilation
        source_of = [np.zeros(1, np.int32)] * lead + source_of
        arrays = (
            *source_of,
            kernel.class_start,
            kernel.rows * dilation[:2],
            kernel.orbit_start,
            kernel.entry_class,
            kernel.entry_tap * dilation[2],
        )
        self._arrays = [np.ascontiguousarray(array, np.int32) for array in arrays]
        pointers = [array.ctypes.data_as(_int32_pointer) for array in self._arrays]
        self.struct = _Pass(
            geometry.rings,
            geometry.orbits,
            len(kernel.class_start) - 1,
            (ctypes.c_int32 * 3)(*(1,) * lead, *target),
            (ctypes.c_int32 * 3)(*(1,) * lead, *source),
            (ctypes.c_int32 * 3)(*(1,) * lead, *step),
            dilation[2] * (geometry.kernel_size[-1] - 1) + 1,
            (_int32_pointer * 3)(*pointers[:3]),
            *pointers[3:],
        )


@dataclass(frozen=True)
class _KernelTables:
    """How the taps of a kernel are added: rows to classes, classes at taps of the last axis to orbits."""

    class_start: _Int32Array
    rows: _Int32Array
    """(rows, 2): tap along the first two of three axes, class by class"""
    orbit_start: _Int32Array
    entry_class: _Int32Array
    entry_tap: _Int32Array

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def of(orbit_of_tap: bytes, orbits: int, kernel_size: tuple[int, ...]) -> _KernelTables:
        taps = np.frombuffer(orbit_of_tap, np.int64).reshape((1,) * (3 - len(kernel_size)) + kernel_size)
        for axis in range(3):
            if not np.array_equal(taps, np.flip(taps, axis)):
                raise ValueError(f"method 'fused' needs orbits that are closed under flips of axis {axis - 3}")
        if not np.array_equal(np.unique(taps[taps != orbits]), np.arange(orbits)):
            raise ValueError(f"orbit_of_tap must name every orbit 0 to {orbits - 1}, and {orbits} for zero taps")
        patterns, class_of_row = np.unique(taps.reshape(-1, kernel_size[-1]), axis=0, return_inverse=True)
        live = (patterns != orbits).any(1)
        class_of_row = np.where(live, np.cumsum(live) - 1, live.sum())[class_of_row.reshape(-1)]
        patterns = patterns[live]
        order = np.argsort(class_of_row, kind="stable")[: (class_of_row < len(patterns)).sum()]
        entry_class, entry_tap = np.nonzero(patterns != orbits)
        entry_orbit = patterns[entry_class, entry_tap]
        by_orbit = np.argsort(entry_orbit, kind="stable")
        return _KernelTables(
            _starts(class_of_row[order], len(patterns)),
            np.stack(np.divmod(order, len(taps[0])), 1).astype(np.int32),
            _starts(entry_orbit, orbits),
            entry_class[by_orbit].astype(np.int32),
            entry_tap[by_orbit].astype(np.int32),
        )

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def of_opposite_taps(half_of_taps: bytes, kernel_size: tuple[int, ...]) -> _KernelTables:
        """Each tap followed by its opposite, every row of the kernel a class by itself."""
        half = np.frombuffer(half_of_taps, np.int64)
        taps = np.stack([half, math.prod(kernel_size) - 1 - half], 1).reshape(-1)
        row, column = np.divmod(taps, kernel_size[-1])
        rows, entry_class = np.unique(row, return_inverse=True)
        middle = kernel_size[-2] if len(kernel_size) > 1 else 1
        return _KernelTables(
            np.arange(len(rows) + 1, dtype=np.int32),
            np.stack(np.divmod(rows, middle), 1).astype(np.int32),
            np.arange(len(taps) + 1, dtype=np.int32),
            entry_class.reshape(-1).astype(np.int32),
            column.astype(np.int32),
        )


def _starts(labels: NDArray[np.int64], count: int) -> _Int32Array:
    """(count + 1,): where each label's range begins once the labels are sorted."""
    return np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))]).astype(np.int32)


def _maps(tensor: Tensor) -> _Maps:
    """A tensor (B, C, *S) that is contiguous, or contiguous channels last."""
    return _Maps(tensor.data_ptr(), tensor.shape[1], tensor.dtype == torch.bfloat16, not tensor.is_contiguous())


def _mixing(weight: Tensor, basis: Tensor, bias: Tensor | None, batch: int, groups: int) -> _Mixing:
    address = None if bias is None else bias.data_ptr()
    return _Mixing(weight.data_ptr(), basis.data_ptr(), address, batch, groups, torch.get_num_threads())


def forward(
    geometry: Geometry, x: Tensor, weight: Tensor, basis: Tensor, bias: Tensor | None, groups: int, y: Tensor
) -> None:
    """Write y. Maps are float32 or bfloat16, contiguous in either layout; the rest contiguous float32."""
    library = _library()
    mixing = _mixing(weight, basis, bias, x.shape[0], groups)
    # Held here: another thread may drop it from the cache while the kernel reads it.
    forward_pass = _forward_pass(geometry)
    status = library.ring_conv_forward(
        ctypes.byref(forward_pass.struct),
        ctypes.byref(mixing),
        ctypes.byref(_maps(x)),
        ctypes.byref(_maps(y)),
    )
    _check(status)


def backward(
    geometry: Geometry,
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    groups: int,
    dx: Tensor | None,
    dweight: Tensor | None,
    dbasis: Tensor | None,
) -> None:
    """Write the gradients that are wanted, for zero padding. Layouts and types as in :func:`forward`."""
    library = _library()
    mixing = _mixing(weight, basis, None, x.shape[0], groups)
    forward_pass, adjoint_pass = _forward_pass(geometry), _adjoint_pass(geometry)
    status = library.ring_conv_backward(
        ctypes.byref(forward_pass.struct),
        ctypes.byref(adjoint_pass.struct),
        ctypes.byref(mixing),
        ctypes.byref(_maps(dy)),
        ctypes.byref(_maps(x)),
        None if dx is None else ctypes.byref(_maps(dx)),
        None if dweight is None else ctypes.c_void_p(dweight.data_ptr()),
        None if dbasis is None else ctypes.c_void_p(dbasis.data_ptr()),
    )
    _check(status)


def harmonics_forward(geometry: Geometry, x: Tensor, weight: Tensor, basis: Tensor, groups: int, odd: tuple[bool, ...],
                      y: Tensor) -> None:  # fmt: skip
    """Write y. basis (pairs, half of the taps, 2); ``odd``: whether each pair's order is. Else as :func:`forward`."""
    mixing = _mixing(weight, basis, None, x.shape[0], groups)
    forward_pass, pairs = _forward_pass(geometry), _pairs(odd)
    status = _library().ring_harmonics_forward(
        ctypes.byref(forward_pass.struct),
        ctypes.byref(mixing),
        ctypes.byref(pairs.struct),
        ctypes.byref(_maps(x)),
        ctypes.byref(_maps(y)),
    )
    _check(status)


def harmonics_backward(
    geometry: Geometry,
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    basis: Tensor,
    groups: int,
    odd: tuple[bool, ...],
    dx: Tensor | None,
    dweight: Tensor | None,
    dbasis: Tensor | None,
) -> None:
    """Write the gradients that are wanted, for zero padding."""
    mixing = _mixing(weight, basis, None, x.shape[0], groups)
    forward_pass, adjoint_pass, pairs = _forward_pass(geometry), _adjoint_pass(geometry), _pairs(odd)
    status = _library().ring_harmonics_backward(
        ctypes.byref(forward_pass.struct),
        ctypes.byref(adjoint_pass.struct),
        ctypes.byref(mixing),
        ctypes.byref(pairs.struct),
        ctypes.byref(_maps(dy)),
        ctypes.byref(_maps(x)),
        None if dx is None else ctypes.byref(_maps(dx)),
        None if dweight is None else ctypes.c_void_p(dweight.data_ptr()),
        None if dbasis is None else ctypes.c_void_p(dbasis.data_ptr()),
    )
    _check(status)


class _PairTables:
    """A ``struct ring_pairs`` and the array it points to."""

    def __init__(self, odd: tuple[bool, ...]) -> None:
        self._order = np.argsort(~np.asarray(odd), kind="stable").astype(np.int32)
        self.struct = _Pairs(sum(odd), len(odd) - sum(odd), self._order.ctypes.data_as(_int32_pointer))


@functools.lru_cache(maxsize=64)
def _pairs(odd: tuple[bool, ...]) -> _PairTables:
    return _PairTables(odd)


def _check(status: int) -> None:
    if status == -2:
        raise ValueError("the compiled harmonics do not take one channel per group")
    if status:
        raise MemoryError("not enough memory for the workspace of the ring convolution")
