"""Checks of arguments that every driver shares. What passes here can be kept, or looked for, in any store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from math import isfinite
from typing import Any, Final, TypeVar

from taskharbor.core import limits as bounds
from taskharbor.core.answers import Page
from taskharbor.core.clock import checked, checked_start
from taskharbor.core.errors import InvalidCursor, InvalidInput, InvalidTime
from taskharbor.core.fleet import Worker
from taskharbor.core.limits import Limits
from taskharbor.core.model import Extension, JobFilter, Progress, RetryUpdate, Settle, Settlement, Status

LOWEST_RATE: Final = 1 / 86_400
"""Jobs a second: one a day. Slower than that, the last of many jobs would be due after the end of time."""

LONGEST_SOUGHT: Final = bounds.MAX_NAME + 1
"""Characters: no id, name, token or cursor has so many."""
MAX_TEXT: Final = 65_536
"""Characters of a text that is looked for in payloads, which may hold more."""

_LIST_CURSOR: Final = "after:"

T = TypeVar("T", Settlement, Extension)


def check_names(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    """The names checked, in order, each once."""
    try:
        names = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        what_it_is = type(given).__name__
        raise InvalidInput(f"a {what} must be named, by one name or a list of names, got {what_it_is}") from None
    try:
        return _checked_names(names, what)
    except TypeError:  # something in it is no text, and cannot even be looked up
        return _checked_names.__wrapped__(names, what)


Claim = tuple[timedelta, tuple[str, ...], tuple[str, ...] | None]


def check_claim(
    queues: str | Sequence[str],
    types: Sequence[str] | None,
    limit: int,
    owner: str,
    tenant: str | None,
    lease_for: timedelta | float | None,
) -> Claim:
    """What a claim asks for: how long its leases are, the queues, and the types."""
    if type(queues) in (str, tuple) and (types is None or type(types) is tuple):
        try:
            return _checked_claim(queues, types, limit, owner, tenant, lease_for)
        except TypeError:  # something in it cannot be looked up
            pass
    return _checked_claim.__wrapped__(queues, types, limit, owner, tenant, lease_for)


@lru_cache(maxsize=1024, typed=True)
def _checked_claim(
    queues: str | Sequence[str],
    types: Sequence[str] | None,
    limit: int,
    owner: str,
    tenant: str | None,
    lease_for: timedelta | float | None,
) -> Claim:
    """Kept, because an idle worker that hears of a job has nothing to do before its claim but this."""
    duration = bounds.check_lease(lease_for)
    check_count(limit, "limit", bounds.MAX_BATCH)
    bounds.check_text(owner, "owner", bounds.MAX_NAME)
    names = check_names(queues, "queue")
    handled = None if types is None else check_names(types, "type")
    if tenant is not None:
        bounds.check_name(tenant, "tenant", bounds.MAX_TENANT)
    return duration, names, handled


@lru_cache(maxsize=1024)
def _checked_names(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Kept, because workers ask for the same ones all the time."""
    return tuple(dict.fromkeys(bounds.check_name(name, what, bounds.MAX_NAME) for name in names))


def check_count(value: int, what: str, most: int | None) -> None:
    if type(value) is not int or value < 1 or (most is not None and value > most):
        span = "at least 1" if most is None else f"from 1 to {most:,}"
        raise InvalidInput(f"{what} must be a whole number, {span}, got {value!r}")


def check_words(words: Iterable[str], what: str) -> None:
    """Text to look for. It may be anything a store could hold; checked all at once, because batches are large."""
    try:
        together = "".join(words)
    except TypeError:
        raise InvalidInput(f"{what} must be text") from None
    if not bounds.is_storable(together):
        raise InvalidInput(f"{what} contains NUL or a lone surrogate, which no store can hold: check where it is from")


def sought(word: str, what: str) -> str:
    """An id or a name to look for, cut where it is longer than any could be: whole, some store would refuse it."""
    check_words((word,), what)
    return word[:LONGEST_SOUGHT]


def check_leases(items: list[T]) -> list[T]:
    """Settlements or extensions, with the ids and tokens to look for."""
    words = [word for item in items for word in (item.id, item.token)]
    check_words(words, "an id or a token")
    if max(map(len, words), default=0) <= LONGEST_SOUGHT:
        return items
    return [_cut_item(item) for item in items]


