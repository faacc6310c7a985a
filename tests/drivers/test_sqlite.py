"""What the SQLite driver promises beyond the contract: plans that do not grow with the backlog, and plain words
when something is wrong with the file."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from taskharbor.core.errors import (
    DriverClosed,
    InvalidURL,
    LeaseMismatch,
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from taskharbor.core.model import JobFilter, Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.drivers.sqlite import locked
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.drivers.sqlite.ordered import ordered
from taskharbor.drivers.sqlite.schema import migration_sql
from taskharbor.testing.helpers import add, add_all, dead_job, done_job, everything, leased_jobs, new_job, shown
from taskharbor.testing.times import MINUTE, NOON


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def driver(path: Path) -> Iterator[SqliteDriver]:
    with SqliteDriver(str(path)) as driver:
        driver.migrate()
        yield driver


def run(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


# --- Plans -----------------------------------------------------------------------------------------------------


def plan(driver: SqliteDriver, path: Path, statement: str) -> str:
    """How SQLite will run a statement of the driver, on one line."""
    sql = driver._sql[statement]
    values = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]+)", sql), "[]")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(driver._sql["create_ending"])
        return " | ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))


PLANS = {
    "select_due": "th_jobs USING INDEX th_jobs_ready (queue=? AND priority=? AND due_at<?)",
    "rank_due": "th_jobs USING INDEX th_jobs_ready (queue=? AND priority=? AND due_at<?)",
    "select_due+tenant": "th_jobs USING INDEX th_jobs_ready (queue=? AND priority=? AND due_at<?)",
    "rank_due+tenant": "th_jobs USING INDEX th_jobs_ready (queue=? AND priority=? AND due_at<?)",
    "next_priority": "th_jobs USING INDEX th_jobs_ready (queue=? AND priority<?)",
    "claim": "th_jobs USING INTEGER PRIMARY KEY (rowid=?)",
    "record_finished": "SCAN ending | SEARCH job USING INDEX sqlite_autoindex_th_jobs_1 (id=?)",
    "delete_finished": "SCAN ending | SEARCH job USING INDEX sqlite_autoindex_th_jobs_1 (id=?)",
    "settle_retry": "th_jobs USING INDEX sqlite_autoindex_th_jobs_1 (id=?)",
    "select_lapsed": "th_jobs USING INDEX th_jobs_leases (queue=? AND lease_expires_at<?)",
    "select_expired": "th_jobs USING INDEX th_jobs_expiries (queue=? AND expires_at>? AND expires_at<?)",
    "list_dead": "th_jobs USING INDEX th_jobs_dead (id<?)",
    "list_live": "th_jobs USING INDEX sqlite_autoindex_th_jobs_1 (id<?)",
    "list_finished": "th_history USING INDEX th_history_jobs (job_id<?)",
    "history": "th_history USING INTEGER PRIMARY KEY (rowid>?)",
    "latest_behind": "th_history USING INTEGER PRIMARY KEY (rowid>?)",
    "count_live+queue+ready": "th_jobs USING INDEX th_jobs_ready (queue=?)",
    "count_live+inflight+queue": "th_jobs USING INDEX th_jobs_leases (queue=?)",
    "count_finished+queue+status": "USING COVERING INDEX th_history_ended (final=? AND status=? AND queue=?)",
    "get_tokens": "th_tokens USING PRIMARY KEY (id=?)",
    "get_finished": "th_history USING INDEX th_history_jobs (job_id=?)",
    "select_ended": "ended USING INDEX th_history_ended (final=? AND status=? AND queue=? AND at<?)",
}


@pytest.mark.parametrize("statement", PLANS)
@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
def test_no_operation_walks_over_the_backlog_or_the_history(
    driver: SqliteDriver, path: Path, statement: str, analyzed: bool
) -> None:
    if analyzed:
        # Somebody took statistics when the store was small, which is when they mislead the most.
        for _ in range(20):
            done_job(driver)
            dead_job(driver)
        add_all(driver, [new_job() for _ in range(20)])
        run(path, "ANALYZE")
    steps = plan(driver, path, statement)
    assert PLANS[statement] in steps
    assert "TEMP B-TREE FOR ORDER BY" not in steps
    assert not re.search(r"SCAN (th_|job)|BLOOM", steps)


def test_a_claim_works_as_hard_with_many_jobs_waiting_as_with_few(driver: SqliteDriver) -> None:
    def steps_of_a_claim() -> int:
        """How many instructions SQLite needs, to the nearest hundred: time without the noise of a clock."""
        hundreds = 0

        def count() -> None:
            nonlocal hundreds
            hundreds += 1

        connection = driver._connections._writer
        assert connection is not None
        connection.set_progress_handler(count, 100)
        try:
            assert len(driver.reserve("default", now=NOON, limit=10)) == 10
        finally:
            connection.set_progress_handler(None, 0)
        return hundreds

    add_all(driver, [new_job() for _ in range(50)])
    few = steps_of_a_claim()
    add_all(driver, [new_job() for _ in range(5_000)])
    add_all(driver, [new_job(priority=9, run_at=NOON + MINUTE) for _ in range(5_000)])
    assert steps_of_a_claim() <= few + 3


def test_the_order_of_values_is_checked_against_the_statement() -> None:
    assert ordered("SELECT :a, :b, :a", "a", "b", "a") == "SELECT ?, ?, ?"
    with pytest.raises(AssertionError, match="the code gives"):
        ordered("SELECT :a, :b", "b", "a")


# --- Settling --------------------------------------------------------------------------------------------------


def test_a_stale_lease_among_many_leaves_no_trace_of_the_first_try(driver: SqliteDriver) -> None:
    leases = leased_jobs(driver, 120)
    items = [Settlement.ack(leased.job.id, leased.lease.token, result=b"\x00\xff") for leased in leases]
    items[60] = Settlement.ack(items[60].id, "stale")
    results = shown(driver.settle([*items, items[0]], now=NOON))
    assert results == [LeaseMismatch if number == 60 else Status.DONE for number in range(121)]
    assert len(driver.history().rows) == 119
    assert driver.get(items[0].id).result == b"\x00\xff"
    assert driver.get(items[60].id).status is Status.INFLIGHT


# --- The file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"jobs, jobs, jobs\n" * 100, b"x"], ids=["text", "byte"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with SqliteDriver(str(path)) as driver:
        for call in (driver.migrate, driver.counts, lambda: add(driver)):
            with pytest.raises(StoreCorrupt, match="not an SQLite database"):
                call()
    assert path.read_bytes() == content


def test_a_damaged_file_is_an_error_and_not_an_empty_store(driver: SqliteDriver, path: Path) -> None:
    add_all(driver, [new_job(payload=b"x" * 1_000) for _ in range(200)])
    driver.close()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with SqliteDriver(str(path)) as damaged, pytest.raises(StoreCorrupt, match="damaged"):
        everything(damaged)


def test_tables_of_somebody_else_are_not_taken_over(path: Path) -> None:
    run(path, "CREATE TABLE th_jobs (mine TEXT)")
    with SqliteDriver(str(path)) as driver, pytest.raises(StoreCorrupt, match="prefix"):
        driver.migrate()
    assert run(path, "SELECT name FROM sqlite_master") == [("th_jobs",)]
    with SqliteDriver(str(path), prefix="queue_") as driver:
        driver.migrate()
        job_id = add(driver)
        assert everything(driver).keys() == {job_id}


def test_two_prefixes_are_two_stores_in_one_file(driver: SqliteDriver, path: Path) -> None:
    with SqliteDriver(str(path), prefix="other_") as other:
        other.migrate()
        job_id = add(other)
        assert driver.counts()["ready"] == 0
        assert other.reserve("default", now=NOON)[0].job.id == job_id
        with pytest.raises(Exception, match="not from this store"):
            driver.history(other.history().cursor)


def test_using_a_store_before_migrate_says_so_and_creates_nothing(path: Path) -> None:
    with SqliteDriver(str(path)) as driver:
        for call in (driver.counts, lambda: add(driver)):
            with pytest.raises(SchemaMissing, match="taskharbor --url … migrate"):
                call()
        assert not path.exists()
        sqlite3.connect(path).close()
        path.touch()
        with pytest.raises(SchemaMissing, match="taskharbor --url … migrate"):
            driver.counts()
        driver.migrate()
        assert driver.counts()["ready"] == 0


def test_a_store_of_a_later_version_is_refused(driver: SqliteDriver, path: Path) -> None:
    run(path, "INSERT INTO th_migrations VALUES (999, 'later', 0)")
    for call in (driver.migrate, driver.counts, lambda: add(driver)):
        with pytest.raises(SchemaTooNew, match="upgrade"):
            call()


def test_the_printed_migration_makes_the_same_store(driver: SqliteDriver, path: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed.db"
    with closing(sqlite3.connect(printed)) as connection:
        connection.executescript(migration_sql("th_"))
    tables = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    assert run(printed, tables) == run(path, tables)
    with SqliteDriver(str(printed)) as other:
        job_id = add(other)
        other.migrate()
        assert everything(other).keys() == {job_id}


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with SqliteDriver(str(tmp_path / "nowhere" / "jobs.db")) as driver:
        for call in (driver.migrate, driver.counts):
            with pytest.raises(StoreUnavailable, match="directory .*nowhere does not exist"):
                call()


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    with SqliteDriver(str(tmp_path)) as driver, pytest.raises(StoreUnavailable, match="must be a file"):
        driver.migrate()


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anything, so be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_directory(tmp_path: Path) -> Iterator[Path]:
    """`tmp_path`, which any user may enter."""
    places = [place for place in (tmp_path, *tmp_path.parents) if not place.stat().st_mode & 0o001]
    modes = {place: place.stat().st_mode for place in places if place.stat().st_uid == os.geteuid()}
    for place, mode in modes.items():
        place.chmod(mode | 0o055)
    yield tmp_path
    for place, mode in modes.items():
        place.chmod(mode)


@pytest.mark.parametrize("directory_mode", [0o555, 0o777])
def test_a_read_only_file_says_so_and_stays_as_it_is(
    driver: SqliteDriver, path: Path, open_directory: Path, directory_mode: int
) -> None:
    add(driver)
    driver.close()
    path.chmod(0o444)
    open_directory.chmod(directory_mode)
    before = path.read_bytes()
    try:
        with without_privileges(), SqliteDriver(str(path)) as reader, pytest.raises(StoreReadOnly, match="permissions"):
            add(reader)
    finally:
        open_directory.chmod(0o755)
    assert path.read_bytes() == before


@pytest.mark.parametrize("options", [{}, {"mode": "ro"}])
def test_a_reader_without_rights_reads_while_a_writer_is_there_and_else_hears_why_it_cannot(
    driver: SqliteDriver, path: Path, open_directory: Path, options: dict[str, str]
) -> None:
    job_id = add(driver)
    path.chmod(0o444)
    open_directory.chmod(0o555)
    try:
        with without_privileges(), SqliteDriver(str(path), options=options) as reader:
            assert reader.get(job_id).status is Status.READY
        open_directory.chmod(0o755)
        driver.close()
        open_directory.chmod(0o555)
        with (
            without_privileges(),
            SqliteDriver(str(path), options=options) as reader,
            pytest.raises(StoreReadOnly, match="cannot even be read by this user while no process .* Keep such"),
        ):
            reader.counts()
        path.chmod(0o000)
        with (
            without_privileges(),
            SqliteDriver(str(path), options=options) as reader,
            pytest.raises(StoreRefused, match="cannot be read by this user: give it the right"),
        ):
            reader.counts()
    finally:
        open_directory.chmod(0o755)
        path.chmod(0o644)


def test_a_store_can_be_opened_only_to_read(driver: SqliteDriver, path: Path) -> None:
    job_id = add(driver)
    with open_driver(f"sqlite:///{path}?mode=ro") as reader:
        assert reader.get(job_id).status is Status.READY
        assert reader.list(JobFilter(status=Status.DLQ)).jobs == []
        for call in (lambda: add(reader), lambda: reader.reserve("default"), lambda: reader.cancel(job_id)):
            with pytest.raises(StoreReadOnly, match="leave mode=ro out of the URL"):
                call()
    assert driver.get(job_id).status is Status.READY


def test_a_full_disk_keeps_nothing_of_the_call_and_harms_nothing_before_it(driver: SqliteDriver) -> None:
    first = add(driver)
    writer = driver._connections._writer
    assert writer is not None
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 10}")
    with pytest.raises(StoreFull, match="nothing of the call was kept"):
        add_all(driver, [new_job(payload=b"x" * 10_000) for _ in range(50)])
    assert everything(driver).keys() == {first}
    writer.execute("PRAGMA max_page_count = 1000000")
    assert len({first, *add_all(driver, [new_job(payload=b"x" * 10_000) for _ in range(50)])}) == 51


def test_a_lock_held_for_too_long_is_an_error_that_names_the_cause(driver: SqliteDriver, path: Path) -> None:
    add(driver)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        SqliteDriver(str(path), options={"busy_timeout": "1"}) as waiting,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert waiting.counts()["ready"] == 1, "reading waits for nobody"
        with pytest.raises(StoreUnavailable, match="locked by another program"):
            add(waiting)
        other.execute("ROLLBACK")
        add(waiting)
    assert driver.counts()["ready"] == 2


def test_ctrl_c_is_heeded_while_somebody_else_holds_the_lock(driver: SqliteDriver, path: Path) -> None:
    """SQLite waits where Python hears no signal, so it must not wait for all of its half minute at once."""
    add(driver)
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who began this may have it ignored
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                interrupt.start()
                add(driver)
            assert time.monotonic() - began < 5
            other.execute("ROLLBACK")
    finally:
        signal.signal(signal.SIGINT, before)
    add(driver)
    assert driver.counts()["ready"] == 2


def test_a_lock_that_is_let_go_in_time_is_waited_for(driver: SqliteDriver, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        go = threading.Timer(3 * locked.SLICE_S, other.execute, ("ROLLBACK",))
        go.start()
        add(driver)
        go.join()
    assert driver.counts()["ready"] == 1


def test_every_commit_waits_for_the_disk_unless_told_otherwise(driver: SqliteDriver, path: Path) -> None:
    def synchronous(driver: SqliteDriver) -> tuple[object, object]:
        with driver._writing() as connection:
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            return mode, connection.execute("PRAGMA synchronous").fetchone()[0]

    assert synchronous(driver) == ("wal", 2)
    with SqliteDriver(str(path), options={"synchronous": "normal"}) as hasty:
        assert synchronous(hasty) == ("wal", 1)


@pytest.mark.parametrize(
    "query", ["synchronous=off", "busy_timeout=soon", "busy_timeout=0", "mode=rwc", "journal=none", "prefix=th_;--"]
)
def test_an_option_that_makes_no_sense_is_refused(path: Path, query: str) -> None:
    with pytest.raises(InvalidURL):
        open_driver(f"sqlite:///{path}?{query}")


def test_a_database_in_memory_is_refused_because_nobody_else_would_see_it() -> None:
    with pytest.raises(InvalidURL, match="memory://"):
        open_driver("sqlite:///:memory:")


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(StoreUnavailable, match=r"3\.35 or newer is needed.*3\.34\.1"):
        SqliteDriver(str(path))


# --- Threads and processes -------------------------------------------------------------------------------------


def test_closing_while_others_work_ends_their_calls_with_driver_closed(driver: SqliteDriver) -> None:
    endings: list[BaseException] = []
    started = threading.Barrier(5)

    def work() -> None:
        started.wait()
        try:
            while True:
                add(driver)
                driver.counts()
        except BaseException as error:
            endings.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    driver.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in endings] == [DriverClosed] * 4


def _work_after_fork(driver: SqliteDriver) -> None:
    for _ in range(20):
        add(driver)
        driver.counts()
    driver.close()


@pytest.mark.process
def test_a_driver_that_was_used_before_a_fork_works_on_both_sides(driver: SqliteDriver) -> None:
    add(driver)
    driver.counts()
    children = [multiprocessing.get_context("fork").Process(target=_work_after_fork, args=(driver,)) for _ in range(3)]
    for child in children:
        child.start()
    _add_some(driver)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert driver.counts()["ready"] == 1 + 20 + 3 * 20


def _add_some(driver: SqliteDriver) -> None:
    for _ in range(20):
        add(driver)


def test_a_change_by_anybody_is_noticed_once(driver: SqliteDriver, path: Path) -> None:
    driver.changed()
    assert not driver.changed()
    add(driver)
    assert driver.changed()
    assert not driver.changed()
    with SqliteDriver(str(path)) as other:
        other.counts()
        assert not driver.changed()
        add(other)
        assert driver.changed()


def test_the_views_show_attempts_and_the_dlq_in_the_shape_of_other_queues(driver: SqliteDriver, path: Path) -> None:
    done, dead = done_job(driver), dead_job(driver, reason="broke", tenant_id="acme", payload=b"{}")
    assert run(path, "SELECT job_id, attempt_no, reason, success FROM th_attempts ORDER BY id") == [
        (done, 1, "", 1),
        (dead, 1, "broke", 0),
    ]
    columns = "id, job_id, task_id, queue, topic, tenant_id, payload, meta, retries, reason, last_error, failed_at"
    assert run(path, f"SELECT {columns} FROM th_dlq") == [
        (dead, dead, dead, "default", "default", "acme", b"{}", None, 1, "broke", "broke", NOON.timestamp() * 1e6)
    ]
