"""Other processes at work, ours and our peers' alike. A child finds the address of its store in its environment, where
no list of processes shows the password. It prints {"ready": true} once it has connected, waits for one line, does its
work and prints what it did as one line of JSON; so no start-up is ever on the clock."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.child import ADDRESS

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 600.0
WARM_UP = 5


class ChildFailed(Exception):
    """A child ended, or was ended for taking too long, before it gave its answer."""


class Child:
    def __init__(self, command: Sequence[str], address: str, environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {}), ADDRESS: address},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._watchdog = threading.Timer(LONGEST_S, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def answer(self) -> dict[str, Any]:
        """The next line that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise ChildFailed(f"{self._process.args!r} gave no answer:\n{self._errors.read()[-2_000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._watchdog.cancel()
        self._process.stdout.close()
        self._errors.close()


def python(module: str, *words: str) -> list[str]:
    """The command that runs a module of the bench in a child."""
    return [sys.executable, "-m", module, *words]


@contextlib.contextmanager
def started(
    command: Sequence[str], address: str, processes: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[list[Child]]:
    """Children that are ready, and gone when the block ends."""
    children: list[Child] = []
    try:
        children.extend(Child(command, address, environment) for _ in range(processes))
        for child in children:
            child.answer()
        yield children
    finally:
        for child in children:
            child.close()


def together(
    command: Sequence[str], address: str, processes: int = 1, environment: Mapping[str, str] | None = None
) -> tuple[int, float]:
    """What all of them did, and the seconds from the first one's start to the last one's end."""
    with started(command, address, processes, environment) as children:
        for child in children:
            child.go()
        answers = [child.answer() for child in children]
    working = [answer for answer in answers if answer["count"]]
    if not working:
        raise ChildFailed(f"{list(command)!r} found nothing to do")
    seconds = max(answer["ended"] for answer in working) - min(answer["started"] for answer in working)
    return sum(answer["count"] for answer in working), seconds


def nothing_left(count: int) -> None:
    """A drain counts only when the store agrees that it is one."""
    if count:
        raise ChildFailed(f"{count:,} jobs are still there after the drain")


def latencies(
    command: Sequence[str],
    address: str,
    enqueue: Callable[[int], None],
    samples: int,
    environment: Mapping[str, str] | None = None,
) -> list[float]:
    """Milliseconds from the return of a committed `enqueue(number)` to the start of its handler in a child, one job
    at a time on an idle queue, at moments that fit no poll."""
    taken: list[float] = []
    with started(command, address, environment=environment) as (child,):
        child.go()
        time.sleep(0.5)  # A worker that has just said it is ready may still be about to listen.
        for number in range(WARM_UP + samples):
            time.sleep(random.uniform(0.01, 0.06))
            enqueue(number)
            committed = time.time()
            begun = child.answer()
            if begun["number"] != number:
                raise ChildFailed(f"{list(command)!r} ran job {begun['number']} when {number} was due")
            if number >= WARM_UP:
                taken.append(max(0.0, begun["at"] - committed) * 1_000)
    return taken
