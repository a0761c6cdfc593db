"""Networks whose figures are known beforehand, tested upright, turned and mirrored."""

import json
import math
import statistics

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from ringconv.data import DataSet, Split
from ringconv.evaluation import EvaluationSettings, Symmetrised, Turning, evaluate
from ringconv.evaluation.meters import Segmented
from ringconv.evaluation.results import Scores
from ringconv.evaluation.views import UPRIGHT, Viewer, plan_views


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def labelled(images, labels, classes=2, **options):
    split = Split(images, np.asarray(labels), **({"dimensions": 2, "scale": 1.0} | options))
    channels = split.channels
    return DataSet(
        "set", "classify", tuple("abcdefgh"[:classes]), {"test": split}, (0.0,) * channels, (1.0,) * channels
    )


def noise(count=24, size=(17, 17), channels=1):
    return np.random.default_rng(0).normal(size=(count, *size, channels)).astype(np.float32)


def disc_mean(x):
    """The mean of the middle, as two logits."""
    y, z = (torch.arange(side) - (side - 1) / 2 for side in x.shape[-2:])
    inside = (y[:, None] ** 2 + z[None, :] ** 2) <= 36
    mean = x[:, 0, inside].mean(1)
    return torch.stack([-mean, mean], 1)


def test_a_plan_has_36_angles():
    plan = plan_views(2)
    assert list(plan.turns) == [str(angle) for angle in range(0, 360, 10)]
    assert list(plan.flips) == ["flip vertical", "flip horizontal"]
    volumes = plan_views(3)
    assert list(volumes.turns) == [f"{axis} {angle}" for axis in "xyz" for angle in range(0, 360, 30)]
    assert len(volumes.turns) == 36
    fractions = plan_views(2, 7.2)
    assert len(fractions.turns) == 50
    assert len(plan_views(2, 3.6).turns) == 100
    assert fractions.turns["180"].angle == 180, "exact, so that it is not interpolated"
    for step in (0, 7, -10, 400, 7.3, math.nan):
        with pytest.raises(ValueError, match="divides 360"):
            plan_views(2, step)


def test_an_exactly_invariant_network_does_the_same_at_quarter_turns():
    images = noise()
    labels = (images.max((1, 2, 3)) > np.median(images.max((1, 2, 3)))).astype(int)
    labels[::5] = 1 - labels[::5]
    bar = float(np.median(images.max((1, 2, 3))))
    network = Function(lambda x: torch.stack([torch.zeros(len(x)), x.amax((1, 2, 3)) - bar], 1))
    found = evaluate(network, labelled(images, labels), EvaluationSettings(batch_size=7))
    scores = found.scores["accuracy"]
    assert scores.upright == pytest.approx(100 * (1 - 5 / 24))
    assert {scores.per_turn[angle] for angle in ("0", "90", "180", "270")} == {scores.upright}
    assert set(scores.per_flip.values()) == {scores.upright}
    assert scores.four_rot == scores.upright
    assert found.drift.changed["90"] == 0
    assert found.drift.norm["180"] == 0
    assert scores.std > 0, "between them interpolation blunts the maximum"


def test_the_mean_of_a_disc_is_the_same_at_all_angles():
    """Labels are by the same mean, so that only images whose mean is within the interpolation's error may change."""
    images = noise(200)
    exact = disc_mean(torch.from_numpy(images).movedim(-1, 1))[:, 1]
    labels = (exact > 0).long().numpy()
    found = evaluate(Function(disc_mean), labelled(images, labels))
    scores = found.scores["accuracy"]
    assert scores.upright == 100
    assert {scores.per_turn[angle] for angle in ("90", "180", "270")} == {100}
    # The rim of the disc is all that a turn exchanges.
    rim = 100 * float((exact.abs() < 3 * exact.std() / 6).float().mean())
    assert min(scores.per_turn.values()) > 100 - rim
    smooth = np.ones((4, 17, 17, 1), np.float32) * np.array([-2, -1, 1, 2], np.float32)[:, None, None, None]
    found = evaluate(Function(disc_mean), labelled(smooth, [0, 0, 1, 1]))
    assert set(found.scores["accuracy"].per_turn.values()) == {100}
    assert max(found.drift.norm.values()) < 1e-5
    assert min(found.drift.cosine.values()) > 1 - 1e-9


