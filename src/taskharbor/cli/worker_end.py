"""The end of a worker's process, which nothing may hold up: a call of a store that hangs cannot be broken off, and
waits where Python's own end would wait for it too."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from taskharbor.worker.runtime import Worker

UNTOLD: Final = 1
"""The exit code of a worker that ends without having told the store all: as for whatever else has failed."""
CLOSING_S: Final = 1.0
"""For what comes behind the worker: closing the store, and the end of the interpreter."""
COUNTING_S: Final = 10.0
"""For counting what a drain that did not end well has left."""
LOOK_S: Final = 0.1

log = logging.getLogger("taskharbor.worker")


def code_of(worker: Worker) -> int:
    return 0 if worker.told_all else UNTOLD


def see_to_the_end(worker: Worker) -> None:
    """A process that was told to stop ends in time, wherever its main thread may be: in the store at its start, or on
    the way out. For a process that is for nothing else than this worker."""
    threading.Thread(target=_watch, args=(worker,), name="taskharbor-end", daemon=True).start()


def _watch(worker: Worker) -> None:
    while (ends := worker.ends_by()) is None or time.monotonic() < ends + CLOSING_S:
        time.sleep(LOOK_S)
    code = UNTOLD
    if worker.has_ended:
        code = code_of(worker)  # something else holds up the process, as a thread that a handler has left behind
    else:
        log.error("the store did not answer in time: the worker ends without it, and leaves its jobs to their leases")
    leave(code)


def end_within(seconds: float, code: int) -> None:
    """The process does not go on for longer."""
    timer = threading.Timer(seconds, leave, (code,))
    timer.daemon = True
    timer.start()


def leave(code: int) -> NoReturn:
    """End the process here and now. What was said is written out, and the processes of handlers end with it."""
    from taskharbor.worker.processes import end_children

    end_children()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    logging.shutdown()
    os._exit(code)
