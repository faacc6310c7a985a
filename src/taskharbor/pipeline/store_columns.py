"""The columns of every table as SQL, for all three dialects. A dialect says how it writes times, flags and hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from taskharbor.pipeline import schemas
from taskharbor.pipeline.store_sql import Key, View


class Dialect(NamedTuple):
    time: Callable[[str], str]
    """A column that holds a moment, as the dialect hands it over best."""
    hashed: str
    """The SHA-256 of the lease token's text in hexadecimal digits."""
    real: Callable[[str], str]
    history_key: Key


JOB_KEY: Final = Key(("id",), ("id",), is_text=True)
_FILTERS: Final = {"queue": "queue", "type": "type", "tenant": "tenant_id", "status": "status"}


def views(dialect: Dialect, prefix: str) -> dict[str, View]:
    return {
        "history": View(f"{prefix}history", dialect.history_key, _columns("history", dialect, _history(dialect))),
        "attempts": View(
            f"{prefix}history",
            dialect.history_key,
            _columns("attempts", dialect, _attempts(dialect)),
            only="attempt_no IS NOT NULL",
            filters={**_FILTERS, "status": "outcome"},
            time="at",
        ),
        "jobs": View(
            f"{prefix}all_jobs",
            JOB_KEY,
            _columns("jobs", dialect, _jobs(dialect)),
            filters=_FILTERS,
            time="created_at",
        ),
        "dlq": View(
            f"{prefix}jobs",
            JOB_KEY,
            _columns("dlq", dialect, _dlq(dialect)),
            only="status = 'dlq'",
            filters=_FILTERS,
            time="dlq_failed_at",
        ),
        "workers": View(f"{prefix}workers", None, _columns("workers", dialect, {}), time="last_heartbeat"),
    }


def _columns(table: str, dialect: Dialect, special: Mapping[str, str | None]) -> dict[str, str]:
    """SQL by column. A column is read as it is named, times in the dialect's way, unless it is in `special`; None there
    means that it is made from the key."""
    found: dict[str, str] = {}
    for field in schemas.SOURCE_TABLES[table].fields:
        sql = special.get(field.name, field.name)
        if sql is not None:
            is_time = field.dataType.typeName() == "timestamp"
            found[field.name] = dialect.time(sql) if is_time else sql
    return found


def _text(name: str) -> str:
    """No text and an empty one are the same thing; stores differ in which they keep."""
    return f"NULLIF({name}, '')"


def _seconds(dialect: Dialect) -> str:
    return f"{dialect.real('NULLIF(timeout_nanos, 0)')} / 1e9"


def _counted(name: str) -> str:
    """Of a terminal row; the dialects differ in whether they keep a zero."""
    return f"CASE WHEN status <> 'ready' THEN COALESCE({name}, 0) END"


def _history(dialect: Dialect) -> dict[str, str | None]:
    return {
        "store_id": None,
        "position": None,
        "seq_no": "seq",
        "error": _text("error"),
        "lease_token": dialect.hashed,
        "worker": _text("lease_owner"),
        "timeout_s": _seconds(dialect),
        "attempts": _counted("attempts"),
        "forgiven": _counted("forgiven"),
        "last_error": _text("last_error"),
    }


def _attempts(dialect: Dialect) -> dict[str, str | None]:
    return {
        "seq_no": "seq",
        "success": "outcome = 'succeeded'",
        "error": _text("error"),
        "worker": _text("lease_owner"),
        "finished_at": "at",
    }


def _jobs(dialect: Dialect) -> dict[str, str | None]:
    return {
        "timeout_s": _seconds(dialect),
        "last_error": _text("last_error"),
        "lease_owner": _text("lease_owner"),
        "dlq_reason": _text("dlq_reason"),
    }


def _dlq(dialect: Dialect) -> dict[str, str | None]:
    return {
        "code": "dlq_code",
        "reason": _text("dlq_reason"),
        "last_error": _text("last_error"),
        "failed_at": "dlq_failed_at",
    }
