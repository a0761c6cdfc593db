"""Bytes saved for backward, and peak memory."""

import sys

import pytest
import torch
from torch import nn

from ringconv.benchmark.memory import in_fresh_process, peak_bytes, saved_bytes
from ringconv.benchmark.networks import NETWORKS, QUICK, SETTINGS, Setting, prepare_network


def test_saved_bytes_of_a_known_network():
    """The linear layer keeps its input, the ReLU its output; the weight is there anyway."""
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU())
    assert saved_bytes(model, torch.randn(7, 4)) == 7 * (4 + 5) * 4


def test_a_storage_counts_once_and_as_a_whole():
    class Squared(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()  # keeps y, as do both factors and the view
            return (y * y)[:1] * y[:1].sin()

    x = torch.randn(6, 8, requires_grad=True)
    kept = 6 * 8 * 4  # y
    kept += 6 * 8 * 4  # y * y, of which a slice is a factor
    kept += 8 * 4  # the sine; its argument is a view of y
    assert saved_bytes(Squared(), x) == kept


def test_nothing_is_saved_without_anything_to_learn():
    model = nn.Linear(4, 5).requires_grad_(False)
    assert saved_bytes(model, torch.randn(7, 4)) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's mark")
def test_peak_is_seen_although_it_was_freed():
    peak = peak_bytes(lambda: bytearray(64 << 20).count(1))
    assert 62 << 20 < peak < 72 << 20  # the kernel counts pages in batches


def test_a_failing_process_is_an_error():
    with pytest.raises(RuntimeError, match="no_such_module"):
        in_fresh_process("no_such_module", [])


def test_networks_have_equal_stems_and_map_sizes():
    """What a comparison of memory or speed stands on."""
    setting = Setting(2, 24, stem_pool=True, width=8)
    shapes = {}
    for name in set(NETWORKS) - {"authors", "e2_wrn16"}:
        network, x = prepare_network(name, setting)
        with torch.no_grad():
            maps = [network.stem(x)]
            for stage in network.stages:
                maps.append(stage(maps[-1]))
        shapes[name] = [tuple(one.shape) for one in maps]
    assert set(map(tuple, shapes.values())) == {
        ((2, 8, 12, 12), (2, 8, 12, 12), (2, 16, 6, 6), (2, 32, 3, 3), (2, 64, 2, 2))
    }


def test_the_settings_are_those_of_the_paper():
    assert [(setting.batch, setting.side, setting.width) for setting in SETTINGS] == [(64, 32, 64), (8, 224, 64)]
    network, _ = prepare_network("gmr_resnet18", SETTINGS[0])
    assert sum(parameter.numel() for parameter in network.parameters()) == 3_996_685
    assert len(QUICK) == 1
