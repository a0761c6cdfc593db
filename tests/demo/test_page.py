"""The page in a real browser, served as users serve it."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ringconv import cli
from ringconv.demo.app import _choice
from ringconv.demo.networks import bundled_networks
from ringconv.demo.pictures import LARGEST_FILE

COMMAND = [sys.executable, "-c", "import sys; from ringconv.cli import main; sys.exit(main())", "demo"]
SCREENSHOTS = os.environ.get("RINGCONV_SCREENSHOTS")
"""Folder to put a look at the page into; by default none is taken."""


@dataclass
class Server:
    process: subprocess.Popen
    address: str
    home: Path
    """All that it could write to: its home, its working folder and its temporary folder."""

    @property
    def host(self):
        return urlsplit(self.address).netloc


def _start(home, *options):
    for folder in ("work", "temporary"):
        (home / folder).mkdir()
    env = os.environ | {"HOME": str(home), "TMPDIR": str(home / "temporary"), "HTTP_PROXY": "http://127.0.0.1:9"}
    process = subprocess.Popen(
        [*COMMAND, *options], cwd=home / "work", env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = []
    for line in process.stdout:
        said.append(line)
        found = re.search(r"http://[0-9.:]+/?", line)
        if found:
            return Server(process, found[0], home)
    pytest.fail(f"the server ended with {process.wait()}: {''.join(said)}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests. In the end Ctrl-C stops it, and it leaves no file anywhere."""
    if importlib.util.find_spec("gradio") is None:
        pytest.skip("gradio is not installed: pip install 'ringconv[demo]'")
    started = _start(tmp_path_factory.mktemp("server"))
    yield started
    started.process.send_signal(signal.SIGINT)
    said, _ = started.process.communicate(timeout=60)
    assert (started.process.returncode, said) == (0, "Ended.\n")
    assert [path for path in started.home.rglob("*") if path.is_file()] == []


@pytest.fixture
def page(server, chromium, visit):
    with visit(chromium, server.address, viewport={"width": 1280, "height": 900}) as opened:
        opened.page.get_by_text("as upright").first.wait_for()
        yield opened.page
        assert opened.complaints == []
        assert opened.outside(server.host) == [], "requests to other hosts"


def _look(page, name):
    if SCREENSHOTS:
        page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=True)


def _turn(page, tab, degrees):
    """Move the slider as a hand does, and wait for the picture."""
    number = tab.locator(".rc-angle input[type=number]")
    number.fill(str(degrees))
    number.press("Tab")
    tab.get_by_text(f"turned by {degrees}°").wait_for()


def test_turning_mirroring_and_choosing(page):
    tab = page.get_by_role("tabpanel").filter(visible=True)
    cards = tab.locator(".rc-card")
    assert cards.count() == 2
    assert tab.get_by_text("differ from upright by 0%").count() == 2, "nothing is turned yet"
    _look(page, "classify-upright")

    _turn(page, tab, 90)
    ring = cards.nth(1)
    assert "differ from upright by 0%" in ring.inner_text()
    assert "0.00 now" in ring.inner_text()
    assert "differ from upright by 0%" not in cards.nth(0).inner_text()
    _turn(page, tab, 37)
    _look(page, "classify-turned")

    tab.locator(".rc-mirror").get_by_role("checkbox").check()
    tab.get_by_text("turned by 37°, mirrored").wait_for()

    layer = tab.get_by_label("Layer of the feature maps").first
    before = cards.nth(0).locator("img").first.get_attribute("src")
    layer.click()
    page.get_by_role("option").first.click()
    page.wait_for_function(
        "([card, before]) => card.querySelector('img').src !== before", arg=[cards.nth(0).element_handle(), before]
    )

    tab.get_by_label("Network").first.click()
    page.get_by_role("option", name="ring network").click()
    cards.nth(0).get_by_role("heading", name="ring network").wait_for()

    tab.locator(".rc-examples button, .rc-examples [role=button]").nth(3).click()
    tab.get_by_text("grass, as upright").first.wait_for()


def test_it_turns_by_itself(page):
    tab = page.get_by_role("tabpanel").filter(visible=True)
    tab.get_by_role("button", name="Play").click()
    for _ in range(3):
        shown = tab.locator(".rc-shown figcaption").inner_text()
        page.wait_for_function(
            "before => document.querySelector('.rc-shown figcaption').innerText !== before", arg=shown
        )
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_role("button", name="Play").wait_for()


