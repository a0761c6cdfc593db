"""Debian's chromium for tests of pages, and a record of what a page asked for and complained of.

A plugin of pytest: its fixtures are there for every test, and a process has one browser, since the driver allows no
second one. Where the browser or its driver is missing, tests that take it are skipped and say why.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SLOW = 60_000
"""Milliseconds that a condition may take on a busy machine."""


@dataclass
class Visit:
    """An open page, and what went on behind it."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def outside(self, *hosts: str) -> list[str]:
        """Requests that left for anywhere but ``hosts``."""
        return [url for url in self.requests if not _is_local(url, hosts)]


def _is_local(url: str, hosts: tuple[str, ...]) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("data", "blob", "about", "file", "chrome") or parts.netloc in hosts


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running browser of playwright, without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test does it")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("there is no chromium on this machine: apt-get install chromium")
    # Root may not run the sandbox, and containers have little shared memory.
    options = ["--no-sandbox", "--disable-dev-shm-usage"] if os.name == "posix" and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def visit() -> Callable[..., contextlib.AbstractContextManager[Visit]]:
    """Opens a page in the browser, see :func:`open_page`."""
    return open_page


@contextlib.contextmanager
def open_page(browser: Any, url: str, **options: Any) -> Iterator[Visit]:
    """Open ``url`` in a fresh profile; options are those of playwright's ``new_context``: viewport, color_scheme"""
    context = browser.new_context(**options)
    context.set_default_timeout(SLOW)
    opened = Visit(context.new_page())
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.on("console", lambda said: opened.complaints.append(said.text) if said.type == "error" else None)
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    try:
        opened.page.goto(url)
        yield opened
    finally:
        context.close()
