"""Rows of the store as JSON and back: bytes as base64, times as microseconds since 1970, nothing for None.

Decoding trusts nobody: whatever does not fit raises KeyError, TypeError or ValueError, which the caller reports as
a corrupt store.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from taskharbor.core.clock import MICROSECOND, from_micros, to_micros
from taskharbor.core.fleet import Leadership, Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Attempt, HistoryRow, Job, Outcome, Overlap, Progress, QueueSettings, Schedule, Status
from taskharbor.core.workflow import Policy, StepState, Workflow, WorkflowState
from taskharbor.drivers.access import token_from_row
from taskharbor.drivers.flowing import StepRow
from taskharbor.drivers.lines import BucketRecord, RunningRecord
from taskharbor.drivers.state import KeyRecord, State
from taskharbor.drivers.threads import FlowRecord

Record = Any
"""What `json.loads` gives for one row."""

_JOB_PLAIN: Final = (
    "id",
    "type",
    "queue",
    "tenant_id",
    "priority",
    "max_attempts",
    "attempts",
    "deliveries",
    "forgiven",
    "last_error",
    "lease_token",
    "lease_owner",
    "dlq_reason",
    "dlq_code",
    "idempotency_key",
    "dedupe_scope",
)
_JOB_TIMES: Final = (
    "run_at",
    "due_at",
    "expires_at",
    "failed_at",
    "lease_expires_at",
    "cancel_requested_at",
    "dlq_failed_at",
    "created_at",
    "updated_at",
    "claimed_at",
    "started_at",
    "completed_at",
)
_JOB_REQUIRED: Final = frozenset({"id", "type", "queue", "tenant_id", "status", "payload", "due_at", "created_at"})
_ATTEMPT_PLAIN: Final = ("job_id", "number", "delivery", "error", "code", "worker", "lease_token")
_ATTEMPT_TIMES: Final = ("due_at", "claimed_at", "started_at", "finished_at")
_ROW_PLAIN: Final = ("job_id", "type", "queue", "tenant_id", "priority")

_SCHEDULE_PLAIN: Final = (
    "name",
    "spec",
    "timezone",
    "type",
    "queue",
    "tenant_id",
    "priority",
    "max_attempts",
    "paused",
    "last_job_id",
)
_SCHEDULE_TIMES: Final = ("next_run_at", "last_run_at", "updated_at")


def encode(table: str, value: Any, state: State) -> Record:
    """The record of a row. `state` already holds the row."""
    match table:
        case "jobs" | "finished":
            return _job_record(value)
        case "history":
            return _row_record(value, state)
        case "keys":
            return [value.job_id, value.payload_hash, _micros(value.expires_at)]
        case "workers":
            return _worker_record(value)
        case "leaders":
            return [value.name, value.holder, value.epoch, _micros(value.until)]
        case "queues":
            # Without what older versions do not know they can read it.
            more = [value.fair, dict(value.weights)] if value.fair or value.weights else []
            return [value.name, value.paused, *more]
        case "schedules":
            return _schedule_record(value)
        case "tokens":
            times = [to_micros(value.created_at), _micros(value.expires_at), _micros(value.revoked_at)]
            return [value.id, value.name, value.tenant_id, value.role, value.secret_hash, *times]
        case "limits":
            return [*value.key, value.concurrency, value.rate, value.burst]
        case "buckets":
            return [list(value.limit), value.tokens, _micros(value.counted_at), _micros(value.wake_at)]
        case "running":
            return [value.token, to_micros(value.until)]
        case "bench" | "fair" | "tags" | "notes":
            return value
        case "workflows":
            flow = value.flow
            times = [to_micros(flow.created_at), _micros(flow.ended_at)]
            counts = [flow.total, flow.done, flow.failed]
            return [flow.id, flow.name, flow.tenant_id, flow.policy, flow.state, *counts, *times, value.compensation]
        case "steps" | "edges":
            return list(value)
    raise ValueError(f"no table {table!r}")


def decode(table: str, key: Any, record: Record, state: State) -> Any:
    """The row of a record. `state` holds the rows that were written before it."""
    match table:
        case "jobs" | "finished":
            return _job(record)
        case "history":
            return _row(key, record, state)
        case "keys":
            job_id, payload_hash, expires_at = record
            return KeyRecord(job_id, payload_hash, _moment(expires_at))
        case "workers":
            return _worker(record)
        case "leaders":
            name, holder, epoch, until = record
            return Leadership(name, holder, epoch, from_micros(until))
        case "queues":
            return QueueSettings(*record)
        case "schedules":
            return _schedule(record)
        case "tokens":
            *words, created_at, expires_at, revoked_at = record
            return token_from_row([*words, from_micros(created_at), _moment(expires_at), _moment(revoked_at)])
        case "limits":
            return Limit(*record)
        case "buckets":
            (scope, name, per), tokens, counted_at, wake_at = record
            return BucketRecord((scope, name, per), tokens, _moment(counted_at), _moment(wake_at))
        case "running":
            token, until = record
            return RunningRecord(token, from_micros(until))
        case "bench" | "fair" | "tags" | "notes":
            if not isinstance(record, str if table in ("bench", "notes") else int):
                raise TypeError(f"{record!r} is no row of {table}")
            return record
        case "workflows":
            id, name, tenant_id, policy, at, total, done, failed, created_at, ended_at, compensation = record
            times = from_micros(created_at), _moment(ended_at)
            flow = Workflow(id, name, tenant_id, Policy(policy), WorkflowState(at), total, done, failed, *times)
            return FlowRecord(flow, compensation)
        case "steps":
            id, number, name, part, job_id, waiting, at = record
            return StepRow(id, number, name, part, job_id, waiting, StepState(at))
        case "edges":
            return tuple(record)
    raise ValueError(f"no table {table!r}")


def decode_key(table: str, key: Any) -> Any:
    """Keys of the tables are text, numbers in history, and of several parts in some."""
    if table in ("keys", "running", "steps", "edges"):
        scope, name = key
        return (scope, name)
    if table in ("limits", "fair"):
        first, second, third = key
        return (first, second, third)
    wanted = int if table == "history" else str
    if not isinstance(key, wanted):
        raise TypeError(f"{key!r} is no key of {table}")
    return key


def _job_record(job: Job) -> Record:
    record: dict[str, Any] = {name: value for name in _JOB_PLAIN if (value := getattr(job, name)) is not None}
    record.update((name, to_micros(value)) for name in _JOB_TIMES if (value := getattr(job, name)) is not None)
    record["status"] = job.status.value
    record["payload"] = _text(job.payload)
    if job.result is not None:
        record["result"] = _text(job.result)
    if job.meta:
        record["meta"] = dict(job.meta)
    if job.timeout is not None:
        record["timeout"] = job.timeout // MICROSECOND
    if job.progress is not None:
        record["progress"] = [job.progress.done, job.progress.total, job.progress.note]
    return record


def _job(record: Record) -> Job:
    missing = _JOB_REQUIRED - record.keys()
    if missing:
        raise KeyError(f"a job without {sorted(missing)}")
    values: dict[str, Any] = {name: record.get(name) for name in _JOB_PLAIN}
    values.update((name, _moment(record.get(name))) for name in _JOB_TIMES)
    timeout, progress, result = record.get("timeout"), record.get("progress"), record.get("result")
    return Job(
        **values,
        status=Status(record["status"]),
        payload=_bytes(record["payload"]),
        result=None if result is None else _bytes(result),
        meta=record.get("meta", {}),
        timeout=None if timeout is None else timedelta(microseconds=timeout),
        progress=None if progress is None else Progress(*progress),
    )


def _row_record(row: HistoryRow, state: State) -> Record:
    record: dict[str, Any] = {name: getattr(row, name) for name in _ROW_PLAIN}
    record.update(outcome=row.outcome.value, status=row.status.value, at=to_micros(row.at))
    if row.attempt is not None:
        attempt: dict[str, Any] = {name: getattr(row.attempt, name) for name in _ATTEMPT_PLAIN}
        attempt.update((name, to_micros(getattr(row.attempt, name))) for name in _ATTEMPT_TIMES)
        record["attempt"] = attempt
    if row.job is not None:
        # A finished job never changes again, so its row of history need not repeat it.
        record["job"] = "finished" if row.job is state.finished.get(row.job_id) else _job_record(row.job)
    return record


def _row(sequence: int, record: Record, state: State) -> HistoryRow:
    outcome, job, attempt = Outcome(record["outcome"]), record.get("job"), None
    if "attempt" in record:
        values = dict(record["attempt"])
        values.update((name, from_micros(values[name])) for name in _ATTEMPT_TIMES)
        attempt = Attempt(**values, outcome=outcome)
    return HistoryRow(
        position=f"{state.store_id}:{sequence}",
        **{name: record[name] for name in _ROW_PLAIN},
        outcome=outcome,
        status=Status(record["status"]),
        at=from_micros(record["at"]),
        attempt=attempt,
        job=None if job is None else state.finished[record["job_id"]] if job == "finished" else _job(job),
    )


def _worker_record(worker: Worker) -> Record:
    return {
        "id": worker.id,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "queues": list(worker.queues),
        "slots": worker.slots,
        "version": worker.version,
        "started_at": _micros(worker.started_at),
        "last_heartbeat": _micros(worker.last_heartbeat),
        "meta": dict(worker.meta),
    }


def _worker(record: Mapping[str, Any]) -> Worker:
    plain = Worker(**record)
    return replace(
        plain,
        queues=tuple(record["queues"]),
        started_at=_moment(record["started_at"]),
        last_heartbeat=_moment(record["last_heartbeat"]),
    )


def _schedule_record(schedule: Schedule) -> Record:
    record: dict[str, Any] = {name: getattr(schedule, name) for name in _SCHEDULE_PLAIN}
    record.update((name, _micros(getattr(schedule, name))) for name in _SCHEDULE_TIMES)
    record["overlap"] = str(schedule.overlap)
    record["payload"] = _text(schedule.payload)
    record["meta"] = dict(schedule.meta)
    record["timeout"] = schedule.timeout // MICROSECOND if isinstance(schedule.timeout, timedelta) else None
    return record


def _schedule(record: Mapping[str, Any]) -> Schedule:
    timeout = record["timeout"]
    values: dict[str, Any] = {name: record[name] for name in _SCHEDULE_PLAIN}
    values.update((name, _moment(record[name])) for name in _SCHEDULE_TIMES)
    return Schedule(
        **values,
        overlap=Overlap(record["overlap"]),
        payload=_bytes(record["payload"]),
        meta=record["meta"],
        timeout=None if timeout is None else timedelta(microseconds=timeout),
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
