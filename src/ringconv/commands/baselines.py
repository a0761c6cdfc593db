"""``ringconv budget`` and ``ringconv methods-page``."""

from __future__ import annotations

from pathlib import Path

from ringconv.commands._terminal import progress_bars, terminal, usage_errors
from ringconv.report.methods_page import measure_steps, write_methods_page
from ringconv.training.budget import CONTENDERS, Budget, budget_table, run_budget

RESULTS = Path("benchmarks/results/methods")


def budget(
    data: Path,
    /,
    out: Path = RESULTS / "budget",
    only: tuple[str, ...] = (),
    teraflops: float = Budget.teraflops,
    most_epochs: int = Budget.most_epochs,
    epochs: int | None = None,
    width: int = Budget.width,
    size: int = Budget.size,
    train_images: int | None = None,
    test_images: int = Budget.test_images,
    step: float = Budget.step,
    seed: int = Budget.seed,
) -> None:
    """Train every method upright with equally many operations, then turn the images.

    One small JSON file per method goes to OUT. What is there already is not trained again, so a run that was stopped
    goes on where it was; the networks of escnn are added by running the same command in their environment (make escnn).
    With --teraflops 1 --most-epochs 20 it takes about 25 minutes on two cores.

    Args:
        data: An npz in the layout of MedMNIST, or another data set that `ringconv data` knows.
        out: Folder of the results.
        only: Models to run, by their registered names; default all.
        teraflops: Operations of training per method, in units of 10^12.
        most_epochs: Cheap networks stop here.
        epochs: So many epochs for all instead, whatever they cost.
        width: Base width, in channels of the plain network.
        size: Images are squashed to this side.
        train_images: Only so many training images.
        test_images: Test images at every angle.
        step: Degrees between angles.
        seed: Decides the initial weights, the order of the images and which are tested.
    """
    with usage_errors():
        settings = Budget(
            teraflops=teraflops, most_epochs=most_epochs, epochs=epochs, width=width, size=size,
            train_images=train_images, test_images=test_images, step=step, seed=seed,
        )  # fmt: skip
        unknown = sorted(set(only) - {contender.model for contender in CONTENDERS})
        if unknown:
            known = ", ".join(dict.fromkeys(contender.model for contender in CONTENDERS))
            raise ValueError(f"only must name some of {known}; got {', '.join(unknown)}")
    chosen = [contender for contender in CONTENDERS if not only or contender.model in only]
    console = terminal()
    with usage_errors(), progress_bars(console) as progress:
        found, missing = run_budget(data, out, settings, chosen, progress)
    console.print(budget_table(found), soft_wrap=True)
    for name, reason in missing.items():
        console.print(f"Left out: {name}: {reason}", soft_wrap=True)
    console.print(f"Results: {out}", soft_wrap=True)


def methods_page(
    out: Path = Path("docs/methods.md"), results: Path = RESULTS, measure: bool = False, seconds: float = 60
) -> None:
    """Write the page about all methods.

    What each computes and keeps, its parameters, what a training step costs, and how all did on one budget. The figures
    are read from RESULTS, where `ringconv budget` and --measure put them.

    Args:
        out: Page to write.
        results: Folder with the folders steps and budget.
        measure: Measure the training steps first, of those networks that this environment can build.
        seconds: Time to spend on the measurement.
    """
    console = terminal()
    if measure:
        for name, reason in measure_steps(results / "steps", seconds=seconds).items():
            console.print(f"Left out: {name}: {reason}", soft_wrap=True)
    with usage_errors():
        console.print(f"Written: {write_methods_page(out, results)}", soft_wrap=True)
