"""What workflows promise: every step runs once all before it are done, exactly once, whatever dies in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor, InvalidInput, WorkflowNotFound
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Job, Settlement, Status
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, StepState, WorkflowState
from taskharbor.testing.helpers import dead_job, everything, in_threads, new_job, take, take_all
from taskharbor.testing.times import HOUR, MINUTE, NOON, SECOND

THREADS = 8
CHORDS = 40
CHILDREN = 12


def flow(*steps: tuple[str, tuple[int, ...]], **fields: Any) -> NewWorkflow:
    return NewWorkflow("nightly", [NewStep(name, new_job(type=name), after) for name, after in steps], **fields)


DIAMOND = (("extract", ()), ("left", (0,)), ("right", (0,)), ("load", (1, 2)))


def run_one(driver: Driver, *, ok: bool = True, result: bytes | None = None) -> str:
    """Run the job that is next; its type."""
    leased = take(driver)
    if ok:
        driver.ack(leased.job.id, leased.lease.token, now=NOON, result=result)
    else:
        driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")
    return leased.job.type


def states(driver: Driver, id: str) -> list[StepState]:
    return [step.state for step in driver.workflow_steps(id)]


class WorkflowContract:
    """Chains, groups, chords and graphs."""

    def test_steps_run_in_the_order_of_the_graph(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*DIAMOND), now=NOON)
        assert run_one(driver) == "extract"
        middle = {run_one(driver), run_one(driver)}
        assert middle == {"left", "right"}
        assert driver.get_workflow(id).state is WorkflowState.RUNNING
        assert run_one(driver) == "load"
        done = driver.get_workflow(id)
        assert (done.state, done.done, done.failed, done.total) == (WorkflowState.DONE, 4, 0, 4)
        assert done.ended_at == NOON
        assert states(driver, id) == [StepState.DONE] * 4

    def test_a_step_does_not_begin_before_all_it_waits_for_are_done(self, driver: Driver) -> None:
        driver.start_workflow(flow(*DIAMOND), now=NOON)
        assert [leased.job.type for leased in take_all(driver)] == ["extract"]
        driver2 = take_all(driver, now=NOON + SECOND)
        assert driver2 == []

    def test_a_step_that_is_retried_holds_the_next_back(self, driver: Driver) -> None:
        driver.start_workflow(flow(("one", ()), ("two", (0,))), now=NOON)
        leased = take(driver)
        driver.release(leased.job.id, leased.lease.token, now=NOON)
        assert [run_one(driver), run_one(driver)] == ["one", "two"]

    def test_jobs_of_steps_know_their_workflow(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ())), now=NOON)
        job = take(driver).job
        assert (job.meta["workflow"], job.meta["step"]) == (id, "one")

    def test_results_can_be_read_by_part(self, driver: Driver) -> None:
        steps = [NewStep(f"c{n}", new_job(type="child"), (), "children") for n in range(3)]
        steps.append(NewStep("final", new_job(type="final"), (0, 1, 2)))
        id = driver.start_workflow(NewWorkflow("chord", steps), now=NOON)
        for number in range(3):
            run_one(driver, result=b"%d" % number)
        found = driver.step_results(id, "children")
        assert sorted(each.result or b"" for each in found) == [b"0", b"1", b"2"]
        assert {each.status for each in found} == {Status.DONE}
        assert [each.number for each in driver.step_results(id, "children", 0, 1)] == [1]
        assert {(each.part, each.state, each.steps) for each in driver.workflow_counts(id)} == {
            ("children", StepState.DONE, 3),
            ("", StepState.OPEN, 1),
        }
        assert sorted(driver.workflow_edges(id)) == [(0, 3), (1, 3), (2, 3)]

    # --- Failure -------------------------------------------------------------------------------------------

    def test_a_step_that_fails_stops_the_others(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", ()), ("three", (0, 1))), now=NOON)
        first = run_one(driver, ok=False)
        assert take_all(driver) == []
        failed = driver.get_workflow(id)
        assert (failed.state, failed.failed) == (WorkflowState.FAILED, 1)
        assert Counter(states(driver, id)) == {StepState.FAILED: 1, StepState.HELD: 1, StepState.WAITING: 1}, first

    def test_a_step_that_a_limit_holds_back_does_not_run_once_another_has_failed(self, driver: Driver) -> None:
        driver.set_fair("default", now=NOON)
        driver.set_limit(Limit("queue", "default", per="tenant", concurrency=1), now=NOON)
        id = driver.start_workflow(flow(("one", ()), ("two", ()), ("three", ())), now=NOON)
        [first] = take_all(driver)
        driver.fail(first.job.id, first.lease.token, now=NOON, reason="boom")
        assert take_all(driver, now=NOON + MINUTE) == []
        driver.drop_limit("queue", "default", "tenant", now=NOON + MINUTE)
        assert take_all(driver, now=NOON + HOUR) == []
        driver.redrive_workflow(id, now=NOON + HOUR)
        assert len(take_all(driver, now=NOON + HOUR)) == 3

    def test_what_runs_when_another_fails_ends_in_its_own_way(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", ()), ("three", (0, 1))), now=NOON)
        one, two = take(driver), take(driver)
        driver.fail(one.job.id, one.lease.token, now=NOON, reason="boom")
        driver.ack(two.job.id, two.lease.token, now=NOON)
        assert Counter(states(driver, id)) == {StepState.FAILED: 1, StepState.DONE: 1, StepState.WAITING: 1}

    def test_a_failed_workflow_that_is_redriven_goes_on_to_its_end(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", ()), ("three", (0, 1))), now=NOON)
        run_one(driver, ok=False)
        assert driver.redrive_workflow(id, now=NOON).state is WorkflowState.RUNNING
        assert {run_one(driver), run_one(driver)} == {"one", "two"}
        assert run_one(driver) == "three"
        done = driver.get_workflow(id)
        assert (done.state, done.done, done.failed) == (WorkflowState.DONE, 3, 0)

    def test_a_dead_step_that_is_sent_back_by_hand_lets_its_workflow_go_on(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,))), now=NOON)
        run_one(driver, ok=False)
        driver.redrive(now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.RUNNING
        assert [run_one(driver), run_one(driver)] == ["one", "two"]
        assert driver.get_workflow(id).state is WorkflowState.DONE

    def test_a_workflow_that_continues_runs_what_comes_after_a_failed_step(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,)), policy=Policy.CONTINUE), now=NOON)
        run_one(driver, ok=False)
        assert run_one(driver) == "two"
        done = driver.get_workflow(id)
        assert (done.state, done.done, done.failed) == (WorkflowState.FAILED, 1, 1)
        driver.redrive(now=NOON)
        assert run_one(driver) == "one"
        assert driver.get_workflow(id).state is WorkflowState.DONE
        assert take_all(driver) == []

    def test_a_compensation_runs_once_when_nothing_else_does(self, driver: Driver) -> None:
        fields = {"policy": Policy.COMPENSATE, "compensation": new_job(type="undo", payload=b"how")}
        id = driver.start_workflow(flow(("one", ()), ("two", ()), ("three", (0, 1)), **fields), now=NOON)
        one, two = take(driver), take(driver)
        driver.fail(one.job.id, one.lease.token, now=NOON, reason="boom")
        assert take_all(driver) == [], "two may still do something that is to be undone"
        driver.ack(two.job.id, two.lease.token, now=NOON)
        undone = take(driver).job
        assert (undone.type, undone.payload, undone.meta["workflow"]) == ("undo", b"how", id)
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATING
        driver.mend_workflows(now=NOON)
        driver.ack(undone.id, undone.lease_token or "", now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATED
        driver.mend_workflows(now=NOON)
        assert take_all(driver) == []

    def test_cancelled_and_expired_steps_have_failed(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,))), now=NOON)
        [step, _] = driver.workflow_steps(id)
        driver.cancel(step.job_id, now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.FAILED

    def test_cancelling_a_workflow_cancels_all_that_has_not_ended(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*DIAMOND), now=NOON)
        run_one(driver)
        running = take(driver)
        cancelled = driver.cancel_workflow(id, now=NOON)
        assert cancelled.state is WorkflowState.CANCELLED
        assert take_all(driver) == []
        assert driver.extend_lease(running.job.id, running.lease.token, now=NOON, lease_for=HOUR).cancel_requested
        driver.ack(running.job.id, running.lease.token, now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.CANCELLED
        assert {job.status for job in everything(driver).values()} <= {Status.DONE, Status.CANCELLED}

    # --- Death in between ----------------------------------------------------------------------------------

    def test_what_a_sweep_ended_moves_on_with_recover(self, driver: Driver) -> None:
        job = new_job(type="one", max_attempts=1, expires_at=NOON + MINUTE)
        steps = [NewStep("one", job), NewStep("two", new_job(type="two"), (0,))]
        id = driver.start_workflow(NewWorkflow("w", steps, Policy.CONTINUE), now=NOON)
        driver.recover(NOON + HOUR)
        driver.recover(NOON + HOUR)
        assert [leased.job.type for leased in take_all(driver, now=NOON + HOUR)] == ["two"]
        assert driver.get_workflow(id).failed == 1

    def test_a_step_that_is_settled_twice_in_a_batch_counts_once(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", ()), ("three", (0,)), policy=Policy.CONTINUE), now=NOON)
        one, two = take(driver), take(driver)
        acks = [Settlement.ack(one.job.id, one.lease.token)] * 3
        driver.settle([*acks, *[Settlement.fail(two.job.id, two.lease.token, reason="boom")] * 3], now=NOON)
        running = driver.get_workflow(id)
        assert (running.state, running.done, running.failed) == (WorkflowState.RUNNING, 1, 1)
        assert run_one(driver) == "three"
        assert driver.get_workflow(id).state is WorkflowState.FAILED

    def test_advancing_again_changes_nothing(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*DIAMOND), now=NOON)
        run_one(driver)
        before = everything(driver), driver.get_workflow(id), driver.workflow_steps(id)
        driver.advance([step.job_id for step in driver.workflow_steps(id)], now=NOON)
        driver.mend_workflows(now=NOON)
        assert (everything(driver), driver.get_workflow(id), driver.workflow_steps(id)) == before

    def test_many_chords_at_once_have_each_one_finalizer(self, driver: Driver) -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")  # noqa: T201
        steps = [NewStep(f"c{n}", new_job(type="child")) for n in range(CHILDREN)]
        steps.append(NewStep("final", new_job(type="final"), tuple(range(CHILDREN))))
        ids = [driver.start_workflow(NewWorkflow("chord", steps)) for _ in range(CHORDS)]
        ran: list[Job] = []

        def work(number: int) -> None:
            dice = random.Random(seed + number)
            misses = 0
            while misses < 20:
                leased = driver.reserve("default", lease_for=HOUR, limit=dice.randint(1, 9))
                misses = 0 if leased else misses + 1
                if not leased:
                    driver.mend_workflows()
                ran.extend(item.job for item in leased)
                driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased])

        in_threads(THREADS, work)
        assert len(ran) == len({job.id for job in ran}) == CHORDS * (CHILDREN + 1)
        finals = Counter(job.meta["workflow"] for job in ran if job.type == "final")
        assert finals == dict.fromkeys(ids, 1)
        assert {driver.get_workflow(id).state for id in ids} == {WorkflowState.DONE}

    def test_a_workflow_larger_than_a_transaction_is_started_whole(self, driver: Driver) -> None:
        count = 5_003
        steps = [NewStep(f"c{n}", new_job(type="child"), (), "children") for n in range(count)]
        steps.append(NewStep("final", new_job(type="final"), tuple(range(count)), "end"))
        id = driver.start_workflow(NewWorkflow("group", steps), now=NOON)
        begun = driver.get_workflow(id)
        assert (begun.state, begun.total) == (WorkflowState.RUNNING, count + 1)
        types: Counter[str] = Counter()
        while leased := take_all(driver):
            types.update(item.job.type for item in leased)
            driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased], now=NOON)
        assert types == {"child": count, "final": 1}
        assert driver.get_workflow(id).state is WorkflowState.DONE

    # --- Looking and forgetting ----------------------------------------------------------------------------

    def test_workflows_are_listed_newest_first_page_by_page(self, driver: Driver) -> None:
        ids = [driver.start_workflow(flow(("one", ())), now=NOON) for _ in range(5)]
        first = driver.list_workflows(limit=3)
        rest = driver.list_workflows(first[-1].id, 3)
        assert [each.id for each in (*first, *rest)] == sorted(ids, reverse=True)

    def test_a_list_goes_on_behind_a_workflow_that_was_pruned_meanwhile(self, driver: Driver) -> None:
        older, newer = (driver.start_workflow(flow(("one", ())), now=NOON) for _ in range(2))
        run_one(driver)
        driver.start_workflow(replace(flow(("two", ())), id="mine"), now=NOON)
        driver.prune(NOON + HOUR)
        [gone] = {older, newer} - {each.id for each in driver.list_workflows()}
        assert {each.id for each in driver.list_workflows(gone)} == {each for each in (older, newer) if each < gone}
        assert {each.id for each in driver.list_workflows("mine")} == {older, newer} - {gone}

    @pytest.mark.parametrize("cursor", ["nope", "", "after:x", "nul\x00", "\ud800"])
    def test_a_list_behind_what_is_no_workflow_is_refused(self, driver: Driver, cursor: str) -> None:
        driver.start_workflow(flow(("one", ())), now=NOON)
        with pytest.raises(InvalidCursor):
            driver.list_workflows(cursor)

    def test_an_ended_workflow_is_pruned_with_its_jobs(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ())), now=NOON)
        live = driver.start_workflow(flow(("other", ()), ("next", (0,))), now=NOON)
        while (leased := take(driver)).job.type != "one":
            driver.release(leased.job.id, leased.lease.token, now=NOON)
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        driver.prune(NOON + HOUR)
        with pytest.raises(WorkflowNotFound):
            driver.get_workflow(id)
        assert driver.get_workflow(live).state is WorkflowState.RUNNING

    def test_a_failed_workflow_that_is_pruned_leaves_no_waiting_step_behind(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,))), now=NOON)
        run_one(driver, ok=False)
        assert driver.counts()["ready"] == 1
        driver.purge()
        driver.prune(NOON + HOUR)
        with pytest.raises(WorkflowNotFound):
            driver.get_workflow(id)
        assert driver.counts()["ready"] == 0

    def test_a_failed_workflow_stays_as_long_as_its_dead_job_and_can_go_on(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,)), ("three", (1,))), now=NOON)
        run_one(driver, result=b"1")
        run_one(driver, ok=False)
        assert driver.prune(NOON + HOUR) == 0
        assert driver.get_workflow(id).state is WorkflowState.FAILED
        driver.redrive_workflow(id, now=NOON + HOUR)
        assert [result.number for result in driver.step_results(id) if result.result is not None] == [0]
        assert driver.get_workflow(id).state is WorkflowState.RUNNING

    def test_a_step_is_kept_as_long_as_its_workflow_for_others_may_want_its_result(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,))), now=NOON)
        [one] = [step.job_id for step in driver.workflow_steps(id) if step.name == "one"]
        run_one(driver, result=b"1")
        assert driver.prune(NOON + HOUR) == 0
        assert driver.prune(NOON + HOUR, ids=[one]) == 0
        assert driver.get(one).result == b"1"
        run_one(driver)
        assert driver.prune(NOON + HOUR) == 2

    def test_a_step_that_was_pruned_does_not_keep_its_workflow_from_being_cancelled(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", (0,)), policy=Policy.CONTINUE), now=NOON)
        [two] = [step.job_id for step in driver.workflow_steps(id) if step.name == "two"]
        driver.cancel(two, now=NOON)
        driver.prune(NOON + HOUR)
        assert driver.cancel_workflow(id, now=NOON + HOUR).state is WorkflowState.CANCELLED

    def test_an_unknown_workflow_is_not_found(self, driver: Driver) -> None:
        for call in (driver.get_workflow, driver.workflow_steps, driver.cancel_workflow, driver.redrive_workflow):
            with pytest.raises(WorkflowNotFound):
                call("nobody")

    def test_jobs_outside_of_workflows_are_left_alone(self, driver: Driver) -> None:
        driver.start_workflow(flow(("one", ())), now=NOON)
        run_one(driver)
        dead_job(driver)
        driver.recover(NOON)
        assert driver.counts()["dlq"] == 1

    @pytest.mark.parametrize(
        ("steps", "said"),
        [
            ([], "no steps"),
            ([("one", (1,)), ("two", (0,))], "circle: 'one' after 'two' after 'one'"),
            ([("one", (0,))], "circle"),
            ([("one", (7,))], "does not have"),
            ([("one", ()), ("one", ())], "two steps 'one'"),
        ],
    )
    def test_what_cannot_run_is_refused_before_anything_is_written(
        self, driver: Driver, steps: Sequence[tuple[str, tuple[int, ...]]], said: str
    ) -> None:
        with pytest.raises(InvalidInput, match=said):
            driver.start_workflow(flow(*steps), now=NOON)
        assert everything(driver) == {}
        assert driver.list_workflows() == []

    def test_a_policy_that_is_none_is_refused_before_anything_is_written(self, driver: Driver) -> None:
        for policy in ("bogus", "continue", None):
            with pytest.raises(InvalidInput, match="fail, continue, compensate"):
                driver.start_workflow(replace(flow(("one", ())), policy=policy), now=NOON)  # type: ignore[arg-type]
        assert everything(driver) == {}
        assert driver.list_workflows() == []

    def test_a_second_workflow_of_the_same_id_is_refused_and_the_first_goes_on(self, driver: Driver) -> None:
        first = replace(flow(("one", ())), id="w")
        assert driver.start_workflow(first, now=NOON) == "w"
        with pytest.raises(InvalidInput, match="already"):
            driver.start_workflow(replace(first, name="other"), now=NOON)
        assert (driver.get_workflow("w").name, len(everything(driver))) == (first.name, 1)

    def test_a_bad_job_among_the_steps_is_refused_before_anything_is_written(self, driver: Driver) -> None:
        steps = [NewStep("one", new_job()), NewStep("two", new_job(type=""), (0,))]
        with pytest.raises(InvalidInput):
            driver.start_workflow(NewWorkflow("w", steps), now=NOON)
        for bad in (new_job(idempotency_key="k"), new_job(tenant_id="other")):
            with pytest.raises(InvalidInput):
                driver.start_workflow(NewWorkflow("w", [NewStep("one", bad)]), now=NOON)
        assert everything(driver) == {}
