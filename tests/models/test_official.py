"""Checkpoints of the authors' package give the logits that their package gives."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from ringconv.benchmark.peers import Unavailable, import_authors
from ringconv.models import create_model
from ringconv.models.checkpoint import load_model, save_model
from ringconv.models.official import import_official

FIXTURES = Path(__file__).parent.parent / "fixtures"
NETWORKS = json.loads((FIXTURES / "release_networks.json").read_text())


def _maker():
    spec = importlib.util.spec_from_file_location("make_release_networks", FIXTURES / "make_release_networks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = _maker()


def stored(name):
    return MAKER.weights(NETWORKS[name]["shapes"], NETWORKS[name]["tables"])


def close(ours, theirs):
    """To 1e-4 of the largest logit."""
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_of_stored_networks(name):
    options = NETWORKS[name]["options"]
    model = import_official(stored(name), stem_pool=not options.get("skip_first_maxpool", False))
    assert model.model_name == name
    assert not model.training
    image, expected = MAKER.image(options.get("in_channels", 3)), torch.tensor(NETWORKS[name]["logits"])
    with torch.no_grad():
        close(model(image)[0], expected)
        black = model(0 * image)[0]
    assert (black - expected).abs().max() > 0.05 * expected.abs().max(), "the image matters"


def test_wrappings():
    plain = stored("gmr_resnet18")
    expected = import_official(plain).state_dict()
    parallel = {f"module.{key}": value for key, value in plain.items()}
    for wrapped in ({"state_dict": plain, "epoch": 3}, {"model": parallel}, parallel):
        got = import_official(wrapped).state_dict()
        assert all(torch.equal(got[key], expected[key]) for key in expected)


def test_what_was_imported_can_be_saved(tmp_path):
    model = import_official(stored("gmr_resnet50"))
    path = save_model(tmp_path / "model.safetensors", model)
    x = torch.randn(1, 1, 16, 16)
    assert torch.equal(load_model(path)(x), model(x))


def test_a_trained_index_matrix_is_refused():
    weights = stored("gmr_resnet18")
    weights["layer2.1.conv1.weight_index_mat"] = weights["layer2.1.conv1.weight_index_mat"] + 0.01
    with pytest.raises(ValueError, match=r"layer2\.1\.conv1\.weight_index_mat.*trained.*1\.0\.2"):
        import_official(weights)
    moved = stored("gmr_resnet18")
    moved["conv1.weight_index_mat"] = moved["conv1.weight_index_mat"].flip(-2)  # still of 0 and 1
    with pytest.raises(ValueError, match="trained"):
        import_official(moved)


def test_other_files_are_refused():
    with pytest.raises(ValueError, match=r"not the state dict of a gmr_resnet.*'conv1\.log_sigmas'"):
        import_official(create_model("gmr_resnet18", width=4).state_dict())
    with pytest.raises(ValueError, match="'epoch' is a int"):
        import_official({"epoch": 3})
    weights = stored("gmr_resnet18")
    fewer = {key: value for key, value in weights.items() if not key.startswith("layer3.1.")}
    with pytest.raises(ValueError, match=r"\(2, 2, 1, 2\) blocks"):
        import_official(fewer)
    unstrided = {key.replace("layer2.0.conv1.1.", "layer2.0.conv1."): value for key, value in weights.items()}
    with pytest.raises(ValueError, match="layer2 does not halve its maps"):
        import_official(unstrided)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gmr_resnet18", {"gmr_conv_size": [9, 9, 5, 5]}),
        ("gmr_resnet34", {"gmr_conv_size": 3, "in_channels": 2, "skip_first_maxpool": True}),
        ("gmr_resnet50", {"gmr_conv_size": [5, 5, 3, 3], "num_rings": [3, 2, 2, 2]}),
    ],
)
def test_side_by_side_with_the_package(name, options):
    try:
        authors = import_authors("GMR_Conv.gmr_resnet")
    except Unavailable as reason:
        pytest.skip(str(reason))
    theirs = getattr(authors, name)(num_classes=5, inplanes=4, **options)
    channels = options.get("in_channels", 3)
    for _ in range(20):  # statistics of its own, so that eval gives logits of an ordinary size
        theirs(torch.randn(4, channels, 16, 16))
    for parameter in theirs.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.01)
    theirs.eval()
    pooled = not options.get("skip_first_maxpool", False)
    ours = import_official(theirs.state_dict(), stem_pool=pooled)
    with torch.no_grad():
        for size in ((32, 32), (48, 16)):
            x = torch.randn(2, channels, *size)
            close(ours(x), theirs(x))
