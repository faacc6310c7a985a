"""The pipeline's own way into each store gives what the driver gives, row by row, in short reads."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.pipeline.lives import MINUTE, NOON, live

from taskharbor.core.contract import Driver
from taskharbor.core.errors import (
    InvalidCursor,
    InvalidInput,
    InvalidURL,
    SchemaMissing,
    StoreRefused,
    StoreUnavailable,
)
from taskharbor.core.model import NewJob, Settlement
from taskharbor.drivers import open_driver
from taskharbor.pipeline import arrows, schemas, store_sql
from taskharbor.pipeline.store import EVERYTHING, PipelineStore, Selection, open_store


@pytest.fixture
def store(driver: Driver, store_url: str) -> Iterator[PipelineStore]:
    with open_store(store_url) as opened:
        yield opened


def records(batches: Any) -> list[dict[str, Any]]:
    return [record for batch in batches for record in batch.to_pylist()]


def by_driver(driver: Driver, store_id: str) -> list[dict[str, Any]]:
    """The whole feed as the driver tells it."""
    found, cursor = [], None
    while True:
        page = driver.history(cursor, 500)
        found += [arrows.fact_record(fact, store_id) for fact in page.rows]
        if not page.rows:
            return found
        cursor = page.cursor


# --- The feed --------------------------------------------------------------------------------------------------


def test_history_is_exactly_what_the_driver_gives(driver: Driver, store: PipelineStore) -> None:
    live(driver, rounds=3)
    found = records(store.read_history(None, store.frontier()))
    assert found == by_driver(driver, store.store_id)
    assert {row["outcome"] for row in found} == {
        "succeeded", "retried", "dead", "snoozed", "released", "cancelled", "expired", "lapsed",
    }  # fmt: skip


def test_every_batch_has_the_schema_that_is_promised(driver: Driver, store: PipelineStore) -> None:
    live(driver)
    for batch in store.read_history(None, store.frontier()):
        assert batch.schema.equals(schemas.arrow(schemas.FEED))
    for table in ("jobs", "attempts", "dlq", "workers"):
        for batch in store.read_table(table):
            assert batch.schema.equals(schemas.arrow(schemas.SOURCE_TABLES[table]))


def test_an_empty_store_has_a_frontier_and_nothing_before_it(driver: Driver, store: PipelineStore) -> None:
    upto = store.frontier()
    assert store.split(None, upto, 4) == []
    assert records(store.read_history(None, upto)) == []
    assert store.ahead(None, upto, 5) == upto
    for table in ("jobs", "attempts", "dlq", "workers"):
        assert records(store.read_table(table)) == []


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 500])
def test_the_parts_of_a_range_are_the_range(driver: Driver, store: PipelineStore, parts: int) -> None:
    live(driver, rounds=3)
    upto = store.frontier()
    whole = records(store.read_history(None, upto))
    ranges = store.split(None, upto, parts)
    assert len(ranges) <= parts
    assert [row for after, until in ranges for row in records(store.read_history(after, until))] == whole
    if parts > 1 and store.kind != "json":
        sizes = [len(records(store.read_history(*found))) for found in ranges]
        assert max(sizes) <= 2 * len(whole) / min(parts, len(whole)) + 1


def test_reading_goes_on_behind_a_cursor(driver: Driver, store: PipelineStore) -> None:
    live(driver)
    middle = store.frontier()
    live(driver, rounds=2, first=1)
    upto = store.frontier()
    whole = records(store.read_history(None, upto))
    assert records(store.read_history(None, middle)) + records(store.read_history(middle, upto)) == whole
    assert records(store.read_history(upto, upto)) == []
    assert store.order_of(None) < store.order_of(middle) < store.order_of(upto)


def test_ahead_is_so_many_rows_on(driver: Driver, store: PipelineStore) -> None:
    live(driver, rounds=2)
    upto = store.frontier()
    first = store.ahead(None, upto, 5)
    assert len(records(store.read_history(None, first))) == 5
    assert len(records(store.read_history(first, store.ahead(first, upto, 7)))) == 7
    assert store.ahead(first, upto, 100_000) == upto


def test_only_the_columns_that_are_asked_for_are_read(driver: Driver, store: PipelineStore) -> None:
    live(driver)
    wanted = ["outcome", "position", "at"]
    whole = records(store.read_history(None, store.frontier()))
    few = records(store.read_history(None, store.frontier(), wanted))
    assert few == [{name: row[name] for name in wanted} for row in whole]
    assert [list(row) for row in few[:1]] == [wanted]


def test_rows_arrive_once_however_small_the_chunks(
    driver: Driver, store: PipelineStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(driver, rounds=3)
    whole = records(store.read_history(None, store.frontier()))
    tables = {name: records(store.read_table(name)) for name in ("jobs", "attempts", "dlq")}
    monkeypatch.setattr(store_sql, "CHUNK_ROWS", 3)
    monkeypatch.setattr(store_sql, "FIRST_WIDE_ROWS", 1)
    assert records(store.read_history(None, store.frontier())) == whole
    for name, rows in tables.items():
        assert records(store.read_table(name)) == rows
        chosen = records(store.read_table(name, Selection(queue="mail")))
        assert chosen == [row for row in rows if row["queue"] == "mail"]


def test_no_lease_token_is_ever_shown(driver: Driver, store: PipelineStore) -> None:
    driver.enqueue([NewJob("a"), NewJob("b")])
    leased = driver.reserve("default", limit=2)
    tokens = {item.lease.token for item in leased}
    driver.ack(leased[0].job.id, leased[0].lease.token)
    text = repr(records(store.read_history(None, store.frontier())))
    text += "".join(repr(records(store.read_table(name))) for name in ("jobs", "attempts", "dlq"))
    assert not [token for token in tokens if token in text]


def test_a_cursor_of_another_store_is_refused(driver: Driver, store: PipelineStore) -> None:
    for foreign in ("nonsense", "", "a:b:c:1", f"{store.frontier()}:7", "7", "x:1:2"):
        with pytest.raises(InvalidCursor):
            list(store.read_history(foreign, store.frontier()))


# --- Others at work ----------------------------------------------------------------------------------------------


@pytest.mark.concurrency
def test_a_reader_beside_busy_writers_misses_nothing_and_repeats_nothing(
    driver: Driver, store: PipelineStore, store_url: str
) -> None:
    jobs, writers = (120, 2) if store.kind == "json" else (1200, 4)
    driver.enqueue([NewJob("work", b"{}", queue=f"q{number % writers}") for number in range(jobs)])

    def work(queue: str) -> None:
        own = open_driver(store_url)
        while leased := own.reserve(queue, limit=7, owner=queue):
            own.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased])
        own.close()

    threads = [threading.Thread(target=work, args=(f"q{number}",)) for number in range(writers)]
    for thread in threads:
        thread.start()
    seen: list[dict[str, Any]] = []
    cursor = None
    while True:
        over = not any(thread.is_alive() for thread in threads)
        upto = store.frontier()
        for found in store.split(cursor, upto, 2):
            seen += records(store.read_history(*found))
        cursor = upto
        if over:
            break
    for thread in threads:
        thread.join()
    assert len(seen) == jobs
    assert seen == by_driver(driver, store.store_id)


def test_a_row_that_commits_late_is_not_lost(postgres: Any) -> None:
    url = postgres.create_database()
    driver = open_driver(url)
    driver.migrate()
    live(driver)
    copied = (
        "INSERT INTO th_history (at, due_at, claimed_at, started_at, priority, attempt_no, delivery, final,"
        " job_id, type, queue, tenant_id, outcome, status) SELECT at, due_at, at, at, priority, 1, delivery, false,"
        " 'late', type, queue, tenant_id, 'retried', 'ready' FROM th_history LIMIT 1"
    )
    with open_store(url) as store, psycopg.connect(url) as late:
        late.execute(copied)  # it has its number now, and is seen by nobody
        live(driver, first=1)
        upto = store.frontier()
        seen = records(store.read_history(None, upto))
        assert not [row for row in seen if row["job_id"] == "late"]
        # A batch read is not held up: it shows what is committed.
        assert len(records(store.read_table("attempts"))) > len([row for row in seen if row["attempt_no"]])
        late.commit()
        seen += records(store.read_history(upto, store.frontier()))
        assert len([row for row in seen if row["job_id"] == "late"]) == 1
        assert seen == by_driver(driver, store.store_id)
    driver.close()


@pytest.mark.concurrency
def test_a_job_that_moves_while_it_is_read_is_seen_once(
    driver: Driver, store: PipelineStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_sql, "FIRST_WIDE_ROWS", 20)
    monkeypatch.setattr(store_sql, "CHUNK_ROWS", 20)
    jobs = 100 if store.kind == "json" else 800
    driver.enqueue([NewJob("work", b"{}") for number in range(jobs)])
    planned = store.plan_table("jobs", EVERYTHING, 3)

    def work() -> None:
        own = open_driver(store_url)
        while leased := own.reserve("default", limit=5):
            own.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased])
        own.close()

    worker = threading.Thread(target=work)
    worker.start()
    ids = [row["id"] for part in planned for row in records(store.read_part("jobs", EVERYTHING, part))]
    worker.join()
    assert len(ids) == len(set(ids)) == jobs


# --- Tables ----------------------------------------------------------------------------------------------------


def test_jobs_are_exactly_what_the_driver_lists(driver: Driver, store: PipelineStore) -> None:
    live(driver, rounds=2)
    names = schemas.JOBS.names
    listed = [arrows.job_record(job) for job in driver.list(limit=500).jobs]
    expected = sorted(({name: row[name] for name in names} for row in listed), key=lambda row: str(row["id"]))
    assert sorted(records(store.read_table("jobs")), key=lambda row: str(row["id"])) == expected
    for parts in (2, 5):
        found = [records(store.read_table("jobs", part=part, parts=parts)) for part in range(parts)]
        assert sorted((row for part in found for row in part), key=lambda row: str(row["id"])) == expected


def test_attempts_are_those_of_the_feed(driver: Driver, store: PipelineStore) -> None:
    live(driver, rounds=2)
    facts = [row for row in by_driver(driver, store.store_id) if row["attempt_no"] is not None]
    found = sorted(records(store.read_table("attempts")), key=lambda row: row["seq_no"])
    facts.sort(key=lambda fact: fact["seq_no"])
    assert [row["seq_no"] for row in found] == [row["seq_no"] for row in facts]
    for row, fact in zip(found, facts, strict=True):
        assert row["finished_at"] == fact["at"]
        assert row["success"] == (fact["outcome"] == "succeeded")
        assert {name: row[name] for name in row.keys() & fact.keys()} == {
            name: fact[name] for name in row.keys() & fact.keys()
        }


def test_dead_letters_and_workers(driver: Driver, store: PipelineStore) -> None:
    live(driver, rounds=2)
    dead = records(store.read_table("dlq"))
    assert [(row["type"], row["code"], row["reason"]) for row in dead] == [("dead", "declined", "no such card")] * 2
    assert {row["failed_at"] for row in dead} == {NOON + MINUTE, NOON + 61 * MINUTE}
    [worker] = records(store.read_table("workers"))
    assert (worker["id"], worker["pid"], worker["queues"], worker["slots"]) == ("w-1", 7, '["mail"]', 2)


def test_tables_can_be_selected_from(driver: Driver, store: PipelineStore) -> None:
    live(driver, rounds=2)

    def count(table: str, **wanted: Any) -> int:
        return len(records(store.read_table(table, Selection(**wanted))))

    everything = records(store.read_table("jobs"))
    assert count("jobs", tenant="acme") == 2
    assert count("jobs", type="done", status="done") == 2
    assert count("jobs", queue="no such queue' OR 1=1 --") == 0
    assert count("jobs", queue="back\\slash") == 0
    assert count("jobs", since=NOON + 30 * MINUTE) == len(everything) // 2
    assert count("jobs", until=NOON + 30 * MINUTE) == len(everything) // 2
    assert count("attempts", status="retried") == 2
    assert count("attempts", status="succeeded", since=NOON + 60 * MINUTE, until=NOON + 62 * MINUTE) >= 1
    assert count("dlq", type="dead", since=NOON + 2 * MINUTE) == 1
    assert count("workers", since=NOON + 61 * MINUTE) == 0
    for table, wanted in [("workers", {"queue": "mail"}), ("dlq", {"status": "dlq"}), ("jobs", {"status": "lost"})]:
        with pytest.raises(InvalidInput):
            count(table, **wanted)


# --- What may be in the way --------------------------------------------------------------------------------------


def test_a_store_travels_as_its_address_and_never_shows_its_password(store: PipelineStore, driver: Driver) -> None:
    copy = pickle.loads(pickle.dumps(store))
    with copy:
        assert copy.store_id == store.store_id
    assert "secret" not in repr(open_store("postgresql://harbor:secret@localhost/jobs"))
    assert "secret" not in repr(open_store("mysql://harbor:secret@localhost/jobs"))


def test_a_store_can_be_used_again_after_close(driver: Driver, store: PipelineStore) -> None:
    live(driver)
    before = store.frontier()
    store.close()
    store.close()
    assert store.frontier() == before


def test_behind_a_pooler(pgbouncer_url: str) -> None:
    driver = open_driver(pgbouncer_url)
    driver.migrate()
    live(driver, rounds=2)
    with open_store(pgbouncer_url) as one, open_store(pgbouncer_url) as two:
        for store in (one, two, one):
            assert records(store.read_history(None, store.frontier())) == by_driver(driver, store.store_id)
            assert records(store.read_table("jobs", parts=2))
    driver.close()


def test_memory_cannot_be_reached_from_executors() -> None:
    with pytest.raises(InvalidURL, match="executors cannot reach it: use sqlite"):
        open_store("memory://shared")
    with pytest.raises(InvalidURL, match="cannot read redis://"):
        open_store("redis://localhost")


def test_a_store_without_tables_says_how_to_make_them(store_url: str) -> None:
    with open_store(store_url) as store, pytest.raises(SchemaMissing, match="migrate"):
        store.frontier()
    with open_store(store_url) as store, pytest.raises(SchemaMissing, match="migrate"):
        list(store.read_table("jobs"))


@pytest.mark.parametrize(
    "url", ["postgresql://harbor:secret@127.0.0.1:9/jobs", "mysql://harbor:secret@127.0.0.1:9/jobs"]
)
def test_a_server_that_is_not_there_is_named_without_the_password(url: str) -> None:
    with open_store(url) as store, pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        store.frontier()
    assert "secret" not in str(caught.value)


def test_a_login_that_is_refused_is_told_from_a_server_that_is_not_there(postgres: Any) -> None:
    url = urlsplit(postgres.create_database())
    where = f"{url.hostname}:{url.port}"
    wrong = {
        "refused the login": f"postgresql://no_such_user:secret@{where}{url.path}",
        "no such database": f"postgresql://{url.username}:{url.password or ''}@{where}/no_such_database",
    }
    for said, address in wrong.items():
        with open_store(address) as store, pytest.raises(StoreRefused, match=said) as caught:
            store.frontier()
        assert "secret" not in str(caught.value)


def test_reading_leaves_an_sqlite_file_as_it_is(sqlite_driver: Driver, sqlite_url: str, tmp_path: Path) -> None:
    live(sqlite_driver)
    sqlite_driver.close()
    before = (tmp_path / "jobs.db").read_bytes()
    with open_store(sqlite_url) as store:
        assert records(store.read_table("jobs"))
    assert (tmp_path / "jobs.db").read_bytes() == before
