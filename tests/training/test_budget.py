"""All methods on one budget: equal operations, files that a second run goes on from, and the table."""

import dataclasses
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from ringconv.data import DataSet, Split
from ringconv.models import create_model
from ringconv.training.budget import (
    BACKWARD,
    CONTENDERS,
    Budget,
    Contender,
    budget_table,
    forward_operations,
    read_budget,
    run_budget,
)

TINY = Budget(teraflops=5e-6, width=2, size=12, batch_size=4, test_images=6, step=90)
PLAIN = Contender("plain", "resnet18", averages=(8,))
RING = Contender("ring", "gmr_resnet18", {"kernel_size": 3})


@pytest.fixture
def data():
    rng = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 2
        images = rng.integers(0, 100, (count, 12, 12, 3), dtype=np.uint8)
        images[labels == 1] += 100
        return Split(images, labels)

    return DataSet("bright or dark", "classify", ("dark", "bright"), {"train": split(12), "test": split(8)})


def test_contenders_have_equal_operations(data, tmp_path):
    found, missing = run_budget(data, tmp_path, TINY, [PLAIN, RING])
    assert not missing
    assert [row.name for row in found] == ["plain", "ring"]
    for row, contender in zip(found, (PLAIN, RING), strict=True):
        network = create_model(contender.model, width=2, num_classes=2, **contender.options)
        per_step = (1 + BACKWARD) * forward_operations(network, torch.zeros(4, 3, 12, 12)) / 1e12
        assert TINY.teraflops <= row.teraflops < TINY.teraflops + per_step
        assert row.epochs == pytest.approx(row.teraflops / per_step / 3)
        assert row.parameters == sum(p.numel() for p in network.parameters())
    assert found[1].scores[""]["rotated_std"] == 0
    averaged = found[0].scores["8"]
    assert averaged["rotated_std"] == 0
    assert averaged["upright"] == averaged["reflected_mean"]


def test_equal_epochs_and_the_most_of_them(data, tmp_path):
    few = dataclasses.replace(TINY, teraflops=1.0, most_epochs=2)
    assert run_budget(data, tmp_path / "few", few, [PLAIN])[0][0].epochs == 2
    equal = dataclasses.replace(TINY, epochs=1)
    assert run_budget(data, tmp_path / "equal", equal, [PLAIN])[0][0].epochs == 1


def test_a_second_run_goes_on_where_the_first_stopped(data, tmp_path):
    steps = []

    class Stopped(Exception):
        pass

    def stop_in_the_second(stage, done, total):
        if stage == "train ring":
            raise Stopped

    with pytest.raises(Stopped):
        run_budget(data, tmp_path, TINY, [PLAIN, RING], stop_in_the_second)
    assert [row.name for row in read_budget(tmp_path)] == ["plain"]
    first = read_budget(tmp_path)[0]
    found, _ = run_budget(data, tmp_path, TINY, [PLAIN, RING], lambda stage, done, total: steps.append(stage))
    assert found[0] == first
    assert "train plain" not in steps
    assert "train ring" in steps
    with pytest.raises(ValueError, match="another budget"):
        run_budget(data, tmp_path, Budget(width=3), [PLAIN])


def test_the_same_seed_gives_the_same_figures(data, tmp_path):
    one, other = (run_budget(data, tmp_path / name, TINY, [RING])[0][0] for name in "ab")
    assert (one.loss, one.scores) == (other.loss, other.scores)


def test_the_table_marks_our_readings(data, tmp_path):
    reading = Contender("RAD-2", "rad_resnet34", {"radii": 2}, turned=True)
    table = budget_table(run_budget(data, tmp_path, TINY, [PLAIN, reading])[0])
    lines = table.splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert "| RAD-2 (our reading) |" in table
    assert "| plain, mean of 8 views |" in table


def test_what_is_not_installed_is_left_out(data, tmp_path):
    if find_spec("escnn") is not None:
        pytest.skip("escnn is installed here")
    found, missing = run_budget(data, tmp_path, TINY, [Contender("steerable", "e2_wrn16")])
    assert found == []
    assert "make escnn" in missing["steerable"]
    assert not list(tmp_path.iterdir())


def test_every_contender_has_a_name_of_its_own():
    assert len({contender.name for contender in CONTENDERS}) == len(CONTENDERS)


@pytest.mark.parametrize("wrong", [{"teraflops": 0}, {"teraflops": float("nan")}, {"epochs": 0}, {"width": 0}])
def test_what_a_budget_refuses(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Budget(**wrong)
