"""Queues, workers, schedules and workflows on pages, and the overview."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.web.serving import Served, served
from tests.web.visiting import Page, Visitor, said

from taskharbor.core.carrying import GONE, NOTE
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, Schedule
from taskharbor.core.workflow import NewStep, NewWorkflow, WorkflowState
from taskharbor.drivers import open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.web.pages.schedules import coming_ticks


@pytest.fixture
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver, served(driver) as running:
        yield running


@pytest.fixture
def operator(server: Served) -> Visitor:
    return Visitor(server, server.secret(role="operator"))


# --- Queues -----------------------------------------------------------------------------------------------------


def test_a_queue_is_paused_and_opened_again(server: Served, operator: Visitor) -> None:
    server.driver.enqueue([NewJob("send", queue="mail")])
    page = operator.follow(operator.send(operator.get("/queues"), "/queues/pause", {"queue": "mail"}))
    assert said(page) == "mail is paused: nothing of it starts, and what runs goes on."
    assert server.driver.reserve("mail") == []
    assert "paused" in operator.get("/").text
    page = operator.follow(operator.send(page, "/queues/resume", {"queue": "mail"}))
    assert said(page) == "mail is open again."
    assert server.driver.reserve("mail")


def test_limits_are_set_shown_and_lifted(server: Served, operator: Visitor) -> None:
    server.driver.enqueue([NewJob("send", queue="mail")])
    server.driver.set_limit(Limit("tenant", "acme", concurrency=3))
    page = operator.get("/queues")
    assert "3 at once" in page.text
    page = operator.follow(operator.send(page, "/queues/limit", {"queue": "mail"}, concurrency="4", rate="60/m"))
    assert said(page) == "mail is limited."
    assert Limit("queue", "mail", concurrency=4, rate=1.0) in server.driver.get_limits()
    assert "4 at once, 1/s" in page.text
    page = operator.follow(operator.send(page, "/queues/limit", {"queue": "mail"}, concurrency="", rate="7/d"))
    assert "Lift: 7/d" in page.text and 'value="7/d"' in page.response.text
    page = operator.follow(operator.send(page, "/queues/limit", {"queue": "mail"}, concurrency="", rate=""))
    assert said(page) == "mail has no limit any more."
    page = operator.follow(operator.send(page, "/queues/lift", {"scope": "tenant", "name": "acme"}))
    assert said(page) == "The limit is lifted."
    assert server.driver.get_limits() == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"concurrency": "0"}, "a whole number from 1 to 1,000,000,000, got 0: to stop a queue altogether, pause it"),
        ({"concurrency": "-1"}, "a whole number of at least 1"),
        ({"concurrency": "many"}, "a whole number of at least 1"),
        ({"rate": "often"}, "A rate is a number of jobs a second"),
        ({"rate": "-1"}, "from 0.000001 to 1,000,000,000 jobs a second"),
        ({"burst": "5"}, "A burst goes with a rate"),
        ({"concurrency": "1", "burst": "2"}, "A burst goes with a rate"),
    ],
)
def test_a_limit_that_makes_no_sense_changes_nothing_and_the_form_is_told_why(
    server: Served, operator: Visitor, given: dict[str, str], why: str
) -> None:
    server.driver.set_limit(Limit("queue", "mail", concurrency=3))
    page = operator.get("/queues")
    answer = operator.send(page, "/queues/limit", {"queue": "mail"}, **given)
    assert (answer.status_code, "<html" in answer.text) == (422, True)
    fields = page.form("/queues/limit", queue="mail")["fields"]
    answer = operator.http.post("/queues/limit", data={**fields, **given}, headers={"hx-request": "true"})
    assert (answer.status_code, answer.headers["hx-retarget"], answer.headers["hx-push-url"]) == (422, "#said", "false")
    assert why in said(Page(answer))
    assert "<html" not in answer.text
    assert server.driver.get_limits() == [Limit("queue", "mail", concurrency=3)]


def test_fair_shares_are_shown(server: Served, operator: Visitor) -> None:
    server.driver.set_fair("mail", True, {"acme": 2.5})
    assert "fair shares: acme 2.5" in operator.get("/queues").text


def test_one_tenant_sees_numbers_of_its_own_and_governs_no_queue(server: Served) -> None:
    server.driver.enqueue([NewJob("send", queue="mail", tenant_id="acme")])
    server.driver.enqueue([NewJob("send", queue="mail", tenant_id="globex") for _ in range(41)])
    server.driver.enqueue([NewJob("send", queue="hidden", tenant_id="globex")])
    visitor = Visitor(server, server.secret("acme", "operator"))
    page = visitor.get("/queues")
    assert "hidden" not in page.text
    waiting = [cell.text for cell in page.all("td") if cell.attributes.get("data-label") == "waiting"]
    assert waiting == ["1"]
    assert "/queues/pause" not in page.actions()
    csrf = page.form("/theme")["fields"]["csrf"]
    assert visitor.http.post("/queues/pause", data={"csrf": csrf, "queue": "mail"}).status_code == 403


def test_who_may_not_is_told_in_plain_words_and_sees_a_name_once(server: Served) -> None:
    visitor = Visitor(server, server.secret("acme", "viewer"))
    page = visitor.get("/queues")
    assert page.text.count("viewer of acme") == 1
    answer = visitor.http.post("/queues/pause", data={**page.form("/theme")["fields"], "queue": "mail"})
    assert "The role viewer may not change queues, limits and schedules." in answer.text


# --- Workers ----------------------------------------------------------------------------------------------------


def test_workers_are_shown_with_their_slots_and_who_leads(server: Served, operator: Visitor) -> None:
    now = server.driver.now()
    types = {"types": "a,b,c"}
    server.driver.heartbeat(Worker("w-1", "host-1", 11, ("mail", "post"), 8, "1.0", now, meta=types), now=now)
    server.driver.heartbeat(Worker("w-2", "host-2", 12, ("mail",), 4, "1.0", now), now=now - timedelta(minutes=5))
    server.driver.elect("leader", "w-1", now, 30)
    page = operator.get("/workers")
    assert "1 worker alive with 8 slots" in page.text
    for shown in ("w-1", "alive", "leads", "mail, post", "3 types", "w-2", "silent", "5 min ago"):
        assert shown in page.text
    assert "1 worker alive with 8 slots, 1 silent; led by w-1" in operator.get("/").text


# --- Schedules --------------------------------------------------------------------------------------------------


def test_a_schedule_is_paused_resumed_and_run_at_once(server: Served, operator: Visitor) -> None:
    now = server.driver.now()
    past = now - timedelta(hours=1)
    server.driver.put_schedule(Schedule("sweep", "@hourly", "clean", b'{"depth":2}', next_run_at=past))
    page = operator.follow(operator.send(operator.get("/schedules"), "/schedules/pause", {"name": "sweep"}))
    assert said(page).startswith("sweep is paused")
    assert server.driver.get_schedule("sweep").paused
    page = operator.follow(operator.send(page, "/schedules/resume", {"name": "sweep"}))
    schedule = server.driver.get_schedule("sweep")
    assert not schedule.paused
    assert schedule.next_run_at is not None
    assert schedule.next_run_at > now, "what passed is not made up for"
    page = operator.follow(operator.send(page, "/schedules/run", {"name": "sweep"}))
    (job,) = server.driver.list().jobs
    assert said(page) == f"Enqueued a job of sweep: {job.id}."
    assert (job.type, job.payload, job.meta["schedule"]) == ("clean", b'{"depth":2}', "sweep")


def test_the_next_ticks_of_a_schedule_follow_from_its_times() -> None:
    first = datetime(2031, 3, 29, 2, 30, tzinfo=UTC)
    daily = Schedule("a", "30 3 * * *", "t", timezone="Europe/Paris", next_run_at=first)
    assert [each.hour for each in coming_ticks(daily)] == [2, 1, 1, 1]  # the clocks go forward on the second day
    assert coming_ticks(Schedule("a", "@hourly", "t", paused=True, next_run_at=first)) == []
    assert coming_ticks(Schedule("a", "not a time", "t", next_run_at=first)) == []


def test_a_foreign_schedule_is_not_there(server: Served) -> None:
    server.driver.put_schedule(Schedule("theirs", "@hourly", "clean", tenant_id="globex"))
    visitor = Visitor(server, server.secret("acme", "operator"))
    page = visitor.get("/schedules")
    assert "theirs" not in page.text
    csrf = page.form("/theme")["fields"]["csrf"]
    answers = [visitor.http.post("/schedules/run", data={"csrf": csrf, "name": name}) for name in ("theirs", "nobody")]
    assert [each.status_code for each in answers] == [404, 404]
    assert answers[0].text == answers[1].text


# --- Workflows --------------------------------------------------------------------------------------------------


def test_a_workflow_that_cannot_go_on_says_why(server: Served, operator: Visitor) -> None:
    id = server.driver.start_workflow(
        NewWorkflow("import", [NewStep("fetch", NewJob("fetch", tenant_id="acme"))], tenant_id="acme")
    )
    server.driver.cancel(server.driver.workflow_steps(id)[0].job_id)
    page = operator.get(f"/workflows/{id}")
    assert "'fetch' was cancelled" in said(operator.follow(operator.send(page, "/workflow/redrive")))
    assert server.driver.get_workflow(id).state is WorkflowState.FAILED


def test_a_workflow_is_shown_with_its_steps_and_sent_on_when_it_has_failed(server: Served, operator: Visitor) -> None:
    steps = [
        NewStep("fetch", NewJob("fetch", tenant_id="acme")),
        NewStep("store", NewJob("store", tenant_id="acme"), (0,)),
    ]
    id = server.driver.start_workflow(NewWorkflow("import", steps, tenant_id="acme"))
    page = operator.get(f"/workflows/{id}")
    assert "0 of 2 done" in page.text
    assert "waiting" in page.text
    (leased,) = server.driver.reserve("default")
    server.driver.fail(leased.job.id, leased.lease.token, reason="E: no")
    page = operator.get(f"/workflows/{id}")
    assert said(operator.follow(operator.send(page, "/workflow/redrive"))) == "It goes on: its dead steps run again."
    assert server.driver.get_workflow(id).state is WorkflowState.RUNNING
    page = operator.get(f"/workflows/{id}")
    assert said(operator.follow(operator.send(page, "/workflow/cancel"))).startswith("Nothing of it begins")
    assert "import" in operator.get("/workflows").text
    assert "import" in operator.get("/workflows?cursor=from-an-old-address").text
    foreign = Visitor(server, server.secret("globex", "operator"))
    assert foreign.get(f"/workflows/{id}").response.text == foreign.get("/workflows/none").response.text
    assert "import" not in foreign.get("/workflows").text


# --- Overview ---------------------------------------------------------------------------------------------------


def test_the_overview_tells_what_waits_runs_and_died(server: Served, operator: Visitor) -> None:
    driver = server.driver
    driver.enqueue([NewJob("send", queue="mail") for _ in range(12)])
    for place, (job, lease) in enumerate(driver.reserve("mail", limit=4)):
        if place == 0:
            driver.fail(job.id, lease.token, reason="E: no")
        elif place < 3:
            driver.ack(job.id, lease.token)
    server.app.state.feed.catch_up()
    page = operator.get("/")
    tiles = [element.text for element in page.all("div") if element.attributes.get("class") == "figure"]
    assert tiles[1] == "33 %"
    assert tiles[4:] == ["8", "1"]
    assert "1 job in flight and 2 done in all" in page.text
    windows = [each.text for each in page.all("small") if each.text.startswith("in ")]
    assert len(windows) == 2, "each rate of a queue has its window"
    assert "No worker is alive, and 9 jobs wait for one" in page.text
    assert json.loads(page.all("div")[-1].attributes.get("data-charts") or "{}") is not None


def test_the_overview_of_a_store_that_was_moved_says_so_and_sends_for_no_worker(
    server: Served, operator: Visitor
) -> None:
    driver = server.driver
    assert isinstance(driver, BaseDriver)
    foreign = Visitor(server, server.secret("acme", role="viewer"))
    driver.enqueue([NewJob("send", queue="mail")])
    driver.carrier().write_notes({NOTE: '{"to": "1", "to_url": "postgresql://app:secret@db/shop"}'})
    driver.shut(True)
    page = operator.get("/").text
    assert "This store is being moved to postgresql://app:***@db/shop: use that one when the move has ended" in page
    driver.set_mark(GONE, True)
    page = operator.get("/").text
    assert "This store was moved to postgresql://app:***@db/shop: use that one. The numbers are those of then." in page
    assert "Start it with" not in page
    page = foreign.get("/").text
    assert "This store was moved to another one. The numbers are those of then." in page
    assert "db/shop" not in page


def test_the_stream_brings_pieces_of_the_page_and_the_plots(server: Served, operator: Visitor) -> None:
    server.driver.enqueue([NewJob("send", queue="mail")])
    with operator.http.stream("GET", "/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        event = next(line for line in lines if line.startswith("event:"))
        data = json.loads(next(lines).removeprefix("data: "))
    assert event == "event: overview"
    assert set(data["parts"]) == {"tiles", "queues"}
    assert "mail" in data["parts"]["queues"]
    assert set(data["charts"]) == {"at", "succeeded", "failed", "wait", "run"}
    assert len({len(column) for column in data["charts"].values()}) == 1


def test_streams_are_bounded_and_need_a_login(server: Served, operator: Visitor) -> None:
    assert Visitor(server).http.get("/live").status_code == 303
    streams = server.app.state.streams
    streams.count = 200
    try:
        assert operator.http.get("/live").status_code == 429
    finally:
        streams.count = 0
