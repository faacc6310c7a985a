"""Log lines with the job, queue, tenant and attempt they are about, as text for people or JSON for programs.

Never a payload, a result or the text of an error: those belong to the tenant, and the store has them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from taskharbor.core.model import Job

FIELDS: Final = ("job", "type", "queue", "tenant", "attempt", "worker")


def job_fields(job: Job) -> dict[str, Any]:
    """The `extra` of a line about this job."""
    return {
        "job": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant": job.tenant_id,
        "attempt": job.attempts + 1,
    }


class TextFormatter(logging.Formatter):
    """`12:00:00.123 WARNING send failed … job=… queue=mail tenant=acme attempt=2`"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())
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
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    logger = logging.getLogger("taskharbor")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    # An outage is told once, by the worker; the pool of connections would tell it again at every try.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    return handler


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
