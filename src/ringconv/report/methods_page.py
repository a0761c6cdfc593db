"""docs/methods.md: every method that is compared, what it keeps, what it costs, and how all did on one budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._extras import MissingExtraError
from ringconv._files import write_whole
from ringconv.baselines.fuhl import REPORTED
from ringconv.benchmark.memory import saved_bytes
from ringconv.benchmark.results import machine
from ringconv.benchmark.timing import interleave
from ringconv.models import create_model, model_entry
from ringconv.report.markdown import markdown_rows
from ringconv.report.speed_section import speed_section
from ringconv.training.budget import Budget, Found, budget_table, forward_operations, read_budget

COMMAND = "ringconv methods-page"
BATCH, SIDE = 8, 33


@dataclass(frozen=True)
class Method:
    """A paragraph of the page."""

    title: str
    models: tuple[str, ...]
    formula: str
    text: str
    exactly: str
    approximately: str
    not_at_all: str


METHODS = (
    Method(
        "Ordinary convolution", ("resnet18",), "y = W * x",
        "The plain network, with the stem of the ring network. What a practitioner would do instead of changing it"
        " is to train it on turned images, or to average its answers over 4 turns or 8 turns and flips of the image"
        " (`ringconv evaluate`, `symmetrise`): both are rows of the last table.",
        "translation", "-", "rotations, reflections (averaged over views: exactly the quarter turns and flips)",
    ),
    Method(
        "GMR-Conv (ours)", ("gmr_resnet18",), "K = sum_i w_i G_i,  G_i(r) = exp(-(r - mu_i)^2 / 2 sigma_i^2)",
        "One weight per Gaussian ring. By default rings are averaged over pixels, scaled to unit norm and end smoothly;"
        " with `normalize=False` they are closest to symmetric between quarter turns, and `preset=\"paper\"` is the"
        " published form (docs/options.md).",
        "quarter turns and reflections, at every size", "all other angles", "-",
    ),
    Method(
        "SRE-Conv (Du et al. 2025)", ("sre_resnet18",), "K(r) = w_i for r in ring i",
        "The authors' earlier method: hard rings. Ours with `preset=\"paper\", sigma=None`.",
        "quarter turns and reflections, at every size", "all other angles, more coarsely", "-",
    ),
    Method(
        "Symm-Conv (Dudar & Semenov 2019)", ("symm_resnet18", "symm_resnet50", "symm_unet", "symm_r3d_9"),
        "[a b a; b c b; a b a]",
        "Tied weights in ordinary 3x3 kernels, put into the plain networks by `convert(..., strides=\"keep\")`.",
        "quarter turns and reflections, by layers of stride 1 (the U-Net: at every size)",
        "all other angles, coarsely", "by the residual networks on even sizes: strided layers stay strided",
    ),
    Method(
        "G-CNN (Cohen & Welling 2016)", ("p4_resnet18", "p4m_resnet18"),
        "lifting: W[g] = T_g(w);  then W[g][h] = T_g(w[g^-1 h])",
        "One filter in all poses of a group: 4 quarter turns (p4), or 8 with reflections (p4m). The public network's"
        " head sees all poses in their order, so that its logits change with a turn (`pooling=\"none\"`); ours sees"
        " them sorted, with as many parameters. Down-sampling is by averages; `strided=True` is as published.",
        "quarter turns; reflections for p4m", "-", "other angles; reflections for p4",
    ),
    Method(
        "ORN (Zhou et al. 2017)", ("orn_resnet18",),
        "turn j: orientation i -> (i + j) mod N, outer ring of 3x3 moved clockwise by 8 j / N",
        "Filters that turn actively, and features aligned by their strongest orientation before the head. Batch norm"
        " has statistics of every orientation, as published, and these are not symmetric once trained;"
        " `norm=\"feature\"` shares them.",
        "quarter turns, by every convolution (the network: with `norm=\"feature\"`)", "45 degrees with N = 8",
        "reflections; quarter turns by the network as published",
    ),
    Method(
        "H-Net (Worrall et al. 2017)", ("harmonic_resnet18",),
        "W_m(r, phi) = R(r) exp(i (m phi + beta));  X -> X ReLU(|X| + b) / |X|",
        "Complex streams of orders 0..M, whose phase turns with the image; the head sees the sum of their magnitudes."
        " The paper prints 17.3M parameters; with 5x5 kernels of 3 rings, and 1x1 shortcuts that connect equal orders"
        " only, there are 15.0M. It trains with AdamW.",
        "quarter turns, at every size", "all other angles", "reflections",
    ),
    Method(
        "RIC-CNN (Mo & Zhao 2022)", ("ric_resnet18",),
        "taps at (i + cos(theta + 2 pi t / 8), j + sin(theta + 2 pi t / 8)),"
        "  theta = atan2(j - (W - 1) / 2, i - (H - 1) / 2)",
        "Every circle of taps starts in the direction away from the image's centre. On odd maps the central pixel has"
        " no such direction, and takes the mean over four.",
        "quarter turns about the image's centre, at every size", "other angles about the centre",
        "reflections; translation",
    ),
    Method(
        "RAD, RSDW (Fuhl & Kasneci 2021): our reading", ("rad_resnet34", "rsdw_resnet34"),
        "RAD-n: one weight per radius 0..n - 1;  RSDW-n: depthwise RAD-n, then 1x1",
        "Built from a short description, without their code: **these two are our reading**. RING (rotated rings) is not"
        " described well enough to be built. Their paper reports, for ResNet-34 on"
        " CIFAR-10, quarter turns / every 20 degrees: "
        + "; ".join(f"{name} {four:.2f} / {every:.2f}" for name, (four, every) in REPORTED.items())
        + ".",
        "quarter turns and reflections, at every size", "all other angles, coarsely", "-",
    ),
    Method(
        "E(2)-steerable networks (Weiler & Cesa 2019)", ("e2_wrn16", "e2_order0_wrn16", "e2_resnet50", "e2_unet"),
        "all filters with K(g x) = rho_out(g) K(x) rho_in(g)^-1 for g in C_N or D_N",
        "escnn's layers, in an environment of their own (`make escnn`). The wide residual network is equivariant to D8"
        " in its first stage and to D4 after it. Its variant of order 0 has radially symmetric filters only.",
        "quarter turns, reflections for D_N, on sizes 4n + 1 (the wide network; the others at every size)",
        "45 degrees for N = 8", "quarter turns by the wide network on other sizes: its layers are strided",
    ),
    Method(
        "SE(3)-CNN (Cesa et al. 2022)", ("se3_cnn",), "fields of SO(3), sampled on 96 rotations for the nonlinearity",
        "escnn's network of volumes. It takes minutes to build for the first time, and is left out of the costs below.",
        "the 24 rotations of the cube, on sizes 16n + 1 from 33", "all other rotations", "reflections",
    ),
)  # fmt: skip

MEASURED = (
    "resnet18", "gmr_resnet18", "sre_resnet18", "symm_resnet18", "p4_resnet18", "p4m_resnet18", "orn_resnet18",
    "harmonic_resnet18", "ric_resnet18", "rad_resnet34", "rsdw_resnet34", "e2_wrn16", "e2_order0_wrn16",
)  # fmt: skip


@dataclass(frozen=True)
class StepCost:
    """What a training step costs: forward, backward and the optimiser's update of (BATCH, 3, SIDE, SIDE)."""

    model: str
    parameters: int
    forward_gigaflops: float
    """Of one image."""
    milliseconds: float
    saved_megabytes: float
    cpu: str
    threads: int
    torch: str


