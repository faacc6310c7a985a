"""What the JSON driver promises beyond the contract: its files survive anything, and it says what is wrong."""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskharbor.core.errors import (
    IdempotencyConflict,
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from taskharbor.core.model import Extension, Progress, Settlement, Worker
from taskharbor.drivers.jsonfile import JsonDriver
from taskharbor.drivers.jsonfile import driver as driver_module
from taskharbor.testing.helpers import add, add_keyed, dead_job, done_job, everything, leased_job, new_job, take_ids
from taskharbor.testing.times import MINUTE, NOON, SECOND


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def driver(directory: Path) -> Iterator[JsonDriver]:
    with JsonDriver(directory) as driver:
        driver.migrate()
        yield driver


def contents(directory: Path) -> tuple[Any, ...]:
    """All that a store knows, as a driver sees it that has just opened it."""
    with JsonDriver(directory) as driver:
        rows = driver.history().rows
        attempts = [driver.attempts(id) for id in sorted(everything(driver))]
        fleet = (driver.queues(), driver.workers(), driver.leaders())
        return everything(driver), rows, attempts, *fleet


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


def journal_of(directory: Path) -> Path:
    (path,) = directory.glob("journal-*.jsonl")
    return path


def fill(driver: JsonDriver) -> None:
    """One of everything."""
    done_job(driver, id="done", meta={"a": "ü"}, timeout=1.5, idempotency_key="k", payload=bytes(range(256)))
    dead_job(driver, id="dead", reason="no \N{SNOWMAN}")
    add(driver, id="later", run_at=NOON + MINUTE, expires_at=NOON + 2 * MINUTE, priority=-7)
    held = leased_job(driver, id="held", tenant_id="other")
    driver.extend([Extension("held", held.lease.token, 60, NOON, Progress(1, 3, "one"))], now=NOON)
    driver.cancel("held", now=NOON)
    driver.pause("mail")
    driver.heartbeat(Worker("w", "host", 1, ("default",), 2, "1.0", meta={"zone": "b"}), now=NOON)
    driver.elect("leader", "w", NOON)


# --- What is written is read back --------------------------------------------------------------------------


def test_every_record_is_read_back_from_the_journal_as_it_was(driver: JsonDriver, directory: Path) -> None:
    fill(driver)
    seen = (everything(driver), driver.history().rows, driver.workers(), driver.leaders(), driver.queues())
    with JsonDriver(directory) as other:
        assert (everything(other), other.history().rows, other.workers(), other.leaders(), other.queues()) == seen


def test_every_record_is_read_back_from_the_snapshot_as_it_was(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(driver)
    before = contents(directory)
    monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 1)
    with JsonDriver(directory) as compacting:
        for number in range(6):
            compacting.pause(f"queue-{number}")
            compacting.resume(f"queue-{number}")
        compacting.pause("mail")
    assert int(journal_of(directory).stem.removeprefix("journal-")) > 1
    after = contents(directory)
    assert after[:3] == before[:3]
    with JsonDriver(directory) as other, pytest.raises(IdempotencyConflict):
        add_keyed(other, "k", payload=b"not the same")


def test_history_goes_on_counting_after_its_last_rows_were_pruned(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done_job(driver)
    cursor = driver.history().cursor
    assert driver.prune(NOON + MINUTE) == 1
    monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 1)
    with JsonDriver(directory) as other:
        for _ in range(6):
            other.pause("x")
        new = done_job(other)
        assert [row.job_id for row in other.history(cursor).rows] == [new]


def test_a_poll_that_finds_nothing_writes_nothing(driver: JsonDriver, directory: Path) -> None:
    before = files(directory)
    assert driver.reserve("default", now=NOON) == []
    assert files(directory) == before


def test_compaction_leaves_one_snapshot_and_one_journal(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 2_000)
    with JsonDriver(directory) as other:
        for _ in range(50):
            done_job(other)
    assert sorted(files(directory)) == [journal_of(directory).name, "store.json"]
    assert journal_of(directory).stat().st_size < (directory / "store.json").stat().st_size
    # The driver that did not compact follows the one that did.
    assert driver.counts()["done"] == 50


# --- Crashes ---------------------------------------------------------------------------------------------------


class PowerCut(BaseException):
    """Not an Exception, so that nothing can tidy up behind it."""


@contextmanager
def power_cut_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From change number `step` of the file system on nothing is changed any more; that one is done by half."""
    steps = itertools.count()
    gone = False

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal gone
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            if not gone and next(steps) == step:
                gone = True
                if name == "pwrite":
                    target, data, offset = arguments
                    real(target, data[: len(data) // 2], offset)
            if gone:
                raise PowerCut
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "pwrite", "fsync", "ftruncate", "rename", "unlink", "mkdir"):
            patch.setattr(os, name, failing(name))
        yield


def enqueue_three(driver: JsonDriver) -> None:
    driver.enqueue([new_job(id=f"new-{number}") for number in range(3)], NOON)


def settle_two(driver: JsonDriver) -> None:
    driver.settle([Settlement.ack("a", driver.token_a), Settlement.fail("b", driver.token_b, reason="x")], now=NOON)  # type: ignore[attr-defined]


@pytest.mark.parametrize("operation", [enqueue_three, settle_two])
@pytest.mark.parametrize("compacting", [False, True])
def test_a_crash_at_any_step_leaves_the_old_state_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: Callable[[JsonDriver], None], compacting: bool
) -> None:
    origin = tmp_path / "origin"
    with JsonDriver(origin) as driver:
        driver.migrate()
        tokens = [leased_job(driver, id=id).lease.token for id in "ab"]
    if compacting:
        monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 1)

    def run(target: Path, step: int) -> bool:
        """Whether the operation came to its end."""
        shutil.copytree(origin, target)
        driver = JsonDriver(target)
        driver.token_a, driver.token_b = tokens  # type: ignore[attr-defined]
        driver.counts()
        try:
            with power_cut_at(step, monkeypatch):
                operation(driver)
        except PowerCut:
            return False
        return True

    old = contents(origin)
    assert run(tmp_path / "whole", 10_000)
    new = contents(tmp_path / "whole")
    assert new != old
    outcomes = set()
    for step in itertools.count():
        target = tmp_path / f"step-{step}"
        finished = run(target, step)
        found = contents(target)
        assert found in (old, new), f"after a crash at step {step}"
        outcomes.add(found == new)
        with JsonDriver(target) as survivor:
            add(survivor, id="next")
        with JsonDriver(target) as other:
            assert everything(other).keys() == found[0].keys() | {"next"}
        if finished:
            break
    assert step >= (10 if compacting else 2)
    assert outcomes == {True, False}


def test_a_crash_at_any_step_of_migrate_can_be_repeated_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in itertools.count():
        target = tmp_path / f"step-{step}"
        finished = False
        try:
            with power_cut_at(step, monkeypatch):
                JsonDriver(target).migrate()
                finished = True
        except PowerCut:
            pass
        with JsonDriver(target) as driver:
            driver.migrate()
            add(driver)
            assert len(everything(driver)) == 1
        if finished:
            break
    assert step >= 8


def test_an_operation_torn_at_any_byte_never_happened(driver: JsonDriver, directory: Path, tmp_path: Path) -> None:
    add(driver, id="first")
    journal = journal_of(directory)
    whole_before = journal.stat().st_size
    add(driver, id="second")
    line = journal.read_bytes()[whole_before:]
    for length in range(len(line)):
        target = tmp_path / f"torn-{length}"
        shutil.copytree(directory, target)
        os.truncate(journal_of(target), whole_before + length)
        with JsonDriver(target) as survivor:
            assert everything(survivor).keys() == {"first"}
            add(survivor, id="third")
        with JsonDriver(target) as other:
            assert everything(other).keys() == {"first", "third"}
        shutil.rmtree(target)


@pytest.mark.process
def test_a_killed_process_loses_nothing_that_it_was_told_is_safe(directory: Path, rng: random.Random) -> None:
    kept: set[str] = set()
    for round in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED_CHILD, str(directory), str(round)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        told = [child.stdout.readline()]
        timer = threading.Timer(rng.uniform(0.0, 0.3), child.send_signal, [signal.SIGKILL])
        timer.start()
        told += child.stdout.readlines()
        child.wait()
        timer.join()
        child.stdout.close()
        with JsonDriver(directory) as driver:
            jobs = everything(driver)
            batches = {id.rpartition("-")[0] for id in jobs}
            assert {f"{batch}-{number}" for batch in batches for number in range(5)} == jobs.keys()
            for line in told:
                if line.endswith("\n") and line.startswith("enqueued"):
                    kept.add(line.split()[1])
                elif line.endswith("\n") and line.startswith("settled"):
                    assert {jobs[f"{line.split()[1]}-{number}"].status for number in range(5)} == {"done"}
            assert kept <= batches
            finished = [row.job_id for row in driver.history(limit=10_000).rows]
            assert len(finished) == len(set(finished))
            assert set(finished) == {id for id, job in jobs.items() if job.status == "done"}
    assert kept


KILLED_CHILD = """
import sys
from taskharbor.drivers.jsonfile import JsonDriver, driver as module
from taskharbor.core.model import NewJob, Settlement

module.SMALLEST_COMPACTION = 5_000
store = JsonDriver(sys.argv[1])
store.migrate()
for number in range(10_000):
    batch = f"{sys.argv[2]}-{number}"
    store.enqueue([NewJob("t", b"x" * 50, queue=batch, id=f"{batch}-{n}") for n in range(5)])
    print("enqueued", batch, flush=True)
    leased = store.reserve(batch, limit=5)
    store.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased])
    print("settled", batch, flush=True)
