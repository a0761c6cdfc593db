"""What tests of networks found, read from whatever left it: runs, comparisons, evaluations, budgets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringconv.report.figures.labels import data_name, run_labels, same_but_for_the_seed
from ringconv.training.runs import CONFIG, RESULTS, Run, list_runs, read_run
from ringconv.training.settings import TrainSettings


@dataclass(frozen=True)
class Outcome:
    """One network, trained once and tested upright, turned and mirrored. Scores are in percent."""

    label: str
    data: str
    metric: str
    """The main one: accuracy or dice."""
    per_turn: Mapping[str, float]
    """By angle, such as "30"; of volumes by axis and angle, such as "x 30"."""
    experiment: str
    """Equal for networks that differ in their seed only."""
    parameters: int | None = None
    megabytes: float | None = None
    """What one training image keeps for the backward pass."""
    changed: Mapping[str, float] | None = None
    """Percentage of the right answers that change, by view."""
    run: Run | None = None

    @property
    def rotated(self) -> float:
        """Mean over all turns."""
        return math.fsum(self.per_turn.values()) / len(self.per_turn)


@dataclass(frozen=True)
class Curve:
    """The score of a network at every angle, for one or several seeds."""

    label: str
    data: str
    metric: str
    angles: tuple[float, ...]
    """Degrees, from 0 to less than 360."""
    values: NDArray[np.float64]
    """(seeds, angles), in percent; of volumes the mean over the axes."""

    @property
    def mean(self) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = self.values.mean(0)
        return mean


def read_tests(paths: Iterable[Path], names: Sequence[str] = ()) -> list[Outcome]:
    """All tests that these paths hold, in their order.

    Args:
        paths: folders of runs (``ringconv train``), folders with such folders below them, of which the finished and
            tested ones count, folders of ``ringconv compare`` and ``ringconv budget``, and JSON files of ``ringconv
            evaluate``.
        names: instead of the labels, one for each label in the order of their first appearance.
    """
    tests = [test for path in paths for test in _tests(path)]
    if not tests:
        raise ValueError("give folders of runs (ringconv train, compare or budget), or files of ringconv evaluate")
    runs = [test.run for test in tests if test.run is not None]
    labels = iter(run_labels(runs))
    tests = [test if test.run is None else replace(test, label=next(labels)) for test in tests]
    tests = _told_apart(tests)
    return [replace(test, label=name) for test, name in zip(tests, _renamed(tests, names), strict=True)]


def curves_of(tests: Iterable[Outcome]) -> list[Curve]:
    """A curve for every label on every data set; networks that differ in their seed only share one."""
    together: dict[tuple[str, str, str, tuple[float, ...]], list[list[float]]] = {}
    for test in tests:
        by_angle: dict[float, list[float]] = {}
        for turn, score in test.per_turn.items():
            by_angle.setdefault(float(turn.rpartition(" ")[2]), []).append(score)
        angles = tuple(sorted(by_angle))
        key = (test.label, test.data, test.metric, angles)
        together.setdefault(key, []).append([float(np.mean(by_angle[angle])) for angle in angles])
    return [Curve(*key, values=np.asarray(values)) for key, values in together.items()]


def relabelled(tests: Sequence[Outcome], same: Callable[[TrainSettings], TrainSettings]) -> list[Outcome]:
    """With the labels that runs would have if their settings were as ``same`` makes them."""
    runs = [replace(test.run, settings=same(test.run.settings)) for test in tests if test.run is not None]
    labels = iter(run_labels(runs))
    return [test if test.run is None else replace(test, label=next(labels)) for test in tests]


def _told_apart(tests: Sequence[Outcome]) -> list[Outcome]:
    """A number behind labels that stand for more than one experiment on one data set."""
    experiments: dict[tuple[str, str], list[str]] = {}
    for test in tests:
        known = experiments.setdefault((test.label, test.data), [])
        if test.experiment not in known:
            known.append(test.experiment)
    numbered = []
    for test in tests:
        known = experiments[test.label, test.data]
        label = f"{test.label} ({known.index(test.experiment) + 1})" if len(known) > 1 else test.label
        numbered.append(replace(test, label=label))
    return numbered


def _renamed(tests: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    labels = list(dict.fromkeys(test.label for test in tests))
    if not names:
        return [test.label for test in tests]
    if len(names) != len(labels):
        raise ValueError(f"names must be one for each of {', '.join(map(repr, labels))}, got {len(names)}")
    new = dict(zip(labels, names, strict=True))
    return [new[test.label] for test in tests]


def _tests(path: Path) -> list[Outcome]:
    if path.is_file():
        return [_of_evaluation(path)]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder or file {path}")
    if (path / CONFIG).is_file():
        return [_of_run(read_run(path))]
    if (path / RESULTS).is_file():
        return _of_comparison(path)
    runs = list_runs(path)
    tested = [_of_run(run) for run in runs if _why_untested(run) is None]
    tested += [test for one in sorted(path.glob(f"*/{RESULTS}")) for test in _of_comparison_below(one)]
    tested += [test for one in sorted(path.glob("*.json")) for test in _of_budget(one)]
    if not tested:
        untested = "; ".join(filter(None, map(_why_untested, runs)))
        raise ValueError(f"there is no tested run in {path}" + (f": {untested}" if untested else ""))
    return tested


def _of_run(run: Run) -> Outcome:
    why = _why_untested(run)
    if why is not None:
        raise ValueError(why)
    assert run.results is not None
    return _tested(run.name, run.results["evaluation"], same_but_for_the_seed(run), data_name(run), run)


def _why_untested(run: Run) -> str | None:
    if run.results is None:
        return f"{run.folder} is {run.state}, not finished (to go on: ringconv train --resume {run.folder})"
    if run.results["evaluation"] is None:
        return (
            f"{run.folder} was not tested: train without --no-final-test, or give the file of ringconv evaluate"
            f" {run.folder / 'model.safetensors'} --data ..."
        )
    return None


def _tested(label: str, evaluation: Mapping[str, Any], experiment: str, data: str, run: Run | None) -> Outcome:
    scores = evaluation["scores"]
    found = list(scores.values()) if isinstance(scores, Mapping) else []
    if not found or not all(isinstance(one, Mapping) and one.get("per_turn") for one in found):
        raise ValueError(f"the test of {label} is not what ringconv writes: it has no scores by angle")
    metric = "dice" if "dice" in scores else next(iter(scores))
    changed = ((evaluation.get("drift") or {}).get("changed") or {}).get("per_view")
    return Outcome(
        label,
        data,
        metric,
        _numbers(scores[metric]["per_turn"]),
        experiment,
        parameters=None if run is None else run.parameters,
        changed=None if changed is None else _numbers(changed),
        run=run,
    )


def _of_evaluation(path: Path) -> Outcome:
    content = _json(path)
    if not isinstance(content, dict) or "scores" not in content or "data" not in content:
        raise ValueError(f"{path} is not what ringconv evaluate writes: a JSON file with scores")
    if "saved_megabytes" in content:
        return _of_budget(path)[0]
    checkpoint = Path(str(content.get("checkpoint", path)))
    label = checkpoint.parent.name if checkpoint.stem == "model" else checkpoint.stem
    return _tested(label or checkpoint.stem, content, str(path), str(content["data"]), None)


def _of_comparison(folder: Path) -> list[Outcome]:
    content = _json(folder / RESULTS)
    if not _is_comparison(content):
        raise ValueError(f"{folder} is neither the folder of a run (it has no {CONFIG}) nor of ringconv compare")
    settings = {name: value for name, value in content.get("settings", {}).items() if name != "seed"}
    return [
        Outcome(
            f"{kind} network",
            "textures",
            "accuracy",
            _numbers(model["per_angle"]),
            json.dumps([kind, settings], sort_keys=True),
            parameters=model["parameters"],
        )
        for kind, model in content["models"].items()
    ]


def _of_comparison_below(results: Path) -> list[Outcome]:
    """Of a folder that may be another program's."""
    is_run = (results.parent / CONFIG).is_file()
    return [] if is_run or not _is_comparison(_json(results)) else _of_comparison(results.parent)


def _is_comparison(content: Any) -> bool:
    models = content.get("models") if isinstance(content, Mapping) else None
    needed = {"per_angle", "parameters"}
    return isinstance(models, Mapping) and all(
        isinstance(model, Mapping) and needed <= set(model) for model in models.values()
    )


def _of_budget(path: Path) -> list[Outcome]:
    """What ``ringconv budget`` keeps of a contender; nothing if it is another file."""
    content = _json(path)
    if not isinstance(content, dict) or not {"name", "scores", "saved_megabytes", "budget"} <= set(content):
        return []
    per_image = content["saved_megabytes"] / content["budget"]["batch_size"]
    return [
        Outcome(
            content["name"],
            content["data"],
            "accuracy",
            _numbers(content["scores"][""]["per_turn"]),
            content["name"],
            parameters=content["parameters"],
            megabytes=per_image,
        )
    ]


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
