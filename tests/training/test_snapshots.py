import errno
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ringconv._extras import MissingExtraError
from ringconv.training import snapshots
from ringconv.training.logs import Log, read_log
from ringconv.training.snapshots import Snapshot, load_snapshot, save_snapshot


def snapshot(step: int) -> Snapshot:
    shared = torch.full((2, 3), float(step))
    state = {"optimiser": {"state": {0: {"momentum": torch.ones(2)}}}, "best": None, "means": (0.5, 1.0)}
    return Snapshot(step, {"a": shared, "b": shared, "c": torch.arange(6.0).view(2, 3).T}, state)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_snapshot(tmp_path / "new", snapshot(7))
    loaded = load_snapshot(tmp_path / "new")
    assert loaded.step == 7
    assert all(torch.equal(loaded.network[name], value) for name, value in snapshot(7).network.items())
    assert torch.equal(loaded.state["optimiser"]["state"][0]["momentum"], torch.ones(2))
    assert loaded.state["means"] == (0.5, 1.0)


def test_the_last_two_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    (tmp_path / ".step-00000001.partial").mkdir()
    for step in (1, 2, 10, 9):
        save_snapshot(tmp_path, snapshot(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000009", "step-00000010"]
    save_snapshot(tmp_path, snapshot(10))  # again, after going back
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000009", "step-00000010"]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert load_snapshot(tmp_path / "nothing") is None
    (tmp_path / ".step-00000001.partial").mkdir()
    (tmp_path / "step-abc").mkdir()
    assert load_snapshot(tmp_path) is None


def test_damaged_ones_are_passed_over_or_refused(tmp_path: Path) -> None:
    for step in (1, 2):
        save_snapshot(tmp_path, snapshot(step))
    (tmp_path / "step-00000002" / "network.safetensors").write_bytes(b"{")
    with pytest.warns(UserWarning, match="step-00000002 cannot be read"):
        assert load_snapshot(tmp_path).step == 1
    (tmp_path / "step-00000001" / "state.pt").unlink()
    with (
        pytest.warns(UserWarning, match="cannot be read"),
        pytest.raises(ValueError, match="none of the checkpoints"),
    ):
        load_snapshot(tmp_path)


def test_code_in_a_state_file_is_not_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    save_snapshot(tmp_path, snapshot(1))
    torch.save({"state": Harmful()}, tmp_path / "step-00000001" / "state.pt")
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(ValueError, match="none of"):
        load_snapshot(tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("when", [1, 2])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int) -> None:
    save_snapshot(tmp_path, snapshot(1))
    calls = []

    def full(path: Path, content: bytes) -> None:
        calls.append(path)
        path.write_bytes(content if len(calls) < when else content[:5])
        if len(calls) == when:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(snapshots, "write_to_disk", full)
    with pytest.raises(OSError, match="No space left"):
        save_snapshot(tmp_path, snapshot(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert load_snapshot(tmp_path).step == 1


class TestLog:
    def test_lines_and_lists(self, tmp_path: Path) -> None:
        log = Log(tmp_path)
        log.write("train", 1, 1, {"loss": 0.5})
        log.write("sigma", 2, 1, {"conv": [0.1, 0.2]})
        log.close()
        assert read_log(tmp_path, "train") == [{"kind": "train", "step": 1, "epoch": 1, "loss": 0.5}]
        assert [line["kind"] for line in read_log(tmp_path)] == ["train", "sigma"]

    def test_going_on_forgets_what_came_after_the_checkpoint(self, tmp_path: Path) -> None:
        log = Log(tmp_path)
        log.write("train", 1, 1, {"loss": 0.5})
        position = log.synced_position()
        log.write("train", 2, 1, {"loss": 0.4})
        log.close()
        again = Log(tmp_path, position, 1)
        again.write("train", 2, 1, {"loss": 0.3})
        again.close()
        assert [line["loss"] for line in read_log(tmp_path)] == [0.5, 0.3]

    def test_a_line_cut_short_is_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "metrics.jsonl").write_bytes(b'{"kind": "train", "step": 1}\n{"kind": "tr')
        assert read_log(tmp_path) == [{"kind": "train", "step": 1}]
        assert read_log(tmp_path / "nothing") == []

    def test_weights_and_biases_if_asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        logged = []

        class Run:
            def log(self, values: dict, step: int) -> None:
                logged.append((values, step))

            def finish(self) -> None:
                logged.append("finished")

        wandb = ModuleType("wandb")
        wandb.init = lambda **given: logged.append(given["project"]) or Run()
        monkeypatch.setitem(sys.modules, "wandb", wandb)
        log = Log(tmp_path, wandb="rings", config={"lr": 1})
        log.write("train", 3, 1, {"loss": 0.5})
        log.close()
        assert logged == ["rings", ({"train/loss": 0.5}, 3), "finished"]

    def test_weights_and_biases_that_is_not_installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "wandb", None)
        with pytest.raises(MissingExtraError, match=r"ringconv\[wandb\]"):
            Log(tmp_path, wandb="rings")
