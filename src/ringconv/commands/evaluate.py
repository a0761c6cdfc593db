"""``ringconv evaluate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from ringconv._extras import needs
from ringconv._files import write_whole
from ringconv._turned import Interpolation, MaskKind, Padding, Turning
from ringconv.commands._checkpoint import check_file, load_checkpoint
from ringconv.commands._terminal import progress_bars, terminal, usage_errors
from ringconv.evaluation import Evaluation, EvaluationSettings, Scores
from ringconv.evaluation import evaluate as run_evaluation
from ringconv.training.run_data import settings_beside, with_classes_of


def evaluate(
    checkpoint: Positional[Path],
    /,
    data: str | None = None,
    data_options: tuple[str, ...] = (),
    split: str = "test",
    root: Path | None = None,
    layout: str | None = None,
    size: int | None = None,
    step: float | None = None,
    interpolation: Interpolation = "bilinear",
    fill: float = 0.0,
    padding: Padding | None = None,
    mask: MaskKind = "none",
    expand: bool = False,
    symmetrise: Literal[4, 8, 24, 48] | None = None,
    subset: int | None = None,
    seed: int = 0,
    faults: Literal["refuse", "skip"] | None = None,
    batch_size: int = 64,
    device: str = "cpu",
    out: Path | None = None,
) -> None:
    """Test a checkpoint upright, turned and mirrored.

    Prints a table and writes everything, with every angle, to a JSON file. The defaults are the paper's: 36 angles,
    bilinear, fill 0 after normalisation, no mask, same size; multiples of 90 degrees are exact. Volumes are turned
    every 30 degrees about x, y and z. Segmentations turn the mask with the image, and are averaged per image.

    A quick look: ringconv evaluate net.safetensors --data nwpu10.npz --subset 500

    Args:
        checkpoint: File written by training.
        data: Path or name of a data set; see ringconv data --help. Default: what the checkpoint's run was trained on.
        data_options: How the data is read, as name=value, such as per_class=50 grey=true; name=null takes one back.
            Default as in training, by the config.json beside the checkpoint, so that what was trained on is not tested
            on. Of other data that does not say what to test on, test=1 tests all.
        split: Which split to test on.
        root: Where names are looked up; default the environment's RINGCONV_DATA, or data.
        layout: Read a folder as this published layout.
        size: Resize images to so many pixels on each side; default what the network was trained on.
        step: Degrees between angles; default 10, and 30 for volumes.
        interpolation: Between pixels.
        fill: What comes in from beyond the frame, after normalisation.
        padding: What lies beyond the frame: the fill, the image mirrored, or its edge continued. Default as in
            training, by the config.json beside the checkpoint, or the fill.
        mask: Show only the largest disc in the frame at every angle, also upright.
        expand: Enlarge the frame at every angle, so that no corner is cut off.
        symmetrise: Average the answers over 4 rotations, or 8 with reflections, of each view (24 or 48 for volumes).
        subset: Only so many images, every class in its proportion.
        seed: Which images a subset holds.
        faults: Refuse a set with files that cannot be read or classes that are empty, or skip them; default as in
            training, or refuse.
        batch_size: Images at a time.
        device: Where to run: cpu, cuda, ...
        out: JSON to write; default <checkpoint>.evaluation.json beside it.
    """
    console = terminal()
    path = out or checkpoint.with_name(f"{checkpoint.stem}.evaluation.json")
    with usage_errors():
        check_file(path)
        trained = settings_beside(checkpoint)
        beyond = padding or ("fill" if trained is None else trained.beyond_frame)
        turning = Turning(interpolation, fill, beyond, mask, expand)
        settings = EvaluationSettings(
            turning, step, symmetrise=symmetrise, subset=subset, seed=seed, batch_size=batch_size
        )
        loaded = load_checkpoint(checkpoint, device)
        prepared = loaded.preprocessing
    with usage_errors(), progress_bars(console) as progress:
        opened = loaded.open_data(data, data_options, progress, root=root, layout=layout, size=size, faults=faults)
        opened = with_classes_of(loaded.info.class_names, opened)
        found = run_evaluation(
            loaded.network,
            opened,
            settings,
            split=split,
            mean=prepared.mean if prepared else None,
            std=prepared.std if prepared else None,
            device=device,
            progress=progress,
        )
    console.print(score_table(found))
    for line in summary(found, opened.spacing):
        console.print(line)
    for note in opened.notes:
        console.print(f"Note: {note}", soft_wrap=True)
    document = {"checkpoint": str(checkpoint), "notes": list(opened.notes)} | found.as_dict()
    with usage_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(document, indent=2) + "\n")
    console.print(f"Every angle: {path}", soft_wrap=True)


def score_table(found: Evaluation) -> Any:
    """Less than 80 columns wide."""
    table = needs("rich.table", "data").Table(
        title=f"{found.data}, {found.split}: {found.images:,} images, in %", title_justify="left"
    )
    optional: dict[str, Callable[[Scores], float | None]] = {
        "reflected": lambda scores: scores.reflected,
        "4ROT": lambda scores: scores.four_rot,
        "ALLROT": lambda scores: scores.all_rot,
    }
    tested = {
        heading: value
        for heading, value in optional.items()
        if any(value(scores) is not None for scores in found.scores.values())
    }
    table.add_column("metric")
    for heading in ("upright", "rotated", "std", "worst", *tested):
        table.add_column(heading, justify="right", no_wrap=True)
    for metric, scores in found.scores.items():
        figures = [scores.upright, scores.rotated, scores.std]
        worst = f"{scores.worst:.1f} ({scores.worst_turn}°)"
        others = [value(scores) for value in tested.values()]
        table.add_row(metric, *(f"{x:.2f}" for x in figures), worst, *(f"{x:.2f}" for x in others if x is not None))
    return table


def summary(found: Evaluation, spacing: Sequence[float] | None = None) -> list[str]:
    """How it was turned, and how the logits moved; of voxels of this size."""
    turning, lines = found.settings.turning, []
    number = len(next(iter(found.scores.values())).per_turn)
    framed = "enlarged frame" if turning.expand else "same size"
    masked = "no mask" if turning.mask == "none" else f"{turning.mask} mask"
    beyond = f"fill {turning.fill:g}" if turning.padding == "fill" else f"{turning.padding} padding"
    cubes = spacing is None or len(set(spacing)) == 1
    exact = "90° steps" if cubes else "180° steps, and 90° steps in planes of equal sides of voxels,"
    lines.append(f"{number} turns: {turning.interpolation}, {beyond}, {masked}, {framed}; {exact} exact.")
    if found.settings.symmetrise:
        lines.append(f"Answers averaged over {found.settings.symmetrise} symmetries.")
    if found.drift is not None:
        drift = found.drift
        changed = f", {drift.mean(drift.changed):.1f}% of the right answers change" if drift.changed else ""
        lines.append(
            f"Logits move by {drift.mean(drift.norm):.3f} of their length"
            f" (cosine {drift.mean(drift.cosine):.4f}){changed}."
        )
    return lines
