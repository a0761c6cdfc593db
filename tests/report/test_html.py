"""The report: everything in one file, whatever the runs are, and nothing that is not text becomes markup."""

import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ringconv import cli
from ringconv.report.html import sections, write_report
from ringconv.report.html.markup import Markup, element, join
from ringconv.training import list_runs, read_run
from ringconv.training.runs import find_runs

SmallRuns = Callable[[str], Path]
HOSTILE = "<script>alert(1)</script>"
VOID = {"br", "img", "input", "meta"}


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing kernels takes most of the time: only where a test is about them."""
    if "kernels" not in request.node.name:
        monkeypatch.setattr(sections, "kernels", lambda networks, identity: None)


class Page(HTMLParser):
    """What a browser would see: elements that are closed in order, texts and attributes."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def count(self, tag: str, **wanted: str) -> int:
        return sum(name == tag and wanted.items() <= attributes.items() for name, attributes in self.tags)

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]


def report(folders: list[Path], path: Path, images: int = 6) -> Page:
    content = write_report(find_runs(folders), path, images=images).read_text("utf-8")
    assert len(content) < 3_000_000
    page = Page(content)
    assert_asks_nobody(page)
    return page


def assert_asks_nobody(page: Page) -> None:
    """Nothing in the page has an address but images that carry their content, and references within the page."""
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert (value or "").startswith(("#", "data:image/")), (tag, name, value)
            if name == "style":
                for address in re.findall(r"url\(([^)]*)\)", value or ""):
                    assert address.startswith("data:image/"), (tag, address[:40])
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert (policies[0] or "").startswith("default-src 'none'")


def test_pictures(small_runs: SmallRuns, tmp_path: Path) -> None:
    folder = small_runs("pictures")
    page = report([folder], tmp_path / "report.html")
    runs = list_runs(folder)
    for run in runs:
        scores = run.scores["accuracy"]
        for key, places in (("upright", 1), ("rotated_mean", 1), ("reflected_mean", 1), ("rotated_std", 2)):
            assert f"{scores[key]:.{places}f}" in page.text
        assert run.settings.model in page.text
        for angle in range(0, 360, 10):
            assert f"{run.settings.model}, {angle}°: {scores['per_turn'][str(angle)]:.2f}%" in page.text
    assert page.count("section") == 3  # the data, the environment, the command
    assert "ringconv train" in page.text
    assert "torch" in page.text
    assert len(page.with_class("chart")) == 1
    assert page.count("g", **{"class": "series s0"}) == page.count("g", **{"class": "series s1"}) == 1


def test_kernels_of_ring_networks_only(small_runs: SmallRuns, tmp_path: Path) -> None:
    page = report([small_runs("pictures")], tmp_path / "report.html", images=0)
    assert len(page.with_class("drawing")) == 1
    assert "Learned kernels" in page.text
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(identities)) == len(identities)
    assert any((identity or "").startswith("d0-kernels0-") for identity in identities)
    plain = report([small_runs("pictures") / "resnet18"], tmp_path / "plain.html", images=0)
    assert "Learned kernels" not in plain.text
    assert sections.kernels({}, "x") is None


def test_the_best_of_a_column_is_marked(small_runs: SmallRuns, tmp_path: Path) -> None:
    page = report([small_runs("pictures")], tmp_path / "report.html", images=0)
    best = page.with_class("best")
    # Parameters, memory, speed and time differ between any two networks.
    assert 3 <= len(best) <= 8
    alone = report([small_runs("pictures") / "gmr_resnet18"], tmp_path / "one.html", images=0)
    assert not alone.with_class("best"), "there is nothing to be better than"


def test_names_are_never_markup(small_runs: SmallRuns, tmp_path: Path) -> None:
    folder = tmp_path / "<b>runs</b> & 'more'"
    shutil.copytree(small_runs("pictures"), folder)
    page = report([folder], tmp_path / "report.html")
    assert page.count("script") == 1
    assert page.count("b", onclick="x") == 0
    assert HOSTILE in page.text
    content = (tmp_path / "report.html").read_text("utf-8")
    assert "alert(1)</script>" not in content
    assert "<b>runs" not in content


