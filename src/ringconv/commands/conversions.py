"""``ringconv conversions``."""

from __future__ import annotations

from pathlib import Path

from ringconv.commands._terminal import progress_bars, terminal, usage_errors
from ringconv.report.conversion_table import write_conversion_table
from ringconv.report.trained_start import write_trained_start


def conversions(
    out: Path = Path("docs/conversion.md"),
    trained_start: bool = False,
    data: Path = Path("nwpu10.npz"),
    seeds: tuple[int, ...] = (0, 1),
) -> None:
    """Tabulate what convert() makes of the model families of timm.

    Builds some sixty models with random weights, converts them, measures how far their answers change when the image is
    turned, before and after, and trains the converted ones for a step. Writes a page in markdown, in some minutes.

    With --trained-start it measures instead whether a converted network learns faster from the kernels of a trained one
    than from new ones, and writes that to the same page.

    Args:
        out: File to write.
        trained_start: Measure the start from trained weights instead.
        data: With --trained-start: images and labels in the layout of MedMNIST (npz with train_images, train_labels,
            test_images, test_labels).
        seeds: With --trained-start: each decides the weights and the order of training of a run of its own.
    """
    console = terminal()
    with progress_bars(console) as progress, usage_errors():
        if trained_start:
            path = write_trained_start(data, out, seeds, progress=progress)
        else:
            path = write_conversion_table(out, progress=progress)
    console.print(f"Written: {path}", soft_wrap=True)
