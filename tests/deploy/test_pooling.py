"""Pooling to free sizes is torch's adaptive pooling, at every size."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from ringconv import Downsample
from ringconv.conversion.resizing import SizeRule, symmetric_max_pool
from ringconv.deploy._pooling import average_pool_to, for_free_sizes, max_pool_to
from ringconv.fold import fold


@pytest.mark.parametrize(("side", "samples"), [*itertools.product((1, 2, 7, 8, 9, 32, 33), (1, 4)), (13, 5), (12, 7)])
def test_values_are_torchs(side, samples):
    if samples > side:
        pytest.skip("pooling does not enlarge")
    for dimensions, average, maximum in (
        (2, F.adaptive_avg_pool2d, F.adaptive_max_pool2d),
        (3, F.adaptive_avg_pool3d, F.adaptive_max_pool3d),
    ):
        x = torch.randn(2, 3, *(side, side + 3, side + 1)[:dimensions], dtype=torch.float64)
        size = [samples, (side + 4) // 2, samples][:dimensions]
        torch.testing.assert_close(average_pool_to(x, size), average(x, size), rtol=1e-12, atol=1e-12)
        assert torch.equal(max_pool_to(x, size), maximum(x, size))


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("rounded_up", [False, True])
def test_windows_of_maxima_are_covered_at_other_sizes_than_the_examples(factor, rounded_up):
    """How many positions are looked at is taken from the example that is traced, and has to do for every size."""

    def samples(side):
        return -(-side // factor) if rounded_up else side // factor

    most = 2 * -(-67 // samples(67))
    for side in range(factor, 200):
        n = samples(side)
        longest = max(-(-(i + 1) * side // n) - i * side // n for i in range(n))
        assert longest <= most, side


def test_indices_are_refused():
    with pytest.raises(ValueError, match="returns the indices"):
        max_pool_to(torch.randn(1, 1, 4, 4), (2, 2), True)


def test_graphs_of_a_folded_model_are_rewritten():
    def folded():
        return fold(nn.Sequential(Downsample(2), symmetric_max_pool(SizeRule((2, 2), (-2, -2)))))

    def targets(model):
        return {node.target for m in model.modules() if isinstance(m, fx.GraphModule) for node in m.graph.nodes}

    x = torch.randn(1, 2, 23, 18)
    assert {average_pool_to, max_pool_to} <= targets(for_free_sizes(folded()))
    kept = targets(for_free_sizes(folded(), average=False))
    assert F.adaptive_avg_pool2d in kept
    assert max_pool_to in kept
    torch.testing.assert_close(for_free_sizes(folded())(x), folded()(x))


class Fixed(nn.Module):
    def forward(self, x):
        return F.adaptive_max_pool2d(x, (1, 1))


def test_fixed_sizes_in_graphs_of_others_stay_torchs():
    model = for_free_sizes(fx.symbolic_trace(nn.Sequential(Fixed(), nn.ReLU())))
    assert F.adaptive_max_pool2d in {node.target for node in model.graph.nodes}
