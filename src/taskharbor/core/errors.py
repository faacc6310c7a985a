"""One tree of errors with one root, so that a caller can catch as much or as little as it wants.

Every message says what to do next. Drivers translate what their client library raises into these classes,
so the same mistake raises the same class on every store.
"""

from __future__ import annotations

from typing import Final, Self

HOW_TO_MIGRATE: Final = "run `taskharbor --url … migrate`, or call driver.migrate()"


class TaskHarborError(Exception):
    """The root of everything TaskHarbor raises on purpose."""


# --- What the caller passed in -----------------------------------------------------------------------------


class InvalidInput(TaskHarborError, ValueError):
    """The call cannot be carried out as written. Nothing was changed."""


class InvalidLeaseDuration(InvalidInput):
    """`lease_for` must be greater than zero."""


class InvalidTime(InvalidInput):
    """A datetime is naive, or so far off that some store could not keep it."""


class InvalidPayload(InvalidInput):
    """The payload is not bytes, or cannot be written as JSON that every store and every reader accepts.

    The message is for whoever made the call, and may quote what was passed. `unquoted` says the same without a word of
    it, for the store and the log of an application that encrypts; empty if nobody knows how.
    """

    def __init__(self, message: str = "", *, unquoted: str = "") -> None:
        super().__init__(message)
        self.unquoted = unquoted

    @classmethod
    def about(cls, message: str) -> Self:
        """One whose message quotes nothing."""
        return cls(message, unquoted=message)


class PayloadTooLarge(InvalidInput):
    """The payload or result is over the size limit. It is never truncated."""


class AlreadyExpired(InvalidInput):
    """`expires_at` has already passed at enqueue."""


class InvalidURL(InvalidInput):
    """The store's URL has an unknown scheme, or parts that do not fit."""


class InvalidCursor(InvalidInput):
    """The cursor is not one this store gave out."""


class MissingExtra(TaskHarborError, ImportError):
    """An optional library is needed for this. The message names the extra to install."""


# --- Leases and jobs ---------------------------------------------------------------------------------------


class JobNotInflight(TaskHarborError):
    """The job is not leased by anyone, so there is no lease to settle or extend."""


class JobNotFound(JobNotInflight):
    """No job with that id."""


class LeaseLost(TaskHarborError):
    """The caller no longer owns the job. Whatever it was going to write must be dropped."""


class LeaseMismatch(LeaseLost):
    """Somebody else holds a valid lease on the job."""


class LeaseExpired(LeaseLost):
    """The lease ended (at `now >= lease_expires_at`). Takes precedence over a mismatch."""


class IdempotencyConflict(TaskHarborError):
    """The idempotency key is taken by a job with a different payload."""

    def __init__(self, message: str, *, existing_id: str | None = None) -> None:
        super().__init__(message)
        self.existing_id = existing_id


class DuplicateJob(IdempotencyConflict):
    """The key is taken, and the caller asked with `on_duplicate="raise"` to hear of it as an error."""


class ScheduleNotFound(TaskHarborError):
    """No schedule with that name."""


class WorkflowNotFound(TaskHarborError):
    """No workflow with that id."""


# --- Encryption --------------------------------------------------------------------------------------------


class EncryptionError(TaskHarborError):
    """What is stored is encrypted and cannot be read here. It is as it was."""


class EncryptionKeyMissing(EncryptionError):
    """This process lacks the key. A process that has it can read it: a worker puts such a job back."""


class DecryptionFailed(EncryptionError):
    """The key is there and the bytes do not open: they were changed, damaged, or belong to another job or tenant."""


# --- The store ---------------------------------------------------------------------------------------------


class StoreError(TaskHarborError):
    """The store did not do what was asked of it."""


class DriverClosed(StoreError):
    """The driver was closed; open another one."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or has no room for another caller. Trying again later may help."""


class StoreRefused(StoreUnavailable):
    """The login, the name of the database or the path is wrong, or this machine lacks what the store needs. Trying
    again does not help: correct it."""


class StoreMoved(StoreUnavailable):
    """Everything in this store is on its way to another one, or is there already. The message says where."""


class MoveFailed(StoreError):
    """A move of a whole store did not come to its end. The message says what stands in its way."""


class StoreReadOnly(StoreError):
    """The store can be read but not written."""


class StoreFull(StoreError):
    """There is no room left to write. Nothing of the call was kept."""


class StoreCorrupt(StoreError):
    """What is there is torn, or is not a TaskHarbor store."""


class SchemaMissing(StoreError):
    """The tables are not there yet, or are older than this version needs: run `taskharbor --url … migrate`."""

    older = False
    """Whether there are tables of ours, from an earlier version, as far as the store can tell."""


class SchemaTooNew(StoreError):
    """The tables were written by a newer TaskHarbor: upgrade this one."""
