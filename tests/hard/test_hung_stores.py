"""Workers whose store hangs, neither answering nor failing: they end in time all the same, and nothing is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.hard.worker_crew import Site, children, family, is_running, site
from tests.waiting import until

from taskharbor.testing.servers import ServerUnavailable, mysql_server, postgres_server
from taskharbor.worker.farewell import LONGEST_HURRIED_S, LONGEST_S

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(150),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

SLACK_S = 4.0
"""For a machine that is busy with other things. A store that hangs would keep a worker for ever."""
Hanging = Callable[[], AbstractContextManager[None]]
SERVERS = {"postgresql": postgres_server, "mysql": mysql_server}


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mysql", marks=pytest.mark.server),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, Hanging]]:
    """Workers on a store, and what makes it hang meanwhile."""
    if request.param == "sqlite":
        path = tmp_path / "store"
        with site(f"sqlite:///{path}", tmp_path) as here:
            yield here, lambda: _locked(path)
        return
    try:
        server: Any = SERVERS[request.param]()
        if not getattr(server, "controllable", False):
            pytest.skip("the server that was given is not ours to stop")
        with server as started, site(started.create_database(), tmp_path) as here:
            yield here, lambda: _frozen(started)
    except ServerUnavailable as error:
        pytest.skip(str(error))


ON_SQLITE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
"""For what has nothing to do with the store."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


@contextmanager
def _frozen(server: Any) -> Iterator[None]:
    """All processes of the server, of which there may be more at any moment as long as the first one goes on."""
    first: int = server._process.pid
    os.kill(first, signal.SIGSTOP)
    frozen = family(first)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def ended_after(worker: subprocess.Popen[bytes], since: float) -> float:
    worker.wait(100)
    return time.monotonic() - since


def wait_for_a_call() -> None:
    """Heartbeats and looks for work come within a second or two, and hang from then on."""
    threading.Event().wait(2.5)


def test_a_signal_ends_a_worker_whose_store_hangs_and_the_leases_do_the_rest(place: tuple[Site, Hanging]) -> None:
    here, hanging = place
    jobs = here.enqueue("agated", 2) + here.enqueue("gated") + here.enqueue("pgated")
    worker = here.worker("--concurrency", "5", "--grace", "1s", lease="6s")
    until(lambda: len(here.noted("begin")) == 4, "it is in mid-job")
    offspring = children(worker.pid)
    with hanging():
        wait_for_a_call()
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert ended_after(worker, began) < 1 + LONGEST_S + SLACK_S
        assert worker.returncode == 1
        until(lambda: not any(is_running(pid) for pid in offspring), "the processes of handlers end too", 15)
    logs = here.logs()
    assert logs.count("the worker ends without the store") == 1
    assert "Traceback" not in logs
    here.go()
    here.worker("--concurrency", "5", lease="5s")
    here.wait_for_ends(jobs)
    here.check(jobs, done=4)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_signal_ends_a_worker_whose_store_hangs_at_once(place: tuple[Site, Hanging], processes: str) -> None:
    here, hanging = place
    jobs = here.enqueue("gated", 2) + here.enqueue("agated", 2)
    worker = here.worker("--processes", processes, "--concurrency", "2", "--grace", "600s", lease="8s")
    until(lambda: len(here.noted("begin")) == 2 * int(processes), "every process is in mid-job")
    offspring = children(worker.pid)
    with hanging():
        wait_for_a_call()
        worker.send_signal(signal.SIGTERM)
        until(lambda: here.logs().count("stopping: ") == int(processes), "it waits for its handlers")
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert ended_after(worker, began) < LONGEST_HURRIED_S + SLACK_S
        assert worker.returncode == 1
        assert not any(is_running(pid) for pid in offspring)
    assert "Traceback" not in here.logs()
    here.go()
    here.worker("--concurrency", "5", lease="5s")
    here.wait_for_ends(jobs)
    here.check(jobs, done=4)


@pytest.mark.parametrize("mode", [[], ["--drain"], ["--drain", "--processes", "2"]])
def test_a_worker_that_begins_while_its_store_hangs_ends_when_it_is_told(
    place: tuple[Site, Hanging], mode: list[str]
) -> None:
    here, hanging = place
    [job] = here.enqueue("quick")
    with hanging():
        worker = here.worker("--grace", "1s", *mode)
        until(lambda: "taskharbor worker " in here.logs(), "it begins")
        wait_for_a_call()
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.3)  # two that come at once are one
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert ended_after(worker, began) < LONGEST_HURRIED_S + 1 + SLACK_S
    assert "Traceback" not in here.logs()
    assert (here.get(job).status, here.get(job).deliveries) == ("ready", 0)


@ON_SQLITE
@pytest.mark.parametrize("mode", [["--drain"], ["--max-jobs", "2"]])
def test_a_drain_that_is_told_to_stop_does_not_wait_for_a_store_that_hangs(
    place: tuple[Site, Hanging], mode: list[str]
) -> None:
    here, hanging = place
    here.enqueue("gated", 2)
    worker = here.worker("--grace", "1s", "--concurrency", "2", *mode, lease="3s")
    until(lambda: len(here.noted("begin")) == 2, "it is in mid-job")
    with hanging():
        wait_for_a_call()
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert ended_after(worker, began) < 1 + LONGEST_S + SLACK_S
        assert worker.returncode == 1
    assert "Traceback" not in here.logs()
