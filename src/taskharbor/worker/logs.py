"""The log of workers: what is in `core/logged.py`, and the name of the worker on every line."""

from __future__ import annotations

import logging

from taskharbor.core.logged import FIELDS, JsonFormatter, TextFormatter, WithJob, job_fields, log_to
from taskharbor.core.words import many

__all__ = ["FIELDS", "JsonFormatter", "TextFormatter", "WithJob", "WithWorker", "job_fields", "log_to", "note_unbegun"]

log = logging.getLogger("taskharbor.worker")


def note_unbegun(count: int) -> None:
    """So many leases ended before a handler had begun here. Nothing is done twice, so that it is no warning."""
    if count:
        leases = "its lease" if count == 1 else "their leases"
        log.info("%s lost %s before a handler began here: nothing is done twice", many(count, "job"), leases)


class WithWorker(logging.Filter):
    """Adds the worker to every line."""

    def __init__(self, worker_id: str) -> None:
        super().__init__()
        self._worker_id = worker_id

    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._worker_id
        return True
