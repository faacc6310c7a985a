"""Every way in which a handler can end, and what becomes of its job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import finished, outcomes

from taskharbor import Backoff, Cancel, Context, Harbor, InvalidInput, Retry, Snooze, Unrecoverable
from taskharbor.core.limits import MAX_ERROR_CHARACTERS, Limits
from taskharbor.core.model import Status

# --- Success -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_handler_returns_is_the_result(harbor: Harbor, start: Start, kind: str) -> None:
    def add(a: int, b: int = 2) -> dict[str, int]:
        return {"sum": a + b}

    async def aadd(a: int, b: int = 2) -> dict[str, int]:
        return add(a, b)

    task = harbor.task(add) if kind == "sync" else harbor.task(aadd)
    job = task.enqueue(1)
    start()
    [view] = finished(harbor, job)
    assert (view.state, view.result, outcomes(view)) == ("done", {"sum": 3}, ["succeeded"])
    assert view.record.attempts == 0


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}])
def test_an_empty_result_is_kept_as_it_is(harbor: Harbor, start: Start, value: Any) -> None:
    @harbor.task
    def give() -> Any:
        return value

    job = give.enqueue()
    start()
    [view] = finished(harbor, job)
    assert view.state == "done"
    assert view.result == value
    assert type(view.result) is type(value)


def test_the_attempt_has_the_name_of_the_worker_and_its_times(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def nothing() -> None: ...

    job = nothing.enqueue()
    start(name="crab")
    [view] = finished(harbor, job)
    [attempt] = view.attempts
    assert attempt.worker == "crab"
    assert attempt.due_at <= attempt.claimed_at <= attempt.started_at <= attempt.finished_at


def test_a_handler_sees_its_job_attempt_and_fence(harbor: Harbor, start: Start) -> None:
    seen: list[tuple[str, int, int, bool]] = []

    @harbor.task(max_attempts=3)
    def look(context: Context) -> None:
        seen.append((context.job.id, context.attempt, context.fence, context.cancelled))
        if context.attempt < 3:
            raise ValueError

    job = look.enqueue()
    start()
    finished(harbor, job)
    assert seen == [(job.id, 1, 1, False), (job.id, 2, 2, False), (job.id, 3, 3, False)]


# --- Failure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_that_raises_runs_again_until_its_attempts_are_used_up(
    harbor: Harbor, start: Start, kind: str
) -> None:
    def boom(n: int) -> None:
        raise ValueError(f"the reason {n}")

    async def aboom(n: int) -> None:
        boom(n)

    task = harbor.task(max_attempts=3)(boom if kind == "sync" else aboom)
    job = task.enqueue(7)
    start()
    [view] = finished(harbor, job)
    assert (view.state, view.record.dlq_code, view.record.attempts) == ("dlq", "max_attempts", 3)
    assert outcomes(view) == ["retried", "retried", "dead"]
    assert all(attempt.error.endswith("ValueError: the reason 7") for attempt in view.attempts)
    assert "in boom" in view.attempts[0].error, "the traceback says where"
    assert "executor.py" not in view.attempts[0].error, "and begins with the handler"


def test_with_one_attempt_the_first_failure_is_the_last(harbor: Harbor, start: Start) -> None:
    @harbor.task(max_attempts=1)
    def boom() -> None:
        raise ValueError("no")

    job = boom.enqueue()
    start()
    [view] = finished(harbor, job)
    assert (view.state, view.record.dlq_code, outcomes(view)) == ("dlq", "max_attempts", ["dead"])


def test_a_failed_job_waits_as_its_tasks_policy_says(harbor: Harbor, start: Start) -> None:
    @harbor.task(retry=Backoff(base=100, factor=3, jitter="none"))
    def boom(context: Context) -> None:
        raise ValueError

    job = boom.enqueue()
    start()
    until(lambda: harbor.job(job).record.attempts == 1)
    record = harbor.job(job).record
    assert record.run_at is not None
    assert record.failed_at is not None
    assert record.run_at - record.failed_at == timedelta(seconds=100)
    assert record.status is Status.READY


def test_without_a_policy_of_its_own_a_task_has_that_of_the_harbor(url: str) -> None:
    with Harbor(url, retry=Backoff(base=50, jitter="none")) as harbor:

        @harbor.task
        def boom() -> None:
            raise ValueError

        job = boom.enqueue()
        assert harbor.worker(fleet=False).drain().retried == 1
        record = harbor.job(job).record
        assert record.run_at is not None
        assert record.failed_at is not None
        assert record.run_at - record.failed_at == timedelta(seconds=50)


def test_retry_with_a_delay_waits_that_long_and_counts_as_a_failure(harbor: Harbor) -> None:
    @harbor.task
    def later() -> None:
        raise Retry(delay=40, reason="not yet")

    job = later.enqueue()
    harbor.worker(fleet=False).drain()
    view = harbor.job(job)
    assert view.record.run_at is not None
    assert timedelta(seconds=39) < view.record.run_at - view.attempts[0].finished_at <= timedelta(seconds=40)
    assert (view.record.attempts, view.record.last_error, outcomes(view)) == (1, "not yet", ["retried"])


def test_retry_of_the_last_attempt_is_the_end(harbor: Harbor) -> None:
    @harbor.task(max_attempts=2)
    def later() -> None:
        raise Retry(delay=0)

    job = later.enqueue()
    harbor.worker(fleet=False).drain()
    view = harbor.job(job)
    assert (view.state, view.record.dlq_code, outcomes(view)) == ("dlq", "max_attempts", ["retried", "dead"])


def test_a_short_retry_is_not_kept_waiting_until_the_next_look_at_the_store(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def twice(context: Context) -> None:
        if context.attempt == 1:
            raise Retry(delay=0.05)

    job = twice.enqueue()
    start(poll_interval_s=600)
    [view] = finished(harbor, job)
    assert view.state == "done"


def test_a_short_snooze_is_not_kept_waiting_until_the_next_look_at_the_store(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def twice(context: Context) -> None:
        if context.fence == 1:
            raise Snooze(0.05)

    job = twice.enqueue()
    start(poll_interval_s=600)
    [view] = finished(harbor, job)
    assert view.state == "done"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class HalfMade(Retry):
    def __init__(self) -> None:
        """Without what the class it comes from needs."""


@pytest.mark.parametrize(
    "error", [SyntaxError("bad", ("file", 1, 1, cast("Any", b"bytes"))), Unspeakable(), HalfMade()]
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_that_cannot_be_put_in_words_is_an_error_like_any_other(
    harbor: Harbor, start: Start, capfd: pytest.CaptureFixture[str], kind: str, error: Exception
) -> None:
    def boom() -> None:
        raise error

    async def aboom() -> None:
        raise error

    job = harbor.task(max_attempts=2)(boom if kind == "sync" else aboom).enqueue()
    worker = start(concurrency=1)
    [view] = finished(harbor, job)
    assert (view.state, outcomes(view)) == ("dlq", ["retried", "dead"])
    assert type(error).__name__ in view.attempts[0].error
    worker.stop()
    assert "Traceback" not in capfd.readouterr().err


def test_a_result_whose_encoding_fails_without_words_is_no_end_of_the_slot(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def work() -> None: ...

    def encode_result(value: object) -> bytes:
        raise Unspeakable

    @harbor.task
    def strange() -> int:
        return 1

    strange.encode_result = encode_result  # type: ignore[method-assign]
    job = strange.enqueue()
    start(concurrency=1)
    [view] = finished(harbor, job)
    assert view.attempts[-1].error == "the handler succeeded, but its result cannot be kept: Unspeakable"
    assert finished(harbor, work.enqueue())[0].state == "done"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_nothing_that_a_handler_raises_costs_the_slot(
    harbor: Harbor, start: Start, kind: str, error: BaseException
) -> None:
    def leave() -> None:
        raise error

    async def aleave() -> None:
        raise error

    @harbor.task
    async def aafter() -> str:
        return "here"

    @harbor.task
    def after() -> str:
        return "here"

    task = harbor.task(max_attempts=2)(leave if kind == "sync" else aleave)
    job = task.enqueue()
    start(concurrency=1)
    [view] = finished(harbor, job)
    assert (view.state, outcomes(view)) == ("dlq", ["retried", "dead"])
    assert [each.result for each in finished(harbor, after.enqueue(), aafter.enqueue())] == ["here", "here"]


def test_a_long_error_is_cut_and_a_strange_one_is_mended(harbor: Harbor) -> None:
    @harbor.task(max_attempts=1)
    def boom(text: str) -> None:
        raise ValueError(text * 5_000 + "\x00\udcff end")

    job = boom.enqueue("long ")
    harbor.worker(fleet=False).drain()
    view = harbor.job(job)
    assert view.state == "dlq"
    assert len(view.attempts[0].error) <= MAX_ERROR_CHARACTERS
    assert view.attempts[0].error.endswith(" end")


def test_a_delay_beyond_all_reason_keeps_nobody_else_from_being_settled(harbor: Harbor) -> None:
    @harbor.task(retry=Backoff(base=1e14, cap=1e14, jitter="none"))
    def boom() -> None:
        raise ValueError

    @harbor.task
    def fine() -> None: ...

    broken = boom.enqueue()
    good = [fine.enqueue() for _ in range(5)]
    tally = harbor.worker(fleet=False).drain()
    assert tally.done == 5
    assert {harbor.job(job).state for job in good} == {"done"}
    assert harbor.job(broken).status in (Status.READY, Status.DLQ)
    assert "ValueError" in harbor.job(broken).record.last_error


# --- What a handler says on purpose ------------------------------------------------------------------------


def test_a_snooze_burns_no_attempt(harbor: Harbor, start: Start) -> None:
    @harbor.task(max_attempts=1)
    def patient(context: Context) -> int:
        if context.fence < 5:
            raise Snooze(0)
        return context.attempt

    job = patient.enqueue()
    start()
    [view] = finished(harbor, job)
    assert (view.state, view.result, view.record.attempts) == ("done", 1, 0)
    assert outcomes(view) == ["snoozed"] * 4 + ["succeeded"]


def test_a_snooze_waits_as_long_as_it_says(harbor: Harbor) -> None:
    @harbor.task
    def patient() -> None:
        raise Snooze(timedelta(minutes=5))

    job = patient.enqueue()
    assert harbor.worker(fleet=False).drain().snoozed == 1
    view = harbor.job(job)
    assert view.state == "scheduled"
    assert view.record.run_at is not None
    assert timedelta(seconds=299) < view.record.run_at - view.attempts[0].finished_at <= timedelta(minutes=5)


def test_cancel_ends_the_job_without_a_failure(harbor: Harbor) -> None:
    @harbor.task
    def give_up() -> None:
        raise Cancel("not needed any more")

    job = give_up.enqueue()
    assert harbor.worker(fleet=False).drain().cancelled == 1
    view = harbor.job(job)
    assert (view.state, outcomes(view), view.record.attempts) == ("cancelled", ["cancelled"], 0)
    assert view.attempts[0].error == "not needed any more"


def test_unrecoverable_goes_to_the_dlq_at_once(harbor: Harbor) -> None:
    @harbor.task(max_attempts=9)
    def broken() -> None:
        raise Unrecoverable("the file is gone")

    job = broken.enqueue()
    assert harbor.worker(fleet=False).drain().dead == 1
    view = harbor.job(job)
    assert (view.state, view.record.dlq_code, view.record.dlq_reason) == ("dlq", "unrecoverable", "the file is gone")


@pytest.mark.parametrize("signal", [Cancel, Unrecoverable, lambda reason: Retry(reason=reason)])
def test_a_reason_may_be_anything_that_can_be_written_down(harbor: Harbor, signal: Any) -> None:
    @harbor.task(max_attempts=1)
    def broken() -> None:
        raise signal(ValueError("the cause"))

    @harbor.task
    def fine() -> None: ...

    job, good = broken.enqueue(), fine.enqueue()
    harbor.worker(fleet=False).drain()
    assert harbor.job(job).attempts[0].error == "the cause"
    assert harbor.job(good).state == "done"


# --- Jobs that cannot be run -------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"not json", b"[1]", b'{"a": "x"}', b'{"a": 1, "b": 2}', b"{}", b"\xff"])
def test_a_payload_that_the_handler_does_not_take_goes_to_the_dlq_at_once(harbor: Harbor, payload: bytes) -> None:
    ran = []

    @harbor.task
    def number(a: int) -> None:
        ran.append(a)

    harbor.enqueue("other", payload, id="broken")
    harbor.task(name="other")(number.function)
    harbor.worker(fleet=False).drain()
    view = harbor.job("broken")
    assert (view.state, view.record.dlq_code, ran) == ("dlq", "bad_payload", [])
    assert view.record.dlq_reason


def test_a_job_without_a_handler_is_left_for_others(harbor: Harbor) -> None:
    @harbor.task
    def known() -> None: ...

    job, done = harbor.enqueue("unknown", {}), known.enqueue()
    assert harbor.worker(fleet=False).drain().done == 1
    assert (harbor.job(job).state, harbor.job(job).record.deliveries) == ("ready", 0)
    assert harbor.job(done).state == "done"


def test_told_to_take_all_a_worker_sends_jobs_without_a_handler_to_the_dlq(harbor: Harbor) -> None:
    job = harbor.enqueue("unknown", {})
    assert harbor.worker(fleet=False, take_all=True).drain().dead == 1
    view = harbor.job(job)
    assert (view.state, view.record.dlq_code) == ("dlq", "no_handler")
    assert "'unknown'" in (view.record.dlq_reason or "")


def test_a_worker_takes_only_the_types_it_is_told(harbor: Harbor) -> None:
    @harbor.task
    def one() -> None: ...

    @harbor.task
    def two() -> None: ...

    first, second = one.enqueue(), two.enqueue()
    harbor.worker(fleet=False, types=["two"]).drain()
    assert (harbor.job(first).state, harbor.job(second).state) == ("ready", "done")
    with pytest.raises(InvalidInput, match="no task is named 'three': known are one, two"):
        harbor.worker(types=["three"])


# --- Results that cannot be kept ---------------------------------------------------------------------------


def test_a_result_that_is_too_large_is_not_made_again_and_again(url: str) -> None:
    with Harbor(url, limits=Limits(max_payload_bytes=1_000)) as harbor:
        ran = []

        @harbor.task
        def large() -> str:
            ran.append(1)
            return "x" * 2_000

        job = large.enqueue()
        harbor.worker(fleet=False).drain()
        view = harbor.job(job)
        assert (view.state, view.record.dlq_code, len(ran)) == ("dlq", "unrecoverable", 1)
        assert "the result has 2,002 bytes, the limit is 1,000" in (view.record.dlq_reason or "")


@pytest.mark.parametrize("value", [object(), {1, object()}, float("nan"), lambda: None, {"a": object()}])
def test_a_result_that_is_no_json_says_so(harbor: Harbor, value: Any) -> None:
    @harbor.task
    def strange() -> Any:
        return value

    job = strange.enqueue()
    harbor.worker(fleet=False).drain()
    view = harbor.job(job)
    assert (view.state, view.record.dlq_code, len(view.attempts)) == ("dlq", "unrecoverable", 1)
    assert "its result" in (view.record.dlq_reason or "")


class Picky:
    """A codec that fails in its own way."""

    def encode(self, value: Any) -> bytes:
        if value == "bad":
            raise TypeError("this codec does not like that")
        import json

        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        import json

        return json.loads(data)


def test_a_result_that_the_codec_chokes_on_is_not_made_again_and_again(url: str) -> None:
    with Harbor(url, codec=Picky(), retry=Backoff(base=0)) as harbor:  # type: ignore[arg-type]
        ran = []

        @harbor.task
        def strange() -> str:
            ran.append(1)
            return "bad"

        job = strange.enqueue()
        harbor.worker(fleet=False).drain()
        assert (harbor.job(job).state, len(ran)) == ("dlq", 1)
