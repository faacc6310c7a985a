"""Jobs in the binary format of COPY, which PostgreSQL reads quicker than any other: nothing to parse, payloads as
they are. The manual describes it under COPY.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from struct import Struct
from typing import Final

from taskharbor.core.clock import to_micros
from taskharbor.core.intake import Admitted, Shape
from taskharbor.core.model import NewJob

COLUMNS: Final = (
    "id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts, "
    "created_at, updated_at, idempotency_key, dedupe_scope"
)
HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"

_ROW: Final = Struct(">h").pack(COLUMNS.count(",") + 1)
_NULL: Final = b"\xff\xff\xff\xff"
_LENGTH: Final = Struct(">i").pack
_INT4: Final = Struct(">ii").pack
_INT8: Final = Struct(">iq").pack
EPOCH_2000: Final = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""


def job_rows(jobs: Sequence[Admitted]) -> bytes:
    """The rows of admitted jobs."""
    parts: list[bytes] = []
    for job in jobs:
        parts += (
            _ROW,
            _text(job.id),
            _text(job.type),
            _text(job.queue),
            _text(job.tenant_id),
            _LENGTH(len(job.payload)),
            job.payload,
            _text(job.meta),
            _INT4(4, job.priority),
            _moment(job.run_at),
            _moment(job.due_at),
            _moment(job.expires_at),
            _INT8(8, job.timeout_nanos),
            _INT4(4, job.max_attempts),
            _moment(job.created_at),
            _moment(job.created_at),
            _text(job.idempotency_key),
            _text(job.dedupe_scope),
        )
    return b"".join(parts)


def plain_rows(jobs: Sequence[NewJob], shapes: Sequence[Shape], ids: Sequence[str], now: datetime) -> bytes:
    """The rows of jobs that have nothing but a shape and a payload: what stands before and behind the payload is made
    once for all jobs of a shape."""
    moment = _moment(now)
    frames: dict[Shape, tuple[bytes, bytes]] = {}
    start = _ROW + _LENGTH(len(ids[0]))
    parts: list[bytes] = []
    for job, shape, job_id in zip(jobs, shapes, ids, strict=True):
        frame = frames.get(shape)
        if frame is None:
            head = _text(shape.type) + _text(shape.queue) + _text(shape.tenant_id)
            tail = (
                (_NULL + _INT4(4, shape.priority) + _NULL + moment + _NULL)
                + (_INT8(8, shape.timeout_nanos) + _INT4(4, shape.max_attempts))
                + (moment + moment + _NULL + _NULL)
            )
            frame = frames[shape] = (head, tail)
        parts += (start, job_id.encode(), frame[0], _LENGTH(len(job.payload)), job.payload, frame[1])
    return b"".join(parts)


def _text(text: str | None) -> bytes:
    if text is None:
        return _NULL
    data = text.encode()
    return _LENGTH(len(data)) + data


def _moment(moment: datetime | None) -> bytes:
    return _NULL if moment is None else _INT8(8, to_micros(moment) - EPOCH_2000)
