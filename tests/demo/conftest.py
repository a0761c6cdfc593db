import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _loaded(path: Path) -> ModuleType:
    """A file of helpers as a module, once."""
    name = f"ringconv_tests_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def hostile() -> ModuleType:
    return _loaded(Path(__file__).with_name("hostile.py"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a ``good_file`` or a ``bad_file`` is run with each of them."""
    files = _loaded(Path(__file__).with_name("hostile.py"))
    for name, cases in (("good_file", files.PICTURES), ("bad_file", files.REFUSED)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, cases)
