"""A store that is drained into another while both are in use: each job is run once, wherever it is by then."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from tests.drivers.full_stores import QUEUES, answers, fill
from tests.drivers.movers import RING, Faulty, Killed, make, mover

from taskharbor.core.errors import InvalidInput, JobNotFound, LeaseLost, MoveFailed, StoreMoved
from taskharbor.core.model import NewJob, Overlap, RetryUpdate, Schedule
from taskharbor.core.tokens import Role, Token
from taskharbor.core.workflow import NewStep, NewWorkflow, WorkflowState
from taskharbor.drivers import comparing, draining
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.movement import read_mark
from taskharbor.drivers.moving import End, Move
from taskharbor.testing.helpers import add, add_all, everything, new_job, take, take_all
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON
from taskharbor.worker.scheduler import run_schedules

__all__ = ["make"]

Make = Callable[[str], BaseDriver]


def live(source: BaseDriver, target: BaseDriver) -> Move:
    move = mover(source, target)
    move.live = True
    return move


def flow(id: str) -> NewWorkflow:
    job = NewJob("work", b"{}", "flows")
    steps = [NewStep("a", job), NewStep("b", job, (0,)), NewStep("c", job, (0,)), NewStep("d", job, (1, 2))]
    return NewWorkflow("diamond", steps, id=id)


@pytest.mark.concurrency
@pytest.mark.parametrize("pair", RING)
def test_producers_and_workers_of_both_stores_go_on_and_every_job_is_run_once(
    pair: tuple[str, str], make: Make, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(comparing, "ROWS_AT_ONCE", 200)
    monkeypatch.setattr(draining, "FEW", 5)
    source, target = map(make, pair)
    accepted = [answer.id for answer in source.enqueue([new_job() for _ in range(150)])]
    source.start_workflow(flow("wf-1"))
    ran: list[str] = []
    stopping = threading.Event()
    seeds = [rng.randrange(2**32) for _ in range(2)]

    def produce() -> None:
        # Bounded: a producer that is quicker than the target would never let the move catch up.
        for number in range(150):
            if stopping.wait(0.005):
                return
            try:
                keyed = new_job(idempotency_key=f"k{number % 40}")
                accepted.extend(answer.id for answer in source.enqueue([new_job(), keyed]))
            except StoreMoved:
                return

    def work(driver: BaseDriver, seed: int) -> None:
        random_source = random.Random(seed)
        while not stopping.wait(0.002):
            try:
                leased = driver.reserve(("default", "flows"), limit=3, lease_for=60)
            except StoreMoved:
                continue
            for each in leased:
                if random_source.random() < 0.2:
                    update = RetryUpdate(attempts=1, last_error="again")
                    driver.retry(each.job.id, each.lease.token, update=update)
                    continue
                driver.ack(each.job.id, each.lease.token)
                ran.append(each.job.id)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(produce)]
        running += [pool.submit(work, driver, seed) for driver, seed in zip((source, target), seeds, strict=True)]
        move = live(source, target)
        move.pace.settle_s = 1.0
        try:
            while len(ran) < 30 and not any(each.done() for each in running[1:]):
                stopping.wait(0.001)
            report = move.run()
        finally:
            stopping.set()
        for each in running:
            each.result()
    for _ in range(1_000):
        for leased in target.reserve(("default", "flows"), limit=100):
            target.ack(leased.job.id, leased.lease.token)
            ran.append(leased.job.id)
        if not target.counts()["ready"]:
            break
    assert source.carrier().count("jobs") == 0
    assert max(Counter(ran).values()) == 1
    steps = {step.job_id for step in target.workflow_steps("wf-1")}
    assert set(ran) == {*accepted, *steps}
    assert set(everything(target)) == set(ran)
    assert target.get_workflow("wf-1").state is WorkflowState.DONE
    facts = [row[0] for row in target.carrier().take("history", None, 100_000)]
    assert Counter(fact.job_id for fact in facts if fact.status == "done") == Counter(ran)
    for id in random.Random(seeds[0]).sample(ran, 30):
        assert [attempt.outcome for attempt in target.attempts(id)][-1] == "succeeded"
        assert {attempt.outcome for attempt in target.attempts(id)[:-1]} <= {"retried"}
    assert report.moved["jobs"] > 0
    with pytest.raises(StoreMoved, match="dst"):
        source.start_workflow(flow("wf-2"))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_live_move_can_be_killed_at_any_write_of_either_store(
    after: bool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "ROWS_AT_ONCE", 100)
    for end in ("_source", "_target"):
        number = 0
        while True:
            source, target = make("memory"), make("memory")
            fill(source)
            before = answers(source)
            killed = _life(source, target, monkeypatch, end, number, after=after)
            report = live(source, target).run()
            assert not target.is_shut()
            _same_answers(answers(target), before)
            assert report.repeated == 0
            _same_work(target)
            if not killed:
                break
            number += 1
        assert number > 8, end


def _life(
    source: BaseDriver,
    target: BaseDriver,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    number: int,
    *,
    after: bool,
) -> bool:
    """Whether the move had a write of this number, and was killed there."""
    move = live(source, target)

    def drain(mark: Any) -> Any:
        made = Move._drain(move, mark)
        setattr(made, end, Faulty(getattr(made, end), number, after=after))
        monkeypatch.setattr(made, "leave", lambda: None)
        return made

    monkeypatch.setattr(move, "_drain", drain)
    try:
        move.run()
    except Killed:
        return True
    return False


def _same_answers(found: dict[str, Any], before: dict[str, Any]) -> None:
    """But for the order in line: jobs come into the new store as newcomers."""
    for name in ("jobs", "attempts", "history", "queues", "schedules", "limits", "workflows", "steps", "edges"):
        assert found[name] == before[name], name
    assert found["tokens"] == before["tokens"]


def _same_work(target: BaseDriver) -> None:
    target.resume("paused")
    for round in range(30):
        now = NOON + 3 * DAY + round * MINUTE
        for leased in target.reserve(QUEUES, now=now, limit=100, lease_for=MINUTE):
            target.ack(leased.job.id, leased.lease.token, now=now)
    assert target.get_workflow("wf-1").state is WorkflowState.DONE
    assert target.counts()["ready"] == 0


def test_a_live_move_whose_jobs_do_not_end_leaves_both_stores_in_use(make: Make) -> None:
    source, target = make("memory"), make("sqlite")
    add(source, id="slow", now=source.now(), queue="slow")
    add(source, id="quick", now=source.now())
    leased = source.reserve("slow", lease_for=3600)[0]
    move = live(source, target)
    move.pace.patience_s = 0.0
    with pytest.raises(MoveFailed, match="1 jobs of src still ran after 0 s"):
        move.run()
    assert add(source, id="another", now=source.now())
    quick = take(target, now=target.now())
    assert quick.job.id == "quick"
    target.ack("quick", quick.lease.token)
    with pytest.raises(InvalidInput, match="go on with --live"):
        mover(source, target).run()
    source.ack("slow", leased.lease.token)
    report = live(source, target).run()
    assert report.resumed
    assert report.moved["jobs"] == 2
    assert {job.id: job.status.value for job in everything(target).values()} == {
        "slow": "done",
        "quick": "done",
        "another": "ready",
    }
    assert live(source, target).run().done_before


def test_workers_of_both_stores_have_a_leader_while_a_live_move_goes_on(make: Make) -> None:
    source, target = make("memory"), make("sqlite")
    now = source.now()
    old = source.elect("fleet", "old", now=now, term=HOUR)
    assert old is not None
    live(source, target).run()
    new = target.elect("fleet", "new", now=now, term=HOUR)
    assert new is not None
    assert new.epoch > old.epoch


def test_what_runs_when_the_source_is_shut_may_still_be_extended_and_settled(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("memory"), make("memory")
    add_all(source, [new_job(id="running", queue="slow"), new_job(id="lapsing", queue="slow")], now=source.now())
    leased = {each.job.id: each.lease.token for each in source.reserve("slow", limit=2, lease_for=3600)}
    recover = source.recover

    def meanwhile() -> None:
        monkeypatch.undo()
        source.extend_lease("running", leased["running"], lease_for=60)
        assert source.reserve("slow", limit=2) == []
        source.ack("running", leased["running"])
        recover(source.now() + 2 * HOUR)  # the worker of the other one has died

    monkeypatch.setattr(source, "recover", meanwhile)
    live(source, target).run()
    # Its lease is worth nothing any more: the job is where others begin it.
    with pytest.raises((LeaseLost, JobNotFound)):
        source.ack("lapsing", leased["lapsing"])
    assert take(target, "slow", now=target.now() + 3 * HOUR).job.id == "lapsing"
    assert target.get("running").status.value == "done"


def test_a_key_stands_for_its_job_in_both_stores_until_the_source_is_shut(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("sqlite"), make("memory")
    for id in ("moved", "over"):
        source.enqueue([new_job(id=id, queue=id, idempotency_key=id)], NOON)
    leased = take(source, "over")
    source.ack("over", leased.lease.token, now=NOON)
    move = live(source, target)
    seen: dict[str, Any] = {}

    def then_look(self: draining.Drain) -> None:
        """Between the first round and the fence."""
        draining.Drain._round(self, "none")
        for name, driver in (("source", source), ("target", target)):
            again = [new_job(queue=id, idempotency_key=id) for id in ("moved", "over")]
            seen[name] = driver.enqueue(again, NOON)
        # Used in the new store first, and then in the old one.
        seen["first"] = target.enqueue([new_job(id="new", idempotency_key="late")], NOON)
        seen["second"] = source.enqueue([new_job(id="old", idempotency_key="late")], NOON)
        with pytest.raises(JobNotFound) as gone:
            source.get("moved")
        seen["gone"] = gone.value
        seen["replaced"] = source.enqueue([new_job(idempotency_key="moved", queue="moved", while_in=("ready",))], NOON)

    monkeypatch.setattr(draining.Drain, "_rounds", then_look)
    move.run()
    for name in ("source", "target"):
        assert seen[name] == [("moved", True), ("over", True)]
    assert "use that one" in str(seen["gone"])
    # Each store has its own holder of a key that both let in, and both jobs are run.
    assert (seen["first"], seen["second"]) == ([("new", False)], [("old", False)])
    assert target.enqueue([new_job(idempotency_key="late")], NOON) == [("new", True)]
    assert {"new", "old"} <= set(everything(target))
    # A job that has moved counts as ended for one that is to be unique while another waits.
    assert seen["replaced"][0].existed is False


def test_the_same_id_once_more_is_the_same_job_and_another_one_is_refused(make: Make) -> None:
    source, target = make("memory"), make("memory")
    add(source, id="tick")
    live(source, target).run()
    ran = take(target)
    target.ack(ran.job.id, ran.lease.token, now=NOON)
    third = make("sqlite")
    again = make("memory")
    add(again, id="tick")
    move = live(again, third)

    def same(self: draining.Drain) -> None:
        draining.Drain._round(self, "none")
        add(again, id="tick")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draining.Drain, "_rounds", same)
        assert move.run().repeated == 1
    assert len(take_all(third)) == 1

    other, fourth = make("memory"), make("memory")
    add(other, id="tick")

    def different(self: draining.Drain) -> None:
        draining.Drain._round(self, "none")
        add(other, id="tick", payload=b'{"other": 1}')

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draining.Drain, "_rounds", different)
        with pytest.raises(MoveFailed, match="id of another job"):
            live(other, fourth).run()
    assert other.get("tick").payload == b'{"other": 1}'
    other.cancel("tick", now=NOON)
    assert live(other, fourth).run().resumed


def test_schedules_tick_in_the_source_until_it_is_shut_and_then_in_the_target(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("memory"), make("sqlite")
    hourly = Schedule("hourly", "0 * * * *", "sync", overlap=Overlap.ALLOW, next_run_at=NOON + HOUR)
    source.put_schedule(hourly, now=NOON)
    source.add_token(Token("0123456789ab", "one", "acme", Role.VIEWER, "f" * 64, NOON))
    ticks: list[int] = []

    def look(self: draining.Drain) -> None:
        target.put_schedule(replace(hourly, queue="new"), now=NOON)  # a worker of the new store defines it too
        source.revoke_token("0123456789ab", now=NOON + HOUR)
        target.forget_rules()
        ticks.extend(run_schedules(driver, NOON + HOUR) for driver in (source, target))
        assert target.prune(NOON + DAY) == 0
        draining.Drain._round(self, "none")

    monkeypatch.setattr(draining.Drain, "_rounds", look)
    live(source, target).run()
    target.forget_rules()
    assert ticks == [1, 0]
    [kept] = target.schedules()
    assert (kept.queue, kept.next_run_at) == ("new", NOON + 2 * HOUR)
    assert run_schedules(target, NOON + HOUR) == 0
    assert run_schedules(target, NOON + 2 * HOUR) == 1
    assert target.tokens()[0].revoked_at == NOON + HOUR


def test_a_move_goes_on_live_or_shut_whichever_way_it_was_begun(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = make("memory"), make("json")
    fill(source)
    before = answers(source)
    first = mover(source, target)
    monkeypatch.setattr(first, "_target", Faulty(first._target, 9, after=True))
    with pytest.raises(Killed):
        first.run()
    assert _life(source, target, monkeypatch, "_target", 8, after=True)
    monkeypatch.undo()
    assert mover(source, target).run().resumed
    assert answers(target) == before


def test_a_live_move_that_is_given_up_leaves_both_stores_as_they_are(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("memory"), make("sqlite")
    add_all(source, [new_job(id=f"j{number}") for number in range(3)])
    number = 0
    while not source.carrier().note("carried"):  # killed with jobs on their way
        assert _life(source, target, monkeypatch, "_source", number, after=True)
        number += 1
    assert take_all(source) == []
    live(source, target).give_up()
    assert {leased.job.id for leased in take_all(source)} == {"j0", "j1", "j2"}
    assert not source.is_shut()


def on_their_way(source: BaseDriver, target: BaseDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed with jobs between the two stores."""
    number = 0
    while not source.carrier().note("carried"):
        assert _life(source, target, monkeypatch, "_source", number, after=True)
        number += 1


