"""``ringconv predict``."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from ringconv import deploy
from ringconv.commands._checkpoint import check_file, load_checkpoint
from ringconv.commands._terminal import progress_bars, terminal, usage_errors

_NAMED = 10
"""Unreadable files that are named on the terminal."""


def predict(
    checkpoint: Positional[Path],
    images: Positional[tuple[Path, ...]],
    /,
    out: Path = Path("predictions.csv"),
    top: int = 1,
    batch_size: int = 32,
    device: str = "cpu",
) -> None:
    """Classify images and write a table.

    Reads the checkpoint's own preparation of images (size, mean and deviation) and its class names, so nothing else is
    needed. Grey, RGBA, palette and 16-bit images are brought to what the network takes. TIFFs of other types or with
    more bands are read as in training. Files that cannot be read so are named and left out.

    The table has the columns path, class and probability; with --top 3 also class_2, probability_2, class_3,
    probability_3.

    A folder, at any depth: ringconv predict net.safetensors slides/ --out slides.csv

    Args:
        checkpoint: File written by training or by ringconv.models.save_model.
        images: Image files and folders of images.
        out: CSV file to write.
        top: How many of the likeliest classes of each image.
        batch_size: Images at a time.
        device: Where to run: cpu, cuda, ...
    """
    console = terminal()
    with usage_errors():
        if not images:
            raise ValueError("give at least one image or folder of images")
        check_file(out)
        files = deploy.find_images(images)
        loaded = load_checkpoint(checkpoint, device)
    with usage_errors(), progress_bars(console) as progress:
        found = deploy.predict(loaded.network, loaded.info, files, top=top, batch=batch_size, progress=progress)
        if not found.rows:
            path, reason = next(iter(found.unreadable.items()))
            raise ValueError(f"none of the {len(files)} images can be read; the first: {path}: {reason}")
        deploy.write_predictions(found, out)
    for path, reason in list(found.unreadable.items())[:_NAMED]:
        console.print(f"Not read: {path}: {reason}", soft_wrap=True)
    if found.unreadable:
        console.print(f"{len(found.unreadable)} of {len(files)} files could not be read.")
    console.print(f"{len(found.rows)} images: {out}", soft_wrap=True)
