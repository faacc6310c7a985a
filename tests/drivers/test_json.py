"""What the JSON driver promises beyond the contract: its files survive anything, and it says what is wrong."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.json_stores import contents, files, journal_of

from taskharbor.core.errors import (
    IdempotencyConflict,
    StoreUnavailable,
)
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Extension, Progress
from taskharbor.drivers.jsonfile import JsonDriver
from taskharbor.drivers.jsonfile import driver as driver_module
from taskharbor.testing.helpers import add, add_keyed, dead_job, done_job, everything, leased_job, new_job, take_ids
from taskharbor.testing.times import MINUTE, NOON


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def driver(directory: Path) -> Iterator[JsonDriver]:
    with JsonDriver(directory) as driver:
        driver.migrate()
        yield driver


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
def test_what_is_done_together_is_kept_as_a_whole_or_not_at_all(driver: JsonDriver, directory: Path) -> None:
    taken = add_keyed(driver, "taken")
    with pytest.raises(KeyError), driver.together() as inside:
        add(inside)
        assert add_keyed(inside, "taken").id == taken.id
        assert inside.counts()["ready"] == 2
        raise KeyError
    assert driver.counts()["ready"] == 1
    with driver.together() as inside:
        for _ in range(3):
            add(inside)
    with JsonDriver(str(directory)) as other:
        assert other.counts()["ready"] == driver.counts()["ready"] == 4


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
