"""Results on PostgreSQL, which takes no message of a gigabyte."""

from __future__ import annotations

import random

import pytest
from tests.drivers.postgres_stores import driver, url  # noqa: F401 - fixtures

from taskharbor.core.contract import Driver
from taskharbor.core.errors import LeaseMismatch
from taskharbor.core.model import NewJob, Settlement, Status
from taskharbor.drivers.postgres import settling


def settle_with(driver: Driver, results: list[bytes | None]) -> list[bytes | None]:  # noqa: F811
    """What the store has for results of jobs that end with these."""
    driver.enqueue([NewJob("t") for _ in results])
    leased = driver.reserve("default", limit=len(results))
    acks = [
        Settlement.ack(item.job.id, item.lease.token, result=result)
        for item, result in zip(leased, results, strict=True)
    ]
    assert driver.settle(acks) == [Status.DONE] * len(acks)
    return [driver.get(item.job.id).result for item in leased]


@pytest.mark.parametrize("most", [1, 20, 64 * 1024 * 1024])
def test_results_come_back_however_many_statements_they_take(
    driver: Driver, most: int, monkeypatch: pytest.MonkeyPatch, rng: random.Random  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(settling, "LARGEST_RESULTS", most)
    results = [rng.choice([None, b"", b"\0\xff\\x'", rng.randbytes(rng.randrange(30))]) for _ in range(50)]
    assert settle_with(driver, results) == results


def test_a_stale_token_among_several_statements_fails_alone(
    driver: Driver, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(settling, "LARGEST_RESULTS", 10)
    driver.enqueue([NewJob("t") for _ in range(6)])
    leased = driver.reserve("default", limit=6)
    acks = [Settlement.ack(item.job.id, item.lease.token, result=b"12345") for item in leased]
    acks[3] = acks[3]._replace(token="f" * 32)
    answers = driver.settle(acks)
    assert isinstance(answers.pop(3), LeaseMismatch)
    assert answers == [Status.DONE] * 5
    assert driver.counts()["inflight"] == 1