def test_a_network_that_looks_at_one_side_only_is_found_out():
    images = np.zeros((10, 8, 8, 1), np.float32)
    images[:, :4] = 1
    network = Function(lambda x: torch.stack([x[:, 0, 4:].mean((1, 2)), x[:, 0, :4].mean((1, 2))], 1))
    found = evaluate(network, labelled(images, np.ones(10, int)))
    scores = found.scores["accuracy"]
    assert scores.upright == scores.per_turn["40"] == scores.per_turn["320"] == 100
    assert scores.per_turn["180"] == scores.per_turn["140"] == 0
    assert scores.per_flip == {"flip vertical": 0.0, "flip horizontal": 100.0}
    assert scores.reflected == 50
    assert scores.worst == 0
    assert found.drift.changed["180"] == 100
    assert found.drift.cosine["180"] == pytest.approx(0)
    assert found.drift.norm["180"] == pytest.approx(math.sqrt(2))


def test_summaries():
    per_turn = {str(angle): float(angle % 40) for angle in range(0, 360, 10)}
    scores = Scores(0.0, per_turn, {"flip vertical": 1.0, "flip horizontal": 3.0})
    assert scores.std == statistics.pstdev(per_turn.values())
    assert scores.rotated == statistics.fmean(per_turn.values())
    assert scores.four_rot == statistics.fmean([0, 10, 20, 30])
    assert scores.all_rot == statistics.fmean([angle % 40 for angle in range(0, 360, 20)])
    assert scores.reflected == 2
    coarse = Scores(0.0, {"0": 1.0, "120": 1.0, "240": 1.0}, {})
    assert coarse.four_rot is coarse.all_rot is coarse.reflected is None


def test_one_logit_is_the_second_of_two_classes():
    images = np.array([-1, 1, 1, -1], np.float32).reshape(4, 1, 1, 1) * np.ones((4, 5, 5, 1), np.float32)
    network = Function(lambda x: x[:, 0, 2, 2, None])
    assert evaluate(network, labelled(images, [0, 1, 1, 1])).scores["accuracy"].upright == 75


@pytest.mark.parametrize(("classes", "outputs"), [(3, 1), (3, 2), (4, 1)])
def test_too_few_outputs_for_the_classes_are_refused(classes, outputs):
    data = labelled(noise(), np.arange(24) % classes, classes)
    network = Function(lambda x: x.mean((2, 3)).expand(-1, outputs))
    with pytest.raises(ValueError, match=rf"must return {classes} logits \(or 1 for two classes\), got {outputs}"):
        evaluate(network, data, EvaluationSettings(step=90))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_networks_are_asked_in_their_own_precision(dtype):
    data = labelled(noise(), np.arange(24) % 2)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(dtype)
    images, labels = data["test"].batch(range(24))
    with torch.no_grad():
        right = (network(data.normalise(images).to(dtype)).argmax(1) == labels).double().mean()
    found = evaluate(network, data, EvaluationSettings(step=90)).scores["accuracy"].upright
    assert found == pytest.approx(100 * float(right))


def test_only_right_answers_count_as_changed():
    """A quarter turn changes all four answers; three of the upright ones are right."""
    images = np.zeros((4, 8, 8, 1), np.float32)
    images[:, :4] = 1
    network = Function(lambda x: torch.stack([x[:, 0, 4:].mean((1, 2)), x[:, 0, :4].mean((1, 2))], 1))
    found = evaluate(network, labelled(images, [1, 1, 1, 0]))
    assert found.scores["accuracy"].upright == 75
    assert found.scores["accuracy"].per_turn["180"] == 25
    assert found.drift.changed["180"] == 100


def test_where_nothing_is_right_nothing_can_change():
    network = Function(lambda x: torch.tensor([[1.0, 0.0]]).expand(len(x), 2))
    found = evaluate(network, labelled(noise(4), np.ones(4, int)))
    assert found.scores["accuracy"].rotated == 0
    assert found.drift.changed == {}
    json.dumps(found.as_dict(), allow_nan=False)