def test_masks_and_volumes(small_runs: SmallRuns, tmp_path: Path) -> None:
    masks = report([small_runs("masks")], tmp_path / "masks.html")
    for heading in ("Dice upright", "IoU rotated", "AUC std"):
        assert heading in masks.text
    assert len(masks.with_class("scores")) == 2, "the main metric with the costs, and the others"
    assert len(masks.with_class("chart")) == 3
    assert masks.with_class("film"), "each network's own"
    assert "best Dice minus worst" in masks.text
    volumes = report([small_runs("volumes")], tmp_path / "volumes.html")
    assert [f"turned about {axis}" in volumes.text for axis in "xyz"] == [True] * 3
    assert len(volumes.with_class("chart")) == 3
    assert "about the first axis" in volumes.text


def test_different_data_is_never_compared(small_runs: SmallRuns, tmp_path: Path) -> None:
    folders = [small_runs("pictures"), small_runs("masks")]
    page = report(folders, tmp_path / "report.html", images=2)
    assert page.count("section", id="d0") == page.count("section", id="d1") == 1
    assert "cannot be compared" in page.text
    for chart in page.with_class("chart"):
        assert chart["id"]
    lines = page.count("g", **{"class": "series s0"})
    assert lines == 1 + 3
    assert page.count("g", **{"class": "series s2"}) == 0, "two lines in each chart"


def test_what_is_missing_is_said(small_runs: SmallRuns, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(small_runs("pictures"), folder)
    plain, ring = list_runs(folder)
    (plain.folder / "model.safetensors").unlink()
    config = (ring.folder / "config.json").read_text("utf-8")
    (ring.folder / "config.json").write_text(config.replace("pictures.npz", "gone.npz"), "utf-8")
    page = report([folder], tmp_path / "report.html")
    assert "resnet18 cannot be shown at work" in page.text
    assert "gone.npz" in page.text
    assert "The test images cannot be shown" in page.text
    assert not page.with_class("film")
    assert f"{plain.scores['accuracy']['rotated_mean']:.1f}" in page.text


def test_data_that_changed_is_not_shown_as_if_it_had_not(small_runs: SmallRuns, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(small_runs("pictures"), folder)
    for run in list_runs(folder):
        config = (run.folder / "config.json").read_text("utf-8")
        (run.folder / "config.json").write_text(config.replace('"harbour"', '"port"'), "utf-8")
    assert "is not what it was" in report([folder], tmp_path / "report.html").text


def test_unfinished_runs_are_named_and_left_out(small_runs: SmallRuns, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    shutil.copytree(small_runs("pictures"), folder)
    (folder / "resnet18" / "results.json").unlink()
    page = report([folder], tmp_path / "report.html", images=0)
    assert "Without figures" in page.text
    assert "ringconv train --resume" in page.text
    assert page.count("g", **{"class": "series s0"}) == 1
    (folder / "gmr_resnet18" / "results.json").unlink()
    nothing = report([folder], tmp_path / "nothing.html")
    assert "No finished run" in nothing.text


def test_ten_runs(small_runs: SmallRuns, tmp_path: Path) -> None:
    for number in range(5):
        shutil.copytree(small_runs("pictures"), tmp_path / "many" / str(number))
    page = report([tmp_path / "many"], tmp_path / "report.html", images=1)
    assert (
        len({attributes["data-label"] for tag, attributes in page.tags if tag == "g" and "data-label" in attributes})
        == 10
    )


def test_the_command(small_runs: SmallRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(small_runs("pictures"), folder)
    assert cli.main(["report", str(folder), "--images", "0", "--title", "Ships & harbours"]) == 0
    assert capsys.readouterr().out == f"Report: {folder / 'report.html'}\n"
    assert "Ships & harbours" in Page((folder / "report.html").read_text("utf-8")).text
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", str(tmp_path / "empty")]) == 2
    assert "there are no runs in" in capsys.readouterr().err


def test_runs_are_found_once_and_in_order(small_runs: SmallRuns) -> None:
    folder = small_runs("pictures")
    runs = find_runs([folder / "gmr_resnet18", folder])
    assert [run.name for run in runs] == ["gmr_resnet18", "resnet18"]
    assert read_run(folder / "resnet18").data["name"] == "pictures"


def test_markup() -> None:
    assert element("p", "a < b & c", element("b", '"x"'), None, ["d", Markup("<br>")]) == (
        "<p>a &lt; b &amp; c<b>&quot;x&quot;</b>d<br></p>"
    )
    assert element("input", type="checkbox", checked=True, disabled=False, title=None, data_x='a"b', class_="c") == (
        '<input type="checkbox" checked data-x="a&quot;b" class="c">'
    )
    assert join(None) == ""
