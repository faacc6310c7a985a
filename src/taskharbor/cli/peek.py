"""A look into the tables where the driver contract has no question for it. Reads only, and only ours.

This is the one place outside a driver that knows of its sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.clock import from_micros, to_micros

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

Row = tuple[Any, ...]

# A job that a limit holds back, or that has a tag of a fair queue, has its due time in due_was.
_OLDEST: Final = """
SELECT queue, min(COALESCE(due_was, due_at)) FROM th_jobs
WHERE status = 'ready' AND COALESCE(due_was, due_at) <= :now GROUP BY queue
"""
_DUE: Final = """
SELECT queue, type, count(*) FROM th_jobs
WHERE status = 'ready' AND COALESCE(due_was, due_at) <= :now GROUP BY queue, type
"""
_OVERDUE: Final = "SELECT count(*) FROM th_jobs WHERE status = 'inflight' AND lease_expires_at < :limit"
_OLDEST_DEAD: Final = "SELECT min(dlq_failed_at) FROM th_jobs WHERE status = 'dlq'"
_WITH_TABLES: Final = frozenset({"sqlite", "postgres", "mysql"})


def kind_of(driver: Driver) -> str:
    """`memory`, `jsonfile`, `sqlite`, `postgres`, `mysql`, or "" for somebody else's driver."""
    module = type(driver).__module__.split(".")
    return module[2] if module[:2] == ["taskharbor", "drivers"] else ""


def has_tables(driver: Driver) -> bool:
    return kind_of(driver) in _WITH_TABLES


def select(driver: Any, sql: str, **values: Any) -> Sequence[Row]:
    """The rows of a query that is written like those in our .sql files."""
    from taskharbor.drivers.sqlfiles import _prefixed, _styled

    kind = kind_of(driver)
    if kind == "sqlite":
        params = {name: to_micros(value) if isinstance(value, datetime) else value for name, value in values.items()}
        with driver._reading() as connection:
            rows: Sequence[Row] = connection.execute(_prefixed(sql, driver._prefix), params).fetchall()
        return rows
    if kind == "postgres":
        query = _styled(_prefixed(sql, driver._prefix), "pyformat").encode()
        found: Sequence[Row] = driver._session.transact(lambda c: c.execute(query, values).fetchall())
        return found
    text = _styled(_prefixed(sql, driver._store._prefix), "pyformat")

    def read(session: Any) -> Sequence[Row]:
        session._execute(session._cursor.mogrify(text, values))
        answer: Sequence[Row] = session._cursor.fetchall()
        return answer

    answer: Sequence[Row] = driver._store.read(read)
    return answer


def _moment(value: Any) -> datetime:
    """A time as a table has it: microseconds in SQLite, datetimes elsewhere."""
    if isinstance(value, int):
        return from_micros(value)
    moment: datetime = value
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def oldest_due(driver: Any, now: datetime) -> dict[str, datetime]:
    """For each queue, since when its oldest runnable job has been waiting."""
    if has_tables(driver):
        return {queue: _moment(at) for queue, at in select(driver, _OLDEST, now=now)}
    oldest: dict[str, datetime] = {}
    if kind_of(driver):
        with driver._reading() as state:
            for job in state.jobs.values():
                if job.status.value == "ready" and job.due_at <= now:
                    oldest[job.queue] = min(job.due_at, oldest.get(job.queue, job.due_at))
    return oldest


def due(driver: Any, now: datetime) -> dict[tuple[str, str], int]:
    """How many jobs are due, by queue and type."""
    if has_tables(driver):
        return {(queue, type): int(count) for queue, type, count in select(driver, _DUE, now=now)}
    if not kind_of(driver):
        return {}
    with driver._reading() as state:
        jobs = [job for job in state.jobs.values() if job.status.value == "ready" and job.due_at <= now]
    return dict(Counter((job.queue, job.type) for job in jobs))


def overdue(driver: Any, now: datetime, by: timedelta) -> int:
    """Jobs whose lease ended longer ago than that, and that nobody has taken back."""
    if has_tables(driver):
        return int(select(driver, _OVERDUE, limit=now - by)[0][0])
    if not kind_of(driver):
        return 0
    with driver._reading() as state:
        ends = [job.lease_expires_at for job in state.jobs.values() if job.status.value == "inflight"]
    return sum(end is not None and end < now - by for end in ends)


def oldest_dead(driver: Any) -> datetime | None:
    """Since when the oldest job of the DLQ has been there."""
    if has_tables(driver):
        at = select(driver, _OLDEST_DEAD)[0][0]
        return None if at is None else _moment(at)
    if not kind_of(driver):
        return None
    with driver._reading() as state:
        times = [job.dlq_failed_at for job in state.jobs.values() if job.status.value == "dlq"]
    return min((time for time in times if time is not None), default=None)
