"""Testing networks on turned and mirrored images."""

from ringconv._turned import Turner, Turning
from ringconv.evaluation.evaluate import evaluate
from ringconv.evaluation.results import Drift, Evaluation, EvaluationSettings, Scores
from ringconv.evaluation.symmetrise import Symmetrised

__all__ = [
    "Drift",
    "Evaluation",
    "EvaluationSettings",
    "Scores",
    "Symmetrised",
    "Turner",
    "Turning",
    "evaluate",
]
