"""The state machine: one rule for every operation of the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from taskharbor.core.contract import Driver
from taskharbor.core.errors import IdempotencyConflict
from taskharbor.core.fleet import Worker
from taskharbor.core.model import HELD, Extension, Job, JobFilter, Progress, Schedule, Settlement
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing.statemachine import strategies as draw
from taskharbor.testing.statemachine.flows import FlowRules
from taskharbor.testing.statemachine.pair import Pair, Side
from taskharbor.testing.statemachine.strategies import JobDraw, SettleDraw
from taskharbor.testing.times import MICROSECOND, NOON, SECOND


class DriverComparison(FlowRules):
    """Subclass it and say in `make_driver` how to open a driver on an empty store. It is closed after use."""

    def make_driver(self) -> Driver:
        raise NotImplementedError("return a driver on a store that is migrated and empty")

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.make_driver()
        self.pair = Pair(self.driver, MemoryDriver())
        self.now: datetime = NOON
        self.ids: list[str] = []
        self.leases: list[tuple[str, str]] = []
        """Every (id, token) that was ever given out, newest last: the old ones are the stale ones."""

    def teardown(self) -> None:
        try:
            self.everything_is_the_same()
            self.nothing_is_stuck()
        finally:
            self.driver.close()

    # --- Queueing ------------------------------------------------------------------------------------------

    @initialize(draws=st.lists(draw.job_draws, min_size=2, max_size=6))
    def begin_with_some_jobs(self, draws: list[JobDraw]) -> None:
        self.enqueue(draws)

    def enqueue(self, draws: list[JobDraw]) -> None:
        existing = sorted(job.id for job in self.jobs())
        ids = []
        for number, drawn in enumerate(draws):
            fresh = f"job-{drawn.rank}-{len(self.ids) + number:03}"
            ids.append(existing[drawn.rank % len(existing)] if drawn.again and existing else fresh)
        self.ids.extend(dict.fromkeys(id for id in ids if id not in self.ids))
        if len(set(ids)) < len(ids):
            return

        def call(side: Side) -> Any:
            jobs = [drawn.job(side.own(id), self.now) for drawn, id in zip(draws, ids, strict=True)]
            try:
                return side.driver.enqueue(jobs, self.now)
            except IdempotencyConflict:
                if len(jobs) == 1:
                    raise
                # Of several taken keys in a batch, a driver may complain about any.
                return "a key is taken"

        self.pair.same(call)

    @rule(draws=st.lists(draw.job_draws, min_size=1, max_size=4))
    def enqueue_some(self, draws: list[JobDraw]) -> None:
        self.enqueue(draws)

    @rule(limit=draw.few, owner=draw.owners, draws=st.lists(draw.good_settle_draws, min_size=4, max_size=4))
    def work(self, limit: int, owner: str, draws: list[SettleDraw]) -> None:
        """What workers do most of the time: take some jobs and settle them well before their leases end."""
        queues = list(draw.QUEUES)
        leased = self.pair.same_leases(
            lambda side: side.driver.reserve(queues, now=self.now, lease_for=60, limit=limit, owner=owner)
        )
        self.leases.extend((item.job.id, item.lease.token) for item in leased)
        self.now += SECOND
        settled = [replace(drawn, pick=pick) for pick, drawn in enumerate(draws[: len(leased)])]
        self.pair.same(lambda side: side.driver.settle(self.settlements(side, settled), now=self.now))

    @rule(limit=draw.few, owner=draw.owners, just_before=st.booleans(), stops=st.booleans(), recovers=st.booleans())
    def crash(self, limit: int, owner: str, just_before: bool, stops: bool, recovers: bool) -> None:
        """What workers do at times: take some jobs and never come back, perhaps after somebody cancelled one."""
        queues = list(draw.QUEUES)
        leased = self.pair.same_leases(
            lambda side: side.driver.reserve(queues, now=self.now, lease_for=10, limit=limit, owner=owner)
        )
        self.leases.extend((item.job.id, item.lease.token) for item in leased)
        if stops and leased:
            self.pair.same(lambda side: side.driver.cancel(side.own(leased[0].job.id), now=self.now))
        self.now += 10 * SECOND - (MICROSECOND if just_before else timedelta(0))
        if recovers:
            self.pair.same(lambda side: side.driver.recover(self.now))

    @rule(
        queues=draw.queue_sets,
        limit=draw.few,
        types=draw.type_sets,
        tenant=draw.tenants,
        lease_for=draw.lease_seconds,
        owner=draw.owners,
        settles=st.lists(draw.settle_draws, max_size=2),
    )
    def reserve(
        self,
        queues: list[str],
        limit: int,
        types: list[str] | None,
        tenant: str | None,
        lease_for: float | None,
        owner: str,
        settles: list[SettleDraw],
    ) -> None:
        leased = self.pair.same_leases(
            lambda side: side.driver.settle_and_reserve(
                self.settlements(side, settles),
                queues,
                now=self.now,
                lease_for=lease_for,
                limit=limit,
                types=types,
                owner=owner,
                tenant=tenant,
            )
        )
        self.leases.extend((item.job.id, item.lease.token) for item in leased)

    @precondition(lambda self: self.leases)
    @rule(draws=st.lists(draw.settle_draws, min_size=1, max_size=4))
    def settle(self, draws: list[SettleDraw]) -> None:
        self.pair.same(lambda side: side.driver.settle(self.settlements(side, draws), now=self.now))

    @precondition(lambda self: self.leases)
    @rule(
        picks=st.lists(draw.picks, min_size=1, max_size=3),
        lease_for=draw.lease_seconds,
        progress=draw.progresses,
        started=st.booleans(),
        wrong=st.sampled_from([False, False, False, True]),
    )
    def extend(
        self, picks: list[int], lease_for: float | None, progress: Progress | None, started: bool, wrong: bool
    ) -> None:
        def call(side: Side) -> Any:
            held = [self.lease(side, pick) for pick in picks]
            return side.driver.extend(
                [
                    Extension(id, "0" * 32 if wrong else token, lease_for, self.now if started else None, progress)
                    for id, token in held
                ],
                now=self.now,
            )

        self.pair.same(call)

    # --- Time ----------------------------------------------------------------------------------------------

    @rule(span=st.sampled_from([MICROSECOND, SECOND, 20 * SECOND, timedelta(hours=1)]))
    def wait(self, span: timedelta) -> None:
        self.now += span

    @rule(event=st.sampled_from(["lease_expires_at", "lease_expires_at", "expires_at", "due_at"]))
    def wait_exactly_until(self, event: str) -> None:
        moments = [getattr(job, event) for job in self.jobs()]
        coming = (moment for moment in moments if moment is not None and self.now < moment < HELD)
        self.now = min(coming, default=self.now)

    # --- By hand -------------------------------------------------------------------------------------------

    @rule(pick=draw.picks, held=st.sampled_from([True, True, False]))
    def cancel(self, pick: int, held: bool) -> None:
        id = self.leases[-1 - pick % len(self.leases)][0] if held and self.leases else self.id(pick)
        self.pair.same(lambda side: side.driver.cancel(side.own(id), now=self.now))

    @rule(
        filter=draw.dlq_filters,
        limit=st.none() | draw.few,
        run_in=draw.ahead(None, 0, 60),
        rate=st.sampled_from([None, 2.0]),
        reset_attempts=st.booleans(),
        clone=st.booleans(),
    )
    def redrive(
        self,
        filter: JobFilter,
        limit: int | None,
        run_in: timedelta | None,
        rate: float | None,
        reset_attempts: bool,
        clone: bool,
    ) -> None:
        def call(side: Side) -> Any:
            return side.driver.redrive(
                filter,
                now=self.now,
                limit=limit,
                run_at=None if run_in is None else self.now + run_in,
                rate=rate,
                reset_attempts=reset_attempts,
                clone=clone,
            )

        if clone:
            self.ids.extend(self.pair.same_new_ids(call))
        else:
            self.pair.same(call)

    @rule(filter=draw.dlq_filters, limit=st.none() | draw.few)
    def purge(self, filter: JobFilter, limit: int | None) -> None:
        self.pair.same(lambda side: side.driver.purge(filter, limit=limit))

    @rule(queue=draw.queues, pause=st.sampled_from([True, False, False]))
    def pause_or_resume(self, queue: str, pause: bool) -> None:
        self.pair.same(lambda side: side.driver.pause(queue) if pause else side.driver.resume(queue))

    # --- Fleet ---------------------------------------------------------------------------------------------

    @rule(dead_after=st.sampled_from([10, 30]))
    def recover(self, dead_after: float) -> None:
        self.pair.same(lambda side: side.driver.recover(self.now, dead_after=dead_after))

    @rule(worker=st.sampled_from(["w1", "w2"]), known_start=st.booleans(), gone=st.sampled_from([False, False, True]))
    def heartbeat(self, worker: str, known_start: bool, gone: bool) -> None:
        if gone:
            self.pair.same(lambda side: side.driver.deregister(worker))
            return
        record = Worker(worker, "host-é", 7, ("default", "mail"), 3, "1.0", meta={"zone": "b"})
        if known_start:
            record = replace(record, started_at=NOON)
        self.pair.same(lambda side: side.driver.heartbeat(record, now=self.now))

    @rule(
        name=st.sampled_from(["main", "Main"]),
        holder=st.sampled_from(["w1", "w2"]),
        term=st.sampled_from([10, 30]),
        epoch=st.sampled_from([None, None, None, 1, 2]),
        resign=st.sampled_from([False, False, False, True]),
    )
    def elect(self, name: str, holder: str, term: float, epoch: int | None, resign: bool) -> None:
        if resign:
            self.pair.same(lambda side: side.driver.resign(name, holder, epoch or 1))
        else:
            self.pair.same(lambda side: side.driver.elect(name, holder, self.now, term, epoch=epoch))

    @rule(ago=st.sampled_from([timedelta(hours=1), 20 * SECOND, timedelta(0)]))
    def prune(self, ago: timedelta) -> None:
        self.pair.same_feed()
        self.pair.same(lambda side: side.driver.prune(self.now - ago))

    # --- Schedules -----------------------------------------------------------------------------------------

    @rule(drawn=draw.schedules, next_in=draw.ahead(None, 0, 60))
    def put_schedule(self, drawn: Schedule, next_in: timedelta | None) -> None:
        given = replace(drawn, next_run_at=None if next_in is None else self.now + next_in)
        self.pair.same(lambda side: side.driver.put_schedule(given, now=self.now))

    @rule(
        name=draw.schedule_names,
        known=st.sampled_from([True, True, True, False]),
        next_in=draw.ahead(None, 0, 60),
        last=st.sampled_from([None, "job-1"]),
    )
    def advance_schedule(self, name: str, known: bool, next_in: timedelta | None, last: str | None) -> None:
        kept = {schedule.name: schedule for schedule in self.pair.memory.driver.schedules()}
        expected = kept[name].next_run_at if known and name in kept else self.now
        self.pair.same(
            lambda side: side.driver.advance_schedule(
                name,
                expected=expected,
                next_run_at=None if next_in is None else self.now + next_in,
                last_run_at=self.now if last else None,
                last_job_id=last,
                now=self.now,
            )
        )

    @rule(name=draw.schedule_names, change=st.sampled_from(["pause", "pause", "resume", "remove"]))
    def change_schedule(self, name: str, change: str) -> None:
        if change == "remove":
            self.pair.same(lambda side: side.driver.remove_schedule(name))
        else:
            self.pair.same(lambda side: side.driver.pause_schedule(name, paused=change == "pause", now=self.now))
        self.pair.same(lambda side: side.driver.get_schedule(name))

    # --- Inspection ----------------------------------------------------------------------------------------

    @rule(pick=draw.picks)
    def look_at_one(self, pick: int) -> None:
        self.one_job_is_the_same(self.id(pick))
        self.pair.same_feed()

    @rule(filter=draw.filters, limit=draw.few)
    def look_through_pages(self, filter: JobFilter, limit: int) -> None:
        def call(side: Side) -> list[Job]:
            jobs: list[Job] = []
            cursor: str | None = None
            while True:
                page = side.driver.list(filter, cursor, limit)
                jobs.extend(page.jobs)
                cursor = page.cursor
                if cursor is None:
                    return jobs

        self.pair.same(call)
        self.pair.same(lambda side: side.driver.count(filter, 10 * limit))

    @invariant()
    def every_job_is_the_same(self) -> None:
        self.pair.same(lambda side: side.driver.list(limit=1_000).jobs)

    def everything_is_the_same(self) -> None:
        self.every_job_is_the_same()
        self.every_workflow_is_the_same()
        self.pair.same_feed()
        for id in [*self.ids, "nobody"]:
            self.one_job_is_the_same(id)
        self.pair.same(lambda side: side.driver.counts())
        self.pair.same(lambda side: side.driver.census(self.now))
        self.pair.same(lambda side: side.driver.queues())
        self.pair.same(lambda side: side.driver.workers())
        self.pair.same(lambda side: side.driver.leaders())
        self.pair.same(lambda side: side.driver.schedules())

    def one_job_is_the_same(self, id: str) -> None:
        self.pair.same(lambda side: side.driver.get(side.own(id)))
        self.pair.same(lambda side: side.driver.attempts(side.own(id)))

    # --- Choosing ------------------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        return list(self.pair.memory.driver.list(limit=1_000).jobs)

    def id(self, pick: int) -> str:
        """A job's id, as the memory driver knows it; now and then one that nobody has."""
        return self.ids[-1 - pick % len(self.ids)] if self.ids and pick < draw.NOBODY else "nobody"

    def lease(self, side: Side, pick: int) -> tuple[str, str]:
        id, token = self.leases[-1 - pick % len(self.leases)]
        return side.own(id), side.own(token)

    def settlements(self, side: Side, draws: list[SettleDraw]) -> list[Settlement]:
        if not self.leases:
            return []
        settlements = []
        for drawn in draws:
            id, token = self.lease(side, drawn.pick)
            wrong_id = "nobody" if drawn.wrong == "id" else id
            wrong_token = "0" * 32 if drawn.wrong == "token" else token
            settlements.append(drawn.settlement(wrong_id, wrong_token, self.now))
        return settlements


def compare_with_memory(
    make_driver: Callable[[], Driver], *, examples: int = 100, steps: int = 50, shrink: bool = True
) -> None:
    """Run `examples` sequences of up to `steps` operations on drivers from `make_driver`, each on an empty store,
    beside the memory driver. Raises AssertionError with a sequence on which they differ: with `shrink` the shortest
    that a few minutes can find, else the first."""

    class Comparison(DriverComparison):
        def make_driver(self) -> Driver:
            return make_driver()

    run_state_machine_as_test(
        Comparison,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            phases=[phase for phase in Phase if shrink or phase is not Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
