"""Who is compared, layer against layer. A new peer is a new entry of PEERS."""

from __future__ import annotations

import contextlib
import importlib
import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ringconv._extras import MissingExtraError
from ringconv._torchvision import import_torchvision
from ringconv.baselines import SymmConv2d, SymmConv3d
from ringconv.baselines.peers import PeerConv, e2_conv, group_conv
from ringconv.benchmark.cases import Case, Mode
from ringconv.layers import EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d
from ringconv.ops import Method, fused

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_GMR_CONV = {1: GMRConv1d, 2: GMRConv2d, 3: GMRConv3d}
_SYMM_CONV = {2: SymmConv2d, 3: SymmConv3d}
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}

Call = Callable[[], Any]
"""One inference, which returns the output, or one training step: the gradients of the input and the parameters."""

Builder = Callable[[Case, Tensor, Mode], Call]
"""From a case, its input (B, C, *S), contiguous, and a mode to what is timed."""


class Unavailable(Exception):
    """This peer cannot run here, or not this case; the message says why."""


def prepare(names: Iterable[str], case: Case, mode: Mode, seed: int = 0) -> tuple[dict[str, Call], dict[str, str]]:
    """What is timed for each peer, and for those that are not available the reason.

    Peers with the same parameters get the same values, and each has its input to itself.
    """
    calls: dict[str, Call] = {}
    reasons: dict[str, str] = {}
    for name in names:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            torch.manual_seed(seed)
            warnings.simplefilter("ignore", EquivarianceWarning)  # a stride is timed, not judged
            try:
                calls[name] = PEERS[name](case, case.input(seed), mode)
            except Unavailable as reason:
                reasons[name] = str(reason)
    return calls, reasons


def _call(layer: nn.Module, x: Tensor, mode: Mode) -> Call:
    layer.train(mode == "training")
    with torch.no_grad():
        y = layer(x)  # here, because a layer may warn on its first call
    if mode == "inference":

        def infer() -> Any:
            with torch.no_grad():
                return layer(x)

        return infer

    leaves = [x.requires_grad_(), *layer.parameters()]
    dy = torch.empty_like(y).copy_(torch.randn(y.shape))  # the same values in the layout of any output

    def train() -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(x), leaves, dy)

    return train


def _options(case: Case) -> dict[str, Any]:
    return {"stride": case.stride, "padding": case.padding, "groups": case.groups, "bias": False}


# -- torch


def _torch(case: Case, x: Tensor, mode: Mode) -> Call:
    layer = _CONV[case.dimensions](case.in_channels, case.out_channels, case.kernel_size, **_options(case))
    return _call(layer, x, mode)


def _torch_channels_last(case: Case, x: Tensor, mode: Mode) -> Call:
    """The input comes in this layout and the output stays in it: no conversion is counted."""
    if case.dimensions not in _CHANNELS_LAST:
        raise Unavailable("torch has no channels_last layout for signals of one axis")
    layout = _CHANNELS_LAST[case.dimensions]
    layer = _CONV[case.dimensions](case.in_channels, case.out_channels, case.kernel_size, **_options(case))
    layer.to(memory_format=layout)  # type: ignore[call-overload]
    return _call(layer, x.contiguous(memory_format=layout), mode)


# -- the competing methods


def _symm(case: Case, x: Tensor, mode: Mode) -> Call:
    if case.dimensions not in _SYMM_CONV:
        raise Unavailable("Symm-Conv has no layer for signals of one axis")
    layer = _SYMM_CONV[case.dimensions](case.in_channels, case.out_channels, case.kernel_size, **_options(case))
    return _call(layer, x, mode)


def _of_fields(build_conv: Callable[[int, int, int], PeerConv]) -> Builder:
    """A layer whose channels are fields of several maps: its input has them already, as within a network."""

    def build(case: Case, x: Tensor, mode: Mode) -> Call:
        if (case.dimensions, case.stride, case.groups) != (2, 1, 1):
            raise Unavailable("timed in two dimensions at stride 1 without groups only")
        try:
            conv = build_conv(case.in_channels, case.out_channels, case.kernel_size)
        except MissingExtraError as error:
            raise Unavailable(str(error)) from error
        return _call(conv.layer, torch.randn(case.batch, conv.in_maps, *case.size), mode)

    return build


# -- ours


