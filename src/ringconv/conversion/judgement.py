"""Whether a layer that is neither a convolution nor a pooling keeps equivariance, as far as can be told by its kind."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from ringconv.conversion.rules import Change
from ringconv.conversion.windows import Conv, TransposedConv

_PADS = (
    nn.modules.padding._ConstantPadNd,
    nn.modules.padding._ReflectionPadNd,
    nn.modules.padding._ReplicationPadNd,
    nn.modules.padding._CircularPadNd,
)
_ADAPTIVE_POOLS = (nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd)
_OTHER_POOLS = (nn.modules.pooling._LPPoolNd, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
_INTERPOLATIONS = ("linear", "bilinear", "bicubic", "trilinear")
_PER_CHANNEL = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.PReLU)
_SHUFFLES = (nn.PixelShuffle, nn.PixelUnshuffle, nn.Unfold, nn.Fold)
_POSITION_NAMES = re.compile(r"(?<!Conv)Pos(ition(al)?)?(Enc|Emb)|RelPos|Rotary")
_SHUFFLE_NAMES = re.compile("SpaceToDepth|DepthToSpace|PixelShuffle|Focus")


class Judge:
    """Looks at layers in the order of the model, and remembers how many features the last one gave."""

    def __init__(self) -> None:
        self._features = 0
        self._pooled_to_one = False

    def saw_conv(self, conv: Conv | TransposedConv) -> None:
        self._features = conv.out_channels
        if max(conv.kernel_size) > 1:
            self._pooled_to_one = False

    def judge(self, layer: nn.Module) -> Change | None:
        """None for layers that have nothing to say: no parameters, no pooling, no known harm."""
        change = self._by_kind(layer)
        if isinstance(layer, nn.Linear):
            self._features = layer.out_features
        elif isinstance(layer, _PER_CHANNEL):
            self._features = getattr(layer, "num_features", getattr(layer, "num_channels", self._features))
        return change

    def _by_kind(self, layer: nn.Module) -> Change | None:
        if isinstance(layer, torch.jit.ScriptModule):
            return Change("left", "scripted: cannot be looked into", breaks="cannot be judged")
        if isinstance(layer, _PER_CHANNEL):
            return Change("kept", "treats all positions alike")
        if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
            return self._layer_norm(layer)
        if isinstance(layer, nn.Linear):
            return self._linear(layer)
        if isinstance(layer, _ADAPTIVE_POOLS):
            return self._adaptive_pool(layer)
        if isinstance(layer, nn.Flatten):
            if self._pooled_to_one:
                return Change("kept", "flattens after all positions were pooled")
            return Change("left", "flattens", breaks="flattens positions into features, unless the map is one pixel")
        if isinstance(layer, _PADS):
            return self._pad(layer)
        if isinstance(layer, nn.Upsample):
            return self._upsample(layer)
        if isinstance(layer, _OTHER_POOLS):
            return Change("left", "a pooling that is not known", breaks="its windows do not turn with the image")
        if isinstance(layer, _SHUFFLES) or _SHUFFLE_NAMES.search(type(layer).__name__):
            return Change("left", "moves pixels into channels, or back", breaks="channels that stand for positions")
        if _POSITION_NAMES.search(type(layer).__name__):
            return Change("left", "codes of position", breaks=f"{type(layer).__name__} tells positions apart")
        if isinstance(layer, nn.RNNBase):
            return Change("left", "recurrent", breaks="reads positions one after the other")
        if isinstance(layer, nn.MultiheadAttention):
            return Change("kept", "attention treats all positions alike, but for codes of them")
        return _own_parameters(layer)

    def _layer_norm(self, layer: nn.LayerNorm | nn.RMSNorm) -> Change:
        if len(layer.normalized_shape) > 1 and layer.elementwise_affine:
            return Change("left", "normalises whole maps", breaks="has weights of its own for each position")
        return Change("kept", "treats all positions alike")

    def _linear(self, layer: nn.Linear) -> Change:
        cells = layer.in_features // self._features if self._features else 0
        # Concatenated branches make small multiples of the features, flattened maps make squares.
        if cells >= 9 and cells * self._features == layer.in_features and math.isqrt(cells) ** 2 == cells:
            side = math.isqrt(cells)
            return Change(
                "left",
                "linear",
                breaks=f"{layer.in_features:,} features look like a flattened {side}x{side} map: pool it to one pixel",
            )
        return Change("kept", "acts on features: invariant if their positions were pooled before")

    def _adaptive_pool(self, layer: nn.Module) -> Change:
        size = layer.output_size
        self._pooled_to_one = all(side == 1 for side in (size if isinstance(size, (tuple, list)) else (size,)))
        if self._pooled_to_one:
            return Change("kept", "pools all positions")
        return Change(
            "kept", "adaptive windows lie evenly", breaks=f"keeps {size} positions: must not be flattened into features"
        )

    def _pad(self, layer: nn.Module) -> Change:
        sides = layer.padding
        pairs = list(zip(sides[::2], sides[1::2], strict=True)) if isinstance(sides, tuple) else []
        if any(before != after for before, after in pairs):
            return Change("left", "padding", breaks="pads one side more than the other")
        if len(set(pairs)) > 1:
            return Change("left", "padding", breaks="pads one axis more than the other")
        return Change("kept", "pads all sides alike")

    def _upsample(self, layer: nn.Upsample) -> Change:
        factors = layer.scale_factor if isinstance(layer.scale_factor, tuple) else (layer.scale_factor,)
        if layer.mode == "nearest" and not all(f is not None and float(f).is_integer() for f in factors):
            return Change(
                "left", "up-sampling", breaks='rounds places towards the first pixel: use mode="nearest-exact"'
            )
        if (
            layer.mode in _INTERPOLATIONS
            and not (layer.align_corners or layer.recompute_scale_factor)
            and not all(f is None or float(f).is_integer() for f in factors)
        ):
            return Change(
                "left",
                "up-sampling",
                breaks="places samples by a factor that few sizes are multiples of: use recompute_scale_factor=True",
            )
        return Change("kept", "up-samples evenly")


def _own_parameters(layer: nn.Module) -> Change | None:
    """For layers that no rule knows: by the shapes and names of the parameters that are theirs alone."""
    own = dict(layer.named_parameters(recurse=False))
    if not own:
        return None
    if all(sum(side > 1 for side in p.shape) <= 1 for p in own.values()):
        return Change("kept", "one number per channel")
    positions = [name for name in own if "pos" in name.lower()]
    if positions:
        name = positions[0]
        return Change("left", "codes of position", breaks=f"{name} {tuple(own[name].shape)} tells positions apart")
    shapes = ", ".join(f"{name} {tuple(p.shape)}" for name, p in own.items())
    return Change("left", "a layer that is not known", breaks=f"cannot be judged, has {shapes}")
