"""Two drivers that must not differ, and what has to be translated between them: tokens and ids they made up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from taskharbor.core.answers import Counts
from taskharbor.core.contract import Driver
from taskharbor.core.errors import IdempotencyConflict, TaskHarborError
from taskharbor.core.model import HistoryRow, LeasedJob

FEED_PATIENCE_S: Final = 20.0
"""A store may hold rows of its feed back while others write in the same server."""

_IDENTITIES: Final = frozenset({"id", "job_id"})
_TOKENS: Final = frozenset({"token", "lease_token"})
_UNCOMPARED: Final = frozenset({"position"})
_PLAIN: Final = frozenset({type(None), bool, int, float, bytes, datetime, timedelta})


class Side:
    """One of the two drivers. The machine speaks of jobs and leases as the memory driver knows them; a side gives
    its own names for them and takes them back."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.cursor: str | None = None
        self._own: dict[str, str] = {}
        self._common: dict[str, str] = {}

    def learn(self, common: str, own: str) -> None:
        """This driver says `own` for what the memory driver calls `common`."""
        self._own[common] = own
        self._common[own] = common

    def own(self, common: str) -> str:
        return self._own.get(common, common)

    def plain(self, value: Any) -> Any:
        """A value of this driver as plain data in common names, so that the two sides' can be compared."""
        kind: Any = type(value)
        if kind is str:
            return self._common.get(value, value)
        if kind in _PLAIN:  # most are
            return value
        if isinstance(value, IdempotencyConflict):
            return (type(value).__name__, self._common.get(value.existing_id or "", value.existing_id))
        if isinstance(value, BaseException):
            return type(value).__name__
        if isinstance(value, Counts):
            return (dict(value), value.queues, value.scheduled)
        names = _field_names(kind)
        if names:
            record: dict[str, Any] = {"": type(value).__name__}
            for name in names:
                given = getattr(value, name)
                if name in _UNCOMPARED:
                    continue
                named = name in _IDENTITIES or name in _TOKENS
                record[name] = self._common.get(given, given) if named else self.plain(given)
            return record
        if isinstance(value, Mapping):
            return {key: self.plain(inner) for key, inner in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return [self.plain(inner) for inner in value]
        return self._common.get(value, value) if isinstance(value, str) else value

    def read_feed(self, at_least: int) -> list[HistoryRow]:
        """Every row of history behind the last one read; patient until there are `at_least` so many."""
        rows: list[HistoryRow] = []
        deadline = time.monotonic() + FEED_PATIENCE_S
        while True:
            page = self.driver.history(self.cursor, 7)
            self.cursor = page.cursor
            rows.extend(page.rows)
            if not page.rows:
                if len(rows) >= at_least or time.monotonic() > deadline:
                    return rows
                time.sleep(0.01)


class Pair:
    """Runs each call on both sides and raises AssertionError where they differ."""

    def __init__(self, subject: Driver, memory: Driver) -> None:
        self.subject = Side(subject)
        self.memory = Side(memory)
        # Whatever history a reused store begins with is nobody's business.
        self.subject.read_feed(0)

    def same(self, call: Callable[[Side], Any]) -> Any:
        """What the memory driver answers (an error as a value); the subject must answer the same."""
        expected, found = _outcome(call, self.memory), _outcome(call, self.subject)
        self._equal(self.subject.plain(found), self.memory.plain(expected))
        return expected

    def same_leases(self, call: Callable[[Side], Any]) -> list[LeasedJob]:
        """The same for a call whose last part is new leases: their tokens differ, and are learned."""
        expected, found = _outcome(call, self.memory), _outcome(call, self.subject)
        leases = _leases(expected)
        for ours, theirs in zip(leases, _leases(found), strict=False):
            self.subject.learn(ours.lease.token, theirs.lease.token)
        self._equal(self.subject.plain(found), self.memory.plain(expected))
        assert len({leased.lease.token for leased in _leases(found)}) == len(leases), "two leases share a token"
        return leases

    def same_new_ids(self, call: Callable[[Side], Any]) -> list[str]:
        """The same for a call that makes up ids: they differ, and are learned."""
        expected, found = _outcome(call, self.memory), _outcome(call, self.subject)
        if isinstance(expected, TaskHarborError) or isinstance(found, TaskHarborError):
            self._equal(self.subject.plain(found), self.memory.plain(expected))
            return []
        assert len(found) == len(expected), f"{len(found)} ids instead of {len(expected)}: {found}, {expected}"
        for ours, theirs in zip(expected, found, strict=True):
            self.subject.learn(ours, theirs)
        return list(expected)

    def same_feed(self) -> None:
        """Both feeds have gained the same rows. Rows of different jobs that were written in one operation may
        stand in any order; those of one job may not."""
        expected = self.memory.read_feed(0)
        found = self.subject.read_feed(len(expected))
        self._equal(_by_job(self.subject.plain(found)), _by_job(self.memory.plain(expected)))

    @staticmethod
    def _equal(found: Any, expected: Any) -> None:
        assert found == expected, "\n".join(["the drivers differ:", *_differences(found, expected, "")])


def _outcome(call: Callable[[Side], Any], side: Side) -> Any:
    try:
        return call(side)
    except TaskHarborError as error:
        return error


def _leases(answer: Any) -> list[LeasedJob]:
    if isinstance(answer, TaskHarborError):
        return []
    leases: list[LeasedJob] = answer[1] if isinstance(answer, tuple) else answer
    return leases


def _by_job(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        jobs.setdefault(row["job_id"], []).append(row)
    return jobs


def _differences(found: Any, expected: Any, path: str) -> list[str]:
    """Where exactly two pieces of plain data part, since whole records are too long to compare by eye."""
    if found == expected:
        return []
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        return [line for key in found for line in _differences(found[key], expected[key], f"{path}.{key}")]
    if isinstance(found, list) and isinstance(expected, list):
        both = enumerate(zip(found, expected, strict=False))
        lines = [line for number, (a, b) in both for line in _differences(a, b, f"{path}[{number}]")]
        if len(found) != len(expected):
            lines.append(f"  {path or 'the answer'} has {len(found)} items, with the memory driver {len(expected)}")
            longer = found if len(found) > len(expected) else expected
            lines += [f"  only one has {item!r}" for item in longer[min(len(found), len(expected)) :]]
        return lines
    return [f"  {path or 'the answer'}: {found!r}, the memory driver says {expected!r}"]


@cache
def _field_names(kind: type) -> Sequence[str]:
    """The fields of a dataclass or of a named tuple; none for anything else."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return getattr(kind, "_fields", ())
