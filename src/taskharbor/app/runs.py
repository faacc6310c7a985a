"""A workflow that was started: where it stands, what its steps gave, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from taskharbor.app.waiting import _pauses
from taskharbor.core.errors import InvalidInput
from taskharbor.core.workflow import Step, Workflow

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor


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
        """What a step returned. JobFailed if it did not succeed, InvalidInput if there is no such step."""
        for each in self.steps():
            if each.name == step:
                return self._harbor.wait(each.job_id, timeout=0)
        raise InvalidInput(f"workflow {self.name!r} has no step {step!r}")

    def wait(self, timeout: float | None = None) -> WorkflowRun:
        """Wait until it has ended, in whatever way. WaitTimeout when the time is up."""
        import time

        pauses = _pauses(self.id, timeout)
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
