"""Recipes: one for every row of the paper's tables and every point of its curves, with the printed figures beside."""

from ringconv.recipes.catalogue import DRAWN_FROM, LABELS, all_recipes
from ringconv.recipes.differences import Difference
from ringconv.recipes.filling import FilledRow, fill_table
from ringconv.recipes.recipe import Recipe
from ringconv.recipes.rendering import TextTable, comma_separated, heading, markdown, remarks, text_tables
from ringconv.recipes.scales import SCALES, ChosenRecipe, Scale, find_recipe, get_recipe, list_recipes, resolve

__all__ = [
    "DRAWN_FROM",
    "LABELS",
    "SCALES",
    "ChosenRecipe",
    "Difference",
    "FilledRow",
    "Recipe",
    "Scale",
    "TextTable",
    "all_recipes",
    "comma_separated",
    "fill_table",
    "find_recipe",
    "get_recipe",
    "heading",
    "list_recipes",
    "markdown",
    "remarks",
    "resolve",
    "text_tables",
]
