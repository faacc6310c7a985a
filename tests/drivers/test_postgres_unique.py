"""Batches of unique jobs on PostgreSQL, beside workers that settle batches in another order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.drivers.postgres_stores import driver, url
from tests.waiting import PATIENCE_S, until

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.testing.helpers import add_all, done_job, new_job
from taskharbor.testing.times import NOON

__all__ = ["driver", "url"]


def unique(key: str) -> NewJob:
    return new_job(idempotency_key=key, while_in=("ready", "inflight"))


def somebody_waits(connection: psycopg.Connection[Any]) -> bool:
    found = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    return found is not None and found[0] > 0


@pytest.mark.parametrize("busy", [0, 1, 2])
def test_a_batch_that_waits_for_the_holder_of_one_key_keeps_no_other_holder_locked(
    driver: Driver, url: str, busy: int
) -> None:
    keys = ["a", "b", "c"]
    ids = add_all(driver, [unique(key) for key in keys])
    lock = "SELECT id FROM th_jobs WHERE id = %s FOR UPDATE"
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(url, autocommit=True) as watching,
        psycopg.connect(url) as settling,
    ):
        settling.execute(lock, [ids[busy]])  # as a worker does that settles this one first
        answer = pool.submit(driver.enqueue, [unique(key) for key in keys], NOON)
        until(lambda: somebody_waits(watching), "the batch waits for its holder")
        settling.execute("SET lock_timeout = '500ms'")
        for id in ids:
            settling.execute(lock, [id])  # and then the others
        settling.commit()
        assert [(each.id, each.existed) for each in answer.result(PATIENCE_S)] == [(id, True) for id in ids]


def test_a_batch_goes_past_holders_that_have_finished(driver: Driver) -> None:
    done = [done_job(driver, idempotency_key=key, while_in=("ready", "inflight")) for key in ("a", "b")]
    held = add_all(driver, [unique("c")])
    answers = driver.enqueue([unique(key) for key in ("a", "b", "c")], NOON)
    assert [each.existed for each in answers] == [False, False, True]
    assert answers[2].id == held[0] and not {each.id for each in answers} & set(done)
