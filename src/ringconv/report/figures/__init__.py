"""Every figure of the paper from one's own runs. Each is a function that returns a matplotlib ``Figure``.

:mod:`ringconv.report.figures.catalogue` has them by name, drawn from paths, as ``ringconv figures`` does.
"""

from ringconv.report.figures.angles import boxes, lines, radar
from ringconv.report.figures.build import kernel_from_rings, two_steps
from ringconv.report.figures.changes import changed_answers, find_answers
from ringconv.report.figures.cost import accuracy_against_parameters, bubbles
from ringconv.report.figures.embeddings import clusters, find_clusters
from ringconv.report.figures.features import feature_maps, feature_maps_of
from ringconv.report.figures.files import save_figure, svg
from ringconv.report.figures.kernels import kernel_correlations, learned_kernels
from ringconv.report.figures.networks import read_networks, some_images
from ringconv.report.figures.progress import partial_augmentation, ring_widths, rotated_during_training
from ringconv.report.figures.sources import curves_of, read_tests
from ringconv.report.figures.speed import time_against_kernel_width
from ringconv.report.figures.symmetry import error_against_angle, error_against_depth

__all__ = [
    "accuracy_against_parameters",
    "boxes",
    "bubbles",
    "changed_answers",
    "clusters",
    "curves_of",
    "error_against_angle",
    "error_against_depth",
    "feature_maps",
    "feature_maps_of",
    "find_answers",
    "find_clusters",
    "kernel_correlations",
    "kernel_from_rings",
    "learned_kernels",
    "lines",
    "partial_augmentation",
    "radar",
    "read_networks",
    "read_tests",
    "ring_widths",
    "rotated_during_training",
    "save_figure",
    "some_images",
    "svg",
    "time_against_kernel_width",
    "two_steps",
]
