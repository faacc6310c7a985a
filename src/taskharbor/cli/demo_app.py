"""The application of `taskharbor demo`: a handful of tasks of every kind, and a worker in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from typing import Any, Final

from taskharbor.app import Context, Harbor
from taskharbor.core.outcome import Cancel
from taskharbor.core.retry import Backoff

FRAMES: Final = 40
FRAME_S: Final = 0.05
BLOCKS: Final = 600
FETCH_S: Final = 0.2
SHORT_LEASE_S: Final = 2.0
"""The lease of the worker that is killed: its job is free again that long after its last sign of life."""
ORDERS: Final = "TASKHARBOR_DEMO_ORDERS"

gateway_works = threading.Event()
"""The fix: as long as it is not set, no card can be charged."""

_pattern = Harbor("memory://")
"""Never opened. Its tasks are at the top of this module, where the processes of a pool look for theirs."""


@_pattern.task(name="report.build")
def build_report(month: str) -> dict[str, Any]:
    return {"month": month, "pages": 12}


@_pattern.task(name="invoice.send")
def send_invoice(number: int) -> str:
    return f"invoice {number} sent"


@_pattern.task(name="email.send", retry=Backoff(base=0.3, jitter="none"))
def send_email(to: str, *, context: Context) -> str:
    if context.attempt == 1:
        raise ConnectionError("mail server busy")
    return f"sent to {to}"


@_pattern.task(name="card.charge", max_attempts=2, retry=Backoff(base=0.1, jitter="none"))
def charge_card(cents: int) -> str:
    if not gateway_works.is_set():
        raise ConnectionError("the payment gateway refuses us")
    return f"charged {cents} cents"


@_pattern.task(name="digest.send")
def send_digest(week: int) -> str:
    return f"digest of week {week} sent"


@_pattern.task(name="pulse.beat")
def beat() -> None: ...


@_pattern.task(name="video.encode")
def encode_video(title: str, *, context: Context) -> str:
    for frame in range(FRAMES):
        time.sleep(FRAME_S)
        context.progress(frame + 1, FRAMES, note="frames")
    return f"{title}: {FRAMES} frames"


@_pattern.task(name="primes.count", pool="process")
def count_primes(below: int) -> dict[str, int]:
    """Keeps a core busy, so it runs in a process of its own; it says which."""
    composite = bytearray(below)
    for number in range(2, int(below**0.5) + 1):
        if not composite[number]:
            composite[number * number :: number] = b"\1" * len(range(number * number, below, number))
    return {"primes": composite.count(0) - 2, "process": os.getpid()}


@_pattern.task(name="feed.fetch")
async def fetch_feed(name: str) -> str:
    await asyncio.sleep(FETCH_S)
    return f"{name} fetched"


@_pattern.task(name="backup.run")
def run_backup(*, context: Context) -> int:
    for block in range(BLOCKS):
        if context.cancelled:
            raise Cancel(f"stopped after {block} of {BLOCKS} blocks")
        time.sleep(0.05)
        context.progress(block + 1, BLOCKS, note="blocks")
    return BLOCKS


@_pattern.task(name="number.double")
def double(number: int) -> int:
    return 2 * number


def slow(queue: str) -> str:
    """Where the long jobs wait, so that the quick ones are not behind them."""
    return f"{queue}-slow"


def application(url: str, queue: str, *, migrate: bool) -> Harbor:
    """These tasks on a store, their jobs in queues of their own, with one task on a schedule."""
    harbor = Harbor(url, queue=queue, migrate=migrate)
    for task in _pattern.tasks.values():
        harbor.task(name=task.name, pool=task.pool, retry=task.retry, max_attempts=task.max_attempts)(task.function)
    harbor.periodic("@every 1s", name=pulse(queue))(harbor.tasks["pulse.beat"])
    return harbor


def pulse(queue: str) -> str:
    """The name of the schedule."""
    return f"{queue}-pulse"


def orders(url: str, queue: str, name: str) -> dict[str, str]:
    """The environment of a process that is to `serve`: the URL may hold a password, which has no place in the words
    of a command."""
    return {**os.environ, ORDERS: json.dumps({"url": url, "queue": queue, "name": name})}


def serve() -> None:
    """Run a worker for the long jobs, as the orders say."""
    given = json.loads(os.environ[ORDERS])
    harbor = application(given["url"], given["queue"], migrate=False)
    harbor.worker({slow(given["queue"]): 1}, name=given["name"], lease_s=SHORT_LEASE_S, poll_interval_s=0.1).run()
