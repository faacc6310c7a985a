"""What only a worker or the command line can show: idle cost, many coroutines at once, time to start."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from bench import ours
from bench.harness import Result, Turns, say
from bench.stores import Scale, Store, fresh

IDLE_S = 10.0
AT_ONCE = 500


def idle(store: Store, scale: Scale) -> list[Result]:
    """P8, and the same for the other stores: what a worker costs while it has nothing to do."""
    seconds = IDLE_S if scale.rounds > 1 else 3.0
    say(f"{store.name}: an idle worker for {seconds:g} s")
    with fresh(store) as (_, url):
        share = 100 * ours.idle_share(url, seconds)
    return [Result("P8", f"idle worker, {store.name}", share, 1.0, "% core", "budget", 1, at_most=True)]


def many_coroutines(store: Store, scale: Scale) -> list[Result]:
    """P11: coroutine handlers of 10 ms, 500 at once, beside coroutine handlers that do nothing; or beside the same 500
    on a bare event loop, if that is all that Python can do in the time."""
    turns = Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: {scale.drain:,} coroutine handlers of 10 ms, round {turn + 1} of {scale.rounds}")
        for name in ("sleeping", "quick"):
            with fresh(store) as (driver, url):
                ours.fill(driver, scale.drain, name)
                store.settle_down(url)
                turns.add(name, ours.coroutines(url, AT_ONCE))
        turns.add("bare", asyncio.run(_bare_loop(scale.drain)))
    label = f"10 ms coroutines, {AT_ONCE} at once, {store.name}"
    slow, quick, bare = turns.median("sleeping"), turns.median("quick"), turns.median("bare")
    binds = bare is not None and quick is not None and bare < quick
    return [
        Result("P11", label, slow, quick, "jobs/s", "coroutines that do nothing", None if binds else 0.8),
        Result("P11", label, slow, bare, "jobs/s", "a bare event loop, no queue", 0.8 if binds else None),
    ]


async def _bare_loop(count: int) -> float:
    """As many coroutines that wait for 10 ms, again and again, without any queue: how many a second."""
    share = count // AT_ONCE

    async def one() -> None:
        for _ in range(share):
            await asyncio.sleep(0.01)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return share * AT_ONCE / (time.perf_counter() - began)


def start_up(store: Store, scale: Scale) -> list[Result]:
    """P12: how long the command line and the import take."""
    say("the command line and the import")
    with fresh(store) as (_, url):
        listing = _seconds(["-m", "taskharbor", "--url", url, "jobs", "list"], scale)
    helping = _seconds(["-m", "taskharbor", "--help"], scale)
    bare = _seconds(["-c", "pass"], scale)
    importing = _seconds(["-c", "from taskharbor import Harbor"], scale) - bare  # the package alone imports nothing
    return [
        Result("P12", "taskharbor --help", helping * 1e3, 250.0, "ms", "budget", 1, at_most=True),
        Result("P12", f"jobs list, {store.name}", listing * 1e3, 250.0, "ms", "budget", 1, at_most=True),
        Result("P12", "from taskharbor import Harbor", importing * 1e3, 60.0, "ms", "budget", 1, at_most=True),
    ]


def _seconds(words: Sequence[str], scale: Scale) -> float:
    taken = []
    for _ in range(3 * scale.rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=os.environ)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
