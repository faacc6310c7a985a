from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.feeding import happen
from tests.web.serving import Served
from tests.web.visiting import Visitor

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreUnavailable
from taskharbor.core.tokens import read_secret
from taskharbor.drivers import open_driver
from taskharbor.web import Settings
from taskharbor.web.settings import ENVIRONMENT
from taskharbor.web.streaming import event, mark

PATIENCE_S = 20.0
LOOK_S = 0.05


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens is told soon, for the sake of quick tests."""
    monkeypatch.setattr("taskharbor.web.following.LOOK_S", LOOK_S)


class Stream:
    """Reads events one by one; the last id that came is where a client would go on."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id: str | None = None
        self._lines = response.iter_lines()

    def events(self) -> Iterator[dict[str, Any]]:
        data: list[str] = []
        for line in self._lines:
            if line.startswith("id:"):
                self.last_id = line[3:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].strip())
            elif not line and data:
                yield json.loads("\n".join(data))
                data = []

    def take(self, count: int) -> list[dict[str, Any]]:
        events = self.events()
        return [next(events) for _ in range(count)]


@contextmanager
def streaming(client: httpx.Client, last_id: str | None = None, **params: Any) -> Iterator[Stream]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    with client.stream("GET", "/api/v1/events", headers=headers, params=params, timeout=PATIENCE_S) as response:
        assert response.status_code == 200, response.read()
        yield Stream(response)


def test_facts_come_as_they_happen(server: Served) -> None:
    with streaming(server.client()) as stream:
        (id,) = happen(server.driver, "fail", queue="mail", tenant="acme", wait_s=2, run_s=0.5, code="bad_payload")
        (fact,) = stream.take(1)
    assert stream.response.headers["content-type"].startswith("text/event-stream")
    assert fact["at"]
    fact.pop("at")
    assert fact == {
        "job_id": id, "type": "t", "queue": "mail", "tenant_id": "acme", "outcome": "dead", "status": "dlq",
        "attempt": 1, "worker": None, "code": "bad_payload", "wait_s": 2.0, "run_s": 0.5,
    }  # fmt: skip


def test_whoever_comes_back_has_missed_nothing(server: Served) -> None:
    client = server.client()
    ids: list[str] = []
    seen: list[str] = []
    with streaming(client) as stream:
        ids += happen(server.driver, count=3)
        seen += [fact["job_id"] for fact in stream.take(3)]
    last_id = stream.last_id
    for _ in range(5):
        ids += happen(server.driver, count=4)
        with streaming(client, last_id) as stream:
            seen += [fact["job_id"] for fact in stream.take(4)]
            ids += happen(server.driver, count=2)
            seen += [fact["job_id"] for fact in stream.take(2)]
        last_id = stream.last_id
    assert sorted(seen) == sorted(ids), "none is missing and none came twice, for each page was read to its end"


def test_a_quiet_tenant_comes_back_to_where_the_others_are(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.web.api.events.KEEP_ALIVE_S", 0.05)
    with streaming(server.client("acme", "viewer"), seconds=20) as stream:
        before = stream.last_id
        happen(server.driver, tenant="other", count=5)
        ends = time.monotonic() + PATIENCE_S
        for line in stream._lines:
            assert time.monotonic() < ends
            if line.startswith("id:") and line[3:].strip() not in (before, ""):
                if before is not None:
                    break
                before = line[3:].strip()


def test_a_tenant_sees_its_own_facts_alone(server: Served) -> None:
    client = server.client("acme", "viewer")
    with streaming(client) as stream:
        happen(server.driver, tenant="other", queue="theirs", count=5)
        mine = happen(server.driver, tenant="acme")
        assert [fact["job_id"] for fact in stream.take(1)] == mine
    with streaming(client, stream.last_id) as stream:
        happen(server.driver, tenant="other", count=5)
        more = happen(server.driver, tenant="acme")
        assert [fact["job_id"] for fact in stream.take(1)] == more


def test_a_stream_may_be_of_one_queue_and_of_limited_time(server: Served) -> None:
    with streaming(server.client(), queue="mail", seconds=1) as stream:
        happen(server.driver, queue="images")
        ids = happen(server.driver, queue="mail", count=2)
        assert sorted(fact["job_id"] for fact in stream.events()) == sorted(ids)


@pytest.mark.parametrize("last_id", ["nonsense", "0", "a:b", ":", "'; DROP TABLE th_jobs; --", "x" * 501])
def test_an_id_that_is_not_ours_is_refused(server: Served, last_id: str) -> None:
    answer = server.client().get("/api/v1/events", headers={"Last-Event-ID": last_id})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_streams_need_a_token_and_take_no_unknown_words(server: Served) -> None:
    assert server.with_token(None).get("/api/v1/events").status_code == 401
    assert server.client().get("/api/v1/events", params={"que": "x"}).status_code == 422


def test_there_are_only_so_many_streams_and_a_closed_one_makes_room(server: Served) -> None:
    server.app.state.event_streams._limit = 2
    client = server.client()
    with streaming(client):
        with streaming(client):
            answer = client.get("/api/v1/events")
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) > 0
        ends = time.monotonic() + PATIENCE_S
        while server.app.state.event_streams.count > 1:
            assert time.monotonic() < ends
            time.sleep(0.01)
        with streaming(client):
            pass


