"""A real browser: the system's chromium, driven by Playwright. Where it is missing and cannot be installed, the tests
are skipped, visibly; with TASKHARBOR_REQUIRE_ALL=1 that is a failure."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.web.fixtures import driver, server
from tests.web.serving import Served

from taskharbor.testing.servers.apt import install

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

__all__ = ["chromium", "driver", "open_page", "server"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def executable() -> str | None:
    def found() -> str | None:
        return next((path for name in NAMES if (path := shutil.which(name))), None)

    return found() or (found() if install("chromium") else None)


# Not for the whole session: as long as Playwright runs, its event loop does, and no other test could start one.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = executable()
    if path is None:
        pytest.skip("no chromium here, and it could not be installed: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


Opened = Callable[..., "Page"]


@pytest.fixture
def open_page(chromium: Browser, server: Served) -> Iterator[Opened]:
    """Opens a page of somebody who has logged in. Whatever the browser complains about fails the test: scripts that
    break, files that are missing, and everything that the policy had to stop."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def hear(said: ConsoleMessage) -> None:
        told = "status of 401" in said.text or "status of 422" in said.text  # a wrong token, a form that is refused
        if said.type in ("error", "warning") and not told:
            complaints.append(said.text)

    def opened(path: str = "/", *, secret: str | None = None, log_in: bool = True, **options: object) -> Page:
        context = chromium.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "base_url": server.url, **options}
        )  # type: ignore[arg-type]
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if log_in:
            page.goto("/login")
            page.fill("#token", secret or server.secret())
            page.press("#token", "Enter")
            page.wait_for_url("**/")
        if not log_in or path != "/":
            page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
