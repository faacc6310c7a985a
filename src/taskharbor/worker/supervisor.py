"""Several worker processes under one parent: starts them, starts them again when they crash, stops them together.

The parent speaks to its children over their standard input: a line `stop`, a line `hurry`. A signal says `stop` to a
child, however often it comes, because a service manager may send it to parent and children alike.
"""

from __future__ import annotations

import contextlib
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
from taskharbor.core.words import ended

SUPERVISED: Final = "TASKHARBOR_SUPERVISED"
EAR: Final = "TASKHARBOR_PARENT_EAR"
"""Names the descriptor on which a child tells its parent in the end what it did, where the parent wants to know."""
LONGEST_REPORT: Final = 4096
"""Bytes: so much fits into a pipe that is read only when its writer has ended."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A child that ran this long has not crashed at its start: its pauses begin anew."""
LOOK_S: Final = 0.05
HURRY_S: Final = 5.0
"""A process that has not ended so long after the second signal is killed. It should have, by itself and before long."""
WRONG_USAGE: Final = 2
"""The exit code of a worker that cannot be started like this, today or tomorrow."""
REFUSED: Final = 78
"""The exit code of one whose store waiting cannot cure: a wrong password, no tables, a missing extra."""
MOVED_AWAY: Final = 69
"""The exit code of one whose store was moved to another one: started again, it would end again."""
WORDS: Final = (b"stop\n", b"hurry\n")

log = logging.getLogger("taskharbor.worker")


def run(
    app: str | None, processes: int, worker_args: Sequence[str], hear: Callable[[bytes], None] | None = None
) -> int:
    """Run `taskharbor worker` in that many processes. Returns 0 when all of them ended in good order. `hear` is given
    what each of them reports in the end."""
    words = [sys.executable, "-m", "taskharbor", *(["-A", app] if app else []), "worker", *worker_args]
    return Supervisor(words, processes, hear=hear).run()


