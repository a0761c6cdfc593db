"""``ringconv compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringconv import report, training
from ringconv.commands._terminal import UsageError, progress_bars, terminal, usage_errors
from ringconv.data import check_outside
from ringconv.recipes.scales import Scale
from ringconv.report.html import REPORT, write_report
from ringconv.training import CompareSettings


def compare(
    data: str | None = None,
    models: tuple[str, ...] = (),
    scale: Scale | None = None,
    epochs: int | None = None,
    seed: int = CompareSettings.seed,
    width: int | None = None,
    size: int | None = None,
    resume: bool = False,
    train_patches: int | None = None,
    test_patches: int | None = None,
    out: Path = Path("runs"),
) -> None:
    """Train two or more networks upright, then turn the images.

    Without options, two small networks that differ in their convolutions only learn to tell seven textures apart:
    brick, coins, galaxies, grass, gravel, retina, tissue. These are patches of real photographs that come with
    scikit-image, so nothing is downloaded. Training sees upright patches, without geometric augmentation; testing takes
    other parts of the photographs: upright, turned by every 10 degrees, and mirrored. It takes about a minute on two
    cores. A new folder in OUT gets accuracy.png (accuracy against angle, as a picture), accuracy.csv (the same, as
    figures), results.json (everything) and report.html (a page to look at).

    With --data, models of the zoo are trained on your own images in the same way: a plain network and the same network
    of rings, or those of --models. A new folder in OUT gets a run for each (see: ringconv runs) and report.html. The
    table shows each network's accuracy (of masks: Dice, IoU, AUC) upright, its mean and standard deviation over all
    angles, the mean over the flips, and what it cost.

    Your images:             ringconv compare --data photos/

    Other models:            ringconv compare --data x.npz --models resnet18 gmr_resnet18:preset=paper

    After Ctrl-C or a crash: the same command with --resume

    Args:
        data: Path or name of a data set: an npz, a folder of class folders, a CSV; see ringconv data --help.
        models: With --data: names of models (ringconv models lists them), each with options as :name=value.
        scale: With --data: cpu (default) is a small version of the paper's training for two cores, with ring networks
            in the form that learned best; paper the whole, in the published form; tiny takes seconds and shows that it
            works. What is changed against the paper is printed.
        epochs: Passes over the training images; default 20 of textures, and as the scale says of other data.
        seed: Decides the initial weights and the order of training (of textures, the patches too); the same seed gives
            the same figures on the same machine.
        width: With --data: channels of the networks' first stage; default as the scale says.
        size: With --data: bring all images to so many pixels on each side.
        resume: With --data: go on with the last comparison in OUT that was asked for the same.
        train_patches: Without --data: training patches per class; default 150.
        test_patches: Without --data: test patches per class; default 100.
        out: Folder that gets the comparison's own folder: compare-<date>-<time>, with --data
            compare-<data>-<date>-<time>.
    """
    if data is None:
        _refuse("needs --data", models=models, scale=scale, width=width, size=size, resume=resume)
        _textures(epochs, seed, train_patches, test_patches, out)
    else:
        _refuse("is for textures, without --data", train_patches=train_patches, test_patches=test_patches)
        _own_data(data, models, scale or "cpu", epochs, seed, width, size, resume, out)


def _refuse(why: str, **options: Any) -> None:
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')} {why}")


def _textures(epochs: int | None, seed: int, train_patches: int | None, test_patches: int | None, out: Path) -> None:
    given = {"epochs": epochs, "train_patches": train_patches, "test_patches": test_patches}
    with usage_errors():
        settings = CompareSettings(seed=seed, **{name: value for name, value in given.items() if value is not None})
        report.check_out(out)
    console = terminal()
    console.print("Two networks learn textures from upright patches; then the patches are turned and mirrored.")
    with progress_bars(console) as progress:
        comparison = training.compare(settings, progress)
    folder = report.write_comparison(comparison, out)
    console.print("", report.comparison_table(comparison), "", report.in_a_line(comparison), "", sep="\n")
    console.print(f"Picture and figures: {folder}", soft_wrap=True)
    console.print(f"Report: {folder / REPORT}", soft_wrap=True)


def _own_data(
    where: str,
    models: Sequence[str],
    scale: Scale,
    epochs: int | None,
    seed: int,
    width: int | None,
    size: int | None,
    resume: bool,
    out: Path,
) -> None:
    # Not at the top: the demonstration does without what training needs.
    from ringconv.commands.train import errors_without_traceback, watched
    from ringconv.recipes.own_data import default_models, open_own_data, settings_for_data
    from ringconv.report.comparison import runs_in_a_line, runs_tables
    from ringconv.training.compare_runs import check_models, compare_models

    console = terminal()
    with usage_errors():
        report.check_out(out)
        check_outside(out, where)
        with progress_bars(console) as progress:
            opened = open_own_data(where, scale, size, progress)
        asked = {}
        for label in models or default_models(opened.data):
            name, options = _model(label)
            if label in asked:
                raise UsageError(f"every model is trained once, got {label} twice")
            asked[label] = settings_for_data(
                opened.where, opened.data, name, scale,
                model_options=options, epochs=epochs, width=width, size=opened.size, seed=seed,
            )  # fmt: skip
        if len(asked) < 2:
            raise UsageError(f"a comparison needs two models or more, got {', '.join(asked)}; for one: ringconv train")
        settings = {label: own.settings for label, own in asked.items()}
        check_models(settings, opened.data)
    for note in opened.notes:
        console.print(note, soft_wrap=True)
    said = [f"{' and '.join(asked)} learn {opened.data.name} upright; then its images are turned and mirrored."]
    changes: dict[str, list[str]] = {}
    for label, own in asked.items():
        if own.changes:
            changes.setdefault("; ".join(own.changes), []).append(label)
    said += [f"Scale {scale}, against the paper's training of {', '.join(of)}: {what}" for what, of in changes.items()]
    for line in said:
        console.print(line, soft_wrap=True)
    with watched(console) as watch, errors_without_traceback():
        compared = compare_models(settings, out=out, go_on=resume, about={"scale": scale}, watch=watch)
    console.print()
    for part in runs_tables(compared.runs, console.width):
        console.print(part)
    console.print()
    console.print(runs_in_a_line(compared.runs))
    for label, why in compared.failed.items():
        console.print(f"{label} is not in the table: {why}", soft_wrap=True)
    with usage_errors(), progress_bars(console) as progress:
        path = write_report(training.list_runs(compared.folder), compared.folder / REPORT, progress=progress)
    console.print(f"\nEverything: {compared.folder}", soft_wrap=True)
    console.print(f"Report: {path}", soft_wrap=True)


def _model(label: str) -> tuple[str, dict[str, Any]]:
    """gmr_resnet18:width=8:preset=paper -> its name and its options"""
    from ringconv.commands.train import named_values_of

    name, *options = label.split(":")
    return name, named_values_of(options)
