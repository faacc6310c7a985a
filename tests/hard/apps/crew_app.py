"""The application of the tests with real processes. What its handlers do, they write into a file in LOG_DIR."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from taskharbor import Backoff, Context, Harbor

harbor = Harbor(migrate=False, retry=Backoff(base=0.01))
DIRECTORY = Path(os.environ["CREW_DIRECTORY"])


def note(what: str, context: Context) -> None:
    """One line in one write, so that a kill leaves whole lines."""
    line = f"{what} {context.job.id} {os.getpid()} {context.fence}\n"
    descriptor = os.open(DIRECTORY / "ran", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@harbor.task
def quick(context: Context) -> None:
    note("quick", context)


@harbor.task
async def aquick(context: Context) -> None:
    note("aquick", context)
    await asyncio.sleep(0.002)


@harbor.task
def slow(seconds: float, context: Context) -> None:
    note("begin", context)
    time.sleep(seconds)
    note("end", context)


@harbor.task
def gated(context: Context) -> str:
    """Goes on when the test says so; a second run does not wait."""
    note("begin", context)
    while context.fence == 1 and not (DIRECTORY / "go").exists():
        time.sleep(0.005)
    note("end", context)
    return f"fence {context.fence}"


@harbor.task
async def agated(context: Context) -> None:
    note("begin", context)
    while not (DIRECTORY / "go").exists():  # noqa: ASYNC110 - the test is another process
        await asyncio.sleep(0.005)


@harbor.task(max_attempts=2)
def suicide(context: Context) -> None:
    note("suicide", context)
    os.kill(os.getpid(), signal.SIGKILL)


@harbor.task(pool="process", max_attempts=1)
def pgated(context: Context) -> None:
    note("begin", context)
    while not (DIRECTORY / "go").exists():
        time.sleep(0.005)


@harbor.task(pool="process")
def heavy(context: Context) -> None:
    note("begin", context)
    time.sleep(600)
