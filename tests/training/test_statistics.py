"""Statistics of batch norms that are taken anew are those of the training images."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ringconv.training import TrainSettings, train
from ringconv.training.statistics import renew_statistics


def test_they_are_those_of_all_images(tiny: ModuleType) -> None:
    data = tiny.classified(train=60)
    network = nn.Sequential(nn.BatchNorm2d(1, momentum=0.3), nn.Dropout(0.5), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    network.train()
    images = data.normalise(data["train"].batch(range(60))[0])
    renew_statistics(network, data, batch_size=64)
    first, _, conv, second = network
    torch.testing.assert_close(first.running_mean, images.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.running_var, images.var((0, 2, 3)), rtol=1e-4, atol=1e-5)
    # The second norm sees what the first one makes of the images when they are tested, and no dropout.
    seen = conv(first.eval()(images)).detach()
    torch.testing.assert_close(second.running_mean, seen.mean((0, 2, 3)), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(second.running_var, seen.var((0, 2, 3)), rtol=1e-3, atol=1e-4)
    assert [norm.momentum for norm in (first, second)] == [0.3, 0.1]
    assert network.training
    assert second.training


def test_several_batches_are_averaged(tiny: ModuleType) -> None:
    data, norm, conv = tiny.classified(train=60), nn.BatchNorm2d(2), nn.Conv2d(1, 2, 1)
    nn.init.constant_(conv.bias, 3.0)  # images have the mean of a new norm, 0
    renew_statistics(nn.Sequential(conv, norm), data, batch_size=25)
    assert int(norm.num_batches_tracked) == 3
    seen = conv(data.normalise(data["train"].batch(range(60))[0])).detach()
    torch.testing.assert_close(norm.running_mean, seen.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)


def test_a_network_without_batch_norms_is_left_alone(tiny: ModuleType) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False))
    renew_statistics(network, tiny.classified(), batch_size=8)
    assert network.training


@pytest.mark.parametrize("keep", ["last", "best"])
def test_a_run_takes_them_before_its_tests(tiny: ModuleType, tmp_path: Path, keep: str) -> None:
    data = tiny.classified(val=12)
    settings = TrainSettings("tiny_ring", "tiny", epochs=2, batch_size=4, accelerator="cpu", keep=keep)
    runs = {
        name: train(replace(settings, norm_batch=batch), out=tmp_path, name=name, data=data)
        for name, batch in (("running", None), ("renewed", 60))
    }
    weights = {name: load_file(run.folder / "model.safetensors") for name, run in runs.items()}
    trained = {name for name in weights["running"] if name.endswith("weight")}
    if keep == "last":  # training itself is the same
        assert all(torch.equal(weights["running"][name], weights["renewed"][name]) for name in trained)
    assert not torch.equal(weights["running"]["1.running_var"], weights["renewed"]["1.running_var"])
    assert int(weights["renewed"]["1.num_batches_tracked"]) == 1
