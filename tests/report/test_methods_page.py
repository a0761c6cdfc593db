"""The page about all methods: every registered baseline is on it, marked where it is our reading."""

import pytest

from ringconv.models import list_models, model_entry
from ringconv.report.methods_page import MEASURED, METHODS, measure_steps, read_steps, write_methods_page


def test_every_method_is_on_the_page():
    described = {name for method in METHODS for name in method.models}
    of_baselines = {
        name
        for name in list_models()
        if getattr(model_entry(name).build, "func", model_entry(name).build).__module__.startswith("ringconv.baselines")
    }
    assert of_baselines <= described
    assert set(MEASURED) <= described
    assert described <= set(list_models())


def test_the_page_before_and_after_measuring(tmp_path):
    results = tmp_path / "results"
    page = write_methods_page(tmp_path / "methods.md", results).read_text()
    assert "Not measured yet" in page
    assert "Not run yet" in page
    assert page.count("our reading") >= 2
    assert "11,201,415" in page
    assert max(map(len, page.splitlines())) < 1000

    missing = measure_steps(results / "steps", ["rsdw_resnet34", "p4_resnet18", "e2_wrn16"], seconds=0, width=2)
    assert set(missing) <= {"e2_wrn16"}
    costs = read_steps(results / "steps")
    assert [cost.model for cost in costs if cost.model != "e2_wrn16"] == ["p4_resnet18", "rsdw_resnet34"]
    assert all(cost.milliseconds > 0 and cost.saved_megabytes > 0 for cost in costs)
    page = write_methods_page(tmp_path / "methods.md", results).read_text()
    assert "| `rsdw_resnet34` (our reading) |" in page


def test_the_speed_of_all_methods_is_beside_the_papers(tmp_path):
    lines = ["mode,peer,value,median_ms,rounds,cpu,threads,torch"]
    lines += [
        f"inference,{peer},3,{ms},2,A processor,2,2.13.0" for peer, ms in (("e2", 500), ("authors", ""), ("auto", 10))
    ]
    (tmp_path / "methods-20260101-000000.csv").write_text("an older run")
    (tmp_path / "methods-20260102-000000.csv").write_text("\n".join(lines) + "\n")
    page = write_methods_page(tmp_path / "methods.md", tmp_path / "methods").read_text()
    assert "| E(2)-Conv, C8 | 500 (50.0x) |" in page
    assert "| *the paper* | *39.8x* |" in page  # 10.981 / 0.276
    assert "| ours, auto | 10.0 |" in page
    assert "the median of at least 2 calls" in page
    assert "authors" not in page.split("Speed of one layer")[1].split("All on one budget")[0]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.title)
def test_every_method_says_what_it_keeps_and_loses(method):
    assert method.exactly
    assert method.approximately
    assert method.not_at_all