def measure_steps(
    out: Path, names: Sequence[str] = MEASURED, *, seconds: float = 60, width: int | None = None
) -> dict[str, str]:
    """Measure the models that can be built here, interleaved, one small file each; returns why others cannot."""
    out.mkdir(parents=True, exist_ok=True)
    networks: dict[str, nn.Module] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            torch.manual_seed(0)
            # Equal maps: the wide network has no pooling after its stem.
            options = {"stem_pool": False} if "stem_pool" in model_entry(name).options else {}
            networks[name] = create_model(name, **options, **({} if width is None else {"width": width}))
        except MissingExtraError as error:
            missing[name] = str(error)
    x, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.arange(BATCH) % 10
    timings = interleave(
        {name: _step(network, x, labels) for name, network in networks.items()}, budget=seconds, rounds=3
    )
    here = machine()
    for name, network in networks.items():
        cost = StepCost(
            model=name,
            parameters=sum(p.numel() for p in network.parameters()),
            forward_gigaflops=forward_operations(network, x) / BATCH / 1e9,
            milliseconds=round(1e3 * timings[name].median, 1),
            saved_megabytes=round(saved_bytes(network.train(), x) / 1e6, 1),
            cpu=here["cpu"],
            threads=here["threads"],
            torch=here["torch"],
        )
        write_whole(out / f"{name}.json", json.dumps(asdict(cost), indent=1) + "\n")
    return missing


