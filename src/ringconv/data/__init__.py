"""Data sets, and their rotated and reflected views."""

from ringconv.data.textures import PHOTOGRAPHS, Photograph, Textures, load_textures

__all__ = ["PHOTOGRAPHS", "Photograph", "Textures", "load_textures"]
