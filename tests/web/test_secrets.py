"""No secret is told to anybody: not in a page, not in a problem, not in a metric, and not in the log."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.web import houses
from tests.web.serving import Served, served
from tests.web.visiting import Visitor

from taskharbor.core.logged import JsonFormatter, TextFormatter
from taskharbor.drivers.memory import MemoryDriver

PASSWORD = "pa55-of-the-store"
SIGNING = "the-secret-that-signs-sessions"
STORE = f"postgresql://clerk:{PASSWORD}@db.internal:5432/jobs"
API = "/api/v1"


FAILING = {"list", "census", "queues", "get", "schedules", "workers", "enqueue", "list_workflows", "reserve"}


class Breaking(MemoryDriver):
    """Fails in every call but those that the door needs, when it is told to; its errors tell what they should not."""

    broken = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _fail if name in FAILING and super().__getattribute__("broken") else found


def _fail(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(f"cannot use {STORE} with {SIGNING}")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that anybody logs, in both formats."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers = [logging.StreamHandler(stream), logging.StreamHandler(stream)]
    handlers[0].setFormatter(TextFormatter())
    handlers[1].setFormatter(JsonFormatter())
    level = root.level
    logging.getLogger("taskharbor").setLevel(logging.DEBUG)
    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    for theirs in ("httpx", "httpcore"):  # the client's own lines are not the server's
        logging.getLogger(theirs).setLevel(logging.CRITICAL)
    yield stream
    for handler in handlers:
        root.removeHandler(handler)
    for theirs in ("httpx", "httpcore"):
        logging.getLogger(theirs).setLevel(logging.NOTSET)
    root.setLevel(level)


@pytest.fixture
def server() -> Iterator[Served]:
    driver = Breaking()
    houses.furnish(driver, "acme")
    with served(driver, url=STORE, secret=SIGNING) as running:
        yield running


def addresses(server: Served) -> Iterator[tuple[str, str]]:
    for route in houses.routes(server.app):
        method, path = route.split()
        yield method, re.sub("{.*?}", "acme-0001", path) + ("?seconds=0" if path.endswith("/events") else "")


def visit_all(server: Served, secret: str, visitor: Visitor, csrf: str) -> Iterator[tuple[str, httpx.Response]]:
    """Every address with every method it has: as a program, as a person, with a wrong token, and with none."""
    wrong = secret[:-4] + "AAAA"
    programs = [server.with_token(token) for token in (secret, wrong, None)]
    for method, path in addresses(server):
        if path == "/live":
            with visitor.http.stream("GET", path) as answer:
                lines = iter(answer.iter_lines())
                text = next(line for line in lines if line.startswith(("data:", "event:")))
            yield path, httpx.Response(200, text=text, headers=answer.headers)
            continue
        for program in programs:
            body: dict[str, Any] = {} if method == "GET" else {"json": {"type": "a", "token": wrong, "note": secret}}
            yield path, program.request(method, path, **body)
        if path != "/logout":
            data = {} if method == "GET" else {"data": {"csrf": csrf, "token": wrong, "id": wrong, "queue": "q"}}
            yield path, visitor.http.request(method, path, **data)


def unsaid(secrets: list[str], text: str, where: str) -> None:
    for secret in secrets:
        assert secret not in text, f"{secret[:12]}… is told in {where}"


def test_no_secret_is_in_any_answer_or_in_the_log(server: Served, log: io.StringIO) -> None:
    secret = server.secret("*", "admin")
    revoked = server.secret("*", "viewer")
    server.driver.revoke_token(revoked.split("_")[1])
    visitor = Visitor(server, secret)
    csrf = visitor.get("/queues").form("/theme")["fields"]["csrf"]
    session = visitor.http.cookies["taskharbor_session"]
    hashes = [token.secret_hash for token in server.driver.tokens()]
    lease = server.driver.get(
        next(each.id for each in server.driver.list().jobs if each.status == "inflight")
    ).lease_token
    assert lease
    never = [secret.split("_", 2)[2], revoked.split("_", 2)[2], PASSWORD, SIGNING, "db.internal", lease, *hashes]
    count = 0
    for path, answer in visit_all(server, secret, visitor, csrf):
        unsaid(never, answer.text, path)
        unsaid([*never, secret], json.dumps(dict(answer.headers)), path)
        unsaid([session], answer.text, path)
        count += 1
    assert count > 150
    assert server.with_token(revoked).get(f"{API}/jobs").status_code == 401
    said = log.getvalue()
    assert f"GET {API}/jobs 200" in said
    unsaid([*never, session, csrf, secret[-8:]], said, "the log")


def test_a_mistake_of_ours_is_told_by_a_number_alone_on_every_route(server: Served, log: io.StringIO) -> None:
    secret = server.secret("*", "admin")
    visitor = Visitor(server, secret)
    server.driver.broken = True  # type: ignore[attr-defined]
    client = server.with_token(secret)
    failed = 0
    for path in (f"{API}/jobs", f"{API}/jobs/x", f"{API}/queues", f"{API}/schedules", f"{API}/workers", f"{API}/stats"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json"), path
        failed += _check_number(answer, log)
    for path, body in ((f"{API}/jobs", {"type": "a"}), (f"{API}/leases", {"queues": ["q"]})):
        failed += _check_number(client.post(path, json=body), log)
    for path in ("/jobs", "/jobs/x", "/dlq", "/queues", "/workers", "/schedules", "/workflows"):
        answer = visitor.http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (500, "text/html; charset=utf-8"), path
        failed += _check_number(answer, log)
    assert failed == 15
    server.driver.broken = False  # type: ignore[attr-defined]
    assert client.get(f"{API}/jobs").status_code == 200


def _check_number(answer: httpx.Response, log: io.StringIO) -> int:
    assert answer.status_code == 500
    unsaid([PASSWORD, SIGNING, "RuntimeError", "Traceback"], answer.text, str(answer.request.url))
    number = re.search(r"urn:uuid:[0-9a-f-]{36}", answer.text)
    assert number
    lines = [line for line in log.getvalue().splitlines() if number[0] in line]
    assert len(lines) == 2, "once in each format"
    assert "RuntimeError" in log.getvalue()
    return 1


def test_settings_keep_their_secrets_to_themselves(server: Served) -> None:
    settings = server.app.state.settings
    assert PASSWORD not in repr(settings)
    assert SIGNING not in repr(settings)
    assert PASSWORD not in repr(vars(server.app.state))
