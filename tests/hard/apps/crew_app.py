"""The application of the tests with real processes. What its handlers do, they write into a file in LOG_DIR."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from pathlib import Path

from taskharbor import Backoff, Batch, Context, Harbor

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


@harbor.task(batch=40, batch_wait=0.2)
def batched(batch: Batch[dict[str, int]]) -> None:
    """Settles one job in four early; then it waits for the test, but only on the first delivery."""
    for item in batch:
        note("begin", item)
        if item.arguments["n"] % 4 == 0:
            note("early", item)
            item.done("early")
    while any(item.fence == 1 for item in batch.unsettled) and not (DIRECTORY / "go").exists():
        time.sleep(0.005)


@harbor.task(batch=25)
def brisk(batch: Batch[dict[str, int]]) -> list[str]:
    """Some end one by one, the others together."""
    for item in batch:
        note("brisk", item)
        if item.arguments["n"] % 3 == 0:
            item.done("alone")
        time.sleep(0.001)
    return ["together"] * len(batch)


@harbor.task(batch=25)
async def abrisk(batch: Batch[dict[str, int]]) -> None:
    for item in batch:
        with item:
            note("brisk", item)
            await asyncio.sleep(0.001)


@harbor.task(max_attempts=1)
def pooled(context: Context) -> str:
    """Gives up on what its processes do, and leaves the pool, which terminates them and waits for their end."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        busy = [pool.apply_async(time.sleep, (600,)) for _ in range(2)]
        note("begin", context)
        try:
            busy[0].get(timeout=0.3)
        except multiprocessing.TimeoutError:
            return "gave up"
    return "all done"


@harbor.task(max_attempts=1)
def leaving(context: Context) -> None:
    """Leaves a process behind that only a signal ends."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    note("begin", context)


@harbor.task(max_attempts=1)
def forking(context: Context) -> str:
    return "child" if os.fork() == 0 else "parent"


@harbor.task(max_attempts=1)
async def aforking(context: Context) -> str:
    child = os.fork() == 0
    await asyncio.sleep(0)
    return "child" if child else "parent"


@harbor.task(batch=5, max_attempts=1)
def bforking(batch: Batch[dict[str, int]]) -> list[str]:
    return ["child" if os.fork() == 0 else "parent"] * len(batch)


@harbor.task(max_attempts=1, pool="process")
def pforking(context: Context) -> str:
    return "child" if os.fork() == 0 else "parent"
