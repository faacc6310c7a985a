"""Ctrl-C at any moment of a call of a store that keeps its jobs in this process: `memory://` and `json://`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.interrupting import each_interrupt, in_time

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreUnavailable
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, Status
from taskharbor.drivers.jsonfile import JsonDriver
from taskharbor.drivers.memory import MemoryDriver

SOME = 20

# A file that is lost between its opening and whoever asked for it is closed by Python, which says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


@pytest.fixture(params=["memory", "json"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    store = MemoryDriver() if request.param == "memory" else JsonDriver(tmp_path / "store", wait_s=5)
    with store as opened:
        opened.migrate()
        yield opened


def others_see(driver: Driver, id: str) -> Status:
    """What is found of the job beside this driver: on disk, where there is one."""
    if not isinstance(driver, JsonDriver):
        return driver.get(id).status
    with JsonDriver(driver._directory, wait_s=5) as other:
        return other.get(id).status


def interrupts(driver: Driver, work: Callable[[str], Callable[[], object]]) -> Iterator[tuple[str, Any]]:
    """The id of a job for each moment, and what keeps the traceback."""
    ids: list[str] = []

    def begin() -> Callable[[], object]:
        ids.append(f"job-{len(ids)}")
        return work(ids[-1])

    step = 3 if isinstance(driver, JsonDriver) else 1  # a disk takes its time
    for stopped in each_interrupt(begin, step):
        yield ids[-1], [stopped]
    assert len(ids) > SOME


@pytest.mark.parametrize("keeps", [False, True])
def test_an_interrupted_ack_is_there_with_its_attempt_or_not_at_all_and_can_be_repeated(
    driver: Driver, keeps: bool
) -> None:
    tokens = {}

    def settle(id: str) -> Callable[[], object]:
        driver.enqueue([NewJob("t", id=id)])
        (leased,) = driver.reserve("default")
        assert leased.job.id == id
        tokens[id] = leased.lease.token
        return lambda: driver.ack(id, leased.lease.token)

    for id, kept in interrupts(driver, settle):
        if not keeps:
            kept.clear()
        done = driver.get(id).status is Status.DONE
        assert len(driver.attempts(id)) == done
        assert [row.job_id for row in driver.history(None, 5_000).rows].count(id) == done
        driver.ack(id, tokens[id])
        assert others_see(driver, id) is Status.DONE
        assert len(driver.attempts(id)) == 1
    rows = driver.history(None, 5_000).rows
    assert sorted(row.job_id for row in rows) == sorted(tokens)


@pytest.mark.parametrize("keeps", [False, True])
def test_what_an_interrupted_reserve_did_not_lease_is_leased_next(driver: Driver, keeps: bool) -> None:
    driver.set_limit(Limit("queue", "default", concurrency=1))

    def claim(id: str) -> Callable[[], object]:
        driver.enqueue([NewJob("t", id=id)])
        return lambda: driver.reserve("default")

    for id, kept in interrupts(driver, claim):
        if not keeps:
            kept.clear()
        job = driver.get(id)
        if job.status is Status.READY:
            (leased,) = driver.reserve("default")
            assert leased.job.id == id
            job = leased.job
        assert job.lease_token is not None
        driver.ack(id, job.lease_token)


@pytest.mark.parametrize("work", ["read", "write"])
@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_stored_behind_an_interrupt_is_stored_and_other_threads_go_on(
    driver: Driver, work: str, keeps: bool
) -> None:
    driver.enqueue([NewJob("t", id="old")])

    def call(id: str) -> Callable[[], object]:
        return (lambda: driver.get("old")) if work == "read" else lambda: driver.enqueue([NewJob("t", id=f"{id}-0")])

    for id, kept in interrupts(driver, call):
        if not keeps:
            kept.clear()
        driver.enqueue([NewJob("t", id=id)])
        assert others_see(driver, id) is Status.READY
        assert in_time(driver.counts)
        kept.clear()
        gc.collect()
        assert others_see(driver, id) is Status.READY


def test_a_store_is_closed_behind_an_interrupt_at_any_moment(tmp_path: Path) -> None:
    opened: list[JsonDriver] = []
    driver = JsonDriver(tmp_path / "store", wait_s=5)
    driver.migrate()

    def call() -> Callable[[], object]:
        opened.append(JsonDriver(tmp_path / "store", wait_s=5))
        return opened[-1].counts

    for stopped in each_interrupt(call, 5):
        opened[-1].close()
        driver.resume("default")  # which needs the lock to itself, and changes nothing that takes room
        del stopped
    assert len(opened) > SOME
    driver.close()


def test_a_call_in_the_midst_of_another_one_of_its_thread_keeps_nothing_of_that_and_says_so(driver: Driver) -> None:
    driver.enqueue([NewJob("t", id="old")])

    def begun() -> None:
        with driver._writing() as state:  # type: ignore[attr-defined]
            state.drop("jobs", "old")
            driver.enqueue([NewJob("t", id="inner")])  # as from a signal handler
            state.put("notes", "half", "done")

    with pytest.raises(StoreUnavailable, match="in the same thread"):
        begun()
    assert {others_see(driver, id) for id in ("old", "inner")} == {Status.READY}
    assert driver._writing().__enter__().notes == {}  # type: ignore[attr-defined]