def _ours(method: Method, **form: Any) -> Builder:
    """NCHW in and out, so that what a method does to the layout is counted in. By default in the paper's form, as the
    peers."""
    form = form or {"preset": "paper"}

    def build(case: Case, x: Tensor, mode: Mode) -> Call:
        if method == "fused" and x.device.type == "cpu" and not fused.available():
            raise Unavailable(fused.why_unavailable())
        if "harmonics" in form and case.dimensions != 2:
            raise Unavailable("circular harmonics are functions of the plane")
        layer = _GMR_CONV[case.dimensions](
            case.in_channels, case.out_channels, case.kernel_size, **_options(case), rings=case.rings, method=method,
            **form,
        )  # fmt: skip
        if method == "fused" and "ringconv::ring_conv" not in _operators_of(layer, x):
            raise Unavailable("the layer does not take its fused path for this case")
        return _call(layer, x, mode)

    return build


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name().partition(".")[0])
        return func(*args, **(kwargs or {}))


def _operators_of(layer: nn.Module, x: Tensor) -> set[str]:
    """Names of the operators that a call runs: a method that falls back must not be timed under its own name."""
    recorder = _Recorder()
    with torch.no_grad(), recorder:
        layer(x)
    return recorder.names


# -- the limit


def _gemm(case: Case, x: Tensor, mode: Mode) -> Call:
    """The product over n * C_in that every output needs, into memory that is there; three of them for training.

    The others are those of the input's gradient, over n * C_out, and of the weight's, over the positions. The
    gradient of sigma takes a fourth, so no training step with sigma can reach this limit.
    """
    if case.groups > 1:
        raise Unavailable("the limit is one matrix product, so it is taken without groups")
    positions = case.batch * math.prod(case.output_size)
    rings, c_in, c_out = case.rings, case.in_channels, case.out_channels
    responses, weight = torch.randn(positions, rings * c_in), torch.randn(rings * c_in, c_out)
    y = torch.empty(positions, c_out)
    if mode == "inference":
        return lambda: torch.mm(responses, weight, out=y)

    dy, dy_responses = torch.randn(positions, c_out), torch.randn(positions, rings * c_out)
    weight_of_dy = torch.randn(rings * c_out, c_in)
    dx, dweight = torch.empty(positions, c_in), torch.empty(rings * c_in, c_out)

    def three_products() -> None:
        torch.mm(responses, weight, out=y)
        torch.mm(dy_responses, weight_of_dy, out=dx)
        torch.mm(responses.t(), dy, out=dweight)

    return three_products


# -- the authors


def import_authors(module: str) -> Any:
    """A module of the authors' package, which needs torchvision and torchio without saying so."""
    with contextlib.suppress(ModuleNotFoundError):  # the next import says the same, with what to do
        import_torchvision()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(f"{error}; the authors' package comes with: pip install 'ringconv[peers]'") from error


def _authors(case: Case, x: Tensor, mode: Mode) -> Call:
    if case.dimensions == 1:
        raise Unavailable("the authors' layer for one axis fails on every input")
    if case.groups > 1:
        raise Unavailable("the authors' layer is wrong for groups")
    layers = import_authors("GMR_Conv.gmr_conv")
    layer_type = {2: layers.GMR_Conv2d, 3: layers.GMR_Conv3d}[case.dimensions]
    layer = layer_type(case.in_channels, case.out_channels, case.kernel_size, **_options(case), num_rings=case.rings)
    return _call(layer, x, mode)


PEERS: dict[str, Builder] = {
    "torch": _torch,
    "torch_channels_last": _torch_channels_last,
    "e2": _of_fields(e2_conv),
    "group": _of_fields(group_conv),
    "symm": _symm,
    "authors": _authors,
    "dense": _ours("dense"),
    "factored": _ours("factored"),
    "fused": _ours("fused"),
    "auto": _ours("auto"),
    "default_form": _ours("auto", preset=None),
    "harmonics_1": _ours("auto", harmonics=1),
    "harmonics_2": _ours("auto", harmonics=2),
    "gemm": _gemm,
}

SLOW_PEERS = ("e2", "group")
"""Peers with eight times the channels, which would take more time than all others together."""
FORMS = ("default_form", "harmonics_1", "harmonics_2")
"""Our layer in other forms than the paper's: not the same operation as the other peers, and asked for by name."""
USUAL_PEERS = tuple(name for name in PEERS if name not in SLOW_PEERS + FORMS)

_LABELS: dict[str, str] = {
    "torch_channels_last": "torch, ch. last",
    "e2": "E(2)-Conv, C8",
    "group": "Group-Conv, p4m",
    "symm": "Symm-Conv",
    "dense": "ours, dense",
    "factored": "ours, factored",
    "fused": "ours, fused",
    "auto": "ours, auto",
    "default_form": "ours, default form",
    "harmonics_1": "ours, order 1",
    "harmonics_2": "ours, orders 1, 2",
    "gemm": "bare GEMM",
}


def label(name: str, mode: Mode) -> str:
    """Short, for tables and plots."""
    return "three bare GEMMs" if (name, mode) == ("gemm", "training") else _LABELS.get(name, name)
