"""TaskHarbor: a durable task queue whose guarantees are the same on every store."""

TYPE_CHECKING = False
"""As `typing` has it, which takes longer to import than everything here."""

if TYPE_CHECKING:
    from taskharbor.app import Context, Harbor, InvalidArguments, JobFailed, JobView, Task, WaitTimeout
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
        StoreRefused,
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
    from taskharbor.core.outcome import Cancel, Retry, Snooze, Unrecoverable
    from taskharbor.core.retry import Backoff

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
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskHarborError",
    "Unrecoverable",
    "WaitTimeout",
    "Worker",
]

_HOMES = {
    "taskharbor.app": ("Context", "Harbor", "InvalidArguments", "JobFailed", "JobView", "Task", "WaitTimeout"),
    "taskharbor.core.errors": (
        "AlreadyExpired",
        "DriverClosed",
        "DuplicateJob",
        "IdempotencyConflict",
        "InvalidCursor",
        "InvalidInput",
        "InvalidLeaseDuration",
        "InvalidPayload",
        "InvalidTime",
        "InvalidURL",
        "JobNotFound",
        "JobNotInflight",
        "LeaseExpired",
        "LeaseLost",
        "LeaseMismatch",
        "MissingExtra",
        "PayloadTooLarge",
        "ScheduleNotFound",
        "SchemaMissing",
        "SchemaTooNew",
        "StoreCorrupt",
        "StoreError",
        "StoreFull",
        "StoreReadOnly",
        "StoreRefused",
        "StoreUnavailable",
        "TaskHarborError",
    ),
    "taskharbor.core.fleet": ("Worker",),
    "taskharbor.core.model": (
        "Attempt",
        "Enqueued",
        "Extension",
        "HistoryRow",
        "Job",
        "JobFilter",
        "Lease",
        "LeasedJob",
        "NewJob",
        "Outcome",
        "Reason",
        "RetryUpdate",
        "Schedule",
        "Settlement",
        "Status",
    ),
    "taskharbor.core.outcome": ("Cancel", "Retry", "Snooze", "Unrecoverable"),
    "taskharbor.core.retry": ("Backoff",),
}

if not TYPE_CHECKING:  # a type checker that saw it would take every name for one of ours

    def __getattr__(name: str) -> object:
        """Each name is imported when it is asked for: a command that only begins is not kept waiting, and can be
        interrupted without a word."""
        from importlib import import_module

        for module, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