def test_images_are_normalised_before_they_are_turned():
    data = labelled(np.full((2, 9, 9, 3), 200, np.uint8), [0, 0], scale=255.0)
    seen = []
    network = Function(lambda x: seen.append(x) or torch.zeros(len(x), 2))
    evaluate(network, data, EvaluationSettings(step=45), mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))
    expected = torch.tensor([(200 / 255 - m) / s for m, s in ((0.5, 0.1), (0.4, 0.2), (0.3, 0.3))])
    torch.testing.assert_close(seen[0][0, :, 4, 4], expected)
    (leaning,) = [x for x in seen if x[0, 0, 0, 0] == 0][:1]
    torch.testing.assert_close(leaning[0, :, 4, 4], expected, atol=1e-5, rtol=0)
    assert bool((leaning[0, :, 0, 0] == 0).all()), "the fill is 0 after normalisation"


def test_a_subset_is_stratified_and_seeded():
    data = labelled(noise(100), np.arange(100) % 4, classes=4)
    found = evaluate(Function(lambda x: torch.zeros(len(x), 4)), data, EvaluationSettings(subset=20, step=180))
    assert found.images == 20
    assert found.scores["accuracy"].upright == 25


def test_mode_and_gradients_are_left_alone():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(81, 2))
    network[1].eval()
    evaluate(network, labelled(noise(4, (9, 9)), [0, 1, 0, 1]), EvaluationSettings(step=180))
    assert network.training
    assert not network[1].training
    assert network[2].weight.grad is None


def test_progress_reaches_its_end():
    steps = []
    data = labelled(noise(10), [0, 1] * 5)
    evaluate(Function(disc_mean), data, EvaluationSettings(batch_size=4, step=30), progress=lambda *s: steps.append(s))
    assert [done for _, done, _ in steps] == list(range(1, 43))
    assert steps[-1] == ("test", 42, 42), "3 batches, upright, 11 more angles and 2 flips"


# -- volumes


def test_volumes_are_turned_about_x_y_and_z():
    """An octant cannot be told from its turns by a network that looks at sums only, and can by one that looks."""
    volumes = np.zeros((4, 9, 9, 9), np.float32)
    volumes[:, 5:, :4, :4] = 1
    data = labelled(volumes, [1, 1, 1, 1], dimensions=3)
    total = Function(lambda x: torch.stack([torch.full((len(x),), 10.0), x.sum((1, 2, 3, 4))], 1))
    scores = evaluate(total, data).scores["accuracy"]
    assert len(scores.per_turn) == 36
    assert {scores.per_turn[f"{axis} {angle}"] for axis in "xyz" for angle in (0, 90, 180, 270)} == {100}
    assert scores.four_rot is None
    above = Function(lambda x: torch.stack([x[:, 0, :4].sum((1, 2, 3)), x[:, 0, 5:].sum((1, 2, 3))], 1))
    scores = evaluate(above, data).scores["accuracy"]
    assert all(scores.per_turn[f"z {angle}"] == 100 for angle in range(0, 360, 30)), "D is z"
    assert scores.per_turn["x 180"] == scores.per_turn["y 180"] == 0
    assert scores.per_flip == {"flip z": 0.0, "flip y": 100.0, "flip x": 100.0}


# -- segmentation


def masked(size=(32, 32), count=6, classes=2):
    generator = np.random.default_rng(0)
    masks = np.zeros((count, *size), np.uint8)
    for mask in masks:
        for c in range(1, classes):
            row, column = generator.integers(4, min(size) - 10, 2)
            mask[row : row + 7, column : column + 5] = c
    images = (masks[..., None] * 2.0 - 1).astype(np.float32)
    split = Split(images, masks, 2, 1.0)
    names = ("background", *"abc"[: classes - 1])
    return DataSet("set", "segment", names, {"test": split}, (0.0,), (1.0,))


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_a_copy_keeps_dice_1_at_quarter_turns(size):
    # The fill must look like background to a network that copies.
    settings = EvaluationSettings(Turning(fill=-1.0), batch_size=4)
    found = evaluate(Function(lambda x: x), masked(size), settings)
    for metric in ("auc", "iou", "dice"):
        scores = found.scores[metric]
        assert {scores.per_turn[angle] for angle in ("0", "90", "180", "270")} == {100}
        assert set(scores.per_flip.values()) == {100}
    # Between them the nearest pixel of the mask and half of the bilinear image are the same but at corners.
    assert min(found.scores["dice"].per_turn.values()) > 90
    assert found.drift is None
    if size == (32, 32):
        nearest = evaluate(Function(lambda x: x), masked(), EvaluationSettings(Turning("nearest", fill=-1.0)))
        assert set(nearest.scores["dice"].per_turn.values()) == {100}, "image and mask turn together"


