"""A process that has a store open may fork: nothing is lost, and no child waits for a thread that it does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taskharbor.core.model import JobFilter
from taskharbor.drivers import open_driver

pytestmark = pytest.mark.process

PARENT_LEAVES = """
import os, sys
from taskharbor import NewJob
from taskharbor.drivers import open_driver

driver = open_driver(sys.argv[1])
driver.migrate()
driver.enqueue([NewJob("parent")])
driver.list()
listener = driver.listen("default")
closed, close = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    driver.enqueue([NewJob("first")])
    os.write(close[1], b"x")
    os.read(closed[0], 1)
    driver.enqueue([NewJob("second")])
    assert len(driver.list().jobs) == 3
    os._exit(0)
os.read(close[0], 1)
listener.close()
driver.close()
os.write(closed[1], b"x")
assert os.waitpid(child, 0)[1] == 0
"""

THREADS_WORK = """
import os, signal, sys, threading
from taskharbor import NewJob
from taskharbor.drivers import open_driver

driver = open_driver(sys.argv[1])
driver.migrate()
stop, counts = threading.Event(), []

def work(call):
    count = 0
    while not stop.is_set():
        call()
        count += 1
    counts.append(count)

calls = [lambda: driver.enqueue([NewJob("parent")]), driver.counts, lambda: driver.reserve("none", lease_for=30)]
threads = [threading.Thread(target=work, args=(call,), daemon=True) for call in calls]
for thread in threads:
    thread.start()
children = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs is a failure, and not one of the test run
        driver.now()
        driver.enqueue([NewJob("child")])
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
stop.set()
for thread in threads:
    thread.join()
print(counts and max(counts))
driver.close()
"""


def fork(script: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_child_enqueues_stays_when_its_parent_leaves_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    fork(PARENT_LEAVES, url)
    with open_driver(url) as driver:  # type: ignore[attr-defined]
        assert sorted(job.type for job in driver.list().jobs) == ["first", "parent", "second"]


@pytest.mark.parametrize("store", ["json", "sqlite", "postgres", "mysql"])
def test_children_of_a_process_with_busy_threads_can_work(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    match store:
        case "json":
            url = f"json:///{tmp_path / 'store'}"
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'jobs.db'}"
        case _:
            server: Any = request.getfixturevalue(store)
            url = server.create_database()
    fork(THREADS_WORK, url, "12")
    with open_driver(url) as driver:  # type: ignore[attr-defined]
        assert driver.count(JobFilter(type="child")) == 12
