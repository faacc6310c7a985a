"""Ctrl-C at a moment that a test chooses."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType

import taskharbor.drivers

PLACES = (str(Path(taskharbor.drivers.__file__).parent), contextlib.__file__, threading.__file__)


def interrupted(work: Callable[[], object], moment: int) -> KeyboardInterrupt | None:
    """Do the work, and raise KeyboardInterrupt at its `moment`th moment inside the drivers and what they stand on. None
    if the work was over by then. The traceback keeps what it has of it, as an interactive Python does.

    Python looks for signals at the beginning of a function and behind a call, and nowhere in between: not where a
    `with` begins or ends. A profiler is told of just these moments.
    """
    left = moment

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        if not frame.f_code.co_filename.startswith(PLACES):
            return
        # An error here would end a generator without its `finally`; the call of its `__next__` is told of, too.
        if event == "c_return" or (event in ("call", "return") and not frame.f_code.co_flags & CO_GENERATOR):
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt
            left -= 1

    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.setprofile(None)
    return None


def each_interrupt(begin: Callable[[], Callable[[], object]], step: int = 1) -> Iterator[KeyboardInterrupt | None]:
    """`begin` gives the work; it is begun anew for each moment in it, or each `step`th. Yields behind each one."""
    for moment in range(0, 100_000, step):
        stopped = [interrupted(begin(), moment)]
        if stopped[0] is None:
            return
        yield stopped.pop()  # who has it alone decides how long the traceback stays


def in_time(work: Callable[[], object], wait_s: float = 10.0) -> bool:
    """Whether another thread could do it; it is left alone if it hangs."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done.wait(wait_s)
