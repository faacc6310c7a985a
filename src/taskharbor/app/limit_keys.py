"""The key that limits count a job by, made of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_KEY, check_name


def limit_key_of(
    type: str, given: str | Callable[..., str | None], payload: bytes, decode: Callable[[bytes], Any]
) -> str | None:
    """The key of one job; None if it has none."""
    if isinstance(given, str) and "{" not in given:
        return check_name(given, "limit_key", MAX_KEY)
    if not isinstance(given, str) and not callable(given):
        raise InvalidInput(f"{type}: limit_key is text like 'acct-{{account}}', or a function of the arguments")
    arguments = decode(payload) if payload else {}
    if not isinstance(arguments, Mapping):
        raise InvalidInput(f"{type}: limit_key is made of arguments by name, and this job has none: give it as text")
    try:
        key = given.format_map(arguments) if isinstance(given, str) else given(**arguments)
    except KeyError as error:
        raise InvalidInput(f"{type}: limit_key needs the argument {error}, which this job was not given") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidInput(f"{type}: limit_key cannot be made of the arguments: {error}") from None
    return None if key is None else check_name(key, "limit_key", MAX_KEY)