def test_figures_are_averaged_per_image():
    data = masked(count=2)
    masks = data["test"].targets
    said = np.zeros((2, 32, 32), np.float32) - 1
    said[0] = masks[0] * 2.0 - 1  # right
    rows, columns = np.nonzero(masks[1])
    said[1, rows[:7], columns[:7]] = 1  # 7 of 35 pixels, and one beside
    said[1, 0, 0] = 1
    split = Split(said[..., None], masks, 2, 1.0)
    data = DataSet("set", "segment", ("background", "a"), {"test": split}, (0.0,), (1.0,))
    found = evaluate(Function(lambda x: x), data, EvaluationSettings(step=180, reflections=False))
    assert found.scores["iou"].upright == pytest.approx(100 * (1 + 7 / 36) / 2)
    assert found.scores["dice"].upright == pytest.approx(100 * (1 + 14 / (35 + 8)) / 2)
    hits, alarms = 7 / 35, 1 / (1024 - 35)
    auc = hits * (1 - alarms) + (hits * alarms + (1 - hits) * (1 - alarms)) / 2
    assert found.scores["auc"].upright == pytest.approx(100 * (1 + auc) / 2)


def test_images_without_foreground():
    masks = np.zeros((2, 8, 8), np.uint8)
    masks[1, :3] = 1
    split = Split((masks[..., None] * 2.0 - 1).astype(np.float32), masks, 2, 1.0)
    data = DataSet("set", "segment", ("background", "a"), {"test": split}, (0.0,), (1.0,))
    found = evaluate(Function(lambda x: x), data, EvaluationSettings(step=90))
    assert {name: scores.upright for name, scores in found.scores.items()} == {"auc": 100, "iou": 100, "dice": 100}
    everything = evaluate(Function(lambda x: x * 0 + 1), data, EvaluationSettings(step=90))
    assert everything.scores["dice"].upright == pytest.approx(50 * 2 * 24 / (64 + 24)), "false alarms in the empty one"
    only_empty = DataSet("set", "segment", ("background", "a"), {"test": split.take([0])}, (0.0,), (1.0,))
    found = evaluate(Function(lambda x: x), only_empty, EvaluationSettings(step=90))
    assert math.isnan(found.scores["auc"].upright)
    json.dumps(found.as_dict(), allow_nan=False)


def test_several_classes():
    data = masked(classes=3, count=4)
    copy = Function(lambda x: 10.0 * nn.functional.one_hot((x[:, 0] + 1).div(2).round().long(), 3).movedim(-1, 1))
    found = evaluate(copy, data, EvaluationSettings(Turning(fill=-1.0), step=90))
    assert set(found.scores["dice"].per_turn.values()) == {100}
    with pytest.raises(ValueError, match=r"must return 3 channels \(or 1 for two classes\), got 2"):
        evaluate(Function(lambda x: x.expand(-1, 2, -1, -1)), data)


def test_masks_of_unknown_classes_are_refused():
    masks = np.full((1, 8, 8), 255, np.uint8)
    split = Split(np.zeros((1, 8, 8, 1), np.float32), masks, 2, 1.0)
    data = DataSet("set", "segment", ("background", "a"), {"test": split}, (0.0,), (1.0,))
    with pytest.raises(ValueError, match="class numbers below 2, got 255"):
        evaluate(Function(lambda x: x), data)


