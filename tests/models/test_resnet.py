"""The residual networks: exact parameter counts, also of every row of the paper's ablations, and invariance."""

import warnings

import pytest
import torch

from ringconv import EquivarianceWarning
from ringconv.models import gmr_resnet, resnet


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3_996_685),
        ({"kernel_size": (3, 3, 3, 3)}, 2_628_589),
        ({"kernel_size": (5, 5, 5, 5)}, 3_849_213),
        ({"kernel_size": (7, 7, 7, 7)}, 5_069_837),
        ({"kernel_size": (9, 9, 9, 9)}, 6_290_461),
        ({"kernel_size": (11, 11, 9, 9)}, 6_364_197),
        ({"kernel_size": (11, 9, 7, 5)}, 4_242_453),
        ({"kernel_size": (7, 7, 5, 5)}, 3_922_949),
        ({"rings": (5, 5, 4, 4)}, 5_143_573),
        ({"rings": (6, 6, 3, 3)}, 4_070_421),
        ({"rings": (7, 7, 5, 5)}, 6_437_933),
        ({"circular": False}, 5_217_502),
        ({"circular": False, "sigma": None}, 5_217_418),
        ({"sigma": None}, 3_996_618),
        ({"sigma": "fixed"}, 3_996_618),
        ({"circular": False, "sigma": "channel"}, 10_248_074),
        ({"sigma": "channel"}, 7_806_474),
        ({"width": 8}, 64_197),
        ({"width": 16}, 252_733),
        ({"width": 32}, 1_003_053),
        ({"width": 96}, 8_980_973),
        ({"depth": 34}, 7_518_537),
        ({"depth": 50}, 16_130_571),
        ({"depth": 50, "num_classes": 1000}, 18_159_081),
    ],
)
def test_parameter_counts(options, count):
    # The meta device allocates nothing: only shapes matter here.
    with torch.device("meta"):
        network = gmr_resnet(**options)
    assert sum(p.numel() for p in network.parameters()) == count


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 11_177_034),
        ({"stem_kernel_size": 7}, 11_181_642),
        ({"stem_kernel_size": 3}, 11_173_962),
        ({"depth": 50, "stem_kernel_size": 7}, 23_528_522),
        ({"depth": 50, "stem_kernel_size": 7, "num_classes": 1000}, 25_557_032),
    ],
)
def test_parameter_counts_of_the_plain_network(options, count):
    with torch.device("meta"):
        network = resnet(**options)
    assert sum(p.numel() for p in network.parameters()) == count


def test_plain_and_ring_maps_have_equal_sizes():
    x = torch.randn(1, 3, 37, 50)
    for stem_pool in (True, False):
        plain, ring = (build(width=4, stem_pool=stem_pool).eval() for build in (resnet, gmr_resnet))
        for stages in (1, 2, 3, 4):
            assert plain.stages[:stages](plain.stem(x)).shape == ring.stages[:stages](ring.stem(x)).shape
    with pytest.raises(ValueError, match="depth must be one of 18, 34, 50, got 20"):
        resnet(20)
    with pytest.raises(ValueError, match="kernel_size must be odd, so that maps keep their size, got 4"):
        gmr_resnet(kernel_size=(9, 9, 4, 5))


@pytest.mark.parametrize("side", [32, 33, 40, 50])
def test_the_network_is_invariant_at_every_size(side):
    network = gmr_resnet(width=8).double().eval()
    x = torch.randn(2, 3, side, side, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EquivarianceWarning)
        y = network(x)
    for turned in (x.rot90(1, (2, 3)), x.rot90(2, (2, 3)), x.flip(2), x.flip(3), x.transpose(2, 3)):
        torch.testing.assert_close(network(turned), y, rtol=1e-10, atol=1e-12)