class Supervisor:
    def __init__(
        self,
        words: Sequence[str],
        processes: int,
        what: str = "worker",
        hear: Callable[[bytes], None] | None = None,
    ) -> None:
        if processes < 1:
            raise InvalidInput(f"processes must be at least 1, got {processes}")
        self._words = list(words)
        self._what = what
        self._hear = hear
        self._crew = [_Place(number) for number in range(processes)]
        self._signals = 0
        self._hurried: float | None = None

    def run(self) -> int:
        restore = self._catch_signals()
        try:
            for place in self._crew:
                self._start(place)
            while any(place.is_open for place in self._crew):
                time.sleep(LOOK_S)
                for place in self._crew:
                    self._look_after(place)
                    place.tell(self._signals)
                self._end_late_ones()
                if all(place.is_refused for place in self._crew):
                    return self._give_up()
        finally:
            for place in self._crew:
                place.kill()
            restore()
        return 0 if all(place.code == 0 for place in self._crew) else 1

    def _end_late_ones(self) -> None:
        if self._hurried is None or time.monotonic() < self._hurried + HURRY_S:
            return
        self._hurried = None
        for place in self._crew:
            if place.process is not None:
                log.error("%s process %d does not end and is killed", self._what, place.number)
                place.process.kill()

    def _give_up(self) -> int:
        if all(place.code == WRONG_USAGE for place in self._crew):
            log.error("every %s process ended with a usage error: none is started again", self._what)
            return WRONG_USAGE
        log.error("every %s process was refused, and waiting does not help: none is started again", self._what)
        return 1

    def _start(self, place: _Place) -> None:
        # A group of its own, so that a Ctrl-C reaches the parent alone. The pipe also tells the child when the parent
        # is gone, however it went.
        environment = {**os.environ, SUPERVISED: "1"}
        theirs: tuple[int, ...] = ()
        if self._hear is not None:
            place.ear, mouth = os.pipe()
            theirs = (mouth,)
            environment[EAR] = str(mouth)
        try:
            place.process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, bufsize=0, process_group=0, env=environment, pass_fds=theirs
            )
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        place.started = time.monotonic()
        place.told = 0
        place.is_refused = False

    def _look_after(self, place: _Place) -> None:
        if place.process is None:
            if place.is_open and time.monotonic() >= place.start_at and not self._signals:
                if place.is_refused:
                    log.warning("others run: starting %s process %d once more", self._what, place.number)
                self._start(place)
            elif self._signals:
                place.is_open = False
                place.code = 0  # it was to be started again, and need not be any more
            return
        code = place.leave()
        if code is None:
            return
        if self._hear is not None and place.report:
            self._hear(place.report)
        # One that ended of the signal itself had not begun to work.
        place.code = 0 if self._signals and -code in (signal.SIGTERM, signal.SIGINT) else code
        if code in (0, MOVED_AWAY) or self._signals:
            place.is_open = False
            return
        if time.monotonic() - place.started > STEADY_S:
            place.pause_s = FIRST_PAUSE_S
        elif code in (WRONG_USAGE, REFUSED):
            place.is_refused = True
        if place.is_refused:
            # Whether it is started again depends on what becomes of the others meanwhile.
            log.error("%s process %d %s: waiting does not cure that", self._what, place.number, ended(code))
        else:
            then = f"starting it again in {place.pause_s:.1f} s"
            log.error("%s process %d %s: %s", self._what, place.number, ended(code), then)
        place.start_at = time.monotonic() + place.pause_s
        place.pause_s = min(LONGEST_PAUSE_S, place.pause_s * 2)

    def _catch_signals(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def count(number: int, frame: FrameType | None) -> None:
            self._signals += 1
            if self._signals == len(WORDS):
                self._hurried = time.monotonic()

        before = {name: signal.signal(name, count) for name in (signal.SIGTERM, signal.SIGINT)}

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
        self.told = 0
        self.is_refused = False
        """It ended at its start with what another start does not cure, and has not been started again."""
        self.ear: int | None = None
        self.report = b""
        """What the last process here told in the end."""

    def tell(self, signals: int) -> None:
        """Pass on what the parent was told: the first signal as `stop`, the second as `hurry`."""
        if self.process is None or self.process.stdin is None:
            return
        while self.told < min(signals, len(WORDS)):
            with contextlib.suppress(OSError):  # it has just ended
                self.process.stdin.write(WORDS[self.told])
            # And a signal, which ends one that does not listen yet because it is still being started.
            self.process.send_signal(signal.SIGTERM)
            self.told += 1

    def leave(self) -> int | None:
        """The exit code, if the process has ended; then the place is free."""
        code = None if self.process is None else self.process.poll()
        if code is not None and self.process is not None:
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.process = None
            self._listen()
        return code

    def _listen(self) -> None:
        self.report = b""
        if self.ear is None:
            return
        # What was told is in the pipe by now. A program that a handler left behind may hold its other end open.
        os.set_blocking(self.ear, False)
        with contextlib.suppress(BlockingIOError):
            self.report = os.read(self.ear, LONGEST_REPORT)
        os.close(self.ear)
        self.ear = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.leave()


def parents_ear() -> int | None:
    """In a child whose parent wants a report: where to write it, in one piece."""
    ear = os.environ.pop(EAR, None)
    if ear is None or os.environ.get(SUPERVISED) != "1":
        return None
    os.set_inheritable(int(ear), False)
    return int(ear)


def heed_parent(stop: Callable[[], None], hurry: Callable[[], None]) -> bool:
    """In a child: do what the parent says, and stop when it is gone. False in a process that has no such parent."""
    # Taken out of the environment: programs that handlers start have parents of their own.
    if os.environ.pop(SUPERVISED, None) != "1":
        return False

    def listen() -> None:
        heard = b""
        while said := os.read(0, 1024):
            *lines, heard = (heard + said).split(b"\n")
            for line in lines:
                (hurry if line + b"\n" == WORDS[1] else stop)()
        stop()

    threading.Thread(target=listen, name="taskharbor-parent", daemon=True).start()
    return True
