"""Spark workers in processes of their own: drained by the command, killed in mid-run, told to stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline import quick_java
from tests.pipeline.clusters import LOCAL
from tests.pipeline.exact import feed

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver

pytestmark = [pytest.mark.process, pytest.mark.slow]

HERE = Path(__file__).parents[2]
PATIENCE_S = 200.0
APPLICATION = """\
import time
from taskharbor import Harbor

harbor = Harbor()


@harbor.task(queue="mail")
def send(n: int) -> int:
    time.sleep(n / 1000)
    return n


@harbor.task(queue="mail")
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""


class Command:
    """`taskharbor pipeline work` in a directory that holds the application."""

    def __init__(self, place: Path, url: str, master: str, *words: str) -> None:
        (place / "yard.py").write_text(APPLICATION)
        path = os.pathsep.join([str(HERE / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        self._errors = (place / "errors.txt").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "taskharbor", "--url", url, "-A", "yard:harbor", "pipeline", "work", "-q", "mail",
             "--master", master, "--json", *words],
            cwd=place,
            # Executors are told nothing by what their driver is told in Spark's own variable.
            env={**os.environ, "PYTHONPATH": path, "TASKHARBOR_URL": "", "JDK_JAVA_OPTIONS": quick_java.chosen()},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )  # fmt: skip

    def report(self) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self._errors.seek(0)
        self.errors = self._errors.read()
        self._errors.close()
        assert self.process.returncode == 0, self.errors[-3000:]
        found: dict[str, Any] = json.loads(out)
        return found

    def descendants(self) -> dict[int, str]:
        """The processes below the command, each with its command line."""
        children: dict[int, list[int]] = {}
        lines: dict[int, str] = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(path.name))
        found, left = {}, list(children.get(self.process.pid, ()))
        while left:
            pid = left.pop()
            found[pid] = lines.get(pid, "")
            left += children.get(pid, ())
        return found


def eventually(look: Callable[[], Any], what: str) -> Any:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen in {PATIENCE_S:.0f} s")


def enqueue(driver: Driver, type: str, count: int, name: str, value: float) -> None:
    driver.enqueue([NewJob(type, json.dumps({name: value}).encode(), queue="mail") for _ in range(count)])


def assert_each_job_was_done_once(driver: Driver, count: int) -> None:
    done = Counter(row.job_id for row in feed(driver) if row.attempt and row.attempt.outcome == "succeeded")
    assert (len(done), set(done.values())) == (count, {1})
    counts = driver.counts()
    assert (counts["done"], counts["ready"], counts["inflight"], counts["dlq"]) == (count, 0, 0, 0)


def _busy(driver: Driver) -> set[str]:
    """Who has ended an attempt."""
    return {row.attempt.worker for row in feed(driver) if row.attempt}


def test_the_command_drains_two_thousand_jobs_with_two_processes(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    enqueue(sqlite_driver, "send", 2000, "n", 1)
    report = Command(tmp_path, sqlite_url, "local[2]", "--slots", "8").report()
    assert (report["ended"], report["succeeded"], report["left"], report["problems"]) == ("drained", 2000, 0, [])
    assert {re.findall(r"-p(\d)-", name)[0] for name in report["workers"]} == {"0", "1"}
    assert_each_job_was_done_once(sqlite_driver, 2000)


@pytest.mark.timeout(500)
def test_jobs_of_a_killed_executor_and_of_a_killed_worker_are_each_done_once(postgres: Any, tmp_path: Path) -> None:
    count = 3000  # enough for those that come anew to have their part
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
        enqueue(driver, "send", count, "n", 20)
        command = Command(tmp_path, url, LOCAL, "--slots", "4", "--lease", "3s")

        def executors() -> list[int]:
            return [pid for pid, line in command.descendants().items() if "CoarseGrainedExecutorBackend" in line]

        def busy() -> bool:
            return command.process.poll() is not None or len(driver.workers()) == 2

        eventually(lambda: busy() and driver.counts()["done"] >= 100, "the first hundred jobs")
        before = {worker.id for worker in driver.workers()}
        os.kill(executors()[0], signal.SIGKILL)
        eventually(lambda: len({worker.id for worker in driver.workers()} - before) == 1, "another worker")
        [other] = {worker.id for worker in driver.workers()} - before
        eventually(lambda: other in _busy(driver), "a job of the other worker")
        assert command.process.poll() is None
        # Python processes that serve tasks are children of a daemon, which is one of the executor.
        lines = command.descendants()
        daemons = [pid for pid, line in lines.items() if "pyspark.daemon" in line]
        workers = {worker.pid for worker in driver.workers()} & set(daemons)
        os.kill(min(workers), signal.SIGKILL)
        report = command.report()
        assert report["ended"] == "drained"
        assert report["succeeded"] == count
        assert report["lapsed"] > 0
        assert report["leased"] == report["left"] == 0
        assert len(report["workers"]) >= 3
        assert {re.findall(r"-e(\d+)-", name)[0] for name in report["workers"]} >= {"0", "1"}
        assert_each_job_was_done_once(driver, count)
        assert not driver.workers()


@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
def test_a_signal_stops_in_good_order_and_the_jobs_go_back(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, signals: int
) -> None:
    enqueue(sqlite_driver, "nap", 6, "seconds", 90)
    grace = "1s" if signals == 1 else "80s"
    command = Command(tmp_path, sqlite_url, "local[2]", "--slots", "2", "--grace", grace)
    eventually(lambda: sum(len(job.lease_owner or "") > 0 for job in sqlite_driver.list().jobs) >= 2, "two jobs")
    for number in range(signals):
        time.sleep(1.0 if number else 0.0)
        command.process.send_signal(signal.SIGTERM if number == 0 else signal.SIGINT)
    report = command.report()
    assert (report["ended"], report["leased"], report["succeeded"], report["left"]) == ("stopped", 0, 0, 6)
    assert "stopping: 2 workers" in command.errors
    counts = sqlite_driver.counts()
    assert (counts["ready"], counts["inflight"]) == (6, 0)
