"""Training and evaluation."""

from ringconv._progress import Progress
from ringconv.training.compare import CompareSettings, Comparison, ModelResult, compare
from ringconv.training.compare_runs import ModelsCompared, compare_models
from ringconv.training.lines import Lines
from ringconv.training.loop import Moment
from ringconv.training.networks import small_network
from ringconv.training.runs import Run, RunIsBusyError, list_runs, read_run
from ringconv.training.settings import TrainSettings
from ringconv.training.train import (
    TrainingDivergedError,
    TrainingInterruptedError,
    TrainingStoppedError,
    Watch,
    check,
    resume,
    train,
)

__all__ = [
    "CompareSettings",
    "Comparison",
    "Lines",
    "ModelResult",
    "ModelsCompared",
    "Moment",
    "Progress",
    "Run",
    "RunIsBusyError",
    "TrainSettings",
    "TrainingDivergedError",
    "TrainingInterruptedError",
    "TrainingStoppedError",
    "Watch",
    "check",
    "compare",
    "compare_models",
    "list_runs",
    "read_run",
    "resume",
    "small_network",
    "train",
]
