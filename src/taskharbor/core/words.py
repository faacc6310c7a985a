"""Texts and numbers as people read them on a page: short, aligned, and with nothing in them that would not show."""

from __future__ import annotations

import re
import signal
from typing import Final

from taskharbor.core.headlines import headline

# What HTML must not hold, what would move text about, and what cannot be seen; a line's end and a tab may stay.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
NOTHING: Final = "\u2013"
"""A dash, where there is no number."""


def visible(text: str) -> str:
    """The text with control characters spelled out, so that it can neither hide nor do anything."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def short(text: str, longest: int = 40) -> str:
    """One line, cut in the middle, where names differ least."""
    plain = " ".join(visible(text).split())
    if len(plain) <= longest:
        return plain
    tail = longest // 3
    return plain[: longest - tail - 1] + "…" + plain[-tail:]


def gist(text: str, longest: int = 160) -> str:
    """The line of an error that says most, cut if need be."""
    line = visible(headline(text))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def count(number: float | None) -> str:
    return NOTHING if number is None else f"{number:,.0f}"


def compact(number: float | None) -> str:
    """0.03, 12, 3.4k, 56k, 1.2M."""
    if number is None:
        return NOTHING
    size = float(number)
    if 0 < abs(size) < 0.995:
        return f"{size:.2g}"
    for unit in ("", "k", "M", "G"):
        if abs(size) < 999.5 or unit == "G":
            digits = 1 if size % 1 and abs(size) < 9.95 else 0
            return f"{size:.{digits}f}".removesuffix(".0") + unit
        size /= 1000
    return ""


def size(number: float) -> str:
    amount = float(number)
    for unit in ("B", "kB", "MB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def many(number: int, one: str, more: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def ended(code: int) -> str:
    """How a process ended: `ended with exit code 7`, `was killed by SIGKILL`."""
    return f"{'was' if code < 0 else 'ended with'} {exit_of(code)}"


def exit_of(code: int) -> str:
    """What a process ended with. The number of a signal has a minus."""
    if code >= 0:
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"killed by {names.get(-code, f'signal {-code}')}"
