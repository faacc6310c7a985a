"""The fence of a move on a server: whoever had to wait for the table of jobs when the store was shut has to see it.

A move shuts the store, waits until it has the table of jobs to itself for a moment, and copies. Each test here holds
that very lock, lets somebody wait for it, shuts the store meanwhile, and lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests.drivers.movers import connected, make
from tests.waiting import until

from taskharbor.core.carrying import MOVING
from taskharbor.core.errors import StoreMoved
from taskharbor.core.limiting import Limit
from taskharbor.drivers import governed, open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.testing.contract.moving import BY_HAND, WAYS_IN, furnish, state_of
from taskharbor.testing.helpers import add, everything, new_job
from taskharbor.testing.times import NOON

__all__ = ["make"]

KINDS = ("postgres", "mysql")
PATIENCE_S = 20.0


class Store:
    """A store on a server, two drivers for it, and who moves it."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self.driver, self.mover = self._open(), self._open()

    def _open(self) -> BaseDriver:
        driver = open_driver(self.url)
        assert isinstance(driver, BaseDriver)
        driver.migrate()
        return driver

    def close(self) -> None:
        self.driver.close()
        self.mover.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock that a move asks for once the store is shut."""
        with closing(connected(self.kind, self.url)) as connection, connection.cursor() as cursor:
            if self.kind == "postgres":
                cursor.execute("LOCK TABLE th_jobs IN SHARE MODE")
            else:
                cursor.execute("LOCK TABLES th_jobs READ")
            yield
            cursor.execute("COMMIT" if self.kind == "postgres" else "UNLOCK TABLES")

    def await_somebody_who_waits(self) -> None:
        """Until one of the driver's connections waits for the table."""
        asked = {
            "postgres": "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'th_jobs'::regclass",
            "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = database() "
            "AND state LIKE '%metadata lock%'",
        }[self.kind]

        def somebody_waits() -> bool:
            with closing(connected(self.kind, self.url)) as connection, connection.cursor() as cursor:
                cursor.execute(asked)
                return bool(cursor.fetchone()[0])

        until(somebody_waits, "somebody waits for the table of jobs", PATIENCE_S)

    def shut_while(self, work: Callable[[], Any]) -> Any:
        """What becomes of work that has to wait for the table while the store is shut."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(work())
            except Exception as error:
                outcome.append(error)

        self.driver._rules()
        self.driver._rules_until = float("inf")  # it was let in when the store was open
        worker = threading.Thread(target=run)
        with self.held():
            worker.start()
            self.await_somebody_who_waits()
            self.mover._set_paused(MOVING, True)
        worker.join(PATIENCE_S)
        return outcome[0]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with closing(Store(request.param, request.getfixturevalue(request.param).create_database())) as store:
        yield store


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_producer_that_waits_for_the_table_while_the_store_is_shut_gets_nothing_in(store: Store, way: str) -> None:
    add(store.driver, id="holder", idempotency_key="held", while_in=("ready",), on_duplicate="replace")
    add(store.driver)  # the next one goes the quick way, where there is one
    before = everything(store.driver)
    assert isinstance(store.shut_while(lambda: WAYS_IN[way](store.driver)), StoreMoved)
    assert everything(store.mover) == before


@pytest.mark.parametrize("queues", [["default"], ["default", "mail"]], ids=["one queue", "two queues"])
@pytest.mark.parametrize("limited", [False, True], ids=["plain", "limited"])
def test_a_worker_that_waits_for_the_table_while_the_store_is_shut_gets_no_job(
    store: Store, queues: list[str], limited: bool
) -> None:
    if limited:
        store.driver.set_limit(Limit("queue", "default", concurrency=5), now=NOON)
    add(store.driver)
    add(store.driver, queue="mail")
    before = everything(store.mover)
    assert store.shut_while(lambda: store.driver.reserve(queues, now=NOON, limit=5)) == []
    assert everything(store.mover) == before


@pytest.mark.parametrize("verb", BY_HAND)
def test_a_change_by_hand_that_waits_for_the_table_while_the_store_is_shut_is_refused(store: Store, verb: str) -> None:
    furnish(store.driver)
    before = state_of(store.driver)
    assert isinstance(store.shut_while(lambda: BY_HAND[verb](store.driver)), StoreMoved)
    assert state_of(store.mover) == before


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("fields", [{}, {"idempotency_key": "k"}], ids=["plain", "keyed"])
def test_a_transaction_of_the_application_that_began_before_the_store_was_shut_gets_nothing_in(
    store: Store, level: str, fields: dict[str, Any]
) -> None:
    with closing(connected(store.kind, store.url)) as connection, connection.cursor() as cursor:
        connection.rollback()
        cursor.execute(
            f"{'SET SESSION CHARACTERISTICS AS' if store.kind == 'postgres' else 'SET SESSION'} "
            f"TRANSACTION ISOLATION LEVEL {level}"
        )
        connection.commit()
        cursor.execute("BEGIN" if store.kind == "mysql" else "SELECT 1")
        cursor.execute("SELECT count(*) FROM th_jobs")  # from here on, it may see nothing else
        store.driver._rules()
        store.driver._rules_until = float("inf")
        store.mover._set_paused(MOVING, True)
        with pytest.raises(StoreMoved):
            store.driver.enqueue([new_job(**fields)], NOON, connection=connection)
        connection.commit()  # the application goes on without the job
    assert everything(store.mover) == {}
    store.mover.shut(False)
    assert not store.mover.enqueue([new_job(**fields)], NOON)[0].existed


def test_rules_that_a_process_was_stopped_behind_are_not_gone_by(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make("memory")
    read = driver._read_rules
    now = [100.0]

    def read_and_stopped() -> Any:
        rules = read()
        now[0] += 3.0
        driver._set_paused(MOVING, True)
        return rules

    monkeypatch.setattr(governed.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(driver, "_read_rules", read_and_stopped)
    driver._rules()
    monkeypatch.undo()
    monkeypatch.setattr(governed.time, "monotonic", lambda: now[0])
    assert driver._rules().shut
