"""Jobs on pages: finding them, one of them in full, and acting on one or on many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.web.serving import Served, served
from tests.web.visiting import Page, Visitor, said

from taskharbor.core.contract import Driver
from taskharbor.core.envelope import Kind, header
from taskharbor.core.model import Extension, NewJob, Progress, RetryUpdate, Settlement, Status
from taskharbor.core.workflow import NewStep, NewWorkflow
from taskharbor.drivers import open_driver
from taskharbor.web.pages.timeline import WIDE, timeline


@pytest.fixture
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver, served(driver) as running:
        yield running


@pytest.fixture
def operator(server: Served) -> Visitor:
    return Visitor(server, server.secret(role="operator"))


def put(driver: Driver, id: str, **given: object) -> None:
    driver.enqueue([NewJob(**{"type": "send", "queue": "mail", "tenant_id": "acme", "id": id, **given})])  # type: ignore[arg-type]


def kill(driver: Driver, id: str, reason: str = "E: no", queue: str = "mail", **given: object) -> None:
    put(driver, id, queue=queue, **given)
    (leased,) = driver.reserve(queue, limit=1)
    assert leased.job.id == id
    driver.fail(id, leased.lease.token, reason=reason, code="max_attempts")


def listed(page: Page) -> list[str]:
    prefix = "/jobs/"
    found = [each.attributes["href"] or "" for each in page.all("a")]
    return [each.removeprefix(prefix) for each in found if each.startswith(prefix)]


# --- Finding ----------------------------------------------------------------------------------------------------


def test_jobs_are_found_by_state_queue_type_tenant_id_and_text(server: Served, operator: Visitor) -> None:
    driver = server.driver
    kill(driver, "dead", "ConnectionError: no route to host", queue="post")
    put(driver, "plain", payload=b'{"to":"ada"}')
    put(driver, "other", type="build", queue="reports", tenant_id="globex")
    for query, expected in (
        ("", {"dead", "plain", "other"}),
        ("state=dlq", {"dead"}),
        ("state=ready", {"plain", "other"}),
        ("queue=reports", {"other"}),
        ("type=send", {"dead", "plain"}),
        ("tenant=globex", {"other"}),
        ("q=plain", {"plain"}),
        ("q=no+route", {"dead"}),
        ("q=ada", {"plain"}),
        ("q=build", {"other"}),
        ("queue=mail&type=build", set()),
        ("state=nonsense&queue=post", set()),
    ):
        assert set(listed(operator.get(f"/jobs?{query}"))) == expected, query


def test_a_state_that_is_none_is_called_so_and_nothing_is_done_to_all_jobs_instead(
    server: Served, operator: Visitor
) -> None:
    put(server.driver, "plain")
    assert "foo is none of ready, inflight, " in operator.get("/jobs?state=foo").text
    page = operator.get("/jobs")
    for action in ("/jobs/preview", "/jobs/bulk"):
        csrf = page.form("/jobs/preview")["fields"]["csrf"]
        sent = {"csrf": csrf, "act": "cancel", "which": "all", "state": "foo"}
        assert operator.http.post(action, data=sent).status_code == 422
    assert server.driver.get("plain").status is Status.READY


def test_a_step_that_waits_for_others_is_waiting_and_not_scheduled(server: Served, operator: Visitor) -> None:
    steps = [NewStep("fetch", NewJob("fetch")), NewStep("store", NewJob("store"), (0,))]
    server.driver.start_workflow(NewWorkflow("import", steps))
    spans = operator.get("/jobs").all("span")
    badges = [each.text for each in spans if (each.attributes.get("class") or "").startswith("badge ")]
    assert sorted(badges) == ["ready", "waiting"]


def test_pages_of_jobs_follow_each_other_and_an_old_address_begins_at_the_beginning(
    server: Served, operator: Visitor
) -> None:
    server.driver.enqueue([NewJob("send", queue="mail") for _ in range(120)])
    seen: list[str] = []
    page = operator.get("/jobs?queue=mail")
    while True:
        seen += listed(page)
        older = [each for each in page.all("a") if each.text == "Older"]
        if not older:
            break
        page = operator.get(older[0].attributes["href"] or "")
    assert len(seen) == len(set(seen)) == 120
    assert len(listed(operator.get("/jobs?cursor=nonsense"))) == 50


def test_an_empty_page_says_what_to_do_next(operator: Visitor) -> None:
    assert "taskharbor enqueue" in operator.get("/jobs").text
    assert "No job fits" in operator.get("/jobs?queue=none").text
    assert "taskharbor enqueue" in operator.get("/").text
    assert "No dead letters" in operator.get("/dlq").text
    assert "taskharbor -A module:harbor worker" in operator.get("/workers").text
    assert "@harbor.periodic" in operator.get("/schedules").text
    assert "taskharbor pipeline run" in operator.get("/history").text
    assert "harbor.start" in operator.get("/workflows").text


# --- Tenants ----------------------------------------------------------------------------------------------------


def test_a_tenant_sees_its_own_and_a_foreign_job_looks_exactly_like_none(server: Served) -> None:
    kill(server.driver, "ours", "E: ours")
    put(server.driver, "theirs", tenant_id="globex")
    kill(server.driver, "dead", "E: secret of globex", queue="post", tenant_id="globex")
    visitor = Visitor(server, server.secret("acme", "operator"))
    assert listed(visitor.get("/jobs")) == ["ours"]
    assert listed(visitor.get("/jobs?tenant=globex")) == ["ours"]
    for path in ("/", "/dlq", "/queues", "/jobs?q=secret"):
        assert "globex" not in visitor.get(path).text
        assert "secret of" not in visitor.get(path).text
    foreign, absent = visitor.get("/jobs/theirs"), visitor.get("/jobs/nobody")
    assert foreign.status == absent.status == 404
    assert foreign.response.text == absent.response.text
    page = visitor.get("/jobs/ours")
    csrf = page.form("/job/retry")["fields"]["csrf"]
    for action in ("/job/cancel", "/job/retry"):
        answers = [visitor.http.post(action, data={"csrf": csrf, "id": id}) for id in ("theirs", "nobody", "dead")]
        assert {(each.status_code, each.text) for each in answers} == {(404, answers[0].text)}
    data = {"csrf": csrf, "act": "cancel", "id": ["theirs", "dead"], "which": ""}
    assert said(visitor.follow(visitor.http.post("/jobs/bulk", data=data))) == "0 jobs cancelled."
    assert server.driver.get("theirs").status is Status.READY


@pytest.mark.parametrize("path", ["/workers", "/history", "/history/report"])
def test_what_is_about_all_tenants_is_not_for_one(server: Served, path: str) -> None:
    visitor = Visitor(server, server.secret("acme", "admin"))
    assert visitor.get(path).status == 403
    assert path not in {each.attributes.get("href") for each in visitor.get("/").all("a")}


# --- One job ----------------------------------------------------------------------------------------------------


def test_a_job_shows_its_payload_as_readable_json_and_its_error_whole(server: Served, operator: Visitor) -> None:
    error = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: <b>no</b>'
    kill(server.driver, "one", error, payload=json.dumps({"to": ["ada", "grace"], "n": 1}).encode())
    page = operator.get("/jobs/one")
    texts = [each.text for each in page.all("pre")]
    assert '{\n  "to": [\n    "ada",\n    "grace"\n  ],\n  "n": 1\n}' in texts
    assert error in texts
    assert not page.all("b")


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"\x00\xff\xfe", "3 B that are not text, in base64"),
        (b"plain text", "text that is not JSON"),
        (b'{"a": NaN}', "text that is not JSON"),
        (header(Kind.PAYLOAD, "2026-11", b"abcd", b"s" * 16, None, b"n" * 12) + b"x" * 40, "encrypted, key id 2026-11"),
        (json.dumps(["x" * 100] * 1_000).encode(), "the first 65,536 characters of"),
        (json.dumps("y" * 900_000).encode(), "the beginning as it is stored"),
        (b"[" * 5_000, "text that is not JSON"),
    ],
)
def test_a_payload_that_is_not_plain_json_is_told_about(
    server: Served, operator: Visitor, payload: bytes, shown: str
) -> None:
    put(server.driver, "one", payload=payload)
    page = operator.get("/jobs/one")
    assert page.status == 200
    assert shown in page.text


def test_the_timeline_is_to_scale() -> None:
    with open_driver("memory://") as driver:
        begin = driver.now() - timedelta(seconds=100)
        at = [begin + timedelta(seconds=seconds) for seconds in range(101)]
        driver.enqueue([NewJob("send", id="one")], begin)
        (first,) = driver.reserve("default", now=at[10], lease_for=60)
        update = RetryUpdate(at[60], 1, "E: no", at[30])
        driver.settle([Settlement.retry("one", first.lease.token, update=update, started_at=at[10])], now=at[30])
        (second,) = driver.reserve("default", now=at[70], lease_for=60)
        driver.settle([Settlement.ack("one", second.lease.token, started_at=at[70])], now=at[100])
        found = timeline(driver.get("one"), driver.attempts("one"), driver.now())
    drawn = [[(piece.kind, piece.x, piece.wide) for piece in row.pieces] for row in found.rows]
    assert drawn == [
        [("wait", 0.0, 100.0), ("run", 100.0, 200.0)],
        [("pause", 300.0, 300.0), ("wait", 600.0, 100.0), ("run", 700.0, 300.0)],
    ]
    assert [(row.waited_s, row.ran_s) for row in found.rows] == [(10.0, 20.0), (10.0, 30.0)]
    assert all(piece.x + piece.wide <= WIDE for row in found.rows for piece in row.pieces)


def test_a_running_job_shows_its_progress_and_can_be_asked_to_stop(server: Served, operator: Visitor) -> None:
    put(server.driver, "one")
    (leased,) = server.driver.reserve("mail", owner="worker-1")
    now = server.driver.now()
    server.driver.extend([Extension("one", leased.lease.token, 60, now, Progress(3, 4, "rows"))])
    page = operator.get("/jobs/one")
    (bar,) = page.all("progress")
    assert (bar.attributes["max"], bar.attributes["value"]) == ("4", "3")
    stopped = operator.follow(operator.send(page, "/job/cancel"))
    assert said(stopped) == "The job was asked to stop, and is cancelled when it does."
    assert "asked to stop" in stopped.text
    assert server.driver.get("one").cancel_requested_at is not None


def test_a_dead_letter_is_sent_back_and_a_waiting_job_is_cancelled(server: Served, operator: Visitor) -> None:
    kill(server.driver, "dead")
    put(server.driver, "waiting", queue="later")
    page = operator.get("/jobs/dead")
    assert said(operator.follow(operator.send(page, "/job/retry"))) == "The job is ready again."
    assert server.driver.get("dead").status is Status.READY
    assert said(operator.follow(operator.send(page, "/job/retry"))).startswith("The job is not a dead letter")
    page = operator.get("/jobs/waiting")
    assert said(operator.follow(operator.send(page, "/job/cancel"))) == "The job is cancelled."
    assert server.driver.get("waiting").status is Status.CANCELLED


def test_a_word_about_a_change_is_said_once(server: Served, operator: Visitor) -> None:
    kill(server.driver, "dead")
    assert said(operator.follow(operator.send(operator.get("/jobs/dead"), "/job/retry")))
    assert not said(operator.get("/jobs/dead"))


@pytest.mark.parametrize("id", ["a/b", "a b", " a", "ü?&=#", "%2F", "a\tb"])
def test_any_id_has_a_page(server: Served, operator: Visitor, id: str) -> None:
    kill(server.driver, id)
    (way,) = listed(operator.get("/jobs"))
    page = operator.get(f"/jobs/{way}")
    assert page.status == 200
    assert said(operator.follow(operator.send(page, "/job/retry"))) == "The job is ready again."


# --- Many jobs --------------------------------------------------------------------------------------------------


def test_many_jobs_are_sent_back_after_a_look_at_how_many(server: Served, operator: Visitor) -> None:
    for number in range(7):
        kill(server.driver, f"dead-{number}", queue="post")
    put(server.driver, "waiting", queue="post")
    page = operator.get("/jobs?queue=post")
    looked = Page(operator.send(page, "/jobs/preview", act="retry", which="all"))
    assert looked.all("h1")[0].text == "Send back 7 jobs?"
    assert server.driver.counts()["dlq"] == 7
    back = operator.follow(operator.send(looked, "/jobs/bulk", rate="2", reset="yes"))
    assert said(back) == "7 jobs sent back to run again."
    assert str(back.response.url).endswith("/jobs?queue=post")
    jobs = [server.driver.get(f"dead-{number}") for number in range(7)]
    spread = sorted(job.due_at for job in jobs)
    assert spread[-1] - spread[0] == timedelta(seconds=3)
    assert {job.attempts for job in jobs} == {0}


def test_only_the_ticked_ones_are_taken(server: Served, operator: Visitor) -> None:
    for number in range(4):
        put(server.driver, f"job-{number}")
    page = operator.get("/jobs")
    looked = Page(operator.send(page, "/jobs/preview", act="cancel", id=["job-1", "job-3", "job-1"]))
    assert looked.all("h1")[0].text == "Cancel 2 jobs?"
    form = looked.form("/jobs/bulk")["fields"]
    answer = operator.http.post("/jobs/bulk", data={**form, "id": ["job-1", "job-3"]})
    assert said(operator.follow(answer)) == "2 jobs cancelled."
    assert server.driver.counts()["cancelled"] == 2
    nothing = operator.follow(operator.send(page, "/jobs/preview", act="cancel"))
    assert said(nothing).startswith("Choose some jobs first")


@pytest.mark.parametrize(("role", "actions"), [("viewer", set()), ("worker", set()), ("producer", {"/job/cancel"})])
def test_buttons_are_there_for_those_who_may_press_them_and_only_they_may(
    server: Served, role: str, actions: set[str]
) -> None:
    put(server.driver, "waiting", queue="later")
    kill(server.driver, "dead")
    visitor = Visitor(server, server.secret("acme", role))
    always = {"/logout", "/theme"}
    assert visitor.get("/jobs/waiting").actions() - always == actions
    assert visitor.get("/jobs/dead").actions() - always == set()
    assert "/dlq/redrive" not in visitor.get("/dlq").actions()
    assert visitor.get("/queues").actions() == always
    csrf = visitor.get("/").form("/theme")["fields"]["csrf"]
    for action, data in (
        ("/job/retry", {"id": "dead"}),
        ("/jobs/bulk", {"act": "retry", "which": "all"}),
        ("/jobs/preview", {"act": "retry", "which": "all"}),
        ("/dlq/redrive", {"fingerprint": "x"}),
        ("/queues/pause", {"queue": "mail"}),
        ("/queues/limit", {"queue": "mail", "concurrency": "1"}),
        ("/queues/lift", {"scope": "queue", "name": "mail"}),
        ("/schedules/run", {"name": "x"}),
        ("/workflow/redrive", {"id": "x"}),
    ):
        assert visitor.http.post(action, data={"csrf": csrf, **data}).status_code == 403, action
    assert server.driver.get("dead").status is Status.DLQ


def test_getting_any_page_changes_nothing(server: Served, operator: Visitor) -> None:
    kill(server.driver, "dead")
    before = server.driver.get("dead")
    for action in ("/job/retry", "/jobs/bulk", "/dlq/redrive", "/queues/pause", "/queues/limit", "/schedules/run"):
        assert operator.get(f"{action}?id=dead&act=retry&which=all&queue=mail").status in (404, 405)
    assert server.driver.get("dead") == before
