"""torch.compile of whole networks: what the file says of it. No test looks at how long anything took."""

import csv

import pytest

from ringconv.benchmark.compiled import time_compiled
from ringconv.benchmark.networks import Setting
from ringconv.benchmark.scaling import _compiled


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_networks_compile_to_one_graph_that_calls_the_ring_convolutions(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))  # not what other processes are writing
    path = time_compiled(tmp_path, setting=Setting(2, 16, stem_pool=False, width=8), budget=0, rounds=1)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["mode"], row["peer"]) for row in rows] == [
        (mode, f"{network}{form}")
        for mode in ("inference", "training")
        for network in ("resnet18", "gmr_resnet18")
        for form in ("", ", compiled")
    ]
    assert {row["graphs"] for row in rows} == {"1"}
    assert all(int(row["operators"]) > int(row["fused_loops"]) > 0 for row in rows)
    section = _compiled(tmp_path)
    assert section.count("\n| gmr_resnet18, ") == 2
    assert _compiled(tmp_path / "empty") == ""
