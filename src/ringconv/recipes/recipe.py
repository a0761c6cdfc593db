"""A recipe: a place in the paper, its printed figures, and the settings that make ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringconv.recipes.differences import Difference
from ringconv.training.settings import TrainSettings


@dataclass(frozen=True)
class Recipe:
    """One row of a table (in one of its groups of columns), or one point of a curve."""

    label: str
    """LaTeX label of the table or figure."""
    group: str
    """Data set, where the table has several."""
    row: str
    printed: str
    """The paper's name of the row."""
    figures: Mapping[str, str]
    """What the paper prints, by measure; empty for points of curves that it prints no numbers of."""
    settings: TrainSettings | None
    """At the paper's scale; None if it is not built here."""
    not_built: str = ""
    """Why not."""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What neither text nor release decides, and what is done here."""

    def __post_init__(self) -> None:
        if (self.settings is None) != bool(self.not_built):
            raise ValueError(f"{self.name} needs either settings or a reason why it is not built")

    @property
    def name(self) -> str:
        return "/".join(part for part in (self.label, self.group, self.row) if part)

    @property
    def experiment(self) -> str:
        """Equal for recipes that ask for the same training, so that one run serves them all."""
        if self.settings is None:
            return self.name
        values = self.settings.to_json()
        # Tests during training do not change what is trained.
        for irrelevant in ("rotated_every", "rotated_images"):
            del values[irrelevant]
        return json.dumps(values, sort_keys=True)
