"""Workflows in the in-process engine: what they ask for, on a `State` that is held for one change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from taskharbor.core.intake import Batch, id_taken
from taskharbor.core.model import HELD, Status
from taskharbor.core.workflow import (
    COMPENSATION,
    ENDED,
    Step,
    StepCounts,
    StepResult,
    StepState,
    Workflow,
    WorkflowState,
)
from taskharbor.drivers.flowing import LIVE, Ending, Place, StepRow
from taskharbor.drivers.rows import job_from_admitted
from taskharbor.drivers.state import State
from taskharbor.drivers.threads import FlowRecord


class EngineFlows:
    """The part of the engine's desk that is about workflows."""

    _state: State

    # --- Starting ------------------------------------------------------------------------------------------

    def insert_workflow(self, flow: Workflow, compensation: str | None) -> None:
        self._state.put("workflows", flow.id, FlowRecord(flow, compensation))

    def insert_steps(self, steps: Sequence[StepRow]) -> None:
        for step in steps:
            self._state.put("steps", (step.workflow_id, step.number), step)

    def insert_edges(self, workflow_id: str, edges: Sequence[tuple[int, int]]) -> None:
        later: dict[int, list[int]] = {}
        for cause, effect in edges:
            later.setdefault(cause, []).append(effect)
        for cause, effects in later.items():
            known = self._state.edges.get((workflow_id, cause), ())
            self._state.put("edges", (workflow_id, cause), (*known, *effects))

    def refuse_shut(self) -> None:
        self._state.refuse_shut()

    def insert_jobs(self, batch: Batch, *, fenced: bool = False) -> None:
        if fenced:
            self.refuse_shut()
        for job in batch.fresh:
            if job.id in self._state.jobs or job.id in self._state.finished:
                raise id_taken(job.id)
            self._state.put("jobs", job.id, job_from_admitted(job))

    # --- Moving on -----------------------------------------------------------------------------------------

    def workflows_of(self, job_ids: Sequence[str]) -> Sequence[str]:
        return sorted({step.workflow_id for step in self._steps_of(job_ids)})

    def lock_workflows(self, ids: Sequence[str]) -> Sequence[Workflow]:
        return [self._state.workflows[id].flow for id in sorted(ids) if id in self._state.workflows]

    def endings(self, job_ids: Sequence[str]) -> Sequence[Ending]:
        return [
            Ending(step.workflow_id, step.number, step.job_id, step.state, step.waiting, self._status(step.job_id))
            for step in self._steps_of(job_ids)
        ]

    def _steps_of(self, job_ids: Sequence[str]) -> Iterator[StepRow]:
        for job_id in job_ids:
            place = self._state.step_of.get(job_id)
            if place is not None and self._state.steps[place].state not in (StepState.DONE, StepState.CANCELLED):
                yield self._state.steps[place]

    def _status(self, job_id: str) -> Status | None:
        job = self._state.jobs.get(job_id) or self._state.finished.get(job_id)
        return None if job is None else job.status

    def mark(self, steps: Sequence[Place], state: StepState) -> None:
        for place in steps:
            self._state.put("steps", place, self._state.steps[place]._replace(state=state))

    def count_down(self, steps: Sequence[Place]) -> None:
        for place, count in self._behind(steps).items():
            step = self._state.steps[place]
            waiting = step.waiting - count
            state = StepState.HELD if step.state is StepState.WAITING and waiting <= 0 else step.state
            self._state.put("steps", place, step._replace(waiting=waiting, state=state))

    def count_up(self, steps: Sequence[Place]) -> None:
        for place, count in self._behind(steps).items():
            step = self._state.steps[place]
            state = StepState.WAITING if step.state is StepState.HELD else step.state
            self._state.put("steps", place, step._replace(waiting=step.waiting + count, state=state))

    def _behind(self, steps: Sequence[Place]) -> Counter[Place]:
        """What waits for these steps, and for how many of them."""
        return Counter((place[0], effect) for place in steps for effect in self._state.edges.get(place, ()))

    def returning(self, workflow_id: str) -> bool:
        failed = (step for step in self._in(workflow_id, StepState.FAILED) if step.number >= 0)
        return any(self._status(step.job_id) in LIVE for step in failed)

    def held(self, workflow_ids: Sequence[str], most: int) -> Sequence[tuple[str, int, str]]:
        steps = (step for id in workflow_ids for step in self._in(id, StepState.HELD))
        return [(step.workflow_id, step.number, step.job_id) for step in islice(steps, most)]

    def _in(self, workflow_id: str, state: StepState) -> Iterator[StepRow]:
        for number in sorted(self._state.steps_in.get((workflow_id, state), ())):
            yield self._state.steps[workflow_id, number]

    def let_go(self, job_ids: Sequence[str], now: datetime) -> None:
        for job_id in job_ids:
            job = self._state.jobs.get(job_id)
            if job is not None and job.status is Status.READY and job.due_at >= HELD:
                run_at = None if job.run_at is None or job.run_at >= HELD else job.run_at
                due_at = now if run_at is None else max(now, run_at)
                self._state.put("jobs", job_id, job._replace(run_at=run_at, due_at=due_at, updated_at=now))

    def waiting_jobs(self, workflow_id: str, most: int) -> Sequence[tuple[int, str]]:
        return [
            (step.number, step.job_id)
            for step in self._in(workflow_id, StepState.OPEN)
            if step.number >= 0 and self._status(step.job_id) is Status.READY
        ][:most]

    def hold_back(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self._state.leave_places(job_id)  # it waits for others now, and for nothing else
            self._state.put("jobs", job_id, self._state.jobs[job_id]._replace(due_at=HELD))

    def count_open(self, workflow_id: str) -> int:
        return sum(1 for step in self._in(workflow_id, StepState.OPEN) if step.number >= 0)

    def compensation(self, workflow_id: str) -> str | None:
        return self._state.workflows[workflow_id].compensation

    def forget_compensation(self, id: str) -> None:
        self._state.put("workflows", id, replace(self._state.workflows[id], compensation=None))

    def save(self, flows: Sequence[Workflow]) -> None:
        for flow in flows:
            self._state.put("workflows", flow.id, replace(self._state.workflows[flow.id], flow=flow))

    # --- Looking -------------------------------------------------------------------------------------------

    def get(self, id: str) -> Workflow | None:
        found = self._state.workflows.get(id)
        return None if found is None else found.flow

    def page(self, before: str | None, limit: int) -> Sequence[Workflow]:
        ids = sorted((id for id in self._state.workflows if before is None or id < before), reverse=True)
        return [self._state.workflows[id].flow for id in ids[:limit]]

    def _all(self, id: str, after: int | None) -> Iterator[StepRow]:
        for number in sorted(self._state.numbers_of.get(id, ())):
            if after is None or number > after:
                yield self._state.steps[id, number]

    def steps(self, id: str, after: int | None, limit: int) -> Sequence[Step]:
        return [
            Step(row.number, row.name, row.part, row.job_id, row.state, row.waiting, self._status(row.job_id))
            for _, row in zip(range(limit), self._all(id, after), strict=False)
        ]

    def counts(self, id: str) -> Sequence[StepCounts]:
        found = Counter((row.part, row.state) for row in self._all(id, None))
        return [StepCounts(part, state, steps) for (part, state), steps in sorted(found.items())]

    def edges(self, id: str, limit: int) -> Sequence[tuple[int, int]]:
        found = [
            (cause, effect)
            for cause in sorted(self._state.numbers_of.get(id, ()))
            for effect in sorted(self._state.edges.get((id, cause), ()))
        ]
        return found[:limit]

    def results(self, id: str, part: str | None, after: int | None, limit: int) -> Sequence[StepResult]:
        found = []
        for row in self._all(id, after):
            if part is None or row.part == part:
                job = self._state.jobs.get(row.job_id) or self._state.finished.get(row.job_id)
                status, result = (None, None) if job is None else (job.status, job.result)
                found.append(StepResult(row.number, row.job_id, status, result))
                if len(found) == limit:
                    break
        return found

    def unfinished(self, id: str, limit: int) -> Sequence[tuple[int, str]]:
        return [(row.number, row.job_id) for row in self._all(id, None) if row.state not in ENDED][:limit]

    def failed(self, id: str, after: int, limit: int) -> Sequence[tuple[int, str]]:
        return [(row.number, row.job_id) for row in self._all(id, after) if row.state is StepState.FAILED][:limit]

    def stranded(self, id: str, limit: int) -> Sequence[tuple[int, Status | None]]:
        rows = sorted((*self._in(id, StepState.WAITING), *self._in(id, StepState.HELD)), key=lambda row: row.number)
        gone = [row for row in rows if row.number >= 0 and row.job_id not in self._state.jobs]
        return [(row.number, self._status(row.job_id)) for row in gone[:limit]]

    def lost(self, limit: int) -> Sequence[str]:
        found = []
        for (id, state), numbers in self._state.steps_in.items():
            for number in numbers if state in (StepState.OPEN, StepState.FAILED) else ():
                job_id = self._state.steps[id, number].job_id
                status = self._status(job_id)
                live = status in (Status.READY, Status.INFLIGHT)
                if (state is StepState.OPEN and not live) or (
                    state is StepState.FAILED and (live or status is Status.DONE)
                ):
                    found.append(job_id)
        return found[:limit]

    def stuck(self, limit: int) -> Sequence[str]:
        return [id for id, record in self._state.workflows.items() if self._is_stuck(record)][:limit]

    def _is_stuck(self, record: FlowRecord) -> bool:
        flow = record.flow
        if flow.state is WorkflowState.RUNNING:
            return bool(self._state.steps_in.get((flow.id, StepState.HELD)))
        if flow.state is not WorkflowState.FAILED:
            return False
        if self.waiting_jobs(flow.id, 1):
            return True
        undo = self._state.steps.get((flow.id, COMPENSATION))
        waits = record.compensation is not None or (undo is not None and undo.state is StepState.WAITING)
        return waits and not self.count_open(flow.id)

    def abandoned(self, before: datetime, limit: int) -> Sequence[str]:
        flows = [record.flow for record in self._state.workflows.values()]
        return [flow.id for flow in flows if flow.state is WorkflowState.STARTING and flow.created_at < before][:limit]

    def cancelling(self, limit: int) -> Sequence[str]:
        flows = [record.flow for record in self._state.workflows.values()]
        return [flow.id for flow in flows if flow.state is WorkflowState.CANCELLING][:limit]

    def over(self, before: datetime, limit: int) -> Sequence[str]:
        flows = [record.flow for record in self._state.workflows.values()]
        over = [flow for flow in flows if flow.ended_at is not None and flow.ended_at < before]
        return [flow.id for flow in over if not self._can_go_on(flow)][:limit]

    def _can_go_on(self, flow: Workflow) -> bool:
        """Whether it has failed, and a dead job of it is still there to be redriven."""
        numbers = self._state.steps_in.get((flow.id, StepState.FAILED), ())
        jobs = (self._state.steps[flow.id, number].job_id for number in numbers)
        return flow.state is WorkflowState.FAILED and any(self._status(job_id) is Status.DLQ for job_id in jobs)

    def prune(self, ids: Sequence[str]) -> None:
        for id in ids:
            for number in list(self._state.numbers_of.get(id, ())):
                self._state.drop("steps", (id, number))
                if (id, number) in self._state.edges:
                    self._state.drop("edges", (id, number))
            self._state.drop("workflows", id)
