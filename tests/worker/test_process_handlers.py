"""Handlers in processes of their own: the same endings, and they can be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until
from tests.worker import process_app as app
from tests.worker.crew import finished, outcomes

from taskharbor.core.errors import LeaseExpired
from taskharbor.core.limits import Limits
from taskharbor.core.model import Progress
from taskharbor.drivers import open_driver
from taskharbor.worker import heartbeat
from taskharbor.worker.processes import Processes
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


def said(note: Path) -> bool:
    return note.exists() and bool(note.read_text())


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


def test_a_handler_that_ends_its_process_fails_like_any_other_and_costs_nobody_else(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    worker = begin()
    jobs = [app.die.enqueue("kill"), app.die.enqueue("exit"), app.whoami.enqueue(), app.plain.enqueue()]
    killed, left, process, plain = finished(app.harbor, *jobs)
    for view, how in ((killed, "killed by SIGKILL"), (left, "exit code 7")):
        assert (view.state, view.record.dlq_code, outcomes(view)) == ("dlq", "max_attempts", ["retried", "dead"])
        assert how in view.attempts[0].error
    assert (process.state, plain.state) == ("done", "done")
    worker.stop()  # a line is written when the store has been told
    assert "die failed for good (its process was killed by SIGKILL)" in caplog.messages
    assert "die failed for good (its process ended with exit code 7)" in caplog.messages


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


# --- What a child says -------------------------------------------------------------------------------------


def test_a_child_whose_job_was_lost_says_nothing_about_the_next(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = app.harbor.driver
    extend = driver.extend

    def refuse(items: Any, **more: Any) -> Any:
        monkeypatch.setattr(driver, "extend", extend)
        return [LeaseExpired("gone") for _ in items]

    begin(concurrency=1, lease_s=2)
    first, ran = tmp_path / "pid", tmp_path / "ran"
    app.chatter.using(max_attempts=1).enqueue(str(first))
    until(lambda: said(first))
    jobs = [app.note.enqueue(f"job {number}", str(ran)) for number in range(3)]
    monkeypatch.setattr(driver, "extend", refuse)
    until(lambda: not is_running(int(first.read_text())), "the handler without a lease is killed")
    views = finished(app.harbor, *jobs)
    assert [view.result for view in views] == ["job 0", "job 1", "job 2"]
    assert ran.read_text().splitlines() == ["job 0", "job 1", "job 2"], "each has really run, and once"


def test_an_error_in_the_slot_costs_the_child_and_not_the_next_job(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confused(word: Any, held: Any) -> None:
        monkeypatch.undo()
        raise RuntimeError("a fault of our own")

    begin(concurrency=1)
    monkeypatch.setattr("taskharbor.worker.processes.heard", confused)
    note = tmp_path / "pid"
    broken = app.chatter.enqueue(str(note))
    [view] = finished(app.harbor, broken)
    assert (view.state, "a fault of our own" in view.attempts[0].error) == ("dlq", True)
    until(lambda: not is_running(int(note.read_text())))
    [after] = finished(app.harbor, app.note.enqueue("after", str(tmp_path / "ran")))
    assert after.result == "after"


def heard_heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Grows with each step of a heartbeat that has ended, from now on."""
    beats: list[float] = []
    step = heartbeat.Heartbeat.step

    def counted(self: heartbeat.Heartbeat, moment: float) -> None:
        step(self, moment)
        beats.append(moment)

    monkeypatch.setattr(heartbeat.Heartbeat, "step", counted)
    return beats


