"""Twenty processes that start on an empty store at the same moment, as a deployment does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hard.crew import STORES, new_store, together

from taskharbor.drivers import open_driver

pytestmark = [pytest.mark.process, pytest.mark.slow]

CHILD = """
driver = open_driver(url)
driver.migrate()
driver.enqueue([NewJob("t", id=f"job-{number}")])
driver.migrate()
driver.close()
"""


@pytest.mark.parametrize("kind", STORES)
def test_twenty_processes_migrate_at_once_and_share_one_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, seed: str
) -> None:
    url = new_store(request, kind, tmp_path)
    together(20, CHILD, url, seed)
    with open_driver(url) as driver:
        # Had one of them made the tables anew, the job of another would be gone.
        assert {job.id for job in driver.list().jobs} == {f"job-{number}" for number in range(20)}
        assert len(driver.reserve("default", limit=100)) == 20
