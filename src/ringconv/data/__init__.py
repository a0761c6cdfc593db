"""Data sets: images with their targets, from many layouts through one door."""

from ringconv.data.dataset import DataSet, Rows, Split, normalise
from ringconv.data.layouts import LAYOUTS
from ringconv.data.open import check_outside, data_root, fetch_data, find_data, open_data
from ringconv.data.options import DataOptions
from ringconv.data.splits import draw_per_class, hold_out, stratified_subset
from ringconv.data.textures import PHOTOGRAPHS, Photograph, Textures, load_textures

__all__ = [
    "LAYOUTS",
    "PHOTOGRAPHS",
    "DataOptions",
    "DataSet",
    "Photograph",
    "Rows",
    "Split",
    "Textures",
    "check_outside",
    "data_root",
    "draw_per_class",
    "fetch_data",
    "find_data",
    "hold_out",
    "load_textures",
    "normalise",
    "open_data",
    "stratified_subset",
]
