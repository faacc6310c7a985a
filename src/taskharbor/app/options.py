"""How a job is enqueued, beside its arguments. What is said nearest to the call counts: `using`, then the task,
then the harbor."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypedDict

from taskharbor.app.limit_keys import limit_key_of
from taskharbor.app.unique import SCOPE, Complete, Unique, debounced, throttled
from taskharbor.core.contract import Duration
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limiting import LIMIT_KEY
from taskharbor.core.limits import MAX_KEY, MAX_TENANT, check_duration, check_name
from taskharbor.core.model import NewJob

LimitKey = str | Callable[..., str | None]


class EnqueueOptions(TypedDict, total=False):
    """What `using(…)` and `harbor.enqueue(…)` take."""

    queue: str
    priority: int
    run_at: datetime | None
    delay: Duration | None
    """From now by the store's clock: seconds, or a timedelta."""
    expires_at: datetime | None
    expires_in: Duration | None
    """Like `expires_at`, from now by the store's clock."""
    tenant: str
    key: str | None
    """The idempotency key: the same key again gives the same job back."""
    unique: Unique | tuple[str, ...] | None
    """Which jobs count as the same, None for no rule at all; or the fields that make up the scope of `key`."""
    debounce: Duration | None
    """Run so long after the last of several calls with the same arguments (or the same `key`)."""
    throttle: Duration | None
    """Drop calls with the same arguments (or the same `key`) for so long after the first."""
    while_in: tuple[str, ...] | None
    """States of the job that holds `key` in which it counts; payloads need not be equal then."""
    key_ttl: Duration | None
    on_duplicate: str
    meta: Mapping[str, str] | None
    limit_key: LimitKey | None
    """What limits per key count the job by: text, in which `{name}` stands for an argument, or a function of them."""
    max_attempts: int | None
    max_retries: int | None
    """Another name for `max_attempts`; 0 is one attempt, which is what it says."""
    timeout: Duration | None
    id: str | None
    connection: Any
    """The caller's own transaction: the job exists exactly if that is committed."""


# The names of these options in a job of the driver contract.
_FIELDS: Final = {"tenant": "tenant_id", "key": "idempotency_key", "max_retries": "max_attempts"}
_PAIRS: Final = (
    ("run_at", "delay"),
    ("expires_at", "expires_in"),
    ("max_attempts", "max_retries"),
    ("debounce", "throttle"),
    ("debounce", "delay"),
    ("debounce", "run_at"),
)
_KNOWN: Final = EnqueueOptions.__optional_keys__
_OURS: Final = ("delay", "expires_in", "connection", "debounce", "throttle", "limit_key")
_RULES: Final = ("unique", "debounce", "throttle")
_MEAN_A_KEY: Final = frozenset(("while_in", "on_duplicate"))
_ABOUT_A_KEY: Final = ("key_ttl", "unique", "while_in", "on_duplicate")


def unknown_option(name: str, known: Iterable[str]) -> InvalidInput:
    """The error for an option that there is not, with the one that was probably meant."""
    from difflib import get_close_matches

    names = sorted(known)
    here = next((option for option, field in _FIELDS.items() if field == name), None)
    near = [here] if here in names else get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? Known" if near else "known"
    return InvalidInput(f"unknown option {name!r}: {meant} are {', '.join(names)}")


def check_attempts(max_attempts: object) -> None:
    """A driver takes 0 for the default. Whoever writes it means no retry, so it is refused before it gets there."""
    if max_attempts == 0:
        raise InvalidInput("max_attempts counts all executions, so 0 is none: give 1 for no retry, or leave it out")


