"""What the state machine draws: few values of each kind, so that jobs meet each other often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hypothesis import strategies as st

from taskharbor.core.limiting import Limit
from taskharbor.core.model import JobFilter, NewJob, Progress, RetryUpdate, Schedule, Settlement, Status

QUEUES: Final = ("default", "mail", "Mail")
TYPES: Final = ("a", "b")
OWNERS: Final = ("w1", "w2", "")

NOBODY: Final = 20
picks = st.integers(0, NOBODY)
"""Chooses from a list whose length is not known yet, counted from its end: 0 is the newest, NOBODY is none."""
few = st.sampled_from([3, 1, 2, 4])
queues = st.sampled_from(QUEUES)
owners = st.sampled_from(OWNERS)
queue_sets = st.just(list(QUEUES)) | st.lists(queues, min_size=1, max_size=3, unique=True)
type_sets = st.none() | st.lists(st.sampled_from(TYPES), min_size=1, max_size=2, unique=True)
tenants = st.sampled_from([None, None, None, "Default", "nobody"])
lease_seconds = st.sampled_from([None, 10, 30])
errors = st.sampled_from(["", "boom", "Boom 100%", "snow \N{SNOWMAN}"])


def ahead(*seconds: float | None) -> st.SearchStrategy[timedelta | None]:
    """Spans from now, None for no time at all."""
    return st.sampled_from([None if span is None else timedelta(seconds=span) for span in seconds])


@dataclass(frozen=True)
class JobDraw:
    """A job relative to the time of the call. `again` asks for the id of a job that exists."""

    rank: int
    again: bool
    type: str
    queue: str
    tenant: str
    priority: int
    run_in: timedelta | None
    expires_in: timedelta | None
    max_attempts: int | None
    key: str | None
    payload: bytes
    unique: tuple[str, ...]
    key_ttl: float | None
    on_duplicate: str
    while_in: tuple[str, ...] | None
    decorated: bool
    limit_key: str | None

    def job(self, id: str, now: datetime) -> NewJob:
        meta = {"trace": "é"} if self.decorated else {}
        if self.limit_key is not None:
            meta["limit_key"] = self.limit_key
        return NewJob(
            type=self.type,
            payload=self.payload,
            queue=self.queue,
            tenant_id=self.tenant,
            id=id,
            meta=meta or None,
            priority=self.priority,
            run_at=None if self.run_in is None else now + self.run_in,
            expires_at=None if self.expires_in is None else now + self.expires_in,
            timeout=1.5 if self.decorated else None,
            max_attempts=self.max_attempts,
            idempotency_key=self.key,
            unique=self.unique,
            key_ttl=self.key_ttl if self.key is not None else None,
            on_duplicate=self.on_duplicate if self.key is not None else "return",
            while_in=self.while_in if self.key is not None else None,
        )


job_draws = st.builds(
    JobDraw,
    rank=st.integers(0, 9),
    again=st.sampled_from([False] * 30 + [True]),
    type=st.sampled_from(TYPES),
    queue=queues,
    tenant=st.sampled_from(["default", "default", "Default"]),
    priority=st.sampled_from([0, 0, 5, -1]),
    run_in=ahead(*[None] * 8, 0, 20, 3600, -60),
    expires_in=ahead(*[None] * 20, *[5, 20, 60, 3600] * 2, 0),
    max_attempts=st.sampled_from([None, 1, 2]),
    key=st.sampled_from([*[None] * 5, "k", "k", "K", "k "]),
    payload=st.sampled_from([b"one", b"one", b"one", b"\x00\xff"]),
    unique=st.sampled_from([*[("tenant", "type")] * 4, ("tenant",), ("tenant", "queue")]),
    key_ttl=st.sampled_from([None, None, 20]),
    on_duplicate=st.sampled_from(["return"] * 5 + ["raise"] + ["replace"] * 2),
    while_in=st.sampled_from([None, None, None, ("ready",), ("ready", "inflight"), ("ready", "done", "dlq")]),
    decorated=st.booleans(),
    limit_key=st.sampled_from([None, None, "x", "X"]),
)

limits = st.builds(
    lambda place, size: Limit(*place, *size),
    st.sampled_from(
        [
            *[("queue", "default", ""), ("queue", "default", "key"), ("queue", "mail", "tenant")],
            *[("type", "a", ""), ("type", "b", "key"), ("tenant", "Default", ""), ("type", "a", "tenant")],
        ]
    ),
    st.sampled_from([(1, None, None), (2, None, None), (None, 0.1, 2), (None, 1.0, 1), (1, 0.5, None)]),
)


@dataclass(frozen=True)
class SettleDraw:
    """A settlement of some lease that was once given out, perhaps long over, perhaps with something wrong."""

    pick: int
    kind: str
    wrong: str
    started_ago: timedelta | None
    run_in: timedelta
    error: str
    attempts: int
    result: bytes | None

    def settlement(self, id: str, token: str, now: datetime) -> Settlement:
        started_at = None if self.started_ago is None else now - self.started_ago
        match self.kind:
            case "ack":
                return Settlement.ack(id, token, result=self.result, started_at=started_at)
            case "retry":
                update = RetryUpdate(now + self.run_in if self.run_in else None, self.attempts, self.error, now)
                return Settlement.retry(id, token, update=update, started_at=started_at)
            case "fail":
                return Settlement.fail(id, token, reason=self.error, code="bad_payload", started_at=started_at)
            case "release":
                return Settlement.release(id, token, started_at=started_at)
            case "snooze":
                return Settlement.snooze(id, token, run_at=now + self.run_in, started_at=started_at)
        return Settlement.cancel(id, token, reason=self.error, started_at=started_at)


def _settles(wrong: st.SearchStrategy[str]) -> st.SearchStrategy[SettleDraw]:
    return st.builds(
        SettleDraw,
        pick=st.integers(0, 8),
        kind=st.sampled_from(["ack", "retry", "fail", "release", "snooze", "cancel", "fail"]),
        wrong=wrong,
        started_ago=ahead(None, None, 1),
        run_in=st.sampled_from([timedelta(0), timedelta(0), timedelta(seconds=5), timedelta(minutes=10)]),
        error=errors,
        attempts=st.integers(0, 3),
        result=st.sampled_from([None, b"", b"\x00done"]),
    )


settle_draws = _settles(st.sampled_from([""] * 10 + ["token", "id"]))
good_settle_draws = _settles(st.just(""))

progresses = st.none() | st.builds(
    Progress, done=st.sampled_from([0, 1.5]), total=st.sampled_from([None, 3]), note=st.sampled_from(["", "half"])
)

schedule_names = st.sampled_from(["s", "S"])
schedules = st.builds(
    Schedule,
    name=schedule_names,
    spec=st.sampled_from(["@daily", "@daily", "@Daily"]),
    type=st.sampled_from(TYPES),
    payload=st.sampled_from([b"", b"\x00\xff"]),
    timezone=st.sampled_from(["UTC", "UTC", "Europe/Paris"]),
    queue=queues,
    priority=st.sampled_from([0, 5]),
    max_attempts=st.sampled_from([None, 3]),
    timeout=st.sampled_from([None, 1.5]),
    meta=st.sampled_from([{}, {"trace": "é"}]),
    overlap=st.sampled_from(["skip", "allow"]),
    paused=st.booleans(),
)

filters = st.builds(
    JobFilter,
    status=st.none() | st.sampled_from(Status),
    queue=st.none() | queues,
    type=st.none() | st.sampled_from(TYPES),
    tenant_id=st.sampled_from([None, None, "Default"]),
    error=st.sampled_from([None, None, "oo", "OO", "%", "_"]),
    code=st.sampled_from([None, None, "bad_payload"]),
    # Nothing that may stand in an id by chance: those of copies differ between the drivers.
    text=st.sampled_from([None, None, None, "oo", "snow", "one"]),
)

dlq_filters = st.builds(
    JobFilter,
    status=st.sampled_from([*[None] * 6, *[Status.DLQ] * 6, Status.READY]),
    queue=st.sampled_from([None, None, *QUEUES]),
    error=st.sampled_from([None, None, "oo", "OO", "%"]),
    code=st.sampled_from([None, None, "bad_payload", "crash_loop"]),
)
