"""Workflows where every job runs where it is enqueued."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskharbor import PREVIOUS, RESULTS, Harbor, Snooze, Unrecoverable, Workflow, chain, chord
from taskharbor.testing import inline


@pytest.fixture
def harbor(tmp_path: Path) -> Harbor:
    return Harbor(f"sqlite:///{tmp_path}/jobs.db")


def test_inline_a_workflow_has_run_when_start_returns(harbor: Harbor) -> None:
    @harbor.task
    def square(n: int) -> int:
        return n * n

    @harbor.task(queue="sums")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with inline(harbor):
        run = harbor.start(chord([square.s(n=2), square.s(n=3)], total.s(numbers=RESULTS)))
        assert (run.state, run.result("finalizer")) == ("done", 13)
        assert harbor.start(chain(total.s(numbers=[1, 2]), square.s(n=PREVIOUS))).result("2-square") == 9


def test_inline_a_workflow_that_a_handler_starts_has_run_too(harbor: Harbor) -> None:
    @harbor.task
    def note(n: int) -> int:
        return n

    @harbor.task
    def begin() -> str:
        return harbor.start(chain(note.s(n=1), note.using(queue="other").s(n=PREVIOUS))).state

    with inline(harbor):
        assert harbor.wait(begin.enqueue()) == "done"


def test_inline_a_failed_workflow_is_undone_or_goes_on_with_a_redrive(harbor: Harbor) -> None:
    broken = [True]
    ran: list[str] = []

    @harbor.task
    def work(name: str) -> None:
        if broken:
            raise Unrecoverable("out of order")
        ran.append(name)

    @harbor.task(queue="undo")
    def undo() -> None:
        ran.append("undone")

    with inline(harbor):
        assert harbor.start(chain(work.s(name="a"), on_failure=undo.s())).state == "compensated"
        run = harbor.start(chain(work.s(name="a"), work.using(queue="other").s(name="b")))
        by_job = harbor.start(chain(work.s(name="c"), work.using(queue="other").s(name="d")))
        assert (run.state, by_job.state, ran) == ("failed", "failed", ["undone"])
        broken.clear()
        assert run.redrive().state == "done"
        assert ran == ["undone", "a", "b"]
        harbor.retry(next(by_job.steps()).job_id)
        assert by_job.refresh().state == "done"
        assert ran == ["undone", "a", "b", "c", "d"]


def test_inline_steps_that_are_not_due_wait_and_a_cancelled_one_lets_the_others_go(harbor: Harbor) -> None:
    ran: list[str] = []

    @harbor.task
    def later() -> None:
        raise Snooze(60)

    @harbor.task(queue="other")
    def note() -> None:
        ran.append("ran")

    flow = Workflow("waits", on_failure="continue")
    flow.step("note", note.s(), after=flow.step("later", later.s()))
    with inline(harbor):
        run = harbor.start(flow)
        assert (run.state, ran) == ("running", [])
        harbor.cancel(next(run.steps()).job_id)
        assert (run.refresh().state, ran) == ("failed", ["ran"])


def test_inline_the_error_of_a_step_is_raised_where_its_workflow_was_started(harbor: Harbor) -> None:
    @harbor.task
    def broken() -> None:
        raise LookupError("gone")

    @harbor.task(queue="other")
    def hopeless() -> None:
        raise Unrecoverable("no such user")

    @harbor.task
    def fine() -> None: ...

    with inline(harbor, raise_errors=True):
        with pytest.raises(LookupError):
            harbor.start(chain(broken.s(), fine.s()))
        with pytest.raises(Unrecoverable):
            harbor.start(chain(fine.s(), hopeless.s()))
        assert harbor.start(chain(fine.s(), fine.s())).state == "done"
        assert harbor.job(fine.enqueue()).state == "done"