def test_uploads_good_and_bad(page, hostile, tmp_path):
    tab = page.get_by_role("tabpanel").filter(visible=True)
    for name in ("empty.png", "text.png", "truncated.png", "bomb.png", "vector.svg"):
        content, word = hostile.REFUSED[name]
        (tmp_path / name).write_bytes(content)
        tab.locator(".rc-upload input[type=file]").set_input_files(tmp_path / name)
        tab.locator(".rc-message").get_by_text(re.compile(word)).wait_for()
        before = tab.locator(".rc-shown img").get_attribute("src")
    for name in ("cmyk.jpg", "animated.gif", "sixteen-bits.png"):
        (tmp_path / name).write_bytes(hostile.PICTURES[name])
        tab.locator(".rc-upload input[type=file]").set_input_files(tmp_path / name)
        page.wait_for_function("before => document.querySelector('.rc-shown img').src !== before", arg=before)
        before = tab.locator(".rc-shown img").get_attribute("src")
        assert tab.locator(".rc-message").first.inner_text().strip() == ""


def test_the_kernel_follows_its_sliders(page):
    page.get_by_role("tab", name="Build a kernel").click()
    tab = page.get_by_role("tabpanel").filter(visible=True)
    tab.get_by_role("heading", name="9 x 9 kernel").wait_for()
    _look(page, "kernel")
    number = tab.locator(".rc-size input[type=number]")
    number.fill("5")
    number.press("Tab")
    tab.get_by_role("heading", name="5 x 5 kernel").wait_for()
    tab.get_by_label("binned").check()
    tab.get_by_text('sampling="binned"').wait_for()


def test_the_segmentation_turns(page):
    page.get_by_role("tab", name="Segment").click()
    tab = page.get_by_role("tabpanel").filter(visible=True)
    tab.get_by_text("Overlap with the upright segmentation: 100% now").first.wait_for()
    _turn(page, tab, 90)
    assert "100% now" in tab.locator(".rc-card").nth(1).inner_text()
    _turn(page, tab, 30)
    _look(page, "segment")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(server, chromium, visit, scheme):
    with visit(chromium, server.address, viewport={"width": 390, "height": 844}, color_scheme=scheme) as opened:
        page = opened.page
        page.get_by_text("as upright").first.wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        _look(page, f"phone-{scheme}")
        assert width <= 390, "nothing sticks out"
        assert opened.complaints == []


def test_the_server_gives_away_nothing_else(server):
    for path in ("gradio_api/file=/etc/passwd", "file=/etc/passwd", f"gradio_api/file={__file__}"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{server.address.rstrip('/')}/{path}", timeout=30)
        with refused.value as answer:
            assert answer.code in (403, 404)


def test_a_file_that_is_too_large_is_refused_while_it_arrives(server):
    start = b'--x\r\nContent-Disposition: form-data; name="files"; filename="large.png"\r\n\r\n'
    request = urllib.request.Request(
        f"{server.address.rstrip('/')}/gradio_api/upload",
        start + bytes(LARGEST_FILE + 1000) + b"\r\n--x--\r\n",
        {"Content-Type": "multipart/form-data; boundary=x"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    with refused.value as answer:
        assert answer.code == 413
    assert not [path for path in server.home.rglob("*") if path.is_file() and path.stat().st_size > LARGEST_FILE // 2]


def test_it_listens_to_this_machine_only(server):
    assert urlsplit(server.address).hostname == "127.0.0.1"


def test_a_taken_port_is_named(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["demo", "--port", str(port)]) == 2
    assert f"port {port} is taken" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "0"], "port must be from 1 to 65535, got 0"),
        (["--host", "203.0.113.9"], "cannot listen at 203.0.113.9"),
        (["--host", "not a host"], "cannot listen at not a host"),
    ],
)
def test_addresses_that_cannot_be_are_refused(options, message, capsys):
    assert cli.main(["demo", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no file"), (b"nonsense", "not a complete safetensors"), (b"PK..", "pickle")],
)
def test_a_checkpoint_that_is_none_is_a_usage_error(content, message, tmp_path, capsys):
    path = tmp_path / "net.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["demo", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_what_was_given_comes_first():
    networks = bundled_networks()
    plain, ring = networks[:2]
    assert _choice("classification", [], networks)[1] == ["plain network", "ring network"]
    assert _choice("classification", [ring], networks)[1] == ["ring network", "ring network #2"]
    assert _choice("classification", [ring, plain, ring], networks)[1] == [
        "ring network",
        "plain network",
        "ring network #2",
    ]
    assert _choice("segmentation", [ring], networks)[1] == ["plain U-Net", "ring U-Net"]
    assert len(_choice("classification", [ring] * 6, networks)[1]) == 4, "no more beside each other"
    assert len(_choice("classification", [ring] * 6, networks)[0]) == 8, "but all to choose from"
