"""How people run it: the `taskharbor` command.

This module and `taskharbor` itself import next to nothing: until `main` runs, an interrupt would show a traceback.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130
"""What a shell shows for a program that Ctrl-C has ended."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 it failed, 2 wrong usage, 130 interrupted.

    Without `words` it is the command of this process, and begins and ends so that an interrupt is quiet.
    """
    try:
        if words is None:
            _end_at_interrupt(True)
        from taskharbor.cli.command import run

        if words is None:
            _end_at_interrupt(False)
        code = run(words)
        if words is None:
            _end_at_interrupt(True)
    except KeyboardInterrupt:
        print("taskharbor: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _end_at_interrupt(at_once: bool) -> None:
    """At once, while there is nothing to clean up, as in the midst of imports; else by KeyboardInterrupt, as usual.

    Left alone where somebody else decides what an interrupt does, or it was to be ignored.
    """
    import signal

    usual, other = signal.default_int_handler, _end
    if not at_once:
        usual, other = other, usual
    try:
        if signal.getsignal(signal.SIGINT) is usual:
            signal.signal(signal.SIGINT, other)
    except ValueError:  # not in the main thread, which alone hears of interrupts
        pass


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)


__all__ = ["main"]
