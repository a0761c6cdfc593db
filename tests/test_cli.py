"""The command line, from the arguments to the exit status."""

import json
import signal
import subprocess
import sys

import pytest

from ringconv import __version__, cli, training
from ringconv._extras import MissingExtraError, needs
from ringconv.commands._terminal import progress_bars

TINY = ["compare", "--epochs", "1", "--train-patches", "10", "--test-patches", "2"]


def test_compare_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*TINY, "--seed", "5", "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("compare-")
    files = ["accuracy.csv", "accuracy.png", "report.html", "results.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    results = json.loads((folder / "results.json").read_text())
    assert results["settings"] == {"epochs": 1, "seed": 5, "train_patches": 10, "test_patches": 2}

    out, err = capsys.readouterr()
    assert err == ""
    *lines, place, last = out.splitlines()
    assert place == f"Picture and figures: {folder}"
    assert last == f"Report: {folder / 'report.html'}"
    assert max(map(len, lines)) <= 80
    for kind, figures in results["models"].items():
        (row,) = [line for line in lines if line.startswith(f"│ {kind} ")]
        assert f"{figures['parameters']:,}" in row
        assert f"{figures['rotated_mean']:.1f}" in row
    assert "Compared with the plain network" in out
    assert "\x1b" not in out, "no colours where nobody is watching"
    assert "train ring" not in out, "nor bars"


def test_progress_is_shown_on_a_terminal(monkeypatch):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with progress_bars(console) as progress:
        progress("train plain", 1, 2)
        progress("train plain", 2, 2)
        progress("test both", 1, 4)
    shown = console.file.getvalue()
    assert "train plain" in shown
    assert "100%" in shown
    assert "25%" in shown


def test_ctrl_c_stops_with_a_message_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    compare = training.compare

    def interrupted(settings, progress):
        def stop_at_the_third_step(stage, done, total):
            progress(stage, done, total)
            if stage == "test both" and done == 3:
                signal.raise_signal(signal.SIGINT)

        return compare(settings, stop_at_the_third_step)

    monkeypatch.setattr(training, "compare", interrupted)
    assert cli.main([*TINY, "--out", str(tmp_path / "runs")]) == 130
    assert capsys.readouterr().err == "ringconv: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_equivariance_writes_its_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    assert cli.main(["equivariance", "--out", str(page), "--draws", "2"]) == 0
    assert page.read_text().startswith("# How equivariant")
    assert capsys.readouterr().out == f"Written: {page}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "epochs must be from 1 to 10,000, got 0"),
        (["--seed", "-1"], "seed must be from 0"),
        (["--test-patches", "5000"], "test_patches must be from 1 to 1,000, got 5,000"),
        (["--out", __file__], "test_cli.py is a file"),
    ],
)
def test_impossible_options_are_refused_before_training(options, message, monkeypatch, capsys):
    monkeypatch.setattr(training, "compare", lambda *args: pytest.fail("training began"))
    assert cli.main(["compare", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringconv: ")
    assert err.count("\n") == 1
    assert message in err


def test_misspelt_options_and_commands_are_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["compare", "--epoch", "3"])
    assert stopped.value.code == 2
    assert "--epochs" in capsys.readouterr().err
    assert cli.main(["compere"]) == 2
    message = capsys.readouterr().err
    assert "no command 'compere'; did you mean 'compare'? The commands are compare, train, " in message
    assert cli.main(["xyz"]) == 2
    assert "no command 'xyz'. The commands are compare, train, " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_overview_names_every_command(arguments, capsys):
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in cli.COMMANDS:
        assert any(line.startswith(f"  {name} ") for line in lines)


def test_help_of_a_command_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["compare", "--help"])
    assert not stopped.value.code
    out = capsys.readouterr().out
    for word in ("--epochs", "--seed", "--train-patches", "--test-patches", "--out", "photographs", "accuracy.png"):
        assert word in out


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ringconv {__version__}\n"


def test_the_package_runs_as_a_module_with_the_exit_status_of_the_command():
    module = [sys.executable, "-m", "ringconv"]
    assert subprocess.run([*module, "--version"], check=True, capture_output=True, text=True).stdout == (
        f"ringconv {__version__}\n"
    )
    refused = subprocess.run([*module, "comparee"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "did you mean 'compare'?" in refused.stderr


@pytest.mark.parametrize("package", ["tyro", "rich.console", "skimage"])
def test_a_missing_package_names_the_extra(package, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 1
    name = package.partition(".")[0]
    assert capsys.readouterr().err == (
        f"ringconv: {name} is not installed; it comes with: pip install 'ringconv[compare]'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "package_that_is_broken.py").write_text("import what_it_needs_and_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs") as raised:
        needs("package_that_is_broken", "compare")
    assert not isinstance(raised.value, MissingExtraError)


def test_importing_needs_torch_and_numpy_only():
    script = (
        "import sys, ringconv, ringconv.cli\n"
        "extras = {'matplotlib', 'rich', 'scipy', 'skimage', 'tyro'} & set(sys.modules)\n"
        "assert not extras, extras\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