"""


# --- Several at once -----------------------------------------------------------------------------------------


def produce_and_drain(directory: Path, name: str, results: Any) -> None:
    driver_module.SMALLEST_COMPACTION = 20_000  # type: ignore[misc]
    with JsonDriver(directory) as driver:
        done: list[str] = []
        for number in range(60):
            driver.enqueue([new_job(id=f"{name}-{number}")])
            for leased in driver.reserve("default", limit=2):
                driver.ack(leased.job.id, leased.lease.token)
                done.append(leased.job.id)
        results.put(done)


@pytest.mark.process
def test_processes_that_share_a_store_take_turns_and_lose_nothing(driver: JsonDriver, directory: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=produce_and_drain, args=(directory, name, results)) for name in ("a", "b", "c")]
    for process in processes:
        process.start()
    done = [id for _ in processes for id in results.get(timeout=60)]
    for process in processes:
        process.join()
    assert sorted(done) == sorted(f"{name}-{number}" for name in "abc" for number in range(60))
    assert driver.counts()["done"] == 180
    rows = [row.job_id for row in driver.history().rows]
    assert sorted(rows) == sorted(done)


@pytest.mark.process
def test_a_forked_child_reads_the_store_anew_and_shares_it(driver: JsonDriver, directory: Path) -> None:
    code = f"""
