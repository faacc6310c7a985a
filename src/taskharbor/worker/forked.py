"""Children that handlers fork. They have the worker's signal handlers and its slots, and neither is for them."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final
from weakref import WeakSet

Handler = Callable[[int, FrameType | None], None]
_DEFAULTS: Final[dict[signal.Signals, Callable[..., Any] | signal.Handlers]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
_ours: Final[WeakSet[Handler]] = WeakSet()
_this_process = os.getpid()
"""Kept, because to ask the system behind each job is a good part of what a quick one costs."""

log = logging.getLogger("taskharbor.worker")


def not_in_children(handler: Handler) -> Handler:
    """A handler of signals that processes which are forked do not keep: where it only takes note, nobody could
    terminate them, and whoever waits for them, as `multiprocessing` does, would wait for ever."""
    _ours.add(handler)
    return handler


def _after_fork() -> None:
    global _this_process  # noqa: PLW0603 - it is a fact about the process
    _this_process = os.getpid()
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) in _ours:
            signal.signal(number, default)


os.register_at_fork(after_in_child=_after_fork)


def end_if_forked(pid: int, name: str) -> None:
    """Where a handler of `name` has ended that began in process `pid`. A child that it forked and that came back out
    of it ends here: it has copies of all jobs that wait in the worker, and must not run them, as its parent does."""
    if _this_process == pid:
        return
    log.error(
        "a handler of %s forked and its child, process %d, returned to the worker: the child ends here. "
        "End it in the handler, with os._exit(0)", name, _this_process,
    )  # fmt: skip
    os._exit(1)
