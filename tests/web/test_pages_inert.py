"""Markup, quotes and control characters in everything that comes from jobs do nothing on any page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.web.serving import Served, served
from tests.web.test_pages_door import check_is_inert
from tests.web.visiting import Page, Visitor

from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Extension, NewJob, Progress, Schedule
from taskharbor.core.workflow import NewStep, NewWorkflow
from taskharbor.drivers import open_driver
from taskharbor.web.pages.words import visible

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"></textarea></pre>{{'qz'*3}}{%x%}"
UNSEEN = "\x01\x1b[31m\x7f\u202e\u2066\u200b\ufeff\x85\U000e0041"
NASTY = MARKUP + UNSEEN
PAGES = ("/", "/jobs", "/jobs?state=dlq", "/dlq", "/queues", "/workers", "/schedules", "/workflows", "/history")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver, served(driver) as running:
        name, tenant = NASTY, (MARKUP + UNSEEN)[-64:]
        payload = ('{"a": "' + MARKUP.replace('"', '\\"') + '\u202e"}').encode()
        given = {"payload": payload, "meta": {"k" + MARKUP: NASTY}, "idempotency_key": NASTY, "tenant_id": tenant}
        ids = ["dead", "running", "done", "raw"]
        driver.enqueue([NewJob(name, queue=name, id=id, **{**given, "idempotency_key": NASTY + id}) for id in ids[:3]])  # type: ignore[arg-type]
        driver.enqueue([NewJob(name, NASTY.encode(), queue="other", id="raw", tenant_id=tenant)])
        leased = {each.job.id: each.lease for each in driver.reserve(name, limit=3, owner=NASTY)}
        driver.fail("dead", leased["dead"].token, reason=f"{NASTY}\nError: {NASTY}", code=NASTY[:60])
        driver.ack("done", leased["done"].token, result=payload)
        now = driver.now()
        driver.extend([Extension("running", leased["running"].token, 600, now, Progress(1, 2, NASTY))])
        driver.heartbeat(Worker(NASTY[:100], NASTY, 1, (name,), 1, NASTY, now, meta={"types": NASTY}), now=now)
        driver.elect(NASTY[:60], NASTY[:100], now, 600)
        driver.set_limit(Limit("queue", name, concurrency=1))
        driver.set_limit(Limit("tenant", tenant, concurrency=1))
        driver.set_fair(name, True, {tenant: 2.0})
        driver.pause(name)
        driver.put_schedule(
            Schedule(NASTY[:100], "@hourly", name, payload, queue=name, tenant_id=tenant, next_run_at=now)
        )
        steps = [NewStep(NASTY[:80], NewJob(name, queue="flow", tenant_id=tenant), part=NASTY[:40])]
        running.flow = driver.start_workflow(NewWorkflow(NASTY[:80], steps, tenant_id=tenant))  # type: ignore[attr-defined]
        running.app.state.feed.catch_up()
        yield running


@pytest.fixture(scope="module")
def visitor(server: Served) -> Visitor:
    return Visitor(server, server.secret())


def check(page: Page) -> None:
    assert page.status == 200, page.response.text[:500]
    check_is_inert(page)
    assert not page.all("img")
    assert not [each for each in page.all("script") if "alert" in each.text]
    for character in UNSEEN:
        if character not in "[31mA":
            assert character not in page.response.text, f"{character!r} is there as it is"
    assert "qzqzqz" not in page.text, "a template inside a name was carried out"


@pytest.mark.parametrize("path", PAGES)
def test_nothing_that_comes_from_a_job_does_anything_on_a_page(server: Served, visitor: Visitor, path: str) -> None:
    page = visitor.get(path)
    check(page)
    if path != "/history":
        assert "<script>alert(1)" in page.text, "it is shown, as text"


@pytest.mark.parametrize("id", ["dead", "running", "done", "raw"])
def test_a_job_full_of_markup_is_a_page_of_text(visitor: Visitor, id: str) -> None:
    page = visitor.get(f"/jobs/{id}")
    check(page)
    assert visible(NASTY)[:100] in "".join(page.words)


def test_groups_workflows_previews_and_searches_too(server: Served, visitor: Visitor) -> None:
    groups = visitor.get("/dlq")
    ways = [each.attributes["href"] or "" for each in groups.all("a")]
    check(visitor.get(next(way for way in ways if way.startswith("/dlq/"))))
    check(visitor.get(f"/workflows/{server.flow}"))  # type: ignore[attr-defined]
    jobs = visitor.get("/jobs")
    check(Page(visitor.send(jobs, "/jobs/preview", act="retry", which="all")))
    check(Page(visitor.http.get("/jobs", params={"q": MARKUP, "queue": MARKUP, "type": MARKUP, "tenant": MARKUP[:60]})))
    check(Page(visitor.http.get("/dlq", params={"queue": MARKUP})))


def test_the_pieces_of_the_stream_are_as_inert_as_the_page(server: Served, visitor: Visitor) -> None:
    with visitor.http.stream("GET", "/live") as answer:
        data = next(line for line in answer.iter_lines() if line.startswith("data:"))
    assert "<script>alert" not in data
    assert "<img" not in data
    assert not [each for each in UNSEEN if each not in "[31mA" and each in data]


def test_a_word_about_a_change_is_text_as_well(server: Served, visitor: Visitor) -> None:
    page = visitor.get("/queues")
    assert [each.paused for each in server.driver.queues()] == [True]
    after = visitor.follow(visitor.send(page, "/queues/resume"))
    check(after)
    assert [each.paused for each in server.driver.queues()] == [False], "the very queue, not one named as it is shown"


def test_control_characters_are_spelled_out() -> None:
    assert visible("a\x00\x1b[1m\u202eb\ud800") == "a\\x00\\x1b[1m\\u202eb\\ud800"
    assert visible("line\nand\ttab, ü and 漢") == "line\nand\ttab, ü and 漢"
