"""The parts of :func:`ringconv.convert`: what becomes of each layer, and what is said about it."""
