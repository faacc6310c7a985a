"""Log lines with the job, queue, tenant and attempt they are about, as text for people or JSON for programs.

Never a payload, a result or the text of an error: those belong to the tenant, and the store has them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TextIO

from taskharbor.core.model import Job

FIELDS: Final = ("job", "type", "queue", "tenant", "attempt", "worker")
OURS: Final = "taskharbor"
"""The logger above all of ours."""


class Runs(Protocol):
    """A job, or a batch of them, whose handler runs."""

    def log_fields(self) -> Mapping[str, Any]:
        """What a line of the handler carries; nothing when the handler has ended."""
        ...


running: Final[ContextVar[Runs]] = ContextVar("taskharbor.running")
"""What the handler that logs just now is run for. Its own tasks and `asyncio.to_thread` take it along. It is set for
every job, so no more than a reference: the fields are put together when there is a line."""


def job_fields(job: Job) -> dict[str, Any]:
    """The `extra` of a line about this job."""
    return {
        "job": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant": job.tenant_id,
        "attempt": job.attempts + 1,
    }


def batch_fields(jobs: Sequence[Job]) -> dict[str, Any]:
    """The same for a line about several jobs of one type: what holds for all of them."""
    fields = job_fields(jobs[0])
    if len(jobs) > 1:
        del fields["job"], fields["attempt"]
        if any(job.tenant_id != jobs[0].tenant_id for job in jobs):
            del fields["tenant"]
    return fields


class WithJob(logging.Filter):
    """Adds the job to every line that a handler logs, whatever its logger: `job`, `type`, `queue`, `tenant` and
    `attempt`; for a batch what its jobs have in common. It is for handlers of `logging`, and holds nothing back."""

    def filter(self, record: logging.LogRecord) -> bool:
        runs = running.get(None)
        if runs is not None and not hasattr(record, "job"):
            for name, value in runs.log_fields().items():
                if not hasattr(record, name):  # the line says so itself
                    setattr(record, name, value)
        return True


class TextFormatter(logging.Formatter):
    """`12:00:00.123 WARNING send failed … job=… queue=mail tenant=acme attempt=2`, and for lines that are not ours the
    logger."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        found = _fields(record) if is_ours(record) else {"logger": record.name, **_fields(record)}
        fields = "".join(f" {name}={_plain(value)}" for name, value in found.items())
        line = f"{moment} {record.levelname:<7} {_unbroken(record.getMessage())}{fields}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to(stream: TextIO | None = None, *, level: str = "INFO", format: str = "text") -> logging.Handler:
    """Send everything TaskHarbor logs to `stream` (standard error by default); returns the handler."""
    handler = handler_for(stream or sys.stderr, format)
    logger = logging.getLogger(OURS)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    hush_outages()
    return handler


def handler_for(stream: TextIO, format: str) -> logging.Handler:
    """Writes lines in our format, those of handlers with their job."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.addFilter(WithJob())
    return handler


def hush_outages() -> None:
    """An outage is told once, by the worker. The pool of connections would tell it again at every try, and psycopg what
    it meets when it lets go of a connection that is gone, beside the error that it raises."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    logging.getLogger("psycopg").addFilter(_not_ignored)


def _not_ignored(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("error ignored ")


def is_ours(record: logging.LogRecord) -> bool:
    return record.name == OURS or record.name.startswith(f"{OURS}.")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def _unbroken(message: str) -> str:
    if message.isprintable():
        return message
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in message)


def _plain(value: object) -> str:
    """Names come from anywhere: no line may be broken or forged by one."""
    text = str(value)
    return text if text.isprintable() and " " not in text and "=" not in text else json.dumps(text)
