"""convert() on the model families of timm: those of convolutions become invariant and train; others say why not."""

import pytest
import torch
from torch import nn

from ringconv.convert import convert
from ringconv.models._timm import import_timm
from ringconv.report.conversion_table import MODELS, convert_timm_model, write_conversion_table, write_section

timm = import_timm()

# What timm's models do with torch is not the concern of these tests.
pytestmark = pytest.mark.filterwarnings("ignore")

INVARIANT = 1e-5
NOT_CONVOLUTIONAL = {"test_vit", "mixer_s32_224", "resmlp_12_224"}
KEEP_POSITIONS = {
    "inception_v3", "inception_next_atto", "tresnet_m", "hgnetv2_b0", "edgenext_xx_small", "botnet26t_256",
    "pit_ti_224", "xcit_nano_12_p16_224",
}  # fmt: skip
"""Kernels along one axis, pixels in channels, lopsided pads, codes of position."""


def check(name):
    row = convert_timm_model(name)
    assert row.trains
    assert row.error_before > 1e-3
    if name in NOT_CONVOLUTIONAL:
        assert row.report.converted == 0
        assert row.remark.startswith("not converted: a patch embedding")
    elif name in KEEP_POSITIONS:
        assert row.report.converted > 0
        assert row.error_after > INVARIANT
        assert row.remark.startswith("lost in ")
    else:
        assert row.report.converted > 0
        assert row.error_after <= INVARIANT
        assert row.report.losses == ()
    return row


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_convnext", "test_efficientnet", "test_byobnet", "test_nfnet", "test_vit", "tinynet_e"]
)
def test_small_models(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_family(name):
    check(name)


def test_there_are_forty_families_and_more():
    assert len(MODELS) == len(set(MODELS)) >= 40


def test_the_networks_of_the_paper_have_their_counts():
    with torch.device("meta"):
        densenet = timm.create_model("densenet121", num_classes=10)
        densenet.features.conv0 = nn.Conv2d(3, 64, 5, padding=2, bias=False)
        convnext = timm.create_model("convnext_tiny", num_classes=10)
        convnext.stem[0] = nn.Conv2d(3, 96, 5, padding=2)
    for model, count in ((densenet, 5_677_535), (convnext, 26_359_951)):
        converted = convert(model, (9, 9, 5, 5))
        assert sum(p.numel() for p in converted.parameters()) == count


@pytest.mark.parametrize("side", [100, 65])
def test_a_converted_resnet18_is_invariant(side):
    network = convert(timm.create_model("resnet18", num_classes=10)).double().eval()
    x = torch.randn(1, 3, side, side, dtype=torch.float64)
    y = network(x)
    for turned in (x.rot90(1, (2, 3)), x.flip(2)):
        torch.testing.assert_close(network(turned), y, rtol=1e-10, atol=1e-12)


def test_the_table(tmp_path):
    page = write_conversion_table(tmp_path / "conversion.md", ("test_efficientnet", "test_vit"))
    text = page.read_text()
    assert "Of 2 models, 1 are invariant after conversion, 0 are converted but keep" in " ".join(text.split())
    table = [line for line in text.splitlines() if line.startswith("| test_")]
    assert table[0].startswith("| test_efficientnet | 64 | 6 |")
    assert "not converted: a patch embedding" in table[1]


def test_commands_share_a_page(tmp_path):
    page = tmp_path / "docs" / "conversion.md"
    write_section(page, "trained start", "## Second\n\nold\n")
    write_section(page, "table", "# First\n")
    write_section(page, "trained start", "## Second\n\nnew\n")
    assert [line for line in page.read_text().splitlines() if line and "<!--" not in line] == [
        "# First",
        "## Second",
        "new",
    ]
