"""Carrying a store of the in-process engine: memory and JSON."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from taskharbor.core.carrying import HISTORY, JOBS, MOVING, TABLES, Place, Row, json_text
from taskharbor.core.fleet import Leadership
from taskharbor.core.limiting import Limit
from taskharbor.core.model import QueueSettings, Status
from taskharbor.core.workflow import Policy, StepState, Workflow, WorkflowState
from taskharbor.drivers.flowing import StepRow
from taskharbor.drivers.lines import BucketRecord
from taskharbor.drivers.rows import schedule_from_row, schedule_params
from taskharbor.drivers.sqldesk import weights_text
from taskharbor.drivers.state import KeyRecord, State
from taskharbor.drivers.threads import FlowRecord

Held = Callable[[], AbstractContextManager[State]]
FINAL: Final = (Status.DONE, Status.EXPIRED, Status.CANCELLED)


class EngineCarrier:
    def __init__(self, reading: Held, writing: Held) -> None:
        self._reading = reading
        self._writing = writing

    @property
    def identity(self) -> str:
        with self._reading() as state:
            return state.store_id

    def take(self, table: str, after: Place | None, limit: int) -> Sequence[Row]:
        with self._reading() as state:
            if table == HISTORY:
                start = int(str(after[0]).rpartition(":")[2]) if after else 0
                chosen = heapq.nsmallest(limit, (sequence for sequence in state.history if sequence > start))
                return [(state.history[sequence],) for sequence in chosen]
            if table == JOBS:
                first = str(after[0]) if after else ""
                ids = heapq.nsmallest(limit, (id for id in state.jobs if id > first))
                return [(state.jobs[id], state.tags.get(id), state.bench.get(id)) for id in ids]
            keys = TABLES[table].keys
            behind = tuple(after) if after else None
            rows = (row for row in _ROWS[table](state) if behind is None or row[:keys] > behind)
            return heapq.nsmallest(limit, rows, key=lambda row: row[:keys])

    def count(self, table: str) -> int:
        with self._reading() as state:
            if table in (HISTORY, JOBS):
                return len(getattr(state, table))
            return sum(1 for _ in _ROWS[table](state))

    def bring(self, table: str, rows: Sequence[Row], notes: Mapping[str, str]) -> None:
        with self._writing() as state:
            for row in rows:
                if table == HISTORY:
                    _put_fact(state, row)
                elif table == JOBS:
                    _put_job(state, row)
                else:
                    _PUT[table](state, row)
            _put_notes(state, notes)

    def clear(self, table: str, notes: Mapping[str, str]) -> None:
        with self._writing() as state:
            for each in (HISTORY, "finished") if table == HISTORY else (table,):
                for key in list(getattr(state, each)):
                    if key != MOVING:
                        state.drop(each, key)
            _put_notes(state, notes)

    def note(self, name: str) -> str | None:
        with self._reading() as state:
            return state.notes.get(name)

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        with self._writing() as state:
            _put_notes(state, notes)


def _put_notes(state: State, notes: Mapping[str, str | None]) -> None:
    for name, text in notes.items():
        if text is not None:
            state.put("notes", name, text)
        elif name in state.notes:
            state.drop("notes", name)


def _put_fact(state: State, row: Row) -> None:
    fact = row[0]
    if fact.status in FINAL:
        state.put("finished", fact.job_id, fact.job)
    state.record(fact)


def _put_job(state: State, row: Row) -> None:
    job, tag, bucket = row
    state.put("jobs", job.id, job)
    if tag is not None:
        state.put("tags", job.id, tag)
    if bucket is not None:
        state.put("bench", job.id, bucket)


# --- Plain tables: rows of each, and back ----------------------------------------------------------------------------


def _queues(state: State) -> Iterator[Row]:
    for queue in state.queues.values():
        if queue.name != MOVING:
            yield (queue.name, queue.paused, queue.fair, json_text(weights_text(queue.weights)))


def _put_queue(state: State, row: Row) -> None:
    name, paused, fair, weights = row
    state.put("queues", name, QueueSettings(name, paused, fair, json.loads(weights) if weights else {}))


def _limits(state: State) -> Iterator[Row]:
    for limit in state.limits.values():
        rate = None if limit.rate is None else float(limit.rate)
        yield (*limit.key, limit.concurrency, rate, limit.burst)


def _put_limit(state: State, row: Row) -> None:
    limit = Limit(*row)
    state.put("limits", limit.key, limit)


def _schedules(state: State) -> Iterator[Row]:
    for schedule in state.schedules.values():
        yield tuple(schedule_params(schedule).values())


def _put_schedule(state: State, row: Row) -> None:
    state.put("schedules", row[0], schedule_from_row(row))


def _keys(state: State) -> Iterator[Row]:
    for (scope, key), record in state.keys.items():
        yield (scope, key, record.job_id, record.payload_hash or "", record.expires_at)


def _put_key(state: State, row: Row) -> None:
    state.put("keys", (row[0], row[1]), KeyRecord(*row[2:]))


def _buckets(state: State) -> Iterator[Row]:
    for bucket, kept in state.buckets.items():
        tokens = None if kept.tokens is None else float(kept.tokens)
        yield (bucket, *kept.limit, tokens, kept.counted_at, kept.wake_at)


def _put_bucket(state: State, row: Row) -> None:
    bucket, scope, name, per, tokens, counted_at, wake_at = row
    state.put("buckets", bucket, BucketRecord((scope, name, per), tokens, counted_at, wake_at))


def _fair(state: State) -> Iterator[Row]:
    for key, tag in state.fair.items():
        yield (*key, tag)


def _put_fair(state: State, row: Row) -> None:
    state.put("fair", row[:3], row[3])


def _workflows(state: State) -> Iterator[Row]:
    for flow, compensation in ((record.flow, record.compensation) for record in state.workflows.values()):
        yield (
            flow.id, flow.name, flow.tenant_id, str(flow.policy), str(flow.state), flow.total, flow.done, flow.failed,
            flow.created_at, flow.ended_at, compensation,
        )  # fmt: skip


def _put_workflow(state: State, row: Row) -> None:
    id, name, tenant_id, policy, at, total, done, failed, created_at, ended_at, compensation = row
    counts = total, done, failed
    flow = Workflow(id, name, tenant_id, Policy(policy), WorkflowState(at), *counts, created_at, ended_at)
    state.put("workflows", id, FlowRecord(flow, compensation))


def _steps(state: State) -> Iterator[Row]:
    for step in state.steps.values():
        yield (*step[:-1], str(step.state))


def _put_step(state: State, row: Row) -> None:
    id, number, name, part, job_id, waiting, at = row
    state.put("steps", (id, number), StepRow(id, number, name, part, job_id, waiting, StepState(at)))


def _edges(state: State) -> Iterator[Row]:
    for (id, cause), effects in state.edges.items():
        for effect in effects:
            yield (id, cause, effect)


def _put_edge(state: State, row: Row) -> None:
    id, cause, effect = row
    state.put("edges", (id, cause), (*state.edges.get((id, cause), ()), effect))


def _leaders(state: State) -> Iterator[Row]:
    for leader in state.leaders.values():
        yield (leader.name, leader.holder, leader.epoch, leader.until)


def _put_leader(state: State, row: Row) -> None:
    state.put("leaders", row[0], Leadership(*row))


_ROWS: Final[Mapping[str, Callable[[State], Iterator[Row]]]] = {
    "queues": _queues,
    "limits": _limits,
    "schedules": _schedules,
    "keys": _keys,
    "buckets": _buckets,
    "fair": _fair,
    "workflows": _workflows,
    "steps": _steps,
    "edges": _edges,
    "leaders": _leaders,
}
_PUT: Final[Mapping[str, Callable[[State, Any], None]]] = {
    "queues": _put_queue,
    "limits": _put_limit,
    "schedules": _put_schedule,
    "keys": _put_key,
    "buckets": _put_bucket,
    "fair": _put_fair,
    "workflows": _put_workflow,
    "steps": _put_step,
    "edges": _put_edge,
    "leaders": _put_leader,
}
