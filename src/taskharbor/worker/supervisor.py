"""Several worker processes under one parent: starts them, starts them again when they crash, stops them together."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from taskharbor.core.errors import InvalidInput

SUPERVISED: Final = "TASKHARBOR_SUPERVISED"
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A child that ran this long has not crashed at its start: its pauses begin anew."""
LOOK_S: Final = 0.05

log = logging.getLogger("taskharbor.worker")


def run(app: str | None, processes: int, worker_args: Sequence[str]) -> int:
    """Run `taskharbor worker` in that many processes. Returns 0 when all of them ended in good order."""
    words = [sys.executable, "-m", "taskharbor", *(["-A", app] if app else []), "worker", *worker_args]
    return Supervisor(words, processes).run()


class Supervisor:
    def __init__(self, words: Sequence[str], processes: int) -> None:
        if processes < 1:
            raise InvalidInput(f"processes must be at least 1, got {processes}")
        self._words = list(words)
        self._crew = [_Place(number) for number in range(processes)]
        self._signals = 0

    def run(self) -> int:
        restore = self._catch_signals()
        try:
            for place in self._crew:
                self._start(place)
            while any(place.is_open for place in self._crew):
                time.sleep(LOOK_S)
                for place in self._crew:
                    self._look_after(place)
        finally:
            for place in self._crew:
                place.kill()
            restore()
        return 0 if all(place.code == 0 for place in self._crew) else 1

    def _start(self, place: _Place) -> None:
        # A group of its own, so that a Ctrl-C reaches the parent alone, which passes on one signal and not two. The
        # pipe tells the child when the parent is gone, however it went.
        environment = {**os.environ, SUPERVISED: "1"}
        place.process = subprocess.Popen(self._words, stdin=subprocess.PIPE, process_group=0, env=environment)
        place.started = time.monotonic()
        if self._signals:  # one that came while the process was being made, and did not reach it
            place.process.send_signal(signal.SIGTERM)

    def _look_after(self, place: _Place) -> None:
        if place.process is None:
            if place.is_open and time.monotonic() >= place.start_at and not self._signals:
                self._start(place)
            elif self._signals:
                place.is_open = False
                place.code = 0  # it was to be started again, and need not be any more
            return
        code = place.process.poll()
        if code is None:
            return
        place.process = None
        # One that ended of the signal itself had not begun to work.
        place.code = 0 if self._signals and code == -signal.SIGTERM else code
        if code == 0 or self._signals:
            place.is_open = False
            return
        if time.monotonic() - place.started > STEADY_S:
            place.pause_s = FIRST_PAUSE_S
        log.error("worker process %d ended with %d: starting it again in %.1f s", place.number, code, place.pause_s)
        place.start_at = time.monotonic() + place.pause_s
        place.pause_s = min(LONGEST_PAUSE_S, place.pause_s * 2)

    def _catch_signals(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def pass_on(number: int, frame: FrameType | None) -> None:
            self._signals += 1
            for place in self._crew:
                if place.process is not None and place.process.poll() is None:
                    place.process.send_signal(signal.SIGTERM)

        before = {name: signal.signal(name, pass_on) for name in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for name, handler in before.items():
                signal.signal(name, handler)

        return restore


class _Place:
    """One of the processes, through all its restarts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.is_open = True
        self.code: int | None = None
        self.started = 0.0
        self.start_at = 0.0
        self.pause_s = FIRST_PAUSE_S

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def when_orphaned(stop: Callable[[], None]) -> None:
    """In a child: call `stop` when the parent is gone."""
    if os.environ.get(SUPERVISED) != "1":
        return

    def watch() -> None:
        while os.read(0, 1024):
            pass
        stop()

    threading.Thread(target=watch, name="taskharbor-parent", daemon=True).start()
