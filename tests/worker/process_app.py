"""Handlers that run in processes of their own, which find them by importing this module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from taskharbor import Backoff, Batch, Cancel, Context, Harbor, Retry, Snooze, Unrecoverable

harbor = Harbor("memory://process-app", retry=Backoff(base=0))


@harbor.task(pool="process")
def whoami() -> int:
    return os.getpid()


@harbor.task(pool="process")
def squares(count: int, context: Context) -> list[int]:
    context.progress(count, count, "all")
    context.extend(100)
    return [number * number for number in range(count)]


@harbor.task(pool="process", max_attempts=2)
def ending(how: str, context: Context) -> object:
    match how:
        case "boom":
            raise ValueError("the reason")
        case "retry" if context.attempt == 1:
            raise Retry(0, "once more")
        case "snooze" if context.fence == 1:
            raise Snooze(0)
        case "cancel":
            raise Cancel("no need")
        case "dead":
            raise Unrecoverable("broken")
        case "exit":
            raise SystemExit(3)
        case "large":
            return "x" * 5_000
        case "strange":
            return object()
    return how


@harbor.task(pool="process", max_attempts=2)
def die(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)


@harbor.task(pool="process", max_attempts=1)
def hang(where: str) -> None:
    Path(where).write_text(str(os.getpid()))
    time.sleep(600)


@harbor.task(pool="process", max_attempts=1)
def chatter(where: str, context: Context) -> None:
    """Reports without a pause."""
    Path(where).write_text(str(os.getpid()))
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        context.progress(1)
        context.extend(5)


@harbor.task(pool="process")
def note(name: str, where: str) -> str:
    with Path(where).open("a") as file:
        file.write(f"{name}\n")
    return name


@harbor.task(pool="process")
def many_voices(context: Context) -> str:
    """Reports from several threads at once, one of which outlives the job."""
    long = "x" * 500

    def report() -> None:
        for number in range(300):
            context.progress(number, 300, long)

    def go_on() -> None:
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            context.progress(0, 1, "of the job before")
            time.sleep(0.001)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in (*threads, threading.Thread(target=go_on, daemon=True)):
        thread.start()
    for thread in threads:
        thread.join()
    return "heard"


@harbor.task(pool="process", max_attempts=1)
def measure(text: str) -> int:
    return len(text)


@harbor.task(pool="process", max_attempts=1)
def signalled(where: str) -> str:
    """Tells its process, and waits for a file called go beside it."""
    Path(where).write_text(str(os.getpid()))
    go = Path(where).with_name("go")
    while not go.exists():
        time.sleep(0.005)
    return "went on"


@harbor.task(pool="process", max_attempts=1)
def mortal(where: str) -> None:
    """One that made SIGTERM deadly again."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Path(where).write_text(str(os.getpid()))
    time.sleep(600)


@harbor.task(pool="process")
def starts_program() -> int:
    """Starts a program and ends it as programs are ended."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"], stdout=-1
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.terminate()
        return program.wait(10)


@harbor.task
def plain() -> str:
    return threading.current_thread().name


@harbor.task
async def coroutine() -> str:
    return threading.current_thread().name


# --- Batches -------------------------------------------------------------------------------------------------


@harbor.task(pool="process", batch=50, batch_wait=0.3, max_attempts=2)
def batched(batch: Batch[dict[str, str]]) -> dict[str, Any] | None:
    """Each item says how it is to end; the rest says what the whole is to do."""
    results: dict[str, Any] = {}
    for item in batch:
        match item.arguments["how"]:
            case "early":
                item.progress(1, 1, "all")
                item.done(os.getpid())
            case "boom":
                item.fail(ValueError("the reason"))
            case "with":
                with item:
                    raise ValueError("of this one")
            case "snooze" if item.fence == 1:
                item.snooze(0)
            case "cancel":
                item.cancel("no need")
            case "dead":
                item.unrecoverable("broken")
            case "large":
                results[item.id] = "x" * 5_000
            case "size":
                results[item.id] = len(batch)
    for item in batch.unsettled:
        if item.arguments["how"] == "die" and item.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if item.arguments["how"] == "raise" and item.attempt == 1:
            raise KeyError("for all that are left")
    return results


@harbor.task(pool="process", batch=50, batch_wait=0.3, max_attempts=1)
def watching(batch: Batch[dict[str, str]]) -> None:
    """Tells its process, and goes on until an item is to stop or is lost."""
    Path(batch[0].arguments["where"]).write_text(str(os.getpid()))
    batch[0].done()
    ends = time.monotonic() + 60
    while time.monotonic() < ends and not any(item.cancelled or item.lost for item in batch.unsettled):
        time.sleep(0.01)
