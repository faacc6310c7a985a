"""Workers over HTTP: leases, and how jobs end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.waiting import until
from tests.web.serving import Served, served

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.model import NewJob, Status
from taskharbor.web.api import shapes
from taskharbor.web.api.schemas import LeaseRequest
from taskharbor.web.registering import Registry


@pytest.fixture
def worker(server: Served) -> httpx.Client:
    return server.client("acme", "worker")


def enqueue(server: Served, *types: str, tenant: str = "acme", **options: Any) -> list[str]:
    jobs = [NewJob(type, b'{"n": 1}', tenant_id=tenant, **options) for type in types or ("a",)]
    return [answer.id for answer in server.driver.enqueue(jobs)]


def reserve(client: httpx.Client, **asked: Any) -> list[dict[str, Any]]:
    answer = client.post("/api/v1/leases", json={"queues": ["default"], **asked})
    assert answer.status_code == 200, answer.text
    shapes.LeasePage.model_validate(answer.json())
    leases: list[dict[str, Any]] = answer.json()["leases"]
    return leases


def settle(worker: httpx.Client, lease: dict[str, Any], how: str, **more: Any) -> httpx.Response:
    return worker.post(f"/api/v1/leases/{lease['id']}/{how}", json={"token": lease["token"], **more})


def test_a_lease_brings_the_job_its_payload_and_a_token(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker, worker="node-1", lease_for=60)
    assert (lease["id"], lease["job"]["payload"], lease["fence"]) == (job_id, {"n": 1}, 1)
    job = server.driver.get(job_id)
    assert (job.status, job.lease_owner, job.lease_token) == (Status.INFLIGHT, "node-1", lease["token"])
    assert reserve(worker) == []


def test_an_ack_keeps_the_result_and_may_be_sent_twice(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker)
    answers = [settle(worker, lease, "ack", result={"sum": 3}) for _ in range(2)]
    assert [answer.json()["status"] for answer in answers] == ["done", "done"]
    assert server.driver.get(job_id).result == b'{"sum":3}'


def test_a_failed_attempt_is_retried_and_the_last_one_goes_to_the_dlq(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server, max_attempts=2)
    (lease,) = reserve(worker)
    again = settle(worker, lease, "retry", error="boom", delay=0).json()
    assert (again["status"], server.driver.get(job_id).attempts) == ("ready", 1)
    (lease,) = reserve(worker)
    assert settle(worker, lease, "retry", error="boom again").json()["status"] == "dlq"
    job = server.driver.get(job_id)
    assert (job.status, job.dlq_code, job.dlq_reason) == (Status.DLQ, "max_attempts", "boom again")
    assert settle(worker, lease, "retry", error="boom again").json()["status"] == "dlq"
    assert len(server.driver.attempts(job_id)) == 2


def test_without_a_delay_the_usual_backoff_decides(server: Served, worker: httpx.Client) -> None:
    enqueue(server)
    (lease,) = reserve(worker)
    answer = settle(worker, lease, "retry", error="boom").json()
    job = server.driver.get(lease["id"])
    assert job.run_at is None or job.run_at.isoformat() == answer["run_at"]
    assert job.due_at >= job.created_at


def test_a_fail_goes_to_the_dlq_at_once(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker)
    assert settle(worker, lease, "fail", reason="bad \x00 input", code="bad_payload").json()["status"] == "dlq"
    job = server.driver.get(job_id)
    assert (job.dlq_code, job.dlq_reason) == ("bad_payload", "bad \N{REPLACEMENT CHARACTER} input")


def test_a_release_holds_nothing_against_the_job(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker)
    assert settle(worker, lease, "release").json()["status"] == "ready"
    (lease,) = reserve(worker)
    later = settle(worker, lease, "release", delay=3600).json()
    job = server.driver.get(job_id)
    assert (job.attempts, job.forgiven, later["run_at"]) == (0, 2, job.due_at.isoformat())
    assert reserve(worker) == []


def test_an_extend_keeps_the_lease_tells_progress_and_hears_of_a_cancel(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker, lease_for=5)
    first = settle(worker, lease, "extend", lease_for=600, progress={"done": 1, "total": 4, "note": "so far"}).json()
    assert first["expires_at"] > lease["expires_at"]
    assert first["cancel_requested"] is False
    progress = server.driver.get(job_id).progress
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (1, 4, "so far")
    server.driver.cancel(job_id)
    assert settle(worker, lease, "extend").json()["cancel_requested"] is True
    assert settle(worker, lease, "release").json()["status"] == "cancelled"


@pytest.mark.parametrize("how", ["ack", "retry", "fail", "release", "extend"])
def test_a_lease_that_was_lost_settles_nothing(server: Served, worker: httpx.Client, how: str) -> None:
    more = {"reason": "x"} if how == "fail" else {}
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker)
    other = settle(worker, {**lease, "token": "0" * 32}, how, **more)
    assert (other.status_code, other.json()["type"]) == (409, "/problems/lease-mismatch")
    assert settle(worker, {**lease, "id": "absent"}, how, **more).status_code == 404
    server.driver.release(job_id, lease["token"])
    gone = settle(worker, lease, how, **more)
    assert (gone.status_code, gone.json()["type"]) == (409, "/problems/not-inflight")
    assert server.driver.get(job_id).attempts == 0


def test_a_lease_that_ended_is_told_so(server: Served, worker: httpx.Client) -> None:
    enqueue(server)
    (lease,) = reserve(worker, lease_for=0.001)
    ends = server.driver.get(lease["id"]).lease_expires_at
    assert ends is not None
    until(lambda: server.driver.now() > ends, "the store's own clock has passed the end of the lease")
    answer = settle(worker, lease, "ack")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/lease-expired")


def test_a_worker_of_one_tenant_gets_and_settles_only_its_jobs(server: Served, worker: httpx.Client) -> None:
    (foreign,) = enqueue(server, tenant="zebra")
    (own,) = enqueue(server)
    assert [lease["id"] for lease in reserve(worker, limit=10)] == [own]
    other = server.client("zebra", "worker")
    (lease,) = reserve(other)
    assert lease["id"] == foreign
    stolen = settle(worker, lease, "ack")
    absent = settle(worker, {**lease, "id": "absent"}, "ack")
    assert (stolen.status_code, stolen.content) == (404, absent.content)
    assert settle(server.client(role="worker"), lease, "ack").json()["status"] == "done"


def test_types_and_priorities_are_kept_to(server: Served, worker: httpx.Client) -> None:
    enqueue(server, "a", "b")
    enqueue(server, "c", priority=9)
    assert [lease["job"]["type"] for lease in reserve(worker, types=["b", "c"], limit=5)] == ["c", "b"]


def test_many_jobs_come_in_one_answer(server: Served, worker: httpx.Client) -> None:
    enqueue(server, *["a"] * 700)
    assert len(reserve(worker, limit=600)) == 600


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"queues": []},
        {"queues": ["q"], "limit": 1001},
        {"queues": ["q"], "wait": 31},
        {"queues": ["q"], "lease_for": 0},
        {"queues": ["\x00"]},
    ],
)
def test_a_bad_request_for_leases_is_refused(standing: Served, body: dict[str, Any]) -> None:
    assert standing.client("acme", "worker").post("/api/v1/leases", json=body).status_code == 422


def test_a_result_that_is_too_large_is_refused_and_harms_no_other(server: Served, worker: httpx.Client) -> None:
    enqueue(server, *["a"] * 8)
    leases = reserve(worker, limit=8)

    def ack(number: int) -> int:
        result = "x" * 1_060_000 if number == 3 else number
        return settle(worker, leases[number], "ack", result=result).status_code

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ack, range(8))) == [200, 200, 200, 413, 200, 200, 200, 200]


def test_a_request_that_waits_is_answered_when_a_job_comes(server: Served, worker: httpx.Client) -> None:
    found: list[list[dict[str, Any]]] = []
    waiting = threading.Thread(target=lambda: found.append(reserve(worker, wait=20)))
    began = time.monotonic()
    waiting.start()
    until(lambda: server.app.state.doorbells._bells, "it waits")
    (job_id,) = enqueue(server)
    waiting.join(20)
    assert [lease["id"] for lease in found[0]] == [job_id]
    assert time.monotonic() - began < 10


def test_a_request_that_waited_in_vain_is_answered_with_nothing(worker: httpx.Client) -> None:
    assert reserve(worker, wait=0.2) == []


def test_a_worker_that_hung_up_is_given_nothing(server: Served) -> None:
    secret = server.secret("acme", "worker")
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}, timeout=0.3) as leaving,
    ):
        reserve(leaving, wait=20)
    until(lambda: not server.app.state.doorbells._bells, "the server has heard of it")
    (job_id,) = enqueue(server)
    (lease,) = reserve(server.client("acme", "worker"), wait=5)
    assert (lease["id"], lease["fence"]) == (job_id, server.driver.get(job_id).deliveries)


def test_a_worker_with_a_name_is_listed_with_what_it_asks_for(server: Served, worker: httpx.Client) -> None:
    reserve(worker, worker="node-1", queues=["mail", "default"], types=["a", "b"], limit=7)
    reserve(server.client(role="worker"), worker="node-1")
    reserve(worker)
    listed = {each["id"]: each for each in server.client().get("/api/v1/workers").json()["workers"]}
    assert listed.keys() == {"rest:acme/node-1", "rest:node-1"}
    told = listed["rest:acme/node-1"]
    assert (told["slots"], told["version"], told["meta"], told["alive"]) == (7, "rest", {"types": "a,b"}, True)
    assert set(told["queues"]) == {"default", "mail"}
    assert listed["rest:node-1"]["meta"] == {"types": "*"}
    assert server.client().get("/api/v1/stats").json()["workers"] == {"alive": 2, "silent": 0, "slots": 8}


@pytest.mark.parametrize("name", ["node-1", "rest:node-1", "rest:rest:node-1"])
def test_a_worker_that_is_silent_for_long_keeps_its_leases(server: Served, worker: httpx.Client, name: str) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker, worker=name, lease_for=600)
    for other in ("node-1", "rest:node-1"):  # names that look like the id of another
        reserve(server.client(role="worker"), worker=other)
    later = server.driver.now() + timedelta(minutes=5)
    found = server.driver.recover(later)
    assert (found.workers_removed, found.leases_freed) == (3, 0)
    assert settle(worker, lease, "ack").json()["status"] == "done"
    assert server.driver.get(job_id).status is Status.DONE


def test_heartbeats_of_a_worker_go_to_the_store_every_ten_seconds_and_with_extends_too(driver: Driver) -> None:
    beats: list[tuple[float, int]] = []
    now = 0.0

    class Counting:
        def now(self) -> Any:
            return driver.now()

        def heartbeat(self, worker: Worker) -> None:
            beats.append((now, worker.slots))

    registry = Registry(Counting(), clock=lambda: now)  # type: ignore[arg-type]
    for second in range(46):
        now = second
        if second < 26:
            asked = {"queues": ["q"], "worker": "w", "limit": 1 if second else 9}
            registry.asks("acme", LeaseRequest.model_validate(asked))
            continue
        registry.extends("acme", "w")
        registry.extends("acme", "unknown")
        registry.extends("zebra", "w")
    assert beats == [(0, 9), (10, 9), (20, 9), (30, 9), (40, 9)]


def test_a_worker_that_is_gone_is_forgotten_and_no_other(driver: Driver) -> None:
    long_ago = driver.now() - timedelta(minutes=5)
    driver.heartbeat(Worker("rest:gone", version="rest"), now=long_ago)
    driver.heartbeat(Worker("rest:there", version="rest"))
    driver.heartbeat(Worker("python", version="1.0"), now=long_ago)
    Registry(driver).clear()
    assert [worker.id for worker in driver.workers()] == ["python", "rest:there"]


def test_a_job_that_is_extended_runs_since_it_was_leased(server: Served, worker: httpx.Client) -> None:
    (job_id,) = enqueue(server)
    (lease,) = reserve(worker)
    job = server.driver.get(job_id)
    assert job.phase(server.driver.now()) == "claimed"
    for _ in range(2):
        settle(worker, lease, "extend")
        running = server.driver.get(job_id)
        assert (running.phase(server.driver.now()), running.started_at) == ("running", job.claimed_at)
    settle(worker, lease, "ack")
    (attempt,) = server.driver.attempts(job_id)
    assert attempt.started_at == job.claimed_at


def test_without_tokens_the_owner_of_a_lease_has_a_name(driver: Driver) -> None:
    with served(driver, open=True) as server:
        enqueue(server)
        (lease,) = reserve(server.with_token(None))
        assert driver.get(lease["id"]).lease_owner == "rest"