import os
from taskharbor.drivers.jsonfile import JsonDriver
from taskharbor.core.model import NewJob
store = JsonDriver({str(directory)!r})
store.enqueue([NewJob("t", id="parent")])
child = os.fork()
store.enqueue([NewJob("t", id="second" if child else "child")])
if child:
    os.waitpid(child, 0)
    print(sorted(job.id for job in store.list().jobs))
else:
    os._exit(0)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "['child', 'parent', 'second']"


def test_a_store_in_use_is_waited_for_and_then_refused_with_the_name_of_its_user(
    driver: JsonDriver, directory: Path
) -> None:
    with JsonDriver(directory, wait_s=0.05) as second:
        with driver._writing():
            expected = f"waited 0.05 s .*{re.escape(str(directory))}.* process {os.getpid()} on"
            with pytest.raises(StoreUnavailable, match=expected):
                add(second, id="x")
            with pytest.raises(StoreUnavailable, match="waited"):
                second.get("x")
        add(second, id="x")
    assert take_ids(driver) == ["x"]


def test_readers_do_not_wait_for_each_other(driver: JsonDriver, directory: Path) -> None:
    add(driver, id="x")
    with JsonDriver(directory, wait_s=0.05) as second, driver._reading():
        assert second.get("x").id == "x"