def test_a_revoked_token_ends_its_stream(server: Served) -> None:
    secret = server.secret("acme", "viewer")
    known = read_secret(secret)
    assert known is not None
    with streaming(server.with_token(secret)) as stream:
        happen(server.driver, tenant="acme")
        stream.take(1)
        server.driver.revoke_token(known[0])
        happen(server.driver, tenant="acme")
        assert list(stream.events()) == []


def test_data_with_line_breaks_stays_data() -> None:
    assert event("a\nid: forged\r\nb\rc", name="fact", id="7") == (
        b"id: 7\nevent: fact\ndata: a\ndata: id: forged\ndata: b\ndata: c\n\n"
    )
    assert mark("7") == b"id: 7\n\n"


def test_many_streams_read_the_store_no_more_than_one(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str | None] = []
    latest = server.app.state.driver.latest

    def counted(after: str | None = None, limit: int = 1000) -> Any:
        reads.append(after)
        return latest(after, limit)

    monkeypatch.setattr(server.app.state.driver, "latest", counted)
    client = server.client()
    answers: list[int] = []

    def watch() -> None:
        with streaming(client) as stream:
            ready.wait(PATIENCE_S)
            answers.append(len(stream.take(30)))

    ready = threading.Barrier(9)
    watchers = [threading.Thread(target=watch) for _ in range(8)]
    for each in watchers:
        each.start()
    ready.wait(PATIENCE_S)
    reads.clear()
    began = time.monotonic()
    for _ in range(3):
        happen(server.driver, count=10)
    for each in watchers:
        each.join(PATIENCE_S)
    assert answers == [30] * 8
    assert len(reads) <= (time.monotonic() - began) / LOOK_S + 4, "the feed alone reads"


@pytest.mark.process
def test_a_signal_ends_any_server_of_ours_though_streams_are_open(tmp_path: Path) -> None:
    """`taskharbor serve` looks after that itself; uvicorn, which an application may be run by, does not."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    driver: Driver = open_driver(url)
    driver.migrate()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "uvicorn", "--factory", "taskharbor.web:from_environment", "--port", str(port),
        "--log-level", "warning", "--no-access-log",
    ]  # fmt: skip
    settings = Settings(url, port=port, open=True).to_text()
    with subprocess.Popen(command, env={**os.environ, ENVIRONMENT: settings}, stderr=subprocess.PIPE) as server:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                _until_up(client)
                with streaming(client) as one, streaming(client) as other:
                    happen(driver)
                    one.take(1)
                    other.take(1)
                    began = time.monotonic()
                    server.send_signal(signal.SIGTERM)
                    assert list(one.events()) == []
                    assert list(other.events()) == []
                server.wait(PATIENCE_S)
                took = time.monotonic() - began
        finally:
            server.kill()
            assert server.stderr is not None
            errors = server.stderr.read().decode()
    driver.close()
    assert took < 5
    assert "Traceback" not in errors


def _until_up(client: httpx.Client) -> None:
    ends = time.monotonic() + PATIENCE_S
    while True:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            assert time.monotonic() < ends, "the server did not start"
        time.sleep(0.05)


def test_facts_that_come_while_the_store_cannot_tell_about_the_token_are_told_later(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.web.api.events.AFTER_TROUBLE_S", 0.05)
    client = server.client()
    asked = []

    def away(*args: Any) -> Any:
        asked.append(args)
        raise StoreUnavailable("away")

    with streaming(client, seconds=5) as stream:
        (first,) = happen(server.driver, queue="a")
        assert stream.take(1)[0]["job_id"] == first
        with monkeypatch.context() as outage:
            outage.setattr(server.driver, "get_tokens", away)
            (second,) = happen(server.driver, queue="b")
            deadline = time.monotonic() + PATIENCE_S
            while not asked:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        (third,) = happen(server.driver, queue="c")
        assert [each["job_id"] for each in stream.take(2)] == [second, third]


def test_a_stream_for_so_many_seconds_ends_however_much_happens(server: Served) -> None:
    stop = threading.Event()

    def keep_on() -> None:
        while not stop.is_set():
            happen(server.driver, queue="busy", count=5)

    worker = threading.Thread(target=keep_on)
    worker.start()
    try:
        began = time.monotonic()
        with streaming(server.client(), seconds=0.5) as stream:
            assert list(stream.events())
        assert time.monotonic() - began < 5
    finally:
        stop.set()
        worker.join()


def test_the_overview_stands_still_for_a_session_whose_token_is_revoked(server: Served) -> None:
    secret = server.secret("acme", "viewer")
    visitor = Visitor(server, secret)
    with visitor.http.stream("GET", "/live", timeout=PATIENCE_S) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("data:"))
        server.driver.revoke_token(secret.split("_")[1])
        # One that was under way may still come.
        assert sum(line.startswith("data:") for line in lines) <= 1
    assert visitor.http.get("/jobs").headers["location"].startswith("/login")
