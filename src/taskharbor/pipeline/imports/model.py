"""What importers make of a foreign job, and what they say of the things that cannot come along."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from taskharbor.core import limits as bounds
from taskharbor.core.clock import checked
from taskharbor.core.codec import JsonCodec
from taskharbor.core.errors import InvalidInput
from taskharbor.core.intake import dedupe_scope
from taskharbor.core.limits import Limits
from taskharbor.core.model import (
    DEFAULT_LEASE,
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    Attempt,
    HistoryRow,
    Job,
    Outcome,
    Reason,
    Status,
)

STATUSES: Final[Mapping[str, Status]] = {
    **dict.fromkeys(("ready", "pending", "queued", "scheduled", "retry", "retrying", "delayed"), Status.READY),
    **dict.fromkeys(("inflight", "leased", "claimed", "running", "processing", "reserved"), Status.INFLIGHT),
    **dict.fromkeys(("done", "completed", "succeeded", "success", "acked"), Status.DONE),
    **dict.fromkeys(("dlq", "dead", "dead_letter", "failed"), Status.DLQ),
    "expired": Status.EXPIRED,
    **dict.fromkeys(("cancelled", "canceled"), Status.CANCELLED),
}
FINAL: Final = (Status.DONE, Status.EXPIRED, Status.CANCELLED)


class Imported(NamedTuple):
    """A job as it is to stand in the store, and what history is to know of it, oldest first."""

    job: Job
    facts: list[HistoryRow]
    unique: tuple[str, ...]


@dataclass(slots=True)
class Notes:
    """What could not be carried over as it was: how often, and why."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, times: int = 1) -> None:
        if times:
            self.counts[text] += times


@dataclass(frozen=True, slots=True)
class Settings:
    """How to read a source that leaves things open."""

    type: str | None = None
    queue: str | None = None
    tenant_id: str = DEFAULT_TENANT
    flip_priority: bool = False
    limits: Limits = field(default_factory=Limits)


Row = Mapping[str, Any]
Mapper = Callable[[Row, Settings, Notes], Imported]


@dataclass(frozen=True, slots=True)
class Source:
    """A foreign system, open: its jobs one by one, and what else it holds."""

    rows: Callable[[], Iterator[Row]]
    mapper: Mapper
    leftovers: Callable[[Notes], None]
    """Notes what is there beside jobs and does not come along."""
    close: Callable[[], None] = lambda: None


def nothing_left(notes: Notes) -> None:
    """The source holds nothing but jobs."""


def status_of(value: Any) -> Status:
    try:
        return STATUSES[str(value).lower()]
    except KeyError:
        known = ", ".join(sorted(STATUSES))
        raise InvalidInput(f"unknown status {value!r}: known are {known}") from None


