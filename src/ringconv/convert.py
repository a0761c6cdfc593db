"""Any model with convolutions -> the same with ring convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from ringconv._computed_weights import weight_hooks
from ringconv._copied import copied
from ringconv._exchange import Exchange
from ringconv.conversion.checks import check_options, checked_patterns, refuse_wrapped
from ringconv.conversion.judgement import Judge
from ringconv.conversion.layer_choice import Choice, LayerChoice
from ringconv.conversion.projection import does_more, effective_kernel, recalibrate_batchnorm, start_from
from ringconv.conversion.report import ConversionReport, LayerReport, describe
from ringconv.conversion.rules import (
    DRIFTS,
    RING_CONVS,
    Change,
    ConvFactory,
    Rules,
    Strides,
    is_already_equivariant,
    kind_of,
)
from ringconv.conversion.where_lost import check_example, where_lost
from ringconv.conversion.windows import (
    ALL_CONVS,
    CONVS,
    POOLS,
    TRANSPOSED_CONVS,
    Conv,
    TransposedConv,
    UnknownWindowError,
    has_own_forward,
    window_of,
)
from ringconv.layers import EquivarianceWarning

__all__ = ["ConversionReport", "convert", "recalibrate_batchnorm"]

_SKIPPED = "skipped as asked"
_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
)  # fmt: skip


@overload
def convert(
    model: nn.Module, kernel_size: Choice | None = ..., *, return_report: Literal[False] = ..., **options: Any
) -> nn.Module: ...
@overload
def convert(
    model: nn.Module, kernel_size: Choice | None = ..., *, return_report: Literal[True], **options: Any
) -> tuple[nn.Module, ConversionReport]: ...
def convert(
    model: nn.Module,
    kernel_size: Choice | None = None,
    *,
    to: ConvFactory | None = None,
    rings: Choice | None = None,
    strides: Strides | Mapping[str, Strides] = "downsample",
    skip: str | Sequence[str] = (),
    from_weights: bool = False,
    inplace: bool = False,
    return_report: bool = False,
    example_input: Tensor | None = None,
    **layer_options: Any,
) -> nn.Module | tuple[nn.Module, ConversionReport]:
    """A copy of a model with ring convolutions in the place of its convolutions.

    - Spatial convolutions become ring convolutions of stride 1, behind a down-sampling where they had a stride.
      Depthwise, grouped, dilated, 1D and 3D ones, every padding and subclasses are covered.
    - 1x1 convolutions stay, with their weights; a strided one gets a down-sampling before it. So do disjoint patches
      (kernel = stride), which become a 1x1 of their averages.
    - Overlapping max pooling becomes average pooling. MaxPool(2) stays what it is on even sizes; on odd ones, where
      torch's drops the last row, its windows are symmetric. Strided average pooling likewise.
    - Transposed convolutions become an up-sampling and a ring convolution.
    - Kernels that are not square are left alone, and so is what no rule knows: the report names them.

    Maps keep their sizes at every size of the input. Mode, dtype, device, ``requires_grad``, hooks and shared modules
    are kept. New layers are initialised anew, unless ``from_weights``. An optimizer made before knows nothing of the
    new parameters: make it after.

    Args:
        model: any module, also a single convolution. One that is wrapped for parallel training or compiled is refused.
        kernel_size: None keeps each layer's size; an int for all; ``{"layer1.*": 9}`` by patterns of the layers' names,
            the first that matches; a tuple with one size per stage, for networks that name their stages (layer1,
            stages.0, denseblock1, blocks.0 ...; layers outside keep theirs); or a function (name, layer) -> size or
            None. Disjoint patches and kernels that are not square get a size only by their exact name or a function.
        to: builds the new convolutions, from the arguments of ``nn.Conv2d``; None: GMRConv1d, 2d or 3d.
        rings: number of rings, given in the same ways as ``kernel_size``; None: the layer's default.
        strides: ``"downsample"`` before the convolution; ``"downsample_after"`` it, which keeps more detail (useful
            for stems) and costs stride^2 times as much; ``"keep"`` leaves strides and pooling as they are, which breaks
            equivariance. Or ``{name pattern: one of these}``.
        skip: patterns of names of layers to leave alone.
        from_weights: start from the model's own kernels: each is projected to the nearest ring kernel, by least squares
            at the initial width of the rings. What the kernel saw beyond symmetry is lost. A strided kernel is compared
            with down-sampling and ring kernel together, a transposed one with up-sampling and ring kernel; both away
            from borders, and for sizes that the stride divides. Then let :func:`recalibrate_batchnorm` see some data,
            and train on.
        inplace: change the model itself. It is returned as well, since a model that is itself a convolution cannot be.
        return_report: return (model, report); ``print(report)`` says what became of every layer, and what still breaks
            equivariance.
        example_input: with ``return_report``: an input with square maps, to measure where equivariance is lost. If the
            model cannot be run on it, the report says why.
        layer_options: further keywords of the new layers, such as ``preset="paper"``.

    Returns:
        The converted model, and the :class:`ConversionReport` if asked for.
    """
    refuse_wrapped(model)
    check_options(to, strides, layer_options, measures=example_input is not None, reports=return_report)
    if example_input is not None:
        check_example(model, example_input)
    converted = model if inplace else copied(model)
    conversion = _Conversion(converted, kernel_size, to, rings, strides, skip, layer_options, from_weights=from_weights)
    before = _count(converted.parameters())
    converted = conversion.apply()
    report = ConversionReport(tuple(conversion.rows), before, _count(converted.parameters()))
    if not return_report:
        _warn_of(report, strides)
        return converted
    if example_input is not None:
        report = _measured(report, converted, example_input)
    return converted, report


def _measured(report: ConversionReport, model: nn.Module, example: Tensor) -> ConversionReport:
    try:
        error, losses = where_lost(model, example)
    except Exception as problem:  # whatever a forward raises: the model is converted all the same
        return replace(report, unmeasured=f"{type(problem).__name__}: {problem}")
    return replace(report, measured=error, losses=losses)


class _Conversion:
    """One model on its way. All new layers are built before the first is put in place."""

    def __init__(
        self,
        model: nn.Module,
        kernel_size: Choice | None,
        to: ConvFactory | None,
        rings: Choice | None,
        strides: Strides | Mapping[str, Strides],
        skip: str | Sequence[str],
        options: Mapping[str, Any],
        *,
        from_weights: bool,
    ) -> None:
        self.rows: list[LayerReport] = []
        self._model = model
        # A second conversion finds its own layers; torch's, if these are asked for, are what there is to convert.
        self._already = (to,) if isinstance(to, type) and to not in CONVS else ()
        if isinstance(strides, Mapping):
            checked_patterns("strides", list(strides), model)
        self._skip = checked_patterns("skip", [skip] if isinstance(skip, str) else skip, model)
        self._from_weights = from_weights
        self._new: dict[int, nn.Module] = {}
        self._pairs: list[tuple[nn.Module, nn.Module]] = []
        self._first_name: dict[int, str] = {}
        self._of_weight: dict[int, list[tuple[nn.Module, nn.Module]]] = {}
        self._untied: dict[int, str] = {}
        self._judge = Judge()
        dimensions = _dimensions_of_maps(model)
        spatial, nameable = self._convolutions(dimensions)
        self._only_patches = not spatial
        self._rules = Rules(
            to,
            options,
            strides,
            LayerChoice("kernel_size", kernel_size, model, spatial, nameable),
            LayerChoice("rings", rings, model, spatial, nameable),
            dimensions,
        )

    def apply(self) -> nn.Module:
        self._visit("", self._model)
        for old, new in self._pairs:
            _move_hooks(old, new)
        exchange = Exchange(self._new)
        for parent in [*self._model.modules()]:
            for name, child in parent._modules.items():
                if id(child) in self._new:
                    parent._modules[name] = self._new[id(child)]
            exchange.in_attributes(parent)
        return self._new.get(id(self._model), self._model)

    def _convolutions(self, dimensions: int) -> tuple[list[str], list[str]]:
        """Names of the convolutions that sizes apply to, and of those that must be named to get one."""
        spatial, nameable = [], []
        for name, layer in self._open_layers("", self._model, set()):
            if isinstance(layer, nn.modules.lazy.LazyModuleMixin) and layer.has_uninitialized_params():
                raise ValueError(f"layer {name!r} ({type(layer).__name__}) has no shape yet: run a batch through first")
            if isinstance(layer, TRANSPOSED_CONVS) and max(layer.kernel_size) > 1:
                spatial.append(name)
            elif isinstance(layer, CONVS):
                try:
                    kind = kind_of(window_of(layer))
                except UnknownWindowError:
                    continue
                # Among kernels of more axes, those along one must be named.
                if kind == "spatial" and not len(layer.kernel_size) == 1 < dimensions:
                    spatial.append(name)
                elif kind != "pointwise":
                    nameable.append(name)
        return spatial, nameable

    def _open_layers(self, name: str, layer: nn.Module, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
        if id(layer) in seen or self._is_settled(name, layer):
            return
        seen.add(id(layer))
        yield name, layer
        for child_name, child in _children(name, layer):
            yield from self._open_layers(child_name, child, seen)

    def _is_settled(self, name: str, layer: nn.Module) -> bool:
        """Layers that are not for us to change, nor what is in them."""
        return (
            is_already_equivariant(layer)
            or isinstance(layer, (torch.jit.ScriptModule, *self._already))
            or any(fnmatchcase(name, pattern) for pattern in self._skip)
        )

    def _visit(self, name: str, layer: nn.Module) -> None:
        if id(layer) in self._first_name:
            self._report_shared(name, layer)
            return
        self._first_name[id(layer)] = name
        change = self._change(name, layer)
        closed = change is not None and (change.new is not None or self._is_closed(name, layer))
        if change is not None:
            if change.new is not None:
                self._take_over(layer, change)
            self._report(name, layer, change, recurse=closed)
        if isinstance(layer, ALL_CONVS):
            self._judge.saw_conv(layer)
        if not closed:
            for child_name, child in _children(name, layer):
                self._visit(child_name, child)

    def _is_closed(self, name: str, layer: nn.Module) -> bool:
        """Whether the layer is reported as a whole."""
        return self._is_settled(name, layer) or isinstance(layer, (*ALL_CONVS, nn.MultiheadAttention, nn.RNNBase))

    def _change(self, name: str, layer: nn.Module) -> Change | None:
        if any(fnmatchcase(name, pattern) for pattern in self._skip):
            spatial = any(isinstance(part, ALL_CONVS) and max(part.kernel_size) > 1 for part in layer.modules())
            return Change("left", _SKIPPED, breaks=_SKIPPED if spatial else "")
        if isinstance(layer, self._already):
            return Change("kept", "already converted")
        if is_already_equivariant(layer):
            return Change("kept", "already a ring convolution or an equivariant resizing")
        if isinstance(layer, CONVS):
            return self._rules.conv(name, layer, only_patches=self._only_patches)
        if isinstance(layer, TRANSPOSED_CONVS):
            return self._rules.transposed(name, layer)
        if isinstance(layer, POOLS):
            return self._rules.pool(name, layer)
        if "BlurPool" in type(layer).__name__:
            return self._rules.blur_pool(name, layer)
        return self._judge.judge(layer)

    def _take_over(self, old: nn.Module, change: Change) -> None:
        """Give the new layer what does not depend on its kind: mode, what is trained, and the start."""
        new = change.new
        assert new is not None
        self._new[id(old)] = new
        self._pairs.append((old, new))
        new.train(old.training)
        if not isinstance(old, ALL_CONVS):
            return
        if self._from_weights:
            start_from(old, new, change.resampling)
        if "weight" in old._parameters:
            self._tie(old, new)
        trained = any(p.requires_grad for name, p in old.named_parameters() if name != "bias")
        for name, parameter in new.named_parameters():
            is_bias = name.rpartition(".")[2] == "bias"
            parameter.requires_grad_(old.bias.requires_grad if is_bias and old.bias is not None else trained)

    def _tie(self, old: Conv | TransposedConv, new: nn.Module) -> None:
        """Layers that shared a weight share what became of it, unless that is another thing for each.

        The weight of a transposed convolution has its channels the other way round.
        """
        sharing = self._of_weight.setdefault(id(old.weight), [])
        transposed = isinstance(old, TRANSPOSED_CONVS)
        alike = [one for other, one in sharing if isinstance(other, TRANSPOSED_CONVS) == transposed]
        if sharing and not any(_share(new, one) for one in alike[:1]):
            self._untied[id(old)] = f"the weight that it shared with {self._first_name[id(sharing[0][0])]}"
        sharing.append((old, new))

    def _report(self, name: str, layer: nn.Module, change: Change, *, recurse: bool) -> None:
        before = _count(layer.parameters(recurse))
        after = before if change.new is None else _count(change.new.parameters())
        new = layer if change.new is None else change.new
        lost = "" if change.new is None else _lost(layer)
        lost = " and ".join(filter(None, (lost, self._untied.get(id(layer)))))
        row = LayerReport(
            name, change.action, describe(layer), describe(new), before, after, change.reason, change.breaks, lost
        )
        self.rows.append(row)

    def _report_shared(self, name: str, layer: nn.Module) -> None:
        first = self._first_name[id(layer)]
        row = next((row for row in self.rows if row.name == first), None)
        if row is not None:
            reason = "the same layer as one before"
            self.rows.append(
                replace(row, name=name, parameters_before=0, parameters_after=0, reason=reason, breaks="", lost="")
            )


def _dimensions_of_maps(model: nn.Module) -> int:
    """As many axes as a kernel extends along."""
    convs = (layer for layer in model.modules() if isinstance(layer, (*ALL_CONVS, *RING_CONVS)))
    return max((sum(side > 1 for side in tuple(conv.kernel_size)) for conv in convs), default=1)  # type: ignore[arg-type]


def _children(name: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Full names and children, also those that are there twice."""
    for child_name, child in layer._modules.items():
        if child is not None:
            yield f"{name}.{child_name}" if name else child_name, child


