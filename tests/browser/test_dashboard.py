"""What people do with the dashboard, done in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.browser.shop import application, fill
from tests.web.serving import Served

from taskharbor.core.model import JobFilter, NewJob, Status

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
expect.set_options(timeout=20_000)

pytestmark = [pytest.mark.slow, pytest.mark.process]

PAGES = ("/", "/jobs", "/dlq", "/queues", "/workers", "/schedules", "/workflows", "/history")


@contextmanager
def worker(server: Served, url: str) -> Iterator[None]:
    """A real one, in threads of this process."""
    harbor = application(url)
    running = harbor.worker({"live": 4, "billing": 2}, name="worker-live", poll_interval_s=0.05, grace_s=1.0)
    running.start()
    try:
        yield
    finally:
        running.stop()
        harbor.close()


@pytest.fixture
def url(tmp_path: Any) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def tile(page: Any, title: str) -> Any:
    return page.locator(".tiles li", has_text=title).locator(".figure")


def test_one_logs_in_with_a_token_and_out_again(server: Served, open_page: Any) -> None:
    page = open_page(log_in=False)
    expect(page).to_have_url(re.compile("/login$"))
    page.fill("#token", "th_000000000000_" + "A" * 43)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, revoked or expired")
    page.fill("#token", server.secret())
    page.press("#token", "Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile("/login$"))
    page.goto("/jobs")
    expect(page).to_have_url(re.compile("/login"))


def test_numbers_change_by_themselves_while_a_worker_runs(server: Served, open_page: Any, url: str) -> None:
    server.driver.enqueue(
        [NewJob("email.send", b'{"number": %d}' % number, "live", max_attempts=1) for number in range(200)]
    )
    page = open_page()
    expect(tile(page, "Waiting")).to_have_text("200")
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.neverReloaded = true")
    with worker(server, url):
        expect(tile(page, "Waiting")).to_have_text("0")
        expect(tile(page, "Dead letters")).to_have_text("20")
        expect(tile(page, "Failure rate")).to_have_text("10 %")
        expect(tile(page, "Throughput")).not_to_have_text("0 /s")
        expect(page.locator("#queues")).to_contain_text("worker-live")
    expect(page.locator("#throughput canvas")).to_be_visible()
    assert page.evaluate("window.neverReloaded"), "the page was loaded again"


def test_a_dead_letter_is_retried_and_its_page_follows_it_to_the_end(server: Served, open_page: Any, url: str) -> None:
    dead = fill(server.driver, jobs=0)["dead"]
    page = open_page(f"/jobs/{dead}")
    expect(page.locator(".head .badge")).to_have_text("dead letter")
    expect(page.locator("pre.error").first).to_contain_text("CardDeclined: card ending 4242")
    expect(page.locator(".lane svg")).to_have_count(3)
    page.evaluate("window.neverReloaded = true")
    page.get_by_role("button", name="Retry from scratch").click()
    expect(page.locator("#said")).to_have_text("The job is ready again.")
    expect(page.locator("#said")).to_be_focused()
    assert page.evaluate("window.neverReloaded")
    server.driver.drop_limit("queue", "billing")
    with worker(server, url):
        expect(page.locator("#state")).to_contain_text("succeeded")
    assert server.driver.get(dead).status is Status.DONE


def test_a_group_of_dead_letters_is_sent_back(server: Served, open_page: Any) -> None:
    server.driver.enqueue([NewJob("email.send", b"{}", "live") for _ in range(12)])
    for number, (job, lease) in enumerate(server.driver.reserve("live", limit=12)):
        reason = f"ConnectionError: try {number} failed" if number < 9 else f"ValueError: {number} is odd"
        server.driver.fail(job.id, lease.token, reason=reason, code="max_attempts")
    page = open_page("/dlq")
    groups = page.locator(".group")
    expect(groups).to_have_count(2)
    first = groups.first
    expect(first).to_contain_text("ConnectionError")
    first.get_by_text("Redrive…").click()
    first.get_by_label("Jobs a second").fill("100")
    first.get_by_role("button", name="Send back 9 jobs").click()
    expect(page.locator("#said")).to_have_text("9 jobs sent back to run again, 100 a second.")
    expect(groups).to_have_count(1)
    assert server.driver.count(JobFilter(status="ready")) == 9


def test_jobs_are_filtered_while_one_types_and_cancelled_after_a_preview(server: Served, open_page: Any) -> None:
    server.driver.enqueue([NewJob("report.build", b'{"n": %d}' % number, "reports") for number in range(8)])
    server.driver.enqueue([NewJob("email.send", b'{"to": "grace"}', "mail")])
    page = open_page("/jobs")
    rows = page.locator("#found tbody tr")
    expect(rows).to_have_count(9)
    page.get_by_label("Id, or text").fill("grace")
    expect(rows).to_have_count(1)
    assert "q=grace" in page.url
    page.get_by_label("Id, or text").fill("")
    page.get_by_label("Queue").fill("reports")
    page.get_by_label("Queue").press("Enter")
    expect(rows).to_have_count(8)
    page.get_by_label("all of this page").check()
    page.get_by_role("button", name="Cancel chosen…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 8 jobs?")
    page.get_by_role("button", name="Cancel 8 jobs").click()
    expect(page.locator("#said")).to_have_text("8 jobs cancelled.")
    assert server.driver.counts()["cancelled"] == 8


def test_a_queue_is_paused_by_keyboard_alone(server: Served, open_page: Any) -> None:
    server.driver.enqueue([NewJob("email.send", b"{}", "mail")])
    page = open_page()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the page")).to_be_focused()
    expect(page.get_by_text("Skip to the page")).to_be_in_viewport()
    _tab_to(page, "Queues")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus can be seen"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    _tab_to(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("mail is paused")
    expect(page.locator("#said")).to_be_focused()
    assert [each.paused for each in server.driver.queues()] == [True]
    _tab_to(page, "Limit…")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Jobs at once")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Jobs at once")).not_to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == "Limit…"


@pytest.mark.parametrize("width", [360, 1280])
def test_a_form_that_is_refused_says_why_and_stays_as_it_was(server: Served, open_page: Any, width: int) -> None:
    server.driver.enqueue([NewJob("email.send", b"{}", "mail")])
    page = open_page("/queues", viewport={"width": width, "height": 740})
    page.get_by_text("Limit…").click()
    pop = page.locator(".pop")
    expect(pop).to_be_in_viewport(ratio=1)
    box = pop.bounding_box()
    corners = [(box["x"] + dx, box["y"] + dy) for dx in (6, box["width"] - 6) for dy in (6, box["height"] - 6)]
    hidden = "([x, y]) => document.elementFromPoint(x, y)?.closest('.pop') === null"
    assert not any(page.evaluate(hidden, corner) for corner in corners), "all of it lies over the page"
    page.get_by_label("Starts a second").fill("fast")
    held: list[Any] = []
    page.route("**/queues/limit", lambda route: held.append(route))  # noqa: PLW0108  # playwright marks what it is given, and a method cannot be marked
    button = pop.get_by_role("button", name="Set")
    button.click()
    expect(button).to_be_disabled()
    expect(button).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    expect(page.locator("#said")).to_contain_text("That cannot be done: A rate is a number of jobs a second")
    expect(page.locator("#said")).to_be_focused()
    expect(page.locator("#said")).to_be_in_viewport()
    expect(button).to_be_enabled()
    expect(page).to_have_url(re.compile("/queues$"))
    page.unroute("**/queues/limit")
    page.get_by_label("Starts a second").fill("5")
    button.click()
    expect(page.locator("#said")).to_have_text("mail is limited.")
    assert [each.rate for each in server.driver.get_limits()] == [5.0]


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)])
def test_the_login_and_errors_stand_in_the_middle(open_page: Any, width: int, height: int) -> None:
    page = open_page("/login", log_in=False, viewport={"width": width, "height": height})
    box = page.locator("main").bounding_box()
    assert abs(box["x"] + box["width"] / 2 - width / 2) < 10
    assert abs(box["y"] + box["height"] / 2 - height / 2) < 10


def _tab_to(page: Any, words: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == words:
            return
    raise AssertionError(f"the keyboard does not come to {words}")


@pytest.mark.parametrize("width", [360, 768])
def test_every_page_fits_a_narrow_screen(server: Served, open_page: Any, width: int) -> None:
    dead = fill(server.driver, jobs=40)["dead"]
    page = open_page("/", viewport={"width": width, "height": 740}, has_touch=True)
    for path in (*PAGES, f"/jobs/{dead}"):
        page.goto(path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide"
        small = page.evaluate(
            """[...document.querySelectorAll("button, .button, nav a, input:not([type=hidden]), select")]
            .filter((each) => each.checkVisibility()).map((each) => [each.textContent, each.getBoundingClientRect()])
            .filter(([, box]) => box.height && Math.min(box.width, box.height) < 22).map(([text]) => text)"""
        )
        assert small == [], f"{path}: too small for a thumb"


def test_all_of_it_works_without_scripts(server: Served, open_page: Any) -> None:
    known = fill(server.driver, jobs=0)
    page = open_page("/queues", java_script_enabled=False)
    page.locator("tr", has_text="mail").get_by_role("button", name="Pause").click()
    expect(page.locator("#said")).to_contain_text("mail is paused")
    page.goto(f"/jobs/{known['dead']}")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator("#said")).to_have_text("The job is ready again.")
    page.goto("/jobs")
    page.get_by_label("State").select_option("ready")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("state=ready"))
    page.get_by_label("every job that the filter finds").check()
    page.get_by_role("button", name="Cancel chosen…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Cancel \d+ jobs\?"))


def test_pages_are_light_and_dark_as_the_system_has_it_or_as_one_likes(server: Served, open_page: Any) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page = open_page("/jobs", color_scheme=scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert len(set(grounds.values())) == 2
    page.get_by_role("button", name="Auto").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == grounds["light"]


def test_markup_in_a_job_stays_text_in_a_real_browser(server: Served, open_page: Any) -> None:
    nasty = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\'"\u202e'
    server.driver.enqueue([NewJob(nasty, ('["' + nasty.replace('"', "'") + '"]').encode(), nasty, id="one")])
    (leased,) = server.driver.reserve(nasty, owner=nasty)
    server.driver.fail("one", leased.lease.token, reason=nasty)
    page = open_page()
    for path in ("/", "/jobs", "/jobs/one", "/dlq", "/queues"):
        page.goto(path)
        expect(page.get_by_text("<img src=x").first).to_be_attached()
        if path == "/":
            expect(page.locator("#live")).to_have_text("live")
        assert page.evaluate("window.owned") is None, path
