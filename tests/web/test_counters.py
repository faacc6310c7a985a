"""Counters of a server with several processes, on stores that several processes share."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.web.feeding import happen

from taskharbor.drivers import open_driver
from taskharbor.web.following import Feed

PATIENCE_S = 60.0
WRITERS = 3
JOBS = 40


def ended(text: str) -> int:
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return int(sum(sample.value for sample in families["taskharbor_attempts"].samples))


@pytest.mark.concurrency
@pytest.mark.parametrize("store", ["postgres", "mysql"])
def test_readers_agree_and_never_go_back_while_many_write(
    store: str, request: pytest.FixtureRequest, rng: random.Random
) -> None:
    url: str = request.getfixturevalue(f"{store}_url")
    url += ("&" if "?" in url else "?") + "prefix=counters_"
    with open_driver(url) as driver, open_driver(url) as other:
        driver.migrate()
        happen(driver, count=3)
        start = driver.latest(None, 1).cursor
        feeds = [Feed(driver, start, page=7), Feed(other, start)]

        def write(number: int) -> None:
            for _ in range(JOBS):
                happen(other, queue=f"q{number}", tenant=f"t{number}")

        writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for each in writers:
            each.start()
        seen, ends = [0], time.monotonic() + PATIENCE_S
        while seen[-1] < WRITERS * JOBS:
            assert time.monotonic() < ends, seen[-1]
            feed = rng.choice(feeds)
            if feed.catch_up(10):
                seen.append(sum(tally.attempts for tally in feed.totals().values()))
        for each in writers:
            each.join()
        assert seen == sorted(seen)
        for feed in feeds:
            assert feed.catch_up(10)
        for tenant in (None, "t0", "t1", "t2"):
            assert feeds[0].totals(tenant) == feeds[1].totals(tenant)
        assert feeds[0].recent("t1").attempts == JOBS
        assert feeds[0].recent().attempts == WRITERS * JOBS + 3, "what came before the start is in the windows"


@pytest.mark.process
def test_a_scrape_never_sees_a_counter_go_back_not_even_when_a_process_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with open_driver(url) as driver:
        driver.migrate()
        happen(driver, count=5)
        with serving(url) as (server, address):
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
            done = threading.Event()

            def work() -> None:
                while not done.is_set():
                    happen(driver, count=5)
                    time.sleep(0.01)

            worker = threading.Thread(target=work)
            worker.start()
            try:
                seen = scraped(address, 40)
                os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
                seen += scraped(address, 60)
            finally:
                done.set()
                worker.join()
            seen += scraped(address, 10)
            assert seen == sorted(seen)
            assert len(set(seen[-10:])) == 1, "every process has read to the end"
            assert seen[-1] == driver.census()[0].count - 5
            server.terminate()
            assert server.wait(PATIENCE_S) == 0


def scraped(address: str, count: int) -> list[int]:
    """Each by a new connection, which either of the processes may get."""
    found: list[int] = []
    ends = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < ends
        try:
            with urlopen(f"{address}/metrics", timeout=20) as answer:
                found.append(ended(answer.read().decode()))
        except HTTPError as error:
            error.close()
            if error.code != 503:
                raise
        except OSError:
            time.sleep(0.01)  # it was for the one that is gone
    return found


@contextmanager
def serving(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "taskharbor", "--json", "serve", "--port", "0", "--processes", "2"]
    environment = {**os.environ, "TASKHARBOR_URL": url, "TASKHARBOR_LOG_LEVEL": "warning"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            text = ""
            while not text.rstrip().endswith("\n}"):
                line = server.stdout.readline()
                assert line, "the server did not start"
                text += line
            yield server, json.loads(text)["addresses"][0]
        finally:
            server.kill()
