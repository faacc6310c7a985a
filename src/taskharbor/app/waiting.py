"""Waiting for the end of a job. The store is asked again and again, at first often and then less so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from taskharbor.app import sealed
from taskharbor.app.errors import JobFailed, WaitTimeout
from taskharbor.app.lookup import FINISHED
from taskharbor.core.codec import Codec
from taskharbor.core.contract import Driver
from taskharbor.core.endings import why
from taskharbor.core.errors import InvalidInput
from taskharbor.core.headlines import headline
from taskharbor.core.model import Job, Status
from taskharbor.core.outcome import OWN_REASONS

if TYPE_CHECKING:
    from taskharbor.app.encryption import Keyring

FIRST_PAUSE_S: Final = 0.004
LONGEST_PAUSE_S: Final = 0.25


def wait(driver: Driver, codec: Codec, id: str, timeout: float | None, ring: Keyring | None = None) -> Any:
    pauses = pauses_until(f"job {id}", timeout)
    while True:
        job = driver.get(id)
        if job.status in FINISHED:
            return result_of(job, codec, ring) if job.status is Status.DONE else _raise(job, why(driver, job))
        time.sleep(next(pauses))


async def await_result(
    driver: Driver,
    codec: Codec,
    id: str,
    timeout: float | None,  # noqa: ASYNC109 - as `wait` has it
    ring: Keyring | None = None,
) -> Any:
    import asyncio

    pauses = pauses_until(f"job {id}", timeout)
    while True:
        job = await asyncio.to_thread(driver.get, id)
        if job.status in FINISHED:
            if job.status is Status.DONE:
                return result_of(job, codec, ring)
            _raise(job, await asyncio.to_thread(why, driver, job))
        await asyncio.sleep(next(pauses))


def pauses_until(what: str, timeout: float | None) -> Iterator[float]:
    """How long to pause before the next look, and WaitTimeout when the time is up and `what` is waited for still. The
    last look is at the end."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout < 0):
        raise InvalidInput(f"timeout must be a number of seconds of at least 0, or None, got {timeout!r}")
    return _growing_pauses(what, timeout)


def _growing_pauses(what: str, timeout: float | None) -> Iterator[float]:
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_PAUSE_S
    while True:
        if deadline is None:
            yield pause
        else:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{what} has not ended within {timeout:g} s: it goes on, wait longer or cancel it")
            yield min(pause, left)
        pause = min(LONGEST_PAUSE_S, pause * 1.3)


def result_of(job: Job, codec: Codec, ring: Keyring | None = None) -> Any:
    """The result of a job that is done."""
    result = sealed.result_of(job, ring)
    return None if result is None else codec.decode(result)


def _raise(job: Job, error: str) -> NoReturn:
    """JobFailed for a job that ended otherwise, with `error` for the reason."""
    if job.status is Status.DLQ:
        ended = f"is in the DLQ ({job.dlq_code})"
    elif job.status is Status.CANCELLED:
        ended = "was cancelled"
        if error in OWN_REASONS:
            ended, error = f"was {error}", ""
    else:
        ended = "expired before it ran"
    summary = headline(error)  # all of it is in `error`
    raise JobFailed(
        f"{job.type} {job.id} {ended}" + (f": {summary}" if summary else ""),
        id=job.id,
        status=job.status,
        error=error,
        code=job.dlq_code,
    )
