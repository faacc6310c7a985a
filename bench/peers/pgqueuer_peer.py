"""PGQueuer on asyncpg and uvloop, in batches of 1,000, with its log of every job as it comes."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

import psycopg

from bench import child
from bench.child import tell, told_to_go, until_end_of_input
from bench.children import latencies, nothing_left, python, together

BATCH = 1_000
PAYLOAD = b"x" * 100


class PgQueuer:
    name = "PGQueuer"
    settings = f"asyncpg, uvloop, batches of {BATCH:,}, its log of every job on (its default)"

    def missing(self) -> str | None:
        for package in ("pgqueuer", "asyncpg", "uvloop"):
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: pip install 'taskharbor[bench]'"
        return None

    def prepare(self, address: str) -> None:
        async def install() -> None:
            connection, queries = await _connect(address)
            await queries.install()
            await connection.close()

        asyncio.run(install())

    def enqueue_one_by_one(self, address: str, count: int) -> float:
        return _rate(address, "single", str(count))

    def fill(self, address: str, count: int) -> float:
        return _rate(address, "fill", str(count))

    def drain(self, address: str, processes: int) -> float:
        done = _rate(address, "drain", processes=processes)
        with psycopg.connect(address) as connection:
            nothing_left(connection.execute("SELECT count(*) FROM pgqueuer").fetchone()[0])
        return done

    def latency(self, address: str, samples: int) -> list[float]:
        with asyncio.Runner() as runner:
            connection, queries = runner.run(_connect(address))
            try:
                return latencies(
                    python(__name__, "listen"),
                    address,
                    lambda number: runner.run(queries.enqueue("bench", str(number).encode(), 0)),
                    samples,
                )
            finally:
                runner.run(connection.close())


def _rate(address: str, *words: str, processes: int = 1) -> float:
    count, seconds = together(python(__name__, *words), address, processes)
    return count / seconds


async def _connect(address: str) -> tuple[Any, Any]:
    import asyncpg
    from pgqueuer.queries import Queries

    connection = await asyncpg.connect(address)
    return connection, Queries.from_asyncpg_connection(connection)


# --- In the child ---------------------------------------------------------------------------------------------


async def _enqueue(address: str, mode: str, wanted: int) -> None:
    _, queries = await _connect(address)

    async def many(count: int) -> None:
        await queries.enqueue(["bench"] * count, [PAYLOAD] * count, [0] * count)

    await many(BATCH)
    told_to_go()
    started = time.time()
    if mode == "single":
        for _ in range(wanted):
            await queries.enqueue("bench", PAYLOAD, 0)
    else:
        for done in range(0, wanted, BATCH):
            await many(min(BATCH, wanted - done))
    tell(count=wanted, started=started, ended=time.time())


async def _work(address: str, mode: str) -> None:
    import asyncpg
    from pgqueuer.core.qm import QueueManager
    from pgqueuer.models import Job
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    started = ended = 0.0
    finished = 0

    class Counted(Queries):
        async def log_jobs(self, job_status: Any) -> None:
            """Where PGQueuer commits the end of jobs."""
            nonlocal ended, finished
            await super().log_jobs(job_status)
            finished += len(job_status)
            ended = time.time()

    pool = await asyncpg.create_pool(address, min_size=4, max_size=4)
    manager = QueueManager(Counted.from_asyncpg_pool(pool))

    if mode == "drain":

        @manager.entrypoint("bench")
        async def nothing(job: Job) -> None:
            nonlocal started
            started = started or time.time()

        told_to_go()
        await manager.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
        tell(count=finished, started=started, ended=ended)
        return

    @manager.entrypoint("bench")
    async def report(job: Job) -> None:
        tell(number=int(job.payload or b""), at=time.time())

    def stop_at_end_of_input() -> None:
        told_to_go()
        until_end_of_input()
        loop.call_soon_threadsafe(manager.shutdown.set)

    loop = asyncio.get_running_loop()
    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    await manager.run(batch_size=BATCH)


def _main(mode: str, count: str = "0") -> None:
    import uvloop

    work: Coroutine[Any, Any, None] = (
        _work(child.address(), mode) if mode in {"drain", "listen"} else _enqueue(child.address(), mode, int(count))
    )
    uvloop.run(work)


if __name__ == "__main__":
    _main(*sys.argv[1:])
