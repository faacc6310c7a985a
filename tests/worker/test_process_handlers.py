"""Handlers in processes of their own: the same endings, and they can be killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker import process_app as app
from tests.worker.crew import finished, outcomes, until

from taskharbor.core.limits import Limits
from taskharbor.core.model import Progress
from taskharbor.drivers import open_driver
from taskharbor.worker.runtime import Worker

pytestmark = pytest.mark.process

Begin = Callable[..., Worker]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    started: list[Worker] = []
    driver = open_driver(f"sqlite:///{tmp_path}/jobs.db", limits=Limits(max_payload_bytes=4_000))
    driver.migrate()
    with app.harbor._store.exchanged(driver):

        def make(**options: Any) -> Worker:
            worker = app.harbor.worker(**{"fleet": False, "concurrency": 2, **options})
            started.append(worker)
            worker.start()
            return worker

        yield make
        for worker in started:
            worker.hurry()
            worker.stop()
    driver.close()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_all_kinds_of_handlers_share_one_queue(begin: Begin) -> None:
    begin()
    jobs = [app.whoami.enqueue(), app.plain.enqueue(), app.coroutine.enqueue(), app.whoami.enqueue()]
    first, plain, coroutine, second = finished(app.harbor, *jobs)
    assert os.getpid() not in (first.result, second.result)
    assert plain.result.startswith("taskharbor-default-")
    assert coroutine.result == "taskharbor-loop"


def test_results_progress_and_every_ending_come_through(begin: Begin) -> None:
    begin()
    hows = ["fine", "boom", "retry", "snooze", "cancel", "dead", "exit", "large", "strange"]
    jobs = [app.squares.enqueue(5)] + [app.ending.enqueue(how) for how in hows]
    views = finished(app.harbor, *jobs)
    assert (views[0].result, views[0].progress) == ([0, 1, 4, 9, 16], Progress(5, 5, "all"))
    assert {how: (view.state, outcomes(view)) for how, view in zip(hows, views[1:], strict=True)} == {
        "fine": ("done", ["succeeded"]),
        "boom": ("dlq", ["retried", "dead"]),
        "retry": ("done", ["retried", "succeeded"]),
        "snooze": ("done", ["snoozed", "succeeded"]),
        "cancel": ("cancelled", ["cancelled"]),
        "dead": ("dlq", ["dead"]),
        "exit": ("dlq", ["retried", "dead"]),
        "large": ("dlq", ["dead"]),
        "strange": ("dlq", ["dead"]),
    }
    assert views[2].attempts[0].error.endswith("ValueError: the reason")


def test_a_handler_that_ends_its_process_fails_like_any_other_and_costs_nobody_else(begin: Begin) -> None:
    begin()
    jobs = [app.die.enqueue("kill"), app.die.enqueue("exit"), app.whoami.enqueue(), app.plain.enqueue()]
    killed, left, process, plain = finished(app.harbor, *jobs)
    for view, how in ((killed, "killed by SIGKILL"), (left, "exit code 7")):
        assert (view.state, view.record.dlq_code, outcomes(view)) == ("dlq", "max_attempts", ["retried", "dead"])
        assert how in view.attempts[0].error
    assert (process.state, plain.state) == ("done", "done")


def test_a_process_past_its_timeout_is_killed(begin: Begin, tmp_path: Path) -> None:
    begin()
    note = tmp_path / "pid"
    job = app.hang.using(timeout=0.2).enqueue(str(note))
    [view] = finished(app.harbor, job)
    assert (view.state, view.record.dlq_code) == ("dlq", "max_attempts")
    assert view.attempts[0].error == "timed out after 0.2 s, and its process was killed"
    until(lambda: not is_running(int(note.read_text())))
    assert finished(app.harbor, app.whoami.enqueue())[0].state == "done", "the slot goes on with a new process"


def test_cancelling_kills_the_process(begin: Begin, tmp_path: Path) -> None:
    begin(lease_s=0.6)
    note = tmp_path / "pid"
    job = app.hang.enqueue(str(note))
    until(note.exists)
    app.harbor.cancel(job)
    [view] = finished(app.harbor, job)
    assert (view.state, outcomes(view)) == ("cancelled", ["cancelled"])
    until(lambda: not is_running(int(note.read_text())))


def test_stopping_kills_what_does_not_end_and_gives_the_job_back(begin: Begin, tmp_path: Path) -> None:
    worker = begin(grace_s=0)
    note = tmp_path / "pid"
    job = app.hang.enqueue(str(note))
    until(lambda: note.exists() and note.read_text())
    worker.stop()
    view = app.harbor.job(job)
    assert (view.state, outcomes(view), view.record.attempts) == ("ready", ["released"], 0)
    until(lambda: not is_running(int(note.read_text())))
