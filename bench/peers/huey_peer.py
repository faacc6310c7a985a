"""Huey on SQLite: write-ahead log and a sync at every commit, as ours. It has no bulk insert of its own: `map` commits
once a job. It deletes a job before running it and keeps no history, so it promises, and does, less."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bench import child
from bench.child import tell, told_to_go, until_end_of_input
from bench.children import latencies, nothing_left, python, together

PAYLOAD = b"x" * 100
CHUNK = 1_000
WORKERS = 1


class Huey:
    name = "Huey"
    settings = (
        f"SqliteHuey, journal_mode=wal, fsync=True, results off, {WORKERS} worker thread (more are slower: they share "
        "one connection and its lock), polling as by default; bulk is task.map, which commits job by job"
    )

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("huey") else "huey is not installed: pip install 'taskharbor[bench]'"

    def prepare(self, address: str) -> None:
        _open(address).storage.close()

    def fill(self, address: str, count: int) -> float:
        return _rate(address, "fill", str(count))

    def drain(self, address: str, processes: int) -> float:
        done = _rate(address, "drain", processes=processes)
        huey = _open(address)
        left = huey.storage.queue_size()
        huey.storage.close()
        nothing_left(left)
        return done

    def latency(self, address: str, samples: int) -> list[float]:
        huey = _open(address)
        bench = _task(huey, _nothing)
        try:
            return latencies(python(__name__, "listen"), address, bench, samples)
        finally:
            huey.storage.close()


def _rate(address: str, *words: str, processes: int = 1) -> float:
    count, seconds = together(python(__name__, *words), address, processes)
    return count / seconds


def _open(address: str) -> Any:
    from huey import SqliteHuey

    return SqliteHuey(filename=address, fsync=True, results=False)


def _task(huey: Any, handler: Callable[[Any], None]) -> Any:
    """The one task, under the same name in every process: Huey finds it by its module and name."""
    handler.__module__ = "bench"
    return huey.task(name="nothing")(handler)


def _nothing(_argument: Any) -> None:
    return None


# --- In the child ---------------------------------------------------------------------------------------------


def _fill(address: str, wanted: int) -> None:
    bench = _task(_open(address), _nothing)
    bench.map([PAYLOAD] * 100)
    told_to_go()
    started = time.time()
    for done in range(0, wanted, CHUNK):
        bench.map([PAYLOAD] * min(CHUNK, wanted - done))
    tell(count=wanted, started=started, ended=time.time())


def _drain(address: str) -> None:
    huey = _open(address)
    waiting = huey.storage.queue_size()
    begun: list[float] = []
    empty = threading.Event()
    handled = 0

    def count(_argument: Any) -> None:
        nonlocal handled
        if not handled:
            begun.append(time.time())
        handled += 1
        if handled == waiting:
            empty.set()

    _task(huey, count)
    consumer = huey.create_consumer(workers=WORKERS, periodic=False, check_worker_health=False)
    told_to_go()
    consumer.start()
    # The row is gone, and that is committed, before the handler starts: the last start is the durable end.
    empty.wait()
    ended = time.time()
    consumer.stop(graceful=True)
    tell(count=handled, started=begun[0], ended=ended)


def _listen(address: str) -> None:
    huey = _open(address)

    def report(number: int) -> None:
        tell(number=number, at=time.time())

    _task(huey, report)
    consumer = huey.create_consumer(workers=WORKERS, periodic=False)
    consumer.start()
    told_to_go()
    until_end_of_input()
    consumer.stop(graceful=True)


def _main(mode: str, count: str = "0") -> None:
    if mode == "fill":
        _fill(child.address(), int(count))
    elif mode == "drain":
        _drain(child.address())
    else:
        _listen(child.address())


if __name__ == "__main__":
    _main(*sys.argv[1:])
