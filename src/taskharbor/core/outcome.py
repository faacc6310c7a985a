"""What a handler may raise to say what is to become of its job, and how an execution ended, as values.

The executor returns one of the values and touches no store; `settlement` makes of it what the store is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskharbor.core.limits import check_duration, clean_error
from taskharbor.core.model import Job, Reason, RetryUpdate, Settlement
from taskharbor.core.retry import Backoff

# --- What a handler may raise ------------------------------------------------------------------------------


class HandlerSignal(Exception):
    """The root of what a handler raises on purpose. Its text is kept as the reason."""

    def __init__(self, reason: object = "") -> None:
        self.reason = str(reason)  # an exception is as good a reason as a sentence
        super().__init__(self.reason)


class Retry(HandlerSignal):
    """This attempt failed: run the job again after `delay` (seconds or a timedelta), or by its retry policy."""

    def __init__(self, delay: timedelta | float | None = None, reason: object = "") -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.delay = None if delay is None else check_duration(delay, "delay")


class Snooze(HandlerSignal):
    """Nothing failed, it is only too early: run the job again in that many seconds. Burns no attempt."""

    def __init__(self, seconds: timedelta | float, reason: object = "") -> None:
        super().__init__(reason)
        self.delay = check_duration(seconds, "seconds")


class Cancel(HandlerSignal):
    """The job need not be done any more: it is cancelled, which is no failure."""


class Unrecoverable(HandlerSignal):
    """Trying again cannot help: the job goes to the DLQ at once."""


# --- How an execution ended --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """To be tried again while attempts are left; after `delay` if the handler named one."""

    error: str
    delay: timedelta | None = None
    kind: str = ""
    """The class of what was raised, or what else it was: unlike the text of the error, it may be logged."""


TIMED_OUT: Final = "timed out"
"""The kind of a failure by a time limit."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    delay: timedelta
    reason: str = ""
    """For the log, where it is no word of the handler's."""


CANCELLED_RUNNING: Final = "cancelled while it ran"
CANCELLED_WAITING: Final = "cancelled before it ran"
OWN_REASONS: Final = (CANCELLED_RUNNING, CANCELLED_WAITING)
"""What a worker says of a cancel for which the handler has given no reason."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Dead:
    reason: str
    code: str = Reason.UNRECOVERABLE


@dataclass(frozen=True, slots=True)
class Released:
    """Not finished, through no fault of the job: it goes back and burns nothing."""


Ending = Done | Failed | Snoozed | Cancelled | Dead | Released


def ending_of(signal: HandlerSignal) -> Ending:
    match signal:
        case Retry():
            return Failed(signal.reason, signal.delay, type(signal).__name__)
        case Snooze():
            return Snoozed(signal.delay)
        case Cancel():
            return Cancelled(signal.reason)
        case _:
            return Dead(signal.reason or "the handler called the job unrecoverable")


def settlement(
    ending: Ending, job: Job, token: str, started_at: datetime | None, now: datetime, policy: Backoff
) -> Settlement:
    """What the store is told about the end of one lease. `max_attempts` is the total of executions."""
    if isinstance(ending, Done):  # as nearly all are: less to ask than in the table below
        return Settlement.ack(job.id, token, result=ending.result, started_at=started_at)
    match ending:
        case Failed(error, delay):
            error = clean_error(error)
            failures = job.attempts + 1
            if failures >= job.max_attempts:
                return Settlement.fail(
                    job.id, token, reason=error or "failed", code=Reason.MAX_ATTEMPTS, started_at=started_at
                )
            wait = policy.delay(failures) if delay is None else delay
            # None in place of a moment that has come: the job is due from the moment it is settled.
            update = RetryUpdate(now + wait if wait else None, failures, error, now)
            return Settlement.retry(job.id, token, update=update, started_at=started_at)
        case Snoozed(delay):
            return Settlement.snooze(job.id, token, run_at=now + delay, started_at=started_at)
        case Cancelled(reason):
            return Settlement.cancel(job.id, token, reason=clean_error(reason), started_at=started_at)
        case Dead(reason, code):
            return Settlement.fail(job.id, token, reason=clean_error(reason), code=code, started_at=started_at)
        case Released():
            return Settlement.release(job.id, token, started_at=started_at)
