"""Training and evaluation."""

from ringconv.training.compare import CompareSettings, Comparison, ModelResult, Progress, compare
from ringconv.training.networks import small_network

__all__ = ["CompareSettings", "Comparison", "ModelResult", "Progress", "compare", "small_network"]
