"""Splits: seeded, even, and never through a group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringconv.data import Split, draw_per_class, hold_out, stratified_subset
from ringconv.data.splits import with_validation

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=80)


@given(rows, st.floats(0, 0.9), st.integers(0, 5))
def test_hold_out_shares_neither_rows_nor_groups(rows, share, seed):
    labels, groups = np.array(rows).T
    kept, held = hold_out(labels, share, seed, groups.astype(str))
    assert sorted([*kept, *held]) == list(range(len(rows)))
    assert not set(groups[kept]) & set(groups[held])
    again = hold_out(labels, share, seed, groups.astype(str))
    assert np.array_equal(kept, again[0])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.floats(0, 0.9))
def test_hold_out_without_groups_is_exact_in_every_class(labels, share):
    labels = np.array(labels)
    _, held = hold_out(labels, share)
    for c in np.unique(labels):
        assert (labels[held] == c).sum() == np.round(share * (labels == c).sum())


@given(rows)
def test_all_can_be_held_out(rows):
    labels, groups = np.array(rows).T
    kept, held = hold_out(labels, 1, groups=groups.astype(str))
    assert len(kept) == 0
    assert held.tolist() == list(range(len(rows)))


@given(rows, st.integers(0, 5))
def test_draw_per_class_shares_neither_rows_nor_groups(rows, seed):
    labels, groups = np.array(rows).T
    per_class = int(np.unique(labels, return_counts=True)[1].min())
    train, test = draw_per_class(labels, per_class, seed, groups.astype(str))
    assert all((labels[train] == c).sum() == per_class for c in np.unique(labels))
    assert not set(groups[train]) & set(groups[test])
    train, test = draw_per_class(labels, per_class, seed)
    assert sorted([*train, *test]) == list(range(len(rows)))


def test_seeds_differ():
    labels = np.repeat([0, 1], 50)
    assert not np.array_equal(draw_per_class(labels, 10, 0)[0], draw_per_class(labels, 10, 1)[0])
    assert not np.array_equal(hold_out(labels, 0.2, 0)[1], hold_out(labels, 0.2, 1)[1])


def test_too_many_per_class_names_the_classes():
    with pytest.raises(ValueError, match=r"at most 2, got 3; the classes have \{'1': 2\}"):
        draw_per_class([0, 0, 0, 1, 1], 3)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.integers(1, 200))
def test_subset_keeps_the_proportions(labels, count):
    labels = np.array(labels)
    chosen = stratified_subset(labels, count, seed=3)
    assert len(chosen) == len(set(chosen)) == min(count, len(labels))
    assert np.array_equal(chosen, np.sort(chosen))
    for c in np.unique(labels):
        share = (labels == c).mean() * len(chosen)
        # Places within a class are at multiples of 1/n of it, so that a draw is within one of its share, and rounding
        # of the cut adds another.
        assert abs((labels[chosen] == c).sum() - share) <= 2
    if count >= len(np.unique(labels)):
        assert set(labels[chosen]) == set(labels)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_impossible_shares(share):
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        hold_out([0, 1], share)


def test_validation_is_cut_from_train_by_group():
    images = np.zeros((40, 4, 4), np.uint8)
    groups = np.array([f"patient {row // 4}" for row in range(40)])
    train = Split(images, np.arange(40) % 2, groups=groups)
    splits = with_validation({"test": train, "train": train}, 0.25, 0)
    assert list(splits) == ["train", "val", "test"]
    assert not set(splits["train"].groups) & set(splits["val"].groups)
    assert len(splits["val"]) in (8, 12)
    assert with_validation({"train": train, "val": train}, 0.25, 0)["val"] is train