def _check_renamed(options: Mapping[str, Any]) -> None:
    """Refuse a bad tenant or key by the name that the option has here. The fields of a job have other ones."""
    for option, longest in (("tenant", MAX_TENANT), ("key", MAX_KEY)):
        value = options.get(option)
        if value is None and (option == "key" or option not in options):
            continue
        try:
            check_name(value, _FIELDS[option], longest)  # type: ignore[arg-type] # what it is, is the question
        except InvalidInput as error:
            raise type(error)(f"{option}{str(error).removeprefix(_FIELDS[option])}") from None


def _check_scope(given: object) -> None:
    """Refuse what is neither a rule nor the scope of a key, with what was probably meant."""
    if isinstance(given, str):
        by = (given,) if given not in SCOPE else ("…",)
    elif not isinstance(given, tuple | list | set | frozenset) or not all(isinstance(name, str) for name in given):
        by = ("…",)
    elif set(given) <= set(SCOPE):
        return
    else:
        by = tuple(name for name in given if name not in SCOPE)
    raise InvalidInput(
        f"unique takes a rule, Unique(by={by!r}) for jobs with equal arguments, or the fields that a key counts in, "
        f"for example ('tenant', 'type'); got {given!r}"
    )


def _says_something(option: str, value: object) -> bool:
    """Whether an option about keys was given; to have a duplicate returned is what happens without a word."""
    return value is not None and not (option == "on_duplicate" and value == "return")


class Pace(NamedTuple):
    """What `debounce` or `throttle` have made of a rule, to take it back."""

    option: str
    before: Unique | None
    """The rule without it."""
    delay: timedelta | None = None


