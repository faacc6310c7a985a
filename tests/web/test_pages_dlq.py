"""Dead letters in groups, and their way back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.web.serving import Served, served
from tests.web.visiting import Visitor, said

from taskharbor.core.contract import Driver
from taskharbor.core.fingerprints import fingerprint_of_dead
from taskharbor.core.model import JobFilter, NewJob, Status
from taskharbor.drivers import open_driver
from taskharbor.web.pages import groups as module
from taskharbor.web.pages.groups import Groups, grouped

DEAD = JobFilter(status=Status.DLQ)


@pytest.fixture
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver, served(driver) as running:
        yield running


def kill(driver: Driver, reason: str, *, count: int = 1, code: str = "max_attempts", **given: str) -> None:
    driver.enqueue([NewJob(**{"type": "send", "queue": "q", "tenant_id": "acme", **given}) for _ in range(count)])  # type: ignore[arg-type]
    for job, lease in driver.reserve(given.get("queue", "q"), limit=count):
        driver.fail(job.id, lease.token, reason=reason, code=code)


def test_errors_that_differ_only_in_details_are_one_group_with_how_many_where_and_when() -> None:
    with open_driver("memory://") as driver:
        for number in range(5):
            kill(driver, f"ConnectionError: 10.0.0.{number}:587 refused after {number} s", queue="mail")
        kill(driver, "ValueError: bad", type="build", tenant_id="globex")
        kill(driver, "", code="no_handler")
        found = grouped(driver, DEAD)
        assert (found.scanned, found.complete) == (7, True)
        assert (found.groups[0].error_class, found.groups[0].count) == ("ConnectionError", 5)
        assert {(each.error_class, each.count) for each in found.groups[1:]} == {("ValueError", 1), (None, 1)}
        first = found.groups[0]
        assert first.fingerprint == fingerprint_of_dead("ConnectionError: 1.2.3.4:5 refused after 6 s", "max_attempts")
        assert (dict(first.queues), dict(first.types), dict(first.codes)) == (
            {"mail": 5},
            {"send": 5},
            {"max_attempts": 5},
        )
        assert first.first_seen < first.last_seen
        assert first.example.dlq_reason == "ConnectionError: 10.0.0.4:587 refused after 4 s"


def test_of_very_many_the_newest_are_looked_at_and_the_page_says_so(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SCANNED", 150)
    kill(server.driver, "E: old", count=100)
    kill(server.driver, "E: new", count=100)
    found = grouped(server.driver, DEAD)
    assert (found.scanned, found.complete) == (150, False)
    page = Visitor(server, server.secret()).get("/dlq")
    assert "groups of the newest 150" in page.text
    assert "pipeline triage" in page.text


def test_large_payloads_come_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_driver("memory://") as driver:
        driver.enqueue([NewJob("send", b"x" * 10_000) for _ in range(300)])
        for job, lease in driver.reserve("default", limit=300):
            driver.fail(job.id, lease.token, reason="E: no")
        monkeypatch.setattr(module, "_PAGE_BYTES", 200_000)
        asked: list[int] = []
        plain = driver.list
        monkeypatch.setattr(driver, "list", lambda *given: (asked.append(given[2]), plain(*given))[1])
        assert grouped(driver, DEAD).scanned == 300
        assert asked[0] == 100
        assert set(asked[1:]) == {20}


def test_groups_are_remembered_for_seconds_and_forgotten_when_something_moves() -> None:
    clock = [0.0]
    with open_driver("memory://") as driver:
        groups = Groups(driver, monotonic=lambda: clock[0])
        kill(driver, "E: one")
        first = groups.read(None)
        kill(driver, "F: two")
        assert groups.read(None) is first
        assert len(groups.read("acme").groups) == 2
        assert len(groups.read(None, fresh=True).groups) == 2
        kill(driver, "G: three")
        clock[0] += module.KEPT_S
        assert len(groups.read(None).groups) == 3
        kill(driver, "H: four")
        groups.forget()
        assert len(groups.read(None).groups) == 4


def test_a_group_is_sent_back_at_a_rate_and_leaves_the_others(server: Served) -> None:
    for number in range(6):
        kill(server.driver, f"ConnectionError: try {number}", queue="mail")
    kill(server.driver, "ValueError: bad", queue="mail")
    visitor = Visitor(server, server.secret(role="operator"))
    page = visitor.get("/dlq")
    print_ = fingerprint_of_dead("ConnectionError: try 1", "max_attempts")
    assert "6 jobs" in " ".join(each.text for each in page.all("button"))
    back = visitor.follow(visitor.send(page, "/dlq/redrive", {"fingerprint": print_}, rate="10"))
    assert said(back) == "6 jobs sent back to run again, 10 a second."
    jobs = server.driver.list(JobFilter(status=Status.READY)).jobs
    due = sorted(job.due_at for job in jobs)
    assert (len(due), due[-1] - due[0]) == (6, timedelta(seconds=0.5))
    assert "ConnectionError" not in back.text.replace("6 jobs", "")
    assert server.driver.counts()["dlq"] == 1
    again = visitor.follow(visitor.send(page, "/dlq/redrive", {"fingerprint": print_}))
    assert said(again) == "Nothing of this group is left: nothing was changed."


@pytest.mark.parametrize("rate", ["0", "-1", "soon", "1e99", "nan"])
def test_a_rate_that_is_none_is_told_and_nothing_moves(server: Served, rate: str) -> None:
    kill(server.driver, "E: no")
    visitor = Visitor(server, server.secret())
    answer = visitor.send(visitor.get("/dlq"), "/dlq/redrive", rate=rate)
    assert answer.status_code == 422
    assert server.driver.counts()["dlq"] == 1


def test_a_group_has_a_page_with_its_jobs_and_only_of_the_tenant(server: Served) -> None:
    kill(server.driver, "E: no 1")
    kill(server.driver, "E: no 2", tenant_id="globex")
    print_ = fingerprint_of_dead("E: no 1", "max_attempts")
    assert "2 jobs" in Visitor(server, server.secret()).get(f"/dlq/{print_}").text
    ours = Visitor(server, server.secret("acme", "operator"))
    page = ours.get(f"/dlq/{print_}")
    assert "1 job" in page.text
    assert "no 2" not in page.text
    assert said(ours.follow(ours.send(page, "/dlq/redrive"))) == "1 job sent back to run again."
    assert server.driver.counts()["dlq"] == 1
    assert ours.get("/dlq/0000000000000000").status == 404
