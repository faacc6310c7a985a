"""TaskHarbor: a durable task queue whose guarantees are the same on every store."""

from typing import TYPE_CHECKING

from taskharbor.core.errors import (
    AlreadyExpired,
    DriverClosed,
    DuplicateJob,
    IdempotencyConflict,
    InvalidCursor,
    InvalidInput,
    InvalidLeaseDuration,
    InvalidPayload,
    InvalidTime,
    InvalidURL,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseLost,
    LeaseMismatch,
    MissingExtra,
    PayloadTooLarge,
    ScheduleNotFound,
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TaskHarborError,
)
from taskharbor.core.fleet import Worker
from taskharbor.core.model import (
    Attempt,
    Enqueued,
    Extension,
    HistoryRow,
    Job,
    JobFilter,
    Lease,
    LeasedJob,
    NewJob,
    Outcome,
    Reason,
    RetryUpdate,
    Schedule,
    Settlement,
    Status,
)
from taskharbor.core.retry import Backoff

if TYPE_CHECKING:
    from taskharbor.app import Context, Harbor, InvalidArguments, JobFailed, JobView, Task, WaitTimeout
    from taskharbor.core.outcome import Cancel, Retry, Snooze, Unrecoverable

__version__ = "0.1.0"

__all__ = [
    "AlreadyExpired",
    "Attempt",
    "Backoff",
    "Cancel",
    "Context",
    "DriverClosed",
    "DuplicateJob",
    "Enqueued",
    "Extension",
    "Harbor",
    "HistoryRow",
    "IdempotencyConflict",
    "InvalidArguments",
    "InvalidCursor",
    "InvalidInput",
    "InvalidLeaseDuration",
    "InvalidPayload",
    "InvalidTime",
    "InvalidURL",
    "Job",
    "JobFailed",
    "JobFilter",
    "JobNotFound",
    "JobNotInflight",
    "JobView",
    "Lease",
    "LeaseExpired",
    "LeaseLost",
    "LeaseMismatch",
    "LeasedJob",
    "MissingExtra",
    "NewJob",
    "Outcome",
    "PayloadTooLarge",
    "Reason",
    "Retry",
    "RetryUpdate",
    "Schedule",
    "ScheduleNotFound",
    "SchemaMissing",
    "SchemaTooNew",
    "Settlement",
    "Snooze",
    "Status",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Task",
    "TaskHarborError",
    "Unrecoverable",
    "WaitTimeout",
    "Worker",
]

_LATER = {
    "taskharbor.app": ("Context", "Harbor", "InvalidArguments", "JobFailed", "JobView", "Task", "WaitTimeout"),
    "taskharbor.core.outcome": ("Cancel", "Retry", "Snooze", "Unrecoverable"),
}

if not TYPE_CHECKING:  # a type checker that saw it would take every name for one of ours

    def __getattr__(name: str) -> object:
        """The application's names, imported when they are asked for: who needs only the errors is not kept waiting."""
        from importlib import import_module

        for module, names in _LATER.items():
            if name in names:
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
