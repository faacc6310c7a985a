"""Ctrl-C at the worst moment: a thread is taken out of a transaction that it has begun, before it has the connection.
What it left open lives on in the traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from taskharbor.core.model import NewJob, Status
from taskharbor.drivers.sqlite.driver import SqliteDriver

KINDS = ("reading", "writing")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SqliteDriver]:
    opened = SqliteDriver(str(tmp_path / "jobs.db"))
    opened.migrate()
    yield opened
    opened.close()


def left_open(driver: SqliteDriver, kind: str) -> AbstractContextManager[object]:
    """What the traceback of such an interrupt keeps."""
    left: AbstractContextManager[object] = getattr(driver._connections, kind)()
    connection = left.__enter__()
    if kind == "writing":
        connection.execute("DELETE FROM th_jobs")  # type: ignore[attr-defined]
    return left


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_closed_behind_an_interrupt(driver: SqliteDriver, kind: str) -> None:
    driver.enqueue([NewJob("t", id="kept")])
    left = left_open(driver, kind)
    driver.close()
    del left
    with SqliteDriver(driver._path) as again:
        assert again.get("kept").status is Status.READY


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_goes_on_behind_an_interrupt_and_keeps_nothing_of_what_was_begun(
    driver: SqliteDriver, kind: str
) -> None:
    driver.enqueue([NewJob("t", id="kept")])
    left = left_open(driver, kind)
    assert driver.get("kept").status is Status.READY
    driver.enqueue([NewJob("t", id="next")])
    with driver._connections.writing() as connection:
        connection.execute("DELETE FROM th_jobs WHERE id = 'next'")
        del left  # now, in the midst of another transaction, the traceback goes
    assert [job.id for job in driver.list().jobs] == ["kept"]
