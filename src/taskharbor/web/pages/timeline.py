"""The life of a job drawn to scale: for each attempt how long it waited, was fetched, and ran. Numbers in, shapes out;
the template makes SVG of them with attributes alone, for no page here has a style of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from taskharbor.core.model import HELD, Attempt, Job, Status

WIDE: Final = 1000.0
"""The drawing's own units; it is stretched to the width that there is."""
LEAST: Final = 3.0
"""What happened is seen, however short it was."""
MOST_ROWS: Final = 100
_TICKS: Final = 5
_STEPS_S: Final = (
    *(scale * step for scale in (0.001, 0.01, 0.1, 1) for step in (1, 2, 5)),
    *(10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)),
)


class Piece(NamedTuple):
    kind: str
    """`pause` before it was due, `wait` for a worker, `fetched` and not begun, or `run`."""
    x: float
    wide: float
    length_s: float


class Row(NamedTuple):
    """One attempt, or what goes on now."""

    number: int | None
    delivery: int
    outcome: str
    worker: str
    error: str
    code: str | None
    pieces: Sequence[Piece]
    waited_s: float | None
    ran_s: float | None
    ended_at: datetime | None


class Mark(NamedTuple):
    """A place on the scale, and how long after the beginning it is."""

    x: float
    after_s: float


class Timeline(NamedTuple):
    rows: Sequence[Row]
    left_out: int
    """Attempts before those shown."""
    marks: Sequence[Mark]
    begins: datetime
    ends: datetime


def timeline(job: Job, attempts: Sequence[Attempt], now: datetime) -> Timeline:
    begins = job.created_at
    ends = job.completed_at or now
    if attempts:
        begins = min(begins, *(attempt.claimed_at for attempt in attempts))
        ends = max(ends, *(attempt.finished_at for attempt in attempts))
    ends = max(ends, begins + timedelta(milliseconds=1))
    draw = _Scale(begins, ends)
    rows = []
    before = begins
    for attempt in attempts:
        rows.append(_ended(draw, attempt, before))
        before = attempt.finished_at
    going_on = _going_on(draw, job, before, now)
    if going_on is not None:
        rows.append(going_on)
    left_out = max(0, len(rows) - MOST_ROWS)
    return Timeline(rows[left_out:], left_out, draw.marks(), begins, ends)


class _Scale:
    def __init__(self, begins: datetime, ends: datetime) -> None:
        self.begins, self.ends = begins, ends
        self._reach = (ends - begins).total_seconds()

    def piece(self, kind: str, start: datetime, end: datetime) -> Piece | None:
        start, end = max(start, self.begins), min(max(end, start), self.ends)
        length = (end - start).total_seconds()
        if length < 0 or (length == 0 and kind != "run"):
            return None
        wide = WIDE * length / self._reach
        x = WIDE * (start - self.begins).total_seconds() / self._reach
        if kind == "run" and wide < LEAST:
            wide = LEAST
        return Piece(kind, round(min(x, WIDE - LEAST), 1), round(min(wide, WIDE - min(x, WIDE - LEAST)), 1), length)

    def marks(self) -> Sequence[Mark]:
        step = next((step for step in _STEPS_S if self._reach / step <= _TICKS), _STEPS_S[-1])
        found: list[Mark] = []
        at = 0.0
        while at <= self._reach * 0.97 and len(found) <= _TICKS:
            found.append(Mark(round(WIDE * at / self._reach, 1), at))
            at += step
        return found


def _ended(draw: _Scale, attempt: Attempt, before: datetime) -> Row:
    claimed, started = attempt.claimed_at, attempt.started_at
    started = min(max(started, claimed), attempt.finished_at)
    # Tags of fair queues and backfills lie long before; nothing waits for longer than it was there to wait.
    due = min(max(attempt.due_at, before), claimed)
    pieces = _known(
        draw.piece("pause", before, due),
        draw.piece("wait", due, claimed),
        draw.piece("fetched", claimed, started),
        draw.piece("run", started, attempt.finished_at),
    )
    return Row(
        attempt.number,
        attempt.delivery,
        attempt.outcome.value,
        attempt.worker,
        attempt.error,
        attempt.code,
        pieces,
        (started - due).total_seconds(),
        (attempt.finished_at - started).total_seconds(),
        attempt.finished_at,
    )


def _going_on(draw: _Scale, job: Job, before: datetime, now: datetime) -> Row | None:
    if job.status is Status.INFLIGHT and job.claimed_at is not None:
        due = min(max(job.due_at, before), job.claimed_at)
        started = None if job.started_at is None else max(job.started_at, job.claimed_at)
        pieces = _known(
            draw.piece("pause", before, due),
            draw.piece("wait", due, job.claimed_at),
            draw.piece("fetched", job.claimed_at, started or now),
            None if started is None else draw.piece("run", started, now),
        )
        return Row(
            None,
            job.deliveries,
            "running" if started else "claimed",
            job.lease_owner or "",
            "",
            None,
            pieces,
            ((started or job.claimed_at) - due).total_seconds(),
            None if started is None else max(0.0, (now - started).total_seconds()),
            None,
        )
    if job.status is Status.READY and job.due_at <= now:
        due = max(job.due_at, before)
        pieces = _known(draw.piece("pause", before, due), draw.piece("wait", due, now))
        waited = max(0.0, (now - due).total_seconds())
        return Row(None, job.deliveries, "ready", "", "", None, pieces, waited, None, None)
    if job.status is Status.READY and job.due_at < HELD:
        return Row(
            None, job.deliveries, "scheduled", "", "", None, _known(draw.piece("pause", before, now)), None, None, None
        )
    return None


def _known(*pieces: Piece | None) -> list[Piece]:
    return [piece for piece in pieces if piece is not None]
