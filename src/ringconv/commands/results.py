"""``ringconv results``."""

from __future__ import annotations

from pathlib import Path

from ringconv.commands._terminal import UsageError, terminal, usage_errors
from ringconv.commands.train import errors_without_traceback, watched
from ringconv.recipes.evidence import run_trial
from ringconv.recipes.studies import STUDIES, get_study, planned_runs
from ringconv.report.results_page import scores_in_a_line, write_results_page
from ringconv.training import RunIsBusyError, TrainingDivergedError, TrainingInterruptedError


def results(
    study: str | None = None,
    /,
    *,
    data: Path | None = None,
    rows: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    runs: Path = Path("runs/studies"),
    kept: Path = Path("benchmarks/results/studies"),
    page: Path = Path("docs/results.md"),
) -> None:
    """Run what the results page is made of, and write it.

    Without a study, the page is written anew from the small files of all runs. With one, its runs that have no such
    file yet are trained and tested first, which takes minutes to hours each; a run that was stopped goes on. To run
    one again, delete its file and its run's folder.

    All runs of a study: ringconv results nwpu10 --data data

    Args:
        study: nwpu10, modelnet10, nuclei, cifar10, kernels, widths, partial, choices, choices-disc, choices-nuclei,
            choices-augmentation, choices-rate, choices-wide, beyond-nwpu10 or beyond-cifar10.
        data: Folder with the study's data, such as nwpu10.npz.
        rows: Only these rows of the study.
        seeds: Only these seeds.
        runs: Folder for the runs' own folders.
        kept: Folder of the small files.
        page: Page to write.
    """
    console = terminal()
    with usage_errors():
        if study is not None:
            chosen = get_study(study)
            planned = planned_runs(chosen, rows, seeds)
            if data is None:
                raise ValueError(f"say with --data where {chosen.data}.npz is")
        elif data is not None or rows or seeds:
            raise ValueError(f"say which study to run: {', '.join(STUDIES)}")
    failed: list[str] = []
    if study is not None and data is not None:
        for trial, seed in planned:
            name = f"{trial.name}, seed {seed}"
            with watched(console) as watch, errors_without_traceback():
                try:
                    found = run_trial(chosen, trial, seed, data=data, runs=runs, results=kept, watch=watch)
                except TrainingInterruptedError as error:
                    raise KeyboardInterrupt(f"stopped in {name}; to go on, give the same command again") from error
                except (TrainingDivergedError, RunIsBusyError) as error:  # the others may go well
                    failed.append(name)
                    watch.note(f"{name}: {error}")
                    continue
            console.print(f"{name}: {scores_in_a_line(found)}", soft_wrap=True)
    with usage_errors():
        console.print(f"Written: {write_results_page(page, kept)}", soft_wrap=True)
    if failed:
        raise UsageError(f"without a result: {'; '.join(failed)}")