def test_threads_of_a_handler_may_report_at_once_and_are_not_heard_after_it(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(concurrency=1)
    [voices] = finished(app.harbor, app.many_voices.enqueue())
    assert (voices.state, voices.result) == ("done", "heard")
    note = tmp_path / "pid"
    job = app.signalled.enqueue(str(note))
    until(lambda: said(note))
    beats = heard_heartbeats(monkeypatch)
    until(lambda: len(beats) == 2, "a heartbeat would have taken the report to the store")
    (tmp_path / "go").touch()
    [view] = finished(app.harbor, job)
    assert (view.state, view.result, view.progress) == ("done", "went on", None)


@pytest.mark.parametrize("end", ["timeout", "cancel", "stop"])
def test_a_handler_that_reports_without_a_pause_can_be_ended(begin: Begin, tmp_path: Path, end: str) -> None:
    worker = begin(grace_s=0, lease_s=0.6)
    note = tmp_path / "pid"
    job = app.chatter.using(timeout=0.5 if end == "timeout" else None).enqueue(str(note))
    until(lambda: said(note))
    match end:
        case "cancel":
            app.harbor.cancel(job)
        case "stop":
            worker.stop()
    until(lambda: not is_running(int(note.read_text())), "its process is killed", 10)
    state = {"timeout": "dlq", "cancel": "cancelled", "stop": "ready"}[end]
    until(lambda: app.harbor.job(job).state == state, state)


# --- Starting, and signals ---------------------------------------------------------------------------------


def hanging_start(*arguments: Any) -> None:
    """In place of the child's own beginning: one that never comes to read its job."""
    time.sleep(600)


@pytest.mark.parametrize("end", ["cancel", "stop", "timeout"])
def test_a_large_job_for_a_child_that_hangs_at_its_start_can_be_ended(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("taskharbor.worker.processes.serve", hanging_start)
    monkeypatch.setattr("taskharbor.worker.processes.START_S", 1.0)
    monkeypatch.setattr(app.harbor.driver, "limits", Limits(max_payload_bytes=1_000_000), raising=False)
    worker = begin(grace_s=0, lease_s=0.6)
    job = app.measure.using(timeout=0.1 if end == "timeout" else None).enqueue("x" * 500_000)
    until(lambda: app.harbor.job(job).state == "running")
    until(multiprocessing.active_children)
    match end:
        case "cancel":
            app.harbor.cancel(job)
        case "stop":
            began = time.monotonic()
            worker.stop()
            assert time.monotonic() - began < 5
    state = {"timeout": "dlq", "cancel": "cancelled", "stop": "ready"}[end]
    until(lambda: app.harbor.job(job).state == state, state)
    until(lambda: not multiprocessing.active_children())


def test_a_large_job_reaches_its_child(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.harbor.driver, "limits", Limits(max_payload_bytes=1_000_000), raising=False)
    begin(concurrency=1)
    views = finished(app.harbor, *[app.measure.enqueue("x" * size) for size in (900_000, 900_001)])
    assert [view.result for view in views] == [900_000, 900_001]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_also_comes_to_the_children_is_for_the_worker(
    begin: Begin, tmp_path: Path, number: signal.Signals
) -> None:
    begin()
    note = tmp_path / "pid"
    job = app.signalled.enqueue(str(note))
    # While it still imports, too: the process is there before anybody has read the handler.
    until(multiprocessing.active_children)
    until(lambda: _signal_children(number) and said(note))
    for _ in range(20):
        os.kill(int(note.read_text()), number)
    (tmp_path / "go").touch()
    [view] = finished(app.harbor, job)
    assert (view.state, view.result, outcomes(view)) == ("done", "went on", ["succeeded"])


def _signal_children(number: int) -> bool:
    for process in multiprocessing.active_children():
        assert process.pid is not None
        os.kill(process.pid, number)
    return True


def test_programs_that_a_handler_starts_heed_signals(begin: Begin) -> None:
    begin()
    [view] = finished(app.harbor, app.starts_program.enqueue())
    assert view.result == -signal.SIGTERM


@pytest.mark.parametrize("stopping", [True, False])
def test_a_child_that_dies_of_the_signal_that_stops_the_worker_burns_no_attempt(
    begin: Begin, tmp_path: Path, stopping: bool
) -> None:
    worker = begin(grace_s=10)
    note = tmp_path / "pid"
    job = app.mortal.enqueue(str(note))
    until(lambda: said(note))
    os.kill(int(note.read_text()), signal.SIGTERM)
    if stopping:
        worker.stop()
    else:
        finished(app.harbor, job)
    view = app.harbor.job(job)
    assert (view.state, outcomes(view)) == (("ready", ["released"]) if stopping else ("dlq", ["dead"]))


SCRIPT = """
import time
from tests.worker import process_app as app
from tests.waiting import until
from pathlib import Path

if __name__ == "__main__":
    where = Path({where!r})
    worker = app.harbor.worker(fleet=False, concurrency=1)
    worker.start()
    app.hang.enqueue(str(where))
    until(lambda: where.exists() and where.read_text())
"""


def test_a_program_that_ends_without_stopping_its_worker_ends(tmp_path: Path) -> None:
    script, note = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(SCRIPT.format(where=str(note)))
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *sys.path]))
    subprocess.run([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": path}, timeout=40, check=True)
    until(lambda: not is_running(int(note.read_text())))


def test_children_are_not_made_after_the_end() -> None:
    processes = Processes(Limits())
    processes.stop()
    assert type(processes.run(None)).__name__ == "Released"  # type: ignore[arg-type]


# --- Batches -------------------------------------------------------------------------------------------------


def batched(*hows: str) -> list[Any]:
    return list(app.batched.enqueue_many({"how": how} for how in hows))


def test_the_items_of_a_batch_end_in_every_way_there_too(begin: Begin) -> None:
    hows = ["early", "boom", "with", "snooze", "cancel", "dead", "large", "size", "plain"]
    jobs = batched(*hows)
    begin()
    views = finished(app.harbor, *jobs)
    assert {how: (view.state, outcomes(view)) for how, view in zip(hows, views, strict=True)} == {
        "early": ("done", ["succeeded"]),
        "boom": ("dlq", ["retried", "dead"]),
        "with": ("dlq", ["retried", "dead"]),
        "snooze": ("done", ["snoozed", "succeeded"]),
        "cancel": ("cancelled", ["cancelled"]),
        "dead": ("dlq", ["dead"]),
        "large": ("dlq", ["dead"]),
        "size": ("done", ["succeeded"]),
        "plain": ("done", ["succeeded"]),
    }
    assert (views[0].result != os.getpid(), views[0].progress) == (True, Progress(1, 1, "all"))
    assert (views[7].result, views[8].result) == (9, None)
    assert "ValueError: the reason" in views[1].error and "in batched" in views[2].error


@pytest.mark.parametrize(("how", "why"), [("die", "ended without a word"), ("raise", "KeyError: 'for all that are")])
def test_a_batch_whose_process_dies_or_raises_fails_only_what_was_not_settled(begin: Begin, how: str, why: str) -> None:
    jobs = batched("early", how, "plain")
    begin()
    views = finished(app.harbor, *jobs)
    assert [outcomes(view) for view in views] == [["succeeded"], ["retried", "succeeded"], ["retried", "succeeded"]]
    assert all(why in view.attempts[0].error for view in views[1:])


@pytest.mark.parametrize("how", ["cancelled", "lost"])
def test_one_job_of_a_batch_in_a_process_stops_alone(begin: Begin, how: str, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    jobs = list(app.watching.enqueue_many({"where": str(where)} for _ in range(3)))
    begin(lease_s=2)
    until(lambda: said(where), "the handler runs")
    if how == "lost":
        token = app.harbor.job(jobs[1]).record.lease_token
        assert token is not None
        app.harbor.driver.release(jobs[1].id, token)
    app.harbor.cancel(jobs[1])
    views = finished(app.harbor, *jobs)
    assert [view.state for view in views] == ["done", "cancelled", "done"]
    assert [outcomes(view) for view in (views[0], views[2])] == [["succeeded"], ["succeeded"]]


def test_a_batch_past_its_time_and_one_that_nobody_wants_are_killed(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between_steps, step = threading.Lock(), heartbeat.Heartbeat.step

    def alone(self: heartbeat.Heartbeat, moment: float) -> None:
        with between_steps:
            step(self, moment)

    monkeypatch.setattr(heartbeat.Heartbeat, "step", alone)
    where = [tmp_path / "late", tmp_path / "unwanted"]
    late = [app.watching.using(queue="a", timeout=limit).enqueue(where=str(where[0])) for limit in (60, 0.5, None)]
    unwanted = [app.watching.using(queue="b").enqueue(where=str(where[1])) for _ in range(3)]
    begin(queues=["a", "b"])
    until(lambda: all(said(each) for each in where), "both run")
    with between_steps:  # for the handler returns when it hears of one of them
        for job in unwanted[1:]:
            app.harbor.cancel(job)
    views = finished(app.harbor, *late, *unwanted)
    assert [view.state for view in views] == ["done", "dlq", "dlq", "done", "cancelled", "cancelled"]
    assert "timed out after 0.5 s" in views[1].error
    until(lambda: not is_running(int(where[0].read_text())), "the late one is killed")
