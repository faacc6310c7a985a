"""What can go wrong for an application, beyond what can go wrong with a store."""

from __future__ import annotations

from taskharbor.core.errors import InvalidPayload, TaskHarborError
from taskharbor.core.model import Status


class InvalidArguments(InvalidPayload, TypeError):
    """A task was given arguments that its function does not take. Nothing was enqueued."""


class JobFailed(TaskHarborError):
    """The job that was waited for ended without a result: in the DLQ, cancelled or expired. Or it is a step of a
    workflow that has failed, and does not run; then the fields are those of the job that failed.

    `error` is the last error of the handler (often a traceback), `code` the reason code of the DLQ.
    """

    def __init__(self, message: str, *, id: str, status: Status, error: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.status = status
        self.error = error
        self.code = code


class WaitTimeout(TaskHarborError, TimeoutError):
    """The job had not ended when the time was up. It goes on; wait again, or cancel it."""
