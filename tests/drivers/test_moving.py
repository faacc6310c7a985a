"""A whole store moved to another one: nothing is lost or doubled, whenever the move is ended and begun again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from tests.drivers.full_stores import answers, fill, run_all
from tests.drivers.movers import KINDS, RING, TWO, Faulty, Killed, connected, make, mover

from taskharbor.core.carrying import GONE, TABLES, Part, Row
from taskharbor.core.errors import InvalidInput, MoveFailed, StoreMoved
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Job, Schedule
from taskharbor.core.workflow import NewStep, NewWorkflow, WorkflowState
from taskharbor.drivers import comparing, flows, movement, moving, open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.moving import End, Move, Report
from taskharbor.testing.helpers import add, add_keyed, new_job, take, take_ids
from taskharbor.testing.times import DAY, HOUR, NOON

__all__ = ["make"]


def as_killed(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed opens nothing again."""
    monkeypatch.setattr(move, "_open_again", lambda: None)


@pytest.mark.parametrize("pair", RING)
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
    # The old store says where to go.
    with pytest.raises(StoreMoved, match="dst"):
        source.enqueue([new_job()])
    with pytest.raises(StoreMoved, match="dst"):
        source.enqueue([new_job() for _ in range(2_500)])
    with pytest.raises(StoreMoved, match="dst"):
        source.reserve("default", limit=10)
    assert [queue.name for queue in source.queues()] == [queue.name for queue in before["queues"]]
    source.shut(False)
    assert run_all(target) == run_all(source)
    assert target.get_workflow("wf-1").state is WorkflowState.DONE
    assert target.counts() == source.counts()


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


@pytest.mark.parametrize("pair", TWO)
def test_a_move_that_is_killed_again_and_again_comes_to_its_end(
    pair: tuple[str, str], make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "ROWS_AT_ONCE", 50)  # five rows in the first portion
    source, target = map(make, pair)
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
    monkeypatch.setattr(comparing, "ROWS_AT_ONCE", 50)
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


@pytest.mark.parametrize("kind", ["memory", "json", "sqlite"])
def test_a_worker_of_the_new_store_leads_at_once_and_with_a_later_epoch(
    kind: str, make: Callable[[str], BaseDriver]
) -> None:
    source, target = make("memory"), make(kind)
    now = source.now()
    assert source.elect("fleet", "old", now=now, term=HOUR) is not None
    mover(source, target).run()
    [known] = target.leaders()
    led = target.elect("fleet", "new", now=now, term=HOUR)
    assert led is not None
    assert (known.holder, led.epoch) == ("old", known.epoch + 1)