def test_a_lock_file_that_was_removed_is_made_again(driver: JsonDriver, directory: Path) -> None:
    add(driver, id="x")
    (directory / "lock").unlink()
    assert take_ids(driver) == ["x"]


# --- Refusals ------------------------------------------------------------------------------------------------


def test_a_missing_store_is_refused_and_left_missing(directory: Path) -> None:
    with JsonDriver(directory) as driver:
        with pytest.raises(SchemaMissing, match="taskharbor migrate"):
            add(driver)
        with pytest.raises(SchemaMissing, match=re.escape(str(directory))):
            driver.counts()
        assert not directory.exists()
        directory.mkdir()
        with pytest.raises(SchemaMissing):
            driver.counts()
        assert not list(directory.iterdir())


def foreign(text: str) -> Callable[[Path], None]:
    return lambda directory: (directory / "store.json").write_text(text) and None


def torn_snapshot(directory: Path) -> None:
    path = directory / "store.json"
    os.truncate(path, path.stat().st_size - 3)


def edited_snapshot(directory: Path) -> None:
    path = directory / "store.json"
    path.write_bytes(path.read_bytes().replace(b'"leaders"', b'"Leaders"'))


def reformatted_snapshot(directory: Path) -> None:
    path = directory / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))


def snapshot_lost(directory: Path) -> None:
    (directory / "store.json").unlink()


def journal_lost(directory: Path) -> None:
    journal_of(directory).unlink()


def journal_emptied(directory: Path) -> None:
    os.truncate(journal_of(directory), 0)


def journal_damaged(directory: Path) -> None:
    lines = journal_of(directory).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"ready"', b'"Ready"')
    journal_of(directory).write_bytes(b"".join(lines))


def journal_line_missing(directory: Path) -> None:
    lines = journal_of(directory).read_bytes().splitlines(keepends=True)
    journal_of(directory).write_bytes(b"".join(lines[:1] + lines[2:]))


def journal_of_another_store(directory: Path) -> None:
    with JsonDriver(directory.parent / "another") as other:
        other.migrate()
        add(other)
    shutil.copy(journal_of(directory.parent / "another"), journal_of(directory))


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (foreign(""), "is empty.*backup"),
    (foreign("\0\0\0\0"), "is empty"),
    (foreign("[]"), "no TaskHarbor store"),
    (foreign('{"jobs": [], "dlq": []}'), "no TaskHarbor store.*another directory"),
    (foreign("not JSON"), "no TaskHarbor store"),
    (foreign('{"format": "taskharbor-json", "version": "one"}'), "'one'.*never was"),
    (torn_snapshot, "torn.*backup"),
    (edited_snapshot, "checksum.*backup"),
    (reformatted_snapshot, "checksum.*backup"),
    (snapshot_lost, "store.json beside it is missing.*backup"),
    (journal_lost, "journal-1.jsonl is missing.*backup"),
    (journal_emptied, "(has no beginning|became shorter).*backup"),
    (journal_damaged, "damaged at byte [1-9].*backup"),
    (journal_line_missing, "damaged at byte [1-9].*backup"),
    (journal_of_another_store, "another store.*backup"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=[f"{m}" for _, m in DAMAGE])
def test_damage_is_a_clear_error_and_never_an_empty_store(
    driver: JsonDriver, directory: Path, damage: Callable[[Path], None], message: str
) -> None:
    for number in range(3):
        add(driver, id=f"job-{number}")
    driver.close()
    damage(directory)
    before = files(directory)
    with JsonDriver(directory) as reopened:
        for call in (reopened.counts, lambda: add(reopened), reopened.migrate):
            with pytest.raises(StoreCorrupt, match=message):
                call()
    assert files(directory) == before


def test_damage_is_noticed_by_a_driver_that_has_the_store_open(driver: JsonDriver, directory: Path) -> None:
    add(driver)
    (directory / "store.json").write_text("{}")
    with pytest.raises(StoreCorrupt, match="no TaskHarbor store"):
        driver.counts()


