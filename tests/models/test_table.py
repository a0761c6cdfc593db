"""The table of models: operations, map sizes, the page and the command."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ringconv import GMRConv2d
from ringconv.commands.models import models
from ringconv.models import create_model
from ringconv.models.operations import count_operations
from ringconv.models.table import describe_model, describe_models, write_models_page


def test_plain_networks_are_counted_as_torch_does():
    network, x = create_model("resnet18", width=4).eval(), torch.randn(1, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        network(x)
    assert count_operations(network, x) == counter.get_total_flops()


@pytest.mark.parametrize("method", ["dense", "factored", "auto"])
def test_ring_layers_are_counted_by_their_orbits(method):
    """3x3: 9 taps in 3 orbits, of which the outer two are 4 taps each; 2 rings."""
    layer = GMRConv2d(4, 6, 3, padding=1, method=method)
    pixels, additions, products = 5 * 7, 9 - 3, 2 * 2 * 3
    expected = pixels * (4 * (additions + products) + 2 * 2 * 4 * 6)
    assert count_operations(layer, torch.randn(1, 4, 5, 7)) == expected
    both = nn.Sequential(layer, nn.Conv2d(6, 2, 1))
    assert count_operations(both, torch.randn(1, 4, 5, 7)) == expected + pixels * 2 * 6 * 2
    assert not layer._forward_hooks
    assert not layer._forward_pre_hooks


def test_a_row():
    row = describe_model("gmr_resnet18", input_size=33, width=8)
    assert row.parameters == 64_197
    assert row.input_size == (33, 33)
    assert row.maps == ((17, 17), (9, 9), (5, 5), (3, 3))
    assert describe_model("gmr_r2plus1d", 32, width=8).maps[0] == (8, 16, 16)
    assert describe_model("gmr_unet", 32, dimensions=3, kernel_size=3).maps[-1] == (2, 2, 2)
    assert 0 < row.flops < describe_model("resnet18", input_size=33, width=8, kernel_size=9).flops
    with pytest.raises(ValueError, match=r"no model matches 'gm_'; there are .*gmr_resnet18"):
        describe_models("gm_")


def test_the_command_prints_the_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    models("gmr_resnet[13]*", input_size=40)
    table = capsys.readouterr().out
    assert "3,996,685" in table
    assert "3.9M" in table
    assert "20x20, 10x10, 5x5, 3x3" in table
    assert "resnet50" not in table


def test_the_page_shows_what_does_not_match_the_paper(tmp_path, monkeypatch):
    monkeypatch.setattr("ringconv.models.table.list_models", lambda pattern="*": ["gmr_resnet18", "resnet18"])
    page = write_models_page(tmp_path / "models.md").read_text()
    assert "| `gmr_resnet18` | 3,996,685 | 3.9M |" in page
    assert "| `gmr_resnet18` | `kernel_size=(7, 7, 5, 5)` | 3,922,949 | 3.8M | does not match |" in page
    assert "| `unet` | `up='deconv'` | 487,809 | 0.48M |  |" in page
