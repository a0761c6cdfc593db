import numpy as np
import pytest
import torch

from ringconv.training.order import epoch_batches, parts_of_rank, seed_network, steps_per_epoch, uniforms


@pytest.mark.parametrize(("images", "batch", "sizes"), [(10, 4, [4, 4, 2]), (9, 4, [4, 4]), (3, 8, [3]), (1, 8, [1])])
def test_batches_of_an_epoch(images: int, batch: int, sizes: list[int]) -> None:
    batches = epoch_batches(images, batch, 1, seed=0, epoch=0)
    assert [len(rows) for rows in batches] == sizes
    assert len(set(np.concatenate(batches))) == sum(sizes)
    assert steps_per_epoch(images, batch, 1) == len(sizes)


def test_a_last_batch_too_short_for_all_parts_is_left_out() -> None:
    assert [len(rows) for rows in epoch_batches(11, 8, 4, 0, 0)] == [8]
    assert [len(rows) for rows in epoch_batches(12, 8, 4, 0, 0)] == [8, 4]
    with pytest.raises(ValueError, match="3 images to train on, fewer than the 4 parts"):
        epoch_batches(3, 8, 4, 0, 0)


def test_order_changes_with_epoch_and_seed_only() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return list(np.concatenate(epoch_batches(50, 7, 1, seed, epoch)))

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


@pytest.mark.parametrize(("batch", "accumulate", "world"), [(8, 1, 1), (8, 2, 3), (7, 3, 2), (6, 3, 2)])
def test_parts_cover_a_batch_once(batch: int, accumulate: int, world: int) -> None:
    parts = [part for rank in range(world) for part in parts_of_rank(batch, accumulate, rank, world)]
    sizes = [part.stop - part.start for part in parts]
    assert [row for part in parts for row in range(batch)[part]] == list(range(batch))
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_random_numbers_are_functions_of_seed_and_step() -> None:
    assert torch.equal(uniforms(5, 3, 0, 7), uniforms(5, 3, 0, 7))
    assert not torch.equal(uniforms(5, 3, 0, 7), uniforms(5, 3, 0, 8))
    drawn = []
    for step, rank in ((1, 0), (1, 0), (2, 0), (1, 1)):
        seed_network(0, step, rank)
        drawn.append(float(torch.rand(())))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
