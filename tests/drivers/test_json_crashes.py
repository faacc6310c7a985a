"""A JSON store survives a crash at any step: the old state is there, or the new one."""

from __future__ import annotations

import itertools
import os
import random
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
from tests.drivers.json_stores import contents, journal_of

from taskharbor.core.model import Settlement
from taskharbor.drivers.jsonfile import JsonDriver, mark
from taskharbor.drivers.jsonfile import driver as driver_module
from taskharbor.testing.helpers import add, everything, leased_job, new_job
from taskharbor.testing.times import NOON


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def driver(directory: Path) -> Iterator[JsonDriver]:
    with JsonDriver(directory) as driver:
        driver.migrate()
        yield driver


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
    before, whole_before = tmp_path / "before", journal.stat().st_size
    shutil.copytree(directory, before)
    add(driver, id="second")
    line = journal.read_bytes()[whole_before:]
    for length in range(len(line)):
        target = tmp_path / f"torn-{length}"
        shutil.copytree(before, target)
        with journal_of(target).open("ab") as torn:
            torn.write(line[:length])
        with JsonDriver(target) as survivor:
            assert everything(survivor).keys() == {"first"}
            add(survivor, id="third")
        with JsonDriver(target) as other:
            assert everything(other).keys() == {"first", "third"}
        shutil.rmtree(target)


def test_a_crash_before_the_length_of_the_journal_is_noted_loses_nothing(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(driver, id="first")
    with monkeypatch.context() as patch:
        patch.setattr(mark, "write", lambda *_: None)
        add(driver, id="second")
    with JsonDriver(directory) as other:
        assert everything(other).keys() == {"first", "second"}


@pytest.mark.parametrize("length", [0, 100, mark.OFFSET, mark.OFFSET + 40])
def test_a_torn_lock_file_says_nothing_about_the_journal(driver: JsonDriver, directory: Path, length: int) -> None:
    add(driver, id="first")
    os.truncate(directory / "lock", length)
    with JsonDriver(directory) as other:
        add(other, id="second")
        assert everything(other).keys() == {"first", "second"}


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
