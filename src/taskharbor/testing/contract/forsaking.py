"""What workflows promise about steps that are cancelled before their turn has come."""

from __future__ import annotations

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import Status
from taskharbor.core.workflow import Policy, StepState, WorkflowState
from taskharbor.testing.contract.returning import CHAIN, CHORD, ack, by_name, fail
from taskharbor.testing.contract.workflows import flow, run_one, states
from taskharbor.testing.helpers import new_job, take, take_all
from taskharbor.testing.times import NOON


def cancel(driver: Driver, id: str, step: str) -> None:
    driver.cancel(by_name(driver, id)[step].job_id, now=NOON)


class ForsakingContract:
    """Cancels of single steps that wait."""

    def test_a_waiting_step_that_is_cancelled_has_failed_and_no_other_begins(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHAIN), now=NOON)
        cancel(driver, id, "three")
        failed = driver.get_workflow(id)
        assert (failed.state, failed.done, failed.failed) == (WorkflowState.FAILED, 0, 1)
        assert failed.ended_at == NOON
        assert states(driver, id) == [StepState.HELD, StepState.WAITING, StepState.FAILED]
        assert by_name(driver, id)["three"].status is Status.CANCELLED
        assert take_all(driver) == []
        with pytest.raises(InvalidInput, match="'three' was cancelled"):
            driver.redrive_workflow(id, now=NOON)

    def test_what_runs_when_a_waiting_step_is_cancelled_finishes_and_is_the_last(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHAIN), now=NOON)
        one = take(driver)
        cancel(driver, id, "three")
        ack(driver, one)
        assert take_all(driver) == []
        assert states(driver, id) == [StepState.DONE, StepState.HELD, StepState.FAILED]
        assert driver.get_workflow(id).state is WorkflowState.FAILED

    def test_a_waiting_step_of_a_failed_workflow_that_is_cancelled_is_told_as_failed(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHORD), now=NOON)
        run_one(driver, ok=False)
        cancel(driver, id, "final")
        failed = driver.get_workflow(id)
        assert (failed.state, failed.failed) == (WorkflowState.FAILED, 2)
        assert states(driver, id)[2] is StepState.FAILED
        [held] = [step.name for step in driver.workflow_steps(id) if step.state is StepState.HELD]
        cancel(driver, id, held)
        assert driver.get_workflow(id).failed == 3
        assert set(states(driver, id)) == {StepState.FAILED}

    def test_a_workflow_that_continues_passes_a_cancelled_step_by_in_its_turn(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHAIN, policy=Policy.CONTINUE), now=NOON)
        cancel(driver, id, "two")
        one = take(driver)
        assert take_all(driver) == [], "what comes after two comes after one as well"
        ack(driver, one)
        assert states(driver, id) == [StepState.DONE, StepState.FAILED, StepState.OPEN]
        assert run_one(driver) == "three"
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 2, 1)

    def test_a_workflow_that_continues_ends_with_cancelled_steps_in_a_row(self, driver: Driver) -> None:
        id = driver.start_workflow(flow(*CHAIN, policy=Policy.CONTINUE), now=NOON)
        for name in ("three", "two"):
            cancel(driver, id, name)
        assert driver.get_workflow(id).state is WorkflowState.RUNNING
        assert run_one(driver) == "one"
        ended = driver.get_workflow(id)
        assert (ended.state, ended.done, ended.failed) == (WorkflowState.FAILED, 1, 2)

    def test_a_workflow_is_compensated_when_a_waiting_step_is_cancelled(self, driver: Driver) -> None:
        fields = {"policy": Policy.COMPENSATE, "compensation": new_job(type="undo")}
        id = driver.start_workflow(flow(*CHAIN, **fields), now=NOON)
        one = take(driver)
        cancel(driver, id, "three")
        assert take_all(driver) == [], "one may still do something that is to be undone"
        fail(driver, one)
        assert run_one(driver) == "undo"
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATED
