"""Leaving the library: a model of torch's own modules that computes what the ring model computes."""

from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MethodType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ringconv._computed_weights import recompute_weight
from ringconv._copied import copied
from ringconv._exchange import Exchange
from ringconv._fold_resizing import traceable
from ringconv._network import refuse_wrappers
from ringconv.conversion.resizing import ResizedConv
from ringconv.layers import _GMRConvNd
from ringconv.ops.harmonic import TINY

Form = Literal["dense", "factored"]
FORMS: tuple[Form, ...] = get_args(Form)

_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_OF_A_CONVOLUTION = (
    "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode",
)  # fmt: skip
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class FoldWarning(UserWarning):
    """A folded model still needs ringconv to be loaded from a pickle."""


def fold(module: nn.Module, form: Form = "dense", batch_norm: bool = False) -> nn.Module:
    """A copy of plain torch modules whose output is equal but for rounding.

    Ring convolutions become torch's convolutions; the other modules of ringconv (resizing, blocks, networks) become the
    graphs of torch operators that ``torch.fx`` traces from them, under the same names. So a pickle of what is returned
    loads where ringconv is not installed. Modules of other libraries and of your own keep their classes. Mode (train or
    eval), dtype, device, ``requires_grad`` and shared modules are kept; forward hooks of the modules that are replaced
    are not, nor are methods other than ``forward``.

    A folded convolution has no rings any more: training it further would leave the symmetry.

    A layer with harmonics is no convolution. It becomes a graph of what it is made of: the convolution of its rings,
    two depthwise convolutions (cosines and sines) whose squares are added, a square root, and a 1x1 convolution.

    A size that an up-sampling or a transposed convolution is called with is a tuple or a list; None, which a graph
    cannot ask for, is left out.

    Args:
        module: a layer or a model.
        form: what a ring convolution becomes. ``"dense"``: one convolution. ``"factored"``: a depthwise convolution to
            n responses per channel and a 1x1 convolution that mixes them, which costs far less for large kernels
            between many channels; for depthwise layers dense is the cheaper one.
        batch_norm: also fold every BatchNorm that directly follows a convolution into it; the model must be in eval.
            Those with hooks stay. Below a forward that ``torch.fx`` cannot trace, a part whose own forward it can trace
            is taken to be called as a whole.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    refuse_wrappers(module, "fold")
    with torch.no_grad():
        plain = _Folding(form, _dimensions(module)).all_plain(copied(module))
        if batch_norm:
            plain = _absorb_batch_norms(plain)
    return plain


# -- modules


class _Folding:
    """Replaces the modules of a model that is ours to change; a shared module is replaced by a shared one."""

    def __init__(self, form: Form, dimensions: int | None) -> None:
        self._form = form
        self._dimensions = dimensions
        self._done: dict[nn.Module, nn.Module] = {}

    def all_plain(self, model: nn.Module) -> nn.Module:
        plain = self._plain(model)
        exchange = Exchange({id(old): new for old, new in self._done.items() if new is not old})
        for parent in plain.modules():
            if not isinstance(parent, fx.GraphModule):
                exchange.in_attributes(parent)
        return plain

    def _plain(self, module: nn.Module) -> nn.Module:
        if module not in self._done:
            self._done[module] = self._replacement(module)
        return self._done[module]

    def _replacement(self, module: nn.Module) -> nn.Module:
        if isinstance(module, _GMRConvNd):
            recompute_weight(module)
            plain = _plain_convolution(module, self._form)
            plain = plain if module.harmonic_weight is None else _with_harmonics(module, plain)
            return _with_attributes(plain, _attributes(module))
        original, attributes = module, _attributes(module)
        # The graph is taken first: while children are being replaced, the module need not work.
        if _is_ours(module):
            module = traceable(module, self._dimensions)
        graph = _graph(module) if _is_ours(module) else None
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = self._plain(child)
        if graph is None:
            return module
        plain = fx.GraphModule(module, graph, type(original).__name__)
        plain.training = original.training  # train() would set the children's too
        return _with_attributes(plain, attributes)


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a forward may ask of a convolution that it calls."""
    if not isinstance(module, (_GMRConvNd, ResizedConv)):
        return {}
    return {name: getattr(module, name) for name in _OF_A_CONVOLUTION if hasattr(module, name)}


def _with_attributes(plain: nn.Module, attributes: dict[str, Any]) -> nn.Module:
    for name, value in attributes.items():
        if not hasattr(plain, name):
            setattr(plain, name, value)
    if attributes and isinstance(plain, fx.GraphModule):
        plain.meta["_user_preserved_attributes"] = attributes  # copies have no others
    return plain


