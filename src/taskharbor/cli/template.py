"""From the flags of `enqueue`, and perhaps an application's task, to jobs that differ in their payload."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from taskharbor.cli.values import duration, moment
from taskharbor.core.codec import JsonCodec
from taskharbor.core.errors import InvalidInput, InvalidPayload
from taskharbor.core.model import DEFAULT_TENANT, NewJob

if TYPE_CHECKING:
    from taskharbor.app import Harbor
    from taskharbor.app.encryption import Keyring
    from taskharbor.app.options import EnqueueOptions

_FIELDS: Final = (
    "type",
    "queue",
    "priority",
    "delay",
    "run_at",
    "expires_at",
    "tenant",
    "key",
    "max_attempts",
    "timeout",
    "meta",
)


class Template:
    """What the jobs of one command have in common."""

    def __init__(self, arguments: argparse.Namespace, harbor: Harbor | None, ring: Keyring | None = None) -> None:
        self._ring = ring
        self._given: dict[str, Any] = {
            name: getattr(arguments, name) for name in _FIELDS if getattr(arguments, name) is not None
        }
        if "meta" in self._given:
            self._given["meta"] = dict(self._given["meta"])
        self._given.update(_unique(arguments))
        self._harbor = harbor
        self._arguments = arguments
        self._codec = JsonCodec()

    def job(self, text: str | bytes, now: datetime) -> NewJob:
        """A job with this payload, as JSON text."""
        return self._sealed(_object(text, "the payload"), self._given, now)

    def enveloped(self, text: str | bytes, now: datetime) -> NewJob:
        """A job from a line that may also say where it goes. What the line says wins over the flags."""
        line = _object(text, "a line with --envelope")
        if unknown := sorted(line.keys() - {"payload", *_FIELDS}):
            raise InvalidInput(f"there is no {unknown[0]!r} in an envelope: it has payload, {', '.join(_FIELDS)}")
        payload = line.get("payload", {})
        if not isinstance(payload, dict):
            raise InvalidPayload("payload must be a JSON object of the handler's arguments")
        own = {name: _field(name, line[name]) for name in _FIELDS if line.get(name) is not None}
        common = self._given
        if own.keys() & {"delay", "run_at"}:
            common = {name: value for name, value in common.items() if name not in ("delay", "run_at")}
        if {"delay", "run_at"} <= own.keys():
            raise InvalidInput("delay and run_at both say when: give one of them")
        return self._sealed(payload, {**common, **own}, now)

    def _sealed(self, payload: dict[str, Any], given: Mapping[str, Any], now: datetime) -> NewJob:
        job = self._build(payload, given, now)
        return job if self._ring is None else self._ring.seal_job(job)

    def _build(self, payload: dict[str, Any], given: Mapping[str, Any], now: datetime) -> NewJob:
        options = {name: value for name, value in given.items() if name not in ("type", "delay")}
        delay: timedelta | None = given.get("delay")
        if delay is not None:
            options["run_at"] = now + delay
        if "unique" in options:
            # A name that is no argument would make all jobs of the type one. Without a task, or with one that takes
            # any names, the payload shows them.
            task = None if self._harbor is None else self._harbor.tasks.get(given["type"])
            known = None if task is None else task.binding.known
            options["unique"].check_names(given["type"], payload.keys() if known is None else known)
        if self._harbor is None:
            from taskharbor.app.options import Terms

            terms = Terms({"tenant_id": DEFAULT_TENANT}).with_options(options)
            return terms.new_job(given["type"], self._codec.encode(payload), lambda: now)
        from taskharbor.app.naming import job_of

        if not self._arguments.no_check:
            self._check_type(self._harbor, given["type"])
        return job_of(self._harbor, given["type"], payload, cast("EnqueueOptions", options))[0]

    def _check_type(self, harbor: Harbor, type: str) -> None:
        if type in harbor.tasks:
            return
        from difflib import get_close_matches

        near = get_close_matches(type, harbor.tasks, n=1)
        known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(harbor.tasks)) or 'none'}."
        app = self._arguments.app
        raise InvalidInput(f"{app} has no task {type!r}: {known} With --no-check it is enqueued all the same")


def _unique(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the flags say about jobs that count as one, as options of a job."""
    from taskharbor.app.unique import ALL_ARGUMENTS, Unique

    names = ("while_in", "on_duplicate", "debounce", "throttle", "limit_key")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if arguments.unique is None:
        if arguments.unique_for is not None:
            given["key_ttl"] = arguments.unique_for
        return given
    by = ALL_ARGUMENTS if arguments.unique == (ALL_ARGUMENTS,) else arguments.unique
    states = {"while_in": given.pop("while_in")} if "while_in" in given else {}
    replaces = given.get("on_duplicate") == "replace"
    return {**given, "unique": Unique(by, period=arguments.unique_for, replace=replaces, **states)}


def _object(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise InvalidPayload(f"{what} is nested too deeply") from None
    except ValueError as error:
        # The message of the error may quote the text, which is nobody else's business; its place is enough.
        where = f" at character {error.pos + 1}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidPayload(f"{what} is not JSON{where}") from None
    if not isinstance(value, dict):
        raise InvalidPayload(
            f'{what} must be a JSON object of the handler\'s arguments, such as {{"to": "…"}}, not a '
            f"{'list' if isinstance(value, list) else type(value).__name__}"
        )
    return value


def _field(name: str, value: Any) -> Any:
    try:
        if name in ("delay", "timeout"):
            return duration(str(value))
        if name in ("run_at", "expires_at"):
            return moment(str(value))
    except argparse.ArgumentTypeError as error:
        raise InvalidInput(f"{name}: {error}") from None
    return value
