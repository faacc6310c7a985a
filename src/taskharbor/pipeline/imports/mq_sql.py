"""`mq-sql`: the tables `mq_tasks`, `mq_task_dlq` and `mq_task_attempts` on PostgreSQL or MySQL (seed 002)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Final

from taskharbor.core import limits as bounds
from taskharbor.core.model import HistoryRow, Job, Outcome, Status
from taskharbor.pipeline.imports.model import (
    FINAL,
    Imported,
    Notes,
    Row,
    Settings,
    Source,
    dead,
    fact,
    last_fact,
    leased,
    make_job,
    required,
    status_of,
    utc,
    with_key,
)
from taskharbor.pipeline.imports.tables import open_tables

UNIQUE: Final = ("tenant",)
"""Of seed 002: (tenant_id, dedupe_key) is unique, whatever the topic."""


def open_source(source: str, options: dict[str, Any]) -> Source:
    tables = open_tables(source)
    logged = tables.exists("mq_task_attempts")

    def rows() -> Iterator[Row]:
        for part in tables.portions("mq_tasks", "id"):
            ids = [row["id"] for row in part]
            letters = tables.grouped("mq_task_dlq", "task_id", ids, "failed_at, id")
            attempts = tables.grouped("mq_task_attempts", "task_id", ids, "attempt_no, id") if logged else {}
            for row in part:
                yield {**row, "_letters": letters.get(row["id"], []), "_log": attempts.get(row["id"], [])}
        # Tasks that are nowhere but among the dead letters, the last one of each.
        for part in tables.portions("mq_task_dlq", "id", without=("mq_tasks", "task_id", "id")):
            for row in part:
                found = tables.grouped("mq_task_dlq", "task_id", [row["task_id"]], "failed_at, id")[row["task_id"]]
                if found[-1]["id"] == row["id"]:
                    ids = [row["task_id"]]
                    log = tables.grouped("mq_task_attempts", "task_id", ids, "attempt_no, id") if logged else {}
                    yield {**_from_letter(row), "_letters": found, "_log": log.get(row["task_id"], [])}

    def leftovers(notes: Notes) -> None:
        if not logged:
            notes.add("mq_task_attempts is not there: attempts are known by their number alone")
            return
        gone = (("mq_tasks", "task_id", "id"), ("mq_task_dlq", "task_id", "task_id"))
        notes.add(
            "attempts in mq_task_attempts whose task is gone: neither mq_tasks nor mq_task_dlq has it",
            tables.count("mq_task_attempts", without=gone),
        )

    return Source(rows, map_row, leftovers, tables.close)


def _from_letter(letter: Row) -> dict[str, Any]:
    """The task that a dead letter tells of, when the task itself is gone."""
    same = {name: letter[name] for name in ("topic", "tenant_id", "payload", "meta")}
    gone = dict.fromkeys(("dedupe_key", "lease_owner", "lease_until", "expires_at", "last_error_at"))
    when = dict.fromkeys(("available_at", "created_at", "updated_at"), letter["failed_at"])
    counts = {"priority": 0, "attempts": 0, "max_attempts": 0}
    reason = {"last_error": letter["reason"], "id": letter["task_id"], "status": "dead", "_only_letter": True}
    return {**same, **gone, **when, **counts, **reason}


def map_row(row: Row, settings: Settings, notes: Notes) -> Imported:
    status = status_of(row["status"])
    created_at = required(row["created_at"], "created_at")
    updated_at = utc(row["updated_at"], "updated_at")
    available_at = required(row["available_at"], "available_at")
    log: list[Row] = row["_log"]
    failures = _failures(row, status, log)
    executions = max(row["attempts"], failures + (status in (Status.INFLIGHT, Status.DONE)))
    job = make_job(
        settings,
        id=row["id"],
        type=settings.type or row["topic"],
        queue=settings.queue or row["topic"],
        tenant_id=row["tenant_id"],
        status=status,
        payload=bytes(row["payload"]),
        meta=_meta(row["meta"], notes),
        priority=-row["priority"] if settings.flip_priority else row["priority"],
        run_at=available_at if available_at > created_at else None,
        due_at=available_at,
        expires_at=utc(row["expires_at"], "expires_at"),
        created_at=created_at,
        updated_at=updated_at,
        attempts=failures,
        deliveries=executions,
        max_attempts=row["max_attempts"],
        last_error=row["last_error"] or "",
        failed_at=utc(row["last_error_at"], "last_error_at"),
    )
    job = with_key(job, row["dedupe_key"], UNIQUE)
    if settings.type is None:
        notes.add("type: the source has none; the topic is type and queue unless --type says otherwise")
    if row.get("_only_letter"):
        notes.add("priority, counters and times of a task that is only a dead letter: the time it died stands in")
    return Imported(*_with_history(job, row, log, notes), UNIQUE)


def _failures(row: Row, status: Status, log: list[Row]) -> int:
    """Recorded failures. The source counts executions, and the one that goes on, or went well, is no failure."""
    if log:
        return sum(1 for entry in log if not entry["success"] and entry["finished_at"] is not None)
    return max(0, row["attempts"] - (status in (Status.INFLIGHT, Status.DONE)))


def _with_history(job: Job, row: Row, log: list[Row], notes: Notes) -> tuple[Job, list[HistoryRow]]:
    letters = row["_letters"]
    updated_at = job.updated_at
    if (more := len(log) + len(letters) - job.deliveries) > 0 and log:
        # The counter was set back when the task was sent back, and the log was not: those runs are forgiven here.
        job = job._replace(deliveries=job.deliveries + more, forgiven=job.forgiven + more)
    ended: datetime | None = None
    if job.status is Status.INFLIGHT:
        until = utc(row["lease_until"], "lease_until")
        job = leased(job, owner=row["lease_owner"], claimed_at=updated_at, until=until)
    elif job.status is Status.DLQ:
        letter = letters[-1] if letters else None
        ended = required(letter["failed_at"], "failed_at") if letter else job.failed_at or updated_at
        job = dead(job, reason=(letter["reason"] if letter else None) or job.last_error, failed_at=ended)
    elif job.status in FINAL:
        ended = updated_at
        job = job._replace(completed_at=ended)
    facts = _facts_of_log(job, log, ended, notes)
    notes.add("id of a dead letter: a dead job is its own letter here", int(job.status is Status.DLQ and bool(letters)))
    older = letters[:-1] if job.status is Status.DLQ else letters
    for letter in older:  # it died before, and was sent back
        at = required(letter["failed_at"], "failed_at")
        told_already = {each.attempt.number for each in facts if each.attempt}
        facts.append(_earlier_death(job, at, letter["reason"], told_already))
    facts.sort(key=lambda each: each.at)
    told = sum(1 for each in facts if each.attempt is not None)
    if ended is not None and not any(each.status is job.status and each.at == ended for each in facts):
        facts.append(last_fact(job, ended))
        told += job.status in (Status.DONE, Status.DLQ)
    missing = job.attempts + (job.status is Status.DONE) - told
    notes.add("failed attempts one by one: the source has only their number and the last error", max(0, missing))
    return job, facts


def _earlier_death(job: Job, at: datetime, reason: str | None, told: Collection[int]) -> HistoryRow:
    """The attempt that it died with. The log may have used its number for another one."""
    then = dead(job._replace(status=Status.DLQ), reason=reason or "", failed_at=at)
    number = max(told) + 1 if max(1, job.attempts) in told else max(1, job.attempts)
    return fact(then, Outcome.DEAD, Status.DLQ, at, number=number, error=then.dlq_reason or "", code=then.dlq_code)


def _facts_of_log(job: Job, log: list[Row], ended: datetime | None, notes: Notes) -> list[HistoryRow]:
    facts = []
    last_finished = max((n for n, entry in enumerate(log) if entry["finished_at"] is not None), default=None)
    for place, entry in enumerate(log):
        started_at = required(entry["started_at"], "started_at")
        finished_at = utc(entry["finished_at"], "finished_at")
        number = entry["attempt_no"]
        reason = entry["reason"] or ""
        if finished_at is None:
            if job.status is not Status.INFLIGHT or place != len(log) - 1:
                facts.append(fact(job, Outcome.LAPSED, Status.READY, started_at, number=number, started_at=started_at))
                notes.add("attempts without an end: kept as lapsed when they began")
            else:
                notes.add("the attempt that goes on: kept as the lease of its job")
        elif place == last_finished and job.status in (Status.DONE, Status.DLQ) and ended is not None:
            if entry["success"] == (job.status is Status.DONE):
                facts.append(_last(job, number, ended, started_at, reason))
                if finished_at != ended:
                    notes.add("the end of the last attempt: that of its job stands in")
            else:
                facts.append(_ordinary(job, entry, number, finished_at, started_at, reason, notes))
        else:
            facts.append(_ordinary(job, entry, number, finished_at, started_at, reason, notes))
    return facts


def _last(job: Job, number: int, ended: datetime, started_at: datetime, reason: str) -> HistoryRow:
    if job.status is Status.DONE:
        return fact(job, Outcome.SUCCEEDED, Status.DONE, ended, number=number, started_at=started_at)
    text = job.dlq_reason or reason
    return fact(
        job, Outcome.DEAD, Status.DLQ, ended, number=number, error=text, code=job.dlq_code, started_at=started_at
    )


def _ordinary(
    job: Job, entry: Row, number: int, finished_at: datetime, started_at: datetime, reason: str, notes: Notes
) -> HistoryRow:
    if entry["success"]:
        notes.add("attempts that succeeded and did not end their job: kept as released")
        return fact(job, Outcome.RELEASED, Status.READY, finished_at, number=number, started_at=started_at)
    return fact(job, Outcome.RETRIED, Status.READY, finished_at, number=number, started_at=started_at, error=reason)


def _meta(text: str | None, notes: Notes) -> dict[str, str]:
    """Meta is JSON as text there, and a map of texts here."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        notes.add("meta that is no JSON: kept whole under the name meta")
        return {"meta": text[: bounds.MAX_META_BYTES // 4]}
    if not isinstance(value, dict):
        notes.add("meta that is no object: kept whole under the name meta")
        return {"meta": text}
    if any(not isinstance(inner, str) for inner in value.values()):
        notes.add("meta values that are not text: kept as JSON text")
    return {str(key): inner if isinstance(inner, str) else json.dumps(inner) for key, inner in value.items()}
