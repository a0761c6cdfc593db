"""Images of cells with their masks -> a U-Net whose masks turn with the image -> masks of new images.

    pip install '.[train]'
    python examples/segment_cells.py cells.npz --epochs 200

cells.npz holds train_images and test_images, uint8 (N, H, W) or (N, H, W, 3), and train_masks and test_masks, uint8
(N, H, W) of 0 and 1. Masks of the test images go to a folder beside the run, as PNG.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ringconv.data import open_data
from ringconv.models.checkpoint import load_model
from ringconv.training import Lines, TrainSettings, train


def main(arguments: list[str] | None = None) -> Path:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("images", type=Path)
    options.add_argument("--epochs", type=int, default=200)
    options.add_argument("--crop", type=int, default=96, help="side of the random crops that it trains on")
    options.add_argument("--width", type=int, default=16)
    options.add_argument("--out", type=Path, default=Path("runs"))
    asked = options.parse_args(arguments)
    data = open_data(asked.images)
    if "test" not in data.splits:
        options.error(f"{asked.images} has no test images, of which masks could be made")

    settings = TrainSettings(
        model="gmr_unet",
        data=str(asked.images),
        # Small kernels whose harmonics see edges, and batch norms, learned best in our trials: docs/options.md.
        model_options={"width": asked.width, "kernel_size": 3, "harmonics": 1, "norm": "batch"},
        crop=asked.crop,
        epochs=asked.epochs,
        batch_size=8,
        optimiser="adamw",
        lr=2e-3,
    )
    run = train(settings, out=asked.out, watch=Lines(seconds=10))
    print(f"Scores, curves and weights: {run.folder}")
    if run.results and run.results["evaluation"]:
        dice = run.results["evaluation"]["scores"]["dice"]
        print(f"Dice on test images: {dice['upright']:.1f} upright, {dice['rotated_mean']:.1f} over all angles")

    model = load_model(run.folder / "model.safetensors")
    masks = run.folder / "masks"
    masks.mkdir()
    for number in range(len(data["test"])):
        image, _ = data["test"].batch([number])
        with torch.no_grad():
            logits = model(data.normalise(image))
        mask = (logits[0, 0] > 0).numpy()
        Image.fromarray(255 * mask.astype(np.uint8)).save(masks / f"{number:04}.png")
    print(f"Masks of the test images: {masks}")
    return masks


if __name__ == "__main__":
    main()
