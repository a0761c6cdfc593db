"""A network that was trained elsewhere -> the same with ring convolutions, started from its weights -> trained on.

    pip install '.[train,zoo]'
    python examples/convert_trained_network.py photos/ --model resnet18 --weights resnet18.safetensors

Any torch network will do in the place of timm's; the training loop below is an ordinary one.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import ringconv.models  # noqa: F401 (timm, which comes later, then knows our networks too)
from ringconv import convert
from ringconv.data import open_data
from ringconv.evaluation import EvaluationSettings, evaluate


def load_what_fits(model: nn.Module, path: Path) -> None:
    """The head of a network that was trained on other classes has another shape, and starts anew."""
    own, given = model.state_dict(), load_file(path)
    fitting = {name: given[name] for name in own if name in given and given[name].shape == own[name].shape}
    if not fitting:
        raise SystemExit(f"{path} has no weights of this network; it has {', '.join(list(given)[:3])}, ...")
    model.load_state_dict(fitting, strict=False)
    anew = ", ".join(sorted(own.keys() - fitting)) or "none"
    print(f"Loaded {len(fitting)} of {len(own)} tensors; started anew: {anew}")


def main(arguments: list[str] | None = None) -> float:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("images", type=Path)
    options.add_argument("--model", default="resnet18", help="a name that timm knows")
    options.add_argument("--weights", type=Path, help="safetensors of that model; without it, weights are random")
    options.add_argument("--epochs", type=int, default=10)
    options.add_argument("--size", type=int, default=64)
    asked = options.parse_args(arguments)
    import timm

    data = open_data(asked.images, size=asked.size)
    model = timm.create_model(asked.model, num_classes=len(data.classes), in_chans=data.channels)
    if asked.weights is not None:
        load_what_fits(model, asked.weights)
    example = torch.zeros(2, data.channels, asked.size, asked.size)
    # Every kernel becomes the nearest ring kernel, and strides become down-samplings. The report says what was done to
    # each layer, and what is left that still breaks equivariance.
    model, report = convert(model, from_weights=True, return_report=True, example_input=example)
    print(report)

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    images, labels = data["train"].batch(slice(None))
    images = data.normalise(images)
    for epoch in range(asked.epochs):
        model.train()
        losses = []
        for chosen in torch.randperm(len(images)).split(32):
            if len(chosen) < 2:
                continue  # a batch norm needs more than one
            loss = F.cross_entropy(model(images[chosen]), labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}")

    split = "test" if "test" in data.splits else "train"
    found = evaluate(model, data, EvaluationSettings(step=30), split=split).scores["accuracy"]
    print(f"{split}: {found.upright:.1f}% upright, {found.rotated:.1f}% over all angles")
    return found.rotated


if __name__ == "__main__":
    main()
