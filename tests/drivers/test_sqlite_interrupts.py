"""Ctrl-C at the worst moment: a thread is taken out of a transaction that it has begun, before it has the connection.
What it left open lives on in the traceback."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from taskharbor.core.errors import StoreUnavailable
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


@pytest.mark.parametrize("kind", KINDS)
def test_others_go_on_when_the_traceback_goes_in_another_thread(driver: SqliteDriver, kind: str) -> None:
    kept = [left_open(driver, kind)]
    for work in (kept.clear, gc.collect, lambda: driver.enqueue([NewJob("t", id="next")]), lambda: driver.get("next")):
        other = threading.Thread(target=work, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
    assert driver.get("next").status is Status.READY


@pytest.mark.parametrize("kind", KINDS)
def test_who_waits_behind_what_was_left_goes_on_with_the_traceback_and_not_beside_who_came_in_since(
    driver: SqliteDriver, kind: str
) -> None:
    kept = [left_open(driver, kind)]
    waiting = threading.Thread(target=lambda: driver.enqueue([NewJob("t", id="late")]) and driver.counts(), daemon=True)
    waiting.start()
    with getattr(driver._connections, kind)() as connection:
        kept.clear()
        waiting.join(0.1)  # it comes in by the new lock, which is ours
        assert waiting.is_alive()
        assert connection.in_transaction
    waiting.join(10)
    assert not waiting.is_alive()
    assert driver.get("late").status is Status.READY


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_opened_again_at_once_is_opened_later(
    driver: SqliteDriver, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = left_open(driver, kind)

    def refused(mode: str, **_: object) -> object:
        raise StoreUnavailable("too many files are open")

    with monkeypatch.context() as patched:
        patched.setattr(driver._connections, "open", refused)
        with pytest.raises(StoreUnavailable, match="too many files"), getattr(driver._connections, kind)():
            pass
    driver.enqueue([NewJob("t", id="next")])
    assert driver.get("next").status is Status.READY
    del left
