"""The one line of an error that says what went wrong, for wherever there is room for no more.

An error is text from anywhere: mostly a traceback of Python, whole, or cut to what there was room for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_CHAINED: Final = re.compile(
    r"\n[^\S\n]*\n(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):[^\S\n]*\n[^\S\n]*\n(?=\s*\S)"
)
_TRACED: Final = re.compile(r"\s*(?:\+ Exception Group )?Traceback ")
_FRAME: Final = re.compile(r'^[^\S\n]*(?:\|[^\S\n]*)*File ".*$', re.MULTILINE)
_QUOTED: Final = re.compile(r"^Traceback \(", re.MULTILINE)
_CUT: Final = re.compile(r"^… [\d,]+ characters left out …\n.*$", re.MULTILINE)
"""With the rest of the line that was cut."""
_IN_GROUP: Final = re.compile(r"^\s*\| ?")
_NAME: Final = re.compile(r"[\w.<>]+:")


def headline(text: str) -> str:
    """Of a traceback the line with which the text of its exception begins, whatever lines and notes follow; of a chain,
    that of the last one; of a group, that of the group. Of any other text the first line."""
    text = text.rstrip()
    last = _CHAINED.split(text)[-1]
    if _TRACED.match(last) is not None:
        frames = last.split("\n", 1)[-1]
        cut = _CUT.search(frames)
        if cut is not None and _FRAME.search(frames, cut.end()) is not None:
            frames = frames[cut.end() :]  # else what was cut is the message
        return _raised(frames)
    if _IN_GROUP.match(last) is not None:  # a group that was never raised, or a piece of the traceback of one
        return _raised(last)
    frame = _FRAME.search(last)
    # Text that speaks of a traceback first is no piece of one.
    if frame is not None and _QUOTED.search(last, 0, frame.start()) is None:
        return _raised(last[frame.end() :])
    return _first(last.splitlines())


def _raised(frames: str) -> str:
    """The first line that stands at the margin: frames and their code are indented."""
    lines = [_IN_GROUP.sub("", line) for line in _CUT.sub("", frames).split("\n")]
    for number, line in enumerate(lines):
        if line and not line[0].isspace():
            return _first(lines[number:])
    return _first(lines[::-1])


def _first(lines: Sequence[str]) -> str:
    said = [line.strip() for line in lines if line.strip()][:2] or [""]
    # A name alone: the text of the exception begins with a line break.
    return " ".join(said) if _NAME.fullmatch(said[0]) is not None else said[0]
