"""The key that limits count a job by, made of its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from inspect import Parameter, signature
from string import Formatter
from typing import Any

from taskharbor.app.placeholders import is_unresolved
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_KEY, check_name


def _taken(function: Callable[..., Any], given: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the function is called with: all that was given, and of the defaults those that it asks for."""
    left_out = whole.keys() - given.keys()
    if not left_out:
        return whole
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):  # of one written in C nothing is known
        return {name: whole[name] for name in given}
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return whole
    return {name: value for name, value in whole.items() if name in given or name in parameters}


def check_limit_key(type: str, given: object, known: Collection[str] | None) -> None:
    """Every argument that the text names is one of the task's; `known` is None if it takes any."""
    if not isinstance(given, str) or "{" not in given:
        return
    try:
        named = list(_named(given))
    except ValueError as error:
        raise InvalidInput(f"{type}: limit_key {given!r} cannot be read: {error}") from None
    for name in named:
        if not name or name.isdecimal():
            raise InvalidInput(f"{type}: limit_key {given!r} has no name in its braces: write '{{account}}'")
        if known is not None and name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise InvalidInput(f"{type}: limit_key names {name!r}, but it has no such argument; it has {has}")


def _named(text: str) -> Iterator[str]:
    for _, field, form, _ in Formatter().parse(text):
        if field is not None:
            yield re.split(r"[.\[]", field, maxsplit=1)[0]
            yield from _named(form or "")


def _check_known(type: str, given: str | Callable[..., str | None], whole: Mapping[str, Any]) -> None:
    """Limits count a job before it runs, and results of other steps come to it only then."""
    used = set(_named(given)) if isinstance(given, str) else set(whole)
    for name in sorted(used & whole.keys()):
        if is_unresolved(whole[name]):
            raise InvalidInput(
                f"{type}: limit_key is made of {name!r}, which is a result of another step and not known before the "
                "job runs: give the step a key of its own with using(limit_key='…'), or none with limit_key=None"
            )


def limit_key_of(
    type: str,
    given: str | Callable[..., str | None],
    payload: bytes,
    decode: Callable[[bytes], Any],
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> str | None:
    """The key of one job; None if it has none. `complete` fills in what a call may leave out."""
    if isinstance(given, str) and "{" not in given:
        return check_name(given, "limit_key", MAX_KEY)
    if not isinstance(given, str) and not callable(given):
        raise InvalidInput(f"{type}: limit_key is text like 'acct-{{account}}', or a function of the arguments")
    arguments = decode(payload) if payload else {}
    if not isinstance(arguments, Mapping):
        raise InvalidInput(f"{type}: limit_key is made of arguments by name, and this job has none: give it as text")
    check_limit_key(type, given, None)
    whole = complete(arguments)
    _check_known(type, given, whole)
    try:
        key = given.format_map(whole) if isinstance(given, str) else given(**_taken(given, arguments, whole))
    except KeyError as error:
        raise InvalidInput(f"{type}: limit_key needs the argument {error}, which this job was not given") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidInput(f"{type}: limit_key cannot be made of the arguments: {error}") from None
    return None if key is None else check_name(key, "limit_key", MAX_KEY)
