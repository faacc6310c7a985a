"""A whole store moved to another one: nothing is lost or doubled, whenever the move is ended and begun again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.full_stores import answers, fill, run_all

from taskharbor.core.carrying import TABLES
from taskharbor.core.errors import InvalidInput, MoveFailed, StoreMoved
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Job
from taskharbor.core.workflow import WorkflowState
from taskharbor.drivers import moving, open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.moving import End, Move, Report
from taskharbor.testing.helpers import add, add_keyed, everything, new_job, take
from taskharbor.testing.times import DAY, HOUR, NOON

KINDS = ("memory", "json", "sqlite", "postgres", "mysql")
PAIRS = [pytest.param((one, other), id=f"{one}-{other}") for one in KINDS for other in KINDS]
RING = [pytest.param(pair, id="-".join(pair)) for pair in zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True)]


class Killed(BaseException):
    """What a kill is to the process that is killed: nothing more is done."""


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], BaseDriver]]:
    """A new store of that kind."""
    opened: list[BaseDriver] = []

    def make(kind: str) -> BaseDriver:
        name = f"store-{len(opened)}"
        if kind in ("postgres", "mysql"):
            url = request.getfixturevalue(kind).create_database()
        else:
            url = {
                "memory": "memory://",
                "json": f"json:///{tmp_path}/{name}",
                "sqlite": f"sqlite:///{tmp_path}/{name}.db",
            }[kind]
        driver = open_driver(url)
        assert isinstance(driver, BaseDriver)
        driver.migrate()
        opened.append(driver)
        return driver

    yield make
    for driver in opened:
        driver.close()


def mover(source: BaseDriver, target: BaseDriver) -> Move:
    made = Move(End(source, "src"), End(target, "dst"))
    made.settle_s = 0.0
    return made


def as_killed(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed opens nothing again."""
    monkeypatch.setattr(move, "_open_again", lambda: None)


@pytest.mark.parametrize("pair", PAIRS)
def test_after_a_move_the_new_store_gives_the_same_answers_and_runs_the_same_jobs(
    pair: tuple[str, str], make: Callable[[str], BaseDriver]
) -> None:
    source, target = map(make, pair)
    fill(source)
    before = answers(source)
    report = mover(source, target).run()
    assert answers(target) == before == answers(source)
    assert report.moved["jobs"] == sum(job.status in ("ready", "dlq") for job in before["jobs"])
    assert report.moved["history"] == len(before["history"])
    assert all(report.moved[table] for table in TABLES), report.moved
    # A key still stands for the job that it stood for.
    assert add_keyed(target, "k1", queue="mail") == ("done-1", True)
    source.shut(False)
    assert run_all(target) == run_all(source)
    assert target.get_workflow("wf-1").state is WorkflowState.DONE
    assert target.counts() == source.counts()


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_was_moved_takes_in_no_jobs_and_gives_none_out(
    kind: str, make: Callable[[str], BaseDriver]
) -> None:
    source, target = make(kind), make("memory")
    add(source, id="one")
    mover(source, target).run()
    with pytest.raises(StoreMoved, match="dst"):
        source.enqueue([new_job()])
    with pytest.raises(StoreMoved):
        source.enqueue([new_job() for _ in range(2_500)])
    assert source.reserve("default", limit=10) == []
    assert [queue.name for queue in source.queues()] == []
    assert take(target).job.id == "one"


class Faulty:
    """A carrier that ends the process at one of its writes: before it, or when it is done."""

    def __init__(self, carrier: Any, number: int, *, after: bool) -> None:
        self._carrier = carrier
        self._left = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._carrier, name)
        if name not in ("bring", "clear", "write_notes"):
            return found

        def call(*given: Any) -> None:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            found(*given)
            if self._left < 0:
                raise Killed

        return call


