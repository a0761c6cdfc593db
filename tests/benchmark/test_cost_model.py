"""Counts against torch's own, constants against those that made the timings, and the page against its promise."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ringconv import GMRConv1d, GMRConv2d, GMRConv3d
from ringconv.benchmark.cases import Case
from ringconv.benchmark.cost_model import (
    METHODS,
    Measurement,
    Rates,
    Work,
    fit,
    judge,
    live,
    read_suites,
    read_table,
    work,
)
from ringconv.benchmark.gpu_prediction import A100, A5000, PAPER_CASES, fused_work, gpu_seconds, paper_rates
from ringconv.benchmark.gpu_prediction import paper_measurements as published
from ringconv.benchmark.network_cost import all_reduce_seconds, network_cost
from ringconv.benchmark.scaling import fit_cpu, scaling_page
from ringconv.commands._terminal import UsageError
from ringconv.commands.scaling import scaling
from ringconv.models import gmr_resnet, resnet
from ringconv.ops.choice import MEASURED
from ringconv.ops.factored import factored_conv

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LAYERS = {1: GMRConv1d, 2: GMRConv2d, 3: GMRConv3d}
CASES = [Case(2, 24, 40, (9, 10), 5), Case(1, 8, 16, (30,), 9), Case(1, 6, 4, (5, 6, 7), 3)]


# -- counts


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_and_passes_are_what_torch_counts(case):
    """In inference; torch counts a multiplication and an addition as two operations, as we do."""
    layer = LAYERS[case.dimensions](
        case.in_channels,
        case.out_channels,
        case.kernel_size,
        padding=case.padding,
        bias=False,
        method="dense",
        preset="paper",
    )
    x = case.input()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    kernel = 2 * case.in_channels * case.out_channels * case.rings * live(case)[1]  # weight @ orbit values
    assert counter.get_total_flops() == work(case, "dense", "inference").products + kernel
    counted = work(case, "factored", "inference")
    mix_first = counted.passes == 2 * math.prod(x.shape[2:]) * x.shape[0] * case.rings * case.out_channels * (
        case.kernel_size**case.dimensions
    )
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        factored_conv(x, layer.weight, layer.basis(), None, layer._options, mix_first=mix_first)
    assert counter.get_total_flops() == counted.products + counted.passes


def test_counts_of_the_papers_layer():
    case = PAPER_CASES[9]
    assert live(case) == (69, 13)
    sites, maps = 2 * 64 * 64, 2 * 2 * 64 * 64 * 128
    assert work(case, "fused", "inference") == Work(
        1, 2 * sites * 5 * 128 * 128, sites * 128 * (69 + 2 * 5 * 13), 4 * (maps + 5 * 128 * 128)
    )
    assert work(case, "fused", "training").products == 4 * work(case, "fused", "inference").products
    assert work(case, "dense", "training").products == 3 * 2 * sites * 81 * 128 * 128


# -- constants


def timed(rates, cases, modes=("inference", "training")):
    return [
        Measurement(case, method, mode, rates[method].seconds(work(case, method, mode)), "made up")
        for case in cases
        for method in METHODS
        for mode in modes
    ]


GRID = [Case(b, c, o, (s, s), k) for b in (1, 16) for c, o in ((8, 64), (128, 32)) for s in (4, 40) for k in (3, 9)]
RATES = {
    "dense": Rates(1e-4, 1e11, math.inf, 2e10),
    "factored": Rates(2e-4, 8e10, 2e10, 5e9),
    "fused": Rates(3e-5, 1.5e11, 6e10, 4e9),
}


def test_the_constants_that_made_the_timings_are_found():
    found = fit(timed(RATES, GRID))
    for method in METHODS:
        assert found[method] == pytest.approx(RATES[method], rel=1e-6)
    quality = judge(found, timed(RATES, CASES))
    assert quality.median < 1e-6
    assert quality.within_quarter == 1
    assert quality.number == len(CASES) * 6


def test_a_few_disturbed_timings_do_not_decide():
    timings = timed(RATES, GRID)
    disturbed = [m._replace(seconds=3 * m.seconds) if i % 9 == 0 else m for i, m in enumerate(timings)]
    for method, rates in fit(disturbed).items():
        assert rates.products == pytest.approx(RATES[method].products, rel=0.1)


def test_a_known_bandwidth_is_kept():
    found = fit(timed(RATES, GRID), bandwidth=RATES["fused"].bandwidth)["fused"]
    assert found == pytest.approx(RATES["fused"], rel=1e-6)


def test_constants_are_never_negative():
    """Timings that fall with the work: the best that a sum of costs can do is a constant."""
    falling = [m._replace(seconds=1e-3 / (1 + i)) for i, m in enumerate(timed(RATES, GRID[:4]))]
    for rates in fit(falling).values():
        assert min(rates) >= 0


# -- files


HEAD = "suite,mode,peer,in_channels,out_channels,groups,kernel_size,rings,stride,batch,size,median_ms,cpu"


def test_only_plain_layers_of_this_cpu_are_read(tmp_path):
    rows = [
        "speed,inference,torch,8,8,1,3x3,2,1x1,2,6x6,1.5,here",
        "speed,training,fused,8,8,1,3x3,2,1x1,2,6x6,2.5,here",
        "speed,training,fused,8,8,1,3x3,2,1x1,2,6x6,2.5,elsewhere",
        "speed,training,fused,8,8,8,3x3,2,1x1,2,6x6,2.5,here",
        "speed,training,fused,8,8,1,3x3,2,2x2,2,6x6,2.5,here",
        "speed,training,authors,8,8,1,3x3,2,1x1,2,6x6,2.5,here",
        "speed,training,factored,8,8,1,3x3,2,1x1,2,6x6,,here",
    ]
    (tmp_path / "speed-1.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    (tmp_path / "speed-quick-1.csv").write_text("\n".join([HEAD, rows[0]]) + "\n")
    (tmp_path / "speed-cuda-1.csv").write_text("\n".join([HEAD, rows[0]]) + "\n")
    (tmp_path / "models-1.csv").write_text("suite,mode,peer\nmodels,memory,resnet18\n")
    case = Case(2, 8, 8, (6, 6), 3)
    assert read_suites(tmp_path, {"here"}) == [
        Measurement(case, "dense", "inference", 1.5e-3, "speed", "here"),
        Measurement(case, "fused", "training", 2.5e-3, "speed", "here"),
    ]
    assert len(read_suites(tmp_path)) == 3


def test_without_a_suite_the_command_says_what_makes_one(tmp_path):
    with pytest.raises(UsageError, match=r"no suite of layers in .*ringconv bench"):
        scaling(results=tmp_path, out=tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


def test_the_model_predicts_the_suites_that_it_was_not_fitted_to():
    """The timings in the repository, made beforehand: nothing is timed here."""
    fitted = fit_cpu(RESULTS, MEASURED)
    assert fitted.overall().median <= 0.25
    assert {m.source for m in fitted.suites}.isdisjoint({m.source for m in read_table(MEASURED)})


# -- predictions


def test_the_papers_table_is_met():
    quality = judge(paper_rates(), published())
    assert quality.number == 20
    assert quality.median < 0.15


def test_predictions_grow_as_they_should():
    for gpu in (A5000, A100):
        for method in METHODS:
            for mode in ("inference", "training"):
                times = [gpu_seconds(case, method, mode, gpu) for case in PAPER_CASES.values()]
                assert times == sorted(times)
                assert gpu_seconds(PAPER_CASES[9], method, mode, gpu, "bf16") <= times[3]
                assert gpu_seconds(PAPER_CASES[9], method, mode, gpu, alone=False) < times[3]
    with pytest.raises(ValueError, match="do not compute"):
        fused_work(Case(1, 8, 8, (6, 6), 3, stride=2), "inference", 4)


def test_a_network_is_counted_without_computing_it():
    plain = network_cost(lambda: resnet(18, num_classes=10), 8, 224)
    ring = network_cost(lambda: gmr_resnet(18, num_classes=10, preset="paper"), 8, 224, "fused")
    assert (plain.parameters, ring.parameters) == (11_177_034, 3_996_685)
    # As measured with real tensors: benchmarks/results/models-*.csv.
    assert plain.saved_bytes == 643_913_216
    assert ring.saved_bytes == 666_397_572
    assert [case.kernel_size for case, is_ring in ring.layers if is_ring] == [5] + [9] * 8 + [5] * 8
    assert [case for case, is_ring in plain.layers if is_ring] == []
    assert sum(case.dense_products for case, _ in plain.layers) == pytest.approx(8 * 7.3e9, rel=0.1)


def test_traffic_of_the_gradients():
    assert all_reduce_seconds(1_000_000, 4, 1e9) == pytest.approx(2 * 0.75 * 4e-3)
    assert all_reduce_seconds(1_000_000, 1, 1e9) == 0


# -- the page


GPU_NAMES = re.compile(r"\b(GPUs?|CUDA|A100|A5000|H100|V100|RTX|sm\d\d)\b", re.IGNORECASE)
FIGURE = re.compile(r"\d[\d.,]*\s*(%|x\b|(?:ms|us|µs|s|h|hours?|minutes?|GB|MB|kB|images|times|TFLOPS?)\b)")


def gpu_figures_without_the_word(text: str) -> list[str]:
    """Rows of tables, and paragraphs, that name a GPU and a figure, and not that it is predicted."""
    blocks = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        blocks += lines if lines[:1] and lines[0].lstrip().startswith("|") else [paragraph]
    found = []
    for block in blocks:
        named = GPU_NAMES.search(block)
        without_names = GPU_NAMES.sub("", block)
        is_row = block.lstrip().startswith("|")
        figure = re.search(r"\|\s*[\d.]+", without_names) if is_row else FIGURE.search(without_names)
        # What the compiler says of a kernel is no measurement.
        compiled = re.match(r"\|\s*sm\d\d", block)
        if named and figure and "predicted" not in block and not compiled:
            found.append(block)
    return found


def test_the_search_for_gpu_figures_finds_them():
    assert gpu_figures_without_the_word("It takes 3.2 ms on an A100.")
    assert gpu_figures_without_the_word("| A100 | 3.2 |")
    assert gpu_figures_without_the_word("Twice as fast\non a GPU, or 1.9x.")
    assert not gpu_figures_without_the_word("| A100, predicted | 3.2 |")
    assert not gpu_figures_without_the_word("It takes 3.2 ms on a CPU.\n\nNobody measured a GPU.")


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_no_gpu_figure_in_the_docs_without_the_word_predicted(path):
    assert gpu_figures_without_the_word(path.read_text()) == []


def test_the_page_says_what_it_must(monkeypatch):
    monkeypatch.setattr("ringconv.benchmark.scaling.TRITON_IS_THERE", False)  # compiled in tests/ops/test_triton.py
    page = scaling_page(fit_cpu(RESULTS, MEASURED), RESULTS)
    assert gpu_figures_without_the_word(page) == []
    for needed in ("median relative error", "64 x A100", "4 x RTX A5000", "3,996,685", "11,177,034", "1024"):
        assert needed in page
    assert max(len(line) for line in page.splitlines() if not line.startswith("|")) <= 120
