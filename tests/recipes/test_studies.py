"""Studies: their runs are trained once, kept as small files, and made into a page."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from ringconv.commands._terminal import UsageError
from ringconv.commands.results import results
from ringconv.models import create_model
from ringconv.recipes.evidence import all_evidence, read_evidence, run_trial
from ringconv.recipes.studies import STUDIES, get_study, planned_runs
from ringconv.recipes.study import Study, Trial
from ringconv.report import results_page
from ringconv.training import TrainSettings

ROOT = Path(__file__).parents[2]
TINY = TrainSettings("gmr_resnet18", "small", model_options={"width": 4}, epochs=1, batch_size=8)


def study_of(*trials, split="test"):
    return Study("small-study", "A small study", "small", "What it asks.", trials, split)


@pytest.fixture
def folders(tmp_path):
    random = np.random.default_rng(0)
    arrays = {
        f"{split}_{what}": values
        for split, count in (("train", 20), ("test", 4))
        for what, values in (
            ("images", random.integers(0, 256, (count, 16, 16, 3), np.uint8)),
            ("labels", np.arange(count)[:, None] % 2),
        )
    }
    np.savez(tmp_path / "small.npz", **arrays)
    return {"data": tmp_path, "runs": tmp_path / "runs", "results": tmp_path / "kept"}


def test_a_run_is_kept_and_not_trained_again(folders, monkeypatch):
    trial = Trial("rings", "Rings", TINY)
    study = study_of(trial)
    found = run_trial(study, trial, 1, **folders)
    assert found.seed == 1
    assert (found.split, found.images, found.epochs) == ("test", 4, 1)
    assert len(found.scores["accuracy"]["per_turn"]) == 36
    path = folders["results"] / "small-study" / found.file_name
    assert read_evidence(path) == found
    assert path.stat().st_size < 10_000
    assert str(folders["data"]) not in path.read_text()  # no paths of this machine
    monkeypatch.setattr("ringconv.training.compare_runs.train", lambda *args, **options: pytest.fail("trained again"))
    assert run_trial(study, trial, 1, **folders) == found


def test_a_run_whose_file_is_lost_is_not_trained_again(folders, monkeypatch):
    trial = Trial("rings", "Rings", TINY)
    found = run_trial(study_of(trial), trial, 0, **folders)
    (folders["results"] / "small-study" / found.file_name).unlink()
    monkeypatch.setattr("ringconv.training.compare_runs.train", lambda *args, **options: pytest.fail("trained again"))
    assert run_trial(study_of(trial), trial, 0, **folders) == found


def test_other_settings_are_refused(folders):
    trial = Trial("rings", "Rings", TINY)
    run_trial(study_of(trial), trial, 0, **folders)
    changed = replace(trial, settings=replace(TINY, epochs=2))
    with pytest.raises(ValueError, match=r"is of other settings \(epochs=1\)"):
        run_trial(study_of(changed), changed, 0, **folders)


def test_what_makes_no_other_training_may_differ(folders):
    trial = Trial("rings", "Rings", TINY)
    found = run_trial(study_of(trial), trial, 0, **folders)
    changed = replace(trial, settings=replace(TINY, validate_every=5, workers=1))
    assert run_trial(study_of(changed), changed, 0, **folders) == found


def test_a_run_of_other_settings_is_refused_before_it_goes_on(folders, monkeypatch):
    trial = Trial("rings", "Rings", TINY)
    found = run_trial(study_of(trial), trial, 0, **folders)
    (folders["results"] / "small-study" / found.file_name).unlink()
    (folders["runs"] / "small-study-rings-seed0" / "results.json").unlink()
    monkeypatch.setattr("ringconv.recipes.evidence.train_in", lambda *args: pytest.fail("trained first"))
    changed = replace(trial, settings=replace(TINY, epochs=2))
    with pytest.raises(ValueError, match=r"small-study-rings-seed0 is of other settings \(epochs=1\)"):
        run_trial(study_of(changed), changed, 0, **folders)


def test_a_file_of_other_data_is_refused(folders):
    trial = Trial("rings", "Rings", TINY)
    run_trial(study_of(trial), trial, 0, **folders)
    moved = replace(trial, settings=replace(TINY, data="other"))
    with pytest.raises(ValueError, match=r"is of other settings \(data='small'\)"):
        run_trial(replace(study_of(moved), data="other"), moved, 0, **folders)


@pytest.mark.parametrize("split", ["test", "val"])
def test_a_stopped_run_goes_on_where_the_data_was_moved_to(folders, tmp_path, split):
    settings = replace(TINY, validation=0.2, final_test=split == "test")
    trial = Trial("rings", "Rings", settings)
    study = study_of(trial, split=split)
    found = run_trial(study, trial, 0, **folders)
    (folders["results"] / "small-study" / found.file_name).unlink()
    (folders["runs"] / "small-study-rings-seed0" / "results.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "small.npz").rename(tmp_path / "elsewhere" / "small.npz")
    again = run_trial(study, trial, 0, **{**folders, "data": tmp_path / "elsewhere"})
    assert again.scores == found.scores


def test_data_without_what_is_tested_is_refused_before_training(folders, tmp_path):
    with np.load(tmp_path / "small.npz") as arrays:
        np.savez(tmp_path / "small.npz", **{name: arrays[name] for name in arrays if name.startswith("train")})
    trial = Trial("rings", "Rings", TINY)
    with pytest.raises(ValueError, match=r"small\.npz has no test images; its splits are train"):
        run_trial(study_of(trial), trial, 0, **folders)
    assert not folders["runs"].exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rings-seed0.json", '{"study": ', r"rings-seed0\.json is not what a run of a study leaves"),
        ("rings-seed0.json", "[]", r"rings-seed0\.json is not what a run of a study leaves"),
        ("rings-seed0.json", '{"study": "small-study"}', r"rings-seed0\.json is not what a run of a study leaves"),
        ("rings-seed1.json", None, r"rings-seed1\.json holds what belongs into rings-seed0\.json"),
        ("rings-seed0.json", {"split": "val"}, r"rings-seed0\.json is of small-study, on val images"),
        ("rings-seed0.json", {"settings": {"model": "gmr_resnet18", "data": "small"}}, "of other settings"),
        (
            "rings-seed0.json",
            {"settings": {"modle": "gmr_resnet18"}},
            "has settings that are not known",
        ),
    ],
)
def test_a_file_that_is_not_of_its_row_is_not_published(folders, name, text, message):
    trial = Trial("rings", "Rings", TINY)
    study = study_of(trial)
    found = run_trial(study, trial, 0, **folders)
    folder = folders["results"] / "small-study"
    whole = (folder / found.file_name).read_text()
    if isinstance(text, dict):
        text = json.dumps({**json.loads(whole), **text})
    (folder / name).write_text(whole if text is None else text)
    with pytest.raises(ValueError, match=message):
        all_evidence(folders["results"], study)


def test_a_row_that_cannot_go_on_does_not_stop_the_others(folders, tmp_path, monkeypatch, capsys):
    diverging = Trial("diverging", "Too fast", replace(TINY, lr=1e30))
    study = study_of(diverging, Trial("rings", "Rings", TINY))
    for module in ("ringconv.recipes.studies", "ringconv.commands.results", "ringconv.report.results_page"):
        monkeypatch.setattr(f"{module}.STUDIES", {study.name: study})
    with pytest.raises(UsageError, match=r"without a result: diverging, seed 0"):
        results(
            study.name,
            data=folders["data"],
            runs=folders["runs"],
            kept=folders["results"],
            page=tmp_path / "results.md",
        )
    printed = capsys.readouterr().out
    assert "diverging, seed 0: the loss became" in printed
    assert "rings, seed 0: accuracy" in printed
    assert "| Rings |" in (tmp_path / "results.md").read_text()


def test_no_page_is_written_of_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        results_page.write_results_page(tmp_path / "results.md", tmp_path / "nowhere")


def test_a_choice_is_made_without_the_test_images(folders):
    trial = Trial("rings", "Rings", replace(TINY, validation=0.2, final_test=False))
    found = run_trial(study_of(trial, split="val"), trial, 0, **folders)
    assert (found.split, found.images) == ("val", 4)
    assert {"upright", "rotated_mean", "rotated_std"} <= set(found.scores["accuracy"])


def test_missing_data_is_named(folders):
    trial = Trial("rings", "Rings", TINY)
    with pytest.raises(FileNotFoundError, match=r"must hold other\.npz"):
        run_trial(replace(study_of(trial), data="other"), trial, 0, **folders)


def test_the_page_has_means_errors_and_the_papers_figures(folders, tmp_path, monkeypatch):
    trial = Trial("rings", "Rings", TINY, (0, 1), {"upright": "97.2", "rotated": "97.1"})
    later = Trial("later", "Run later", TINY)
    study = study_of(trial, later)
    kept = [run_trial(study, trial, seed, **folders) for seed in (0, 1)]
    # Known figures instead of those of a network that learnt nothing.
    for found, upright in zip(kept, (80.0, 90.0), strict=True):
        scores = {"accuracy": {**found.scores["accuracy"], "upright": upright}}
        path = folders["results"] / "small-study" / found.file_name
        path.write_text(json.dumps({**json.loads(path.read_text()), "scores": scores}))
    monkeypatch.setattr(results_page, "STUDIES", {study.name: study})
    page = results_page.write_results_page(tmp_path / "docs" / "results.md", folders["results"]).read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    ours, papers = rows[2], rows[3]
    assert ours[0] == "Rings"
    assert ours[2] == "85.0 ± 5.0"
    assert ours[6] == "2"
    assert papers[0] == "*the paper*"
    assert papers[2:4] == ["*97.2*", "*97.1*"]
    assert "Not run yet: Run later." in page


def test_gains_are_taken_seed_by_seed_and_large_pages_are_marked(folders, tmp_path, monkeypatch):
    rotated = {"first": {0: 80.0, 1: 90.0, 2: 50.0}, "better": {0: 83.0, 1: 92.0}, "alone": {}}
    trials = [Trial(name, name.title(), TINY, (0, 1, 2)) for name in rotated]
    study = replace(study_of(*trials), against="first")
    found = run_trial(study, trials[0], 0, **folders)
    for name, by_seed in rotated.items():
        for seed, value in by_seed.items():
            one = replace(
                found,
                trial=name,
                seed=seed,
                settings=trials[0].seeded(seed).to_json(),
                scores={"accuracy": {**found.scores["accuracy"], "rotated_mean": value}},
                train_score={"loss": 0.25},
                peak_bytes=(500 + seed) * 10**6,
                large_pages=name == "better",
            )
            (folders["results"] / "small-study" / one.file_name).write_text(json.dumps(asdict(one)))
    monkeypatch.setattr(results_page, "STUDIES", {study.name: study})
    page = results_page.write_results_page(tmp_path / "results.md", folders["results"]).read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    first, better = (dict(zip(rows[0], row, strict=True)) for row in rows[2:4])
    assert (first["gain rotated"], better["gain rotated"]) == ("", "+2.5 ± 0.5")
    assert better["training loss"] == "0.250"
    assert (first["peak MB"], better["peak MB"]) == ("502", "501†")
    assert "†" not in first["minutes"]
    assert better["minutes"].endswith("†")
    assert "Gains are over: First." in page


def test_rows_are_compared_with_one_that_there_is():
    with pytest.raises(ValueError, match=r"compares its rows with one of \['rings'\], got 'none'"):
        replace(study_of(Trial("rings", "Rings", TINY)), against="none")


def test_the_page_has_columns_for_every_metric_of_masks(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    arrays = {
        f"{split}_{what}": random.integers(0, top, (count, 16, 16), np.uint8)
        for split, count in (("train", 4), ("test", 2))
        for what, top in (("images", 256), ("masks", 2))
    }
    np.savez(tmp_path / "small.npz", **arrays)
    settings = TrainSettings("gmr_unet", "small", model_options={"width": 2}, epochs=1, batch_size=2)
    trial = Trial("rings", "Rings", settings, paper={"dice": "79.8", "iou_rotated": "65.7"})
    study = study_of(trial)
    found = run_trial(study, trial, 0, data=tmp_path, runs=tmp_path / "runs", results=tmp_path / "kept")
    assert results_page.scores_in_a_line(found).startswith("dice ")
    monkeypatch.setattr(results_page, "STUDIES", {study.name: study})
    page = results_page.write_results_page(tmp_path / "results.md", tmp_path / "kept").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    papers = dict(zip(rows[0], rows[3], strict=True))
    assert (papers["dice upright"], papers["dice std"], papers["iou rotated"]) == ("*79.8*", "", "*65.7*")


def test_rows_have_different_names():
    with pytest.raises(ValueError, match="different names"):
        study_of(Trial("same", "One", TINY), Trial("same", "Other", TINY))


def test_what_does_not_exist_is_named():
    with pytest.raises(ValueError, match="study must be one of nwpu10"):
        get_study("nwpu11")
    with pytest.raises(ValueError, match=r"rows of nwpu10 are .*; got resnet19"):
        planned_runs(get_study("nwpu10"), ["resnet19"])
    with pytest.raises(ValueError, match=r"seeds of these rows are 0, 1, 2; got 7"):
        planned_runs(get_study("nuclei"), seeds=[7])
    with pytest.raises(ValueError, match="got 0, 7"):  # not only the ones that there are
        planned_runs(get_study("nuclei"), seeds=[0, 7])


@pytest.mark.parametrize(
    "trial", [pytest.param(trial, id=f"{name}-{trial.name}") for name in STUDIES for trial in STUDIES[name].trials]
)
def test_every_network_of_a_study_can_be_built(trial):
    if trial.settings.model.startswith("e2_"):
        pytest.importorskip("escnn")
    create_model(trial.settings.model, **trial.settings.model_options)


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_the_kept_files_belong_to_the_rows(study):
    """Whoever changes a row runs it again."""
    all_evidence(ROOT / "benchmarks" / "results" / "studies", study)  # raises


def test_networks_on_nwpu_have_equal_stems():
    for trial in get_study("nwpu10").trials:
        if not trial.settings.model.startswith("e2_"):  # which needs escnn
            network = create_model(trial.settings.model, **trial.settings.model_options)
            assert tuple(network.stem.conv.kernel_size) == (5, 5), trial.name


def test_the_page_is_that_of_the_kept_files(tmp_path):
    page = results_page.write_results_page(tmp_path / "results.md", ROOT / "benchmarks" / "results" / "studies")
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text(), "write it anew: ringconv results"


def test_the_readme_s_first_table_is_of_the_page():
    rows = [line for line in (ROOT / "README.md").read_text().split("\n## ")[1].splitlines() if line[:1] == "|"]
    page = (ROOT / "docs" / "results.md").read_text()
    rows = [row.removesuffix("|") for row in rows if any(map(str.isdigit, row))]
    assert len(rows) > 3
    for row in rows:  # some begin with the name of the data
        assert row in page or row.split("|", 2)[2] in page


def test_the_figures_of_what_to_take_are_of_the_page():
    section = (ROOT / "docs" / "options.md").read_text().split("## Which to take")[1].split("\n## ")[0]
    rows = [line.split("|", 2)[2] for line in section.splitlines() if line[:1] == "|"]
    page = (ROOT / "docs" / "results.md").read_text()
    assert len(rows) > 4
    for figures in rows:
        assert figures in page or not any(map(str.isdigit, figures))
