"""What `taskharbor.testing` gives to people who test their own applications."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from taskharbor import (
    Backoff,
    Cancel,
    Context,
    Harbor,
    InvalidInput,
    InvalidPayload,
    PayloadTooLarge,
    Retry,
    Snooze,
    Status,
    Unrecoverable,
)
from taskharbor.core.limits import Limits
from taskharbor.core.model import Progress
from taskharbor.testing import assert_enqueued, drain, enqueued, in_memory, inline
from taskharbor.testing.servers.postgres import GivenPostgres


@pytest.fixture
def harbor(tmp_path: Path) -> Harbor:
    return Harbor(f"sqlite:///{tmp_path}/jobs.db")


# --- Inline --------------------------------------------------------------------------------------------------


def test_inline_a_job_has_run_when_enqueue_returns(harbor: Harbor, tmp_path: Path) -> None:
    threads = []

    @harbor.task
    def double(n: int) -> int:
        threads.append(threading.current_thread())
        return 2 * n

    with inline(harbor):
        job = harbor.job(double.enqueue(4))
        assert (job.state, job.result, len(job.attempts)) == ("done", 8, 1)
        assert harbor.wait(job) == 8
        assert [harbor.job(a).result for a in double.enqueue_many([{"n": 1}, {"n": 2}])] == [2, 4]
    assert set(threads) == {threading.current_thread()}
    assert not (tmp_path / "jobs.db").exists()


def test_inline_async_handlers_run_with_and_without_a_loop(harbor: Harbor) -> None:
    @harbor.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @harbor.task
    async def broken() -> None:
        raise LookupError("gone")

    async def inside() -> None:
        assert harbor.job(double.enqueue(4)).result == 8
        assert harbor.job(await double.aenqueue(5)).result == 10
        assert harbor.job(await double.using(connection=object()).aenqueue(6)).result == 12
        assert "LookupError: gone" in harbor.job(broken.enqueue()).error

    with inline(harbor):
        assert harbor.job(double.enqueue(4)).result == 8
        asyncio.run(inside())


def test_inline_jobs_of_jobs_run_too(harbor: Harbor) -> None:
    @harbor.task
    def countdown(n: int) -> None:
        if n:
            countdown.using(queue="other").enqueue(n - 1)

    with inline(harbor):
        countdown.enqueue(3)
        assert [(job.arguments["n"], job.state) for job in enqueued(harbor)] == [(n, "done") for n in (3, 2, 1, 0)]


def test_inline_a_failing_job_is_tried_again_at_once_until_its_attempts_are_used_up(harbor: Harbor) -> None:
    calls = []

    @harbor.task(max_attempts=3)
    def flaky(until: int) -> str:
        calls.append(1)
        if len(calls) < until:
            raise OSError(f"call {len(calls)}")
        return "ok"

    with inline(harbor):
        assert harbor.job(flaky.enqueue(2)).result == "ok"
        job = harbor.job(flaky.enqueue(99))
        assert (job.state, job.reason, len(job.attempts)) == ("dlq", "max_attempts", 3)
        assert "OSError: call 5" in job.error
        calls.extend([1] * 99)
        harbor.retry(job)
        assert harbor.job(job).state == "done"


def test_inline_errors_can_be_raised_where_the_job_was_enqueued(harbor: Harbor) -> None:
    @harbor.task
    def broken() -> None:
        raise LookupError("gone")

    with inline(harbor, raise_errors=True):
        with pytest.raises(LookupError, match="gone"):
            broken.enqueue()
        assert enqueued(harbor)[0].failures == 1


def test_inline_an_error_is_raised_once_and_only_by_the_call_that_enqueued_its_job(harbor: Harbor) -> None:
    ran: list[str] = []

    @harbor.task
    def broken() -> None:
        ran.append("broken")
        raise LookupError("gone")

    @harbor.task
    def fine(name: str) -> None:
        ran.append(name)

    with inline(harbor, raise_errors=True):
        with pytest.raises(LookupError):
            harbor.enqueue_many([fine.new_job("beside"), broken.new_job(), fine.new_job("behind")])
        fine.enqueue("later")
        assert ran == ["beside", "broken", "behind", "later"]
        assert [job.state for job in enqueued(harbor)] == ["done", "scheduled", "done", "done"]


def test_inline_a_job_that_runs_inside_the_call_of_another_raises_nothing_there(harbor: Harbor) -> None:
    seen: list[str] = []

    @harbor.task(priority=1)
    def outer() -> None:
        harbor.enqueue("fine")  # runs what waits beside it too
        seen.append("no error")

    @harbor.task
    def broken() -> None:
        raise LookupError("gone")

    harbor.task(name="fine")(lambda: None)
    with inline(harbor, raise_errors=True):
        with pytest.raises(LookupError):
            harbor.enqueue_many([outer.new_job(), broken.new_job()])
        assert (seen, enqueued(harbor, outer)[0].state) == (["no error"], "done")


def test_inline_whatever_ends_a_job_for_good_is_raised_where_it_was_enqueued(harbor: Harbor) -> None:
    calls: list[int] = []

    @harbor.task(max_attempts=3)
    def again(until: int) -> None:
        calls.append(1)
        if len(calls) < until:
            raise Retry(reason="not yet")

    @harbor.task
    def hopeless() -> None:
        raise Unrecoverable("no such user")

    @harbor.task
    def cancelled() -> None:
        raise Cancel("not needed")

    harbor.task(name="bad")(lambda: [object()])
    harbor.task(name="large")(lambda: "x" * 2_000_000)
    harbor.task(name="strict")(lambda n: n)
    with inline(harbor, raise_errors=True):
        with pytest.raises(Unrecoverable, match="no such user"):
            hopeless.enqueue()
        with pytest.raises(InvalidPayload, match="cannot be stored"):
            harbor.enqueue("bad")
        with pytest.raises(PayloadTooLarge, match="the result has"):
            harbor.enqueue("large")
        with pytest.raises(InvalidPayload):
            harbor.driver.enqueue([_raw("strict", b"[]")])
        assert harbor.job(again.enqueue(2)).state == "done"
        with pytest.raises(Retry, match="not yet"):
            again.enqueue(99)
        assert harbor.job(cancelled.enqueue()).state == "cancelled"
        assert [job.state for job in enqueued(harbor)] == ["dlq", "dlq", "dlq", "dlq", "done", "dlq", "cancelled"]


@pytest.mark.parametrize(
    ("signal", "state", "attempts"),
    [
        (Cancel("not needed"), "cancelled", 1),
        (Unrecoverable("no such user"), "dlq", 1),
        (Snooze(60), "scheduled", 1),
        (Retry(delay=60), "scheduled", 1),
        (Retry(), "dlq", 5),
        (Retry(delay=0), "dlq", 5),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else type(value).__name__,
)
def test_inline_what_a_handler_raises_on_purpose_counts(
    harbor: Harbor, signal: Exception, state: str, attempts: int
) -> None:
    @harbor.task
    def work() -> None:
        raise signal

    with inline(harbor):
        job = harbor.job(work.enqueue())
        assert (job.state, len(job.attempts)) == (state, attempts)


def test_inline_what_is_not_due_or_has_no_handler_waits(harbor: Harbor) -> None:
    task = harbor.task(name="t")(lambda: None)
    with inline(harbor):
        assert harbor.job(task.using(delay=60).enqueue()).state == "scheduled"
        assert harbor.job(harbor.enqueue("elsewhere")).state == "ready"


def test_inline_handlers_get_their_context(harbor: Harbor) -> None:
    seen: list[Any] = []

    @harbor.task
    def work(*, context: Context) -> None:
        context.progress(1, 2, "half")
        context.extend(5)
        seen.append((context.attempt, context.fence, context.cancelled, harbor.job(context.job.id).state))
        harbor.cancel(context.job.id)
        seen.append(context.cancelled)

    with inline(harbor):
        job = harbor.job(work.enqueue())
        assert seen == [(1, 1, False, "claimed"), True]
        assert job.progress == Progress(1, 2, "half")


def test_inline_bad_payloads_and_bad_results_end_in_the_dlq(harbor: Harbor) -> None:
    harbor.task(name="bad")(lambda: [object()])
    with inline(harbor):
        assert harbor.job(harbor.enqueue("bad")).reason == "unrecoverable"
        harbor.task(name="strict")(lambda n: n)
        harbor.driver.enqueue([_raw("strict", b"[]")])
        assert enqueued(harbor, "strict")[0].reason == "bad_payload"


def _raw(type: str, payload: bytes) -> Any:
    from taskharbor import NewJob

    return NewJob(type, payload)


def test_inline_a_result_that_is_too_large_ends_in_the_dlq_as_in_a_worker(harbor: Harbor) -> None:
    harbor.task(name="large")(lambda: "x" * 2_000_000)
    with inline(harbor):
        job = harbor.job(harbor.enqueue("large"))
        assert (job.state, job.reason) == ("dlq", "unrecoverable")
        said = job.error
    with in_memory(harbor):
        id = harbor.enqueue("large").id
        drain(harbor)
        assert harbor.job(id).error == said
    assert said.startswith("the handler succeeded, but its result cannot be kept: the result has 2,000,002 bytes")


def test_the_limits_of_the_harbor_hold_in_its_stand_ins(tmp_path: Path) -> None:
    harbor = Harbor(f"sqlite:///{tmp_path}/jobs.db", limits=Limits(max_payload_bytes=100, default_max_attempts=2))
    task = harbor.task(name="t")(lambda text: text)
    for stand_in in (inline, in_memory):
        with stand_in(harbor):
            assert harbor.job(task.enqueue("x")).max_attempts == 2
            with pytest.raises(PayloadTooLarge):
                task.enqueue("x" * 200)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_inline_a_handler_that_would_end_the_program_has_failed_as_in_a_worker(
    harbor: Harbor, error: BaseException
) -> None:
    @harbor.task(max_attempts=2)
    def leave() -> None:
        raise error

    with inline(harbor):
        job = harbor.job(leave.enqueue())
        assert (job.state, job.reason, len(job.attempts)) == ("dlq", "max_attempts", 2)
    with inline(harbor, raise_errors=True), pytest.raises(type(error)):
        leave.enqueue()


def test_inline_a_test_may_end_inside_a_handler(harbor: Harbor) -> None:
    harbor.task(name="t")(lambda: pytest.fail("not to be called"))
    with inline(harbor), pytest.raises(pytest.fail.Exception):
        harbor.enqueue("t")


def test_inline_an_interrupt_gives_the_job_back(harbor: Harbor) -> None:
    @harbor.task
    def work() -> None:
        raise KeyboardInterrupt

    with inline(harbor):
        with pytest.raises(KeyboardInterrupt):
            work.enqueue()
        assert enqueued(harbor)[0].state == "ready"


def test_inline_a_coroutine_is_held_to_its_timeout_as_in_a_worker(harbor: Harbor) -> None:
    @harbor.task(timeout=0.01, max_attempts=1)
    async def endless() -> None:
        await asyncio.Event().wait()

    @harbor.task(timeout=0.01, max_attempts=1)
    async def deaf() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "too late"

    @harbor.task(timeout=60, max_attempts=1)
    async def broken() -> None:
        raise TimeoutError("the handler's own")

    async def inside() -> str:
        return harbor.job(endless.enqueue()).error

    with inline(harbor):
        for task in (endless, deaf):
            job = harbor.job(task.enqueue())
            assert (job.state, job.reason, job.error) == ("dlq", "max_attempts", "timed out after 0.01 s")
        assert asyncio.run(inside()) == "timed out after 0.01 s"
        assert harbor.job(broken.enqueue()).error.endswith("TimeoutError: the handler's own\n")
    with inline(harbor, raise_errors=True), pytest.raises(TimeoutError, match="timed out after 0.01 s"):
        endless.enqueue()


# --- In memory ---------------------------------------------------------------------------------------------------


def test_in_memory_the_harbors_own_store_is_not_touched(harbor: Harbor, tmp_path: Path) -> None:
    task = harbor.task(name="t")(lambda: None)
    with in_memory(harbor) as driver:
        id = task.using(connection=object()).enqueue().id
        assert driver.get(id).type == "t"
    assert not (tmp_path / "jobs.db").exists()
    assert enqueued(harbor) == []
    harbor.close()


def test_in_memory_every_block_begins_empty_and_may_end_in_an_error(harbor: Harbor) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), in_memory(harbor):
            assert enqueued(harbor) == []
            harbor.enqueue("t")
            raise RuntimeError
    assert harbor.driver.counts()["ready"] == 0
    harbor.close()


# --- Draining --------------------------------------------------------------------------------------------------


def test_drain_runs_everything_that_is_due_whatever_its_queue(harbor: Harbor) -> None:
    results = []

    @harbor.task
    def work(n: int) -> None:
        results.append(n)
        if n:
            work.using(queue=f"next-{n}").enqueue(n - 1)

    @harbor.task(max_attempts=3, retry=Backoff(base=1000, jitter="none"))
    def broken() -> None:
        raise OSError

    with in_memory(harbor):
        work.using(queue="far").enqueue(2)
        broken.enqueue()
        work.using(delay=60).enqueue(0)
        counts = drain(harbor)
        assert (counts["done"], counts["dlq"], counts["ready"]) == (3, 1, 1)
        assert results == [2, 1, 0]
    assert broken.retry == Backoff(base=1000, jitter="none")
    assert harbor.backoff == Backoff()


def test_drain_ends_when_what_is_left_has_no_handler(harbor: Harbor) -> None:
    harbor.task(name="here")(lambda: None)
    with in_memory(harbor):
        assert drain(harbor)["ready"] == 0
        harbor.enqueue("elsewhere")
        assert drain(harbor)["ready"] == 1


def test_draining_is_quiet_unless_logging_is_set_up(tmp_path: Path) -> None:
    script = tmp_path / "quiet.py"
    script.write_text(
        "import logging, sys\n"
        "from taskharbor import Harbor\n"
        "from taskharbor.testing import drain, in_memory, inline\n"
        "harbor = Harbor('memory://')\n"
        "task = harbor.task(name='broken', max_attempts=2)(lambda: 1 / 0)\n"
        "for stand_in in (inline, in_memory, in_memory):\n"
        "    with stand_in(harbor):\n"
        "        task.enqueue()\n"
        "        drain(harbor)\n"
        "    if stand_in is in_memory:\n"
        "        logging.basicConfig(format='logged: %(message)s')\n"
    )
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=60).stderr
    assert said.splitlines() == [
        "logged: broken failed (ZeroDivisionError) and runs again in 0.0 s",
        "logged: broken failed for good (ZeroDivisionError)",
    ]


# --- What was enqueued -------------------------------------------------------------------------------------------


def test_assert_enqueued_finds_jobs_by_task_arguments_and_queue(harbor: Harbor) -> None:
    @harbor.task(name="email.send", queue="mail")
    def send(to: str, at: datetime | None = None) -> None: ...

    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    with in_memory(harbor):
        send.enqueue("ada", at=noon)
        send.using(queue="slow").enqueue("bob")
        harbor.enqueue("elsewhere", b"[1]")
        assert [job.arguments["to"] for job in assert_enqueued(harbor, send)] == ["ada", "bob"]
        assert_enqueued(harbor, send, to="ada", at=noon)
        assert_enqueued(harbor, "email.send", queue="slow", times=1, to="bob")
        assert_enqueued(harbor, "email.send", times=0, to="eve")
        assert_enqueued(harbor, "elsewhere")
        assert_enqueued(harbor, "elsewhere", times=0, a=1)
        assert len(enqueued(harbor)) == 3
        assert [job.queue for job in enqueued(harbor, send)] == ["mail", "slow"]
        assert [job.status for job in enqueued(harbor, queue="slow")] == [Status.READY]


def test_assert_enqueued_finds_jobs_by_their_options(harbor: Harbor) -> None:
    @harbor.task(priority=2)
    def send(to: str) -> None: ...

    with in_memory(harbor):
        send.using(tenant="acme", key="k", timeout=5, meta={"a": "1", "b": "2"}).enqueue("ada")
        send.enqueue("ada")
        terms = {"tenant": "acme", "key": "k", "timeout": 5, "priority": 2, "meta": {"a": "1"}}
        assert_enqueued(harbor, send, to="ada", options=terms, times=1)
        assert_enqueued(harbor, send, options={"key": None}, times=1)
        with pytest.raises(AssertionError, match=r"send\(to='ada'\) with tenant='globex', key='k' to have been"):
            assert_enqueued(harbor, send, to="ada", options={"tenant": "globex", "key": "k"})
        with pytest.raises(AssertionError):
            assert_enqueued(harbor, send, options={"meta": {"a": "2"}})
        with pytest.raises(InvalidInput, match="did you mean 'tenant'"):
            assert_enqueued(harbor, send, options={"tenat": "acme"})


def test_assert_enqueued_takes_arguments_whose_names_are_its_own(harbor: Harbor) -> None:
    @harbor.task
    def repeat(queue: str, times: int, arguments: int = 0) -> None: ...

    with in_memory(harbor):
        repeat.enqueue(queue="q", times=3, arguments=1)
        assert_enqueued(harbor, repeat, arguments={"queue": "q", "times": 3, "arguments": 1}, queue="default", times=1)
        with pytest.raises(AssertionError):
            assert_enqueued(harbor, repeat, arguments={"times": 4})
        with pytest.raises(InvalidInput, match="maps names to values"):
            assert_enqueued(harbor, repeat, arguments=1)  # type: ignore[arg-type]


def test_a_server_shows_where_it_is_and_no_password() -> None:
    given = GivenPostgres("postgresql://u:s3cr3t@db/x")
    assert repr(given) == "GivenPostgres('postgresql://u:***@db/x')"


def test_assert_enqueued_shows_what_was_enqueued_instead(harbor: Harbor) -> None:
    @harbor.task(name="email.send", queue="mail")
    def send(to: str) -> None: ...

    with in_memory(harbor):
        with pytest.raises(AssertionError, match=r"^expected .* Nothing was enqueued at all\.$"):
            assert_enqueued(harbor, send, to="ada")
        send.enqueue("bob")
        harbor.enqueue("elsewhere", b"[1]")
        with pytest.raises(AssertionError) as caught:
            assert_enqueued(harbor, send, queue="mail", to="ada")
        assert str(caught.value) == (
            "expected email.send(to='ada') in 'mail' to have been enqueued. Enqueued were:\n"
            "  email.send(to='bob') in 'mail', ready\n"
            "  elsewhere([1]) in 'default', ready"
        )
        with pytest.raises(AssertionError, match="enqueued 2 times, not 1"):
            assert_enqueued(harbor, send, times=2)
        with pytest.raises(AssertionError, match="argument 'to' must be str"):
            assert_enqueued(harbor, send, to=5)
        send.enqueue_many({"to": str(n)} for n in range(30))
        with pytest.raises(AssertionError, match="and 12 more"):
            assert_enqueued(harbor, "nothing")


def test_every_job_is_found_however_many_there_are(harbor: Harbor) -> None:
    task = harbor.task(name="t")(lambda n: n)
    with in_memory(harbor):
        task.enqueue_many({"n": n} for n in range(2_500))
        assert [job.arguments["n"] for job in enqueued(harbor)] == list(range(2_500))
