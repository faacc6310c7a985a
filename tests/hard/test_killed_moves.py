"""`taskharbor move`, killed for real: the same command brings everything over, once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreMoved
from taskharbor.core.model import NewJob, Settlement
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import everything

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

JOBS = 12_000


def run_and_kill(rng: random.Random, *words: str) -> tuple[str, int]:
    """Move, killed now and then, to the end: what it printed, and how often it was killed."""
    command = [sys.executable, "-m", "taskharbor", "--json", "move", *words]
    kills = 0
    while True:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TASKHARBOR_URL": ""},
        )
        assert process.stderr is not None
        said = process.stderr.readline()  # it is at work
        try:
            # The first is killed at once, so that one is however quick the machine; the next ones somewhere.
            out, rest = process.communicate(timeout=rng.uniform(0.0, 0.8) * min(kills, 1) if kills < 4 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, said + rest
        return out, kills


def test_a_move_that_is_killed_again_and_again_brings_everything_over_once(tmp_path: Path, rng: random.Random) -> None:
    urls = f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"
    source = open_driver(urls[0])
    source.migrate()
    source.enqueue([NewJob("work", b'{"n": %d}' % number) for number in range(JOBS)])
    for _ in range(4):
        leased = source.reserve("default", limit=1_000)
        source.settle([Settlement.ack(each.job.id, each.lease.token) for each in leased])
    before, facts = everything(source), source.history(limit=10_000).rows
    out, kills = run_and_kill(rng, *urls)
    assert kills > 0
    report = json.loads(out)
    assert report["done_before"] or report["rows"]["history"] == len(facts)
    target = open_driver(urls[1])
    assert everything(target) == before
    found = target.history(limit=10_000).rows
    assert [(row.job_id, row.at, row.outcome) for row in found] == [(row.job_id, row.at, row.outcome) for row in facts]
    assert len(target.reserve("default", limit=1_000)) == 1_000
    source.close()
    target.close()


def test_a_store_that_is_drained_by_a_move_that_is_killed_again_and_again_runs_each_job_once(
    tmp_path: Path, rng: random.Random
) -> None:
    urls = f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"
    drivers = [open_driver(url) for url in urls]
    for driver in drivers:
        driver.migrate()
    source, target = drivers
    accepted = [answer.id for answer in source.enqueue([NewJob("work", b"{}") for _ in range(4_000)])]
    ran: list[str] = []
    stopping = threading.Event()

    def work(driver: Driver) -> None:
        while not stopping.wait(0.02):
            try:
                leased = driver.reserve("default", limit=5, lease_for=3600)
            except StoreMoved:
                continue
            driver.settle([Settlement.ack(each.job.id, each.lease.token) for each in leased])
            ran.extend(each.job.id for each in leased)

    def produce() -> None:
        while not stopping.wait(0.01):
            try:
                accepted.extend(answer.id for answer in source.enqueue([NewJob("work", b"{}")]))
            except StoreMoved:
                return

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(produce), *(pool.submit(work, driver) for driver in drivers)]
        try:
            _, kills = run_and_kill(rng, *urls, "--live")
        finally:
            stopping.set()
        for each in running:
            each.result()
    assert kills > 0
    while leased := target.reserve("default", limit=1_000):
        target.settle([Settlement.ack(each.job.id, each.lease.token) for each in leased])
        ran.extend(each.job.id for each in leased)
    assert Counter(ran) == Counter(accepted)
    assert source.counts()["ready"] == 0
    done = Counter(row.job_id for row in target.history(limit=10_000).rows if row.status == "done")
    assert done == Counter(accepted)
    for driver in drivers:
        driver.close()
