"""Listening where the suite cannot look: other processes, stores that go away, and what waiting costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskharbor.core.contract import Listener
from taskharbor.core.fleet import Worker
from taskharbor.drivers import listening, open_driver
from taskharbor.drivers.sqlite.listening import SqliteListener
from taskharbor.testing.helpers import add, leased_job, new_job
from taskharbor.testing.servers import PostgresServer, postgres_server

ENQUEUE = """
import sys
from taskharbor import NewJob
from taskharbor.drivers import open_driver
with open_driver(sys.argv[1]) as driver:
    driver.enqueue([NewJob("t", queue="mail")])
"""


@pytest.fixture(params=["json", "sqlite"])
def file_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}:///{tmp_path}/store"
    with open_driver(url) as driver:
        driver.migrate()
    return url


@pytest.fixture
def postgres_store(postgres: PostgresServer) -> str:
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
    return url


def hears(listener: Listener, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if listener.wait(0.5):
            return True
    return False


def is_quiet(listener: Listener) -> bool:
    """Says nothing for a while, once what is still on its way has arrived."""
    while listener.wait(0.1):
        pass
    return not listener.wait(0.2)


# --- Other processes ---------------------------------------------------------------------------------------


@pytest.mark.process
def test_an_enqueue_of_another_process_is_heard_of(file_url: str) -> None:
    with open_driver(file_url) as driver, closing(driver.listen("mail")) as listener:
        assert is_quiet(listener)
        with subprocess.Popen([sys.executable, "-c", ENQUEUE, file_url]) as other:
            assert hears(listener)
            assert other.wait(20) == 0


def test_another_driver_is_heard_of_soon(file_url: str) -> None:
    with open_driver(file_url) as driver, open_driver(file_url) as other, closing(driver.listen("mail")) as listener:
        for _ in range(3):
            assert is_quiet(listener)
            add(other, queue="mail")
            start = time.monotonic()
            assert listener.wait(10)
            assert time.monotonic() - start < 1
            driver.reserve("mail")


def test_where_the_kernel_tells_nothing_a_listener_looks_by_itself(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no inotify here")

    monkeypatch.setattr(listening, "DirectoryWatch", refuse)
    test_another_driver_is_heard_of_soon(file_url)


def test_a_store_behind_a_symbolic_link_is_heard_of(tmp_path: Path) -> None:
    for scheme in ("json", "sqlite"):
        real = tmp_path / "real" / scheme
        real.parent.mkdir(exist_ok=True)
        with open_driver(f"{scheme}:///{real}") as other:
            other.migrate()
            (tmp_path / scheme).symlink_to(real)
            with open_driver(f"{scheme}:///{tmp_path}/{scheme}") as driver, closing(driver.listen("mail")) as listener:
                assert is_quiet(listener)
                add(other, queue="mail")
                assert hears(listener)


@pytest.mark.slow
def test_waiting_costs_next_to_nothing(file_url: str) -> None:
    with open_driver(file_url) as driver, closing(driver.listen("mail")) as listener:
        assert is_quiet(listener)
        start = time.thread_time()
        listener.wait(2)
        # Under one per cent on a quiet machine; here others may be at work beside us.
        assert time.thread_time() - start < 0.06


def test_sqlite_looks_for_work_while_others_take_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store"
    with open_driver(url) as driver, open_driver(url) as other:
        driver.migrate()
        with closing(driver.listen(["mail", "post"])) as listener:
            assert isinstance(listener, SqliteListener)
            assert listener._connection is not None
            taken: list[str] = []

            def take_between(statement: str) -> None:
                """Before the look's second question, and only then."""
                if "INDEXED BY th_jobs_ready" in statement and "payload" in statement and not taken:
                    taken.extend(each.job.id for each in other.reserve(["mail", "post"], limit=2))

            listener._connection.set_trace_callback(take_between)
            jobs = other.enqueue([new_job(queue="mail"), new_job(queue="post")])
            assert hears(listener)
            assert sorted(taken) == sorted(each.id for each in jobs)