def _graph(module: nn.Module) -> fx.Graph | None:
    """The calls of ``module.forward``, with its children as single steps; None, with a warning, if it has no graph."""
    parameters = inspect.signature(module.forward).parameters.values()
    fixed = {p.name: p.default for p in parameters if p.default not in (p.empty, ())}
    try:
        graph = _Tracer().trace(module, concrete_args=fixed or None)
    except Exception as error:  # whatever a forward raises when it is given a proxy
        warnings.warn(
            f"{type(module).__name__} could not be traced ({error}), so it stays as it is: a pickle of the folded model"
            " needs ringconv to be loaded, though what torch.export or ONNX make of it does not",
            FoldWarning,
            stacklevel=2,
        )
        return None
    graph._tracer_cls = None  # a pickle would name it, and it is ours
    for node in graph.nodes:
        node.type = None  # annotations are strings here, which a pickle could not import
    return graph


class _Tracer(fx.Tracer):
    """Traces one module, without looking into its children."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] == "ringconv"


def _dimensions(model: nn.Module) -> int | None:
    """The number of axes of the maps in a model, if its convolutions agree about it."""
    kinds = {
        dimensions
        for module in model.modules()
        for dimensions, convolution in _CONVOLUTIONS.items()
        if isinstance(module, convolution) or (isinstance(module, _GMRConvNd) and module._dimensions == dimensions)
    }
    return kinds.pop() if len(kinds) == 1 else None


# -- convolutions


def _plain_convolution(layer: _GMRConvNd, form: Form) -> nn.Module:
    if type(layer).forward is not _GMRConvNd.forward:
        raise ValueError(f"{type(layer).__name__} has a forward of its own, which fold does not know how to replace")
    in_channels, out_channels, groups = layer.in_channels, layer.out_channels, layer.groups
    spatial = _spatial(layer)
    single_tap = all(side == 1 for side in layer.kernel_size)
    if form == "dense" or single_tap:
        return _convolution(layer, layer.kernel(), layer.bias, in_channels, groups, spatial)
    if layer.sigma == "channel":
        raise ValueError(
            'a layer with sigma="channel" has a ring of its own for every pair of channels, so there is no depthwise'
            ' pass that its outputs could share: use form="dense"'
        )
    # Response i of channel c is channel c n + i, which is how (out, in / groups, n) lies in memory.
    passes = layer.basis().unsqueeze(1).repeat(in_channels, *[1] * (layer._dimensions + 1))
    mixing = layer.weight.reshape(out_channels, -1, *[1] * layer._dimensions)
    return nn.Sequential(
        _convolution(layer, passes, None, in_channels, in_channels, spatial),
        _convolution(layer, mixing, layer.bias, in_channels * layer.rings, groups, {}),
    ).train(layer.training)


class _Harmonics(nn.Module):
    """Only traced, never returned: what a layer with harmonics computes."""

    def __init__(self, half: bool, rings: nn.Module, cosines: nn.Module, sines: nn.Module, mixing: nn.Module) -> None:
        super().__init__()
        self.half_precision = half
        self.rings = rings
        self.cosines = cosines
        self.sines = sines
        self.mixing = mixing

    def forward(self, input: Tensor) -> Tensor:
        cosines, sines = self.cosines(input), self.sines(input)
        dtype = cosines.dtype
        if self.half_precision:  # as in the layer: its squares would leave the range
            cosines, sines = cosines.float(), sines.float()
        lengths = (cosines.square() + sines.square() + TINY).sqrt()
        if self.half_precision:
            lengths = lengths.to(dtype)
        mixed: Tensor = self.rings(input) + self.mixing(lengths)
        return mixed


def _with_harmonics(layer: _GMRConvNd, rings: nn.Module) -> nn.Module:
    assert layer.harmonic_weight is not None
    channels, spatial = layer.in_channels, _spatial(layer)
    # (pairs, 2, *kernel): pair q of channel c is channel c Q + q.
    pairs = layer.harmonic_basis().flatten(0, 1).unbind(1)
    cosines, sines = (
        _convolution(layer, part.unsqueeze(1).repeat(channels, 1, 1, 1), None, channels, channels, spatial)
        for part in pairs
    )
    weight = layer.harmonic_weight
    mixing = weight.reshape(layer.out_channels, -1, 1, 1)
    mixed = _convolution(layer, mixing, None, channels * weight.shape[2], layer.groups, {})
    module = _Harmonics(weight.dtype in (torch.float16, torch.bfloat16), rings, cosines, sines, mixed)
    graph = _graph(module)
    assert graph is not None
    plain = fx.GraphModule(module, graph, type(layer).__name__)
    return plain.train(layer.training)


def _spatial(layer: _GMRConvNd) -> dict[str, Any]:
    return {
        "stride": layer.stride,
        "padding": layer.padding,
        "dilation": layer.dilation,
        "padding_mode": layer.padding_mode,
    }


def _convolution(
    layer: _GMRConvNd, kernel: Tensor, bias: Tensor | None, in_channels: int, groups: int, spatial: dict[str, Any]
) -> nn.Module:
    conv: nn.Module = _CONVOLUTIONS[layer._dimensions](
        in_channels,
        kernel.shape[0],
        tuple(kernel.shape[2:]),
        groups=groups,
        bias=bias is not None,
        device="meta",
        **spatial,
    )
    conv.weight = nn.Parameter(kernel.detach().clone(), requires_grad=layer.weight.requires_grad)
    if bias is not None:
        conv.bias = nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
    return conv.train(layer.training)


# -- batch normalisation


def _absorb_batch_norms(model: nn.Module) -> nn.Module:
    """Multiply every BatchNorm that directly follows a convolution into it, and put an Identity in its place."""
    for conv, norm in list(_conv_norm_pairs(model)):
        if norm.training:
            raise ValueError(
                "batch_norm=True needs the statistics of evaluation, but the model is in training mode: call"
                " model.eval() first"
            )
        is_trained = conv.weight.requires_grad
        conv.weight, conv.bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        conv.bias.requires_grad_(is_trained)
        identity = nn.Identity().eval()
        for parent in model.modules():
            for name, child in parent._modules.items():
                if child is norm:
                    parent._modules[name] = identity
    return model


def _conv_norm_pairs(model: nn.Module) -> Iterator[tuple[Any, Any]]:
    """Convolutions whose one output goes to nothing but a BatchNorm, where each of both is called once."""
    held = Counter(module for parent in model.modules() for module in _modules_in(vars(parent)))
    registered = Counter(module for parent in model.modules() for module in _modules_in(parent._modules))
    seen = set()
    for part, graph in _traced_parts(model):
        for conv, norm in _pairs_in(part, graph):
            # Of a part, the graph does not show who else calls what is in it.
            called_once = part is model or held[conv] == held[norm] == 1
            # The norm is exchanged where torch registers it; from elsewhere it would be called as it was.
            if called_once and held[norm] == registered[norm] and conv not in seen:
                seen.add(conv)  # a part may be there twice
                yield conv, norm


def _traced_parts(module: nn.Module) -> Iterator[tuple[nn.Module, fx.Graph]]:
    try:
        graph = fx.Tracer().trace(module)
    except Exception:  # data-dependent steps: its parts may be free of them
        for child in module.children():
            yield from _traced_parts(child)
        return
    yield module, graph


def _pairs_in(module: nn.Module, graph: fx.Graph) -> Iterator[tuple[Any, Any]]:
    called = {node: module.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
    calls = Counter(called.values())
    read = {id(operator.attrgetter(str(node.target))(module)) for node in graph.nodes if node.op == "get_attr"}
    for node, norm in called.items():
        before = node.args[0] if node.args else None
        conv = called.get(before) if isinstance(before, fx.Node) else None
        if (
            isinstance(before, fx.Node)
            and conv is not None
            and type(norm) in _BATCH_NORMS
            and type(conv) in _CONVOLUTIONS.values()
            and norm.running_mean is not None
            and len(before.users) == 1
            and calls[conv] == calls[norm] == 1
            and not (_has_hooks(conv) or _has_hooks(norm))
            and read.isdisjoint(map(id, (*conv.parameters(), *norm.parameters(), *norm.buffers())))
        ):
            yield conv, norm


def _has_hooks(module: nn.Module) -> bool:
    """Hooks that may see or change what goes in or out, or compute the weight."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _modules_in(value: Any) -> Iterator[nn.Module]:
    """The modules that a value holds, as often as it does; not those within them."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, MethodType):
        yield from _modules_in(value.__self__)
    elif isinstance(value, functools.partial):
        yield from _modules_in((value.func, value.args, value.keywords))
    elif isinstance(value, (list, tuple, set, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _modules_in(part)
