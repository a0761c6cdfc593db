"""Copies of models, as they are."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

from ringconv._computed_weights import recompute_weight

Model = TypeVar("Model", bound=nn.Module)


def copied(model: Model) -> Model:
    """A deep copy in the same mode; weights that hooks compute may have been computed with gradients."""
    for module in model.modules():
        recompute_weight(module)  # without gradients: torch copies no others
    try:
        twin = copy.deepcopy(model)
    except RuntimeError as error:
        raise ValueError(
            "the model cannot be copied; it may hold tensors computed in an earlier call with gradients. Give it before"
            " it is run, or run it under torch.no_grad() first; convert also takes inplace=True. torch says:"
            f" {error}"
        ) from error
    # Copies of graphs with a mode, as torchvision's feature extractors are, begin in training mode.
    originals = dict(model.named_modules(remove_duplicate=False))
    for name, module in twin.named_modules(remove_duplicate=False):
        if name in originals and module.training != originals[name].training:
            module.train(originals[name].training)
    return twin
