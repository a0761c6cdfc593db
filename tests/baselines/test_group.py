"""Group convolutions: the definition, written out, and the symmetry of p4 and p4m."""

import itertools

import numpy as np
import pytest
import torch

from ringconv.baselines.fields import FieldBatchNorm2d, FieldPool, split_fields
from ringconv.baselines.group import GroupConv2d, SortedFields, elements, inverse_times, transform
from ringconv.models import create_model

GROUPS = ("p4", "p4m")


def act(x, g):
    """T_g on images."""
    m, r = g
    return torch.rot90(x.flip(-1) if m else x, r, (-2, -1))


def act_on_fields(x, g, group):
    """[L_g f](h) = T_g f(g^-1 h)."""
    all_elements = elements(group)
    source = [all_elements.index(inverse_times(g, h)) for h in all_elements]
    return act(split_fields(x, len(all_elements))[:, :, source], g).flatten(1, 2)


@pytest.mark.parametrize("group", GROUPS)
def test_inverse_times_is_that_of_the_transformations(group):
    # No flip or turn leaves this array as it is, so that equal results mean equal elements.
    pattern = np.arange(9).reshape(3, 3)
    for g, h in itertools.product(elements(group), repeat=2):
        assert np.array_equal(transform(transform(pattern, inverse_times(g, h)), g), transform(pattern, h))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("lifting", [True, False])
def test_the_kernel_is_the_definition(group, lifting):
    layer = GroupConv2d(2, 3, 3, group=group, lifting=lifting)
    all_elements = elements(group)
    order, components = len(all_elements), 1 if lifting else len(all_elements)
    kernel = layer.kernel().view(3, order, 2, components, 3, 3)
    for i, g in enumerate(all_elements):
        for j in range(components):
            k = 0 if lifting else all_elements.index(inverse_times(g, all_elements[j]))
            assert torch.equal(kernel[:, i, :, j], act(layer.weight[:, :, k], g))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("side", "options"),
    [
        (7, {"kernel_size": 3, "padding": 1}),
        (8, {"kernel_size": 5, "padding": 2, "groups": 2, "padding_mode": "reflect"}),
        (9, {"kernel_size": 3, "stride": 2, "padding": 1, "bias": False}),
        (6, {"kernel_size": 2}),
        (8, {"kernel_size": 3, "dilation": 2, "padding": "same"}),
    ],
)
def test_layers_commute_with_every_element(group, side, options):
    order = len(elements(group))
    lift = GroupConv2d(3, 2, 3, padding=1, group=group, lifting=True, dtype=torch.float64)
    layer = GroupConv2d(2, 4, **options, group=group, dtype=torch.float64)
    norm = FieldBatchNorm2d(4, order).double()
    for parameter in (*lift.parameters(), *layer.parameters(), *norm.parameters()):
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, side, side, dtype=torch.float64)

    def network(x):
        return norm(layer(lift(x)).relu())

    y = network(x)
    for g in elements(group):
        torch.testing.assert_close(network(act(x, g)), act_on_fields(y, g, group), rtol=0, atol=1e-12)


def test_a_strided_layer_on_an_even_map_does_not_commute():
    lift = GroupConv2d(1, 1, 3, stride=2, padding=1, group="p4", lifting=True, bias=False)
    x = torch.randn(1, 1, 8, 8)
    assert (lift(act(x, (0, 1))) - act_on_fields(lift(x), (0, 1), "p4")).abs().max() > 0.1


@pytest.mark.parametrize("pool", [FieldPool, SortedFields])
def test_pooling_does_not_see_the_order_of_components(pool):
    x = torch.randn(2, 3 * 4)
    mixed = split_fields(x, 4)[:, :, [2, 0, 3, 1]].flatten(1, 2)
    assert torch.equal(pool(4)(mixed), pool(4)(x))


def test_the_public_head_is_not_invariant_and_ours_is():
    x = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    for pooling, invariant in (("sort", True), ("max", True), ("none", False)):
        network = create_model("p4_resnet18", width=8, pooling=pooling).double().eval()
        moved = (network(x.rot90(1, (2, 3))) - network(x)).detach().abs().max()
        assert (moved < 1e-10) == invariant


def test_what_it_refuses():
    with pytest.raises(ValueError, match=r"kernel must be square, got \(3, 5\)"):
        GroupConv2d(1, 1, (3, 5))
    with pytest.raises(ValueError, match="group must be one of 'p4', 'p4m', got 'p6'"):
        GroupConv2d(1, 1, 3, group="p6")
    with pytest.raises(ValueError, match="pooling must be one of 'sort', 'max', 'none', got 'mean'"):
        create_model("p4_resnet18", pooling="mean")
