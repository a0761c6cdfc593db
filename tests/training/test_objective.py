import math

import pytest
import torch
import torch.nn.functional as F

from ringconv.evaluation.meters import Segmented
from ringconv.evaluation.views import UPRIGHT, plan_views
from ringconv.training.objective import bce_and_dice, make_losses, outputs, scores


def test_cross_entropy_of_each_image_is_torchs() -> None:
    logits, labels = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    losses = make_losses("ce", 0.1)(logits, labels)
    assert losses.shape == (5,)
    torch.testing.assert_close(losses.mean(), F.cross_entropy(logits, labels, label_smoothing=0.1))
    maps, masks = torch.randn(2, 3, 4, 6), torch.randint(3, (2, 4, 6))
    torch.testing.assert_close(make_losses("ce")(maps, masks).mean(), F.cross_entropy(maps, masks))


def test_bce_and_dice_by_hand() -> None:
    masks = torch.tensor([[[1, 1], [0, 0]]])
    undecided = torch.zeros(1, 1, 2, 2)
    # Every pixel has probability 1/2: the overlap is 1, the sizes are 2 and 2.
    assert bce_and_dice(undecided, masks).item() == pytest.approx(math.log(2) + 1 - (2 * 1 + 1) / (2 + 2 + 1))
    sure = torch.tensor([[[[50.0, 50.0], [-50.0, -50.0]]]])
    assert bce_and_dice(sure, masks).item() == pytest.approx(0, abs=1e-6)
    assert bce_and_dice(torch.full((1, 1, 2, 2), -50.0), torch.zeros(1, 2, 2).long()).item() == pytest.approx(
        0, abs=1e-6
    )


def test_several_classes_are_planes_of_their_own() -> None:
    masks = torch.tensor([[[0, 1], [2, 2]]])
    right = 50.0 * (2 * F.one_hot(masks, 3).movedim(-1, 1).float() - 1)
    assert bce_and_dice(right, masks).item() == pytest.approx(0, abs=1e-6)
    assert bce_and_dice(right.roll(1, 1), masks).item() > 10


def test_bce_and_dice_has_gradients_everywhere() -> None:
    output = torch.randn(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda o: bce_and_dice(o, torch.ones(2, 3, 3).long()), output)


def test_scores() -> None:
    assert scores(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])).tolist() == [1.0, 0.0]
    masks = torch.tensor([[[1, 1], [0, 0]], [[0, 0], [0, 0]]])
    output = torch.tensor([[[[1.0, -1.0], [-1.0, -1.0]]], [[[-1.0, -1.0], [-1.0, -1.0]]]])
    assert scores(output, masks).tolist() == pytest.approx([2 / 3, 1.0])
    two = torch.cat([-output, output], 1)
    assert scores(two, masks).tolist() == pytest.approx([2 / 3, 1.0])


def test_a_class_that_is_neither_there_nor_found_does_not_count() -> None:
    """As in the final test: it would make every image look better than it is."""
    masks = torch.tensor([[[1, 1], [0, 0]], [[0, 0], [0, 0]], [[1, 2], [0, 0]]])
    answers = torch.tensor([[[1, 0], [0, 0]], [[0, 0], [0, 0]], [[1, 0], [0, 0]]])
    output = F.one_hot(answers, 4).movedim(-1, 1).float()
    expected = [2 / 3, 1.0, 0.5]
    assert scores(output, masks).tolist() == pytest.approx(expected)
    meter = Segmented(4)
    meter.add(UPRIGHT, output, masks)
    plan = plan_views(2, 360, reflections=False)
    assert meter.scores(plan)["dice"].upright == pytest.approx(100 * sum(expected) / 3)


def test_outputs() -> None:
    assert [outputs("ce", 2), outputs("ce", 10), outputs("bce+dice", 2), outputs("bce+dice", 4)] == [2, 10, 1, 4]
