"""Workflows: the calls that all drivers share.

Steps are jobs like any other, so nothing here runs when jobs are claimed. After jobs have ended, `advance` moves their
workflows on; if whoever ended them dies before it does, or a sweep ended them, `mend_workflows` does it instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from taskharbor.core.contract import Leased
from taskharbor.core.errors import InvalidInput, JobNotFound, StoreError, WorkflowNotFound
from taskharbor.core.ids import new_id
from taskharbor.core.intake import Batch, admit
from taskharbor.core.limits import MAX_ID, Limits, check_name
from taskharbor.core.model import Settlement
from taskharbor.core.workflow import (
    COMPENSATION,
    WORKFLOW,
    NewWorkflow,
    Policy,
    Step,
    StepCounts,
    StepResult,
    StepState,
    Workflow,
    WorkflowState,
    checked_workflow,
    compensation_id,
)
from taskharbor.drivers import flowing
from taskharbor.drivers.checks import check_count, sought
from taskharbor.drivers.flowing import AT_ONCE, StepRow
from taskharbor.drivers.flowreading import Desk, page_behind
from taskharbor.drivers.flowreturning import FlowReturns
from taskharbor.drivers.flowstart import (
    chunks_of,
    first_state,
    held_back,
    jobs_of,
    part_of,
    read_compensation,
    written_compensation,
)
from taskharbor.drivers.governing import Rules

T = TypeVar("T")

LOST_AT_ONCE: Final = 1_000
MOST_PASSES: Final = 1_000
STARTED_WITHIN: Final = timedelta(hours=1)
"""Whoever takes longer to store a workflow has died over it."""


class FlowCalls(FlowReturns):
    """The part of the contract about workflows, over the operations of a store."""

    limits: Limits
    _rules_kept: Rules

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _rules(self) -> Rules: ...

    @abstractmethod
    def forget_rules(self) -> None: ...

    @abstractmethod
    def _doubt_rules(self) -> None: ...

    @abstractmethod
    def _let_in(self, batch: Batch) -> Batch: ...

    # --- Starting --------------------------------------------------------------------------------------------

    def start_workflow(self, flow: NewWorkflow, *, now: datetime | None = None) -> str:
        moment = self._moment(now)
        plan = checked_workflow(flow)
        id = new_id() if flow.id is None else check_name(flow.id, "id", MAX_ID - len(compensation_id("")))
        large = len(flow.steps) > AT_ONCE
        admitted = self._let_in(admit(jobs_of(flow, id, plan.waiting), moment, self.limits))
        batch = held_back(admitted, plan.waiting, hold_all=large)
        undo = flow.compensation
        compensation = None if undo is None else written_compensation(undo, id, self.limits, moment)
        state = WorkflowState.STARTING if large else WorkflowState.RUNNING
        begun = Workflow(id, flow.name, flow.tenant_id, flow.policy, state, len(flow.steps), 0, 0, moment)
        rows = [
            StepRow(id, number, step.name, step.part, job.id, waiting, first_state(waiting, large))
            for number, (step, job, waiting) in enumerate(zip(flow.steps, batch.fresh, plan.waiting, strict=True))
        ]
        edges = iter(plan.edges)
        steps = chunks_of(rows)

        def begin(desk: Desk) -> None:
            if flow.id is not None and desk.get(id) is not None:
                raise InvalidInput(f"there is a workflow with the id {id!r} already: give this one another, or none")
            # Looked at here alone: whoever moves this store waits for a workflow that has begun to start.
            desk.insert_jobs(part_of(batch, 0, len(steps[0])), fenced=True)
            desk.insert_workflow(begun, compensation)
            desk.insert_steps(steps[0])
            desk.insert_edges(id, first_edges)

        first_edges = list(islice(edges, AT_ONCE)) if large else list(edges)
        with self._told_where():
            self._at_flow_desk(begin)
        if large and self._store_rest(id, batch, steps, edges):
            self._go_on([id], moment)
        if not self._rules_kept.flows:  # it is the first one, as far as this driver knows
            self.forget_rules()
        return id

    def _store_rest(
        self, id: str, batch: Batch, steps: Sequence[Sequence[StepRow]], edges: Iterator[tuple[int, int]]
    ) -> bool:
        """Store what the first transaction did not, and set the workflow going. False, and nothing more is stored, once
        somebody has cancelled it."""
        done = len(steps[0])
        for part in steps[1:]:
            jobs = part_of(batch, done, len(part))
            if not self._while_starting(id, lambda desk, part=part, jobs=jobs: _insert(desk, part, jobs)):  # type: ignore[misc]
                return False
            done += len(part)
        while some := list(islice(edges, AT_ONCE)):
            if not self._while_starting(id, lambda desk, some=some: desk.insert_edges(id, some)):  # type: ignore[misc]
                return False
        return self._while_starting(id, lambda desk: _set_state(desk, id, WorkflowState.RUNNING))

    def _while_starting(self, id: str, work: Callable[[Desk], None]) -> bool:
        """Do the work, unless the workflow is not starting any more. Its row is locked: a cancel comes before, and
        then nothing is stored behind its back, or after, and then it finds all of it."""

        def guarded(desk: Desk) -> bool:
            starts = [flow.state is WorkflowState.STARTING for flow in desk.lock_workflows([id])] == [True]
            if starts:
                work(desk)
            return starts

        return self._at_flow_desk(guarded)

    # --- Moving on -------------------------------------------------------------------------------------------

    def advance(self, ids: Sequence[str], *, now: datetime | None = None) -> None:
        moment = self._moment(now)
        once = list(dict.fromkeys(ids))  # a job that was settled twice in a batch is still one step
        self._go_on(self._at_flow_desk(lambda desk: flowing.advance(desk, once, moment)), moment)

    def _go_on(self, workflow_ids: Sequence[str], now: datetime) -> None:
        """Let go, or stop, the rest of what one transaction did not."""
        left = list(workflow_ids)
        for _ in range(MOST_PASSES):
            if not left:
                return
            left = [each for each in left if self._look_again(each, now)]

    def _look_again(self, id: str, now: datetime) -> bool:
        more, flow = self._at_flow_desk(partial(self._again, id=id, now=now))
        if flow is not None and flow.state is WorkflowState.DONE and flow.policy is Policy.COMPENSATE:
            self._cancel_rest(id, now)  # a compensation that was kept ready is not needed any more
        return more

    def _again(self, desk: Desk, *, id: str, now: datetime) -> tuple[bool, Workflow | None]:
        flows = desk.lock_workflows([id])
        if not flows:
            return False, None
        if flows[0].policy is Policy.CONTINUE and flows[0].failed and desk.returning(id):
            return False, flows[0]  # once all that come back are counted, it goes on
        more = flowing.settle_state(desk, flows[0], now)
        [flow] = desk.lock_workflows([id])
        if not more and flowing.wants_compensation(desk, flow):
            self._compensate(desk, flow, now)
        return more, flow

    def _advance_after(self, rules: Rules, settlements: Sequence[Settlement], now: datetime) -> None:
        """What was settled may have been steps."""
        if settlements and rules.flows:
            self._advance_ids(rules, [item.id for item in settlements], now)

    def _advance_ids(self, rules: Rules, ids: Sequence[str], now: datetime) -> None:
        if not ids or not rules.flows:
            return
        # The jobs are where they are. If this fails, `recover` moves the workflows on a bit later.
        with suppress(StoreError):
            for start in range(0, len(ids), AT_ONCE):
                self.advance(ids[start : start + AT_ONCE], now=now)

    def _advance_cancelled(self, id: str, now: datetime) -> None:
        """A step that waits may have been cancelled, and no leader looks for those: rules that may be too old to know
        of its workflow are read again."""
        if not self._rules().flows:
            self._doubt_rules()
        self._advance_ids(self._rules(), [id], now)

    def _notice_steps(self, rules: Rules, leased: Leased) -> None:
        """Whoever leases a step knows that there are workflows. Rules that are too old to say so are read again before
        the step is settled."""
        if not rules.flows and any(WORKFLOW in item.job.meta for item in leased):
            self._doubt_rules()

    def mend_workflows(self, *, now: datetime | None = None) -> int:
        moment = self._moment(now)
        if not self._rules().flows:
            return 0
        lost = self._at_flow_desk(lambda desk: desk.lost(LOST_AT_ONCE))
        if lost:
            self.advance(lost, now=moment)
        stuck = self._at_flow_desk(lambda desk: desk.stuck(LOST_AT_ONCE))
        self._go_on(stuck, moment)
        abandoned = self._at_flow_desk(lambda desk: desk.abandoned(moment - STARTED_WITHIN, LOST_AT_ONCE))
        for id in abandoned:
            self._at_flow_desk(partial(_close, id=id))
        return len(lost) + len(stuck) + len(abandoned) + self._mend_cancels(moment)

    def _mend_cancels(self, now: datetime) -> int:
        """Whoever cancels a workflow may die over it: this goes on, a bounded number of steps at a time."""
        left = AT_ONCE
        cancelling = self._at_flow_desk(lambda desk: desk.cancelling(LOST_AT_ONCE))
        for id in cancelling:
            while left and (cancelled := self._cancel_some(id, now, left)):
                left -= cancelled
            self._at_flow_desk(partial(_end_cancel, id=id, now=now))
        return len(cancelling)

    def _compensate(self, desk: Desk, flow: Workflow, now: datetime) -> None:
        """Exactly once: the text is gone with it. One that died comes back once it was redriven, and then waits for
        this."""
        written = desk.compensation(flow.id)
        if written is not None:
            batch = admit([read_compensation(written, flow.id)], now, self.limits)
            undo = StepRow(flow.id, COMPENSATION, "compensation", "", batch.fresh[0].id, 0, StepState.OPEN)
            desk.insert_jobs(batch)
            desk.insert_steps([undo])
            desk.forget_compensation(flow.id)
        elif _compensation_waits(desk, flow.id):
            desk.mark([(flow.id, COMPENSATION)], StepState.OPEN)
            desk.let_go([compensation_id(flow.id)], now)
        else:
            return
        desk.save([replace(flow, state=WorkflowState.COMPENSATING, ended_at=None)])

    # --- Looking ---------------------------------------------------------------------------------------------

    def get_workflow(self, id: str) -> Workflow:
        self._check_open()
        id = sought(id, "id")
        found = self._at_flow_desk(lambda desk: desk.get(id))
        if found is None:
            raise WorkflowNotFound(f"no workflow with the id {id!r}")
        return found

    def list_workflows(self, cursor: str | None = None, limit: int = 100) -> Sequence[Workflow]:
        self._check_open()
        check_count(limit, "limit", 10_000)
        return self._at_flow_desk(lambda desk: page_behind(desk, cursor, limit))

    def workflow_steps(self, id: str, after: int | None = None, limit: int = 1000) -> Sequence[Step]:
        check_count(limit, "limit", 10_000)
        self.get_workflow(id)
        return self._at_flow_desk(lambda desk: desk.steps(id, after, limit))

    def workflow_counts(self, id: str) -> Sequence[StepCounts]:
        self.get_workflow(id)
        return self._at_flow_desk(lambda desk: desk.counts(id))

    def workflow_edges(self, id: str, limit: int = 10_000) -> Sequence[tuple[int, int]]:
        self.get_workflow(id)
        return self._at_flow_desk(lambda desk: desk.edges(id, limit))

    def step_results(
        self, id: str, part: str | None = None, after: int | None = None, limit: int = 1000
    ) -> Sequence[StepResult]:
        self._check_open()
        check_count(limit, "limit", 10_000)
        id = sought(id, "id")
        part = None if part is None else sought(part, "part")
        return self._at_flow_desk(lambda desk: desk.results(id, part, after, limit))

    # --- Whole workflows -------------------------------------------------------------------------------------

    def cancel_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        moment = self._moment(now)
        self.get_workflow(id)
        with self._told_where():
            self._at_flow_desk(partial(_close, id=id))
            self._cancel_rest(id, moment)
            self._at_flow_desk(partial(_end_cancel, id=id, now=moment))
        return self.get_workflow(id)

    def _cancel_rest(self, id: str, now: datetime) -> None:
        """Whatever of the workflow has not ended."""
        while self._cancel_some(id, now, AT_ONCE):
            pass

    def _cancel_some(self, id: str, now: datetime, most: int) -> int:
        """At most so many steps that have not ended; how many there were."""
        unfinished = self._at_flow_desk(lambda desk: desk.unfinished(id, most))
        for _, job_id in unfinished:
            with suppress(JobNotFound):  # one that was cancelled by itself, and pruned
                self._cancel(job_id, now)
        if unfinished:
            steps = [(id, number) for number, _ in unfinished]
            self._at_flow_desk(lambda desk: desk.mark(steps, StepState.CANCELLED))
        return len(unfinished)

    def _prune_workflows(self, before: datetime, limit: int) -> None:
        over = self._at_flow_desk(lambda desk: _over(desk, before, limit))
        for id in over:  # one that failed, or was compensated, may have steps that wait and never will be let go
            self._cancel_rest(id, before)
        if over:
            self._at_flow_desk(lambda desk: desk.prune(over))


def _insert(desk: Desk, steps: Sequence[StepRow], batch: Batch) -> None:
    desk.insert_jobs(batch)
    desk.insert_steps(steps)


def _set_state(desk: Desk, id: str, state: WorkflowState) -> None:
    for flow in desk.lock_workflows([id]):
        desk.save([replace(flow, state=state)])


def _over(desk: Desk, before: datetime, limit: int) -> Sequence[str]:
    desk.refuse_shut()
    return desk.over(before, limit)


def _close(desk: Desk, *, id: str) -> None:
    """Nothing of it begins any more."""
    desk.refuse_shut()
    for flow in desk.lock_workflows([id]):
        if flow.state not in (WorkflowState.DONE, WorkflowState.CANCELLED):
            desk.save([replace(flow, state=WorkflowState.CANCELLING, ended_at=None)])


def _end_cancel(desk: Desk, *, id: str, now: datetime) -> None:
    for flow in desk.lock_workflows([id]):
        if flow.state is WorkflowState.CANCELLING and not desk.unfinished(id, 1):
            desk.save([replace(flow, state=WorkflowState.CANCELLED, ended_at=now)])


def _compensation_waits(desk: Desk, id: str) -> bool:
    first = desk.steps(id, None, 1)
    return bool(first) and first[0].number == COMPENSATION and first[0].state is StepState.WAITING
