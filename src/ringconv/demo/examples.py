"""Pictures to begin with. Every one is of a part of its photograph that no bundled network was trained on."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ringconv.data.textures import CELL, PHOTOGRAPHS, is_test_cell, read_photograph
from ringconv.demo.controls import Example
from ringconv.demo.pictures import Picture
from ringconv.demo.scenes import SCENES, load_scene

_TEXTURE = 58
"""Side of a texture: within a test cell, and such that 40 pixels are seen at every angle."""
_MOST = 4
"""Squares of one scene."""
SCENE = 92
"""Side of a scene, of which 64 pixels are seen at every angle."""


def texture_examples() -> list[Example]:
    """Of every texture the test cell of middling contrast: a typical one, not the one that suits a network best."""
    border = (CELL - _TEXTURE) // 2
    examples = []
    for photograph in PHOTOGRAPHS:
        pixels = read_photograph(photograph)
        rows, columns = (side // CELL for side in pixels.shape)
        places = [place for place in itertools.product(range(rows), range(columns)) if is_test_cell(*place)]
        corners = [(row * CELL + border, column * CELL + border) for row, column in places]
        patches = [pixels[row : row + _TEXTURE, column : column + _TEXTURE] for row, column in corners]
        patches.sort(key=lambda patch: float(patch.std()))
        grey = (patches[len(patches) // 2] * 255).round().clip(0, 255).astype(np.uint8)
        examples.append(Example(photograph.name, Picture(np.repeat(grey[..., None], 3, axis=2))))
    return examples


def scene_examples() -> list[Example]:
    """Cells and coins of the test parts, where there are most of them."""
    examples = []
    for name in reversed(SCENES):
        scene = load_scene(name, "test")
        for number, (row, column) in enumerate(_fullest(scene.mask), 1):
            square = scene.pixels[row : row + SCENE, column : column + SCENE]
            examples.append(Example(f"{name} {number}", Picture(square)))
    return examples


def _fullest(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Upper left corners of the squares with most foreground that overlap by less than half."""
    places = itertools.product(*(range(0, side - SCENE + 1, 8) for side in mask.shape))
    shares = {(row, column): mask[row : row + SCENE, column : column + SCENE].mean() for row, column in places}
    chosen: list[tuple[int, int]] = []
    for row, column in sorted(shares, key=lambda place: -shares[place]):
        if all(max(abs(row - other[0]), abs(column - other[1])) > SCENE // 2 for other in chosen):
            chosen.append((row, column))
    return chosen[:_MOST]
