"""Each driver beside the memory driver, in random sequences of every operation of the contract."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.contract.nesting import NestingDriver

from taskharbor.core.contract import Driver, Settled
from taskharbor.core.model import Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.drivers.jsonfile import driver as json_driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.state import State
from taskharbor.testing.emptying import empty_store
from taskharbor.testing.statemachine import compare_with_memory
from taskharbor.testing.times import MICROSECOND

pytestmark = pytest.mark.slow


def in_new_files(scheme: str, directory: Path) -> Callable[[], Driver]:
    numbers = itertools.count()

    def make() -> Driver:
        driver = open_driver(f"{scheme}:///{directory}/{next(numbers)}")
        driver.migrate()
        return driver

    return make


def on_server(url: str) -> Callable[[], Driver]:
    with open_driver(url) as driver:
        driver.migrate()

    def make() -> Driver:
        empty_store(url)
        return open_driver(url)

    return make


def test_the_json_driver_behaves_like_the_memory_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It writes and reads back its snapshot every few operations, so that a record it cannot keep is noticed.
    monkeypatch.setattr(json_driver, "SMALLEST_COMPACTION", 3_000)
    compare_with_memory(in_new_files("json", tmp_path), examples=60)


def test_the_sqlite_driver_behaves_like_the_memory_driver(tmp_path: Path) -> None:
    compare_with_memory(in_new_files("sqlite", tmp_path), examples=60)


def test_the_postgresql_driver_behaves_like_the_memory_driver(postgres: Any) -> None:
    compare_with_memory(on_server(postgres.create_database()), examples=40)


def test_the_mysql_driver_behaves_like_the_memory_driver(mysql: Any) -> None:
    compare_with_memory(on_server(mysql.create_database()), examples=30)


# --- Does it bite? -----------------------------------------------------------------------------------------


MOST = 2_000
"""Examples: the first that shows a difference is the last, and chance may want some."""


class RepeatsAreErrors(NestingDriver):
    """Forgets that a settle may be repeated."""

    def _settle(self, settlements: Sequence[Settlement], now: datetime) -> Settled:
        with self._writing() as state:
            finished = {item.id for item in settlements if item.id in state.finished}
            results = super()._settle(settlements, now)
            refusal = super()._settle([Settlement.ack("nobody", "")], now)[0]
            pairs = zip(settlements, results, strict=True)
            return [refusal if item.id in finished else result for item, result in pairs]


class LateByATick(NestingDriver):
    """Takes a lease back only after the moment it ends."""

    def _take_back(self, state: State, queues: Sequence[str], now: datetime) -> int:
        return super()._take_back(state, queues, now - MICROSECOND)


class LosesATime(NestingDriver):
    """Does not note when it was asked to stop a job."""

    def _cancel(self, id: str, now: datetime) -> Status:
        with self._writing() as state:
            status = super()._cancel(id, now)
            if status is Status.INFLIGHT:
                job = state.jobs[id]
                state.put("jobs", id, job._replace(updated_at=job.created_at))
            return status


@pytest.mark.parametrize("broken", [RepeatsAreErrors, LateByATick, LosesATime])
def test_a_planted_difference_is_found(broken: type[MemoryDriver]) -> None:
    with pytest.raises(AssertionError, match="the drivers differ"):
        compare_with_memory(broken, shrink=False, examples=MOST)
