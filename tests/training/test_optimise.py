import dataclasses
import math

import pytest
import torch
from torch import nn

from ringconv import GMRConv2d
from ringconv.training import TrainSettings
from ringconv.training.average import Average
from ringconv.training.optimise import learning_rate, make_optimiser, parameter_groups

SETTINGS = TrainSettings("gmr_resnet18", "nwpu10")


def network() -> nn.Module:
    return nn.Sequential(GMRConv2d(3, 4, 5), nn.BatchNorm2d(4), GMRConv2d(4, 4, 5, sigma="channel"), nn.Linear(4, 2))


def names(module: nn.Module, group: dict) -> set[str]:
    mine = {id(parameter) for parameter in group["params"]}
    return {name for name, parameter in module.named_parameters() if id(parameter) in mine}


def test_ring_widths_never_decay() -> None:
    module = network()
    decaying, others = parameter_groups(module, 0.1)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert names(module, others) == {"0.log_sigma", "2.log_sigma"}
    assert names(module, decaying) | names(module, others) == {name for name, _ in module.named_parameters()}


@pytest.mark.parametrize("sigma", ["layer", "channel"])
def test_widths_in_ring_indices_do_not_decay_either(sigma: str) -> None:
    module = GMRConv2d(3, 4, 5, sampling="binned", sigma=sigma)
    for decay in ("all", "weights"):
        _, others = parameter_groups(module, 0.1, decay)
        assert "log_sigma_index" in names(module, others)
        assert "weight" not in names(module, others)


def test_norms_and_biases_can_be_spared() -> None:
    module = network()
    decaying, _ = parameter_groups(module, 0.1, "weights")
    assert names(module, decaying) == {"0.weight", "2.weight", "3.weight"}


def test_frozen_parameters_are_left_out() -> None:
    module = network().requires_grad_(False)
    module[3].requires_grad_(True)
    assert [names(module, group) for group in parameter_groups(module, 0.1)] == [{"3.weight", "3.bias"}]
    with pytest.raises(ValueError, match="no parameter to train"):
        make_optimiser(network().requires_grad_(False), SETTINGS)


def test_optimisers() -> None:
    sgd = make_optimiser(network(), SETTINGS)
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.defaults["momentum"] == 0.9
    adamw = make_optimiser(network(), dataclasses.replace(SETTINGS, optimiser="adamw"))
    assert isinstance(adamw, torch.optim.AdamW)


def test_cosine_is_torchs() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 50, eta_min=1e-3)
    for step in range(50):
        assert learning_rate(step, 50, 0, 0.1, 1e-3) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimiser.step()
        schedule.step()


def test_warm_up_is_a_line_and_the_cosine_follows() -> None:
    rates = [learning_rate(step, 20, 5, 1.0, 0.0) for step in range(20)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5] == 1.0
    assert rates[-1] == pytest.approx(0.5 * (1 + math.cos(math.pi * 14 / 15)))
    assert sorted(rates[5:], reverse=True) == rates[5:]


def test_average_follows_weights_and_statistics_and_copies_the_rest() -> None:
    module = network()[:2].train()
    average = Average(module, 0.9)
    before = {name: value.clone() for name, value in average.module.state_dict().items()}
    module(torch.randn(4, 3, 8, 8))
    with torch.no_grad():
        module[0].weight.add_(1.0)
    average.update(module, 1000)
    after = {name: value.clone() for name, value in average.module.state_dict().items()}
    torch.testing.assert_close(after["0.weight"], before["0.weight"] + 0.1)
    torch.testing.assert_close(after["1.running_var"], 0.9 * before["1.running_var"] + 0.1 * module[1].running_var)
    assert after["1.num_batches_tracked"] == 1
    average.update(module, 0)  # early on, it forgets fast
    torch.testing.assert_close(
        average.module.state_dict()["0.weight"], 0.1 * after["0.weight"] + 0.9 * module[0].weight
    )
    assert average.module(torch.randn(1, 3, 8, 8)).shape == (1, 4, 4, 4)