def life(
    source: BaseDriver, target: BaseDriver, monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool
) -> Report | None:
    """A move that is killed at the write of this number; its report if it has no such write."""
    move = mover(source, target)
    monkeypatch.setattr(move, "_target", Faulty(move._target, number, after=after))
    as_killed(move, monkeypatch)
    try:
        return move.run()
    except Killed:
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_that_is_killed_again_and_again_comes_to_its_end(
    kind: str, make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "ROWS_AT_ONCE", 50)  # five rows in the first portion
    source, target = make("json" if kind == "sqlite" else "sqlite"), make(kind)
    fill(source)
    before = answers(source)
    lives = 0
    while (report := life(source, target, monkeypatch, lives, after=lives % 2 == 0)) is None:
        lives += 1
    assert lives > 5
    assert report.resumed or report.done_before
    assert answers(target) == before


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_move_can_be_killed_at_any_write(
    after: bool, make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "ROWS_AT_ONCE", 50)
    source = make("memory")
    fill(source)
    before = answers(source)
    number = 0
    while True:
        source.shut(False)
        source.carrier().write_notes({"move": None})
        target = make("memory")
        if life(source, target, monkeypatch, number, after=after) is not None:
            break
        mover(source, target).run()
        assert answers(target) == before
        number += 1
    assert number > 30


@pytest.mark.concurrency
@pytest.mark.parametrize("pair", RING)
def test_a_live_move_lets_the_source_work_until_it_is_shut_and_loses_no_job(
    pair: tuple[str, str], make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "ROWS_AT_ONCE", 100)
    source, target = map(make, pair)
    accepted = [answer.id for answer in source.enqueue([new_job() for _ in range(100)])]
    stopping = threading.Event()

    def produce() -> None:
        # Bounded: a producer that is quicker than the target would never let the move catch up.
        for _ in range(500):
            if stopping.wait(0.005):
                return
            try:
                accepted.extend(answer.id for answer in source.enqueue([new_job(), new_job()]))
            except StoreMoved:
                return

    def work() -> None:
        while not stopping.is_set():
            for leased in source.reserve("default", limit=3, lease_for=60):
                source.heartbeat(Worker("w1", "host", 1, ("default",), 1, "0"))
                source.ack(leased.job.id, leased.lease.token)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(produce), pool.submit(work)]
        move = mover(source, target)
        move.live, move.settle_s = True, 1.0
        try:
            while source.counts()["done"] < 30:
                pass
            report = move.run()
        finally:
            stopping.set()
        for each in running:
            each.result()
    counts = target.counts()
    assert sorted(accepted) == sorted(everything(target))
    assert counts["ready"] + counts["done"] == len(accepted)
    assert counts["done"] == report.moved["history"] >= 30
    assert len({row[0].job_id for row in target.carrier().take("history", None, 100_000)}) == counts["done"]