def _cut_item(item: T) -> T:
    id, token = item.id[:LONGEST_SOUGHT], item.token[:LONGEST_SOUGHT]
    return replace(item, id=id, token=token) if isinstance(item, Extension) else item._replace(id=id, token=token)


def check_cursor(cursor: str | None) -> None:
    try:
        check_words(() if cursor is None else (cursor,), "cursor")
    except InvalidInput as error:
        raise InvalidCursor(str(error)) from None
    if cursor is not None and len(cursor) > LONGEST_SOUGHT:
        raise InvalidCursor(f"cursor {cursor[:40]}… is longer than any that was given out: start without one")


def list_position(cursor: str | None) -> str | None:
    """The id that a cursor of `list` stands at. What has not its form is refused, whatever it may be."""
    check_cursor(cursor)
    if cursor is None:
        return None
    if not cursor.startswith(_LIST_CURSOR) or cursor == _LIST_CURSOR:
        raise InvalidCursor(f"cursor {cursor!r} is not one that list gave out: start without one")
    return cursor.removeprefix(_LIST_CURSOR)


def with_cursor(page: Page) -> Page:
    """The page of a driver, which ends at an id, with the cursor for callers in place of that id."""
    return page if page.cursor is None else Page(page.jobs, _LIST_CURSOR + page.cursor)


def check_filter(filter: JobFilter | None) -> JobFilter:
    if filter is None:
        return JobFilter()
    if not isinstance(filter, JobFilter):
        raise InvalidInput(
            f'a filter is a JobFilter, got {type(filter).__name__}: JobFilter(ids=("…",)) for ids, '
            'JobFilter(status="dlq", queue="…") and so on for the rest'
        )
    words = (filter.queue, filter.type, filter.tenant_id, filter.error, filter.code, filter.text)
    check_words([word for word in words if word is not None], "a filter")
    ids = (filter.ids,) if isinstance(filter.ids, str) else filter.ids
    if ids is not None:
        if not isinstance(ids, Iterable):
            raise InvalidInput(f"ids of a filter are a list of text, got {type(ids).__name__}")
        ids = tuple(ids)
        check_words(ids, "an id of a filter")
        ids = tuple(id[:LONGEST_SOUGHT] for id in ids)
    if filter.text is not None and len(filter.text) > MAX_TEXT:
        length = f"{len(filter.text):,} characters, the limit is {MAX_TEXT:,}"
        raise InvalidInput(f"text of a filter has {length}: look for a part of it")
    return replace(
        filter,
        ids=ids,
        status=_check_status(filter.status),
        queue=_cut(filter.queue, LONGEST_SOUGHT),
        type=_cut(filter.type, LONGEST_SOUGHT),
        tenant_id=_cut(filter.tenant_id, LONGEST_SOUGHT),
        code=_cut(filter.code, LONGEST_SOUGHT),
        # The empty text is in every text.
        error=_cut(filter.error, 2 * bounds.MAX_ERROR_CHARACTERS) or None,
        text=filter.text or None,
    )


def _cut(word: str | None, longest: int) -> str | None:
    return None if word is None else word[:longest]


def _check_status(status: Status | str | None) -> Status | None:
    try:
        return None if status is None else Status(status)
    except ValueError:
        known = ", ".join(known.value for known in Status)
        raise InvalidInput(f"there is no status {status!r}: a filter takes one of {known}") from None


def check_settlement(item: Settlement, limits: Limits) -> Settlement:
    """The settlement with clean text and UTC times. Most are acks with nothing to check: keep those quick."""
    if item.result is not None:
        if not isinstance(item.result, bytes):
            raise InvalidInput(f"result must be bytes, got {type(item.result).__name__}")
        limits.check_size(item.result, "result")
    started_at = None if item.started_at is None else checked(item.started_at, "started_at")
    if item.kind is Settle.ACK:
        return item if started_at is item.started_at else item._replace(started_at=started_at)
    if not isinstance(item.kind, Settle):
        return check_settlement(item._replace(kind=_check_kind(item.kind)), limits)
    run_at = item.run_at
    if item.kind is Settle.SNOOZE:
        if run_at is None:
            raise InvalidTime("a snooze needs run_at: the time the job wakes up")
        run_at = checked_start(run_at, "run_at")
    return item._replace(
        update=check_update(item.update) if item.kind is Settle.RETRY else item.update,
        reason=check_error(item.reason, "reason"),
        code=bounds.check_name(str(item.code), "code", 64) if item.kind is Settle.FAIL else item.code,
        run_at=run_at,
        started_at=started_at,
    )


