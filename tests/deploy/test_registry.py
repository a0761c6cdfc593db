"""Every model of the registry can leave the library: it folds, is saved and loaded, and one of each family exports."""

import pytest
import torch
from torch import nn

from ringconv._extras import MissingExtraError
from ringconv.deploy import export_onnx
from ringconv.fold import fold
from ringconv.models import create_model, list_models, model_entry
from ringconv.models.checkpoint import load_model, save_model

RING = list_models("gmr_*")
OTHERS = [name for name in list_models() if name not in RING and model_entry(name).extra != "escnn"]
DEEP = ("densenet", "resnet50", "convnext")
"""More of the same, only longer."""


def small(name):
    """Narrow, in double precision, with running statistics of its own, and an input of odd size."""
    entry = model_entry(name)
    options = {"width": 2 if "wide_resnet" in name else 4} if "width" in entry.options else {}
    if name.startswith("gmr_"):
        options["kernel_size"] = 3 if entry.dimensions[0] == 3 else 5
    try:
        model = create_model(name, **options).double()
    except MissingExtraError as missing:
        pytest.skip(str(missing))
    size = {2: (37, 34), 3: (9, 17, 18)}[entry.dimensions[0]]
    x = torch.randn(2, 3 if entry.dimensions[0] == 2 else getattr(model, "in_chans", 3), *size, dtype=torch.float64)
    for norm in model.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.momentum = 1.0
    with torch.no_grad():
        model(x)
    return model.eval(), x


def marked(names):
    slow = pytest.mark.slow
    return [pytest.param(name, marks=slow if any(deep in name for deep in DEEP) else ()) for name in names]


def assert_equal(got, expected):
    assert (got - expected).abs().max() <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize("name", marked(RING))
def test_ring_models_fold_in_both_forms(name):
    model, x = small(name)
    with torch.no_grad():
        expected = model(x)
        for form in ("dense", "factored"):
            folded = fold(model, form, batch_norm=True)
            assert_equal(folded(x), expected)
            assert not [m for m in folded.modules() if type(m).__module__.startswith("ringconv")]


@pytest.mark.filterwarnings("ignore::ringconv.fold.FoldWarning")  # layers of other methods may stay as they are
@pytest.mark.parametrize("name", marked(OTHERS))
def test_other_models_fold(name):
    model, x = small(name)
    with torch.no_grad():
        assert_equal(fold(model, batch_norm=True)(x), model(x))


@pytest.mark.parametrize("name", marked(RING + OTHERS))
def test_save_and_load(name, tmp_path):
    model, x = small(name)
    path = save_model(tmp_path / "model.safetensors", model, metrics={"accuracy": 0.5})
    with torch.no_grad():
        assert torch.equal(load_model(path)(x), model(x))


FAMILIES = {model_entry(name).family: name for name in sorted(RING, reverse=True)}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "factored"])
@pytest.mark.parametrize("name", FAMILIES.values())
def test_onnx_once_per_family(name, form, tmp_path):
    if form == "factored" and name != "gmr_resnet18":
        pytest.skip("the factored form is tried on one family")
    model, x = small(name)
    path = export_onnx(model.float(), tmp_path / "model.onnx", x.float(), form)  # it checks its own values
    assert path.stat().st_size > 1000
