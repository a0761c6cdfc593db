import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ringconv.models import registry


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module beside this file, with its models in the registry for the time of a test."""
    registry.list_models()
    module = _imported_once()
    for name, entry in module.ENTRIES.items():
        monkeypatch.setitem(registry._entries, name, entry)
    return module


def _imported_once() -> ModuleType:
    name = "ringconv_tests_tiny"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("tiny.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
