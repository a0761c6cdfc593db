"""Recipes at the scale tiny, trained."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ringconv._extras import MissingExtraError
from ringconv.data import DataSet
from ringconv.recipes import all_recipes, fill_table, find_recipe, resolve
from ringconv.training import check, list_runs, train

pytest.importorskip("lightning_fabric")

StandIn = Callable[[str], DataSet]
BUILT = [name for name, recipe in all_recipes().items() if recipe.settings is not None]
ONE_PER_LABEL = list({name.partition("/")[0]: name for name in reversed(BUILT)}.values())


def distinct() -> list[str]:
    """A name for every different training at this scale."""
    found = {json.dumps(resolve(name, "tiny").to_json(), sort_keys=True): name for name in reversed(BUILT)}
    return sorted(found.values())


@pytest.mark.parametrize(
    "name", ["tab:main/nwpu10/gmr_resnet18", "tab:seg/gmr_unet", "tab:modelnet/modelnet10/gmr_r3d_9"]
)
def test_a_recipe_takes_a_step(name: str, stand_in: StandIn) -> None:
    assert math.isfinite(check(resolve(name, "tiny"), stand_in(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", distinct())
def test_every_recipe_takes_a_step(name: str, stand_in: StandIn) -> None:
    try:
        loss = check(resolve(name, "tiny"), stand_in(name))
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert math.isfinite(loss)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PER_LABEL)
def test_one_recipe_of_every_table_trains_and_fills_its_row(name: str, tmp_path: Path, stand_in: StandIn) -> None:
    chosen = find_recipe(name, "tiny")
    try:
        train(chosen.settings, out=tmp_path, recipe=chosen.recipe, data=stand_in(name))
    except MissingExtraError as error:
        pytest.skip(str(error))
    rows = fill_table(name.partition("/")[0], list_runs(tmp_path))
    (row,) = [row for row in rows if row.recipe.name == name]
    assert row.scale == "tiny"
    assert not row.changed
    assert set(row.recipe.figures) - {"memory"} <= set(row.values)