def test_jobs_on_their_way_are_given_up_to_no_other_target_and_left_behind_by_no_other_move(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, other = make("sqlite"), make("memory"), make("memory")
    add_all(source, [new_job(id=f"j{number}") for number in range(3)])
    on_their_way(source, target, monkeypatch)
    for url in ("typo", "dst"):
        with pytest.raises(InvalidInput):
            Move(End(source, "src"), End(other, url)).give_up()
    for each in (mover(source, other), live(source, other), mover(source, target)):
        with pytest.raises(InvalidInput, match="on their way to dst: go on with --live"):
            each.run()
    assert source.carrier().note("carried")
    live(source, target).give_up()
    assert mover(source, other).run().moved["jobs"] == 3


def test_a_move_that_has_taken_workflows_cannot_be_given_up_whatever_target_is_named(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, other = make("memory"), make("memory"), make("memory")
    source.start_workflow(flow("wf-1"))
    round = draining.Drain._round

    def killed_at_the_workflows(self: draining.Drain, flows: Any) -> int:
        if flows == "held":
            raise Killed
        return round(self, flows)

    with monkeypatch.context() as patch:
        patch.setattr(draining.Drain, "_round", killed_at_the_workflows)
        with pytest.raises(Killed):
            live(source, target).run()
    for end in (End(other, "typo"), End(other, "dst"), End(target, "dst")):
        with pytest.raises(InvalidInput):
            Move(End(source, "src"), end).give_up()
    assert source.is_shut()
    assert live(source, target).run().moved["workflows"] == 1


@pytest.mark.parametrize("ran", [False, True], ids=["waiting", "run"])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_an_id_that_was_enqueued_again_while_it_was_on_its_way_is_one_job(
    kind: str, ran: bool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make(kind), make("memory")
    add_all(source, [new_job(id="tick"), new_job(id="tock")])
    on_their_way(source, target, monkeypatch)
    add(source, id="tick")
    if ran:
        source.ack("tick", take(source).lease.token, now=NOON)
    move = live(source, target)
    move.give_up()
    assert source.counts()["ready"] == (1 if ran else 2)
    on_their_way(source, target, monkeypatch)
    add(source, id="tock", payload=b"[1]")
    with pytest.raises(MoveFailed, match="job tock is on its way from src, where another job has its id by now"):
        move.run()
    source.cancel("tock", now=NOON)
    assert move.run().moved["jobs"] == (1 if ran else 2)
    assert {leased.job.id for leased in take_all(target)} == ({"tock"} if ran else {"tick", "tock"})


def test_an_id_that_comes_into_the_target_at_the_last_moment_is_one_job(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("memory", "sqlite"):
        source, target = make("memory"), make(kind)
        add_all(source, [new_job(id="tick"), new_job(id="tock")])
        looks = draining.Drain._keys_of

        def meanwhile(self: draining.Drain, jobs: Any, target: BaseDriver = target, looks: Any = looks) -> Any:
            if "tick" in {job.id for job in jobs}:
                add(target, id="tick")
            return looks(self, jobs)

        with monkeypatch.context() as patch:
            patch.setattr(draining.Drain, "_keys_of", meanwhile)
            assert live(source, target).run().repeated == 1
        assert len(take_all(target)) == 2


def test_a_move_that_is_killed_while_it_empties_what_a_plain_one_has_brought_goes_on_plain(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:

    def all_is_there(_: Any) -> None:
        raise Killed

    for number in range(12):
        source, target = make("memory"), make("memory")
        fill(source)
        before = answers(source)
        first = mover(source, target)
        monkeypatch.setattr(first, "_verify", all_is_there)
        monkeypatch.setattr(first, "_open_again", lambda: None)
        with pytest.raises(Killed):
            first.run()
        assert _life(source, target, monkeypatch, "_target", number, after=True)
        mark = read_mark(target.carrier())
        assert mark is not None
        assert not mark.opened
        mover(source, target).run()
        assert answers(target) == before


def test_a_token_that_is_revoked_in_one_store_is_revoked_in_both_with_the_next_round(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("sqlite"), make("memory")
    for id in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        source.add_token(Token(id, id, "acme", Role.VIEWER, "f" * 64, NOON))
    fence = draining.Drain._fence
    seen: list[Any] = []

    def first_round(self: draining.Drain, flows: Any) -> int:
        monkeypatch.undo()
        monkeypatch.setattr(draining.Drain, "_fence", then_look)
        source.revoke_token("aaaaaaaaaaaa", now=NOON)
        target.revoke_token("bbbbbbbbbbbb", now=NOON)
        return 0

    def then_look(self: draining.Drain) -> None:
        seen.extend(token.revoked_at for driver in (source, target) for token in driver.tokens())
        fence(self)

    monkeypatch.setattr(draining.Drain, "_round", first_round)
    live(source, target).run()
    assert seen == [NOON] * 4


def test_history_that_did_not_come_over_is_noticed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = make("memory"), make("sqlite")
    fill(source)

    def and_one_is_lost(self: draining.Drain) -> None:
        draining.Drain._round(self, "none")
        target.carrier().clear("history", {})

    monkeypatch.setattr(draining.Drain, "_rounds", and_one_is_lost)
    with pytest.raises(MoveFailed, match=r"\d+ rows of history are not at dst"):
        live(source, target).run()
