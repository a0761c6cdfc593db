"""docs/conversion.md: what convert() makes of the model families of timm."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ringconv._files import write_whole
from ringconv._progress import Progress
from ringconv.conversion.where_lost import where_lost
from ringconv.convert import ConversionReport, convert
from ringconv.models._timm import import_timm

COMMAND = "ringconv conversions"

SIDE = 64
"""Of the images; models that take one size only get theirs."""

MODELS = (
    "resnet18", "resnet26d", "resnext26ts", "seresnext26d_32x4d", "skresnet18", "resnest14d", "res2net50_26w_4s",
    "resnetv2_50x1_bit", "wide_resnet50_2", "densenet121", "vgg11", "inception_v3", "inception_next_atto", "xception41",
    "dpn48b", "dla34", "hrnet_w18_small", "mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv4_conv_small_050",
    "efficientnet_lite0", "tf_efficientnetv2_b0", "mnasnet_small", "mixnet_s", "fbnetc_100", "tinynet_e", "lcnet_050",
    "hardcorenas_a", "ghostnet_050", "repghostnet_050", "rexnet_100", "regnetx_002", "regnety_002", "nf_regnet_b0",
    "nf_resnet26", "ese_vovnet19b_slim", "selecsls42", "cspdarknet53", "darknet17", "repvgg_a0", "gernet_s",
    "mobileone_s0", "tresnet_m", "hgnetv2_b0", "starnet_s1", "convnext_atto", "convnextv2_atto", "mambaout_femto",
    "edgenext_xx_small", "fastvit_t8", "repvit_m0_9", "efficientvit_b0", "mobilevit_xxs", "poolformer_s12", "pvt_v2_b0",
    "botnet26t_256", "pit_ti_224", "xcit_nano_12_p16_224", "test_vit", "mixer_s32_224", "resmlp_12_224",
)  # fmt: skip
"""One or two small ones of each family."""

_LEAST_SIDES = {"inception_v3": 96}
"""Models that shrink maps too often for the usual side."""

_INVARIANT = 1e-5
"""Errors below are rounding, of layers that insist on float32."""


@dataclass(frozen=True)
class ConvertedModel:
    """What became of one model."""

    name: str
    side: int
    """Of the images it was tried on."""
    report: ConversionReport
    error_before: float
    """Of the logits, under the worst quarter turn or flip; relative, in float64."""
    error_after: float
    trains: bool
    """Whether every parameter had a finite gradient, and a step of gradient descent changed any of them."""

    @property
    def remark(self) -> str:
        report = self.report
        lost = [f"{what} is lost" for _, what in report.functions_lost[:1]]
        if self.error_after <= _INVARIANT:
            return "; ".join(lost)
        if not report.converted:
            left = {row.reason: None for row in report.layers if row.action == "left" and row.before.startswith("Conv")}
            reasons = left | {row.reason: None for row in report.layers if row.action == "left"}
            return f"not converted: {'; '.join(reasons) or 'there is no spatial convolution'}"
        assert report.losses is not None
        found = report.losses[0]
        known = dict(report.breaks)
        why = known.get(found.name) or known.get("" if found.name == "(the model)" else found.name, "")
        more = f" and {len(report.losses) - 1} more" if len(report.losses) > 1 else ""
        where = f"{found.name} ({found.layer}){more}" + (f": {why}" if why else "")
        return "; ".join([f"lost in {where}", *lost])


def convert_timm_model(name: str, side: int = SIDE) -> ConvertedModel:
    """Build a model of timm, convert it, measure both and train the new one for a step."""
    timm = import_timm()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain: nn.Module = timm.create_model(name, pretrained=False, num_classes=10)
        config: dict[str, Any] = plain.default_cfg  # type: ignore[assignment]
        if config.get("fixed_input_size"):
            side = config["input_size"][-1]
        side = max(side, _LEAST_SIDES.get(name, 0), *config.get("min_input_size", ()))
        images = torch.randn(4, 3, side, side)
        converted, report = convert(plain, return_report=True, example_input=images[:1])
        before, _ = where_lost(plain, images[:1])
        trains = _trains(converted, images)
    assert report.measured is not None, report.unmeasured
    return ConvertedModel(name, side, report, before, report.measured, trains)


def _trains(model: nn.Module, images: Tensor) -> bool:
    model.train()
    labels = torch.arange(len(images))
    parameters = list(model.parameters())
    loss = F.cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    if not all(p.grad is not None and bool(p.grad.isfinite().all()) for p in parameters):
        return False
    before = [p.detach().clone() for p in parameters]
    torch.optim.SGD(parameters, 0.01).step()
    return any(not torch.equal(old, new) for old, new in zip(before, parameters, strict=True))


def convert_timm_models(names: Sequence[str] = MODELS, progress: Progress | None = None) -> list[ConvertedModel]:
    rows = []
    for done, name in enumerate(names, 1):
        with warnings.catch_warnings():
            # What timm's models do with torch is not this table's concern.
            warnings.simplefilter("ignore")
            rows.append(convert_timm_model(name))
        if progress is not None:
            progress("models", done, len(names))
    return rows


def markdown_table(rows: Sequence[ConvertedModel]) -> str:
    lines = [
        "| model | pixels | converted | parameters before | after | error before | after | trains | remark |",
        "|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for row in rows:
        counts = f"{row.report.converted} | {row.report.parameters_before:,} | {row.report.parameters_after:,}"
        errors = f"{row.error_before:.1g} | {row.error_after:.1g}"
        trains = "yes" if row.trains else "no"
        lines.append(f"| {row.name} | {row.side} | {counts} | {errors} | {trains} | {row.remark} |")
    return "\n".join(lines)


def write_conversion_table(
    path: Path = Path("docs/conversion.md"), names: Sequence[str] = MODELS, progress: Progress | None = None
) -> Path:
    """Write the table, how it was made and what it says, as markdown; what other commands added to the page stays."""
    rows = convert_timm_models(names, progress)
    invariant = sum(row.error_after <= _INVARIANT for row in rows)
    untouched = sum(not row.report.converted for row in rows)
    summary = (
        f"Of {len(rows)} models, {invariant} are invariant after conversion,"
        f" {len(rows) - invariant - untouched} are converted but keep something that is not (see the remark), and"
        f" {untouched} have nothing to convert."
    )
    summary = textwrap.fill(summary, 120)
    version = import_timm().__version__
    text = _PAGE.format(command=COMMAND, version=version, summary=summary, table=markdown_table(rows))
    return write_section(path, "table", text)


_PAGE = """\
# Conversion of ready-made networks