def _share(new: nn.Module, first: nn.Module) -> bool:
    """Give ``new`` the parameters of ``first``, but for its bias; False if they do not fit."""
    weights = {name: p for name, p in first.named_parameters() if name.rpartition(".")[2] != "bias"}
    fitting = [
        name for name, parameter in new.named_parameters() if name in weights and weights[name].shape == parameter.shape
    ]
    for name in fitting:
        path, _, attribute = name.rpartition(".")
        setattr(new.get_submodule(path), attribute, weights[name])
    return any(name.rpartition(".")[2] == "weight" for name in fitting)


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    """The very dictionaries, so that the handles that remove a hook still do."""
    for hooks in _HOOKS:
        setattr(new, hooks, getattr(old, hooks))
    # Pruning, and weight_norm of old, recompute the weight in a hook: not for a layer without that weight.
    for key in weight_hooks(new):
        del new._forward_pre_hooks[key]


def _lost(layer: nn.Module) -> str:
    """What the layer did beyond its class in torch."""
    if not isinstance(layer, ALL_CONVS):
        return ""
    own = [name for name, _ in (*layer.named_parameters(), *layer.named_buffers()) if name not in ("weight", "bias")]
    things = []
    if own:
        things.append(f"with its {', '.join(own)}")
    elif has_own_forward(layer) and not layer.weight.is_meta and not torch.equal(effective_kernel(layer), layer.weight):
        things.append("to its kernel before using it")
    if does_more(layer):
        things.append("before or after its convolution")
    return f"what {type(layer).__name__} did {' and '.join(things)}" if things else ""


def _warn_of(report: ConversionReport, strides: Strides | Mapping[str, Strides]) -> None:
    """Nobody asked for the report: say in a line what it would."""
    asked_for = (_SKIPPED, DRIFTS) if strides == "keep" else (_SKIPPED,)
    remarks = [(name, f"lost {what}") for name, what in report.functions_lost]
    remarks += [(name, what) for name, what in report.breaks if what not in asked_for]
    if remarks:
        name, what = remarks[0]
        more = f", and {len(remarks) - 1} more" if len(remarks) > 1 else ""
        warnings.warn(
            f"the converted model is not, or may not be, equivariant: {name or 'the model'} ({what}){more}."
            " convert(..., return_report=True) returns a report of every layer.",
            EquivarianceWarning,
            stacklevel=3,
        )


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(p.numel() for p in parameters)
