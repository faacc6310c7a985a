"""What workflows promise about steps that come back: nothing counts twice, nothing runs before its time."""

from __future__ import annotations

from collections import Counter

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import JobFilter, LeasedJob, Status
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, Step, StepState, WorkflowState, compensation_id
from taskharbor.testing.contract.workflows import DIAMOND, flow, run_one, states
from taskharbor.testing.helpers import everything, failure, new_job, take, take_all
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON

CHAIN = (("one", ()), ("two", (0,)), ("three", (1,)))
CHORD = (("a", ()), ("b", ()), ("final", (0, 1)))


def by_name(driver: Driver, id: str) -> dict[str, Step]:
    return {step.name: step for step in driver.workflow_steps(id)}


def leased_types(driver: Driver) -> dict[str, LeasedJob]:
    return {item.job.type: item for item in take_all(driver)}


def fail(driver: Driver, leased: LeasedJob) -> None:
    driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="boom")


def ack(driver: Driver, leased: LeasedJob) -> None:
    driver.ack(leased.job.id, leased.lease.token, now=NOON)


class ReturningContract:
    """Redrives of steps, of compensations and of workflows."""

    # --- Workflows that go on without what has failed --------------------------------------------------------

    def test_a_redriven_step_does_not_let_the_last_one_run_before_the_others(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHORD, policy=Policy.CONTINUE), now=NOON)
        leased = leased_types(driver)
        fail(driver, leased["a"])
        assert by_name(driver, id)["final"].waiting == 1
        driver.redrive(JobFilter(ids=[leased["a"].job.id]), now=NOON)
        assert run_one(driver) == "a"
        assert take_all(driver) == [], "b still runs"
        ack(driver, leased["b"])
        assert run_one(driver) == "final"
        done = driver.get_workflow(id)
        assert (done.state, done.done, done.failed) == (WorkflowState.DONE, 3, 0)
        assert by_name(driver, id)["final"].waiting == 0

    def test_a_step_that_fails_again_counts_once(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHORD, policy=Policy.CONTINUE), now=NOON)
        leased = leased_types(driver)
        fail(driver, leased["a"])
        for _ in range(3):
            driver.redrive(JobFilter(ids=[leased["a"].job.id]), now=NOON)
            assert run_one(driver, ok=False) == "a"
            assert take_all(driver) == []
        ack(driver, leased["b"])
        assert run_one(driver) == "final"
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 2, 1)

    def test_what_has_not_begun_waits_for_a_step_that_comes_back(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHORD, policy=Policy.CONTINUE), now=NOON)
        leased = leased_types(driver)
        fail(driver, leased["a"])
        driver.redrive(JobFilter(ids=[leased["a"].job.id]), now=NOON)
        ack(driver, leased["b"])
        assert by_name(driver, id)["final"].state is StepState.WAITING
        assert [run_one(driver), run_one(driver)] == ["a", "final"]
        assert driver.get_workflow(id).state is WorkflowState.DONE

    def test_a_step_that_comes_back_after_the_end_lets_nothing_run_twice(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*DIAMOND, policy=Policy.CONTINUE), now=NOON)
        assert run_one(driver, ok=False) == "extract"
        ran = Counter(run_one(driver) for _ in range(3))
        assert driver.get_workflow(id).state is WorkflowState.FAILED
        for ok in (False, True):
            driver.redrive(now=NOON)
            assert driver.get_workflow(id).state is WorkflowState.RUNNING
            ran[run_one(driver, ok=ok)] += 1
        assert ran == {"left": 1, "right": 1, "load": 1, "extract": 2}
        assert take_all(driver) == []
        assert driver.get_workflow(id).state is WorkflowState.DONE
        assert [step.waiting for step in driver.workflow_steps(id)] == [0] * 4

    def test_dead_steps_behind_others_wait_for_them_again(self, driver: Driver) -> None:
        id = self.all_dead(driver, *CHAIN)
        assert driver.redrive_workflow(id, now=NOON).state is WorkflowState.RUNNING
        assert states(driver, id) == [StepState.OPEN, StepState.WAITING, StepState.WAITING]
        assert [step.waiting for step in driver.workflow_steps(id)] == [0, 1, 1]
        for name in ("one", "two", "three"):
            [leased] = take_all(driver)
            assert leased.job.type == name
            assert leased.job.run_at is None
            ack(driver, leased)
        done = driver.get_workflow(id)
        assert (done.state, done.done, done.failed) == (WorkflowState.DONE, 3, 0)

    def test_the_dead_last_step_of_a_chord_waits_for_every_one_that_comes_back(self, driver: Driver) -> None:
        id = self.all_dead(driver, *CHORD)
        driver.redrive_workflow(id, now=NOON)
        leased = leased_types(driver)
        assert sorted(leased) == ["a", "b"]
        ack(driver, leased["a"])
        assert take_all(driver) == []
        fail(driver, leased["b"])
        assert run_one(driver) == "final"
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 2, 1)
        driver.redrive_workflow(id, now=NOON)
        assert run_one(driver) == "b"
        assert driver.get_workflow(id).state is WorkflowState.DONE
        assert take_all(driver) == []

    def test_steps_that_succeeded_stay_done_and_hold_nothing_back(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*DIAMOND, policy=Policy.CONTINUE), now=NOON)
        assert run_one(driver, ok=False) == "extract"
        middle = leased_types(driver)
        ack(driver, middle["left"])
        fail(driver, middle["right"])
        assert run_one(driver, ok=False) == "load"
        driver.redrive_workflow(id, now=NOON)
        assert states(driver, id) == [StepState.OPEN, StepState.DONE, StepState.WAITING, StepState.WAITING]
        assert [run_one(driver) for _ in range(3)] == ["extract", "right", "load"]
        assert driver.get_workflow(id).state is WorkflowState.DONE
        assert take_all(driver) == []

    def test_what_waits_again_runs_all_the_same_if_the_step_before_dies_again(self, driver: Driver) -> None:
        id = self.all_dead(driver, *CHAIN)
        driver.redrive_workflow(id, now=NOON)
        [one] = take_all(driver)
        fail(driver, one)
        assert [run_one(driver), run_one(driver)] == ["two", "three"]
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 2, 1)

    def test_dead_steps_that_are_sent_back_together_by_hand_run_in_their_order(self, driver: Driver) -> None:
        id = self.all_dead(driver, *CHAIN)
        driver.redrive(now=NOON)
        [one] = take_all(driver)
        assert one.job.type == "one"
        ack(driver, one)
        assert [run_one(driver), run_one(driver)] == ["two", "three"]
        assert driver.get_workflow(id).state is WorkflowState.DONE

    def test_a_dead_step_that_is_sent_back_alone_waits_only_for_what_runs(self, driver: Driver) -> None:
        id = self.all_dead(driver, *CHAIN)
        jobs = {name: step.job_id for name, step in by_name(driver, id).items()}
        driver.redrive(JobFilter(ids=[jobs["two"]]), now=NOON)
        two = take(driver)
        assert two.job.type == "two", "the one before is dead, and stays so"
        driver.redrive(JobFilter(ids=[jobs["three"]]), now=NOON)
        assert take_all(driver) == [], "two runs"
        ack(driver, two)
        assert run_one(driver) == "three"
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 2, 1)

    def all_dead(self, driver: Driver, *steps: tuple[str, tuple[int, ...]]) -> str:
        id = driver.start_workflow(flow(*steps, policy=Policy.CONTINUE), now=NOON)
        for _ in steps:
            run_one(driver, ok=False)
        dead = driver.get_workflow(id)
        assert (dead.state, dead.failed) == (WorkflowState.FAILED, len(steps))
        return id

    # --- Times -----------------------------------------------------------------------------------------------

    def test_a_step_keeps_its_time_when_its_workflow_fails_and_goes_on(self, driver: Driver) -> None:
        steps = [NewStep("now", new_job(type="now")), NewStep("later", new_job(type="later", run_at=NOON + DAY))]
        id = driver.start_workflow(NewWorkflow("w", steps), now=NOON)
        run_one(driver, ok=False)
        later = by_name(driver, id)["later"].job_id
        assert driver.get(later).run_at == NOON + DAY
        assert take_all(driver, now=NOON + 2 * DAY) == [], "the workflow has failed"
        driver.redrive_workflow(id, now=NOON)
        assert [item.job.type for item in take_all(driver, now=NOON + DAY - MINUTE)] == ["now"]
        assert (driver.get(later).run_at, driver.get(later).due_at) == (NOON + DAY, NOON + DAY)
        assert "later" in {item.job.type for item in take_all(driver, now=NOON + DAY)}

    def test_a_step_whose_time_has_passed_meanwhile_is_due_at_once(self, driver: Driver) -> None:
        steps = [NewStep("now", new_job(type="now")), NewStep("later", new_job(type="later", run_at=NOON + MINUTE))]
        id = driver.start_workflow(NewWorkflow("w", steps), now=NOON)
        run_one(driver, ok=False)
        driver.redrive_workflow(id, now=NOON + HOUR)
        assert {item.job.type for item in take_all(driver, now=NOON + HOUR)} == {"now", "later"}
        assert driver.get(by_name(driver, id)["later"].job_id).due_at == NOON + HOUR

    def test_a_retry_keeps_its_pause_when_its_workflow_fails_and_goes_on(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(("one", ()), ("two", ())), now=NOON)
        one, two = take(driver), take(driver)
        driver.retry(one.job.id, one.lease.token, now=NOON, update=failure(run_at=NOON + HOUR))
        fail(driver, two)
        driver.redrive_workflow(id, now=NOON)
        assert [item.job.id for item in take_all(driver)] == [two.job.id]
        assert driver.get(one.job.id).due_at == NOON + HOUR

    # --- What cannot come back -------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["was cancelled", "has expired", "is gone"])
    def test_a_workflow_that_cannot_go_on_says_which_step_keeps_it(self, driver: Driver, how: str) -> None:
        job = new_job(type="one", expires_at=NOON + MINUTE if how == "has expired" else None)
        steps = [NewStep("one", job), NewStep("two", new_job(type="two"), (0,))]
        id = driver.start_workflow(NewWorkflow("w", steps), now=NOON)
        if how == "was cancelled":
            driver.cancel(by_name(driver, id)["one"].job_id, now=NOON)
        elif how == "has expired":
            driver.recover(NOON + HOUR)
            driver.recover(NOON + HOUR)
        else:
            run_one(driver, ok=False)
            driver.purge()
        assert driver.get_workflow(id).state is WorkflowState.FAILED
        before = everything(driver)
        with pytest.raises(InvalidInput, match=f"'one' {how}"):
            driver.redrive_workflow(id, now=NOON + HOUR)
        assert everything(driver) == before
        assert driver.get_workflow(id).state is WorkflowState.FAILED

    @pytest.mark.parametrize("how", ["was cancelled", "has expired"])
    @pytest.mark.parametrize("after", [(), (0,)])
    def test_a_workflow_that_has_lost_a_step_that_waits_does_not_go_on(
        self, driver: Driver, how: str, after: tuple[int, ...]
    ) -> None:
        job = new_job(type="two", priority=-1, expires_at=NOON + MINUTE if how == "has expired" else None)
        steps = [NewStep("one", new_job(type="one")), NewStep("two", job, after)]
        id = driver.start_workflow(NewWorkflow("w", steps), now=NOON)
        assert run_one(driver, ok=False) == "one"
        assert driver.get_workflow(id).state is WorkflowState.FAILED
        if how == "was cancelled":
            driver.cancel(by_name(driver, id)["two"].job_id, now=NOON)
        else:
            driver.recover(NOON + HOUR)
        before = everything(driver)
        with pytest.raises(InvalidInput, match=f"'two' {how}"):
            driver.redrive_workflow(id, now=NOON + HOUR)
        assert everything(driver) == before
        assert driver.get_workflow(id).state is WorkflowState.FAILED
        assert take_all(driver, now=NOON + HOUR) == []

    def test_a_workflow_that_continues_goes_on_with_what_can_come_back(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHORD, policy=Policy.CONTINUE), now=NOON)
        driver.cancel(by_name(driver, id)["a"].job_id, now=NOON)
        assert [run_one(driver, ok=False), run_one(driver)] == ["b", "final"]
        driver.redrive_workflow(id, now=NOON)
        assert run_one(driver) == "b"
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 2, 1)
        with pytest.raises(InvalidInput, match="'a' was cancelled"):
            driver.redrive_workflow(id, now=NOON)

    # --- Compensations ---------------------------------------------------------------------------------------

    def compensated(self, driver: Driver) -> str:
        """A workflow of two steps of which one has failed, and whose compensation died."""
        fields = {"policy": Policy.COMPENSATE, "compensation": new_job(type="undo")}
        id = driver.start_workflow(flow(("one", ()), ("two", (0,)), **fields), now=NOON)
        assert [run_one(driver, ok=False), run_one(driver, ok=False)] == ["one", "undo"]
        assert driver.get_workflow(id).state is WorkflowState.FAILED
        return id

    def test_a_workflow_that_is_redriven_and_fails_again_is_compensated_again(self, driver: Driver) -> None:
        id = self.compensated(driver)
        assert driver.redrive_workflow(id, now=NOON).state is WorkflowState.RUNNING
        [one] = take_all(driver)
        assert one.job.type == "one", "nothing is to be undone yet"
        fail(driver, one)
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATING
        assert run_one(driver) == "undo"
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATED
        driver.mend_workflows(now=NOON)
        assert take_all(driver) == []

    def test_a_workflow_that_is_redriven_and_done_leaves_no_compensation_behind(self, driver: Driver) -> None:
        id = self.compensated(driver)
        driver.redrive_workflow(id, now=NOON)
        assert [run_one(driver), run_one(driver)] == ["one", "two"]
        assert driver.get_workflow(id).state is WorkflowState.DONE
        assert driver.get(compensation_id(id)).status is Status.CANCELLED
        assert driver.counts()["ready"] == 0

    def test_a_dead_compensation_that_is_sent_back_by_hand_compensates(self, driver: Driver) -> None:
        id = self.compensated(driver)
        driver.redrive(JobFilter(ids=[compensation_id(id)]), now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATING
        assert run_one(driver) == "undo"
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATED

    def test_a_compensation_that_is_sent_back_with_its_steps_waits_for_them(self, driver: Driver) -> None:
        id = self.compensated(driver)
        driver.redrive(now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.RUNNING
        [one] = take_all(driver)
        assert one.job.type == "one"
        fail(driver, one)
        driver.mend_workflows(now=NOON)
        assert run_one(driver) == "undo"
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATED
        assert Counter(states(driver, id)) == {StepState.DONE: 1, StepState.FAILED: 1, StepState.WAITING: 1}

    def test_cancelling_a_redriven_workflow_cancels_the_compensation_that_waits(self, driver: Driver) -> None:
        id = self.compensated(driver)
        driver.redrive_workflow(id, now=NOON)
        assert driver.cancel_workflow(id, now=NOON).state is WorkflowState.CANCELLED
        assert driver.counts()["ready"] == 0
        assert take_all(driver, now=NOON + DAY) == []
