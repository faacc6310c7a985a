"""Many jobs in one request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from tests.web.serving import Served, served

from taskharbor.core.contract import Driver
from taskharbor.web.api import bulk, shapes

TYPE = {"Content-Type": "application/x-ndjson"}


def lines(*jobs: object) -> bytes:
    return b"".join(json.dumps(job).encode() + b"\n" for job in jobs)


def send(client: httpx.Client, body: bytes | Iterator[bytes], query: str = "") -> httpx.Response:
    return client.post(f"/api/v1/jobs/bulk{query}", content=body, headers=TYPE)


def test_each_line_is_a_job_and_blank_lines_are_none(server: Served) -> None:
    body = b'\n{"type": "a"}\r\n   \n{"type": "b", "payload": [1]}'
    answer = send(server.client("acme", "producer"), body)
    assert answer.json() == {"enqueued": 2, "existed": 0, "rejected": [], "rejected_count": 0, "stopped_at": None}
    assert {job.type: job.tenant_id for job in server.driver.list().jobs} == {"a": "acme", "b": "acme"}


def test_a_bad_line_is_told_of_and_harms_no_other(server: Served) -> None:
    body = lines({"type": "a"}, {"type": ""}, {"type": "b", "key": "k"}, {"type": "b", "key": "k", "payload": 2})
    answer = send(
        server.client(), body + b"nonsense\n" + b"\xff\n" + lines({"type": "c", "tenant": "zebra"}, {"type": "d"})
    )
    found = answer.json()
    shapes.BulkAnswer.model_validate(found)
    assert (found["enqueued"], found["rejected_count"]) == (3, 5)
    assert [each["line"] for each in found["rejected"]] == [2, 4, 5, 6, 7]
    assert sorted(job.type for job in server.driver.list().jobs) == ["a", "b", "d"]


def test_with_on_error_stop_nothing_behind_the_first_bad_line_is_enqueued(server: Served) -> None:
    client = server.client()
    answer = send(client, lines({"type": "a"}, {"type": "b"}, {"type": 1}, {"type": "c"}), "?on_error=stop").json()
    assert (answer["enqueued"], answer["stopped_at"]) == (2, 3)
    jobs = [{"type": "k", "key": str(n % 3), "payload": n // 3} for n in range(5)]
    answer = send(client, lines(*jobs), "?on_error=stop").json()
    assert (answer["enqueued"], answer["rejected_count"], answer["stopped_at"]) == (3, 1, 4)
    assert sorted(job.type for job in server.driver.list().jobs) == ["a", "b", "k", "k", "k"]


def test_sent_again_with_keys_no_job_comes_twice(server: Served) -> None:
    client = server.client()
    body = lines(*({"type": "a", "key": str(number)} for number in range(5_000)))
    assert send(client, body).json()["enqueued"] == 5_000
    again = send(client, body).json()
    assert (again["enqueued"], again["existed"]) == (0, 5_000)


def test_more_than_a_hundred_bad_lines_are_counted_and_not_all_told(server: Served) -> None:
    answer = send(server.client(), b"x\n" * 3_000 + lines({"type": "a"})).json()
    assert (answer["enqueued"], answer["rejected_count"], len(answer["rejected"])) == (1, 3_000, 100)


def test_a_line_that_is_too_long_is_rejected_alone(driver: Driver) -> None:
    with served(driver, max_body=1_000) as server:
        long = {"type": "a", "payload": "x" * 5_000}
        answer = send(server.client(), lines({"type": "a"}, long, {"type": "b"}, long)).json()
        assert (answer["enqueued"], [each["line"] for each in answer["rejected"]]) == (2, [2, 4])


def test_a_bulk_request_has_a_bound_of_its_own(driver: Driver) -> None:
    with served(driver, max_bulk=100_000) as server:
        client = server.client()
        job = lines({"type": "a", "payload": "x" * 900})
        assert send(client, job * 90).json()["enqueued"] == 90
        assert send(client, job * 200).status_code == 413
        assert send(client, (job for _ in range(200))).status_code == 413


def test_what_came_before_the_client_hung_up_stays(server: Served) -> None:
    def breaking_off() -> Iterator[bytes]:
        yield lines(*({"type": "a"} for _ in range(bulk.MOST_LINES + 10)))
        deadline = time.monotonic() + 20
        while not server.driver.count() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        send(server.client(), breaking_off())
    assert server.driver.count() == bulk.MOST_LINES


@pytest.mark.parametrize("headers", [{"Content-Type": "application/json"}, {**TYPE, "Content-Encoding": "gzip"}])
def test_another_kind_of_body_is_refused(standing: Served, headers: dict[str, str]) -> None:
    assert standing.client().post("/api/v1/jobs/bulk", content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
def test_lines_are_the_same_however_the_body_is_cut(size: int) -> None:
    body = b"one\n\ntwo\r\n" + b"x" * 50 + b"\n three\n" + b"y" * 50

    async def cut() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    async def collect() -> list[bulk.Line]:
        return [line async for chunk in bulk.chunks(cut(), 40) for line in chunk]

    assert asyncio.run(collect()) == [
        bulk.Line(1, b"one"), bulk.Line(3, b"two\r"), bulk.Line(4, None), bulk.Line(5, b" three"), bulk.Line(6, None)
    ]  # fmt: skip
