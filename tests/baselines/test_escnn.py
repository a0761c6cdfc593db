"""The networks of escnn: exact counts, and their symmetry on sizes that keep it. Run by `make test-escnn`."""

import pytest
import torch

pytest.importorskip("escnn", reason="escnn has an environment of its own: make test-escnn")

from ringconv.baselines.peers import e2_conv
from ringconv.models import create_model, model_entry
from ringconv.training.budget import forward_operations

# escnn samples its bases in single precision, whatever the network's.
TOLERANCE = 1e-5

NETWORKS = {
    "e2_wrn16": ({"width": 8}, (17, 33), True),
    "e2_order0_wrn16": ({"width": 8}, (17, 33), True),
    "e2_resnet50": ({"width": 2}, (17, 20), False),
    "e2_unet": ({"width": 1}, (17, 20), True),
}
"""Small options, sizes that keep quarter turns, and whether flips are kept."""


def moved(network, x, transform):
    """Relative change of the logits; of a segmentation, of the turned map."""
    with torch.no_grad():
        y = network(x)
        expected = transform(y) if y.dim() == x.dim() else y
        return float((network(transform(x)) - expected).norm() / y.norm())


def quarter_turn(x):
    return x.rot90(1, (-2, -1))


@pytest.mark.parametrize("name", NETWORKS)
def test_exact_counts(name):
    entry = model_entry(name)
    assert sum(p.numel() for p in create_model(name).parameters()) == entry.parameters
    if entry.paper_parameters:
        paper = create_model(name, **dict(entry.paper_options))
        assert sum(p.numel() for p in paper.parameters()) == entry.paper_parameters


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_reaches_every_parameter_and_keeps_the_symmetry(name):
    options, sizes, flips = NETWORKS[name]
    network = create_model(name, **options).double()
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-2)
    network(torch.randn(4, 3, sizes[0], sizes[0], dtype=torch.float64)).square().mean().backward()
    assert not [key for key, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    optimiser.step()
    trained = set(network.state_dict())
    network.eval()
    assert set(network.state_dict()) == trained
    for size in sizes:
        x = torch.randn(2, 3, size, size, dtype=torch.float64)
        assert moved(network, x, quarter_turn) < TOLERANCE
        flipped = moved(network, x, lambda x: x.flip(-1))
        assert flipped < TOLERANCE if flips else flipped > 1e-2


def test_the_wide_network_loses_quarter_turns_on_even_sizes():
    network = create_model("e2_wrn16", width=8).eval()
    assert moved(network, torch.randn(2, 3, 32, 32), quarter_turn) > 1e-3


def test_weights_travel_between_networks():
    one, other = (create_model("e2_wrn16", width=8).eval() for _ in range(2))
    x = torch.randn(1, 3, 17, 17)
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(other(x), one(x))


def test_a_change_of_dtype_stays_in_its_network():
    create_model("e2_wrn16", width=8).double()
    assert create_model("e2_wrn16", width=8)(torch.randn(1, 3, 17, 17)).dtype == torch.float32


def test_the_peer_for_timing():
    peer = e2_conv(2, 3, 5)
    x = torch.randn(1, peer.in_maps, 9, 9)
    expected = peer.layer(x)
    assert expected.shape == (1, peer.out_maps, 9, 9)
    torch.testing.assert_close(peer.layer.eval()(x), expected)


def test_operations_are_counted():
    network = create_model("e2_wrn16", width=8).eval()
    small, large = (forward_operations(network, torch.randn(1, 3, size, size)) for size in (17, 33))
    # Expanding the filters costs the same at every size.
    assert large > small > 0


@pytest.mark.slow
def test_the_network_of_volumes():
    assert sum(p.numel() for p in create_model("se3_cnn").parameters()) == 228_796
    network = create_model("se3_cnn", width=16).eval()
    x = torch.rand(2, 1, 33, 33, 33)
    with torch.no_grad():
        y = network(x)
        for plane in ((2, 3), (3, 4), (2, 4)):
            torch.testing.assert_close(network(x.rot90(1, plane)), y, rtol=1e-4, atol=1e-5)
        assert network(torch.rand(1, 1, 32, 32, 32)).shape == (1, 10)
