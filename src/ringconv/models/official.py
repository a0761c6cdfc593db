"""Checkpoints of the authors' package, GMR-Conv 1.0.3."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ringconv.models.registry import create_model

_STAGES = (1, 2, 3, 4)
_DEPTHS: dict[tuple[tuple[int, ...], bool], int] = {
    ((2, 2, 2, 2), False): 18,
    ((3, 4, 6, 3), False): 34,
    ((3, 4, 6, 3), True): 50,
}
"""(blocks per stage, whether they are bottlenecks) -> depth"""

_NAMES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^conv1\.", "stem.conv."),
    (r"^bn1\.", "stem.norm."),
    (r"^fc\.", "head."),
    (r"^layer1\.0\.downsample\.1\.", "layer1.0.shortcut.conv."),
    (r"\.downsample\.1\.", ".shortcut.conv.conv."),  # after a pooling
    (r"\.downsample\.2\.", ".shortcut.norm."),
    (r"\.conv(\d)\.1\.", r".conv\1.conv."),  # after a pooling
    (r"\.bn(\d)\.", r".norm\1."),
    (r"\.log_sigmas$", ".log_sigma_index"),
    (r"^layer(\d)\.", lambda match: f"stages.{int(match[1]) - 1}."),
)
"""Their names and ours, to be replaced in this order."""

_CONSTANTS = ("weight_index_mat", "default_weight_index_mat", "mus")
"""What their layers save and ours compute."""


def import_official(state_dict: Mapping[str, Any], *, stem_pool: bool = True) -> nn.Module:
    """A model of ours with the weights of the authors' gmr_resnet18, 34 or 50 (GMR-Conv 1.0.3), in eval mode.

    Depth, width, kernel sizes, rings, channels and classes are read off the weights; rings are sampled as theirs are
    (``sampling="binned"``). The logits are theirs at sizes that are halved evenly all the way (multiples of 16, or of 8
    without stem pooling); at others their pooling drops the last row and column, and ours does not.

    Args:
        state_dict: what ``torch.load(path, weights_only=True)`` returns; it may be the entry "state_dict" or "model" of
            that, and its names may begin with the "module." of parallel training.
        stem_pool: whether the maps are halved after the stem, which no weight tells. False for a network that was built
            with ``skip_first_maxpool=True``. It is pooled by averages, as in 1.0.3; the authors' repository has
            maxima there, and the weights of a network that was trained with these give other logits here.
    """
    weights = _unwrapped(state_dict)
    _check_layout(weights)
    _refuse_trained_index_matrices(weights)
    model = create_model(f"gmr_resnet{_depth(weights)}", **_options(weights), stem_pool=stem_pool)
    ours = {_our_name(key): value for key, value in weights.items() if key.rpartition(".")[2] not in _CONSTANTS}
    model.load_state_dict(ours)
    return model.eval()


def _unwrapped(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    for entry in ("state_dict", "model"):
        if isinstance(state_dict.get(entry), Mapping):
            state_dict = state_dict[entry]
    weights = {key.removeprefix("module."): value for key, value in state_dict.items()}
    wrong = [key for key, value in weights.items() if not isinstance(value, Tensor)]
    if wrong:
        raise ValueError(
            f"a state dict maps names to tensors, but {wrong[0]!r} is a {type(weights[wrong[0]]).__name__}"
        )
    return weights


def _check_layout(weights: Mapping[str, Tensor]) -> None:
    needed = ("conv1.weight", "conv1.log_sigmas", "conv1.weight_index_mat", "layer4.0.bn2.weight", "fc.weight")
    missing = [key for key in needed if key not in weights]
    if missing:
        raise ValueError(
            "this is not the state dict of a gmr_resnet18, 34 or 50 of GMR-Conv 1.0.3: it has no"
            f" {', '.join(map(repr, missing))} (it begins with {', '.join(map(repr, list(weights)[:3]))})"
        )
    for stage in _STAGES:
        is_strided = any(re.match(rf"layer{stage}\.0\.conv\d\.1\.", key) for key in weights)
        if is_strided != (stage > 1):
            raise ValueError(
                f"layer{stage} {'halves its maps' if is_strided else 'does not halve its maps'}: only networks with the"
                " package's own strides, (1, 2, 2, 2), can be imported"
            )


def _refuse_trained_index_matrices(weights: Mapping[str, Tensor]) -> None:
    """Up to 1.0.2 the matrix that says which tap belongs to which ring could be trained along."""
    for key, matrix in weights.items():
        if key.endswith(".weight_index_mat"):
            default = weights.get(key.replace(".weight_index_mat", ".default_weight_index_mat"))
            is_binary = bool(((matrix == 0) | (matrix == 1)).all())
            is_default = default is None or (default.shape == matrix.shape and torch.equal(default, matrix))
            if not (is_binary and is_default):
                raise ValueError(
                    f"{key!r} is not the table of rings that the package makes, but was trained: up to version 1.0.2"
                    " the taps could move between rings, which leaves the radial symmetry, so there is no ring"
                    " convolution that computes the same. Train again with 1.0.3, or with ringconv"
                )


def _depth(weights: Mapping[str, Tensor]) -> int:
    blocks = tuple(len({key.split(".")[1] for key in weights if key.startswith(f"layer{stage}.")}) for stage in _STAGES)
    is_bottleneck = "layer1.0.conv3.weight" in weights
    if (blocks, is_bottleneck) not in _DEPTHS:
        raise ValueError(f"no gmr_resnet18, 34 or 50 has {blocks} blocks (bottlenecks: {is_bottleneck})")
    return _DEPTHS[blocks, is_bottleneck]


def _options(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    tables = [
        next(value for key, value in weights.items() if re.fullmatch(rf"layer{stage}\.0\..*\.weight_index_mat", key))
        for stage in _STAGES
    ]
    stem = weights["conv1.weight"]
    return {
        "width": stem.shape[0],
        "in_chans": stem.shape[1],
        "num_classes": weights["fc.weight"].shape[0],
        "stem_kernel_size": math.isqrt(weights["conv1.weight_index_mat"].shape[-1]),
        "kernel_size": tuple(math.isqrt(table.shape[-1]) for table in tables),
        "rings": tuple(table.shape[-2] for table in tables),
        "preset": "paper",
        "sampling": "binned",
    }


def _our_name(key: str) -> str:
    for pattern, replacement in _NAMES:
        key = re.sub(pattern, replacement, key)
    return key
