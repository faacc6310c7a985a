"""Applications that start a worker wherever they are read, and so in each process of a handler as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor import Harbor
from taskharbor.testing import enqueued

MODULE = """
from taskharbor import Backoff, Harbor

harbor = Harbor({url!r}, migrate=True)

@harbor.task(pool="process", max_attempts=2, retry=Backoff(base=0))
def work(n: int) -> int:
    return n

@harbor.task
def beside() -> None: ...
"""
SCRIPT = """
import contextlib
import threading

from taskharbor import JobFailed

def ended(job: object) -> None:
    with contextlib.suppress(JobFailed):
        harbor.wait(job, timeout=50)

beside.enqueue()
job = work.enqueue(1)
"""
ADVICE = 'put that under `if __name__ == "__main__":`'


def ran(script: Path) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=script.parent,
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stderr


HOWS = {
    "drain": "harbor.worker(concurrency=1, fleet=False).drain()",
    "run": """
worker = harbor.worker(concurrency=1, fleet=False)
threading.Thread(target=lambda: (ended(job), worker.stop())).start()
worker.run()
""",
    "start": """
worker = harbor.worker(concurrency=1, fleet=False)
worker.start()
ended(job)
worker.stop()
""",
}


@pytest.mark.parametrize("how", HOWS)
def test_a_script_that_starts_a_worker_unguarded_is_told_and_its_children_take_no_jobs(
    tmp_path: Path, how: str
) -> None:
    url, script = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "script.py"
    script.write_text(MODULE.format(url=url) + SCRIPT + HOWS[how])
    assert ADVICE in ran(script)
    with Harbor(url) as harbor:
        jobs = enqueued(harbor, "work")
        assert len(jobs) == 2, "the child enqueued one more before it came to the worker, and no other child was made"
        assert ADVICE in jobs[0].error
        assert len({attempt.worker for job in enqueued(harbor) for attempt in job.attempts}) == 1


def test_a_module_that_starts_a_worker_when_it_is_imported_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    (tmp_path / "its_module.py").write_text(MODULE.format(url=url) + HOWS["drain"])
    script = tmp_path / "script.py"
    script.write_text(
        """
if __name__ == "__main__":
    from its_module import harbor, work
    work.enqueue(1)
    harbor.worker().drain()
"""
    )
    ran(script)
    with Harbor(url) as harbor:
        [job] = enqueued(harbor, "work")
        assert job.state == "dlq"
        assert ADVICE in job.error


def test_an_application_that_cannot_be_read_in_the_child_is_told_from_a_handler_that_crashed(tmp_path: Path) -> None:
    url, script = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "script.py"
    script.write_text(
        MODULE.format(url=url) + "if __name__ != '__main__':\n    raise SystemExit(3)\n" + SCRIPT + HOWS["drain"]
    )
    ran(script)
    with Harbor(url) as harbor:
        said = "without a word while it read the application, which it does before it begins (exit code 3)"
        assert said in enqueued(harbor, "work")[0].error
