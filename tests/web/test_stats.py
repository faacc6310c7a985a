from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.web.feeding import happen
from tests.web.serving import Served

from taskharbor import NewJob
from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreUnavailable
from taskharbor.core.fleet import Worker
from taskharbor.web.api.stats import StatsShape
from taskharbor.web.problems import MEDIA_TYPE


def test_a_question_sees_what_was_done_just_before(server: Served) -> None:
    client = server.client()
    for number in range(1, 4):
        happen(server.driver, "fail", queue="mail", run_s=0.25)
        stats = client.get("/api/v1/stats").json()
        assert stats["counts"]["dlq"] == stats["recent"]["attempts"] == stats["recent"]["failed"] == number
        (mail,) = stats["queues"]
        assert mail["counts"]["dlq"] == mail["recent"]["failed"] == number
        assert mail["recent"]["run"]["p50"] == pytest.approx(0.25, rel=0.25)
    StatsShape.model_validate(stats)


def test_it_says_what_the_command_line_says(
    server: Served, driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = driver.now()
    happen(driver, count=3, queue="mail")
    happen(driver, "fail", queue="mail")
    driver.enqueue([NewJob("t", queue="images"), NewJob("t", queue="images", run_at=now + timedelta(days=1))])
    driver.pause("empty")
    driver.heartbeat(Worker("w1", slots=7, started_at=now))
    driver.heartbeat(Worker("w0", slots=9, started_at=now), now=now - timedelta(minutes=5))
    driver.elect("fleet", "w1")
    assert main(["--url", f"sqlite:///{tmp_path}/jobs.db", "--json", "stats"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    ours = server.client(role="viewer").get("/api/v1/stats").json()
    for key in ("counts", "workers", "leaders"):
        assert ours[key] == theirs[key]
    for name in ("attempts", "failed", "failure_rate", "window_s"):
        assert ours["recent"][name] == theirs["recent"][name]
    assert [(queue["name"], queue["paused"], queue["counts"]) for queue in ours["queues"]] == [
        (queue["name"], queue["paused"], queue["counts"]) for queue in theirs["queues"]
    ]


def test_a_tenant_sees_its_own_jobs_alone_and_no_workers(server: Served) -> None:
    happen(server.driver, queue="theirs", tenant="other")
    happen(server.driver, queue="shared", tenant="acme", count=2)
    server.driver.pause("secret-plans")
    server.driver.pause("shared")
    stats = server.client("acme", "viewer").get("/api/v1/stats").json()
    assert [(queue["name"], queue["paused"]) for queue in stats["queues"]] == [("shared", True)]
    assert stats["recent"]["attempts"] == 2
    assert (stats["workers"], stats["leaders"]) == (None, None)
    assert "theirs" not in json.dumps(stats)


def test_a_token_of_all_tenants_may_look_at_one_and_a_tenant_at_itself_alone(server: Served) -> None:
    happen(server.driver, tenant="acme")
    happen(server.driver, tenant="other", count=2)
    everyone = server.client()
    assert everyone.get("/api/v1/stats").json()["counts"]["done"] == 3
    assert everyone.get("/api/v1/stats", params={"tenant": "other"}).json()["counts"]["done"] == 2
    acme = server.client("acme", "viewer")
    assert acme.get("/api/v1/stats", params={"tenant": "acme"}).json()["counts"]["done"] == 1
    assert acme.get("/api/v1/stats", params={"tenant": "other"}).status_code == 403
    assert everyone.get("/api/v1/stats", params={"tenat": "x"}).status_code == 422


def test_stats_need_a_token_and_health_does_not(server: Served) -> None:
    nobody = server.with_token(None)
    assert nobody.get("/api/v1/stats").status_code == 401
    assert nobody.get("/healthz").json() == {"status": "ok"}
    assert nobody.get("/readyz").json() == {"status": "ready"}


def test_head_is_answered_like_get_without_the_body(server: Served) -> None:
    nobody, someone = server.with_token(None), server.client()
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/jobs", "/api/v1/queues", "/api/v1/jobs/absent"):
        for client in (nobody, someone):
            head, get = client.head(path), client.get(path)
            assert (head.status_code, head.content) == (get.status_code, b""), path
            assert head.headers["content-type"] == get.headers["content-type"], path
    assert nobody.head("/readyz").headers["content-length"] == str(len(nobody.get("/readyz").content))
    for path in ("/api/v1/events", "/api/v1/leases", "/api/v1/jobs/bulk/cancel"):
        assert someone.head(path).status_code == 405, path


def test_a_server_without_its_store_is_alive_and_not_ready(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("postgresql://db:5432 is gone, password hunter2")

    monkeypatch.setattr(server.app.state.driver, "get_tokens", away)
    nobody = server.with_token(None)
    assert nobody.get("/healthz").status_code == 200
    answer = nobody.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert int(answer.headers["retry-after"]) > 0
    assert "hunter2" not in answer.text
    monkeypatch.undo()
    assert nobody.get("/readyz").status_code == 200


def test_readiness_is_told_in_time_even_if_the_store_does_not_answer(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.web.api.health.LONGEST_S", 0.2)
    asked: list[float] = []
    over = threading.Event()

    def hangs(*_: Any) -> Any:
        asked.append(time.monotonic())
        over.wait(20)
        return []

    monkeypatch.setattr(server.app.state.driver, "get_tokens", hangs)
    nobody = server.with_token(None)
    began = time.monotonic()
    try:
        assert [nobody.get("/readyz").status_code for _ in range(3)] == [503] * 3
        assert time.monotonic() - began < 1.9
    finally:
        over.set()
    assert len(asked) == 1, "those who ask meanwhile share the question"
