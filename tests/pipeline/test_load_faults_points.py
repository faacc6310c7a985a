"""A load whose driver ends at any one of the statements of its publish, on every store: the next load puts it right."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreUnavailable, TaskHarborError
from taskharbor.drivers import open_driver
from taskharbor.drivers.mysql import store as mysql_store
from taskharbor.pipeline import staging_files, staging_postgres
from taskharbor.pipeline.sink import BatchSink, Staged, batch_writer
from taskharbor.pipeline.staging import StagedRowsGone
from taskharbor.testing.servers import postgres_server

COUNT = 12
MOST_POINTS = 60
SHAPE = StructType([StructField(name, StringType()) for name in ("payload", "n")])


class Killed(BaseException):
    """As if the process had ended here: nothing catches it on its way."""


class Fuse:
    """Lets so many steps pass, and then ends everything."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def sink_for(url: str, **options: str) -> BatchSink:
    sink = batch_writer({"url": url, "type": "t", **options}, SHAPE, overwrite=False)
    assert isinstance(sink, BatchSink)
    return sink


def staged(sink: BatchSink, parts: int = 3) -> list[Staged]:
    """What executors do: each part is a task of its own."""
    size = COUNT // parts
    numbers = [range(part * size, (part + 1) * size) for part in range(parts)]
    return [
        sink.write(
            iter([pa.record_batch([pa.array([f'{{"n": {n}}}' for n in part]), pa.array([str(n) for n in part])],
                                  names=["payload", "n"])])
        )
        for part in numbers
    ]  # fmt: skip


def payloads(driver: Driver) -> list[bytes]:
    return sorted(job.payload for job in driver.list(limit=500).jobs)


