"""Your own images, a folder for each class -> a classifier that does not mind how they are turned -> an ONNX file.

    pip install '.[train,deploy]'
    python examples/classify_own_images.py photos/ --epochs 60

photos/ holds photos/<class>/<image>, or photos/train/<class>/<image> and photos/test/<class>/<image>.
"""

import argparse
from pathlib import Path

import torch

from ringconv.deploy import export_onnx
from ringconv.models.checkpoint import load_model
from ringconv.training import Lines, TrainSettings, train


def main(arguments: list[str] | None = None) -> Path:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("images", type=Path)
    options.add_argument("--epochs", type=int, default=60)
    options.add_argument("--size", type=int, default=64, help="side that images are brought to")
    options.add_argument("--width", type=int, default=32, help="channels of the first stage; more is better and slower")
    options.add_argument("--out", type=Path, default=Path("runs"))
    asked = options.parse_args(arguments)

    settings = TrainSettings(
        model="gmr_resnet18",
        data=str(asked.images),
        # Small kernels whose harmonics see edges learned best in our trials: docs/options.md.
        model_options={"width": asked.width, "kernel_size": 3, "harmonics": 1},
        size=asked.size,
        epochs=asked.epochs,
        batch_size=32,
        validation=0.2,  # of the training images, to keep the best epoch
        keep="best",
    )
    # Checkpoints are written on the way: after an interruption, ringconv train --resume goes on where it was.
    run = train(settings, out=asked.out, watch=Lines(seconds=10))
    print(f"Scores, curves and weights: {run.folder}")
    if run.results and run.results["evaluation"]:
        scores = run.results["evaluation"]["scores"]["accuracy"]
        print(f"On test images: {scores['upright']:.1f}% upright, {scores['rotated_mean']:.1f}% over all angles")

    model = load_model(run.folder / "model.safetensors")
    channels = model.stem.conv.in_channels
    path = export_onnx(
        model, run.folder / "model.onnx", torch.zeros(1, channels, asked.size, asked.size), form="factored"
    )
    print(f"For any runtime, at any image size: {path}")
    return path


if __name__ == "__main__":
    main()
