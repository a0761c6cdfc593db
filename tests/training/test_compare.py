"""The comparison: equal but for the convolution, reproducible, and its figures mean what their names say."""

import pytest
import torch

from ringconv.data import load_textures
from ringconv.training import CompareSettings, ModelResult, compare, small_network

TINY = CompareSettings(epochs=1, seed=3, train_patches=10, test_patches=2)


@pytest.fixture(scope="module")
def tiny():
    stages = {}
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    comparison = compare(TINY, lambda stage, done, total: stages.setdefault(stage, []).append((done, total)))
    assert torch.equal(torch.random.get_rng_state(), before), "the caller's random numbers are left alone"
    return comparison, stages


def test_networks_have_their_size():
    count = {kind: sum(p.numel() for p in small_network(kind, 7).parameters()) for kind in ("plain", "ring")}
    free_weights = 1 * 16 + 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64
    norms_and_head = 2 * 2 * (16 + 32 + 64) + 65 * 7
    assert count["plain"] == 9 * free_weights + norms_and_head == 72_471
    assert count["ring"] == 2 * free_weights + 6 * 2 + norms_and_head == 16_819


def test_only_the_ring_network_is_invariant():
    x = torch.randn(3, 1, 32, 32, dtype=torch.float64)
    change = {}
    for kind in ("plain", "ring"):
        network = small_network(kind, 7).double()
        network(x)  # running statistics other than the initial ones
        network.eval()
        moved = [x.rot90(quarter, (2, 3)) for quarter in (1, 2, 3)] + [x.flip(2), x.flip(3)]
        change[kind] = max((network(y) - network(x)).abs().max().item() for y in moved)
    assert change["ring"] < 1e-12
    assert change["plain"] > 1e6 * change["ring"]


def test_all_angles_and_mirrors_are_tested(tiny):
    comparison, stages = tiny
    assert [model.kind for model in comparison.models] == ["plain", "ring"]
    assert comparison.settings == TINY
    for model in comparison.models:
        assert list(model.per_angle) == list(range(0, 360, 10))
        assert list(model.per_mirror) == ["horizontal", "vertical"]
        assert all(0 <= value <= 100 for value in [*model.per_angle.values(), *model.per_mirror.values()])
        assert model.train_seconds > 0
    assert list(stages) == ["train plain", "train ring", "test both"]
    for steps in stages.values():
        assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
        assert {total for _, total in steps} == {len(steps)}


def test_the_same_settings_give_the_same_figures(tiny):
    again = compare(TINY)
    for model, other in zip(tiny[0].models, again.models, strict=True):
        assert model.per_angle == other.per_angle
        assert model.per_mirror == other.per_mirror


def test_training_teaches_and_quarter_turns_do_not_matter_to_rings():
    comparison = compare(CompareSettings(epochs=5, train_patches=30, test_patches=8))
    plain, ring = comparison.models
    chance = 100 / 7
    assert plain.upright > 3 * chance
    assert ring.upright > 2 * chance
    for angle, accuracy in ring.per_angle.items():
        assert ring.per_angle[(angle + 90) % 360] == accuracy
    assert set(ring.per_mirror.values()) == {ring.upright}
    assert any(plain.per_angle[angle] != plain.per_angle[(angle + 90) % 360] for angle in plain.per_angle)


def test_figures_mean_what_they_say():
    model = ModelResult("ring", 5, 1.0, {0: 90.0, 10: 80.0, 20: 85.0, 30: 85.0}, {"horizontal": 70.0, "vertical": 80.0})
    assert model.upright == 90
    assert model.rotated == 85
    assert model.std == pytest.approx((50 / 4) ** 0.5), "population, not sample"
    assert (model.worst, model.worst_angle) == (80, 10)
    assert model.spread == 10
    assert model.mirrored == 75


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("seed", -1), ("train_patches", 0), ("test_patches", 1_001), ("epochs", 10_001)]
)
def test_bad_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be from [\d,]+ to [\d,]+, got {value:,}"):
        CompareSettings(**{name: value})


@pytest.mark.parametrize(("split", "most"), [("train", 3_000), ("test", 1_000)])
def test_as_many_patches_as_allowed_are_there(split, most):
    CompareSettings(**{f"{split}_patches": most})
    assert len(load_textures(split, most)) == 7 * most


def test_unknown_network_is_refused():
    with pytest.raises(ValueError, match="kind must be one of 'plain', 'ring', got 'square'"):
        small_network("square", 7)


@pytest.mark.slow
def test_the_default_shows_what_it_is_for():
    torch.set_num_threads(2)
    plain, ring = compare().models
    assert ring.rotated > plain.rotated + 5
    assert ring.upright > plain.upright - 3
    assert ring.std < 2 < plain.std
