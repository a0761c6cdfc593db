"""Several models in one folder: each a run, gone on with, none trained twice."""

import json
import signal
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ringconv._machine import forget_peak, peak_bytes
from ringconv.training import TrainingInterruptedError, TrainingStoppedError, TrainSettings, Watch, finish, list_runs
from ringconv.training.compare_runs import PLAN, check_models, compare_models, read_plan

pytest.importorskip("lightning_fabric")


@pytest.fixture
def models(tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, TrainSettings]:
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    arrays = {}
    for seed, (split, count) in enumerate((("train", 48), ("test", 12))):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = tiny.pictures(count, seed)
    np.savez(tmp_path / "tiny.npz", **arrays)
    common = {"data": str(tmp_path / "tiny.npz"), "epochs": 2, "batch_size": 16}
    return {
        "narrow": TrainSettings("tiny_ring", model_options={"width": 2}, **common),
        "tiny_ring:width=4": TrainSettings("tiny_ring", model_options={"width": 4}, **common),
    }


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of runs take most of the time, and are tested elsewhere."""
    monkeypatch.setattr(finish, "save_picture", lambda folder, path, evaluation: None)


class Notes(Watch):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_every_model_is_a_run(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    compared = compare_models(models, out=tmp_path / "runs", about={"scale": "tiny"})
    assert compared.folder.parent == tmp_path / "runs"
    assert compared.folder.name.startswith("compare-tiny-")
    assert [run.name for run in compared.runs] == ["narrow", "tiny_ring_width_4"]
    assert [run.settings for run in compared.runs] == list(models.values())
    assert not compared.failed
    plan = json.loads((compared.folder / PLAN).read_text("utf-8"))
    assert plan == read_plan(compared.folder)
    assert set(plan) == {"models", "command", "scale"}
    for run in compared.runs:
        assert run.state == "finished"
        assert run.scores["accuracy"]["rotated_mean"] >= 0
        memory, speed, seconds = map(run.cost, ("peak_memory_bytes", "images_per_second", "train_seconds"))
        assert memory is not None
        assert memory > 50e6, "the process holds torch"
        assert speed is not None
        assert seconds is not None
        # Seconds are rounded to 1/100.
        assert speed == pytest.approx(2 * 48 / seconds, rel=0.02 + 0.01 / seconds)
        assert run.cost("peak_gpu_memory_bytes") is None
        assert run.data["classes"] == ["0", "1", "2"]


def test_a_finished_comparison_is_not_trained_again(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    first = compare_models(models, out=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*") if path.is_file()}
    watch = Notes()
    again = compare_models(models, out=tmp_path, go_on=True, watch=watch)
    assert again.folder == first.folder
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*") if path.is_file()} == before
    assert sum("finished already" in note for note in watch.notes) == 2
    assert compare_models(models, out=tmp_path).folder != first.folder, "without asking, a new one begins"


def test_an_interrupted_comparison_goes_on(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    class Interrupt(Watch):
        steps = 0

        def trained(self, moment: object) -> None:
            Interrupt.steps += 1
            if Interrupt.steps == 8:  # each model takes 6
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(TrainingInterruptedError, match=r"stopped while training tiny_ring:width=4; .* --resume"):
        compare_models(models, out=tmp_path / "a", watch=Interrupt())
    states = {run.name: run.state for run in list_runs(tmp_path / "a")}
    assert states == {"narrow": "finished", "tiny_ring_width_4": "stopped"}
    resumed = compare_models(models, out=tmp_path / "a", go_on=True)
    whole = compare_models(models, out=tmp_path / "b")
    for one, other in zip(resumed.runs, whole.runs, strict=True):
        assert one.scores == other.scores
        assert one.results is not None
        assert other.results is not None
        assert one.results["train"] == other.results["train"]


def test_only_what_was_asked_for_the_same_is_gone_on_with(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    first = compare_models(models, out=tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / PLAN).write_text("[not json")
    fewer = {"narrow": models["narrow"]}
    watch = Notes()
    second = compare_models(fewer, out=tmp_path, go_on=True, watch=watch)
    assert second.folder != first.folder
    assert "a new one begins" in watch.notes[0]


def test_a_folder_without_configuration_is_begun_anew(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    first = compare_models(models, out=tmp_path)
    (first.folder / "narrow" / "config.json").unlink()
    again = compare_models(models, out=tmp_path, go_on=True)
    assert again.folder == first.folder
    assert again.runs[0].scores == first.runs[0].scores


def test_a_model_that_diverges_does_not_stop_the_others(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    values = {**models["narrow"].to_json(), "lr": 1e30, "weight_decay": 1e30}
    asked = {"wild": TrainSettings.from_json(values), **models}
    compared = compare_models(asked, out=tmp_path)
    assert [run.name for run in compared.runs] == ["narrow", "tiny_ring_width_4"]
    assert list(compared.failed) == ["wild"]
    assert "became" in compared.failed["wild"]
    with pytest.raises(TrainingStoppedError, match="no model could be trained"):
        compare_models({"wild": asked["wild"]}, out=tmp_path)


def test_names_must_differ(models: dict[str, TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a name of its own"):
        compare_models({"a b": models["narrow"], "a_b": models["narrow"]}, out=tmp_path)
    assert not list(tmp_path.glob("compare*"))


def test_what_cannot_be_trained_is_told_before(tiny: ModuleType, models: dict[str, TrainSettings]) -> None:
    check_models(models, tiny.classified())
    wrong = {"a": TrainSettings.from_json({**models["narrow"].to_json(), "model_options": {"widht": 3}})}
    with pytest.raises(ValueError, match="unknown option 'widht'"):
        check_models(wrong, tiny.classified())
    with pytest.raises(ValueError, match="is for classification, and discs is to segment"):
        check_models(models, tiny.segmented())
    with pytest.raises(ValueError, match="nothing to test on"):
        check_models(models, tiny.classified(test=0))
    with pytest.raises(ValueError, match="has one class, 'dots'"):
        check_models(models, tiny.of_one_class())


def test_the_peak_is_of_what_happened_since() -> None:
    """On Linux; elsewhere it is that of the process."""
    before = peak_bytes()
    assert before is not None
    held = np.ones(30_000_000)
    grown = peak_bytes()
    assert grown is not None
    assert grown >= held.nbytes
    del held
    forget_peak()
    after = peak_bytes()
    assert after is not None
    if Path("/proc/self/clear_refs").exists():
        assert after < grown - 100e6
