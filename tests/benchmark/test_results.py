"""The CSV file of a run."""

import csv
from datetime import datetime

import pytest
import torch

import ringconv
from ringconv.benchmark.results import machine, results_path, timing_columns, write_csv
from ringconv.benchmark.timing import Timing


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_with_different_columns(tmp_path):
    path = tmp_path / "new" / "a.csv"
    write_csv(path, [{"peer": "torch", "ms": 1.5}, {"peer": "fused, ours", "note": "why"}])
    assert path.read_text().splitlines()[0] == "peer,ms,note"
    assert read(path) == [
        {"peer": "torch", "ms": "1.5", "note": ""},
        {"peer": "fused, ours", "ms": "", "note": "why"},
    ]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    class Broken:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    path = tmp_path / "a.csv"
    write_csv(path, [{"value": 1}])
    with pytest.raises(KeyboardInterrupt):
        write_csv(path, [{"value": 2}] * 10_000 + [{"value": Broken()}])
    assert read(path) == [{"value": "1"}]
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_the_machine_is_stated():
    torch.set_num_threads(1)
    here = machine()
    assert here["threads"] == 1
    assert here["torch"] == torch.__version__
    assert here["ringconv"] == ringconv.__version__
    assert here["cpu"]
    assert here["cores"] >= 1


def test_timings_are_in_milliseconds():
    timing = Timing((0.001, 0.002, 0.003, 0.004, 0.005, 0.006))
    assert timing_columns(timing) == {"median_ms": 3.5, "p20_ms": 2.0, "p80_ms": 5.0, "rounds": 6}
    assert set(timing_columns(None).values()) == {""}
    assert timing_columns(None).keys() == timing_columns(timing).keys()


def test_the_file_is_named_by_suite_and_time(tmp_path):
    assert results_path(tmp_path, "speed", datetime(2026, 3, 4, 5, 6, 7)) == tmp_path / "speed-20260304-050607.csv"
