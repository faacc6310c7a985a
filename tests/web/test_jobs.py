"""Jobs over HTTP: into the store, and what can be seen and done there."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.web.serving import Served

from taskharbor.core.contract import Driver
from taskharbor.core.model import JobFilter, NewJob, Status
from taskharbor.web.api import shapes


def dead(driver: Driver, count: int = 1, **options: Any) -> list[str]:
    """Jobs that went to the DLQ."""
    ids = [answer.id for answer in driver.enqueue([NewJob("broken", b"{}", **options) for _ in range(count)])]
    queue = options.get("queue", "default")
    for job, lease in driver.reserve(queue, limit=count, types=["broken"]):
        driver.fail(job.id, lease.token, reason="no use")
    return ids


def test_a_job_is_enqueued_for_the_tenant_of_the_token(server: Served) -> None:
    client = server.client("acme", "producer")
    answer = client.post(
        "/api/v1/jobs",
        json={
            "type": "email.send",
            "payload": {"to": "ada@example.com", "ä": [1, 2.5, None]},
            "queue": "mail",
            "priority": 7,
            "delay": 60,
            "timeout": 5,
            "max_attempts": 3,
            "meta": {"trace": "1"},
            "key": "k",
            "unique": ["queue"],
        },
    )
    assert answer.status_code == 201
    found = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{found['id']}"
    assert found["existed"] is False
    job = server.driver.get(found["id"])
    assert json.loads(job.payload) == {"to": "ada@example.com", "ä": [1, 2.5, None]}
    assert (job.tenant_id, job.queue, job.priority, job.max_attempts) == ("acme", "mail", 7, 3)
    assert (job.timeout, job.meta, job.idempotency_key) == (timedelta(seconds=5), {"trace": "1"}, "k")
    assert job.run_at is not None
    assert timedelta(seconds=50) < job.run_at - server.driver.now() <= timedelta(seconds=60)


def test_a_duplicate_answers_with_the_first_job_and_another_payload_conflicts(server: Served) -> None:
    client = server.client("acme", "producer")
    body = {"type": "pay", "payload": {"order": 1}}
    first = client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "order-1"})
    again = client.post("/api/v1/jobs", json={**body, "key": "order-1"})
    other = client.post("/api/v1/jobs", json={**body, "payload": {"order": 2}, "key": "order-1"})
    raised = client.post("/api/v1/jobs", json={**body, "key": "order-1", "on_duplicate": "raise"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "existed": True}
    assert (other.status_code, other.json()["type"]) == (409, "/problems/idempotency-conflict")
    assert (raised.status_code, raised.json()["type"]) == (409, "/problems/duplicate-job")
    assert other.json()["existing_id"] == first.json()["id"]


def test_one_tenants_keys_are_not_anothers(server: Served) -> None:
    body = {"type": "pay", "key": "order-1"}
    answers = [server.client(tenant, "producer").post("/api/v1/jobs", json=body) for tenant in ("acme", "zebra")]
    assert [answer.status_code for answer in answers] == [201, 201]


def test_a_key_in_the_header_and_another_in_the_body_are_refused(server: Served) -> None:
    answer = server.client().post("/api/v1/jobs", json={"type": "a", "key": "x"}, headers={"Idempotency-Key": "y"})
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid")


BAD_BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b'{"type": "a", "payload": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", 400),
    (b'{"type": "a", "payload": ' + b"9" * 5_000 + b"}", 400),
    (b'{"type": "\\ud800"}', 400),
    (b'{"type": "a", "payload": "\\udfff"}', 400),
    (b"[]", 422),
    (b"null", 422),
    (b"{}", 422),
    (b'{"type": ""}', 422),
    (b'{"type": "a\\u0000"}', 422),
    (b'{"type": 1}', 422),
    (b'{"type": "a", "tenant": "zebra"}', 422),
    (b'{"type": "a", "tenant_id": "zebra"}', 422),
    (b'{"type": "a", "queue": "' + b"q" * 256 + b'"}', 422),
    (b'{"type": "a", "payload": NaN}', 422),
    (b'{"type": "a", "payload": 1e999}', 422),
    (b'{"type": "a", "priority": "1"}', 422),
    (b'{"type": "a", "priority": 2147483648}', 422),
    (b'{"type": "a", "priority": 1.5}', 422),
    (b'{"type": "a", "delay": -1}', 422),
    (b'{"type": "a", "delay": 1e300}', 422),
    (b'{"type": "a", "run_at": "tomorrow"}', 422),
    (b'{"type": "a", "run_at": "2030-01-01T00:00:00"}', 422),
    (b'{"type": "a", "run_at": "0001-01-01T00:00:00+14:00"}', 422),
    (b'{"type": "a", "run_at": "2030-01-01T00:00:00Z", "delay": 1}', 422),
    (b'{"type": "a", "expires_at": "2001-01-01T00:00:00Z"}', 422),
    (b'{"type": "a", "max_attempts": 0}', 422),
    (b'{"type": "a", "meta": {"a": 1}}', 422),
    (b'{"type": "a", "meta": {"a": "' + b"x" * 20_000 + b'"}}', 422),
    (b'{"type": "a", "unique": ["colour"]}', 422),
    (b'{"type": "a", "unique": ["queue"]}', 422),
    (b'{"type": "a", "on_duplicate": "return"}', 422),
    (b'{"type": "a", "on_duplicate": "replace"}', 422),
    (b'{"type": "a", "payload": "' + b"x" * 1_048_577 + b'"}', 413),
    (b'{"type": "a", "payload": "' + b"x" * 1_200_000 + b'"}', 413),
]


@pytest.mark.parametrize(("body", "status"), BAD_BODIES, ids=[repr(body[:48])[2:-1] for body, _ in BAD_BODIES])
def test_a_bad_body_is_told_what_is_wrong_and_changes_nothing(standing: Served, body: bytes, status: int) -> None:
    answer = standing.client().post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["status"]) == (status, status), answer.text
    assert not standing.driver.list().jobs


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/json-seq"])
def test_a_body_of_another_type_is_refused(standing: Served, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    assert standing.client().post("/api/v1/jobs", content=b'{"type": "a"}', headers=headers).status_code == 415


def test_a_body_that_grows_beyond_the_bound_is_cut_off_while_it_comes(server: Served) -> None:
    def endless() -> Any:
        yield b'{"type": "a", "payload": "'
        for _ in range(100):
            yield b"x" * 65_536

    answer = server.client().post("/api/v1/jobs", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_header_values_of_any_bytes_are_no_error_of_the_server(server: Served) -> None:
    client = server.client()
    for value, status in ((b"\xff\xfe", 422), ("schlüssel".encode(), 201), (b"k" * 300, 422), (b"", 422)):
        answer = client.post("/api/v1/jobs", json={"type": "a"}, headers=[(b"Idempotency-Key", value)])
        assert answer.status_code == status, value
    assert [job.idempotency_key for job in server.driver.list().jobs] == ["schlüssel"]


def test_a_list_can_be_paged_through_and_meets_every_job_once(server: Served) -> None:
    ids = {answer.id for answer in server.driver.enqueue([NewJob("a", b"{}") for _ in range(250)])}
    client = server.client(role="viewer")
    met: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": "120"} | ({} if cursor is None else {"cursor": cursor})
        page = client.get("/api/v1/jobs", params=query).json()
        met += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert len(met) == 250
    assert set(met) == ids


def test_a_list_is_filtered(server: Served) -> None:
    server.driver.enqueue([NewJob("a", b'{"n": 1}', queue="x"), NewJob("b", b'{"n": 2}', queue="y", tenant_id="acme")])
    dead(server.driver, queue="x")
    client = server.client(role="viewer")

    def types(**query: str) -> list[str]:
        return [job["type"] for job in client.get("/api/v1/jobs", params=query).json()["jobs"]]

    assert types(queue="y") == ["b"]
    assert types(type="a") == ["a"]
    assert types(tenant="acme") == ["b"]
    assert types(status="dlq", error="no use") == ["broken"]
    assert types(text='"n": 2') == ["b"]


@pytest.mark.parametrize(
    "query",
    ["cursor=nonsense", "cursor=%00", "limit=0", "limit=1001", "limit=x", "status=lost", "colour=red", "text=%00"],
)
def test_a_bad_query_is_refused(standing: Served, query: str) -> None:
    answer = standing.client().get(f"/api/v1/jobs?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_job_is_shown_with_its_payload_its_result_and_its_attempts(server: Served) -> None:
    job_id = server.driver.enqueue([NewJob("a", b'{"n": 1}')])[0].id
    ((job, lease),) = server.driver.reserve("default")
    server.driver.ack(job.id, lease.token, result=b"[1]")
    shown = server.client("default", "viewer").get(f"/api/v1/jobs/{job_id}").json()
    shapes.JobDetail.model_validate(shown)
    assert (shown["status"], shown["payload"], shown["result"]) == ("done", {"n": 1}, [1])
    assert [attempt["outcome"] for attempt in shown["attempt_log"]] == ["succeeded"]
    assert lease.token not in json.dumps(shown)


@pytest.mark.parametrize("payload", [b"\xff\x00", b"NaN", b"1e999", b"", b'"' + b"9" * 3, b"[" * 900 + b"]" * 900])
def test_a_payload_that_is_no_json_for_everybody_is_shown_as_base64(server: Served, payload: bytes) -> None:
    import base64

    job_id = server.driver.enqueue([NewJob("a", payload)])[0].id
    shown = server.client().get(f"/api/v1/jobs/{job_id}")
    assert shown.status_code == 200
    body = shown.json()
    if body["payload"] is None:
        assert base64.b64decode(body["payload_base64"]) == payload
    else:
        assert body["payload"] == json.loads(payload)


def test_a_payload_with_half_a_surrogate_pair_can_be_shown(server: Served) -> None:
    job_id = server.driver.enqueue([NewJob("a", b'"\\ud800"')])[0].id
    assert server.client().get(f"/api/v1/jobs/{job_id}").content.count(b'"payload":"\\ud800"') == 1


def test_a_job_whose_id_has_a_slash_can_be_reached(server: Served) -> None:
    server.driver.enqueue([NewJob("a", b"{}", id="2026/11/a b")])
    client = server.client()
    assert client.get("/api/v1/jobs/2026%2F11%2Fa%20b").json()["id"] == "2026/11/a b"
    assert client.post("/api/v1/jobs/2026%2F11%2Fa%20b/cancel").json()["status"] == "cancelled"


def test_a_waiting_job_is_cancelled_a_running_one_is_asked_and_an_ended_one_stays(server: Served) -> None:
    client = server.client("default", "producer")
    waiting, running = (answer.id for answer in server.driver.enqueue([NewJob("a"), NewJob("b", queue="q")]))
    server.driver.reserve("q")
    assert client.post(f"/api/v1/jobs/{waiting}/cancel").json() == {"id": waiting, "status": "cancelled"}
    assert client.post(f"/api/v1/jobs/{running}/cancel").json() == {"id": running, "status": "inflight"}
    (ended,) = dead(server.driver, queue="d")
    answer = client.post(f"/api/v1/jobs/{ended}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/wrong-state")
    assert server.driver.get(ended).status is Status.DLQ


def test_only_a_job_of_the_dlq_is_sent_back(server: Served) -> None:
    client = server.client("default", "operator")
    (job_id,) = dead(server.driver)
    answer = client.post(f"/api/v1/jobs/{job_id}/retry", json={"reset_attempts": True})
    assert answer.json() == {"id": job_id, "status": "ready"}
    assert server.driver.get(job_id).attempts == 0
    again = client.post(f"/api/v1/jobs/{job_id}/retry")
    assert (again.status_code, again.json()["type"]) == (409, "/problems/wrong-state")


def test_the_dlq_is_listed_and_redriven_by_filter(server: Served) -> None:
    mail = dead(server.driver, 3, queue="mail", tenant_id="acme")
    dead(server.driver, 2, queue="other", tenant_id="acme")
    dead(server.driver, 1, queue="mail", tenant_id="zebra")
    client = server.client("acme", "operator")
    assert len(client.get("/api/v1/dlq").json()["jobs"]) == 5
    answer = client.post("/api/v1/dlq/redrive", json={"queue": "mail", "error": "no use", "code": "unrecoverable"})
    assert answer.json() == {"redriven": 3, "ids": sorted(mail)}
    assert client.post("/api/v1/dlq/redrive", json={"limit": 1, "rate": 10}).json()["redriven"] == 1
    left = server.driver.list(JobFilter(status="dlq")).jobs
    assert sorted(job.tenant_id for job in left) == ["acme", "zebra"]


def test_a_redrive_cannot_reach_into_another_tenant(server: Served) -> None:
    ids = dead(server.driver, tenant_id="zebra")
    client = server.client("acme", "operator")
    assert client.post("/api/v1/dlq/redrive", json={"ids": ids}).json() == {"redriven": 0, "ids": []}
    assert client.post("/api/v1/dlq/redrive", json={"tenant": "zebra"}).status_code == 403
    assert server.driver.get(ids[0]).status is Status.DLQ


def test_a_job_that_expires_carries_its_time(server: Served) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    answer = server.client().post("/api/v1/jobs", json={"type": "a", "expires_at": soon.isoformat()})
    assert server.driver.get(answer.json()["id"]).expires_at == soon
