"""Workflows: the calls that all drivers share.

Steps are jobs like any other, so nothing here runs when jobs are claimed. After jobs have ended, `advance` moves their
workflows on; if whoever ended them dies before it does, or a sweep ended them, `mend_workflows` does it instead.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, cast

from taskharbor.core.errors import InvalidInput, JobNotFound, StoreError, WorkflowNotFound
from taskharbor.core.ids import new_id, new_ids
from taskharbor.core.intake import Batch, admit
from taskharbor.core.limits import MAX_ID, Limits, check_name
from taskharbor.core.model import HELD, JobFilter, NewJob, Settlement
from taskharbor.core.workflow import (
    COMPENSATION,
    STEP,
    WORKFLOW,
    NewStep,
    NewWorkflow,
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
from taskharbor.drivers.checks import check_count
from taskharbor.drivers.flowing import AT_ONCE, FlowDesk, StepRow
from taskharbor.drivers.governing import Rules
from taskharbor.drivers.operations import StoreOperations

T = TypeVar("T")

LOST_AT_ONCE: Final = 1_000
MOST_PASSES: Final = 1_000
STARTED_WITHIN: Final = timedelta(hours=1)
"""Whoever takes longer to store a workflow has died over it."""


class FlowReader(Protocol):
    """What people ask about workflows. Reads, and the few changes to whole workflows."""

    def get(self, id: str) -> Workflow | None: ...

    def page(self, before: str | None, limit: int) -> Sequence[Workflow]:
        """In order of id, highest first, those with an id below `before`."""
        ...

    def steps(self, id: str, after: int | None, limit: int) -> Sequence[Step]:
        """In order of number, behind `after`."""
        ...

    def counts(self, id: str) -> Sequence[StepCounts]: ...

    def edges(self, id: str, limit: int) -> Sequence[tuple[int, int]]: ...

    def results(self, id: str, part: str | None, after: int | None, limit: int) -> Sequence[StepResult]: ...

    def unfinished(self, id: str, limit: int) -> Sequence[tuple[int, str]]:
        """Numbers and jobs of steps that are not ended."""
        ...

    def failed(self, id: str, after: int, limit: int) -> Sequence[tuple[int, str]]:
        """Numbers and jobs of steps that have failed, behind `after`."""
        ...

    def lost(self, limit: int) -> Sequence[str]:
        """Jobs of open steps that have ended, and of failed ones that have been brought back."""
        ...

    def stuck(self, limit: int) -> Sequence[str]:
        """Running workflows with held steps, failed ones with open steps whose jobs are ready, and failed ones with a
        compensation that has not begun."""
        ...

    def abandoned(self, before: datetime, limit: int) -> Sequence[str]:
        """Workflows that began to start before this moment and never did."""
        ...

    def forget_compensation(self, id: str) -> None: ...

    def over(self, before: datetime, limit: int) -> Sequence[str]:
        """Workflows that ended before."""
        ...

    def prune(self, ids: Sequence[str]) -> None:
        """Forget workflows, with their steps. Their jobs are pruned like any others."""
        ...


class Desk(FlowDesk, FlowReader, Protocol):
    """Both."""


class FlowCalls(StoreOperations):
    """The part of the contract about workflows, over the operations of a store."""

    limits: Limits

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _moment(self, now: datetime | None) -> datetime: ...

    @abstractmethod
    def _rules(self) -> Rules: ...

    @abstractmethod
    def forget_rules(self) -> None: ...

    @abstractmethod
    def _let_in(self, batch: Batch) -> Batch: ...

    # --- Starting --------------------------------------------------------------------------------------------

    def start_workflow(self, flow: NewWorkflow, *, now: datetime | None = None) -> str:
        moment = self._moment(now)
        plan = checked_workflow(flow)
        id = new_id() if flow.id is None else check_name(flow.id, "id", MAX_ID - len(compensation_id("")))
        large = len(flow.steps) > AT_ONCE
        admitted = self._let_in(admit(_jobs(flow, id, plan.waiting), moment, self.limits))
        batch = _held(admitted, plan.waiting, hold_all=large)
        compensation = None if flow.compensation is None else _written(flow.compensation, id, self.limits, moment)
        state = WorkflowState.STARTING if large else WorkflowState.RUNNING
        begun = Workflow(id, flow.name, flow.tenant_id, flow.policy, state, len(flow.steps), 0, 0, moment)
        rows = [
            StepRow(id, number, step.name, step.part, job.id, waiting, _first_state(waiting, large))
            for number, (step, job, waiting) in enumerate(zip(flow.steps, batch.fresh, plan.waiting, strict=True))
        ]
        edges = iter(plan.edges)
        steps = _chunks(rows)

        def begin(desk: Desk) -> None:
            desk.insert_workflow(begun, compensation)
            part = steps[0]
            desk.insert_jobs(_part(batch, 0, len(part)))
            desk.insert_steps(part)
            desk.insert_edges(id, first_edges)

        first_edges = list(islice(edges, AT_ONCE)) if large else list(edges)
        self._at_flow_desk(begin)
        done = len(steps[0])
        for part in steps[1:]:
            self._at_flow_desk(lambda desk, part=part, start=done: _insert(desk, part, _part(batch, start, len(part))))  # type: ignore[misc]
            done += len(part)
        while some := list(islice(edges, AT_ONCE)):
            self._at_flow_desk(lambda desk, some=some: desk.insert_edges(id, some))  # type: ignore[misc]
        if large:
            self._at_flow_desk(lambda desk: _set_going(desk, id))
            self._go_on([id], moment)
        self.forget_rules()
        return id

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
            left = [each for each in left if self._at_flow_desk(partial(self._again, id=each, now=now))]

    def _again(self, desk: Desk, *, id: str, now: datetime) -> bool:
        flows = desk.lock_workflows([id])
        if not flows:
            return False
        more = flowing.settle_state(desk, flows[0], now)
        [flow] = desk.lock_workflows([id])
        if not more and flowing.wants_compensation(desk, flow):
            self._compensate(desk, flow, now)
        return more

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
            self.cancel_workflow(id, now=moment)
        return len(lost) + len(stuck) + len(abandoned)

    def _compensate(self, desk: Desk, flow: Workflow, now: datetime) -> None:
        """Exactly once: the text is gone with it."""
        written = desk.compensation(flow.id)
        if written is None:
            return
        batch = admit([_read(written, flow.id)], now, self.limits)
        desk.insert_jobs(batch)
        desk.insert_steps([StepRow(flow.id, COMPENSATION, "compensation", "", batch.fresh[0].id, 0, StepState.OPEN)])
        desk.forget_compensation(flow.id)
        desk.save(replace(flow, state=WorkflowState.COMPENSATING, ended_at=None))

    # --- Looking ---------------------------------------------------------------------------------------------

    def get_workflow(self, id: str) -> Workflow:
        self._check_open()
        found = self._at_flow_desk(lambda desk: desk.get(id))
        if found is None:
            raise WorkflowNotFound(f"no workflow with the id {id!r}")
        return found

    def list_workflows(self, cursor: str | None = None, limit: int = 100) -> Sequence[Workflow]:
        self._check_open()
        check_count(limit, "limit", 10_000)
        return self._at_flow_desk(lambda desk: desk.page(cursor, limit))

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
        return self._at_flow_desk(lambda desk: desk.results(id, part, after, limit))

    # --- Whole workflows -------------------------------------------------------------------------------------

    def cancel_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        moment = self._moment(now)
        self.get_workflow(id)
        self._at_flow_desk(lambda desk: _close(desk, id, moment))
        self._cancel_rest(id, moment)
        return self.get_workflow(id)

    def _cancel_rest(self, id: str, now: datetime) -> None:
        """Whatever of the workflow has not ended."""
        while unfinished := self._at_flow_desk(lambda desk: desk.unfinished(id, AT_ONCE)):
            for _, job_id in unfinished:
                with suppress(JobNotFound):  # one that was cancelled by itself, and pruned
                    self._cancel(job_id, now)
            numbers = [number for number, _ in unfinished]
            self._at_flow_desk(lambda desk, numbers=numbers: desk.mark(id, numbers, StepState.CANCELLED))  # type: ignore[misc]

    @abstractmethod
    def redrive(self, filter: JobFilter | None = None, *, now: datetime | None = None) -> Sequence[str]: ...

    def redrive_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        moment = self._moment(now)
        flow = self.get_workflow(id)
        if flow.state is not WorkflowState.FAILED:
            raise InvalidInput(f"workflow {id} is {flow.state.value}: only one that has failed can be redriven")
        after = COMPENSATION
        while failed := self._at_flow_desk(lambda desk, after=after: desk.failed(id, after, AT_ONCE)):  # type: ignore[misc]
            ids = [job_id for _, job_id in failed]
            self.redrive(JobFilter(ids=ids), now=moment)
            self.advance(ids, now=moment)
            after = failed[-1][0]
        return self.get_workflow(id)

    def _prune_workflows(self, before: datetime, limit: int) -> None:
        over = self._at_flow_desk(lambda desk: desk.over(before, limit))
        for id in over:  # one that failed, or was compensated, may have steps that wait and never will be let go
            self._cancel_rest(id, before)
        if over:
            self._at_flow_desk(lambda desk: desk.prune(over))

    def _at_flow_desk(self, work: Callable[[Desk], T]) -> T:
        return self._at_desk(lambda desk: work(cast("Desk", desk)))


def _first_state(waiting: int, large: bool) -> StepState:
    return StepState.WAITING if waiting else StepState.HELD if large else StepState.OPEN


def _jobs(flow: NewWorkflow, id: str, waiting: Sequence[int]) -> list[NewJob]:
    made = new_ids(len(flow.steps))
    return [
        _job_of(step, flow, id, made_id, waits=count > 0)
        for step, made_id, count in zip(flow.steps, made, waiting, strict=True)
    ]


def _held(batch: Batch, waiting: Sequence[int], *, hold_all: bool) -> Batch:
    """The batch with those jobs held that wait for others, or all."""
    held = [
        job._replace(due_at=HELD) if count or (hold_all and job.run_at is None) else job
        for job, count in zip(batch.fresh, waiting, strict=True)
    ]
    return batch._replace(fresh=held)


def _job_of(step: NewStep, flow: NewWorkflow, id: str, made_id: str, *, waits: bool) -> NewJob:
    job = step.job
    if job.idempotency_key is not None:
        raise InvalidInput(f"step {step.name!r} has a key: a workflow is started as a whole, and its steps have none")
    if job.run_at is not None and waits:
        raise InvalidInput(f"step {step.name!r} waits for others, so it cannot have a time of its own")
    if job.tenant_id != flow.tenant_id:
        raise InvalidInput(f"step {step.name!r} is of tenant {job.tenant_id!r}, its workflow of {flow.tenant_id!r}")
    meta = {**(job.meta or {}), WORKFLOW: id, STEP: step.name}
    return job._replace(id=job.id or made_id, meta=meta)


def _chunks(rows: Sequence[StepRow]) -> list[Sequence[StepRow]]:
    return [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)]


def _part(batch: Batch, start: int, count: int) -> Batch:
    fresh = batch.fresh[start : start + count]
    return Batch(fresh, batch.answers[start : start + count], [job.id for job in fresh])


def _insert(desk: Desk, steps: Sequence[StepRow], batch: Batch) -> None:
    desk.insert_jobs(batch)
    desk.insert_steps(steps)


def _set_going(desk: Desk, id: str) -> None:
    [flow] = desk.lock_workflows([id])
    desk.save(replace(flow, state=WorkflowState.RUNNING))


def _close(desk: Desk, id: str, now: datetime) -> None:
    [flow] = desk.lock_workflows([id])
    if flow.state is not WorkflowState.DONE:
        desk.save(replace(flow, state=WorkflowState.CANCELLED, ended_at=now))


def _written(job: NewJob, id: str, limits: Limits, now: datetime) -> str:
    """The compensation as text, once it has been checked."""
    admit([job._replace(id=None)], now, limits)
    if job.idempotency_key is not None or job.run_at is not None or job.expires_at is not None:
        raise InvalidInput("a compensation has neither a key nor a time of its own")
    kept: dict[str, Any] = {
        "type": job.type, "queue": job.queue, "tenant_id": job.tenant_id, "priority": job.priority,
        "max_attempts": job.max_attempts, "meta": dict(job.meta or {}),
        "timeout": None if job.timeout is None else getattr(job.timeout, "total_seconds", lambda: job.timeout)(),
        "payload": b64encode(job.payload).decode(),
    }  # fmt: skip
    return json.dumps(kept)


def _read(text: str, id: str) -> NewJob:
    kept = json.loads(text)
    meta = {**kept.pop("meta"), WORKFLOW: id, STEP: "compensation"}
    return NewJob(payload=b64decode(kept.pop("payload")), meta=meta, id=compensation_id(id), **kept)
