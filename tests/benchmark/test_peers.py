"""Peers do what their names say, or say why they cannot."""

import sys

import pytest
import torch

from ringconv.benchmark.cases import MODES, Case
from ringconv.benchmark.peers import FORMS, PEERS, label, prepare
from ringconv.ops import fused

CASES = [
    Case(2, 8, 8, (7, 9), 5),
    Case(2, 8, 16, (8, 8), 3, stride=2),
    Case(1, 8, 8, (6, 6), 3, groups=8),
    Case(2, 8, 8, (13,), 7),
    Case(1, 8, 8, (5, 6, 7), 3),
]
CASE_IDS = [str(case) for case in CASES]


def assert_equal(actual, expected):
    """Up to rounding in float32, relative to the largest value."""
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=CASE_IDS)
def test_our_methods_are_equal(case, mode):
    """Outputs, or the gradients of input, weight and sigma."""
    calls, reasons = prepare(("dense", "factored", "fused", "auto"), case, mode)
    assert set(reasons) == (set() if fused.available() else {"fused"})
    results = {name: call() if mode == "training" else (call(),) for name, call in calls.items()}
    expected = results.pop("dense")
    assert len(expected) == (3 if mode == "training" else 1)
    assert expected[0].shape == ((case.batch, case.in_channels, *case.size) if mode == "training" else
                                 (case.batch, case.out_channels, *case.output_size))  # fmt: skip
    for actual in results.values():
        for one, other in zip(actual, expected, strict=True):
            assert_equal(one, other)


@pytest.mark.parametrize("mode", MODES)
def test_torch_in_both_layouts_is_the_same_convolution(mode):
    calls, _ = prepare(("torch", "torch_channels_last"), CASES[0], mode)
    plain, channels_last = (call() if mode == "training" else (call(),) for call in calls.values())
    for one, other in zip(plain, channels_last, strict=True):
        assert_equal(other, one)
    assert plain[0].is_contiguous()
    assert channels_last[0].is_contiguous(memory_format=torch.channels_last)


def test_inference_records_no_gradient():
    calls, _ = prepare(PEERS, CASES[0], "inference")
    assert not any(call().requires_grad for call in calls.values())


def test_group_convolution_has_eight_maps_for_a_channel():
    calls, _ = prepare(["group"], CASES[0], "inference")
    assert calls["group"]().shape == (2, 8 * 8, 7, 9)


def test_forms_of_our_layer_have_their_parameters():
    """What is trained: the input's gradient, sigma's, the weight's, and of harmonics that of their mixing."""
    calls, _ = prepare(FORMS, CASES[0], "training")
    shapes = {name: [tuple(gradient.shape) for gradient in call()] for name, call in calls.items()}
    rings = [(2, 8, 7, 9), (8, 8, 3), (3,)]
    assert shapes["default_form"] == rings
    assert sorted(shapes["harmonics_1"]) == sorted([*rings, (8, 8, 1)])
    assert sorted(shapes["harmonics_2"]) == sorted([*rings, (8, 8, 2)])


def test_the_limit_is_the_product_over_rings_and_channels():
    case = Case(2, 8, 5, (6, 7), 5, stride=2)
    calls, _ = prepare(["gemm"], case, "inference")
    assert calls["gemm"]().shape == (2 * 3 * 4, 5)
    assert label("gemm", "training") == "three bare GEMMs"


def test_a_missing_package_is_reported_with_what_to_do(monkeypatch):
    for module in ("torchvision", "GMR_Conv", "GMR_Conv.gmr_conv"):
        monkeypatch.setitem(sys.modules, module, None)
    calls, reasons = prepare(("dense", "authors"), CASES[0], "inference")
    assert set(calls) == {"dense"}
    assert "GMR_Conv" in reasons["authors"]
    assert "pip install 'ringconv[peers]'" in reasons["authors"]


def test_the_authors_layer_gets_their_argument_names(monkeypatch):
    """Their own signature: groups are not where torch has them, rings are called otherwise."""

    class Layer(torch.nn.Conv2d):
        def __init__(self, *args, num_rings: int, **options) -> None:
            super().__init__(*args, **options)
            self.num_rings = num_rings

    modules = type(sys)("GMR_Conv"), type(sys)("GMR_Conv.gmr_conv")
    modules[1].GMR_Conv2d = modules[1].GMR_Conv3d = Layer
    monkeypatch.setitem(sys.modules, "torchvision", None)
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    calls, reasons = prepare(["authors"], CASES[0], "training")
    assert not reasons
    assert len(calls["authors"]()) == 2


def test_a_missing_kernel_is_reported(monkeypatch):
    monkeypatch.setattr(fused, "available", lambda: False)
    monkeypatch.setattr(fused, "why_unavailable", lambda: "no compiler was there")
    assert prepare(["fused"], CASES[0], "inference") == ({}, {"fused": "no compiler was there"})


@pytest.mark.skipif(not fused.available(), reason="needs the compiled kernel")
def test_a_fallback_is_not_timed_as_fused(monkeypatch):
    assert "fused" in prepare(["fused"], CASES[0], "inference")[0]
    monkeypatch.setattr("ringconv.layers.fused_covers", lambda x, weight: False)
    calls, reasons = prepare(["fused"], CASES[0], "inference")
    assert not calls
    assert "does not take its fused path" in reasons["fused"]


@pytest.mark.parametrize(
    ("peer", "case", "reason"),
    [
        ("torch_channels_last", CASES[3], "no channels_last layout"),
        ("authors", CASES[3], "one axis"),
        ("authors", CASES[2], "groups"),
        ("gemm", CASES[2], "groups"),
        ("symm", CASES[3], "one axis"),
        ("group", CASES[1], "stride 1"),
        ("group", CASES[4], "two dimensions"),
        ("harmonics_1", CASES[4], "functions of the plane"),
    ],
)
def test_a_case_that_a_peer_cannot_run(peer, case, reason):
    calls, reasons = prepare([peer], case, "inference")
    assert not calls
    assert reason in reasons[peer]
