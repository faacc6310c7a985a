r"""What kind of error it was: its class, and a fingerprint that is the same for errors which differ only in details.

One table of patterns for Python, which groups the DLQ on the dashboard, and for Java, in which Spark runs them. So they
keep to what both read alike: ASCII classes, flags for a group or from the start; no `$`, which Java lets match before
more ends of lines than Python does, and no `\b`, for which some versions of Java count letters of any alphabet.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

from taskharbor.core.model import Reason

LONGEST: Final = 2_000
"""Of the text that is looked at."""
KEPT: Final = 400
"""Of what is left of it."""
DIGITS: Final = 16

_NAME: Final = r"(?:\w+\.)*[A-Z]\w*"
_END: Final = r"(?:\r?\n)?(?![\s\S])"
TRACED: Final = rf"(?s)^(?:.*\n)?({_NAME})(?::\s.*)?{_END}"
"""In a traceback, the last line at the margin that begins like the name of an exception. Frames are indented."""
PLAIN: Final = rf"(?s)^({_NAME}):\s"
RAISED: Final = rf"(?s)^.*\n({_NAME}(?::\s.*)?){_END}"
SHORT: Final = r"([^.]+)(?![\s\S])"
"""The last part of a dotted name."""

NORMALISED: Final = (
    # What stands in quotes is data. An apostrophe inside a word is none.
    (r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)|`[^`\n]*`", "<text>"),
    (r"(?i)(?<!\w)[a-z][a-z0-9+.-]*://[^\s,;)\]>]+", "<address>"),
    (r"(?<!\w)(?=\w)[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<address>"),
    (
        r"(?<!\w)\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?!\w)|(?i:(?<!\w)(?=\w)(?:[a-z0-9-]+\.)+[a-z]{2,}:\d+(?!\w))",
        "<address>",
    ),
    (r"(?<![\w<])(?:[A-Za-z]:\\|\.{0,2}/)[\w.@%+~-]+(?:[/\\][\w.@%+~-]*)*", "<path>"),
    (r"(?i)(?<!\w)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?!\w)", "<id>"),
    (r"(?i)(?<!\w)0x[0-9a-f]+(?!\w)", "<hex>"),
    (r"(?i)(?<!\w)(?=[a-f]*\d)[0-9a-f]{8,}(?!\w)", "<hex>"),
    (r"[-+]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?", "<n>"),
    (r"\s+", " "),
)
"""Patterns and what stands in their place, in this order."""

_TRACED, _PLAIN, _RAISED, _SHORT = (re.compile(each, re.ASCII) for each in (TRACED, PLAIN, RAISED, SHORT))
_NORMALISED: Final = tuple((re.compile(pattern, re.ASCII), instead) for pattern, instead in NORMALISED)


def error_class(error: str, *, lapsed: bool = False) -> str | None:
    """The exception's name, else a word for how the attempt failed; None where nothing is said."""
    if lapsed:
        return "Lapsed"
    if not error:
        return None
    found = (_TRACED if error.startswith("Traceback") else _PLAIN).search(error)
    if found is not None:
        named = _SHORT.search(found[1])
        if named is not None:
            return named[1]
    return "Timeout" if error.startswith("timed out") else "Error"


def normalised(error: str) -> str:
    """The text with numbers, ids, quoted words, addresses and paths taken out; of a traceback only what was raised."""
    text = error
    if error.startswith("Traceback") and (raised := _RAISED.search(error)) is not None:
        text = raised[1]
    text = text[:LONGEST]
    for pattern, instead in _NORMALISED:
        text = pattern.sub(instead, text)
    return text[:KEPT].strip(" ")


def fingerprint(error: str, *, lapsed: bool = False) -> str | None:
    """Sixteen hexadecimal digits; None where there is no error."""
    if not error:
        return None
    return _digest(f"{error_class(error, lapsed=lapsed)}\n{normalised(error)}")


@lru_cache(maxsize=4096)  # a thousand jobs that died together mostly died of the same words
def fingerprint_of_dead(error: str, code: str | None) -> str:
    """That of a job in the DLQ, the same as `pipeline triage` gives it; one that died without a word has that of its
    code."""
    return fingerprint(error, lapsed=code == Reason.CRASH_LOOP) or _digest(f"code {code or ''}")


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:DIGITS]
