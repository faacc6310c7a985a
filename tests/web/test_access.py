"""Who gets in, and what each role may do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.waiting import until
from tests.web.serving import Served, served

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob, Schedule
from taskharbor.core.tokens import Role
from taskharbor.web.api.bulk import MOST_LINES

BODIES: dict[str, Any] = {
    # What each operation is sent, so that nothing but the token can be wrong with it.
    "/api/v1/jobs": {"type": "a"},
    "/api/v1/leases": {"queues": ["none"]},
    "/api/v1/dlq/redrive": {"queue": "none"},
    "/api/v1/leases/{id}/fail": {"token": "t", "reason": "x"},
    **{f"/api/v1/leases/{{id}}/{how}": {"token": "t"} for how in ("ack", "retry", "extend", "release")},
}
MAY: dict[str, set[str]] = {
    # Roles by operation, where not all of them may.
    "POST /api/v1/jobs": {"producer", "operator", "admin"},
    "POST /api/v1/jobs/bulk": {"producer", "operator", "admin"},
    "POST /api/v1/jobs/{id}/cancel": {"producer", "operator", "admin"},
    "POST /api/v1/jobs/{id}/retry": {"operator", "admin"},
    "POST /api/v1/dlq/redrive": {"operator", "admin"},
    "POST /api/v1/queues/{name}/pause": {"operator", "admin"},
    "POST /api/v1/queues/{name}/resume": {"operator", "admin"},
    "POST /api/v1/schedules/{name}/pause": {"operator", "admin"},
    "POST /api/v1/schedules/{name}/resume": {"operator", "admin"},
    "POST /api/v1/leases": {"worker", "admin"},
    **{
        f"POST /api/v1/leases/{{id}}/{how}": {"worker", "admin"}
        for how in ("ack", "retry", "fail", "extend", "release")
    },
}
ALL_TENANTS_ONLY = {
    "GET /api/v1/workers", "POST /api/v1/queues/{name}/pause", "POST /api/v1/queues/{name}/resume",
}  # fmt: skip
PUBLIC = {"GET /healthz", "GET /readyz", "GET /openapi.json"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from taskharbor.drivers import open_driver

    with open_driver(f"sqlite:///{tmp_path_factory.mktemp('house')}/jobs.db") as opened:
        opened.migrate()
        with served(opened) as running:
            yield running


def operations(server: Served) -> list[tuple[str, str]]:
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def call(
    client: httpx.Client, method: str, path: str, word: str, headers: dict[bytes, bytes] | None = None
) -> httpx.Response:
    more = headers or {}
    address = path.replace("{id}", word).replace("{name}", word)
    if path == "/api/v1/jobs/bulk":
        return client.post(
            address, content=b'{"type": "a"}\n', headers={b"Content-Type": b"application/x-ndjson", **more}
        )
    if path.endswith("/events"):
        address += "?seconds=0"
    return client.request(method, address, json=BODIES.get(path) if method == "POST" else None, headers=more)


def test_every_operation_but_health_needs_a_token_and_says_how(house: Served) -> None:
    house.secret()
    found = operations(house)
    assert len(found) > 20
    client = house.with_token(None)
    for method, path in found:
        for secret in (None, b"nonsense", b"th_0123456789ab_" + b"A" * 43, b"th_\xff"):
            answer = call(client, method, path, "x", {} if secret is None else {b"Authorization": b"Bearer " + secret})
            if f"{method} {path}" in PUBLIC:
                assert answer.status_code in (200, 503), path
                continue
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["type"] == "/problems/unauthenticated"


@pytest.mark.parametrize("role", [role.value for role in Role])
@pytest.mark.parametrize("tenant", ["acme", "*"])
def test_each_role_may_do_what_its_row_of_the_table_says(house: Served, role: str, tenant: str) -> None:
    if (role, tenant) == ("producer", "*"):
        return  # there is no such token
    client = house.client(tenant, role)
    for method, path in operations(house):
        name = f"{method} {path}"
        allowed = role in MAY.get(name, {each.value for each in Role})
        if name in ALL_TENANTS_ONLY and tenant != "*":
            allowed = False
        answer = call(client, method, path, "absent")
        assert (answer.status_code != 403) == allowed, (name, answer.status_code, answer.text)
        assert answer.status_code < 500 or name == "GET /readyz", (name, answer.text)


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_the_job_of_another_tenant_answers_byte_for_byte_as_an_absent_one(house: Served, role: str) -> None:
    driver = house.driver
    (foreign,) = driver.enqueue([NewJob("secret.type", b'"secret payload"', queue="zebra", tenant_id="zebra")])
    ((leased, lease),) = driver.reserve("zebra", tenant="zebra")
    driver.enqueue([NewJob("other", b"{}", queue="zebra-only", tenant_id="zebra")])
    schedule = f"zebra-{role}"
    driver.put_schedule(Schedule(schedule, "* * * * *", "a", tenant_id="zebra"))
    client = house.client("acme", role)
    for method, path in operations(house):
        if "{" not in path or "/queues/" in path:
            continue
        there = schedule if "/schedules/" in path else foreign.id
        body = {**BODIES.get(path, {}), "token": lease.token} if "/leases/" in path else None
        answers = [
            client.request(method, path.replace("{id}", word).replace("{name}", word), json=body)
            for word in (there, "absent-" + there[7:])
        ]
        seen = [(a.status_code, a.content, {k: v for k, v in a.headers.items() if k != "date"}) for a in answers]
        assert seen[0] == seen[1], (method, path)
        assert answers[0].status_code in (403, 404), (method, path, answers[0].text)
    assert driver.get(foreign.id).lease_token == lease.token
    everything = "".join(
        client.get(path).text
        for path in ("/api/v1/jobs", "/api/v1/dlq", "/api/v1/queues", "/api/v1/schedules", "/api/v1/workers",
                     "/api/v1/stats", "/metrics", "/api/v1/jobs?text=secret", "/api/v1/jobs?queue=zebra")
    )  # fmt: skip
    assert "zebra" not in everything
    assert leased.id not in everything


def test_a_token_is_void_from_the_moment_it_is_revoked_or_has_expired(house: Served) -> None:
    secret = house.secret("acme", "viewer")
    client = house.with_token(secret)
    assert client.get("/api/v1/jobs").status_code == 200
    house.driver.revoke_token(secret.split("_")[1])
    assert client.get("/api/v1/jobs").status_code == 401
    short = house.secret("acme", "viewer", expires_at=house.driver.now() + timedelta(seconds=0.2))
    expiring = house.with_token(short)
    deadline = house.driver.now() + timedelta(seconds=10)
    while expiring.get("/api/v1/jobs").status_code == 200:
        assert house.driver.now() < deadline


def test_a_token_for_one_tenant_may_name_no_other(house: Served) -> None:
    client = house.client("acme", "admin")
    assert client.get("/api/v1/jobs?tenant=acme").status_code == 200
    assert client.get("/api/v1/jobs?tenant=zebra").status_code == 403


def test_every_answer_has_the_headers_that_keep_browsers_safe(house: Served) -> None:
    client = house.client()
    for answer in (
        client.get("/api/v1/jobs"),
        client.get("/nothing"),
        client.put("/api/v1/jobs"),
        httpx.get(house.url),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "no-store" in answer.headers["cache-control"]
        assert "server" not in answer.headers or answer.headers["server"] == "uvicorn"


def test_a_wrong_address_or_method_is_a_problem_document(house: Served) -> None:
    client = house.client()
    for answer, status in ((client.get("/api/v1/nothing"), 404), (client.delete("/api/v1/jobs"), 405)):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json()["status"] == status


def test_without_any_token_everybody_here_may_do_everything_until_there_is_one(driver: Driver) -> None:
    with served(driver, open=True) as server:
        client = server.with_token(None)
        assert client.post("/api/v1/jobs", json={"type": "a"}).status_code == 201
        assert client.get("/api/v1/workers").status_code == 200
        secret = server.secret("*", "viewer")
        deadline = driver.now() + timedelta(seconds=20)
        while client.get("/api/v1/jobs").status_code == 200:
            assert driver.now() < deadline
        assert client.get("/api/v1/jobs").status_code == 401
        assert server.with_token(secret).get("/api/v1/jobs").status_code == 200
        driver.revoke_token(secret.split("_")[1])
        assert client.get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "[::1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "Cross-Site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_without_tokens_no_page_from_elsewhere_gets_through(driver: Driver, headers: dict[str, str]) -> None:
    with served(driver, open=True) as server:
        client = server.with_token(None)
        answer = client.post("/api/v1/jobs", json={"type": "a"}, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/foreign-origin")
        if "Host" in headers:
            assert client.get("/api/v1/jobs", headers=headers).status_code == 403
        assert client.get("/api/v1/jobs", headers={"Host": f"localhost:{server.port}"}).status_code == 200
        assert driver.count() == 0


def test_a_token_revoked_while_a_request_waits_is_given_no_work(server: Served) -> None:
    secret = server.secret("acme", Role.WORKER)
    with ThreadPoolExecutor(1) as pool, server.with_token(secret) as client:
        waiting = pool.submit(client.post, "/api/v1/leases", json={"queues": ["late"], "wait": 10}, timeout=20)
        until(lambda: server.app.state.doorbells._bells, "it waits")
        server.driver.revoke_token(secret.split("_")[1])
        server.driver.enqueue([NewJob("a", queue="late", tenant_id="acme")])
        assert waiting.result(20).status_code == 401
    assert server.driver.counts()["ready"] == 1


def test_a_token_revoked_while_a_body_comes_ends_it(server: Served) -> None:
    secret = server.secret("acme", Role.PRODUCER)

    def lines() -> Iterator[bytes]:
        yield b'{"type": "a"}\n' * MOST_LINES
        until(lambda: server.driver.counts()["ready"] >= MOST_LINES, "the first part is there")
        server.driver.revoke_token(secret.split("_")[1])
        yield b'{"type": "a"}\n' * MOST_LINES

    with server.with_token(secret) as client:
        answer = client.post(
            "/api/v1/jobs/bulk", content=lines(), headers={"content-type": "application/x-ndjson"}, timeout=30
        )
    assert (answer.status_code, answer.json()["enqueued"]) == (401, MOST_LINES)
    assert server.driver.counts()["ready"] == MOST_LINES
