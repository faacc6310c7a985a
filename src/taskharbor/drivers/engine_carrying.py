"""Carrying a store of the in-process engine: memory and JSON."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from taskharbor.core.carrying import HISTORY, JOBS, MARKS, TABLES, Flows, Lifted, Pack, Part, Place, Row, json_text
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.errors import MoveFailed
from taskharbor.core.fleet import Leadership
from taskharbor.core.limiting import Limit
from taskharbor.core.model import HELD, Job, QueueSettings, Status
from taskharbor.core.tokens import Role, Token
from taskharbor.core.workflow import Policy, StepState, Workflow, WorkflowState
from taskharbor.drivers.flowing import StepRow
from taskharbor.drivers.lines import BucketRecord
from taskharbor.drivers.rows import schedule_from_row, schedule_params
from taskharbor.drivers.sqldesk import weights_text
from taskharbor.drivers.state import KeyRecord, State
from taskharbor.drivers.threads import FlowRecord

Held = Callable[[], AbstractContextManager[State]]
FINAL: Final = (Status.DONE, Status.EXPIRED, Status.CANCELLED)
LOAD: Final = "load:"
"""What the notes about loads begin with: this engine itself has no use for them, and keeps them for the next store."""


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

    def find(self, table: str, places: Sequence[Place]) -> Sequence[Row]:
        wanted = {tuple(place) for place in places}
        with self._reading() as state:
            if table == JOBS:
                ids = [id for (id,) in wanted if id in state.jobs]
                return [(state.jobs[id], state.tags.get(id), state.bench.get(id)) for id in ids]
            if table == "keys":
                return [_key(place, state.keys[place]) for place in wanted if place in state.keys]
            keys = TABLES[table].keys
            return [row for row in _ROWS[table](state) if row[:keys] in wanted]

    def known(self, ids: Sequence[str]) -> set[str]:
        with self._reading() as state:
            return {id for id in ids if id in state.jobs or id in state.finished}

    def count(self, table: str) -> int:
        with self._reading() as state:
            if table in (HISTORY, JOBS):
                return len(getattr(state, table))
            return sum(1 for _ in _ROWS[table](state))

    def bring(self, parts: Sequence[Part], notes: Mapping[str, str | None]) -> None:
        with self._writing() as state:
            # Nothing can be taken back once it is in the state: whatever there is to refuse comes first.
            for table, rows in [(part.table, _fitting(state, part)) for part in parts]:
                if table == "edges":
                    _put_edges(state, rows)
                else:
                    for row in rows:
                        _PUT[table](state, row)
            _put_notes(state, notes)

    def lift(self, after: str, limit: int, pack: Pack, flows: Flows) -> Lifted:
        with self._writing() as state:
            resting = (id for id, job in state.jobs.items() if id > after and _may_go(state, job, flows))
            ids = heapq.nsmallest(limit, resting)
            rows: list[Row] = [(state.jobs[id], None, None) for id in ids]
            if rows:
                notes = pack(rows)
                for id in ids:
                    state.leave_places(id)
                    state.drop("jobs", id)
                _put_notes(state, notes)
            return Lifted(rows, ids[-1] if len(ids) == limit else None)

    def clear(self, table: str, notes: Mapping[str, str | None]) -> None:
        with self._writing() as state:
            if table == "loads":
                _put_notes(state, {name: None for name in state.notes if name.startswith(LOAD)})
            else:
                for each in (HISTORY, "finished") if table == HISTORY else (table,):
                    for key in list(getattr(state, each)):
                        if key not in MARKS:
                            state.drop(each, key)
            _put_notes(state, notes)

    def writers_ended(self, wait_s: float) -> bool:
        return True  # there is one writer at a time, and no transaction of a caller

    def note(self, name: str) -> str | None:
        with self._reading() as state:
            return state.notes.get(name)

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        with self._writing() as state:
            _put_notes(state, notes)


def _may_go(state: State, job: Job, flows: Flows) -> bool:
    if job.status not in (Status.READY, Status.DLQ):
        return False
    if flows == "all":
        return True
    return (job.id in state.step_of) == (flows == "held") and (flows == "none" or job.due_at >= HELD)


def _fitting(state: State, part: Part) -> Sequence[Row]:
    """The rows that are to be put; refuses them all if one is not to be replaced and is there."""
    table, rows, clash = part
    if table == HISTORY or clash == "replace":
        return rows
    fitting = [row for row in rows if not _has(state, table, row)]
    if clash == "refuse" and len(fitting) < len(rows):
        raise MoveFailed(f"rows of {table} are in the new store already: nothing of it was kept there")
    return fitting


def _has(state: State, table: str, row: Row) -> bool:
    keys = TABLES[table].keys
    match table:
        case "jobs":
            return row[0].id in state.jobs
        case "loads":
            return LOAD + row[0] in state.notes
        case "edges":  # the same one twice is one
            return False
    return (row[0] if keys == 1 else row[:keys]) in getattr(state, table)


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
        if queue.name not in MARKS:
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
    for place, record in state.keys.items():
        yield _key(place, record)


def _key(place: tuple[str, str], record: KeyRecord) -> Row:
    return (*place, record.job_id, record.payload_hash or "", record.expires_at)


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


def _put_edges(state: State, rows: Sequence[Row]) -> None:
    effects: dict[tuple[str, int], dict[int, None]] = {}
    for id, cause, effect in rows:
        effects.setdefault((id, cause), {})[effect] = None
    for place, more in effects.items():
        state.put("edges", place, tuple({**dict.fromkeys(state.edges.get(place, ())), **more}))


def _leaders(state: State) -> Iterator[Row]:
    for leader in state.leaders.values():
        yield (leader.name, leader.holder, leader.epoch, leader.until)


def _put_leader(state: State, row: Row) -> None:
    state.put("leaders", row[0], Leadership(*row))


def _tokens(state: State) -> Iterator[Row]:
    for token in state.tokens.values():
        yield (
            token.id, token.name, token.tenant_id, str(token.role), token.secret_hash, token.created_at,
            token.expires_at, token.revoked_at,
        )  # fmt: skip


def _put_token(state: State, row: Row) -> None:
    id, name, tenant_id, role, *more = row
    state.put("tokens", id, Token(id, name, tenant_id, Role(role), *more))


def _loads(state: State) -> Iterator[Row]:
    for name, text in state.notes.items():
        if name.startswith(LOAD):
            *counts, published_at = json.loads(text)
            yield (name.removeprefix(LOAD), *counts, from_micros(published_at))


def _put_load(state: State, row: Row) -> None:
    run_id, *counts, published_at = row
    state.put("notes", LOAD + run_id, json.dumps([*counts, to_micros(published_at)]))


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
    "tokens": _tokens,
    "loads": _loads,
}
_PUT: Final[Mapping[str, Callable[[State, Any], None]]] = {
    HISTORY: _put_fact,
    JOBS: _put_job,
    "queues": _put_queue,
    "limits": _put_limit,
    "schedules": _put_schedule,
    "keys": _put_key,
    "buckets": _put_bucket,
    "fair": _put_fair,
    "workflows": _put_workflow,
    "steps": _put_step,
    "leaders": _put_leader,
    "tokens": _put_token,
    "loads": _put_load,
}
