"""The report in a real browser, from the disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringconv.report.html import write_report
from ringconv.training import list_runs

SmallRuns = Callable[[str], Path]


@pytest.fixture(scope="module")
def address(small_runs: SmallRuns, tmp_path_factory: pytest.TempPathFactory) -> str:
    runs = [run for kind in ("pictures", "masks") for run in list_runs(small_runs(kind))]
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(runs, path, images=4).as_uri()


def background(page: Any) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_lines_can_be_switched_and_read_out(chromium: Any, visit: Any, address: str) -> None:
    with visit(chromium, address, viewport={"width": 1280, "height": 900}) as opened:
        page = opened.page
        chart = page.locator(".chart").first
        lines = chart.locator(".plot g.series")
        assert lines.count() == 2
        assert lines.nth(0).is_visible()
        chart.locator(".legend input").nth(0).uncheck()
        assert not lines.nth(0).is_visible()
        assert lines.nth(1).is_visible()
        chart.locator(".plot").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        shown = chart.locator(".readout").inner_text()
        assert shown.startswith("10°: gmr_resnet18 ")
        assert "resnet18 " not in shown.removeprefix("10°: gmr_resnet18 "), "what is switched off is not read out"
        chart.locator(".legend input").nth(0).check()
        chart.locator(".plot").hover()
        assert "°: resnet18 " in chart.locator(".readout").inner_text()
        assert opened.complaints == []
        assert opened.outside() == []


def test_images_turn_and_stop(chromium: Any, visit: Any, address: str) -> None:
    with visit(chromium, address, reduced_motion="reduce") as opened:
        page = opened.page
        turning = page.locator(".turning:has(.play)").last  # the masks, which always change a little
        assert turning.locator(".play").inner_text() == "Play", "nothing moves for those who asked for that"
        slider = turning.locator("input[type=range]")
        slider.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert turning.locator("output").inner_text() == "90°"
        row = turning.locator(".row").first
        assert row.locator(".said").inner_text() == row.locator(".cells i").nth(3).get_attribute("data-text")
        film = turning.locator(".film").first
        assert film.evaluate("film => getComputedStyle(film).backgroundPositionX") == "-480px"
        turning.locator(".play").click()
        # A script of ours cannot wait for it: the page's policy lets none in.
        turning.locator("output", has_not_text="90°").wait_for()
        assert opened.complaints == []


@pytest.mark.parametrize("width", [1280, 400])
def test_light_and_dark_fit_the_window(chromium: Any, visit: Any, address: str, width: int) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
        with visit(chromium, address, **options) as opened:
            page = opened.page
            colours[scheme] = background(page)
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, "tables scroll within themselves, the page does not"
            page.locator("#theme").click()
            assert background(page) != colours[scheme]
            page.emulate_media(media="print")
            assert background(page) == "rgb(255, 255, 255)"
            assert not page.locator("#theme").is_visible()
    assert colours["light"] != colours["dark"]


def test_it_can_be_read_without_scripts(chromium: Any, visit: Any, address: str) -> None:
    with visit(chromium, address, java_script_enabled=False) as opened:
        page = opened.page
        assert page.locator(".chart svg circle").first.is_visible()
        assert page.locator(".legend input").first.is_hidden()
        assert page.locator(".play").first.is_hidden()
        assert page.locator(".film").first.is_visible()