def test_sqlite_tells_of_work_in_its_own_queues_only(tmp_path: Path) -> None:
    with open_driver(f"sqlite:///{tmp_path}/store") as driver:
        driver.migrate()
        with closing(driver.listen("mail")) as listener:
            add(driver, queue="other")
            leased = leased_job(driver, queue="mail", now=driver.now())
            driver.enqueue([new_job(queue="mail", run_at=driver.now().replace(year=8000))])
            driver.ack(leased.job.id, leased.lease.token)
            assert is_quiet(listener)
            driver.enqueue([new_job(queue="mail")])
            assert hears(listener)


# --- Stores that are away ----------------------------------------------------------------------------------


def test_a_listener_outlives_a_file_store_that_vanishes_and_comes_back(file_url: str, tmp_path: Path) -> None:
    with open_driver(file_url) as driver, closing(driver.listen("mail")) as listener:
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for _ in range(3):
            assert listener.wait(0.05) in (True, False)
        with closing(driver.listen("mail")) as late:
            assert late.wait(0.05) in (True, False)
            with open_driver(file_url) as other:
                other.migrate()
                other.enqueue([new_job(queue="mail")])
            assert hears(late)


def test_a_store_that_is_not_there_yet_can_be_listened_to(tmp_path: Path) -> None:
    for scheme in ("json", "sqlite"):
        url = f"{scheme}:///{tmp_path}/{scheme}"
        with open_driver(url) as driver, closing(driver.listen("mail")) as listener:
            assert not listener.wait(0.05)
            driver.migrate()
            driver.enqueue([new_job(queue="mail")])
            assert hears(listener)


def _end_listeners(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'")


def test_a_postgresql_listener_connects_again_by_itself(postgres_store: str) -> None:
    with open_driver(postgres_store) as driver, closing(driver.listen("mail")) as listener:
        driver.heartbeat(Worker("w"))
        for _ in range(2):
            assert is_quiet(listener)
            _end_listeners(postgres_store)
            # It may have missed something while it was away, so it says so once it is back.
            assert hears(listener)
            assert is_quiet(listener)
            driver.enqueue([new_job(queue="mail")])
            assert hears(listener)


def test_postgresql_tells_of_work_in_its_own_queues_only(postgres_store: str) -> None:
    with open_driver(postgres_store) as driver, closing(driver.listen(["mail", "sms"])) as listener:
        driver.heartbeat(Worker("w"))
        driver.enqueue([new_job(queue="Mail")])
        assert is_quiet(listener)
        driver.enqueue([new_job(queue="sms")])
        assert hears(listener)


def test_an_enqueue_in_the_callers_transaction_is_heard_of_when_it_commits(postgres_store: str) -> None:
    with (
        open_driver(postgres_store) as driver,
        closing(driver.listen("mail")) as listener,
        psycopg.connect(postgres_store) as mine,
    ):
        driver.heartbeat(Worker("w"))
        driver.enqueue([new_job(queue="mail")], connection=mine)
        assert is_quiet(listener)
        mine.commit()
        assert hears(listener)


@pytest.fixture
def own_server() -> Iterator[Any]:
    with postgres_server(fast=True) as server:
        if not isinstance(server, PostgresServer):
            pytest.skip("a server that was given is not ours to stop")
        yield server


@pytest.mark.slow
def test_a_postgresql_listener_waits_while_the_server_is_away(own_server: PostgresServer) -> None:
    url = own_server.create_database()
    with open_driver(url) as driver:
        driver.migrate()
        with closing(driver.listen("mail")) as listener:
            driver.heartbeat(Worker("w"))
            own_server.stop()
            for _ in range(5):
                start = time.monotonic()
                listener.wait(0.2)
                assert time.monotonic() - start < 2
            with closing(driver.listen("mail")) as late:
                assert not late.wait(0.05)
                late.wake()
                assert late.wait(10)
            own_server.start()
            assert hears(listener)
            assert is_quiet(listener)
            with open_driver(url) as other:
                other.enqueue([new_job(queue="mail")])
            assert hears(listener)
