"""Makes the pictures of docs/images: python -m tests.browser.pictures [FOLDER]

A store with a busy day behind it, a server, a real worker, and the system's chromium.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.browser.conftest import FLAGS, executable
from tests.browser.shop import application, fill
from tests.web.serving import served

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.core.tokens import ALL_TENANTS, Role, new_token
from taskharbor.drivers import open_driver

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
LARGEST = 150_000
WIDE, HIGH = 1200, 740


def main(folder: Path = IMAGES) -> None:
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/jobs.db"
        with open_driver(url) as driver:
            driver.migrate()
            known = fill(driver, jobs=900)
            token, secret = new_token("ada", ALL_TENANTS, Role.OPERATOR, driver.now())
            driver.add_token(token)
            with served(driver) as server:
                _with_work(url, driver, lambda: _take(server.url, secret, known, folder))
    for picture in sorted(folder.glob("dashboard-*.png")):
        size = picture.stat().st_size
        print(f"{picture.name} {size:,} bytes")  # noqa: T201
        assert size < LARGEST, f"{picture.name} is too large"


def _with_work(url: str, driver: Driver, take: Callable[[], None]) -> None:
    """A worker that runs, and somebody who enqueues, while pictures are taken."""
    harbor = application(url)
    running = harbor.worker({"live": 8}, name="worker-4", poll_interval_s=0.05, grace_s=1.0)
    stopping = threading.Event()

    def enqueue() -> None:
        number = 0
        while not stopping.wait(0.25):
            number += 4
            jobs = [
                NewJob("email.send", b'{"number": %d}' % (number + each), "live", max_attempts=1) for each in range(4)
            ]
            driver.enqueue(jobs)

    thread = threading.Thread(target=enqueue)
    running.start()
    thread.start()
    try:
        take()
    finally:
        stopping.set()
        thread.join()
        running.stop()
        harbor.close()


def _take(url: str, secret: str, known: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(FLAGS))
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": WIDE, "height": HIGH}, base_url=url, color_scheme=scheme, device_scale_factor=1
            )
            page = context.new_page()
            page.goto("/login")
            page.fill("#token", secret)
            page.press("#token", "Enter")
            page.wait_for_selector("#live.on")
            page.wait_for_timeout(9_000)  # so that the plots have something to show
            page.screenshot(path=folder / f"dashboard-overview-{scheme}.png")
            if scheme == "light":
                page.goto(f"/jobs/{known['dead']}")
                page.screenshot(path=folder / "dashboard-job.png")
                page.goto("/dlq")
                page.locator(".group").first.get_by_text("Redrive…").click()
                page.screenshot(path=folder / "dashboard-dlq.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main(*(Path(each) for each in sys.argv[1:2]))
