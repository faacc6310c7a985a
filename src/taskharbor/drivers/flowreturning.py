"""A workflow that has failed goes on: its dead steps come back, each in its turn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeVar, cast

from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import HELD, JobFilter, Status
from taskharbor.core.workflow import COMPENSATION, Policy, Workflow, WorkflowState
from taskharbor.drivers.checks import check_filter
from taskharbor.drivers.flowing import AT_ONCE
from taskharbor.drivers.flowreading import Desk
from taskharbor.drivers.operations import RedrivePlan, StoreOperations

T = TypeVar("T")

_LOST: Final = {Status.CANCELLED: "was cancelled", Status.EXPIRED: "has expired", None: "is gone"}
"""What keeps the job of a step from running."""


class FlowReturns(StoreOperations):
    """Redrives of whole workflows."""

    @abstractmethod
    def _moment(self, now: datetime | None) -> datetime: ...

    @abstractmethod
    def get_workflow(self, id: str) -> Workflow: ...

    @abstractmethod
    def advance(self, ids: Sequence[str], *, now: datetime | None = None) -> None: ...

    def redrive_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        moment = self._moment(now)
        flow = self.get_workflow(id)
        if flow.state is not WorkflowState.FAILED:
            raise InvalidInput(f"workflow {id} is {flow.state.value}: only one that has failed can be redriven")
        self._refuse_lost_steps(flow)
        with self._told_where():
            self._at_flow_desk(lambda desk: desk.refuse_shut())
        # Where dead steps may stand behind others, all come back held; `advance` lets go those that wait for none.
        start = HELD if flow.policy is Policy.CONTINUE else None
        for failed in self._failed_steps(id):
            self._bring_back([job_id for _, job_id in failed], start, moment)
        for failed in self._failed_steps(id):
            self.advance([job_id for _, job_id in failed], now=moment)
        undo = self._at_flow_desk(lambda desk: desk.failed(id, COMPENSATION - 1, 1))
        if undo and undo[0][0] == COMPENSATION:  # it died: should the workflow fail again, it is to run again
            self._bring_back([undo[0][1]], HELD, moment)
            self.advance([undo[0][1]], now=moment)
        return self.get_workflow(id)

    def _bring_back(self, ids: Sequence[str], start: datetime | None, now: datetime) -> None:
        plan = RedrivePlan(now=now, start=start, rate=None, offset=0, reset_attempts=False, clone=False)
        with self._told_where():
            self._redrive(check_filter(JobFilter(ids=ids)), None, len(ids), plan)

    def _failed_steps(self, id: str) -> Iterator[Sequence[tuple[int, str]]]:
        after = COMPENSATION
        while failed := self._at_flow_desk(lambda desk, after=after: desk.failed(id, after, AT_ONCE)):  # type: ignore[misc]
            yield failed
            after = failed[-1][0]

    def _refuse_lost_steps(self, flow: Workflow) -> None:
        """A step that was cancelled, has expired or was purged cannot come back. Where all steps have to be done, the
        workflow then never will be; where it goes on without, one that can come back is enough."""
        back = False
        lost: tuple[int, str] | None = None
        for failed in self._failed_steps(flow.id):
            ids = [job_id for _, job_id in failed]
            for ending in self._at_flow_desk(lambda desk, ids=ids: desk.endings(ids)):  # type: ignore[misc]
                if ending.status not in _LOST:
                    back = True
                elif lost is None:
                    lost = ending.number, _LOST[ending.status]
        if lost is None and (stranded := self._at_flow_desk(lambda desk: desk.stranded(flow.id, 1))):
            [(number, status)] = stranded
            lost = number, _LOST.get(status, _LOST[None])
        if lost is None or (back and flow.policy is Policy.CONTINUE):
            return
        number, why = lost
        [step] = self._at_flow_desk(lambda desk: desk.steps(flow.id, number - 1, 1))
        raise InvalidInput(
            f"workflow {flow.id} cannot go on: the job of its step {step.name!r} {why}, and only dead jobs come back. "
            "Start a new workflow; cancelling this one gives up what still waits"
        )

    def _at_flow_desk(self, work: Callable[[Desk], T]) -> T:
        return self._at_desk(lambda desk: work(cast("Desk", desk)))
