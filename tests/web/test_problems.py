"""Errors as clients see them, and what the log has of them."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import httpx
import pytest
from tests.web.serving import served

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreFull, StoreUnavailable
from taskharbor.core.logged import JsonFormatter
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.web.problems import KINDS


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
