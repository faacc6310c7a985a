"""Several processes at one SQLite file, some of which come and go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor import NewJob
from taskharbor.drivers import open_driver

VISITOR = """
import sys
from taskharbor.drivers import open_driver
with open_driver(sys.argv[1]) as driver:
    for item in driver.reserve("default", limit=10):
        driver.ack(item.job.id, item.lease.token)
    print(driver.counts()["ready"], driver.counts()["done"])
"""


def visit(url: str) -> list[int]:
    """What another process sees, which works off the queue, closes the store and ends."""
    done = subprocess.run([sys.executable, "-c", VISITOR, url], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.process
def test_a_process_that_leaves_takes_nothing_away_from_those_that_stay(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with open_driver(url) as staying, open_driver(url) as second:
        staying.migrate()
        for turn in range(1, 4):
            staying.enqueue([NewJob("x")])
            second.enqueue([NewJob("y")])
            assert staying.counts()["ready"] == 2
            assert visit(url) == [0, 2 * turn]
            assert staying.counts()["done"] == 2 * turn
        assert Path(tmp_path, "jobs.db-wal").exists()
