"""Importing torchvision beside a torch that its library was not built for, on a stand-in that fails as it does."""

import subprocess
import sys

import pytest

from ringconv._torchvision import import_torchvision

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    import torchvision
except RuntimeError as error:
    assert "torchvision::nms does not exist" in str(error), error
else:
    raise SystemExit("the stand-in does not fail as torchvision does")
for name in [name for name in sys.modules if name.startswith("torchvision")]:
    del sys.modules[name]
from ringconv._torchvision import import_torchvision
first = import_torchvision()
assert first.works and import_torchvision() is first
"""

PLAIN_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
from ringconv import create_model
import torchvision
assert torchvision.works
"""

STAND_IN = """
import torch

@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold):
    return dets

works = True
"""


@pytest.mark.parametrize("script", [SCRIPT, PLAIN_IMPORT])
def test_the_missing_operators_are_declared(tmp_path, script):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    (package / "_C.so").write_bytes(b"built for another torch")
    subprocess.run([sys.executable, "-W", "error", "-c", script, str(tmp_path)], check=True)


def test_what_is_imported_already_is_returned(monkeypatch):
    module = type(sys)("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", module)
    assert import_torchvision() is module