def test_the_jobs_file_of_another_queue_is_data_to_import_and_no_store(directory: Path) -> None:
    directory.mkdir()
    (directory / "jobs.json").write_text('{"jobs": [{"id": "1", "status": "pending"}], "dlq": []}')
    for path in (directory, directory / "jobs.json"):
        with JsonDriver(path) as driver:
            for call in (driver.counts, lambda: add(driver), driver.migrate):
                with pytest.raises(StoreCorrupt, match=r"jobs\.json.*data to import.*pipeline"):
                    call()
    assert [path.name for path in directory.iterdir()] == ["jobs.json"]


def test_a_store_of_a_newer_version_asks_for_an_upgrade(driver: JsonDriver, directory: Path) -> None:
    driver.close()
    path = directory / "store.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with JsonDriver(directory) as older:
        for call in (older.counts, older.migrate):
            with pytest.raises(SchemaTooNew, match="upgrade TaskHarbor"):
                call()


# --- Writes that fail ------------------------------------------------------------------------------------------


@contextmanager
def failing_writes(monkeypatch: pytest.MonkeyPatch, code: int, after: int = 0) -> Iterator[None]:
    """Every write stops after `after` bytes with the error `code`."""
    real = os.pwrite

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        if bytes(data[:7]) == b"process":
            return real(descriptor, data, offset)
        if after and len(data) > after:
            return real(descriptor, data[:after], offset)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        yield


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EROFS, StoreReadOnly), (errno.EIO, StoreUnavailable)],
)
@pytest.mark.parametrize("after", [0, 50])
def test_a_write_that_fails_changes_nothing_on_disk_or_in_memory(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception], after: int
) -> None:
    leased = leased_job(driver, id="a")
    add(driver, id="b")
    before, bytes_before = contents(directory), files(directory)
    with failing_writes(monkeypatch, code, after):
        for call in (
            lambda: driver.enqueue([new_job(id=f"c{n}") for n in range(50)], NOON),
            lambda: driver.ack("a", leased.lease.token, now=NOON),
            lambda: driver.reserve("default", now=NOON),
            lambda: driver.recover(NOON + MINUTE),
        ):
            with pytest.raises(error, match=re.escape(str(directory))):
                call()
        assert driver.get("b").status == "ready"
    assert contents(directory) == before
    assert files(directory) == bytes_before
    assert take_ids(driver) == ["b"]
    driver.ack("a", leased.lease.token, now=NOON + SECOND)


@pytest.mark.process
def test_a_real_limit_on_the_size_of_files_is_a_full_store(driver: JsonDriver, directory: Path) -> None:
    add(driver, id="a")
    code = f"""
import resource
from taskharbor import NewJob, StoreFull
from taskharbor.drivers.jsonfile import JsonDriver
store = JsonDriver({str(directory)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
try:
    store.enqueue([NewJob("t", b"x" * 5_000, id="b")])
except StoreFull as error:
    print(error)
store.enqueue([NewJob("t", b"x", id="c")])
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "free some space and try again" in output
    assert everything(driver).keys() == {"a", "c"}


def test_a_compaction_that_fails_fails_no_operation_and_is_not_tried_at_every_turn(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 1_000)
    tries = 0

    def full(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, JsonDriver(directory) as other:
        patch.setattr(driver_module.snapshot, "write", full)
        for number in range(20):
            add(other, id=f"{number:02}")
        assert 1 <= tries <= 6
    assert take_ids(driver) == [f"{number:02}" for number in range(20)]
    assert len(list(directory.glob("journal-*"))) == 1


def test_a_store_that_can_only_be_read_can_be_read(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(driver, id="a")
    before = files(directory)
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        # Permissions do not stop root, who may be running this.
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    with JsonDriver(directory) as reader:
        reader.migrate()
        assert reader.get("a").status == "ready"
        for call in (lambda: add(reader), lambda: reader.reserve("default", now=NOON)):
            with pytest.raises(StoreReadOnly, match="permissions"):
                call()
        assert reader.counts()["ready"] == 1
    with JsonDriver(directory.parent / "new") as missing, pytest.raises(StoreReadOnly):
        missing.migrate()
    assert files(directory) == before