def _step(network: nn.Module, x: Tensor, labels: Tensor) -> Callable[[], object]:
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    network.train()

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(network(x), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def read_steps(folder: Path) -> list[StepCost]:
    found = [StepCost(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda cost: MEASURED.index(cost.model) if cost.model in MEASURED else len(MEASURED))


def write_methods_page(path: Path, results: Path) -> Path:
    """Write the page from what ``results`` holds in its folders ``steps`` and ``budget``, and from the benchmarks of
    speed beside it."""
    steps, budget = read_steps(results / "steps"), read_budget(results / "budget")
    paragraphs = [_paragraph(method) for method in METHODS]
    parts = [_introduction(), *paragraphs, _costs(steps), speed_section(results.parent), _on_one_budget(budget)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n\n".join(parts) + "\n")
    return path


def _introduction() -> str:
    table = [["method", "exactly", "approximately", "not at all"], ["---"] * 4]
    table += [[method.title, method.exactly, method.approximately, method.not_at_all] for method in METHODS]
    return f"""# The methods that are compared

Made by `{COMMAND}`; do not edit by hand.

Every method is a registered model (`ringconv models`) with the options of the others: `width` counts channels of the
plain network, and a stride is an equivariant down-sampling unless the method keeps its strides. Symmetries hold for
trained networks too; the tests check the exact ones.

## What each keeps

{markdown_rows(table)}"""


def _paragraph(method: Method) -> str:
    counts = []
    for name in method.models:
        entry = model_entry(name)
        exact = entry.paper_parameters or entry.parameters
        options = ", ".join(f"{key}={value!r}" for key, value in entry.paper_options)
        printed = f" (the paper: {entry.paper})" if entry.paper else ""
        counts.append(f"`{name}`{f' with {options}' if options else ''} {exact:,}{printed}")
    return f"## {method.title}\n\n    {method.formula}\n\n{method.text}\n\nParameters: {'; '.join(counts)}."


def _costs(steps: Sequence[StepCost]) -> str:
    head = f"""## What a training step costs

Forward, backward and update of {BATCH} images of {SIDE}x{SIDE}, at each network's default width and without pooling
after the stem; times are medians of interleaved rounds in one process (the networks of escnn: in a process of their own
environment). GFLOP is the forward pass of one image. *Kept* is what the forward pass stores for the backward pass. The
paper trains 860 images per second with GMR-R18 and 450 with E(2)-WRN16, on its own hardware.
Made by `{COMMAND} --measure`, with OMP_WAIT_POLICY=PASSIVE."""
    if not steps:
        return f"{head}\n\nNot measured yet."
    table = [["network", "parameters", "GFLOP per image", "step, ms", "images/s", "kept, MB"], ["---", *["---:"] * 5]]
    table += [
        [
            f"`{cost.model}`{_mark(cost.model)}", f"{cost.parameters:,}", f"{cost.forward_gigaflops:.2f}",
            f"{cost.milliseconds:,.0f}", f"{1e3 * BATCH / cost.milliseconds:.3g}", f"{cost.saved_megabytes:,.0f}",
        ]
        for cost in steps
    ]  # fmt: skip
    where = sorted({f"{cost.cpu}, {cost.threads} threads, torch {cost.torch}" for cost in steps})
    return f"{head}\n\n{markdown_rows(table)}\n\nMeasured on {'; '.join(where)}."


def _mark(model: str) -> str:
    return " (our reading)" if model_entry(model).note.startswith("our reading") else ""


_TYPED = ("teraflops", "most_epochs", "epochs", "width", "size", "train_images", "test_images", "step", "seed")


def _command(data: str, budget: Mapping[str, Any]) -> str:
    """What was typed: the options that are not the defaults."""
    defaults = asdict(Budget())
    changed = [name for name in _TYPED if budget.get(name) != defaults[name]]
    return f"ringconv budget {data}.npz" + "".join(f" --{name.replace('_', '-')} {budget[name]:g}" for name in changed)


def _on_one_budget(found: Sequence[Found]) -> str:
    head = "## All on one budget"
    if not found:
        return f"{head}\n\nNot run yet: `ringconv budget`."
    budget = found[0].budget
    if budget["epochs"] is None:
        share = f"""Every network trains for {budget["teraflops"]:g} TFLOP (the forward pass counted as in
`ringconv models`, the backward pass as twice that), but for at most {budget["most_epochs"]} epochs: what is cheap sees
the images more often."""
    else:
        share = f"""Every network trains for {budget["epochs"]} epochs, whatever they cost. FLOPs of the forward pass
are counted as in `ringconv models`, those of the backward pass as twice that."""
    return f"""{head}

Made by `{_command(found[0].data, budget)}`:
{found[0].data}, images squashed to {budget["size"]}x{budget["size"]}, base width {budget["width"]}, seed
{budget["seed"]}, AdamW with a cosine from {budget["lr"]:g} in batches of {budget["batch_size"]}, no augmentation
unless the row says so. {share} Tested on {budget["test_images"]} images, of
every class in its proportion, every {budget["step"]:g} degrees; *std* is over the angles, in points of accuracy.
One seed and a small budget: an indication of what each costs and keeps, not of what it can reach. Seconds are from a
machine that was not idle; the table above compares costs.

{budget_table(found)}"""
