from collections.abc import Callable

import numpy as np
import pytest

from ringconv.data import DataSet, Split
from ringconv.recipes import resolve
from ringconv.recipes.protocols import PROTOCOLS


@pytest.fixture(scope="session")
def stand_in() -> Callable[[str], DataSet]:
    """Random images of the kind that a recipe trains on, small enough for its scale ``tiny``."""

    def make(name: str) -> DataSet:
        settings = resolve(name, "tiny")
        # What the scale replaces the data by does not matter here: the kind of the recipe's own does.
        protocol = PROTOCOLS[resolve(name).data]
        random = np.random.default_rng(0)
        side = settings.size
        assert isinstance(side, int)
        space = (side,) * protocol.dimensions
        segment = settings.task == "segment"

        def split(count: int) -> Split:
            colours = (protocol.channels,) if protocol.channels > 1 else ()
            images = random.integers(0, 256, (count, *space, *colours), np.uint8)
            targets = random.integers(0, 2, (count, *space)) if segment else np.arange(count) % 2
            return Split(images, targets, protocol.dimensions)

        statistics = (0.5,) * protocol.channels
        splits = {"train": split(16), "test": split(4)}
        return DataSet("stand-in", "segment" if segment else "classify", ("a", "b"), splits, statistics, statistics)

    return make
