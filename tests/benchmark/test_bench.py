"""Every suite from its options to its files, at tiny scale. No test looks at how long anything took."""

import csv
import itertools
import random
from dataclasses import replace
from typing import get_args

import pytest
import torch
from rich.console import Console

from ringconv.benchmark import Case, auto_table, bench, methods, peers, table_grid
from ringconv.benchmark.run import SuiteName
from ringconv.benchmark.suites import LAYER_SUITES, Settings
from ringconv.benchmark.tables import auto_tables, layer_tables, network_tables
from ringconv.benchmark.timing import Timing
from ringconv.ops import LayerShape

MACHINE = ["cpu", "cores", "threads", "wait_policy", "load", "torch", "ringconv", "date"]


@pytest.fixture(autouse=True)
def _passive_threads(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rendered(tables) -> str:
    console = Console(width=80, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in tables:
        console.print(table)
    console.file.close()
    return console.export_text()


def test_there_is_a_name_for_every_suite():
    assert set(get_args(SuiteName)) == {*LAYER_SUITES, "models", "auto"}


@pytest.mark.parametrize("suite", LAYER_SUITES)
def test_layer_suite(suite, tmp_path, capsys):
    names = ("torch", "factored", "auto", "gemm") if suite not in ("speed", "forms") else ()
    path = bench(suite=suite, quick=True, directory=tmp_path, plot=suite == "speed", peers=names)
    rows = read(path)
    values = LAYER_SUITES[suite].cases
    assert len(rows) == len(values) * 2 * len(names or LAYER_SUITES[suite].peers)
    assert ("harmonics_2" in {row["peer"] for row in rows}) == (suite == "forms")
    assert {row["value"] for row in rows} == {str(value) for value in values}
    columns = ["suite", "mode", "peer", "variable", "value", *LayerShape._fields, "batch", "size"]
    assert list(rows[0]) == [*columns, "median_ms", "p20_ms", "p80_ms", "rounds", "note", *MACHINE]
    for row in rows:
        assert bool(row["median_ms"]) != bool(row["note"])
        assert row["suite"] == suite
        assert row["torch"] == torch.__version__
        assert row["wait_policy"] == "PASSIVE"
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "≥ 2.5" in shown or suite != "speed"
    assert [file.suffix for file in sorted(tmp_path.iterdir())] == ([".csv", ".png"] if suite == "speed" else [".csv"])


def test_models_suite(tmp_path, capsys):
    path = bench(suite="models", quick=True, directory=tmp_path, peers=("gmr_resnet18",))
    rows = {row["mode"]: row for row in read(path)}
    assert set(rows) == {"inference", "training", "memory"}
    assert all(float(rows[mode]["images_per_second"]) > 0 for mode in ("inference", "training"))
    assert int(rows["memory"]["saved_bytes"]) > 0
    assert int(rows["memory"]["peak_bytes"]) > int(rows["memory"]["saved_bytes"])
    assert {row["stem_pool"] for row in rows.values()} == {"False"}
    assert "5x5 stem without pooling" in capsys.readouterr().out


def test_auto_suite(tmp_path, capsys):
    rows = read(bench(suite="auto", quick=True, shapes=5, directory=tmp_path))
    assert len(rows) == 5 * 2
    for row in rows:
        times = {method: float(row[f"{method}_ms"]) for method in methods.METHODS if row[f"{method}_ms"]}
        assert row["best"] == min(times, key=times.get)
        assert float(row["ratio"]) == pytest.approx(float(row["auto_ms"]) / min(times.values()), rel=1e-3)
        assert float(row["retimed_ratio"]) <= float(row["ratio"])
    shown = capsys.readouterr().out
    assert "within 1.15" in shown
    assert "…" not in shown


def test_a_bad_choice_is_timed_again(monkeypatch):
    ratios = iter([2.0, 1.5, 1.1])

    def timed(calls, **_):
        return {name: Timing((0.25,)) for name in calls} | {"auto": Timing((0.25 * next(ratios),))}

    monkeypatch.setattr(methods, "interleave", timed)
    settings = Settings(modes=("inference",), peers=(), budget=0, rounds=1, seed=0, shapes=1, quick=True)
    (row,) = methods.steps(settings)[0].run()
    assert (row["ratio"], row["retimed_ratio"], row["retimings"]) == (2.0, 1.1, 2)


def test_a_choice_that_stays_bad_is_reported(monkeypatch):
    ratios = itertools.chain([1.9, 1.6, 1.7, 1.8], itertools.repeat(1.0))

    def timed(calls, **_):
        return {name: Timing((0.25,)) for name in calls} | {"auto": Timing((0.25 * next(ratios),))}

    monkeypatch.setattr(methods, "interleave", timed)
    settings = Settings(modes=("inference",), peers=(), budget=0, rounds=1, seed=0, shapes=1, quick=True)
    (row,) = methods.steps(settings)[0].run()
    assert (row["ratio"], row["retimed_ratio"], row["retimings"]) == (1.9, 1.6, 3)
    assert "1.60" in rendered(auto_tables([row]))


def test_random_shapes_cover_what_the_choice_must_get_right():
    def draw(seed: int) -> list[Case]:
        return list(itertools.islice(methods.random_cases(random.Random(seed)), 200))

    cases = draw(0)
    assert draw(0) == cases != draw(1)
    assert {case.dimensions for case in cases} == {1, 2, 3}
    assert {case.stride for case in cases} == {1, 2}
    assert any(case.groups == case.in_channels > 1 for case in cases)
    assert any((case.in_channels, case.out_channels) == (3, 64) for case in cases)
    assert any(case.batch == 128 and case.in_channels >= 256 and max(case.size) <= 8 for case in cases)


def test_auto_table(tmp_path):
    path = tmp_path / "table.csv"
    assert auto_table(path, cases=[Case(1, 8, 8, (6, 6), 3), Case(1, 8, 8, (9,), 5)], budget=0, rounds=1) == path
    rows = read(path)
    assert [(row["kernel_size"], row["size"], row["mode"]) for row in rows] == [
        ("3x3", "6x6", "inference"), ("3x3", "6x6", "training"), ("5", "9", "inference"), ("5", "9", "training")
    ]  # fmt: skip
    columns = [*LayerShape._fields, "batch", "size", "mode", "dense_ms", "factored_ms", "fused_ms", "note"]
    assert list(rows[0]) == [*columns, *MACHINE]
    assert all(float(row["dense_ms"]) > 0 for row in rows)


def test_the_grid_has_distinct_shapes_of_every_kind():
    grid = table_grid()
    assert len(set(grid)) == len(grid) > 100
    assert {case.dimensions for case in grid} == {1, 2, 3}


def test_ctrl_c_keeps_what_was_measured(tmp_path, monkeypatch):
    def build(case: Case, x: torch.Tensor, mode: str):
        def call() -> None:
            if case.kernel_size == 7:
                raise KeyboardInterrupt

        return call

    monkeypatch.setitem(peers.PEERS, "torch", build)
    with pytest.warns(UserWarning, match="interrupted: .*speed-quick"):
        path = bench(suite="speed", quick=True, peers=("torch",), directory=tmp_path, plot=False)
    assert [(row["value"], row["mode"]) for row in read(path)] == [
        ("3", "inference"), ("3", "training"), ("5", "inference"), ("5", "training")
    ]  # fmt: skip


def test_ctrl_c_before_the_first_row(tmp_path, monkeypatch):
    def build(case: Case, x: torch.Tensor, mode: str):
        raise KeyboardInterrupt

    monkeypatch.setitem(peers.PEERS, "torch", build)
    with pytest.raises(KeyboardInterrupt):
        bench(suite="speed", quick=True, peers=("torch",), directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_peer_that_is_missing_is_named_with_the_reason(tmp_path, monkeypatch, capsys):
    def build(case: Case, x: torch.Tensor, mode: str):
        raise peers.Unavailable("needs 'ringconv[more]'")

    monkeypatch.setitem(peers.PEERS, "another", build)
    path = bench(suite="speed", modes=("inference",), quick=True, peers=("gemm", "another"), directory=tmp_path)
    assert {row["note"] for row in read(path) if row["peer"] == "another"} == {"needs 'ringconv[more]'"}
    assert capsys.readouterr().out.count("left out: another: needs 'ringconv[more]'") == 1


def test_threads_are_set_for_the_run_and_stated(tmp_path):
    torch.set_num_threads(1)
    path = bench(suite="3d", quick=True, peers=("gemm",), threads=2, directory=tmp_path, plot=False)
    assert {row["threads"] for row in read(path)} == {"2"}
    assert torch.get_num_threads() == 1


def test_a_warning_if_idle_threads_may_spin(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.warns(UserWarning, match="OMP_WAIT_POLICY is not PASSIVE"):
        bench(suite="3d", quick=True, peers=("gemm",), directory=tmp_path, plot=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suite": "sped"}, "suite must be one of speed, .*, got 'sped'"),
        ({"peers": ("torch", "tensorflow")}, "peers must be among torch, .*, got tensorflow"),
        ({"suite": "models", "peers": ("torch",)}, "peers must be among resnet18, .*, got torch"),
    ],
)
def test_unknown_names(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        bench(**options, quick=True, directory=tmp_path)


# -- the tables, from made-up rows


def layer_rows(suite, medians):
    return [
        {"mode": mode, "peer": peer, "value": value, "median_ms": ms, "p20_ms": ms, "p80_ms": ms}
        for (mode, peer), times in medians.items()
        for value, ms in times.items()
    ]


def test_the_faster_layout_of_torch_counts_case_by_case():
    suite = replace(LAYER_SUITES["speed"], linear_growth=False)
    rows = layer_rows(
        suite,
        {
            ("inference", "torch"): {3: 20.0, 5: 30.0},
            ("inference", "torch_channels_last"): {3: 14.0, 5: 50.0},
            ("inference", "auto"): {3: 4.0, 5: 10.0},
        },
    )
    (line,) = [line for line in rendered(layer_tables(suite, rows)).splitlines() if "torch / ours" in line]
    assert line.split()[-2:] == ["3.50", "3.00"]


def test_growth_is_relative_to_that_of_the_rings():
    rows = layer_rows(LAYER_SUITES["rings"], {("training", "auto"): {1: 2.0, 2: 3.0, 4: 10.0}})
    lines = rendered(layer_tables(LAYER_SUITES["rings"], rows)).splitlines()
    (line,) = [line for line in lines if "ours, growth, training" in line]
    assert line.split()[-3:] == ["-", "0.75", "1.25"]


def test_times_from_micro_to_seconds_fit_eighty_columns():
    suite = LAYER_SUITES["kernel"]
    times = dict(zip(suite.cases, [0.0123, 1.23, 12.3, 123.4, 1234.5, 12345.6, 0.5, 99999.0], strict=True))
    rows = layer_rows(suite, {(mode, peer): times for mode in ("inference", "training") for peer in peers.PEERS})
    shown = rendered(layer_tables(suite, rows))
    assert "…" not in shown
    assert "99999" in shown


def test_networks_are_compared_with_the_better_layout():
    common = {"batch": 64, "side": 32, "stem_pool": False}
    rows = [
        common | {"mode": "training", "peer": peer, "images_per_second": speed}
        for peer, speed in (("resnet18", 20.0), ("resnet18_channels_last", 25.0), ("gmr_resnet18", 50.0))
    ] + [
        common | {"mode": "memory", "peer": peer, "saved_bytes": saved, "peak_bytes": 2 * saved}
        for peer, saved in (("resnet18", 300e6), ("resnet18_channels_last", 200e6), ("gmr_resnet18", 220e6))
    ]
    shown = rendered(network_tables(rows))
    (line,) = [line for line in shown.splitlines() if "gmr_resnet18 / resnet18" in line]
    assert line.split()[-4:] == ["2.00", "-", "1.10", "1.10"]
    assert "≥ 1.2" in shown
