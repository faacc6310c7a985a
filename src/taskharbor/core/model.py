"""The values that cross the driver boundary. All of them are immutable.

Those that come by the ten thousand a second are named tuples, which cost a fifth of a frozen dataclass to make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from taskharbor.core.errors import InvalidInput

DEFAULT_QUEUE: Final = "default"
DEFAULT_TENANT: Final = "default"
DEFAULT_LEASE: Final = timedelta(seconds=30)
HELD: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""The `due_at` of a ready job that waits for something else than time: no claim ever walks over it."""


class Status(StrEnum):
    """Where a job stands. *Scheduled* is `READY` with a `run_at` still to come."""

    READY = "ready"
    INFLIGHT = "inflight"
    DONE = "done"
    DLQ = "dlq"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a job is in the DLQ, as a code a program can group by; `Job.dlq_reason` has the text."""

    MAX_ATTEMPTS = "max_attempts"
    UNRECOVERABLE = "unrecoverable"
    NO_HANDLER = "no_handler"
    BAD_PAYLOAD = "bad_payload"
    CRASH_LOOP = "crash_loop"


class Outcome(StrEnum):
    """How one attempt ended, or how a job ended that was not running."""

    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    DEAD = "dead"
    RELEASED = "released"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    LAPSED = "lapsed"
    EXPIRED = "expired"


class Settle(StrEnum):
    """The ways to end a lease."""

    ACK = "ack"
    RETRY = "retry"
    FAIL = "fail"
    RELEASE = "release"
    SNOOZE = "snooze"
    CANCEL = "cancel"


class _NewJob(NamedTuple):
    type: str
    payload: bytes
    queue: str
    tenant_id: str
    id: str | None
    meta: Mapping[str, str] | None
    priority: int
    run_at: datetime | None
    expires_at: datetime | None
    timeout: timedelta | float | None
    max_attempts: int | None
    idempotency_key: str | None
    unique: tuple[str, ...]
    key_ttl: timedelta | float | None
    on_duplicate: str
    while_in: tuple[str, ...] | None
    payload_for: Callable[[str], bytes] | None


class NewJob(_NewJob):
    """A job as the caller describes it. `intake.admit` checks it and fills in the rest.

    `unique` names the fields that, with the tenant, make up the scope of `idempotency_key`. With `while_in`, a key is
    taken only while its holder stands in one of these states, and payloads need not be equal; with `on_duplicate` of
    "replace", a holder that has not begun becomes what the new job is. If the payload depends on the id of its job,
    as an encrypted one does, `payload_for` makes it for the id of that holder; `payload` is for the job's own `id`.
    `timeout` and `key_ttl` are a timedelta or seconds. `key` and `max_retries` are other names for
    `idempotency_key` and `max_attempts`; `max_attempts` of None or 0 is the default of the driver's limits.
    """

    __slots__ = ()

    def __new__(
        cls,
        type: str,
        payload: bytes = b"",
        queue: str = DEFAULT_QUEUE,
        tenant_id: str = DEFAULT_TENANT,
        id: str | None = None,
        meta: Mapping[str, str] | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
        expires_at: datetime | None = None,
        timeout: timedelta | float | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        unique: tuple[str, ...] = ("tenant", "type"),
        key_ttl: timedelta | float | None = None,
        on_duplicate: str = "return",
        while_in: tuple[str, ...] | None = None,
        key: str | None = None,
        max_retries: int | None = None,
        payload_for: Callable[[str], bytes] | None = None,
    ) -> Self:
        if key is not None:
            if idempotency_key not in (None, key):
                raise InvalidInput("key and idempotency_key are one thing under two names: give one of them")
            idempotency_key = key
        if max_retries is not None:
            if max_attempts not in (None, max_retries):
                raise InvalidInput("max_retries and max_attempts are one thing under two names: give one of them")
            max_attempts = max_retries
        return tuple.__new__(
            cls,
            (
                type, payload, queue, tenant_id, id, meta, priority, run_at, expires_at, timeout, max_attempts,
                idempotency_key, unique, key_ttl, on_duplicate, while_in, payload_for,
            ),
        )  # fmt: skip


class Enqueued(NamedTuple):
    """What enqueue did: the id, and whether the job was already there under the same key."""

    id: str
    existed: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a handler says it has come."""

    done: float
    total: float | None = None
    note: str = ""


class Job(NamedTuple):
    """A job as the store keeps it."""

    id: str
    type: str
    queue: str
    tenant_id: str
    payload: bytes
    meta: Mapping[str, str]
    priority: int
    run_at: datetime | None
    due_at: datetime
    expires_at: datetime | None
    timeout: timedelta | None
    max_attempts: int
    attempts: int
    deliveries: int
    forgiven: int
    """Deliveries that burned nothing (released, snoozed, before a redrive): not held against the job."""
    last_error: str
    failed_at: datetime | None
    status: Status
    lease_token: str | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    dlq_reason: str | None
    dlq_code: str | None
    dlq_failed_at: datetime | None
    idempotency_key: str | None
    dedupe_scope: str | None
    result: bytes | None
    progress: Progress | None
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None

    def phase(self, now: datetime) -> str:
        """The state as people speak of it: splits ready in three, and inflight in two. A step that waits for others has
        no time yet, and is not called scheduled."""
        if self.status is Status.READY:
            if self.due_at >= HELD:
                return "waiting"
            return "scheduled" if self.due_at > now else "ready"
        if self.status is Status.INFLIGHT:
            return "running" if self.started_at is not None else "claimed"
        return str(self.status)


