"""The same API on PostgreSQL, where many requests really come at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.web.serving import Served, served

from taskharbor.drivers import open_driver


@pytest.fixture(scope="module")
def server(postgres_url: str) -> Iterator[Served]:
    with open_driver(f"{postgres_url}{'&' if '?' in postgres_url else '?'}prefix=rest_") as opened:
        opened.migrate()
        with served(opened) as running:
            yield running


def test_many_requests_at_once_each_get_their_own_answer(server: Served) -> None:
    client = server.client("acme", "producer")

    def post(number: int) -> tuple[int, int]:
        body = (
            {"type": "", "payload": number}
            if number % 10 == 3
            else {"type": "a", "payload": number, "key": f"k{number % 50}"}
        )
        return number, client.post("/api/v1/jobs", json=body).status_code

    with ThreadPoolExecutor(16) as threads:
        answers = dict(threads.map(post, range(200)))
    assert all(answers[number] == 422 for number in range(3, 200, 10))
    taken = [status for number, status in answers.items() if number % 10 != 3]
    # Of the four that share a key, one is new; the others carry other payloads.
    assert sorted(set(taken)) == [201, 409]
    assert taken.count(201) == 45
    assert server.driver.count() == 45


def test_a_worker_takes_and_settles_jobs_while_others_do_the_same(server: Served) -> None:
    producer = server.client("zoo", "producer")
    body = b'{"type": "a", "queue": "race"}\n' * 300
    sent = producer.post("/api/v1/jobs/bulk", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert sent.json()["enqueued"] == 300
    secret = server.secret("zoo", "worker")

    def work(_: int) -> int:
        done = 0
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}, timeout=30) as client:
            while leases := client.post("/api/v1/leases", json={"queues": ["race"], "limit": 7}).json()["leases"]:
                for lease in leases:
                    address = f"/api/v1/leases/{lease['id']}/ack"
                    answers = [client.post(address, json={"token": lease["token"]}).status_code for _ in range(2)]
                    assert answers == [200, 200]
                    done += 1
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 300
    assert server.driver.counts().queues["race"]["done"] == 300


def test_the_same_lease_settled_from_two_sides_at_once_is_settled_once(server: Served) -> None:
    server.client("twice", "producer").post("/api/v1/jobs", json={"type": "a", "queue": "twice"})
    worker = server.client("twice", "worker")
    (lease,) = worker.post("/api/v1/leases", json={"queues": ["twice"]}).json()["leases"]

    def ack(_: int) -> int:
        return worker.post(f"/api/v1/leases/{lease['id']}/ack", json={"token": lease["token"]}).status_code

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ack, range(16))) == {200}
    assert len(server.driver.attempts(lease["id"])) == 1