@contextmanager
def fused(url: str, fuse: Fuse, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every statement and commit of a publish, or where a store has none, every portion of it, is a step."""

    def stepping(function: Any, *, after: bool) -> Any:
        def stepped(*arguments: Any, **options: Any) -> Any:
            fuse.step()
            answer = function(*arguments, **options)
            if after:
                fuse.step()
            return answer

        return stepped

    with patch.context() as each:
        scheme = url.partition(":")[0]
        if scheme == "postgresql":
            each.setattr(psycopg.Cursor, "execute", stepping(psycopg.Cursor.execute, after=False))
            each.setattr(psycopg.Connection, "commit", stepping(psycopg.Connection.commit, after=True))
        elif scheme in ("mysql", "mariadb"):
            each.setattr(mysql_store.Session, "_execute", stepping(mysql_store.Session._execute, after=True))
        else:

            class Connection(sqlite3.Connection):
                def execute(self, *arguments: Any) -> Any:
                    fuse.step()
                    return super().execute(*arguments)

            class Module:
                @staticmethod
                def connect(*arguments: Any, **options: Any) -> Connection:
                    return sqlite3.connect(*arguments, **options, factory=Connection)

                Connection = sqlite3.Connection

            each.setattr(staging_files, "sqlite3", Module)
            each.setattr(staging_files, "PORTION", 2)
            each.setattr(staging_files, "enqueue_each", stepping_all(staging_files.enqueue_each, fuse))
            each.setattr(staging_files, "rmtree", stepping(staging_files.rmtree, after=True))
        yield


def stepping_all(function: Any, fuse: Fuse) -> Any:
    def stepped(*arguments: Any) -> Iterator[Any]:
        fuse.step()
        yield from function(*arguments)
        fuse.step()

    return stepped


@pytest.mark.filterwarnings("ignore:.*deleted while still open:ResourceWarning")  # as a dead process leaves them
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("key", [{}, {"key": "n"}], ids=["by content", "by key"])
def test_a_driver_that_ends_at_any_statement_of_the_publish_is_made_good_by_the_next_load(
    driver: Driver, store_url: str, key: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = sorted(f'{{"n": {n}}}'.encode() for n in range(COUNT))
    seen = set()
    for steps in range(MOST_POINTS):
        type_ = f"t{steps}"
        sink = sink_for(store_url, type=type_, run=type_, **key)
        messages = staged(sink, parts=2)
        killed = False
        with fused(store_url, Fuse(steps), monkeypatch):
            try:
                sink.commit(messages)  # type: ignore[arg-type]
            except Killed:
                killed = True
        there = [job.payload for job in driver.list(limit=5000).jobs if job.type == type_]
        assert len(set(there)) == len(there)
        if not store_url.startswith("json"):  # which has no transactions, but keys
            assert len(there) in (0, COUNT)
        seen.add(len(there))
        again = sink_for(store_url, type=type_, run=type_, **key)
        again.commit(staged(again, parts=1))  # type: ignore[arg-type]
        assert sorted(job.payload for job in driver.list(limit=5000).jobs if job.type == type_) == expected
        if not killed:
            break
    assert steps >= 3
    assert not killed, "there are more steps than were tried"
    assert {0, COUNT} <= seen


def test_a_large_load_that_ends_between_its_slices_is_made_good_by_the_next_one(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.create_database()
    monkeypatch.setattr(staging_postgres, "SLICED_FROM", 1)
    monkeypatch.setattr(staging_postgres, "SLICES", 3)
    insert = staging_postgres.PostgresStaging._insert
    calls = []

    def dying(self: Any, cursor: Any, params: Any, part: str) -> int:
        calls.append(params["low"])
        if len(calls) == 2:
            raise Killed
        return insert(self, cursor, params, part)

    with open_driver(url) as driver:
        driver.migrate()
        sink = sink_for(url)
        messages = staged(sink)
        with monkeypatch.context() as patch:
            patch.setattr(staging_postgres.PostgresStaging, "_insert", dying)
            with pytest.raises(Killed):
                sink.commit(messages)  # type: ignore[arg-type]
        assert len(calls) >= 2
        assert 0 < len(payloads(driver)) < COUNT
        again = sink_for(url)
        again.commit(staged(again))  # type: ignore[arg-type]
        assert payloads(driver) == sorted(f'{{"n": {n}}}'.encode() for n in range(COUNT))


@pytest.mark.server
@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "crashed"])
def test_a_store_that_is_restarted_between_staging_and_publishing_gets_all_or_nothing(crash: bool) -> None:
    expected = sorted(f'{{"n": {n}}}'.encode() for n in range(COUNT))
    with postgres_server() as server:
        url = server.create_database()
        with open_driver(url) as driver:
            driver.migrate()
        sink = sink_for(url)
        messages = staged(sink)
        (server.kill if crash else server.stop)()
        with pytest.raises(StoreUnavailable):
            sink.commit(messages)  # type: ignore[arg-type]
        server.start()
        with open_driver(url) as driver:
            assert payloads(driver) == []
            if crash:  # the staging table is not logged, which is what makes it quick
                with pytest.raises(StagedRowsGone, match="Nothing was published"):
                    sink.commit(messages)  # type: ignore[arg-type]
                assert payloads(driver) == []
            else:
                sink.commit(messages)  # type: ignore[arg-type]
                assert payloads(driver) == expected
            again = sink_for(url)
            again.commit(staged(again))  # type: ignore[arg-type]
            assert payloads(driver) == expected


@pytest.mark.server
def test_a_server_that_goes_away_in_the_midst_of_the_publish_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with postgres_server() as server:
        url = server.create_database()
        with open_driver(url) as driver:
            driver.migrate()
        sink = sink_for(url)
        messages = staged(sink)
        move = staging_postgres.PostgresStaging._move

        def moved_then_gone(self: Any, *arguments: Any) -> Any:
            done = move(self, *arguments)
            server.kill()
            return done

        with monkeypatch.context() as patch:
            patch.setattr(staging_postgres.PostgresStaging, "_move", moved_then_gone)
            with pytest.raises(TaskHarborError):
                sink.commit(messages)  # type: ignore[arg-type]
        server.start()
        with open_driver(url) as driver:
            assert payloads(driver) == []
            again = sink_for(url)
            again.commit(staged(again))  # type: ignore[arg-type]
            assert len(payloads(driver)) == COUNT