class Lease(NamedTuple):
    """Temporary ownership of a job. Every settle and extend must show the token."""

    token: str
    expires_at: datetime
    owner: str = ""
    cancel_requested: bool = False


class LeasedJob(NamedTuple):
    job: Job
    lease: Lease


@dataclass(frozen=True, slots=True)
class RetryUpdate:
    """What core decided about a failed attempt; the driver only stores it."""

    run_at: datetime | None = None
    attempts: int = 0
    last_error: str = ""
    failed_at: datetime | None = None


class Settlement(NamedTuple):
    """One way to end one lease. Build it with the method named after the operation."""

    kind: Settle
    id: str
    token: str
    result: bytes | None = None
    update: RetryUpdate | None = None
    reason: str = ""
    code: str = ""
    run_at: datetime | None = None
    started_at: datetime | None = None

    @classmethod
    def ack(cls, id: str, token: str, *, result: bytes | None = None, started_at: datetime | None = None) -> Settlement:
        """The handler succeeded."""
        return tuple.__new__(cls, (Settle.ACK, id, token, result, None, "", "", None, started_at))  # the quick way

    @classmethod
    def retry(cls, id: str, token: str, *, update: RetryUpdate, started_at: datetime | None = None) -> Settlement:
        """The handler failed and will run again at `update.run_at`."""
        return cls(Settle.RETRY, id, token, update=update, started_at=started_at)

    @classmethod
    def fail(
        cls,
        id: str,
        token: str,
        *,
        reason: str,
        code: str = Reason.UNRECOVERABLE,
        started_at: datetime | None = None,
    ) -> Settlement:
        """The job goes to the DLQ."""
        return cls(Settle.FAIL, id, token, reason=reason, code=code, started_at=started_at)

    @classmethod
    def release(cls, id: str, token: str, *, started_at: datetime | None = None) -> Settlement:
        """The job goes back to where it was; no attempt is burned."""
        return cls(Settle.RELEASE, id, token, started_at=started_at)

    @classmethod
    def snooze(cls, id: str, token: str, *, run_at: datetime, started_at: datetime | None = None) -> Settlement:
        """The job goes back to run at `run_at`; no attempt is burned."""
        return cls(Settle.SNOOZE, id, token, run_at=run_at, started_at=started_at)

    @classmethod
    def cancel(cls, id: str, token: str, *, reason: str = "", started_at: datetime | None = None) -> Settlement:
        """The handler gave the job up for good, without calling it a failure."""
        return cls(Settle.CANCEL, id, token, reason=reason, started_at=started_at)


@dataclass(frozen=True, slots=True)
class Extension:
    """Keep one lease alive, and tell the store what has become known since."""

    id: str
    token: str
    lease_for: timedelta | float | None = None
    started_at: datetime | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of the handler (or one delivery that nobody finished), as history keeps it."""

    job_id: str
    number: int
    delivery: int
    outcome: Outcome
    error: str
    code: str | None
    worker: str
    lease_token: str
    due_at: datetime
    claimed_at: datetime
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One fact of the feed: an attempt ended, a job reached a terminal state, or both at once.

    `position` orders the feed and is a cursor: a reader that kept it goes on right behind this row.
    `job` is the whole record when `status` is terminal, else None.
    """

    position: str
    job_id: str
    type: str
    queue: str
    tenant_id: str
    priority: int
    outcome: Outcome
    status: Status
    at: datetime
    attempt: Attempt | None
    job: Job | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What `list`, `count`, `redrive` and `purge` select by. Everything given must match; nothing given matches all.

    One id may be given as it is, and the status as its text: `JobFilter(ids="a", status="dlq")`.
    """

    ids: Sequence[str] | None = None
    status: Status | str | None = None
    queue: str | None = None
    type: str | None = None
    tenant_id: str | None = None
    error: str | None = None
    """Text that the last error or the DLQ reason contains."""
    code: str | None = None
    text: str | None = None
    """Text that the id, the type, the last error, the DLQ reason or the payload (as UTF-8) contains. Nothing can be
    found in a payload that is encrypted."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What operators have set for a queue. A queue nobody has touched has the defaults."""

    name: str
    paused: bool = False
    fair: bool = False
    """Whether tenants share the queue, each by its weight; a tenant without one has the weight 1."""
    weights: Mapping[str, float] = field(default_factory=dict)


class Overlap(StrEnum):
    """What a schedule does when the job of its last tick has not ended yet."""

    SKIP = "skip"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job that is enqueued again and again, as the store keeps it; the store never reads `spec`.

    `next_run_at` of None means that no tick is to come. `paused` belongs to operators, `last_run_at` and
    `last_job_id` to whoever enqueued the last tick: putting the definition again leaves them as they are.
    `overlap` of "skip" means no new job while the one of the last tick is still ready or inflight.
    """

    name: str
    spec: str
    type: str
    payload: bytes = b""
    timezone: str = "UTC"
    queue: str = DEFAULT_QUEUE
    tenant_id: str = DEFAULT_TENANT
    priority: int = 0
    max_attempts: int | None = None
    timeout: timedelta | float | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    overlap: Overlap | str = Overlap.SKIP
    paused: bool = False
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_job_id: str | None = None
    updated_at: datetime | None = None


JsonValue = Any
"""What `json.loads` gives: dict, list, str, int, float, bool or None, nested."""
