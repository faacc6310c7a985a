"""What can be learned of a job, and done to it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from taskharbor import (
    Backoff,
    Cancel,
    Context,
    Extension,
    Harbor,
    InvalidInput,
    JobFailed,
    JobNotFound,
    LeasedJob,
    Outcome,
    Status,
    WaitTimeout,
)
from taskharbor.app.context import Control
from taskharbor.core.model import Progress, RetryUpdate, Settlement
from taskharbor.core.outcome import CANCELLED_RUNNING


def taken(harbor: Harbor, queue: str = "default") -> LeasedJob:
    return harbor.driver.reserve(queue)[0]


def dead(harbor: Harbor, error: str = "boom", **options: Any) -> str:
    id = harbor.enqueue("t", **options).id
    leased = taken(harbor, options.get("queue", "default"))
    harbor.driver.fail(id, leased.lease.token, reason=error)
    return id


def test_a_job_tells_where_it_stands(harbor: Harbor) -> None:
    later = harbor.enqueue("t", delay=60)
    assert harbor.job(later).state == "scheduled"
    id = harbor.enqueue("t", {"a": 1}, meta={"m": "x"}).id
    assert (harbor.job(id).state, harbor.job(id).finished, harbor.job(id).result) == ("ready", False, None)
    leased = taken(harbor)
    assert harbor.job(id).state == "claimed"
    now = harbor.driver.now()
    progress = Progress(1, 2, "half")
    harbor.driver.extend([Extension(id, leased.lease.token, started_at=now, progress=progress)])
    view = harbor.job(id)
    assert (view.state, view.progress) == ("running", progress)
    harbor.driver.ack(id, leased.lease.token, result=b'{"sent":true}')
    done = view.refresh()
    assert (done.state, done.status, done.finished, done.succeeded) == ("done", Status.DONE, True, True)
    assert (done.result, done.arguments, done.meta, done.error) == ({"sent": True}, {"a": 1}, {"m": "x"}, "")
    assert done.completed_at is not None
    assert done.age == done.completed_at - done.created_at
    assert [attempt.outcome for attempt in done.attempts] == [Outcome.SUCCEEDED]
    assert view.state == "running"


def test_a_job_tells_what_went_wrong_at_each_attempt(harbor: Harbor) -> None:
    id = harbor.enqueue("t", max_attempts=2).id
    leased = taken(harbor)
    harbor.driver.retry(id, leased.lease.token, update=RetryUpdate(None, 1, "first", harbor.now()))
    assert (harbor.job(id).failures, harbor.job(id).error) == (1, "first")
    leased = taken(harbor)
    harbor.driver.fail(id, leased.lease.token, reason="second", code="max_attempts")
    view = harbor.job(id)
    assert [(attempt.number, attempt.error) for attempt in view.attempts] == [(1, "first"), (2, "second")]
    assert (view.state, view.error, view.reason) == ("dlq", "second", "max_attempts")
    assert repr(view).startswith(f"<job {id}: t in default, dlq")


def test_a_job_that_is_not_there_is_not_found(harbor: Harbor) -> None:
    for ask in (harbor.job, harbor.wait, harbor.cancel, harbor.retry):
        with pytest.raises(JobNotFound):
            ask("nothing")
        with pytest.raises(InvalidInput, match="a job is given by its id, .* got int"):
            ask(5)  # type: ignore[arg-type]


# --- Waiting ---------------------------------------------------------------------------------------------------


def test_wait_gives_the_result_of_a_job_that_is_done(harbor: Harbor) -> None:
    answer = harbor.enqueue("t")
    leased = taken(harbor)
    ack = threading.Timer(0.02, harbor.driver.ack, [answer.id, leased.lease.token], {"result": b"[1]"})
    ack.start()
    assert harbor.wait(answer, timeout=10) == [1]
    ack.join()
    assert asyncio.run(harbor.await_result(answer)) == [1]


def test_wait_gives_up_when_its_time_is_up(harbor: Harbor) -> None:
    id = harbor.enqueue("t").id
    for kind in (TimeoutError, WaitTimeout):
        with pytest.raises(kind, match=f"job {id} has not ended within 0.01 s"):
            harbor.wait(id, timeout=0.01)
    with pytest.raises(TimeoutError):
        harbor.wait(id, timeout=0)
    with pytest.raises(TimeoutError):
        asyncio.run(harbor.await_result(id, timeout=0.01))
    with pytest.raises(InvalidInput, match="timeout must be"):
        harbor.wait(id, timeout=-1)


def test_waiting_for_a_job_that_failed_raises_its_last_error(harbor: Harbor) -> None:
    id = dead(harbor, "Traceback …\nValueError: no such address")
    with pytest.raises(JobFailed, match=r"is in the DLQ \(unrecoverable\): ValueError: no such address") as caught:
        harbor.wait(id)
    failed = caught.value
    assert (failed.id, failed.status, failed.code) == (id, Status.DLQ, "unrecoverable")
    assert failed.error.startswith("Traceback")
    with pytest.raises(JobFailed):
        asyncio.run(harbor.await_result(id))


def test_waiting_for_a_job_that_was_cancelled_or_expired_says_so(harbor: Harbor) -> None:
    id = harbor.enqueue("t").id
    assert harbor.cancel(id) is Status.CANCELLED
    with pytest.raises(JobFailed, match="was cancelled"):
        harbor.wait(id)
    expiring = harbor.enqueue("t", expires_in=0.001).id
    while harbor.driver.get(expiring).status is not Status.EXPIRED:
        harbor.driver.recover()
    with pytest.raises(JobFailed, match="expired before it ran"):
        harbor.wait(expiring)


def test_waiting_for_a_job_whose_handler_cancelled_it_says_why(harbor: Harbor) -> None:
    @harbor.task(retry=Backoff(base=0))
    def deliver(*, context: Context) -> None:
        if context.attempt == 1:
            raise ValueError("the first attempt fails")
        raise Cancel("the account is gone")

    id = deliver.enqueue().id
    harbor.worker().drain()
    with pytest.raises(JobFailed, match=r"deliver .* was cancelled: the account is gone$") as caught:
        harbor.wait(id)
    assert (caught.value.status, caught.value.error) == (Status.CANCELLED, "the account is gone")
    with pytest.raises(JobFailed, match="was cancelled: the account is gone$"):
        asyncio.run(harbor.await_result(id))


def test_an_error_before_a_cancel_by_hand_is_not_its_reason(harbor: Harbor) -> None:
    id = dead(harbor, "the old error")
    harbor.retry(id)
    assert harbor.cancel(id) is Status.CANCELLED
    with pytest.raises(JobFailed, match=r"was cancelled$") as caught:
        harbor.wait(id)
    assert caught.value.error == ""


def test_a_cancel_without_a_reason_is_told_in_one_breath(harbor: Harbor) -> None:
    id = harbor.enqueue("t").id
    token = taken(harbor).lease.token
    harbor.driver.settle([Settlement.cancel(id, token, reason=CANCELLED_RUNNING)])
    with pytest.raises(JobFailed, match=r"was cancelled while it ran$"):
        harbor.wait(id)


# --- The DLQ -----------------------------------------------------------------------------------------------------


def test_retry_sends_one_job_of_the_dlq_back(harbor: Harbor) -> None:
    id, other = dead(harbor), dead(harbor)
    harbor.retry(id)
    assert (harbor.job(id).state, harbor.job(other).state) == ("ready", "dlq")
    harbor.retry(harbor.job(other), delay=60, reset_attempts=True)
    assert (harbor.job(other).state, harbor.job(other).failures) == ("scheduled", 0)


def test_retry_of_any_other_job_says_where_it_stands(harbor: Harbor) -> None:
    id = harbor.enqueue("t").id
    with pytest.raises(InvalidInput, match=f"job {id} is ready, and only jobs in the DLQ can be retried: it will run"):
        harbor.retry(id)
    harbor.cancel(id)
    with pytest.raises(InvalidInput, match="is cancelled, .*enqueue it again"):
        harbor.retry(id)


def test_redrive_sends_back_what_matches(harbor: Harbor) -> None:
    task = harbor.task(name="t")(lambda: None)
    mail, slow = dead(harbor, "timeout at host", queue="mail"), dead(harbor, "refused", queue="slow")
    assert harbor.redrive(queue="mail", error="refused") == []
    assert harbor.redrive(queue="mail", type=task, error="timeout", limit=5, rate=10) == [mail]
    assert harbor.redrive(tenant="other") == []
    assert harbor.redrive(code="unrecoverable", type="t") == [slow]


# --- Contexts ------------------------------------------------------------------------------------------------


class Recorded:
    def __init__(self) -> None:
        self.cancelled = False
        self.said: list[object] = []

    def progress(self, progress: Progress) -> None:
        self.said.append(progress)

    def extend(self, seconds: float) -> None:
        self.said.append(seconds)

    def notice(self) -> None:
        self.said.append("noticed")


def test_a_context_passes_on_what_the_handler_says(harbor: Harbor) -> None:
    harbor.enqueue("t")
    job = taken(harbor).job
    recorded = Recorded()
    control: Control = recorded
    context = Context(job, job.deliveries, control)
    assert (context.job, context.attempt, context.fence, context.cancelled) == (job, 1, 1, False)
    context.progress(1, 2, note="half")
    context.progress(3)
    context.extend(60)
    assert recorded.said == [Progress(1, 2, "half"), Progress(3), 60]
    recorded.cancelled = True
    assert context.cancelled
    assert recorded.said[-1] == "noticed"
    assert job.id in repr(context)


@pytest.mark.parametrize("arguments", [(-1,), ("1",), (None,), (1, float("nan")), (1, 2, 3), (True,)])
def test_progress_takes_numbers_and_text(harbor: Harbor, arguments: Any) -> None:
    harbor.enqueue("t")
    context = Context(taken(harbor).job, 1, Recorded())
    with pytest.raises(InvalidInput, match="progress"):
        context.progress(*arguments)
    with pytest.raises(InvalidInput, match="extend"):
        context.extend(0)
