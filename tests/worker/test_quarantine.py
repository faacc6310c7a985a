"""Jobs that may have brought workers down run alone; the innocent are given back and not punished."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import finished, outcomes, pause
from tests.worker.test_slots import Crowd

from taskharbor import Context, Harbor
from taskharbor.core.model import Enqueued, NewJob
from taskharbor.testing.times import HOUR, SECOND
from taskharbor.worker import quarantine


def suspicious(
    harbor: Harbor, kind: str, count: int = 1, *, crashes: int = 2, free_in_s: float = -60.0, **fields: object
) -> list[Enqueued]:
    """Jobs whose last workers were never heard of again; their last lease ends in so many seconds."""
    driver = harbor.driver
    past = driver.now() - HOUR
    jobs = driver.enqueue([NewJob(kind, b"{}", **fields) for _ in range(count)], past)  # type: ignore[arg-type]
    for crash in range(crashes):
        moment = past + crash * timedelta(minutes=5)
        lease = SECOND if crash < crashes - 1 else HOUR - (moment - past) + free_in_s * SECOND
        leased = driver.reserve(str(fields.get("queue", "default")), now=moment, lease_for=lease, limit=count)
        assert len(leased) == count
    return jobs


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_suspect_runs_alone_and_everything_else_runs_too(harbor: Harbor, start: Start, kind: str) -> None:
    crowd = Crowd()
    company: list[int] = []

    @harbor.task
    def innocent() -> None:
        crowd.enter()
        crowd.leave()

    def look() -> None:
        crowd.enter()
        company.append(crowd.inside)
        crowd.leave()

    async def alook() -> None:
        look()

    harbor.task(name="suspect")(look if kind == "sync" else alook)
    suspects = suspicious(harbor, "suspect", 3)
    others = suspicious(harbor, "suspect", 1, queue="b")
    jobs = [innocent.using(queue=queue).enqueue() for queue in "ab" for _ in range(50)]
    start({"default": 4, "a": 4, "b": 4})
    views = finished(harbor, *suspects, *others, *jobs)
    assert company == [1, 1, 1, 1]
    assert {view.state for view in views} == {"done"}
    assert {view.record.attempts for view in views} == {0}
    assert all(outcomes(view)[-1:] == ["succeeded"] for view in views)
    assert all(outcomes(view) == ["succeeded"] for view in views[4:]), "to be given back unbegun is no attempt"


def test_while_a_suspect_runs_no_other_one_is_held_to_go_down_with_it(harbor: Harbor, start: Start) -> None:
    door, begun = threading.Event(), threading.Event()

    @harbor.task
    def suspect() -> None:
        begun.set()
        pause(door)

    suspects = suspicious(harbor, "suspect", 3)
    start(concurrency=4, poll_interval_s=0.05)
    assert begun.wait(10)
    until(lambda: sorted(harbor.job(job).state for job in suspects) == ["ready", "ready", "running"])
    door.set()
    views = finished(harbor, *suspects)
    assert {view.state for view in views} == {"done"}
    assert {view.record.deliveries - view.record.forgiven for view in views} == {3}, "to stand back costs no delivery"


def test_a_job_with_one_unexplained_delivery_is_not_suspected(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    @harbor.task
    def work() -> None: ...

    jobs = suspicious(harbor, "work", 2, crashes=1)
    start()
    finished(harbor, *jobs)
    assert "it runs alone" not in caplog.text


def test_a_suspect_waits_until_those_that_run_have_ended(harbor: Harbor, start: Start) -> None:
    door, begun = threading.Event(), threading.Event()
    ran: list[str] = []

    @harbor.task
    def long() -> None:
        begun.set()
        pause(door)
        ran.append("long")

    @harbor.task
    def suspect() -> None:
        ran.append("suspect")

    job = long.using(queue="a").enqueue()
    [other] = suspicious(harbor, "suspect", free_in_s=0.5)
    worker = start(["a", "default"], poll_interval_s=0.05)
    assert begun.wait(10)
    until(lambda: worker._crew.quarantine.active)
    assert ran == []
    door.set()
    finished(harbor, job, other)
    assert ran == ["long", "suspect"]


def test_a_suspect_that_fails_like_any_other_is_retried_and_comes_to_its_end(harbor: Harbor, start: Start) -> None:
    @harbor.task(max_attempts=2)
    def suspect() -> None:
        raise ValueError

    @harbor.task
    def innocent() -> None: ...

    [job] = suspicious(harbor, "suspect", max_attempts=2)
    others = [innocent.enqueue() for _ in range(10)]
    start()
    view, *rest = finished(harbor, job, *others)
    assert (view.state, view.record.dlq_code) == ("dlq", "max_attempts")
    assert outcomes(view) == ["lapsed", "lapsed", "retried", "dead"]
    assert {each.state for each in rest} == {"done"}


def test_a_suspect_that_hangs_past_its_timeout_does_not_hold_up_the_worker_for_ever(
    harbor: Harbor, start: Start
) -> None:
    door = threading.Event()

    @harbor.task
    def suspect(context: Context) -> str:
        if context.fence == 3:
            pause(door)
        return "at last"

    @harbor.task
    def innocent() -> None: ...

    [job] = suspicious(harbor, "suspect", timeout=0.1)
    others = [innocent.enqueue() for _ in range(5)]
    start(concurrency=2, lease_s=0.6, poll_interval_s=0.05)
    views = finished(harbor, job, *others)
    assert {view.state for view in views} == {"done"}
    assert views[0].result == "at last"
    door.set()


def test_a_stopping_worker_gives_suspects_back(harbor: Harbor) -> None:
    door, begun = threading.Event(), threading.Event()

    @harbor.task
    def long() -> None:
        begun.set()
        pause(door)

    @harbor.task
    def suspect() -> None: ...

    suspects = suspicious(harbor, "suspect", 2, free_in_s=0.5)
    job = long.enqueue()
    worker = harbor.worker(fleet=False, grace_s=20, poll_interval_s=0.05)
    worker.start()
    assert begun.wait(10)
    until(lambda: worker._crew.quarantine.active)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: all(harbor.job(each).state == "ready" for each in suspects), "they go back at once")
    door.set()
    stopping.join()
    assert harbor.job(job).state == "done"
    assert {harbor.job(each).record.attempts for each in suspects} == {0}


def test_drain_does_not_forget_suspects(harbor: Harbor) -> None:
    ran = []

    @harbor.task
    def suspect() -> None:
        ran.append(1)

    @harbor.task
    def innocent() -> None: ...

    suspicious(harbor, "suspect", 3)
    innocent.using(queue="b").enqueue_many([{}] * 20)
    assert harbor.worker(["default", "b"], fleet=False).drain().done == 23
    assert len(ran) == 3


def test_the_next_suspect_runs_after_one_that_took_longer_than_others_stand_back(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "LONGEST_S", 0.1)
    monkeypatch.setattr(quarantine, "PUT_OFF", timedelta(seconds=0.1))
    door, begun = threading.Event(), threading.Event()

    @harbor.task
    def suspect() -> None:
        begun.set()
        pause(door)

    suspects = suspicious(harbor, "suspect", 2)
    start(concurrency=2, poll_interval_s=0.05)
    assert begun.wait(10)
    until(lambda: "snoozed" in {name for job in suspects for name in outcomes(harbor.job(job))}, "one is put off")
    door.set()
    assert {view.state for view in finished(harbor, *suspects)} == {"done"}
