"""A workflow that was started: where it stands, what its steps gave, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.errors import JobFailed, WaitTimeout
from taskharbor.app.waiting import pauses_until
from taskharbor.core.errors import InvalidInput, JobNotFound
from taskharbor.core.model import Status
from taskharbor.core.workflow import COMPENSATION, Step, StepState, Workflow, WorkflowState

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor

_STOPPED: Final = {
    WorkflowState.FAILED: "has failed",
    WorkflowState.COMPENSATING: "has failed and is being undone",
    WorkflowState.COMPENSATED: "has failed and was undone",
    WorkflowState.CANCELLING: "was cancelled",
    WorkflowState.CANCELLED: "was cancelled",
}
"""Where no step begins any more, and how that is said."""


class WorkflowRun:
    """A workflow as it was when it was looked up; `refresh()` looks again."""

    def __init__(self, harbor: Harbor, record: Workflow) -> None:
        self._harbor = harbor
        self.record = record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def tenant(self) -> str:
        return self.record.tenant_id

    @property
    def state(self) -> str:
        """starting, running, done, failed, cancelling, cancelled, compensating or compensated."""
        return self.record.state.value

    @property
    def ended(self) -> bool:
        return self.record.ended

    @property
    def progress(self) -> float:
        """The share of its steps that have ended, from 0 to 1."""
        return (self.record.done + self.record.failed) / self.record.total

    def refresh(self) -> WorkflowRun:
        self.record = self._harbor.driver.get_workflow(self.id)
        return self

    def steps(self) -> Iterator[Step]:
        """Every step with its state, in order of its number."""
        after: int | None = None
        while found := self._harbor.driver.workflow_steps(self.id, after):
            yield from found
            after = found[-1].number

    def result(self, step: str) -> Any:
        """What a step returned. JobFailed if it did not succeed, or does not run any more because another one failed;
        WaitTimeout if it has not ended yet, InvalidInput if there is no such step."""
        flow = self._harbor.driver.get_workflow(self.id)  # before the step: what ends in between has ended
        found = next((each for each in self.steps() if each.name == step), None)
        if found is None:
            raise InvalidInput(f"workflow {self.name!r} has no step {step!r}")
        if found.status is Status.READY and flow.state in _STOPPED:
            raise self._never_runs(found, flow)
        if found.status in (Status.READY, Status.INFLIGHT):
            raise WaitTimeout(f"step {step!r} of {self._called()} has not ended yet: wait until it has with run.wait()")
        return self._harbor.wait(found.job_id, timeout=0)

    def _never_runs(self, step: Step, flow: Workflow) -> JobFailed:
        """Why a step of a workflow that was stopped has no result, and what to do."""
        said = f"{self._called()} {_STOPPED[flow.state]}, and its step {step.name!r} does not run"
        failed = next(
            (each for each in self.steps() if each.state is StepState.FAILED and each.number > COMPENSATION), None
        )
        if failed is None or _STOPPED[flow.state] == "was cancelled":
            return JobFailed(f"{said}: start a new one", id=step.job_id, status=Status.CANCELLED)
        why = self._failure(failed)
        can_go_on = flow.state is WorkflowState.FAILED and why.status is Status.DLQ
        advice = "Mend that, and let it go on with run.redrive()" if can_go_on else "Start a new workflow"
        return JobFailed(
            f"{said}: step {failed.name!r} failed, {why}. {advice}",
            id=why.id,
            status=why.status,
            error=why.error,
            code=why.code,
        )

    def _failure(self, step: Step) -> JobFailed:
        try:
            self._harbor.wait(step.job_id, timeout=0)
        except JobFailed as failed:
            return failed
        except (JobNotFound, WaitTimeout):
            pass  # purged, or sent back just now
        return JobFailed(f"and its job {step.job_id} is gone", id=step.job_id, status=Status.CANCELLED)

    def _called(self) -> str:
        return f"workflow {self.name!r} {self.id}"

    def wait(self, timeout: float | None = None) -> WorkflowRun:
        """Wait until it has ended, in whatever way: `state` says in which, and `result` raises for a step that has not
        succeeded. WaitTimeout when the time is up."""
        import time

        pauses = pauses_until(self._called(), timeout)
        while not self.refresh().ended:
            time.sleep(next(pauses))
        return self

    def cancel(self) -> WorkflowRun:
        """Nothing of it begins any more, and what runs is asked to stop."""
        self.record = self._harbor.driver.cancel_workflow(self.id)
        return self

    def redrive(self) -> WorkflowRun:
        """Let a workflow that has failed go on from where it failed. InvalidInput if a step cannot come back."""
        self.record = self._harbor.driver.redrive_workflow(self.id)
        return self

    def __repr__(self) -> str:
        return f"WorkflowRun({self.name!r}, {self.state}, {self.record.done:,} of {self.record.total:,} steps)"
