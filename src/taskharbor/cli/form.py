"""Jobs and their kin in the two forms that verbs print: JSON for programs, words for people."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from taskharbor.cli.output import Table, shortened
from taskharbor.core import forms
from taskharbor.core.envelope import is_sealed, key_id_of
from taskharbor.core.forms import refuse_constant
from taskharbor.core.model import DEFAULT_TENANT, Attempt, Job

JOB_HEADINGS: Final = ("id", "type", "queue", "tenant", "priority", "status", "failures", "created", "last error")
_USUAL: Final[dict[str, object]] = {"tenant": DEFAULT_TENANT, "priority": 0, "failures": 0, "last error": ""}


def data_of(stored: bytes | None) -> tuple[Any, str | None]:
    """Stored bytes as JSON has them, and how they are to be read: `json`, `base64` or, base64 too, `encrypted`; None
    for nothing."""
    if stored is None:
        return None, None
    if is_sealed(stored):
        return base64.b64encode(stored).decode(), "encrypted"
    try:
        return json.loads(stored, parse_constant=refuse_constant), "json"
    except (ValueError, RecursionError):
        return base64.b64encode(stored).decode(), "base64"


def text_of(stored: bytes | None) -> str:
    """Stored bytes as people read them."""
    if stored is None:
        return ""
    if is_sealed(stored):
        return f"{len(stored):,} bytes, encrypted with the key {key_id_of(stored)}"
    value, encoding = data_of(stored)
    if encoding != "json":
        return f"{len(stored):,} bytes that are not JSON: base64 {value}" if stored else "(empty)"
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return stored.decode()


def job_data(job: Job, now: datetime) -> dict[str, Any]:
    """Everything about a job, with payload and result in full."""
    payload, payload_encoding = data_of(job.payload)
    result, result_encoding = data_of(job.result)
    return forms.job_data(job, now) | {
        "payload": payload,
        "payload_encoding": payload_encoding,
        "payload_key": key_id_of(job.payload),
        "result": result,
        "result_encoding": result_encoding,
        "result_key": key_id_of(job.result),
    }


def span(duration: timedelta | float) -> str:
    """A length of time in one or two words: 12ms, 3.4s, 5m, 2h10m, 3d."""
    total = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if total < 0:
        return "-" + span(-total)
    if total < 1:
        return f"{total * 1000:.0f}ms"
    if total < 60:
        return f"{total:.1f}s" if total < 10 else f"{total:.0f}s"
    minutes = int(total // 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes}m" if minutes and hours < 10 else f"{hours}h"
    return f"{hours // 24}d"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long since, or until: `3m ago`, `in 2h`."""
    if moment is None:
        return ""
    gone = now - moment
    if abs(gone) < timedelta(seconds=1):
        return "now"
    return f"{span(gone)} ago" if gone > timedelta(0) else f"in {span(-gone)}"


def job_row(job: Job, now: datetime) -> tuple[object, ...]:
    phase = job.phase(now)
    shown = f"{phase} ({ago(job.due_at, now)})" if phase == "scheduled" else phase
    return (
        job.id,
        job.type,
        job.queue,
        job.tenant_id,
        job.priority,
        shown,
        job.attempts,
        ago(job.created_at, now),
        shortened(job.dlq_reason or job.last_error, 50),
    )


def job_table(jobs: Sequence[Job], now: datetime, empty: str) -> Table:
    """Columns in which no job has anything to say are left out: ids are long, and terminals are narrow."""
    return _without_usual(JOB_HEADINGS, [job_row(job, now) for job in jobs], empty)


def _without_usual(headings: Sequence[str], rows: Sequence[tuple[object, ...]], empty: str) -> Table:
    kept = [
        place
        for place, heading in enumerate(headings)
        if heading not in _USUAL or any(row[place] != _USUAL[heading] for row in rows)
    ]
    return Table([headings[place] for place in kept], [[row[place] for place in kept] for row in rows], empty=empty)


def dead_table(jobs: Sequence[Job], now: datetime, empty: str) -> Table:
    """Jobs of the DLQ: why each died, and when, in place of its state and its age."""
    rows = [
        (
            job.id,
            job.type,
            job.queue,
            job.tenant_id,
            job.dlq_code,
            job.attempts,
            ago(job.dlq_failed_at, now),
            shortened(job.dlq_reason or job.last_error, 50),
        )
        for job in jobs
    ]
    return _without_usual(("id", "type", "queue", "tenant", "code", "failures", "died", "last error"), rows, empty)


def attempt_table(attempts: Sequence[Attempt], now: datetime) -> Table:
    return Table(
        ("attempt", "delivery", "outcome", "worker", "waited", "ran", "ended", "error"),
        [
            (
                attempt.number,
                attempt.delivery,
                attempt.outcome.value,
                attempt.worker,
                span(attempt.started_at - attempt.due_at),
                span(attempt.finished_at - attempt.started_at),
                ago(attempt.finished_at, now),
                shortened(attempt.error, 70),
            )
            for attempt in attempts
        ],
        title="attempts",
        empty="no attempt has ended yet",
    )
