"""Worker processes for the hard tests, started as people start them, and what to ask of a store afterwards."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.waiting import PATIENCE_S, until

from taskharbor.core.contract import Driver
from taskharbor.core.model import Job, NewJob
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import everything

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
APP = "tests.hard.apps.crew_app:harbor"
STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)]


class Site:
    """One store, one directory, and the workers on it."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.driver: Driver = open_driver(url)
        self.driver.migrate()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs = 0

    def worker(
        self, *words: str, lease: str = "1s", script: Sequence[str] = ("-m", "taskharbor"), **environment: str
    ) -> subprocess.Popen[bytes]:
        self._logs += 1
        with (self.directory / f"log-{self._logs}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *script, "-A", APP, "worker", "--lease", lease, *words],
                cwd=ROOT,
                env={
                    **os.environ,
                    "TASKHARBOR_URL": self.url,
                    "CREW_DIRECTORY": str(self.directory),
                    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._workers.append(process)
        return process

    def enqueue(self, kind: str, count: int = 1, payload: bytes = b"{}", **fields: Any) -> list[str]:
        jobs = [NewJob(kind, payload, **fields) for _ in range(count)]
        return [answer.id for answer in self.driver.enqueue(jobs)]

    def ran(self) -> list[tuple[str, str, int, int]]:
        """What handlers noted: what, the job, the process, the fence."""
        try:
            text = (self.directory / "ran").read_text()
        except FileNotFoundError:
            return []
        whole, _, _ = text.rpartition("\n")  # what follows is being written at this moment
        lines = [line.split() for line in whole.splitlines()]
        return [(what, job, int(pid), int(fence)) for what, job, pid, fence in lines]

    def noted(self, what: str) -> list[str]:
        return [job for each, job, _, _ in self.ran() if each == what]

    def go(self) -> None:
        (self.directory / "go").touch()

    def get(self, job: str) -> Job:
        return self.driver.get(job)

    def wait_for_ends(self, jobs: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        def ended() -> bool:
            counts = self.driver.counts()
            return counts["ready"] + counts["inflight"] == 0

        until(ended, "every job has ended", patience_s)
        assert self.driver.counts().queues
        assert len(jobs) == len(set(jobs))

    def depose_the_dead(self) -> None:
        """As if the term of a leader that was killed had ended, which takes half a minute: until then nobody mends
        what it left half done. Only when no worker is left."""
        assert all(process.poll() is not None for process in self._workers)
        for leader in self.driver.leaders():
            self.driver.resign(leader.name, leader.holder, leader.epoch)

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text('utf-8', 'replace')}" for path in sorted(self.directory.glob("log-*"))
        )

    def check(self, jobs: Sequence[str], **counts: int) -> None:
        """Every job is there, ended exactly once, and is counted where it ended."""
        found = everything(self.driver)
        assert set(found) == set(jobs)
        by_status = Counter(str(job.status) for job in found.values())
        assert dict(by_status) == {name: count for name, count in counts.items() if count}
        stated = self.driver.counts()
        assert {name: stated[name] for name in stated if stated[name]} == dict(by_status)
        ends: Counter[str] = Counter()

        def all_ends() -> bool:
            ends.clear()
            cursor = None
            while (page := self.driver.history(cursor, 10_000)).rows:
                ends.update(row.job_id for row in page.rows if row.job is not None)
                cursor = page.cursor
            return len(ends) >= len(jobs)

        until(all_ends, "history has everything", 15.0)
        assert ends == dict.fromkeys(jobs, 1), "a job ended twice, or without a trace"

    def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """SIGSTOP, but not in the middle of a write: whoever freezes then keeps a SQLite file or the rows of an open
        transaction locked until it thaws, and no other process can do anything about that."""
        while True:
            process.send_signal(signal.SIGSTOP)
            until(lambda: _threads_states(process.pid) == {"T"}, "every thread is frozen", 10)
            if self.url.startswith("sqlite:"):
                free = _can_be_written(self.url.removeprefix("sqlite:///"))
            else:
                free = _no_transaction_is_open(self.url)
            if free:
                return
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def close(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(10)
        self.driver.close()


@contextmanager
def site(url: str, directory: Path) -> Iterator[Site]:
    made = Site(url, directory)
    try:
        yield made
    finally:
        made.close()
        sys.stdout.write(made.logs())  # shown if the test fails


def _threads_states(pid: int) -> set[str]:
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def _can_be_written(path: str) -> bool:
    connection = sqlite3.connect(path, timeout=0.3, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def _no_transaction_is_open(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(10):
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start IS NOT NULL"
            ).fetchone()
            if row == (0,):
                return True
            time.sleep(0.02)  # what the server had received is being worked off
    return False


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def family(pid: int) -> list[int]:
    """The process and all that come from it: what a service manager by default sends its signal to."""
    return [pid, *(each for child in children(pid) for each in family(child))]
