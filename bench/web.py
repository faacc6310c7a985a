"""`taskharbor serve`: how fast jobs come in over HTTP, and how soon it says how things stand when there are many."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import ours
from bench.children import ChildFailed, python, started
from bench.harness import Result, Turns, say
from bench.stores import Scale, Store, fresh
from bench.web_server import Running, serving

PROCESSES = 2
CONNECTIONS = 64
BULK_REQUESTS = 4
ASKED = 200
PATHS = {"stats": "/api/v1/stats", "overview": "/", "metrics": "/metrics"}
JOB = json.dumps({"type": "bench", "payload": {"text": "x" * 89}}).encode()


def enqueue_over_http(store: Store, scale: Scale) -> list[Result]:
    """One job a request, on connections that are kept; and many jobs a request."""
    count = scale.drain // 5
    turns, waits = Turns(), Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: {count:,} single and {2 * scale.drain:,} bulk enqueues over HTTP, round {turn + 1}")
        with fresh(store) as (driver, url), serving(driver, url, PROCESSES) as running:
            single = running.head("POST", "/api/v1/jobs", _about("application/json", len(JOB))) + JOB
            _asked(running, single, "201", count // 10, CONNECTIONS)
            found = _asked(running, single, "201", count, CONNECTIONS)
            turns.add("single", found["count"] / found["seconds"])
            waits.add("p50", found["taken"][count // 2] * 1_000)
            waits.add("p99", found["taken"][count * 99 // 100] * 1_000)
            turns.add("bulk", _bulk(running, 2 * scale.drain))
            expected = count // 10 + count + 2 * scale.drain
            if driver.counts()["ready"] != expected:
                raise ChildFailed(f"{driver.counts()['ready']:,} jobs are there instead of {expected:,}")
    where = f"{PROCESSES} processes, {store.name}"
    single_rate, bulk_rate = turns.median("single"), turns.median("bulk")
    return [
        Result("own", f"enqueue over HTTP, {where}", single_rate, 1_000, "requests/s", "budget", 1),
        Result("own", f"bulk over HTTP, {where}", bulk_rate, 30_000, "jobs/s", "budget", 1),
        Result("own", f"enqueue over HTTP p99, {where}", waits.median("p99"), waits.median("p50"), "ms", "its p50"),
    ]


def _bulk(running: Running, count: int) -> float:
    """Jobs a second in a few requests at once."""
    each = count // BULK_REQUESTS
    body = (JOB + b"\n") * each
    request = running.head("POST", "/api/v1/jobs/bulk", _about("application/x-ndjson", len(body))) + body
    found = _asked(running, request, "200", BULK_REQUESTS, BULK_REQUESTS)
    if found["last"]["enqueued"] != each:
        raise ChildFailed(f"a bulk request was answered with {found['last']}")
    return each * BULK_REQUESTS / float(found["seconds"])


def questions(store: Store, scale: Scale) -> list[Result]:
    """How soon the API and the overview answer beside a million jobs, half of them finished, while they are counted
    again and again."""
    with fresh(store) as (driver, url):
        half = scale.backlog // 2
        say(f"{store.name}: filling up with {half:,} finished and {half:,} waiting jobs")
        ours.fill(driver, half)
        ours.drain(driver, 2_000)
        ours.fill(driver, half)
        store.settle_down(url)
        with serving(driver, url, PROCESSES, tenant=None) as running:
            for path in PATHS.values():
                for _ in range(5 * PROCESSES):  # the first question to a process waits for its first count
                    running.get(path)
            ready = json.loads(running.get("/api/v1/stats"))["counts"]["ready"]
            if ready != half:
                raise ChildFailed(f"{ready:,} jobs wait instead of {half:,}")
            results = []
            for name, path in PATHS.items():
                taken = _one_by_one(running, path)
                goal = 1 if name != "metrics" else None
                results.append(
                    Result(
                        "own",
                        f"GET {name} p95 at {scale.backlog:,} jobs, {store.name}",
                        taken[len(taken) * 95 // 100],
                        50.0,
                        "ms",
                        "budget",
                        goal,
                        at_most=True,
                    )
                )
    return results


def _one_by_one(running: Running, path: str) -> list[float]:
    """Milliseconds, sorted. There is a pause after each, so that they are spread over many counts."""
    taken = []
    for _ in range(ASKED):
        began = time.perf_counter()
        running.get(path)
        taken.append((time.perf_counter() - began) * 1_000)
        time.sleep(0.05)
    return sorted(taken)


def _about(media_type: str, length: int) -> str:
    return f"Content-Type: {media_type}\r\nContent-Length: {length}\r\n"


def _asked(running: Running, request: bytes, wanted: str, count: int, connections: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as directory:
        path = Path(directory) / "request"
        path.write_bytes(request)
        words = (str(running.port), str(path), wanted, str(count), str(connections))
        with started(python("bench.web_client", *words), "") as (client,):
            client.go()
            return client.answer()