Made by `{command}`; do not edit by hand.

`convert(model)` replaces the layers that break equivariance and leaves the rest. The table shows what it makes of
models of timm {version}, random weights, default options (kernel sizes kept). *Converted* counts the convolutions that
became ring convolutions; *pixels* is the side of the images. *Error* is that of the logits under the worst quarter
turn or flip of an image, relative, in float64: |f(turned x) - f(x)| / |f(x)|. It is measured on a copy whose
per-channel parameters are random and whose batch norms fit the image, since a network that has not been trained often
hides a branch behind a zero; it exceeds 1 where the norms do not fit the turned image. *Trains*: after a step of
gradient descent on the converted model every parameter had a finite gradient. `print(report)` of
`convert(model, return_report=True, example_input=x)` tells the same of your own model, layer by layer.

```python
from ringconv.convert import convert, recalibrate_batchnorm

model = convert(model, kernel_size={{"layer1.*": 9}}, skip="fc", sigma="fixed")  # sizes by layer name
model = convert(trained, from_weights=True)  # every kernel becomes the nearest ring kernel
recalibrate_batchnorm(model, loader)  # some hundred images; then train on
```

`help(ringconv.convert)` has all options.

{summary}

{table}
"""

_MARK = "<!-- section: "


def write_section(path: Path, name: str, text: str) -> Path:
    """Put a section into a page that several commands write to, in the place of the one it had; the table is first."""
    parts = path.read_text(encoding="utf-8").split(_MARK)[1:] if path.exists() else []
    sections = {part.partition(" -->")[0]: part.partition(" -->")[2].strip() for part in parts} | {name: text.strip()}
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(sections, key=lambda section: section != "table")
    write_whole(path, "\n".join(f"{_MARK}{s} -->\n\n{sections[s]}\n" for s in ordered))
    return path
