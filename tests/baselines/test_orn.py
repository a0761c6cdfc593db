"""Active rotating filters: the published table, and the symmetry of turned fields."""

import pytest
import torch

from ringconv.baselines.fields import split_fields
from ringconv.baselines.orn import ORAlign, ORConv2d, ORPool, turned_cells
from ringconv.models import create_model

CELLS = {
    0: (1, 2, 3, 4, 5, 6, 7, 8, 9),
    45: (2, 3, 6, 1, 5, 9, 4, 7, 8),
    90: (3, 6, 9, 2, 5, 8, 1, 4, 7),
    135: (6, 9, 8, 3, 5, 7, 2, 1, 4),
    180: (9, 8, 7, 6, 5, 4, 3, 2, 1),
    225: (8, 7, 4, 9, 5, 1, 6, 3, 2),
    270: (7, 4, 1, 8, 5, 2, 9, 6, 3),
    315: (4, 1, 2, 7, 5, 3, 8, 9, 6),
}
"""Angle, clockwise -> where cell 1, 2, ... of a 3x3 filter moves, as published; counted from 1."""


def test_the_ring_turns_by_the_published_table():
    for angle, cells in CELLS.items():
        assert [cell + 1 for cell in turned_cells(angle // 45, 3)] == list(cells)
    assert turned_cells(3, 1) == [0]


@pytest.mark.parametrize("orientations", [4, 8])
def test_the_kernel_moves_orientations_and_cells(orientations):
    layer = ORConv2d(2, 3, 3, orientations=orientations)
    kernel = layer.kernel().view(3, orientations, 2, orientations, 9)
    weight = layer.weight.flatten(3)
    for turn in range(orientations):
        cells = [cell - 1 for cell in CELLS[360 * turn // orientations]]
        for channel in range(orientations):
            moved = kernel[:, turn, :, (channel + turn) % orientations]
            assert torch.equal(moved[..., cells], weight[:, :, channel])


@pytest.mark.parametrize("orientations", [4, 8])
@pytest.mark.parametrize("side", [6, 7])
def test_layers_commute_with_quarter_turns(orientations, side):
    options = {"orientations": orientations, "dtype": torch.float64}
    lift = ORConv2d(3, 2, 3, padding=1, lifting=True, **options)
    layer = ORConv2d(2, 4, 3, padding=1, groups=2, **options)
    pointwise = ORConv2d(4, 2, 1, **options)
    for parameter in (*lift.parameters(), *layer.parameters(), *pointwise.parameters()):
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, side, side, dtype=torch.float64)

    def network(x):
        return pointwise(layer(lift(x)).relu())

    y = split_fields(network(x), orientations)
    for turns in range(4):
        # torch.rot90 with a negative number turns clockwise, as the filters do.
        turned = split_fields(network(torch.rot90(x, -turns, (2, 3))), orientations)
        expected = torch.rot90(y.roll(turns * orientations // 4, 2), -turns, (3, 4))
        torch.testing.assert_close(turned, expected, rtol=0, atol=1e-12)


def test_alignment_and_pooling_do_not_see_a_roll():
    x = torch.randn(2, 3 * 4)
    rolled = split_fields(x, 4).roll(1, 2).flatten(1, 2)
    aligned = ORAlign(4)(x)
    assert torch.equal(ORAlign(4)(rolled), aligned)
    assert torch.equal(ORPool(4)(rolled), ORPool(4)(x))
    assert torch.equal(split_fields(aligned, 4)[:, :, 0], ORPool(4)(x))
    # A roll, not a sort: what follows the strongest stays in its order.
    one = torch.tensor([[1.0, 4.0, 3.0, 2.0]])
    assert ORAlign(4)(one).tolist() == [[4.0, 3.0, 2.0, 1.0]]
    assert ORAlign(4)(torch.tensor([[4.0, 2.0, 3.0, 1.0]])).tolist() == [[4.0, 2.0, 3.0, 1.0]]


def test_batch_norm_of_orientations_loses_what_that_of_features_keeps():
    x = torch.randn(4, 3, 17, 17, dtype=torch.float64)
    for norm, kept in (("feature", True), ("orientation", False)):
        network = create_model("orn_resnet18", width=8, norm=norm).double()
        network(x)  # the statistics of one batch
        network.eval()
        moved = (network(x.rot90(1, (2, 3))) - network(x)).detach().abs().max()
        assert (moved < 1e-10) == kept


def test_what_it_refuses():
    with pytest.raises(ValueError, match="orientations must be 4 or 8, got 6"):
        ORConv2d(1, 1, 3, orientations=6)
    with pytest.raises(ValueError, match=r"got \(5, 5\)"):
        ORConv2d(1, 1, 5)
    with pytest.raises(ValueError, match="norm must be one of 'orientation', 'feature', got 'batch'"):
        create_model("orn_resnet18", norm="batch")
