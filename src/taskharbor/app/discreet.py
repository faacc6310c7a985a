"""What may be said of an error in places that outlive the call: the store, its history, the log.

Where an application encrypts, nothing of TaskHarbor's own texts there may quote a payload, a result or any part of one,
be it the key of a mapping. So errors that quote bring along a text that does not, and this is where it is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskharbor.core.errors import InvalidPayload, TaskHarborError


def plain_text(error: BaseException) -> str:
    """The error's own words. Never raises."""
    try:
        return str(error)
    except BaseException:  # the error comes from anywhere, and so does the code that puts it in words
        return type(error).__name__


def unquoted(error: BaseException) -> str:
    """The error without a word of what it is about. Of one that comes from elsewhere, only its class is known to be
    harmless."""
    if isinstance(error, InvalidPayload):
        return error.unquoted or type(error).__name__
    return plain_text(error) if isinstance(error, TaskHarborError) else type(error).__name__


def reworded(text: str, error: BaseException) -> str:
    """A traceback, in which the words of TaskHarbor's own errors that quote are put into others."""
    for each in _chain(error):
        if isinstance(each, InvalidPayload) and each.unquoted and (said := plain_text(each)):
            text = text.replace(said, each.unquoted)
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and all that a traceback shows with it."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