def test_an_error_on_the_way_opens_the_source_again(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("json"), make("memory")
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
def test_the_new_store_takes_no_job_from_when_the_old_one_sends_people_there(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source, target = make("memory"), make(kind)
    add(source)
    shut = source.shut
    refused = []

    def told(given: bool) -> None:
        shut(given)
        with pytest.raises(StoreMoved, match="has not ended"):
            add(target)
        refused.append(given)

    monkeypatch.setattr(source, "shut", told)
    monkeypatch.setattr(Move, "_shut_source", lambda _: None)  # the second time the new store is open
    mover(source, target).run()
    assert refused == [True]
    assert target.counts()["ready"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_comes_into_the_new_store_at_the_last_moment_stays_and_the_move_is_refused(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source, target = make("sqlite"), make(kind)
    add(source)
    late = []
    shut = target.shut

    def used(given: bool) -> None:
        if given:
            late.append(add(target))
        shut(given)

    monkeypatch.setattr(target, "shut", used)
    with pytest.raises(InvalidInput, match="not empty: it has jobs"):
        mover(source, target).run()
    assert take_ids(target) == late
    add(target)
    add(source)


@pytest.mark.parametrize("pair", TWO)
def test_a_source_that_worked_on_after_an_error_is_moved_as_it_is_in_the_end(
    pair: tuple[str, str], make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "ROWS_AT_ONCE", 50)
    source, target = map(make, pair)
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
        with monkeypatch.context() as at_a_prompt:
            at_a_prompt.setattr(source, "_refuse_shut", lambda _: None)
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

    def and_changed(parts: Sequence[Part], notes: Any) -> None:
        bring([part._replace(rows=[_changed(row) for row in part.rows]) for part in parts], notes)

    monkeypatch.setattr(move._target, "bring", and_changed)
    with pytest.raises(MoveFailed, match="jobs"):
        move.run()


def _changed(row: Row) -> Row:
    is_plain = isinstance(row[0], Job) and row[0].id == "plain"
    return (row[0]._replace(payload=b"{ }"), *row[1:]) if is_plain else row


@pytest.mark.parametrize("live", [False, True], ids=["shut", "live"])
@pytest.mark.parametrize("pair", RING)
def test_a_store_whose_settings_were_all_taken_back_is_empty(
    pair: tuple[str, str], make: Callable[[str], BaseDriver], live: bool
) -> None:
    source, target = map(make, pair)
    add(source, id="one")
    source.pause("mail")
    # As a worker does that is started too early, and its operator.
    target.set_limit(Limit("queue", "slow", concurrency=1), now=NOON)
    for queue in ("mail", "typo"):
        target.set_fair(queue, True, {"acme": 2.0}, now=NOON)
    target.pause("sync")
    target.put_schedule(Schedule("daily", "@daily", "t"), now=NOON)
    move = mover(source, target)
    move.live = live
    with pytest.raises(InvalidInput) as refused:
        move.run()
    said = str(refused.value)
    assert "not empty: it has queues, limits, schedules" in said
    for way_out in ("queues resume", "queues fair NAME --off", "queues limit NAME --lift", "schedules remove NAME"):
        assert way_out in said
    assert "or name another store" in said
    target.drop_limit("queue", "slow", now=NOON)
    for queue in ("mail", "typo"):
        target.set_fair(queue, False, now=NOON)
    target.resume("sync")
    target.remove_schedule("daily")
    move.run()
    assert [(queue.name, queue.paused, queue.fair) for queue in target.queues()] == [("mail", True, False)]
    assert target.get("one").id == "one"


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


@pytest.mark.parametrize("live", [False, True], ids=["shut", "live"])
def test_a_move_that_is_run_again_does_not_open_a_store_that_was_moved_on_since(
    make: Callable[[str], BaseDriver], live: bool
) -> None:
    first, second, third = make("sqlite"), make("json"), make("memory")
    add(first, id="one")

    def on() -> Move:
        move = Move(End(second, "second"), End(third, "third"))
        move.live = live
        return move

    mover(first, second).run()
    on().run()
    for again in (mover(first, second), mover(first, second)):
        report = again.run()
        assert (report.done_before, report.moved_on) == (True, "third")
        assert second.is_gone()
        with pytest.raises(StoreMoved, match="third"):
            second.enqueue([new_job()])
    assert on().run() == Report({}, done_before=True)
    assert take(third, now=NOON + DAY).job.id == "one"


def test_a_move_that_is_run_again_does_not_open_a_store_that_is_being_moved_on(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = make("sqlite"), make("json"), make("memory")
    add(first, id="one")
    mover(first, second).run()
    killed = Move(End(second, "second"), End(third, "third"))
    as_killed(killed, monkeypatch)
    monkeypatch.setattr(killed, "_target", Faulty(killed._target, 3, after=True))
    with pytest.raises(Killed):
        killed.run()
    assert mover(first, second).run().moved_on == "third"
    assert second.is_shut()
    Move(End(second, "second"), End(third, "third")).give_up()
    assert mover(first, second).run() == Report({}, done_before=True)
    assert not second.is_shut()


def test_a_move_that_has_ended_is_called_so(make: Callable[[str], BaseDriver]) -> None:
    source, target = make("sqlite"), make("memory")
    add(source)
    mover(source, target).run()
    assert mover(source, target).plan() == Report({}, done_before=True, dry_run=True)
    with pytest.raises(InvalidInput, match="everything of src was moved to dst: move that one"):
        mover(source, make("memory")).run()


@pytest.mark.parametrize("early", [True, False], ids=["before the store is shut", "after it"])
def test_a_workflow_that_is_still_being_started_is_not_moved_in_halves(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    source, target = make("sqlite"), make("memory")
    monkeypatch.setattr(flows, "AT_ONCE", 2)
    steps = [NewStep(f"s{number}", new_job()) for number in range(5)]
    at_desk = source._at_flow_desk
    said: list[str] = []

    def and_moved(work: Any) -> Any:
        done = at_desk(work)
        if not said:
            said.append("")
            move = mover(source, target)
            if not early:
                shut = move._shut
                monkeypatch.setattr(move, "_shut", lambda mark: (shut(mark), at_desk(in_midst))[0])
                at_desk(not_yet)
            with pytest.raises(MoveFailed, match="was still being started") as refused:
                move.run()
            said.append(str(refused.value))
        return done

    def not_yet(desk: Any) -> None:
        [flow] = desk.page(None, 1)
        desk.save([replace(flow, state=WorkflowState.RUNNING)])

    def in_midst(desk: Any) -> None:
        [flow] = desk.page(None, 1)
        desk.save([replace(flow, state=WorkflowState.STARTING)])

    monkeypatch.setattr(source, "_at_flow_desk", and_moved)
    id = source.start_workflow(NewWorkflow("large", steps), now=NOON)
    assert len(said) == 2
    monkeypatch.undo()
    assert mover(source, target).run().moved["jobs"] == 5
    assert target.get_workflow(id).state is WorkflowState.RUNNING


def test_only_the_target_of_a_move_can_give_it_up(
    make: Callable[[str], BaseDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, other = make("memory"), make("sqlite"), make("memory")
    add(source, id="one")
    wrong = Move(End(source, "src"), End(other, "typo"))
    with pytest.raises(InvalidInput, match="typo knows of no move from src"):
        wrong.give_up()
    killed = mover(source, target)
    as_killed(killed, monkeypatch)
    monkeypatch.setattr(killed, "_target", Faulty(killed._target, 3, after=True))
    with pytest.raises(Killed):
        killed.run()
    with pytest.raises(InvalidInput, match="being moved to dst, not to typo"):
        wrong.give_up()
    with pytest.raises(InvalidInput, match="being filled"):
        Move(End(target, "dst"), End(other, "typo")).give_up()
    assert source.is_shut()
    assert target.is_shut()
    # The target has been lost, and with it nothing: another store is in its place.
    mover(source, make("memory")).give_up()
    assert not source.is_shut()
    mover(source, target).run()
    for attempt in (wrong, mover(source, target), mover(source, make("memory"))):
        with pytest.raises(InvalidInput, match="is at dst already"):
            attempt.give_up()
    # Killed before the source was told that all of it is there.
    source.set_mark(GONE, False)
    for attempt in (wrong, mover(source, target), mover(source, make("memory"))):
        with pytest.raises(InvalidInput):
            attempt.give_up()
    assert source.is_shut()


@pytest.mark.parametrize("live", [False, True], ids=["shut", "live"])
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_transaction_that_was_open_when_the_source_was_shut_is_waited_for(
    kind: str,
    live: bool,
    make: Callable[[str], BaseDriver],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(movement, "TRY_S", 1.0)
    monkeypatch.setattr(moving, "OPEN_S", 0.0)
    url = request.getfixturevalue(kind).create_database()
    source, target = open_driver(url), make("memory")
    assert isinstance(source, BaseDriver)
    source.migrate()
    move = mover(source, target)
    move.live, move.pace.patience_s = live, 0.0
    with closing(source), closing(connected(kind, url)) as connection:
        [late] = source.enqueue([new_job()], connection=connection)
        with pytest.raises(MoveFailed, match="a transaction that has written to src is still open"):
            move.run()
        assert not source.is_shut()
        connection.commit()
        assert move.run().moved["jobs"] == 1
        assert target.get(late.id).status.value == "ready"
