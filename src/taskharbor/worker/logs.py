"""The log of workers: what is in `core/logged.py`, and the name of the worker on every line."""

from __future__ import annotations

import logging

from taskharbor.core.logged import FIELDS, JsonFormatter, TextFormatter, WithJob, job_fields, log_to

__all__ = ["FIELDS", "JsonFormatter", "TextFormatter", "WithJob", "WithWorker", "job_fields", "log_to"]


class WithWorker(logging.Filter):
    """Adds the worker to every line."""

    def __init__(self, worker_id: str) -> None:
        super().__init__()
        self._worker_id = worker_id

    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._worker_id
        return True
