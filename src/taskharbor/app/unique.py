"""Unique jobs: which jobs count as the same, for how long, and what the next one does."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from taskharbor.core.contract import Duration
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import check_duration
from taskharbor.core.model import Status
from taskharbor.core.unique import MADE_OF_ARGUMENTS, checked_duplicates

__all__ = ["ALL_ARGUMENTS", "MADE_OF_ARGUMENTS", "SCOPE", "Complete", "Unique", "debounced", "throttled"]

ALL_ARGUMENTS: Final = "args"
SCOPE: Final = ("tenant", "queue", "type")
"""The fields that may make up the scope of a key."""

Complete = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the arguments of a call to those that the function will have."""


@dataclass(frozen=True, slots=True)
class Unique:
    """Jobs of one tenant and type (`scope`) with equal arguments are one job; what a call leaves out is equal to its
    default.

    `by` names the arguments that must be equal; all of them unless given. The next such job is a duplicate while the
    first stands in one of the states of `while_in`, and for at most `period` (seconds, or a timedelta) after it was
    enqueued. A duplicate is dropped, and its caller told which job there is; with `replace`, one that has not begun
    becomes what the next one is.
    """

    by: str | Sequence[str] = ALL_ARGUMENTS
    period: Duration | None = None
    while_in: Sequence[str] = ("ready", "inflight")
    replace: bool = False
    scope: Sequence[str] = ("tenant", "type")
    on_duplicate: InitVar[None] = None
    """Not taken, and here only to be refused with what to write: it is an option of the task."""

    def __post_init__(self, on_duplicate: object) -> None:
        if on_duplicate == "replace":
            raise InvalidInput("a rule replaces by replace=True: Unique(…, replace=True)")
        if on_duplicate is not None:
            raise InvalidInput(
                f"on_duplicate stands beside a rule: harbor.task(unique=Unique(…), on_duplicate={on_duplicate!r})"
            )
        if not self.by:
            raise InvalidInput("unique by names at least one argument, or is 'args' for all of them")
        if self.by != ALL_ARGUMENTS:
            _check_names(self.by, "unique by takes names of arguments", ", or 'args' for all of them")
        _check_names(self.scope, "scope takes names of fields", f", of {', '.join(map(repr, SCOPE))}")
        if unknown := sorted(set(self.scope) - set(SCOPE)):
            raise InvalidInput(
                f"scope takes 'tenant', 'queue' and 'type', got {unknown[0]!r}: the arguments that must be equal are "
                f"named in by=({unknown[0]!r},)"
            )
        if self.period is not None and not check_duration(self.period, "period"):
            raise InvalidInput("the period of unique jobs must be longer than nothing")
        checked_duplicates("return", self.while_in, "k")

    def fields(self) -> dict[str, Any]:
        """What the jobs have for it, but for the key."""
        return {
            "unique": tuple(self.scope),
            "key_ttl": self.period,
            "while_in": tuple(self.while_in),
            "on_duplicate": "replace" if self.replace else "return",
        }

    def key_of(self, task: str, payload: bytes, complete: Complete = dict) -> str:
        """The key of a job with this payload. `complete` fills in what a call may leave out."""
        try:
            arguments = json.loads(payload or b"{}")
        except ValueError:  # a codec of the application's own
            arguments = {"payload": payload.hex()} if self.by == ALL_ARGUMENTS else None
        if not isinstance(arguments, Mapping):
            raise InvalidInput(f"{task}: unique by arguments needs payloads that are JSON objects: give a key instead")
        arguments = _comparable(complete(arguments))
        chosen = arguments if self.by == ALL_ARGUMENTS else {name: arguments.get(name) for name in self.by}
        text = json.dumps([sorted(self.by) if self.by != ALL_ARGUMENTS else None, chosen], sort_keys=True)
        return MADE_OF_ARGUMENTS + sha256(text.encode()).hexdigest()

    def check_names(self, task: str, known: Collection[str] | None) -> None:
        """Every argument named is one of the task's; None if it takes any."""
        if known is None:
            return
        for name in () if self.by == ALL_ARGUMENTS else self.by:
            if name not in known:
                has = ", ".join(sorted(known)) or "none"
                raise InvalidInput(f"{task}: unique by {name!r}, but it has no such argument; it has {has}")


def _check_names(names: object, what: str, more: str) -> None:
    if isinstance(names, str):
        raise InvalidInput(f"{what}, ({names!r},){more}")
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{what}{more}, got {names!r}")


def _comparable(value: Any) -> Any:
    """The same for numbers that are equal: JSON has one kind of them, and whoever is given a float may write 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return {name: _comparable(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def debounced(rule: Unique | None, wait: Duration) -> tuple[Unique, timedelta]:
    """The last of several wins: each call puts the run off, until there is none for so long."""
    delay = check_duration(wait, "debounce")
    if not delay:
        raise InvalidInput("debounce must be longer than nothing")
    return replace(rule or Unique(), while_in=("ready",), replace=True, period=None), delay


def throttled(rule: Unique | None, period: Duration) -> Unique:
    """The first of several wins: those that follow within the period are dropped."""
    if not check_duration(period, "throttle"):
        raise InvalidInput("throttle must be longer than nothing")
    every = tuple(status.value for status in Status)
    return replace(rule or Unique(), while_in=every, replace=False, period=period)
