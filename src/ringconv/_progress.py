"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with a stage, the steps done and the steps in all."""