def _check_kind(kind: Settle | str) -> Settle:
    try:
        return Settle(kind)
    except ValueError:
        known = ", ".join(known.value for known in Settle)
        raise InvalidInput(f"there is no way to settle called {kind!r}: known are {known}") from None


def check_rate(rate: float | None) -> None:
    number = isinstance(rate, int | float)
    if rate is not None and not (number and rate >= LOWEST_RATE):
        raise InvalidInput(f"rate must be a number of jobs a second, at least one a day, got {rate!r}")


def check_update(update: RetryUpdate | None) -> RetryUpdate:
    if not isinstance(update, RetryUpdate):
        raise InvalidInput(
            f"a retry needs an update, got {type(update).__name__}: "
            "RetryUpdate(run_at=…, attempts=…, last_error=…, failed_at=…)"
        )
    if type(update.attempts) is not int or not 0 <= update.attempts <= bounds.MAX_ATTEMPTS:
        raise InvalidInput(f"attempts must be a whole number from 0 to {bounds.MAX_ATTEMPTS}, got {update.attempts!r}")
    return RetryUpdate(
        None if update.run_at is None else checked_start(update.run_at, "update.run_at"),
        update.attempts,
        check_error(update.last_error, "last_error"),
        None if update.failed_at is None else checked(update.failed_at, "update.failed_at"),
    )


def check_error(text: str, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be text, got {type(text).__name__}")
    return bounds.clean_error(text)


def check_progress(progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    if not isinstance(progress, Progress):
        raise InvalidInput(f"progress is a Progress(done, total, note), got {type(progress).__name__}")
    done = _check_number(progress.done, "done")
    total = None if progress.total is None else _check_number(progress.total, "total")
    if not isinstance(progress.note, str):
        raise InvalidInput(f"note of a progress must be text, got {type(progress.note).__name__}")
    # A note is written while the handler runs; mending it is kinder than failing the job for it.
    return Progress(done, total, bounds.clean_error(progress.note))


def _check_number(number: float, what: str) -> float:
    """As a plain number, which every store gives back as it is."""
    if isinstance(number, int | float) and not isinstance(number, bool):
        with suppress(OverflowError):  # a whole number that no float can be
            if isfinite(number):
                return int(number) if isinstance(number, int) else float(number)
        raise InvalidInput(f"{what} of a progress must be a finite number, below 1.8e308")
    raise InvalidInput(f"{what} of a progress must be a finite number, got {number!r}")


def check_epoch(epoch: Any) -> None:
    if type(epoch) is not int or not -(2**63) <= epoch < 2**63:
        raise InvalidInput(f"epoch must be a whole number that elect gave out, got {epoch!r}")


def check_worker(worker: Worker) -> Worker:
    if not isinstance(worker, Worker):
        raise InvalidInput(f"heartbeat takes a Worker, got {type(worker).__name__}: heartbeat(Worker(id=…))")
    if not isinstance(worker.meta, Mapping):
        raise InvalidInput(f"meta of a worker must map text to text, got {type(worker.meta).__name__}")
    bounds.check_name(worker.id, "worker id", bounds.MAX_NAME)
    bounds.check_text(worker.hostname, "hostname", bounds.MAX_NAME)
    bounds.check_text(worker.version, "version", bounds.MAX_NAME)
    for number, what in ((worker.pid, "pid"), (worker.slots, "slots")):
        if type(number) is not int or not 0 <= number < 2**31:
            raise InvalidInput(f"{what} of a worker must be a whole number of 32 bits, got {number!r}")
    for key, value in worker.meta.items():
        bounds.check_text(key, "a meta key", bounds.MAX_NAME)
        bounds.check_text(value, f"meta[{key!r}]", bounds.MAX_META_BYTES)
    started_at = None if worker.started_at is None else checked(worker.started_at, "started_at")
    return replace(worker, queues=check_names(worker.queues, "queue"), started_at=started_at)
