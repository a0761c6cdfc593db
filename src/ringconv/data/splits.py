"""Seeded splits that never cut through a group (a patient, a slide, a scene)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringconv.data.dataset import Split

Index = NDArray[np.int64]


def hold_out(
    strata: ArrayLike, share: float, seed: int = 0, groups: Sequence[str] | NDArray[np.str_] | None = None
) -> tuple[Index, Index]:
    """Rows to keep and rows to hold out, about ``share`` of every class.

    Args:
        strata: (N,) class of each row; all equal where there are none.
        share: in [0, 1].
        groups: (N,); rows of one group stay together, and classes come out as even as whole groups allow.

    Returns:
        Two sorted arrays that share no row, and no group.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share to hold out must be in [0, 1], got {share}")
    classes, counts, members, _ = _grouped(strata, groups)
    wanted = np.round(share * np.bincount(classes, minlength=counts.shape[1]))
    held = np.zeros(counts.shape[1])
    chosen = []
    for group in np.random.default_rng(seed).permutation(len(members)):
        with_it = held + counts[group]
        if np.abs(with_it - wanted).sum() < np.abs(held - wanted).sum():
            held = with_it
            chosen.append(group)
    return _rest_and(members, chosen, len(classes))


def draw_per_class(
    strata: ArrayLike, per_class: int, seed: int = 0, groups: Sequence[str] | NDArray[np.str_] | None = None
) -> tuple[Index, Index]:
    """``per_class`` rows of every class to train on, and the rest to test on.

    With ``groups``, whole groups are taken until every class has its rows. What a class has beyond ``per_class`` in
    them is left out altogether, since testing on it would cut through a group.

    Returns:
        Two sorted arrays that share no row, and no group.
    """
    if per_class < 1:
        raise ValueError(f"per_class must be at least 1, got {per_class}")
    classes, counts, members, names = _grouped(strata, groups)
    have = np.bincount(classes, minlength=counts.shape[1])
    if have.min(initial=per_class) < per_class:
        short = {str(name): int(count) for name, count in zip(names, have, strict=True) if count < per_class}
        raise ValueError(f"per_class must be at most {min(short.values())}, got {per_class}; the classes have {short}")
    generator = np.random.default_rng(seed)
    drawn = np.zeros(counts.shape[1])
    chosen = []
    for group in generator.permutation(len(members)):
        if np.any((counts[group] > 0) & (drawn < per_class)):
            drawn += counts[group]
            chosen.append(group)
    test, train = _rest_and(members, chosen, len(classes))
    kept = [generator.permutation(train[classes[train] == c])[:per_class] for c in range(counts.shape[1])]
    return np.sort(np.concatenate([*kept, np.empty(0, np.int64)])), test


def stratified_subset(strata: ArrayLike, count: int, seed: int = 0) -> Index:
    """``count`` rows, sorted, with every class in its proportion, and one row of each at least if there are enough."""
    classes, counts, _, _ = _grouped(strata, None)
    if count < 1:
        raise ValueError(f"a subset needs at least 1 image, got {count}")
    if count >= len(classes):
        return np.arange(len(classes))
    generator = np.random.default_rng(seed)
    # Each row's place within its shuffled class, as a share of the class: the smallest shares are an even draw.
    place = np.empty(len(classes))
    for c in range(counts.shape[1]):
        rows = np.flatnonzero(classes == c)
        place[generator.permutation(rows)] = np.arange(len(rows)) / len(rows)
    order = np.lexsort((generator.random(len(classes)), place))
    return np.sort(order[:count])


def with_validation(splits: Mapping[str, Split], share: float, seed: int, grouped: bool = True) -> dict[str, Split]:
    """The same, with ``share`` of "train" moved to "val" unless there is a "val" already; in the usual order."""
    splits = dict(splits)
    if share and "train" in splits and "val" not in splits:
        train = splits["train"]
        strata = np.zeros(len(train)) if train.labels is None else train.labels
        kept, held = hold_out(strata, share, seed, train.groups if grouped else None)
        splits |= {"train": train.take(kept), "val": train.take(held)}
    return {name: splits[name] for name in ("train", "val", "test") if name in splits and len(splits[name])}


def check_groups(where: Path, images: Iterable[tuple[str | None, str | None]]) -> None:
    """Raise ValueError if a split cuts through a group.

    Args:
        images: group and split of each; None or "" where there is none.
    """
    seen: dict[str, str] = {}
    for group, split in images:
        if group and split and seen.setdefault(group, split) != split:
            raise ValueError(
                f"{where}: the group {group!r} is in {seen[group]!r} and in {split!r}; a split must not cut through a"
                " group"
            )


def _grouped(
    strata: ArrayLike, groups: Sequence[str] | NDArray[np.str_] | None
) -> tuple[Index, NDArray[np.int64], list[Index], NDArray[np.generic]]:
    """Class numbers (N,), counts (groups, classes), the rows of every group, and the names of the classes."""
    names, classes = np.unique(np.asarray(strata), return_inverse=True)
    classes = classes.astype(np.int64)
    if groups is None:
        group_of = np.arange(len(classes))
    else:
        if len(groups) != len(classes):
            raise ValueError(f"there must be one group per row, got {len(groups)} for {len(classes)}")
        group_of = np.unique(np.asarray(groups), return_inverse=True)[1]
    number = int(group_of.max()) + 1 if len(classes) else 0
    counts = np.zeros((number, len(names)), np.int64)
    np.add.at(counts, (group_of, classes), 1)
    order = np.argsort(group_of, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(group_of, minlength=number))[:-1]) if number else []
    return classes, counts, members, names


def _rest_and(members: Sequence[Index], chosen: Sequence[int], rows: int) -> tuple[Index, Index]:
    """The rows that are in none of the chosen groups, and those that are."""
    inside = np.zeros(rows, bool)
    for group in chosen:
        inside[members[group]] = True
    return np.flatnonzero(~inside), np.flatnonzero(inside)
