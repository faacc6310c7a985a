"""Workers that are killed in the middle of workflows: every step runs, and every chord has one finalizer."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.hard.crew import new_store
from tests.hard.worker_crew import STORES, Site, site
from tests.waiting import until

from taskharbor.core.model import NewJob
from taskharbor.core.workflow import NewStep, NewWorkflow, WorkflowState

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

CHORDS = {"sqlite": 300, "postgresql": 10_000}
KILLS = 6


@pytest.fixture(params=STORES)
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site(new_store(request, request.param, tmp_path), tmp_path) as made:
        yield made


def workflows_of(here: Site) -> Iterator[tuple[str, WorkflowState]]:
    last: str | None = None
    while listed := here.driver.list_workflows(last, 10_000):
        yield from ((each.id, each.state) for each in listed)
        last = listed[-1].id


def test_chords_have_one_finalizer_each_however_many_workers_are_killed(here: Site) -> None:
    count = CHORDS[here.url.partition(":")[0]]
    children = [NewStep(f"child{n}", NewJob("quick", b"{}")) for n in range(2)]
    final = NewStep("final", NewJob("aquick", b"{}"), (0, 1))
    flow = NewWorkflow("chord", [*children, final])
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: here.driver.start_workflow(flow), range(count)))
    for number in range(KILLS):
        victim = here.worker("--concurrency", "16")
        before = len(here.ran())
        until(lambda before=before: len(here.ran()) > before + count // 20, f"worker {number} is at work")  # type: ignore[misc]
        victim.kill()
        victim.wait()
    here.depose_the_dead()
    for _ in range(2):
        here.worker("--concurrency", "16")
    until(lambda: here.driver.counts()["done"] == 3 * count, "every step is done", 200, look_s=0.5)
    # Whoever settles the last step ends the workflow just after it.
    until(lambda: {state for _, state in workflows_of(here)} == {WorkflowState.DONE}, "every workflow has ended", 60)
    assert sorted(id for id, _ in workflows_of(here)) == sorted(ids)
    finals: Counter[str] = Counter()
    cursor = None
    while (page := here.driver.history(cursor, 10_000)).rows:
        finals.update(row.job_id for row in page.rows if row.type == "aquick" and row.job is not None)
        cursor = page.cursor
    assert len(finals) == count
    assert set(finals.values()) == {1}, "a finalizer ended twice"