def utc(value: Any, name: str) -> datetime | None:
    """A time of the source. Those without a zone are in UTC, as the seeds say."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(f"{name} is no time: {value!r}") from None
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return checked(value, name)


def required(value: Any, name: str) -> datetime:
    moment = utc(value, name)
    if moment is None:
        raise InvalidInput(f"{name} is missing")
    return moment


def json_bytes(value: Any) -> bytes:
    """A payload or result: text that is JSON as it is, anything else as JSON."""
    if value is None or value == "":
        return b"{}"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            json.loads(value)
            return value.encode()
        except ValueError:
            return JsonCodec().encode(value)
    return JsonCodec().encode(value)


def token_of(job_id: str, number: int) -> str:
    """Foreign leases have no token here; each attempt gets one that is the same in every import."""
    return sha256(f"{job_id}\0{number}".encode()).hexdigest()[:32]


def make_job(settings: Settings, *, id: Any, type: str, status: Status, payload: bytes, **fields: Any) -> Job:
    """A job with everything that was not given left at what a new job has; all of it checked."""
    limits = settings.limits
    limits.check_size(payload, "payload")
    created_at: datetime = fields["created_at"]
    values: dict[str, Any] = {
        "queue": DEFAULT_QUEUE, "tenant_id": settings.tenant_id, "meta": {}, "priority": 0, "run_at": None,
        "due_at": None, "expires_at": None, "timeout": None, "max_attempts": 0, "attempts": 0, "deliveries": None,
        "forgiven": 0, "last_error": "", "failed_at": None, "lease_token": None, "lease_owner": None,
        "lease_expires_at": None, "cancel_requested_at": None, "dlq_reason": None, "dlq_code": None,
        "dlq_failed_at": None, "idempotency_key": None, "dedupe_scope": None, "result": None, "progress": None,
        "updated_at": None, "claimed_at": None, "started_at": None, "completed_at": None, **fields,
    }  # fmt: skip
    values["max_attempts"] = values["max_attempts"] or limits.default_max_attempts
    values["due_at"] = values["due_at"] or values["run_at"] or created_at
    values["last_error"] = bounds.clean_error(values["last_error"] or "")
    values["updated_at"] = values["updated_at"] or values["completed_at"] or values["failed_at"] or created_at
    if values["deliveries"] is None:
        ran = status in (Status.INFLIGHT, Status.DONE)
        values["deliveries"] = values["attempts"] + ran
    for name in ("max_attempts", "attempts", "priority"):
        if not isinstance(values[name], int) or (name != "priority" and not 0 <= values[name] <= bounds.MAX_ATTEMPTS):
            raise InvalidInput(f"{name} must be a whole number, got {values[name]!r}")
    if values["priority"] not in bounds.PRIORITY_RANGE:
        raise InvalidInput(f"priority must be a whole number of 32 bits, got {values['priority']}")
    bounds.check_name(values["queue"], "queue", bounds.MAX_NAME)
    bounds.check_name(values["tenant_id"], "tenant_id", bounds.MAX_TENANT)
    if values["idempotency_key"] is not None:
        bounds.check_name(values["idempotency_key"], "idempotency_key", bounds.MAX_KEY)
    if values["result"] is not None:
        limits.check_size(values["result"], "result")
    return Job(
        id=bounds.check_name(str(id), "id", bounds.MAX_ID),
        type=bounds.check_name(type, "type", bounds.MAX_NAME),
        status=status,
        payload=payload,
        **values,
    )


def leased(job: Job, *, owner: str | None, claimed_at: datetime, until: datetime | None) -> Job:
    """The job in the hands of a worker of the old system: it becomes runnable here when that lease has ended."""
    return job._replace(
        lease_token=token_of(job.id, job.deliveries),
        lease_owner=(owner or "")[: bounds.MAX_NAME],
        lease_expires_at=until or claimed_at + DEFAULT_LEASE,
        claimed_at=claimed_at,
    )


def dead(job: Job, *, reason: str, failed_at: datetime, code: str | None = None) -> Job:
    exhausted = job.attempts >= job.max_attempts
    return job._replace(
        dlq_reason=bounds.clean_error(reason or job.last_error or "dead in the system it comes from"),
        dlq_code=code or (Reason.MAX_ATTEMPTS if exhausted else Reason.UNRECOVERABLE),
        dlq_failed_at=failed_at,
        failed_at=job.failed_at or failed_at,
        completed_at=failed_at,
    )


def with_key(job: Job, key: str | None, unique: tuple[str, ...]) -> Job:
    if key is None or key == "":
        return job
    bounds.check_name(key, "idempotency_key", bounds.MAX_KEY)
    scope = dedupe_scope(job.tenant_id, job.queue, job.type, unique)
    return job._replace(idempotency_key=key, dedupe_scope=scope)


def fact(
    job: Job,
    outcome: Outcome,
    status: Status,
    at: datetime,
    *,
    number: int | None,
    error: str = "",
    code: str | None = None,
    worker: str | None = None,
    claimed_at: datetime | None = None,
    started_at: datetime | None = None,
) -> HistoryRow:
    """One row of history; `number` of None when it tells of no attempt."""
    attempt = None
    if number is not None:
        begun = started_at or claimed_at or at
        taken = min(claimed_at or begun, begun)
        attempt = Attempt(
            job.id, number, max(1, min(number, job.deliveries or 1)), outcome, bounds.clean_error(error), code,
            (worker or "")[: bounds.MAX_NAME], token_of(job.id, number), min(job.due_at, taken), taken, begun, at,
        )  # fmt: skip
    whole = job if status not in (Status.READY, Status.INFLIGHT) else None
    return HistoryRow("", job.id, job.type, job.queue, job.tenant_id, job.priority, outcome, status, at, attempt, whole)


def last_fact(job: Job, at: datetime, **attempt: Any) -> HistoryRow:
    """The fact that a job of this final or dead state rests on."""
    match job.status:
        case Status.DONE:
            return fact(job, Outcome.SUCCEEDED, Status.DONE, at, number=job.attempts + 1, **attempt)
        case Status.DLQ:
            number = max(1, job.attempts)
            text = job.dlq_reason or ""
            return fact(job, Outcome.DEAD, Status.DLQ, at, number=number, error=text, code=job.dlq_code, **attempt)
        case Status.EXPIRED:
            return fact(job, Outcome.EXPIRED, Status.EXPIRED, at, number=None)
        case _:
            return fact(job, Outcome.CANCELLED, Status.CANCELLED, at, number=None)


def nanoseconds(value: int) -> timedelta | None:
    return timedelta(microseconds=value // 1_000) if value else None
