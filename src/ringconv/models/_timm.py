"""timm: imported when a network of its own is built; and our networks under its ``create_model``.

Importing timm takes seconds, so `import ringconv.models` does not. If timm is there already, our models are registered
with it; else they are as soon as somebody imports it. So is torchvision, which timm needs, prepared as soon as somebody
imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torch import nn

from ringconv._extras import needs
from ringconv._torchvision import declare_missing_operators
from ringconv.models.registry import create_model, list_models, model_entry

EXTRA = "zoo"


def import_timm() -> Any:
    """timm, or an error that says which extra brings it."""
    return needs("timm", EXTRA)


def offer_to_timm() -> None:
    """Make ``timm.create_model`` know our equivariant models, whether timm is imported before or after this."""
    timm = sys.modules.get("timm")
    if timm is not None:
        _register_all(timm)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds timm and torchvision as the others would; declares what torchvision may lack before it is loaded, and
    registers our models once timm is."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ("timm", "torchvision"):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target))), None)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_torchvision(module: ModuleType) -> None:
            declare_missing_operators()
            load(module)

        def load_timm(module: ModuleType) -> None:
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register_all(module)

        spec.loader.exec_module = load_timm if fullname == "timm" else load_torchvision  # type: ignore[method-assign]
        return spec


def _register_all(timm: ModuleType) -> None:
    for name in list_models():
        # Plain networks stay timm's own, and so does a name that both have.
        if model_entry(name).symmetry != "none" and not timm.is_model(name):
            timm.models.register_model(_entry_point(name))


def _entry_point(name: str) -> Callable[..., nn.Module]:
    def build(pretrained: bool = False, **options: Any) -> nn.Module:
        if pretrained:
            raise ValueError(f"there are no pretrained weights of {name}")
        for passed_to_all in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
            options.pop(passed_to_all, None)
        return create_model(name, **options)

    build.__name__ = build.__qualname__ = name
    return build
