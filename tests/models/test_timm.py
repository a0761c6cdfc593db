"""Our models under timm's ``create_model``, whichever package is imported first."""

import importlib.util
import subprocess
import sys

import pytest

IMPORTS = {
    "ours first": "import ringconv.models; from timm.models import create_model; import timm",
    "theirs first": "from ringconv._torchvision import import_torchvision; import_torchvision(); import timm;"
    " import ringconv.models",
}
USE = """
assert "timm" in sys.modules
network = timm.create_model("gmr_resnet18", num_classes=7, in_chans=1, width=8)
assert network.head.out_features == 7 and network.stem.conv.in_channels == 1
assert "gmr_densenet121" in timm.list_models("gmr_*")
assert type(timm.create_model("resnet18")).__module__ == "timm.models.resnet"
for broken in ({"pretrained": True}, {"widht": 8}):
    try:
        timm.create_model("gmr_resnet18", **broken)
    except (TypeError, ValueError) as error:
        print(error)
"""


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("order", ["ours first", pytest.param("theirs first", marks=pytest.mark.slow)])
def test_timm_knows_our_models(order):
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", f"import sys; {IMPORTS[order]}\n{USE}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "there are no pretrained weights of gmr_resnet18" in run.stdout
    assert "unknown option 'widht'" in run.stdout


def test_importing_our_models_does_not_import_timm():
    script = (
        "import sys, ringconv.models as m; m.create_model('gmr_resnet18', width=8); m.list_models();"
        "assert not {'timm', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