def test_a_live_move_whose_jobs_do_not_end_gives_the_source_back(make: Callable[[str], BaseDriver]) -> None:
    source, target = make("memory"), make("sqlite")
    fill(source)
    add(source, id="slow", now=source.now(), queue="slow")
    leased = source.reserve("slow", lease_for=3600)[0]
    move = mover(source, target)
    move.live, move.patience_s = True, 0.0
    with pytest.raises(MoveFailed, match="1 jobs of src still ran after 0 s"):
        move.run()
    source.ack("slow", leased.lease.token)
    before = answers(source)
    assert move.run().resumed
    assert answers(target) == before


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_on_the_way_opens_the_source_again(
    kind: str, make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make(kind), make("memory")
    fill(source)
    before = answers(source)
    move = mover(source, target)
    monkeypatch.setattr(move, "_target", Faulty(move._target, 7, after=True))
    with pytest.raises(Killed):
        move.run()
    assert not source.is_shut()
    assert mover(source, target).run().resumed
    assert answers(target) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_worked_on_after_an_error_is_moved_as_it_is_in_the_end(
    kind: str, make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "ROWS_AT_ONCE", 50)
    source, target = make(kind), make("json")
    fill(source)

    def fails(mark: Any) -> Any:
        raise MoveFailed(f"the disk is full at {mark}")

    move = mover(source, target)
    monkeypatch.setattr(move, "_verify", fails)
    with pytest.raises(MoveFailed, match="disk"):
        move.run()
    assert not source.is_shut()
    leased = take(source, now=NOON + HOUR)
    source.ack(leased.job.id, leased.lease.token, now=NOON + HOUR)
    add(source, id="newcomer")
    source.purge()
    source.resume("paused")
    source.remove_schedule("hourly")
    before = answers(source)
    assert mover(source, target).run().resumed
    assert answers(target) == before


def test_rows_that_differ_are_named_and_the_source_is_used_again(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("sqlite"), make("memory")
    fill(source)
    move = mover(source, target)
    copy = move._copy

    def and_somebody_writes(mark: Any) -> None:
        copy(mark)
        source.cancel("plain", now=NOON)

    monkeypatch.setattr(move, "_copy", and_somebody_writes)
    with pytest.raises(MoveFailed, match=r"history \(\d+ rows became \d+\), jobs \(\d+ rows became \d+\)"):
        move.run()
    add(source, id="free again")
    before = answers(source)
    mover(source, target).run()
    assert answers(target) == before


def test_a_change_of_a_single_letter_is_noticed(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("memory"), make("sqlite")
    fill(source)
    move = mover(source, target)
    bring = move._target.bring

    def and_changed(table: str, rows: Sequence[Any], notes: Any) -> None:
        if table == "jobs":
            rows = [(_other(job), *more) for job, *more in rows]
        bring(table, rows, notes)

    monkeypatch.setattr(move._target, "bring", and_changed)
    with pytest.raises(MoveFailed, match="jobs"):
        move.run()


def _other(job: Job) -> Job:
    return job._replace(payload=b"{ }") if job.id == "plain" else job


def test_what_cannot_be_moved_is_refused_before_anything_is_written(make: Callable[[str], BaseDriver]) -> None:
    source, target = make("sqlite"), make("json")
    add(source, id="one")
    used = make("sqlite")
    add(used, id="other")
    with pytest.raises(InvalidInput, match="not empty: it has jobs"):
        mover(source, used).run()
    with pytest.raises(InvalidInput, match="same store"):
        mover(source, source).run()
    leased = source.reserve("default", lease_for=3600)[0]
    for attempt in (mover(source, target).run, mover(source, target).plan):
        with pytest.raises(MoveFailed, match="1 jobs of src are running"):
            attempt()
    source.release(leased.job.id, leased.lease.token)
    source.heartbeat(Worker("w1", "host", 1, ("default",), 1, "0"))
    with pytest.raises(MoveFailed, match="1 workers run on src"):
        mover(source, target).run()
    source.deregister("w1")
    assert not source.is_shut()
    assert not target.is_shut()
    assert target.counts()["ready"] == 0
    assert mover(source, target).plan().moved["jobs"] == 1
    assert target.counts()["ready"] == 0


def test_one_move_does_not_get_mixed_up_with_another(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, third = make("memory"), make("sqlite"), make("json")
    add(source, id="one")
    add(third, id="two")
    move = mover(source, target)
    as_killed(move, monkeypatch)
    monkeypatch.setattr(move, "_target", Faulty(move._target, 1, after=True))
    with pytest.raises(Killed):
        move.run()
    with pytest.raises(InvalidInput, match="middle of another move"):
        mover(third, target).run()
    with pytest.raises(InvalidInput, match="being filled"):
        mover(target, make("memory")).run()
    with pytest.raises(InvalidInput, match="moved to dst"):
        mover(source, make("memory")).run()
    with pytest.raises(StoreMoved, match="same move"):
        target.enqueue([new_job()])
    mover(source, target).give_up()
    add(source, id="three")
    assert mover(source, target).run().moved["jobs"] == 2
    assert mover(source, target).run().done_before
    assert json.loads(target.carrier().note("moved_from") or "")["store_id"] == source.carrier().identity
    assert take(target, now=NOON + DAY).job.id == "one"