class Terms(NamedTuple):
    """Options that have been put together: fields of the job, and what is known only when it is enqueued."""

    fields: dict[str, Any]
    delay: timedelta | None = None
    expires_in: timedelta | None = None
    connection: Any = None
    about_a_key: str | None = None
    """The option that makes sense with a key only, if one was given for this job."""
    unique: Unique | None = None
    """Where keys come from, unless the caller gives one."""
    pace: Pace | None = None
    limit_key: LimitKey | None = None
    decode: Callable[[bytes], Any] = json.loads
    """From a payload to the arguments, of which a `limit_key` may be made."""
    complete: Complete = dict
    """From the arguments of a call to those that the function will have: keys are made of these."""

    def with_options(self, options: Mapping[str, Any]) -> Terms:
        """These terms, with `options` in place of what they say about the same things."""
        if none := {name for name in _RULES if name in options and options[name] is None}:
            rest = {name: value for name, value in options.items() if name not in none}
            return self._without(none).with_options(rest)
        unknown = options.keys() - _KNOWN
        if unknown:
            raise unknown_option(min(unknown), _KNOWN)
        for first, second in _PAIRS:
            if options.get(first) is not None and options.get(second) is not None:
                raise InvalidInput(f"{first} and {second} do not go together: give one of them")
        check_attempts(options.get("max_attempts"))
        _check_renamed(options)
        if options.get("max_retries") == 0:
            options = {**options, "max_retries": 1}
        fields = {**self.fields, **{_FIELDS.get(k, k): v for k, v in options.items() if k not in _OURS}}
        delay, expires_in = self.delay, self.expires_in
        if "run_at" in options:
            delay = None
        if options.get("delay") is not None:
            delay = check_duration(options["delay"], "delay")
            fields.pop("run_at", None)
        elif "delay" in options:
            delay = None
        if "expires_at" in options:
            expires_in = None
        if options.get("expires_in") is not None:
            expires_in = check_duration(options["expires_in"], "expires_in")
            fields.pop("expires_at", None)
        elif "expires_in" in options:
            expires_in = None
        rule, pace = self.unique, self.pace
        if isinstance(options.get("unique"), Unique):
            rule, pace = options["unique"], None
        elif "unique" in options:
            _check_scope(options["unique"])
            rule, pace = None, None
        before = rule if pace is None else pace.before
        if options.get("debounce") is not None:
            if options.get("on_duplicate") not in (None, "replace"):
                raise InvalidInput(
                    "debounce lets the last call replace the one that waits, so there is never a duplicate to "
                    f"{options['on_duplicate']}: leave on_duplicate out, or use throttle, where the first one wins"
                )
            rule, delay = debounced(before, options["debounce"])
            pace = Pace("debounce", before, delay)
            fields.pop("run_at", None)
        elif options.get("throttle") is not None:
            rule, pace = throttled(before, options["throttle"]), Pace("throttle", before)
        if rule is not None and rule is not self.unique:
            fields.update(rule.fields())
            if options.get("on_duplicate") is not None and options.get("debounce") is None:
                fields["on_duplicate"] = options["on_duplicate"]
        asked = next((name for name in _ABOUT_A_KEY if _says_something(name, options.get(name))), self.about_a_key)
        asked = None if "key" in options else asked  # a key of None is meant
        asked = asked if rule is None else None
        limit_key = options.get("limit_key", self.limit_key)
        connection = options.get("connection", self.connection)
        return Terms(fields, delay, expires_in, connection, asked, rule, pace, limit_key, self.decode, self.complete)

    def _without(self, rules: Collection[str]) -> Terms:
        """These terms with the rule that there was before `debounce` or `throttle`; without `unique`, with none."""
        pace = self.pace
        if self.unique is None:
            return self._replace(fields={name: value for name, value in self.fields.items() if name not in rules})
        if "unique" not in rules and (pace is None or pace.option not in rules):
            return self
        fields = {name: value for name, value in self.fields.items() if name not in _ABOUT_A_KEY}
        before = None if pace is None or "unique" in rules else pace.before
        if before is not None:
            fields.update(before.fields())
            if self.fields["on_duplicate"] == "raise":
                fields["on_duplicate"] = "raise"
        # A delay of the caller's own, in place of the one of debounce, stays.
        delay = None if pace is not None and self.delay is pace.delay else self.delay
        return self._replace(fields=fields, delay=delay, unique=before, pace=None)

    def as_defaults(self) -> Terms:
        """These terms for a task or a harbor: what they say about keys is for the jobs that have one."""
        return self._replace(about_a_key=None)

    def meta_for(self, type: str, payload: bytes) -> dict[str, str]:
        """The meta of a job, with the key that limits count it by."""
        meta = dict(self.fields.get("meta") or {})
        key = None if self.limit_key is None else self._limit_key(type, payload)
        return meta if key is None else {**meta, LIMIT_KEY: key}

    def _limit_key(self, type: str, payload: bytes) -> str | None:
        assert self.limit_key is not None
        return limit_key_of(type, self.limit_key, payload, self.decode, self.complete)

    def new_job(self, type: str, payload: bytes, now: Callable[[], datetime]) -> NewJob:
        if self.about_a_key is not None and self.fields.get("idempotency_key") is None:
            raise InvalidInput(
                f"{type}: {self.about_a_key} is about jobs with a key, and this one has none: give key='…' as well, or "
                "unique=Unique(…)"
            )
        if self.limit_key is not None:
            meta = self.meta_for(type, payload)
            return self._replace(fields={**self.fields, "meta": meta}, limit_key=None).new_job(type, payload, now)
        fields = self.fields
        if self.unique is None and fields.get("idempotency_key") is None and not _MEAN_A_KEY.isdisjoint(fields):
            # What a task says about keys waits for jobs that have one.
            fields = {name: value for name, value in fields.items() if name not in _MEAN_A_KEY}
        if not self.delay and self.expires_in is None and self.unique is None:
            return NewJob(type, payload, **fields)
        moment = now()
        fields = dict(fields)
        if self.unique is not None and fields.get("idempotency_key") is None:
            fields["idempotency_key"] = self.unique.key_of(type, payload, self.complete)
        if self.delay:
            fields["run_at"] = moment + self.delay
        if self.expires_in is not None:
            fields["expires_at"] = moment + self.expires_in
        return NewJob(type, payload, **fields)
