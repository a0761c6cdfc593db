"""Runs from beginning to end, and runs that stop in between."""

import errno
import json
import math
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from safetensors.torch import load_file

from ringconv.models.checkpoint import load_model, read_info
from ringconv.training import (
    RunIsBusyError,
    TrainingInterruptedError,
    TrainingStoppedError,
    TrainSettings,
    Watch,
    check,
    list_runs,
    read_run,
    resume,
    runs,
    snapshots,
    train,
)
from ringconv.training.loop import Training
from ringconv.training.overhead import _Bare
from ringconv.training.runs import new_run

RING = TrainSettings(
    "tiny_ring", "tiny", epochs=2, batch_size=16, lr=0.05, log_every=1, checkpoint_every=1, final_test=False
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class StopAt(Watch):
    """Presses Ctrl-C after a step."""

    def __init__(self, step: int, times: int = 1) -> None:
        self.step, self.times = step, times

    def trained(self, moment) -> None:
        if moment.step == self.step:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


class TestFolder:
    def test_a_power_cut_leaves_no_finished_run_without_its_model(
        self, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        on_disk, named, fsync, rename = set(), [], os.fsync, os.replace

        def record_fsync(descriptor: int) -> None:
            fsync(descriptor)
            on_disk.add(os.fstat(descriptor).st_ino)

        def record_replace(source: Path, target: Path) -> None:
            assert os.stat(source).st_ino in on_disk, f"{target} gets its name before its content is on the disk"
            rename(source, target)
            named.append(Path(target).name)

        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(os, "replace", record_replace)
        train(RING, out=tmp_path, data=tiny.classified())
        assert {"config.json", "model.safetensors"} < set(named)
        assert named[-1] == "results.json", "what says that the run is finished comes last"

    def test_a_run_leaves_everything_that_is_known_about_it(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = replace(RING, final_test=True, rotated_every=1, rotated_images=6, epochs=3)
        run = train(settings, out=tmp_path, recipe="tab:x/y", data=tiny.classified(val=12))
        assert {path.name for path in run.folder.iterdir()} >= {
            "config.json", "environment.json", "metrics.jsonl", "per_angle.csv", "results.json", "model.safetensors",
            "picture.png", "tensorboard", "checkpoints",
        }  # fmt: skip
        assert run.state == "finished"
        assert run.settings == settings
        assert run.recipe == "tab:x/y"
        assert run.epochs_done == 3
        assert [line["epoch"] for line in run.log("validation")] == [1, 2, 3]
        assert {"accuracy_upright", "accuracy_rotated", "accuracy_std"} <= run.log("rotated")[0].keys()
        assert [len(line["0"]) for line in run.log("sigma")] == [2, 2, 2]
        assert list((run.folder / "tensorboard").iterdir())
        assert not list(run.folder.rglob("*.partial"))
        scores = run.results["evaluation"]["scores"]["accuracy"]
        assert len(scores["per_turn"]) == 36
        rows = (run.folder / "per_angle.csv").read_text().splitlines()
        assert rows[0] == "view,accuracy"
        assert len(rows) == 1 + 36 + 2
        assert float(rows[1].split(",")[1]) == pytest.approx(scores["upright"], abs=1e-4)

    def test_it_is_tested_with_what_is_to_lie_beyond_the_frame(self, tiny: ModuleType, tmp_path: Path) -> None:
        tested = {}
        for beyond in ("fill", "edge"):
            settings = replace(RING, epochs=1, final_test=True, beyond_frame=beyond)
            run = train(settings, out=tmp_path / beyond, data=tiny.classified())
            tested[beyond] = run.results["evaluation"]
            assert tested[beyond]["settings"]["turning"]["padding"] == beyond
        scores = [found["scores"]["accuracy"] for found in tested.values()]
        assert scores[0]["upright"] == scores[1]["upright"]

    def test_the_model_is_rebuilt_from_its_file(self, tiny: ModuleType, tmp_path: Path) -> None:
        data = tiny.classified()
        run = train(replace(RING, epochs=12, final_test=True), out=tmp_path, data=data)
        info = read_info(run.folder / "model.safetensors")
        model = load_model(run.folder / "model.safetensors")
        images, labels = data["test"].batch(range(18))
        correct = (model(data.normalise(images)).argmax(1) == labels).double().mean()
        assert info.class_names == tiny.CLASSES
        assert info.preprocessing.mean == data.mean
        assert 100 * float(correct) == pytest.approx(run.results["evaluation"]["scores"]["accuracy"]["upright"])
        assert correct > 0.6  # of three classes that are easy to tell apart

    def test_training_lowers_the_loss(self, tiny: ModuleType, tmp_path: Path) -> None:
        run = train(replace(RING, epochs=10), out=tmp_path, data=tiny.classified())
        losses = [line["loss"] for line in run.log("epoch")]
        assert losses[-1] < 0.5 * losses[0]

    def test_runs_are_listed_and_other_files_are_not(self, tiny: ModuleType, tmp_path: Path) -> None:
        for name in ("first", "second"):
            train(replace(RING, epochs=1), out=tmp_path, name=name, data=tiny.classified())
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "config.json").write_text('{"model_type": "bert"}')
        assert {run.name for run in list_runs(tmp_path)} == {"first", "second"}
        assert list_runs(tmp_path / "nothing") == []

    def test_a_name_is_not_taken_twice(self, tiny: ModuleType, tmp_path: Path) -> None:
        train(replace(RING, epochs=1), out=tmp_path, name="same", data=tiny.classified())
        with pytest.raises(FileExistsError, match="another name, or resume"):
            train(replace(RING, epochs=1), out=tmp_path, name="same", data=tiny.classified())

    def test_runs_of_one_second_get_folders_of_their_own(self, tmp_path: Path) -> None:
        assert [runs.new_folder(tmp_path / "out", "a b").name for _ in range(3)] == ["a_b", "a_b-2", "a_b-3"]

    def test_a_folder_is_not_configured_while_another_process_does(self, tmp_path: Path) -> None:
        (tmp_path / "same").mkdir()
        with runs.locked(tmp_path / "same"), pytest.raises(RunIsBusyError):
            runs.new_run(tmp_path, RING, "same", None, {"parameters": 1})
        assert runs.new_run(tmp_path, RING, "same", None, {"parameters": 1}) == tmp_path / "same"

    def test_runs_of_others_can_be_looked_at(
        self, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = train(replace(RING, epochs=1), out=tmp_path, data=tiny.classified())
        (run.folder / "results.json").unlink()
        real = Path.open

        def read_only(path: Path, mode: str = "r", *args, **options):
            if set(mode) & set("wa+x"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, mode, *args, **options)

        monkeypatch.setattr(Path, "open", read_only)
        assert read_run(run.folder).state == "stopped"

    def test_a_folder_that_is_no_run_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"config\.json"):
            resume(tmp_path)


class TestTasks:
    def test_segmentation(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = TrainSettings(
            "tiny_map", "discs", epochs=15, batch_size=8, optimiser="adamw", lr=0.05, crop=12, rotation=180.0
        )
        run = train(settings, out=tmp_path, data=tiny.segmented())
        scores = run.results["evaluation"]["scores"]
        assert scores["dice"]["upright"] > 50  # all foreground would be 20, none 0
        assert (run.folder / "per_angle.csv").read_text().startswith("view,auc,iou,dice\n")
        assert read_info(run.folder / "model.safetensors").class_names == ("disc",)

    def test_volumes(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = TrainSettings("tiny_ring", "grains", epochs=2, batch_size=4, rotation=30.0, reflection=True)
        run = train(settings, out=tmp_path, data=tiny.volumes())
        assert len(run.results["evaluation"]["scores"]["accuracy"]["per_turn"]) == 36

    def test_without_test_images_it_is_said_that_nothing_is_tested(self, tiny: ModuleType, tmp_path: Path) -> None:
        told: list[str] = []

        class Notes(Watch):
            def note(self, text: str) -> None:
                told.append(text)

        data = tiny.classified(test=0)
        run = train(replace(RING, epochs=1, final_test=True), out=tmp_path, data=data, watch=Notes())
        assert run.results["evaluation"] is None
        assert told == ["tiny has no test images: the trained network will not be tested."]
        with pytest.raises(ValueError, match=r"rotated_every=5 needs test images, and tiny has train: leave it out"):
            check(replace(RING, rotated_every=5), data)

    def test_logged_widths_are_those_in_use(self, tiny: ModuleType) -> None:
        training = Training(Fabric(accelerator="cpu"), RING, tiny.classified())
        layer = training.network[0]
        with torch.no_grad():
            layer.log_sigma.fill_(20.0)
        assert training.ring_widths() == {"0": pytest.approx([layer.geometry.sigma_range[1]] * 2)}
        training.network[0] = tiny.GMRConv2d(1, 4, 3, sampling="binned", sigma="channel")
        expected = math.exp(training.network[0].geometry.initial_log_sigma)
        assert training.ring_widths() == {"0": pytest.approx([expected] * training.network[0].rings)}

    def test_the_bare_loop_minimises_the_same(self, tiny: ModuleType) -> None:
        settings = replace(RING, label_smoothing=0.3)
        training = Training(Fabric(accelerator="cpu"), settings, tiny.classified())
        logits, labels = torch.tensor([[3.0, 0.0, -1.0]]), torch.tensor([0])
        assert torch.equal(_Bare(training)._losses(logits, labels), training._losses(logits, labels))

    def test_one_step(self, tiny: ModuleType) -> None:
        assert 0 < check(RING, tiny.classified()) < 10

    @pytest.mark.parametrize(
        ("settings", "data", "message"),
        [
            (replace(RING, loss="bce+dice"), "classified", "is for masks"),
            (replace(RING, task="segment"), "classified", "is to classify"),
            (replace(RING, model="tiny_map"), "classified", "is for segmentation"),
            (replace(RING, model="tiny_map"), "volumes", "is for segmentation"),
            (replace(RING, keep="best"), "classified", "needs a validation split"),
            (replace(RING, crop=13), "classified", "at most the images' size"),
            (replace(RING, augmentation="release"), "volumes", "is for pictures"),
            (replace(RING, model="tiny_rnig"), "classified", "did you mean 'tiny_ring'"),
            (replace(RING, model="r3d_9"), "classified", "takes 3 dimensions"),
            (RING, "of_one_class", "alike has one class, 'dots'"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, tiny: ModuleType, settings: TrainSettings, data: str, message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            check(settings, getattr(tiny, data)())


class TestSameResult:
    """The weights do not depend on how the work is divided."""

    def test_from_the_same_seed(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = replace(RING, model_options={"dropout": 0.3}, augmentation="release", rotation=20.0)
        runs = [train(settings, out=tmp_path, name=name, data=tiny.classified()) for name in "ab"]
        other = train(replace(settings, seed=1), out=tmp_path, name="c", data=tiny.classified())
        assert equal(weights(runs[0].folder), weights(runs[1].folder))
        assert not equal(weights(runs[0].folder), weights(other.folder))

    def test_the_callers_random_numbers_are_left_alone(self, tiny: ModuleType, tmp_path: Path) -> None:
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        train(replace(RING, epochs=1), out=tmp_path, data=tiny.classified())
        assert torch.equal(torch.rand(3), expected)

    def test_with_workers(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = replace(RING, augmentation="release", rotation=20.0)
        alone = train(settings, out=tmp_path, name="alone", data=tiny.classified())
        helped = train(replace(settings, workers=2), out=tmp_path, name="helped", data=tiny.classified())
        assert equal(weights(alone.folder), weights(helped.folder))

    def test_in_parts(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = replace(RING, precision="64-true", model_options={"norm": "group"})
        whole = train(settings, out=tmp_path, name="whole", data=tiny.classified())
        parts = train(replace(settings, accumulate=3), out=tmp_path, name="parts", data=tiny.classified())
        for name, value in weights(whole.folder).items():
            torch.testing.assert_close(weights(parts.folder)[name], value)
        for one, other in zip(whole.log("train"), parts.log("train"), strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)

    def test_low_precision_is_close(self, tiny: ModuleType, tmp_path: Path) -> None:
        full = train(RING, out=tmp_path, name="full", data=tiny.classified())
        low = train(replace(RING, precision="bf16-mixed"), out=tmp_path, name="low", data=tiny.classified())
        first = [run.log("train")[0]["loss"] for run in (full, low)]
        # The first loss differs by rounding alone, in three layers.
        assert first[1] == pytest.approx(first[0], rel=3 * torch.finfo(torch.bfloat16).eps)
        assert weights(low.folder)["0.weight"].dtype == torch.float32


class TestGoingOn:
    FULL = replace(
        RING, model_options={"dropout": 0.3}, augmentation="release", rotation=20.0, ema=0.9, keep="best", epochs=3,
        checkpoint_every=2, warmup_epochs=1.0, clip_norm=1.0, final_test=True,
    )  # fmt: skip

    @pytest.mark.parametrize("step", [1, 4, 7, 12])
    def test_ctrl_c_saves_and_the_rest_is_the_same_bit_by_bit(
        self, tiny: ModuleType, tmp_path: Path, step: int
    ) -> None:
        data = tiny.classified(val=12)
        through = train(self.FULL, out=tmp_path, name="through", data=data)
        with pytest.raises(TrainingInterruptedError, match=rf"after step {step} of 12.*--resume"):
            train(self.FULL, out=tmp_path, name="halted", data=data, watch=StopAt(step))
        assert read_run(tmp_path / "halted").state == "stopped"
        halted = resume(tmp_path / "halted", data=data)
        assert equal(weights(through.folder), weights(halted.folder))
        assert _without_times(through.log()) == _without_times(halted.log())
        assert through.results["evaluation"]["scores"] == halted.results["evaluation"]["scores"]
        assert through.results["best_validation"] == halted.results["best_validation"]

    def test_adamw_and_16_bits_go_on_too(
        self, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def launch(settings: TrainSettings) -> Fabric:  # Fabric itself gives 16 bits to GPUs only
            return Fabric(accelerator="cpu", plugins=MixedPrecision("16-mixed", "cpu"))

        monkeypatch.setattr(sys.modules["ringconv.training.train"], "launch", launch)
        settings = replace(RING, optimiser="adamw", lr=1e-3, precision="16-mixed", channels_last=True)
        through = train(settings, out=tmp_path, name="through", data=tiny.classified())
        with pytest.raises(TrainingInterruptedError):
            train(settings, out=tmp_path, name="halted", data=tiny.classified(), watch=StopAt(3))
        assert equal(weights(through.folder), weights(resume(tmp_path / "halted", data=tiny.classified()).folder))

    def test_the_second_ctrl_c_stops_at_once(self, tiny: ModuleType, tmp_path: Path) -> None:
        with pytest.raises(TrainingInterruptedError, match=r"at once; to go on: .*--resume"):
            train(RING, out=tmp_path, data=tiny.classified(), watch=StopAt(3, times=2))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_finished_run_stays_as_it_is(self, tiny: ModuleType, tmp_path: Path) -> None:
        run = train(replace(RING, epochs=1), out=tmp_path, data=tiny.classified())
        before = (run.folder / "model.safetensors").stat().st_mtime_ns
        assert resume(run.folder).results == run.results
        assert (run.folder / "model.safetensors").stat().st_mtime_ns == before

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda tiny, data: tiny.classified(train=63), r"images was \{.*'train': 60\} and is \{.*'train': 63\}"),
            (
                lambda tiny, data: replace(data, classes=data.classes[::-1]),
                r"classes was \['dots', .* and is \['noise'",
            ),
            (lambda tiny, data: replace(data, mean=(0.5,)), r"mean was \[0\.\d+\] and is \[0\.5\]\. To go on, bring"),
        ],
    )
    def test_data_that_is_not_what_it_was_is_refused(
        self, tiny: ModuleType, tmp_path: Path, change, message: str
    ) -> None:
        data = tiny.classified()
        with pytest.raises(TrainingInterruptedError):
            train(RING, out=tmp_path, name="halted", data=data, watch=StopAt(1))
        with pytest.raises(ValueError, match=message):
            resume(tmp_path / "halted", data=change(tiny, data))

    def test_rounding_and_what_older_versions_did_not_write_down_are_no_change(
        self, tiny: ModuleType, tmp_path: Path
    ) -> None:
        data = tiny.classified()
        with pytest.raises(TrainingInterruptedError):
            train(RING, out=tmp_path, name="halted", data=data, watch=StopAt(1))
        config = json.loads((tmp_path / "halted" / "config.json").read_text())
        config["data"] = {"std": [data.std[0] * (1 + 1e-8)], "notes": ["of another version"]}
        (tmp_path / "halted" / "config.json").write_text(json.dumps(config))
        assert resume(tmp_path / "halted", data=data).state == "finished"

    def test_a_run_that_another_process_trains_is_refused(self, tiny: ModuleType, tmp_path: Path) -> None:
        class Impatient(Watch):
            def trained(self, moment) -> None:
                assert read_run(tmp_path / "busy").state == "running"
                resume(tmp_path / "busy", data=tiny.classified())

        with pytest.raises(RunIsBusyError, match="another process is training"):
            train(RING, out=tmp_path, name="busy", data=tiny.classified(), watch=Impatient())


class TestTrouble:
    def test_a_precision_that_the_device_does_not_have(self, tiny: ModuleType) -> None:
        with pytest.raises(ValueError, match=r"'16-mixed' does not work on this device \(cpu\); 'bf16-mixed' does"):
            check(replace(RING, precision="16-mixed", accelerator="cpu"), tiny.classified())

    def test_a_loss_that_is_not_a_number(
        self, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Broken(tiny.nn.Sequential):
            calls = 0

            def forward(self, x):
                Broken.calls += self.training
                return super().forward(x) * (math.nan if Broken.calls == 6 else 1.0)

        entry = replace(tiny.ENTRIES["tiny_ring"], build=lambda **options: Broken(tiny.tiny_ring(num_classes=3)))
        monkeypatch.setitem(tiny.registry._entries, "tiny_ring", replace(entry, build=_taking_all_options(entry.build)))
        with pytest.raises(TrainingStoppedError, match=r"became nan at step 5 .*intact: .*step-00000005") as stopped:
            train(RING, out=tmp_path, name="nan", data=tiny.classified())
        assert "lr" in str(stopped.value)
        snapshot = snapshots.load_snapshot(tmp_path / "nan" / "checkpoints")
        assert snapshot.step == 5
        assert all(torch.isfinite(value).all() for value in snapshot.network.values())

    def test_weights_that_are_not_numbers_are_not_kept(self, tiny: ModuleType, tmp_path: Path) -> None:
        settings = replace(RING, lr=1e30, weight_decay=1e20, log_every=100)
        with pytest.raises(TrainingStoppedError, match="became"):
            train(settings, out=tmp_path, name="nan", data=tiny.classified())
        for path in snapshots.snapshots(tmp_path / "nan" / "checkpoints"):
            assert all(torch.isfinite(value).all() for value in load_file(path / "network.safetensors").values())

    def test_a_full_disk(self, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        through = train(RING, out=tmp_path, name="through", data=tiny.classified())
        real, calls = snapshots.write_to_disk, []

        def full_after_some(path: Path, content: bytes) -> None:
            calls.append(path)
            if len(calls) > 6 and "step-" in str(path):
                path.write_bytes(content[:10])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            real(path, content)

        monkeypatch.setattr(snapshots, "write_to_disk", full_after_some)
        with pytest.raises(TrainingStoppedError, match=r"disk is full.*intact: .*step-00000003.*--resume"):
            train(RING, out=tmp_path, name="full", data=tiny.classified())
        assert [path.name for path in sorted((tmp_path / "full" / "checkpoints").iterdir())] == [
            "step-00000002", "step-00000003",
        ]  # fmt: skip
        monkeypatch.undo()
        monkeypatch.setitem(tiny.registry._entries, "tiny_ring", tiny.ENTRIES["tiny_ring"])
        assert equal(weights(through.folder), weights(resume(tmp_path / "full", data=tiny.classified()).folder))

    def test_a_damaged_checkpoint_falls_back_to_the_one_before(self, tiny: ModuleType, tmp_path: Path) -> None:
        through = train(RING, out=tmp_path, name="through", data=tiny.classified())
        with pytest.raises(TrainingInterruptedError):
            train(RING, out=tmp_path, name="hurt", data=tiny.classified(), watch=StopAt(5))
        last = snapshots.snapshots(tmp_path / "hurt" / "checkpoints")[-1]
        (last / "state.pt").write_bytes((last / "state.pt").read_bytes()[:100])
        with pytest.warns(UserWarning, match="step-00000005 cannot be read"):
            hurt = resume(tmp_path / "hurt", data=tiny.classified())
        assert equal(weights(through.folder), weights(hurt.folder))


def _taking_all_options(build):
    def tiny_broken(*, num_classes: int = 3, in_chans: int = 1, dimensions: int = 2):
        return build(num_classes=num_classes)

    return tiny_broken


def _without_times(lines: list[dict]) -> list[dict]:
    return [
        {key: value for key, value in line.items() if key not in ("images_per_second", "data_share")} for line in lines
    ]


def test_a_stop_while_the_last_epoch_is_tested_counts(tiny: ModuleType, tmp_path: Path) -> None:
    class StopInTheLastTest(Watch):
        epochs = 0

        def testing(self, stage: str, done: int, total: int) -> None:
            self.epochs += done == total
            if self.epochs == 2 and done == total:
                os.kill(os.getpid(), signal.SIGTERM)

    settings = replace(RING, rotated_every=1, rotated_images=6)
    with pytest.raises(TrainingInterruptedError, match=r"stopped after step (\d+) of \1; to go on"):
        train(settings, out=tmp_path, name="stopped", data=tiny.classified(), watch=StopInTheLastTest())
    assert read_run(tmp_path / "stopped").results is None
    resume(tmp_path / "stopped", data=tiny.classified())
    train(settings, out=tmp_path, name="whole", data=tiny.classified())
    assert equal(weights(tmp_path / "stopped"), weights(tmp_path / "whole"))


def test_an_accelerator_that_is_not_there(tiny: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="accelerator 'tpu' cannot be used here"):
        train(replace(RING, accelerator="tpu"), out=tmp_path, data=tiny.classified())


def test_kernels_of_more_axes_than_maps_train_in_channels_last(tiny: ModuleType, tmp_path: Path) -> None:
    options = {"width": 8, "stem_pool": False}
    settings = replace(RING, model="p4_resnet18", model_options=options, channels_last=True, epochs=1)
    assert train(settings, out=tmp_path, data=tiny.classified()).state == "finished"


def test_configurations_without_a_format_mean_the_papers_rings(tmp_path: Path) -> None:
    """They were written while that was the default."""
    settings = TrainSettings("gmr_resnet18", "textures", model_options={"width": 2})
    folder = new_run(tmp_path, settings, "run", None, {"parameters": 1})
    assert read_run(folder).settings == settings
    config = json.loads((folder / "config.json").read_text())
    del config["format"]
    (folder / "config.json").write_text(json.dumps(config))
    assert read_run(folder).settings.model_options == {"width": 2, "preset": "paper"}
    config["settings"]["model"] = "resnet18"
    (folder / "config.json").write_text(json.dumps(config))
    assert read_run(folder).settings.model_options == {"width": 2}


def test_settings_are_in_the_configuration(tiny: ModuleType, tmp_path: Path) -> None:
    run = train(replace(RING, epochs=1), out=tmp_path, data=tiny.classified())
    config = json.loads((run.folder / "config.json").read_text())
    assert config["data"]["images"] == {"train": 60, "test": 18}
    assert config["parameters"] == run.parameters == sum(p.numel() for p in tiny.tiny_ring().parameters())


def test_a_log_that_a_power_cut_has_shortened_is_gone_on_with(tiny: ModuleType, tmp_path: Path) -> None:
    data = tiny.classified()
    with pytest.raises(TrainingInterruptedError):
        train(RING, out=tmp_path, name="cut", data=data, watch=StopAt(5))
    log = tmp_path / "cut" / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:-2], bytes(9), b"\n", lines[-1][:-20]]))
    run = resume(tmp_path / "cut", data=data)
    assert run.state == "finished"
    assert run.epochs_done == RING.epochs
    assert log.read_bytes().startswith(b"".join(lines[:-2]))


def test_masks_of_other_numbers_are_refused_before_training(tiny: ModuleType, tmp_path: Path) -> None:
    data = tiny.segmented()
    bright = {name: replace(split, targets=255 * np.asarray(split.targets)) for name, split in data.splits.items()}
    with pytest.raises(ValueError, match=r"discs, train: masks must hold class numbers below 2.* got 255 in row 0"):
        train(replace(RING, model="tiny_map"), out=tmp_path, data=replace(data, splits=bright))
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("settings", [{"model": "resnet18", "data": "textures", "of_a_newer_version": 1}, 1])
def test_a_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, settings: object) -> None:
    for name in ("good", "newer"):
        new_run(tmp_path, TrainSettings("gmr_resnet18", "textures"), name, None, {"parameters": 1})
    path = tmp_path / "newer" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": settings}))
    with pytest.warns(UserWarning, match=r"left out: .*newer.config\.json cannot be read"):
        assert [run.name for run in list_runs(tmp_path)] == ["good"]


def test_the_memory_of_a_run_is_that_of_all_its_processes(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = sys.modules["ringconv.training.loop"]
    monkeypatch.setattr(loop, "peak_bytes", lambda: 10**12)
    with pytest.raises(TrainingInterruptedError):
        train(RING, out=tmp_path, name="halted", data=tiny.classified(), watch=StopAt(3))
    monkeypatch.setattr(loop, "peak_bytes", lambda: 10**9)
    assert resume(tmp_path / "halted", data=tiny.classified()).cost("peak_memory_bytes") == 10**12
