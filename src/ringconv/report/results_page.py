"""docs/results.md: what came out on real data, from the small files that the repository keeps of every run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from ringconv._files import write_whole
from ringconv.recipes.evidence import Evidence, all_evidence
from ringconv.recipes.studies import STUDIES
from ringconv.recipes.study import Study, Trial
from ringconv.report.markdown import markdown_rows

COMMAND = "ringconv results"

_MEASURES = {
    "accuracy": ("upright", "rotated_mean", "rotated_std", "reflected_mean"),
    "dice": ("upright", "rotated_mean", "rotated_std", "reflected_mean"),
    "iou": ("upright", "rotated_mean"),
}
"""Columns of a metric, by their names in an evaluation."""
_HEADINGS = {"upright": "upright", "rotated_mean": "rotated", "rotated_std": "std", "reflected_mean": "mirrored"}
_PRINTED = {
    ("accuracy", "upright"): "upright",
    ("accuracy", "rotated_mean"): "rotated",
    ("accuracy", "rotated_std"): "rotated_std",
    ("accuracy", "reflected_mean"): "mirrored",
    ("dice", "upright"): "dice",
    ("dice", "rotated_mean"): "dice_rotated",
    ("iou", "upright"): "iou",
    ("iou", "rotated_mean"): "iou_rotated",
}
"""What the paper's tables call them; it has no others."""
_LARGE = "†"
_GAINS = ("upright", "rotated_mean")
"""Whose differences from another row are shown, where a study has a row to compare with."""


def scores_in_a_line(found: Evidence) -> str:
    metric = next(name for name in _MEASURES if name in found.scores)
    upright, rotated, std = (
        _with_error([found.scores[metric][measure]], measure) for measure in ("upright", "rotated_mean", "rotated_std")
    )
    return (
        f"{metric} {upright} upright, {rotated} rotated (std {std}); {found.epochs} epochs in"
        f" {found.train_seconds / 60:.1f} minutes"
    )


def write_results_page(path: Path, results: Path) -> Path:
    """Write the page from the files in the folders of ``results``, one for each study."""
    if not results.is_dir():
        raise FileNotFoundError(f"there is no folder {results}, which would hold the results of runs")
    path.parent.mkdir(parents=True, exist_ok=True)
    sections = [_section(study, results) for study in STUDIES.values()]
    write_whole(path, "\n\n".join([_introduction(), *sections]) + "\n")
    return path


def _introduction() -> str:
    return f"""# Results on real data

Made by `{COMMAND}` from the files in benchmarks/results/studies, one for each run; do not edit by hand.
`{COMMAND} STUDY --data FOLDER` runs what a study lacks; delete a run's file and its folder to run it again.

*Upright* is the score on the test images as they are; *rotated* its mean over 36 angles, every 10 degrees (of volumes:
every 30 degrees about each axis); *std* the standard deviation over these; *mirrored* the mean over both flips. Turned
images are interpolated bilinearly and filled with the mean colour, as in the paper. Figures of several seeds are their
mean and its standard error. *Gains* are over the row that is named, seed by seed, so that what a seed does to all rows
does not count. *Training loss* is that of the last epoch: how far a network got in its epochs. The paper's figures are
below ours, in italics. Time and memory are those of the training process on one of the machines that the table names;
while some of these ran, it had other work to do as well, so that times are upper bounds. {_LARGE}: some
or all of these ran with large pages (THP_MEM_ALLOC_ENABLE=1), which are faster and hold more memory; do not compare
such times and memory with those of other rows."""


def _section(study: Study, results: Path) -> str:
    found = all_evidence(results, study)
    head = f"## {study.title}\n\n{study.about}"
    if study.split == "val":
        head += " No test image was looked at."
    rows = [one for some in found.values() for one in some]
    if not rows:
        return f"{head}\n\nNot run yet: `{COMMAND} {study.name} --data FOLDER`."
    columns = [
        (metric, measure) for metric, measures in _MEASURES.items() if metric in rows[0].scores for measure in measures
    ]
    several = len({metric for metric, _ in columns}) > 1
    headings = [f"{metric} {_HEADINGS[measure]}" if several else _HEADINGS[measure] for metric, measure in columns]
    against = found[study.against] if study.against else None
    if against is not None:
        headings += [f"gain {_HEADINGS[measure]}" for measure in _GAINS]
    heads = ["network", "parameters", *headings, "seeds", "epochs", "training loss", "minutes", "peak MB"]
    table = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for trial in study.trials:
        table += _rows(trial, found[trial.name], columns, against)
    where = sorted({f"{one.processor}, {one.threads} threads, torch {one.versions['torch']}" for one in rows})
    missing = [trial.label for trial in study.trials if not found[trial.name]]
    parts = [head, markdown_rows(table), f"Run on {'; '.join(where)}."]
    if against is not None:
        label = next(trial.label for trial in study.trials if trial.name == study.against)
        parts[-1] += f" Gains are over: {label}."
    if missing:
        parts.append(f"Not run yet: {'; '.join(missing)}.")
    return "\n\n".join(parts)


def _rows(
    trial: Trial, found: Sequence[Evidence], columns: Sequence[tuple[str, str]], against: Sequence[Evidence] | None
) -> list[list[str]]:
    """Ours, and the paper's below it."""
    if not found:
        return []
    scores = [_with_error([one.scores[metric][measure] for one in found], measure) for metric, measure in columns]
    gains = [] if against is None else [_gain(found, against, columns[0][0], measure) for measure in _GAINS]
    minutes = statistics.fmean(one.train_seconds for one in found) / 60
    peaks = [one.peak_bytes for one in found if one.peak_bytes is not None]
    mark = _LARGE if any(one.large_pages for one in found) else ""
    rows = [
        [
            trial.label,
            f"{found[0].parameters:,}",
            *scores,
            *gains,
            str(len(found)),
            str(found[0].epochs),
            f"{statistics.fmean(one.train_score['loss'] for one in found):.3f}",
            f"{minutes:.1f}{mark}",
            f"{max(peaks) / 1e6:,.0f}{mark}" if peaks else "-",
        ]
    ]
    if trial.paper:
        printed = [trial.paper.get(_PRINTED.get(column, ""), "") for column in columns]
        row = ["*the paper*", "", *(f"*{text}*" if text else "" for text in printed)]
        rows.append([*row, *[""] * (len(rows[0]) - len(row))])
    return rows


def _gain(found: Sequence[Evidence], against: Sequence[Evidence], metric: str, measure: str) -> str:
    """Over the seeds that both have."""
    others = {one.seed: one.scores[metric][measure] for one in against}
    pairs = [(one.scores[metric][measure], others[one.seed]) for one in found if one.seed in others]
    if found == against or not pairs:
        return ""
    return _with_error([ours - theirs for ours, theirs in pairs], measure, sign="+")


def _with_error(values: Sequence[float | None], measure: str, sign: str = "") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    digits = 2 if measure == "rotated_std" else 1
    rounded = round(statistics.fmean(known), digits)
    mean = f"{rounded:{sign}.{digits}f}" if rounded else f"{0.0:.{digits}f}"  # a zero has no sign
    if len(known) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(known) / math.sqrt(len(known)):.{digits}f}"
