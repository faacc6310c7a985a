"""Handlers that run in processes of their own, which find them by importing this module."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from taskharbor import Backoff, Cancel, Context, Harbor, Retry, Snooze, Unrecoverable

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


@harbor.task
def plain() -> str:
    return threading.current_thread().name


@harbor.task
async def coroutine() -> str:
    return threading.current_thread().name
