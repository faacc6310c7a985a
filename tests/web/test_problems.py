"""Errors as clients see them, and what the log has of them."""

from __future__ import annotations

import io
import json
import logging
import time
from typing import Any

import httpx
import pytest
from tests.web.serving import served

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DriverClosed, StoreFull, StoreMoved, StoreUnavailable
from taskharbor.core.logged import JsonFormatter
from taskharbor.core.model import NewJob
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.moving import End, Move
from taskharbor.web.problems import KINDS, Troubles


class Broken(MemoryDriver):
    """A store that fails as it is told to."""

    error: Exception | None = None

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().enqueue(*args, **kwargs)

    def list(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().list(*args, **kwargs)


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("taskharbor")
    logger.addHandler(handler)  # taken away again by the fixture that all tests have
    logger.setLevel(logging.INFO)
    return stream


def test_a_mistake_of_ours_is_a_500_without_details_and_its_id_finds_the_log_line(log: io.StringIO) -> None:
    with served(Broken()) as server:
        server.driver.error = ZeroDivisionError("secret detail")  # type: ignore[attr-defined]
        answer = server.client().get("/api/v1/jobs?text=needle")
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert told["instance"].startswith("urn:uuid:")
    assert "secret detail" not in answer.text
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    found = [line for line in lines if told["instance"] in line["message"]]
    assert len(found) == 1
    assert "ZeroDivisionError" in found[0]["exception"]
    assert "needle" not in log.getvalue()


@pytest.mark.parametrize("error", [StoreUnavailable("host db.internal is away"), StoreFull("no room on /var")])
def test_a_store_that_is_away_is_a_503_that_tells_nothing_of_it(error: Exception) -> None:
    with served(Broken()) as server:
        server.driver.error = error  # type: ignore[attr-defined]
        client = server.client()
        for answer in (client.get("/api/v1/jobs"), client.post("/api/v1/jobs", json={"type": "a"})):
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert "db.internal" not in answer.text
            assert "/var" not in answer.text
        server.driver.error = None  # type: ignore[attr-defined]
        assert client.post("/api/v1/jobs", json={"type": "a"}).status_code == 201


def test_a_server_whose_store_was_moved_away_says_so_to_clients_in_its_log_and_to_load_balancers(
    log: io.StringIO, driver: Driver
) -> None:
    driver.enqueue([NewJob("a")])
    with served(driver) as server, MemoryDriver() as new:
        client = server.client()
        assert client.get("/readyz").status_code == 200
        Move(End(driver, "old"), End(new, "postgresql://app:***@db.internal/jobs")).run()  # type: ignore[arg-type]
        deadline = time.monotonic() + 10
        while client.get("/readyz").status_code == 200:
            assert time.monotonic() < deadline  # the answer before lasts for half a second
        for _ in range(2):
            for answer in (
                client.get("/readyz"),
                client.post("/api/v1/jobs", json={"type": "a"}),
                client.post(
                    "/api/v1/jobs/bulk", content=b'{"type": "a"}', headers={"Content-Type": "application/x-ndjson"}
                ),
                client.post("/api/v1/leases", json={"queues": ["default"]}),
            ):
                told = answer.json()
                assert (answer.status_code, told["type"]) == (503, "/problems/store-moved"), told
                assert "start it on the new one" in told["detail"]
                assert "db.internal" not in answer.text
        assert client.get("/api/v1/jobs").status_code == 200
        assert client.get("/healthz").status_code == 200
    said = [json.loads(line)["message"] for line in log.getvalue().splitlines() if "was moved to" in line]
    assert len(said) == 1
    assert "db.internal" in said[0]


def test_a_store_that_is_away_is_in_the_log_once_a_minute() -> None:
    now = 0.0
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(f"{now:g} {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger("taskharbor.web").addHandler(handler)
    try:
        troubles = Troubles(clock=lambda: now)
        for second in (0.0, 1.0, 59.0, 61.0):
            now = second
            troubles.say(StoreUnavailable("no route"))
            troubles.say(StoreMoved("moved to x"))
            troubles.say(DriverClosed("closed"))
    finally:
        logging.getLogger("taskharbor.web").removeHandler(handler)
    assert [each.split()[0] for each in said if "no route" in each] == ["0", "61"]
    assert [each.split()[0] for each in said if "moved to x" in each] == ["0"]
    assert not [each for each in said if "closed" in each]


def test_the_access_log_has_neither_queries_nor_tokens(log: io.StringIO, driver: Driver) -> None:
    with served(driver) as server:
        secret = server.secret("acme", "viewer")
        server.with_token(secret).get("/api/v1/jobs?text=needle&cursor=after:x")
        server.with_token(None).get("/api/v1/jobs/a%0Ab")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    requests = [line for line in lines if line["logger"] == "taskharbor.web.access"]
    assert requests[0]["message"].split()[:3] == ["GET", "/api/v1/jobs", "200"]
    assert requests[0]["tenant"] == "acme"
    assert f"token {secret.split('_')[1]}" in requests[0]["message"]
    assert "needle" not in log.getvalue()
    assert secret not in log.getvalue()
    assert secret.split("_", 2)[2] not in log.getvalue()


def test_the_description_has_a_schema_for_every_answer(driver: Driver) -> None:
    with served(driver) as server:
        document = httpx.get(f"{server.url}/openapi.json").json()
    schemas = document["components"]["schemas"]
    named = json.dumps(document)
    for reference in {part.split('"')[0] for part in named.split("#/components/schemas/")[1:]}:
        assert reference in schemas
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                assert response.get("content"), (method, path, status)
                if int(status) >= 400:
                    assert "application/problem+json" in response["content"], (method, path, status)
                for media in response["content"].values():
                    assert media.get("schema"), (method, path, status)
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_kinds_of_problems_have_statuses_of_errors() -> None:
    assert all(400 <= kind.status < 600 and kind.title for kind in KINDS.values())
