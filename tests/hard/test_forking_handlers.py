"""Handlers that fork, in real workers: their children can be ended, and do nothing that is the worker's to do."""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hard.worker_crew import Site, children, is_running, site
from tests.waiting import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]
TOLD = re.compile(r"forked and its child, process (\d+), returned to the worker")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path) as made:
        yield made


def test_a_handler_ends_the_processes_of_its_pool(here: Site) -> None:
    [job] = here.enqueue("pooled")
    worker = here.worker("--drain", lease="30s")
    assert worker.wait(30) == 0
    assert here.get(job).result == b'"gave up"'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_ends_though_a_handler_has_left_a_process_behind(here: Site, number: signal.Signals) -> None:
    [job] = here.enqueue("leaving")
    worker = here.worker(lease="30s")
    until(lambda: here.get(job).status == "done", "the handler is through")
    [child] = children(worker.pid)
    worker.send_signal(number)
    assert worker.wait(20) == 0
    assert not is_running(child)


@pytest.mark.parametrize("kind", ["forking", "aforking", "bforking", "pforking"])
def test_a_child_that_returns_from_its_handler_runs_no_job(here: Site, kind: str) -> None:
    quick = "aquick" if kind == "aforking" else "quick"
    forks = here.enqueue(kind, 4)
    others = here.enqueue(quick, 300)
    worker = here.worker("--concurrency", "2", lease="30s")
    here.wait_for_ends(forks + others)
    assert Counter(here.noted(quick)) == dict.fromkeys(others, 1)
    assert {here.get(job).result for job in forks} == {b'"parent"'}
    told = 1 if kind == "bforking" else len(forks)
    spare = until(lambda: len(pids := TOLD.findall(here.logs())) == told and pids, "every child has been told of")
    until(lambda: not any(is_running(int(pid)) for pid in spare), "no child stays", 15)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert "Traceback" not in here.logs()
