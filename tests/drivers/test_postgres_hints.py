"""The hint that a job has come in. Nobody may depend on it; it only saves waiting."""

from __future__ import annotations

import psycopg
import pytest

from taskharbor.core.fleet import Worker
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import add, add_all, add_keyed, new_job
from taskharbor.testing.servers import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
    return url


def test_once_a_worker_is_there_every_way_to_enqueue_tells_which_queue_has_work(url: str) -> None:
    with open_driver(url) as driver, psycopg.connect(url, autocommit=True) as ear:
        ear.execute("LISTEN th_jobs")
        driver.heartbeat(Worker("w"))
        add(driver, queue="one")
        add_keyed(driver, "k", queue="keyed")
        add_all(driver, [new_job(queue="few") for _ in range(3)])
        add_all(driver, [new_job(queue="many") for _ in range(3_000)])
        heard = [hint.payload for hint in ear.notifies(timeout=10, stop_after=4)]
        assert heard == ["one", "keyed", "few", "many"]


def test_a_duplicate_wakes_nobody(url: str) -> None:
    with open_driver(url) as driver, psycopg.connect(url, autocommit=True) as ear:
        add_keyed(driver, "k", queue="first")
        ear.execute("LISTEN th_jobs")
        driver.heartbeat(Worker("w"))
        add_keyed(driver, "k", queue="again")
        add(driver, queue="other")
        assert [hint.payload for hint in ear.notifies(timeout=10, stop_after=1)] == ["other"]


def test_while_no_worker_is_there_nothing_is_sent(url: str) -> None:
    with open_driver(url) as driver, psycopg.connect(url, autocommit=True) as ear:
        ear.execute("LISTEN th_jobs")
        add(driver, queue="unheard")
        driver.heartbeat(Worker("w"))
        add(driver, queue="heard")
        assert [hint.payload for hint in ear.notifies(timeout=10, stop_after=1)] == ["heard"]
