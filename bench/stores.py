"""Where the scenarios run: fresh stores of one kind, plain SQL on the same server, and the peers that live there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.harness import say
from bench.peers import GraphileWorker, Huey, Peer, PgQueuer
from bench.raw import Raw
from bench.raw import mysql as raw_mysql
from bench.raw import postgres as raw_postgres
from bench.raw import sqlite as raw_sqlite
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run does."""

    drain: int
    single: int
    latency: int
    backlog: int
    size: int
    rounds: int
    hold_s: float


FULL = Scale(drain=100_000, single=3_000, latency=300, backlog=1_000_000, size=200_000, rounds=3, hold_s=60)
QUICK = Scale(drain=20_000, single=500, latency=30, backlog=40_000, size=20_000, rounds=1, hold_s=6)


AS_FILLED = ""
JUST_FILLED = ", just filled"
SETTLED = ", analyzed"


@dataclass(frozen=True, slots=True)
class Goal:
    """A number of the design and the ratio it asks for; None where it asks for none."""

    number: str
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Store:
    name: str
    fresh_url: Callable[[], str]
    fresh_address: Callable[[], str]
    """For plain SQL and for peers."""
    same_facts: Callable[[str], Raw]
    minimal: Callable[[str], Raw]
    bulk_goal: Goal
    drain_goal: Goal
    backlog_goal: Goal
    peers: Sequence[Peer] = ()
    absent: Sequence[Peer] = ()
    """Those that belong here and cannot run."""
    settle_down: Callable[[str], None] = lambda _: None
    """Does what the server would do by itself in the minutes after a large load."""
    states: Sequence[str] = (AS_FILLED,)
    """In which a drain beside peers begins: a planner without statistics can halve the speed of a queue."""

    def bring_to(self, state: str, address: str) -> None:
        if state == SETTLED:
            self.settle_down(address)


@contextlib.contextmanager
def fresh(store: Store) -> Iterator[tuple[Driver, str]]:
    url = store.fresh_url()
    driver = open_driver(url)
    driver.migrate()
    try:
        yield driver, url
    finally:
        driver.close()


@contextlib.contextmanager
def plain(store: Store, kind: Callable[[str], Raw]) -> Iterator[tuple[Any, str]]:
    address = store.fresh_address()
    yardstick = kind(address)
    try:
        yield yardstick, address
    finally:
        yardstick.close()


@contextlib.contextmanager
def one_peer(store: Store, peer: Peer) -> Iterator[str]:
    """A fresh place for it. If it fails there, that is said in the open and the run goes on without it."""
    address = store.fresh_address()
    try:
        yield address
    except Exception as error:
        say(f"bench: {peer.name} failed, so what it was to measure is not run: {type(error).__name__}: {error}")


def _here(peers: Sequence[Peer]) -> tuple[list[Peer], list[Peer]]:
    """Those that can run, and those that cannot, each with a line that says why."""
    can, cannot = [], []
    for peer in peers:
        reason = peer.missing()
        if reason is None:
            can.append(peer)
        else:
            say(f"bench: without {peer.name}: {reason}")
            cannot.append(peer)
    return can, cannot


def postgres(server: Any) -> Store:
    def settle_down(url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    peers, absent = _here([GraphileWorker(), PgQueuer()])
    return Store(
        "PostgreSQL",
        server.create_database,
        server.create_database,
        lambda url: raw_postgres.RawPostgres(url, raw_postgres.SAME_FACTS),
        lambda url: raw_postgres.RawPostgres(url, raw_postgres.MINIMAL),
        bulk_goal=Goal("P2", 0.6),
        drain_goal=Goal("P3", 0.8),
        backlog_goal=Goal("P6", 0.95),
        peers=peers,
        absent=absent,
        settle_down=settle_down,
        states=(JUST_FILLED, SETTLED),
    )


def mysql(server: Any) -> Store:
    return Store(
        "MariaDB",
        server.create_database,
        server.create_database,
        lambda url: raw_mysql.RawMysql(url, raw_mysql.SAME_FACTS),
        lambda url: raw_mysql.RawMysql(url, raw_mysql.MINIMAL),
        bulk_goal=Goal("P9", 0.5),
        drain_goal=Goal("P9", 0.7),
        backlog_goal=Goal("P6", 0.9),
    )


def sqlite(directory: Path) -> Store:
    numbers = iter(range(1_000_000))
    peers, absent = _here([Huey()])
    return Store(
        "SQLite",
        lambda: f"sqlite:///{directory}/ours-{next(numbers)}.db",
        lambda: f"{directory}/other-{next(numbers)}.db",
        lambda path: raw_sqlite.RawSqlite(path, raw_sqlite.SAME_FACTS),
        lambda path: raw_sqlite.RawSqlite(path, raw_sqlite.MINIMAL),
        bulk_goal=Goal("own", 0.4),
        drain_goal=Goal("own", None),
        backlog_goal=Goal("P6", 0.95),
        peers=peers,
        absent=absent,
    )
