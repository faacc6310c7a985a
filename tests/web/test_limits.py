"""Backpressure: who sends too much is told so, and how to go on."""

from __future__ import annotations

import pytest
from tests.web.serving import served

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.web.limits import Rates
from taskharbor.web.problems import Problem


def test_a_tenant_has_a_burst_and_then_its_rate_and_tenants_do_not_share() -> None:
    now = 0.0
    rates = Rates(10.0, 20, clock=lambda: now)
    assert rates.take("acme", 50) == 20
    with pytest.raises(Problem) as told:
        rates.take("acme", 1)
    assert (told.value.status, told.value.headers["Retry-After"]) == (429, "1")
    assert rates.take("zebra", 5) == 5
    now = 0.5
    assert rates.take("acme", 50) == 5
    now = 1000.0
    assert rates.take("acme", 50) == 20


def test_over_the_rate_a_job_is_answered_with_429_and_when_to_come_back(driver: Driver) -> None:
    with served(driver, rate=0.01, burst=2) as server:
        client = server.client("acme", "producer")
        answers = [client.post("/api/v1/jobs", json={"type": "a"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        refused = answers[2]
        assert refused.json()["type"] == "/problems/rate-limited"
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        assert server.client("zebra", "producer").post("/api/v1/jobs", json={"type": "a"}).status_code == 201


def test_a_bulk_over_the_rate_says_how_far_it_came(driver: Driver) -> None:
    with served(driver, rate=0.01, burst=3) as server:
        client = server.client("acme", "producer")
        body = b'\n{"type": "a"}\n' * 5
        answer = client.post("/api/v1/jobs/bulk", content=body, headers={"Content-Type": "application/x-ndjson"})
        told = answer.json()
        assert (answer.status_code, told["enqueued"], told["next_line"]) == (429, 3, 8)
        assert driver.count() == 3


def test_what_the_rate_refuses_is_not_counted_as_waiting(driver: Driver) -> None:
    driver.enqueue([NewJob("a", tenant_id="acme") for _ in range(5)])
    with served(driver, rate=0.01, burst=5, depth=20) as server:
        client = server.client("acme", "producer")
        for enqueued, next_line in ((5, 6), (0, 1)):
            answer = client.post(
                "/api/v1/jobs/bulk", content=b'{"type": "a"}\n' * 40, headers={"Content-Type": "application/x-ndjson"}
            )
            told = answer.json()
            assert (answer.status_code, told["type"]) == (429, "/problems/rate-limited"), told
            assert (told["enqueued"], told["next_line"]) == (enqueued, next_line)
        assert driver.count() == 10


def test_a_bulk_within_its_rate_is_taken_until_the_depth_is_reached_and_told_how_many_wait(driver: Driver) -> None:
    driver.enqueue([NewJob("a", tenant_id="acme") for _ in range(5)])
    with served(driver, rate=0.01, burst=100, depth=20) as server:
        answer = server.client("acme", "producer").post(
            "/api/v1/jobs/bulk", content=b'{"type": "a"}\n' * 40, headers={"Content-Type": "application/x-ndjson"}
        )
        told = answer.json()
        assert (told["type"], told["enqueued"], told["next_line"]) == ("/problems/queue-full", 15, 16)
        assert told["detail"].startswith("20 jobs of this tenant wait already")
        assert driver.count() == 20


def test_when_too_many_jobs_of_a_tenant_wait_no_more_are_taken(driver: Driver) -> None:
    driver.enqueue([NewJob("a", tenant_id="acme") for _ in range(4)])
    with served(driver, depth=5) as server:
        client = server.client("acme", "producer")
        answers = [client.post("/api/v1/jobs", json={"type": "a"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 429]
        assert answers[1].json()["type"] == "/problems/queue-full"
        assert "retry-after" in answers[1].headers
        assert server.client("zebra", "producer").post("/api/v1/jobs", json={"type": "a"}).status_code == 201