@pytest.mark.parametrize(
    "turning", [Turning(), Turning(expand=True), Turning(mask="disc"), Turning(padding="reflect")], ids=repr
)
def test_only_what_shows_the_image_is_compared(turning):
    def dice(masks):
        split = Split(np.ones((1, 16, 24, 1), np.float32), masks, 2, 1.0)
        data = DataSet("set", "segment", ("background", "a"), {"test": split}, (0.0,), (1.0,))
        everywhere = Function(lambda x: x * 0 + 1)
        return evaluate(everywhere, data, EvaluationSettings(turning)).scores["dice"].per_turn.values()

    assert set(dice(np.ones((1, 16, 24), np.uint8))) == {100}, "what turns in is not a false alarm"
    square = np.zeros((1, 16, 24), np.uint8)
    square[:, 4:12, 8:16] = 1
    assert max(dice(square)) < 75, "false alarms in the image are"


@pytest.mark.parametrize("expand", [False, True])
def test_however_images_are_continued_the_same_pixels_are_compared(expand):
    def compared(padding):
        viewer = Viewer(plan_views(2, 30), Turning(padding=padding, expand=expand))
        return {name: labels[1] for name, _, labels in viewer.show(torch.zeros(1, 1, 16, 24), torch.ones(1, 16, 24))}

    filled = compared("fill")
    assert 0 < filled["30"].float().mean() < 1
    for padding in ("edge", "reflect"):
        for name, pixels in compared(padding).items():
            assert torch.equal(pixels, filled[name]), (padding, name)


def test_maps_of_another_size_are_refused():
    with pytest.raises(ValueError, match="must have its mask's size"):
        evaluate(Function(lambda x: x[..., ::2, ::2]), masked())


# -- averaging over symmetries


@pytest.mark.parametrize(("group", "flips"), [(4, False), (8, True)])
def test_symmetrising_makes_any_network_invariant(group, flips):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 3)).double()
    x = torch.randn(5, 1, 9, 9, dtype=torch.float64)
    symmetric = Symmetrised(network, group)
    torch.testing.assert_close(symmetric(x.rot90(1, (2, 3))), symmetric(x))
    assert torch.allclose(symmetric(x.flip(3)), symmetric(x)) == flips
    data = labelled(noise(12, (9, 9)), np.arange(12) % 3, classes=3)
    settings = EvaluationSettings(symmetrise=group)
    scores = evaluate(network.float(), data, settings).scores["accuracy"]
    assert len({scores.per_turn[angle] for angle in ("0", "90", "180", "270")}) == 1


def test_symmetrising_maps_turns_them_back():
    torch.manual_seed(0)
    network = nn.Conv2d(1, 2, 3, padding=1).double()
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    symmetric = Symmetrised(network, 8)
    for move in (lambda v: v.rot90(1, (2, 3)), lambda v: v.flip(2)):
        torch.testing.assert_close(symmetric(move(x)), move(symmetric(x)))
    volumes = Symmetrised(nn.Conv3d(1, 1, 3, padding=1).double(), 24, 3)
    v = torch.randn(1, 1, 5, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(volumes(v.rot90(1, (2, 4))), volumes(v).rot90(1, (2, 4)))


def test_impossible_symmetries():
    with pytest.raises(ValueError, match="in 2 dimensions symmetrise must be 4 or 8, got 24"):
        Symmetrised(nn.Identity(), 24)
    with pytest.raises(ValueError, match="in 3 dimensions symmetrise must be 24 or 48, got 4"):
        Symmetrised(nn.Identity(), 4, 3)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_auc_of_confident_networks(channels):
    """Of logits above 17, probabilities are all 1 in single precision."""
    generator = torch.Generator().manual_seed(0)
    classes = max(2, channels)
    targets = torch.randint(0, classes, (2, 12, 12), generator=generator)
    output = 30 * torch.randn(2, channels, 12, 12, generator=generator)
    meter = Segmented(classes)
    meter.add(UPRIGHT, output, targets)
    expected = []
    for logits, mask in zip(output.double(), targets, strict=True):
        odds = [logits[0]] if channels == 1 else [
            logits[k] - torch.cat([logits[:k], logits[k + 1 :]]).logsumexp(0) for k in range(1, classes)
        ]  # fmt: skip
        expected.append(np.mean([roc_auc_score((mask == k + 1).flatten(), o.flatten()) for k, o in enumerate(odds)]))
    found = torch.cat(meter._values["auc"][UPRIGHT])
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # torchmetrics adds up in single precision
