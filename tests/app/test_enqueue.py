"""What enqueue stores, by whatever name it is called."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import (
    AlreadyExpired,
    DuplicateJob,
    Enqueued,
    Harbor,
    IdempotencyConflict,
    InvalidArguments,
    InvalidInput,
    InvalidPayload,
    JobNotFound,
    NewJob,
    Task,
)
from taskharbor.app.many import CHUNK_JOBS, EnqueuedMany, chunks
from taskharbor.core.ids import new_ids

LATER = datetime(2090, 1, 1, tzinfo=UTC)


def numbered(n: int) -> None: ...


@pytest.fixture
def send(harbor: Harbor) -> Task[..., None]:
    @harbor.task(name="email.send", queue="mail", max_attempts=3)
    def send(to: str, count: int = 1) -> None: ...

    return send


def test_an_enqueued_job_has_the_arguments_and_the_options_of_its_task(harbor: Harbor, send: Task[..., None]) -> None:
    answer = send.enqueue("ada", count=2)
    assert isinstance(answer, Enqueued)
    assert not answer.existed
    job = harbor.job(answer)
    assert (job.type, job.queue, job.max_attempts, job.state) == ("email.send", "mail", 3, "ready")
    assert job.arguments == {"to": "ada", "count": 2}


def test_delay_is_another_name_for_enqueue(harbor: Harbor, send: Task[..., None]) -> None:
    assert harbor.job(send.delay("ada")).arguments == {"to": "ada"}
    assert harbor.job(send.using(queue="q").delay("ada")).queue == "q"


def test_what_using_says_wins_over_the_task(harbor: Harbor, send: Task[..., None]) -> None:
    made = send.using(
        queue="bulk",
        priority=9,
        run_at=LATER,
        expires_at=LATER + timedelta(days=1),
        tenant="acme",
        key="k",
        meta={"a": "b"},
        max_attempts=1,
        timeout=30,
    ).enqueue(to="ada")
    job = harbor.job(made)
    assert (job.queue, job.priority, job.tenant, job.key, job.meta, job.max_attempts, job.state) == (
        "bulk",
        9,
        "acme",
        "k",
        {"a": "b"},
        1,
        "scheduled",
    )
    assert (job.record.run_at, job.record.timeout) == (LATER, timedelta(seconds=30))
    assert send.queue == "mail"


def test_using_can_be_said_again_and_the_later_word_counts(harbor: Harbor, send: Task[..., None]) -> None:
    call = send.using(queue="a", priority=1, delay=60).using(queue="b", run_at=LATER)
    job = harbor.job(call.enqueue("ada"))
    assert (job.queue, job.priority, job.due_at) == ("b", 1, LATER)
    assert harbor.job(call.using(delay=0).enqueue("ada")).state == "ready"
    assert harbor.job(call.using(delay=None, run_at=None).enqueue("ada")).state == "ready"


@pytest.mark.parametrize("delay", [60, timedelta(minutes=1)])
def test_a_delay_counts_from_the_stores_clock(
    harbor: Harbor, send: Task[..., None], delay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = datetime(2080, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(harbor.driver, "now", lambda: far)
    job = harbor.driver.get(send.using(delay=delay, expires_in=90).enqueue("ada").id)
    assert (job.run_at, job.expires_at) == (far + timedelta(minutes=1), far + timedelta(seconds=90))
    assert harbor.driver.get(send.using(expires_in=90).using(expires_in=None).enqueue("a").id).expires_at is None


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 5, "run_at": LATER},
        {"expires_in": 5, "expires_at": LATER},
        {"delay": -1},
        {"delay": "soon"},
        {"colour": 1},
    ],
)
def test_options_that_contradict_or_do_not_exist_are_refused(send: Task[..., None], options: Any) -> None:
    with pytest.raises(InvalidInput):
        send.using(**options)


def test_an_expired_job_is_refused(send: Task[..., None]) -> None:
    with pytest.raises(AlreadyExpired):
        send.using(expires_at=datetime(2020, 1, 1, tzinfo=UTC)).enqueue("ada")


def test_a_key_makes_one_job(send: Task[..., None]) -> None:
    first = send.using(key="k").enqueue("ada")
    assert send.using(key="k").enqueue("ada") == Enqueued(first.id, existed=True)
    assert not send.using(key="k", tenant="other").enqueue("ada").existed
    with pytest.raises(IdempotencyConflict):
        send.using(key="k").enqueue("bob")
    with pytest.raises(DuplicateJob):
        send.using(key="k", on_duplicate="raise").enqueue("ada")


def test_unique_says_what_a_key_counts_for(harbor: Harbor) -> None:
    one = harbor.task(name="one", unique=("tenant",))(lambda: None)
    two = harbor.task(name="two", unique=("tenant",))(lambda: None)
    first = one.using(key="k").enqueue()
    assert two.using(key="k").enqueue() == Enqueued(first.id, existed=True)


def test_a_bad_call_stores_nothing(harbor: Harbor, send: Task[..., None]) -> None:
    with pytest.raises(InvalidArguments):
        send.enqueue(5)
    with pytest.raises(InvalidArguments):
        harbor.enqueue("email.send", {"to": 5})
    assert sum(harbor.driver.counts().values()) == 0


# --- By name ---------------------------------------------------------------------------------------------------


def test_a_job_can_be_enqueued_by_name_without_a_handler(harbor: Harbor) -> None:
    job = harbor.job(harbor.enqueue("elsewhere", {"a": [1]}, queue="q", priority=3))
    assert (job.type, job.arguments, job.queue, job.priority) == ("elsewhere", {"a": [1]}, "q", 3)
    assert harbor.job(harbor.enqueue("elsewhere")).arguments == {}
    with pytest.raises(InvalidPayload):
        harbor.enqueue("elsewhere", {"a": object()})
    with pytest.raises(InvalidInput, match="by its name"):
        harbor.enqueue(5)  # type: ignore[arg-type]


def test_by_name_a_known_task_has_its_options_and_its_checks(harbor: Harbor, send: Task[..., None]) -> None:
    assert harbor.job(harbor.enqueue("email.send", {"to": "ada"})).queue == "mail"
    assert harbor.job(harbor.enqueue(send, {"to": "ada"}, queue="q")).queue == "q"
    with pytest.raises(InvalidInput, match="given by name"):
        harbor.enqueue("email.send", ["ada"])


@pytest.mark.parametrize("payload", ['{"to": "ada"}', ["ada"], ("ada",), 5, 0.5, True])
def test_what_no_worker_takes_for_arguments_is_refused_though_the_task_is_elsewhere(
    harbor: Harbor, payload: object
) -> None:
    with pytest.raises(InvalidInput, match="elsewhere: its arguments are given by name"):
        harbor.enqueue("elsewhere", payload)
    with pytest.raises(InvalidInput, match="given by name"):
        harbor.enqueue_many([("elsewhere", payload)])


def test_json_in_place_of_a_mapping_is_told_so(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="give a mapping .*, got str, which is no mapping even if it is JSON"):
        harbor.enqueue("elsewhere", '{"to": "ada"}')


def test_bytes_are_stored_as_they_are_if_the_task_takes_them(harbor: Harbor, send: Task[..., None]) -> None:
    assert harbor.job(harbor.enqueue("email.send", b'{"to": "ada"}')).record.payload == b'{"to": "ada"}'
    assert harbor.job(harbor.enqueue("elsewhere", b"\x00")).record.payload == b"\x00"
    with pytest.raises(InvalidArguments):
        harbor.enqueue("email.send", b"{}")


# --- Inside the caller's transaction -----------------------------------------------------------------------------


def test_a_job_enqueued_on_a_connection_exists_exactly_if_that_commits(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Harbor(f"sqlite:///{path}") as harbor:
        task = harbor.task(name="t")(numbered)
        harbor.driver.counts()
        connection = sqlite3.connect(path)
        lost = task.using(connection=connection).enqueue(n=1)
        many = task.using(connection=connection).enqueue_many([{"n": 1}, {"n": 2}])
        named = harbor.enqueue("t", {"n": 1}, connection=connection)
        mixed = harbor.enqueue_many([("t", {"n": 1})], connection=connection)
        connection.rollback()
        for id in (lost.id, *many.ids, named.id, *mixed.ids):
            with pytest.raises(JobNotFound):
                harbor.job(id)
        kept = task.using(connection=connection).enqueue(n=1)
        connection.commit()
        connection.close()
        assert harbor.job(kept).state == "ready"


def test_an_asynchronous_connection_is_joined_too(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def enqueue(harbor: Harbor, task: Task[..., None]) -> list[str]:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with engine.connect() as connection:
            await task.using(connection=connection).aenqueue(n=1)
            await connection.rollback()
        async with engine.begin() as connection:
            ids = [(await task.using(connection=connection).aenqueue(n=1)).id]
            ids += (await task.using(connection=connection).aenqueue_many([{"n": 2}])).ids
            ids.append((await harbor.aenqueue("t", {"n": 3}, connection=connection)).id)
            ids += (await harbor.aenqueue_many([("t", {"n": 4})], connection=connection)).ids
        await engine.dispose()
        return ids

    with Harbor(f"sqlite:///{path}") as harbor:
        task = harbor.task(name="t")(numbered)
        harbor.driver.counts()
        ids = asyncio.run(enqueue(harbor, task))
        assert [harbor.job(id).arguments for id in ids] == [{"n": n} for n in (1, 2, 3, 4)]
        assert harbor.driver.counts()["ready"] == 4


def test_async_enqueue_opens_the_store_and_answers_like_enqueue(harbor: Harbor, send: Task[..., None]) -> None:
    async def enqueue() -> list[Enqueued]:
        one = await send.aenqueue("ada")
        two = await send.using(delay=60).aenqueue("ada")
        many = await send.aenqueue_many([{"to": "ada"}])
        named = await harbor.aenqueue("email.send", {"to": "ada"})
        more = await harbor.aenqueue_many([("email.send", {"to": "ada"})])
        return [one, two, *many, named, *more]

    answers = asyncio.run(enqueue())
    assert [harbor.job(answer).state for answer in answers] == ["ready", "scheduled", "ready", "ready", "ready"]


def test_async_enqueue_does_not_ask_the_stores_clock_in_the_event_loop(
    harbor: Harbor, send: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may take a round trip, or many seconds while the store is away."""
    asked: list[threading.Thread] = []
    usual = harbor.driver.now
    monkeypatch.setattr(harbor.driver, "now", lambda: asked.append(threading.current_thread()) or usual())

    async def enqueue() -> list[Enqueued]:
        one = await send.using(delay=60).aenqueue("ada")
        two = await send.using(expires_in=60).aenqueue("ada")
        many = await send.using(delay=60).aenqueue_many([{"to": "ada"}])
        named = await harbor.aenqueue("email.send", {"to": "ada"}, delay=60)
        more = await harbor.aenqueue_many([{"type": "email.send", "payload": {"to": "ada"}, "delay": 60}])
        return [one, two, *many, named, *more]

    answers = asyncio.run(enqueue())
    assert asked
    assert threading.main_thread() not in asked
    monkeypatch.undo()
    assert [harbor.job(answer).state for answer in answers] == ["scheduled", "ready", *["scheduled"] * 3]


# --- Many ----------------------------------------------------------------------------------------------------


def test_many_jobs_of_one_task_answer_in_order(harbor: Harbor, send: Task[..., None]) -> None:
    answers = send.enqueue_many({"to": name} for name in ("ada", "bob"))
    assert len(answers) == 2
    assert [harbor.job(answer).arguments for answer in answers] == [{"to": "ada"}, {"to": "bob"}]
    assert answers[-1].id == answers[1:][0].id == list(answers.ids)[1]
    assert send.using(key="k").enqueue_many([{"to": "a"}, {"to": "a"}]).existed == 1
    assert len(send.enqueue_many([])) == 0


def test_a_bad_item_is_named_by_its_place(send: Task[..., None]) -> None:
    with pytest.raises(InvalidArguments, match=r"argument 'to' must be str, got int 5 \(item 1\)"):
        send.enqueue_many([{"to": "a"}, {"to": 5}])
    with pytest.raises(InvalidArguments, match="item 0 must map"):
        send.enqueue_many(["ada"])  # type: ignore[list-item]


def test_jobs_of_many_kinds_go_together(harbor: Harbor, send: Task[..., None]) -> None:
    answers = harbor.enqueue_many(
        [
            ("email.send", {"to": "ada"}),
            (send, {"to": "bob"}),
            {"type": "elsewhere", "payload": {"x": 1}, "queue": "q"},
            send.using(key="k").new_job("eve"),
            NewJob("raw"),
        ],
        priority=4,
    )
    jobs = [harbor.job(answer) for answer in answers]
    assert [(job.type, job.queue, job.priority) for job in jobs] == [
        ("email.send", "mail", 4),
        ("email.send", "mail", 4),
        ("elsewhere", "q", 4),
        ("email.send", "mail", 0),
        ("raw", "default", 0),
    ]
    with pytest.raises(InvalidInput, match="item 0 is no job"):
        harbor.enqueue_many([5])
    with pytest.raises(InvalidInput, match="item 0 has a connection of its own"):
        harbor.enqueue_many([{"type": "t", "connection": object()}])


def test_chunks_end_by_count_and_by_size() -> None:
    assert [len(c) for c in chunks(NewJob("t") for _ in range(CHUNK_JOBS + 1))] == [CHUNK_JOBS, 1]
    assert [len(c) for c in chunks(NewJob("t", bytes(3 * 1_048_576)) for _ in range(7))] == [3, 3, 1]


def test_any_number_of_jobs_takes_bounded_memory() -> None:
    class Nowhere:
        longest = 0

        def enqueue(self, jobs: Any, connection: Any = None) -> list[Enqueued]:
            self.longest = max(self.longest, len(jobs))
            return [Enqueued(id) for id in new_ids(len(jobs))]

    driver = Nowhere()
    harbor = Harbor(driver=driver)  # type: ignore[arg-type]
    task = harbor.task(name="t")(numbered)

    def items() -> Iterator[dict[str, int]]:
        for n in range(30_000):
            yield {"n": n}

    tracemalloc.start()
    answers = task.enqueue_many(items())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(answers), driver.longest) == (30_000, CHUNK_JOBS)
    assert peak < 8_000_000


def test_the_answers_of_many_keep_every_id_as_it_is() -> None:
    ids = [*new_ids(2), "mine", "ABCDEF00-0000-7000-8000-000000000000", ""]
    answers = EnqueuedMany()
    answers.extend(Enqueued(id, existed=id == "mine") for id in ids)
    assert list(answers) == [Enqueued(id, existed=id == "mine") for id in ids]
    assert (answers.new, answers.existed, repr(answers)) == (4, 1, "EnqueuedMany(4 new, 1 existed)")
    with pytest.raises(IndexError):
        answers[5]


@pytest.mark.parametrize("options", [{"unique": ("tenant",)}, {"key_ttl": 60}])
def test_what_is_about_a_key_needs_one(harbor: Harbor, options: dict[str, Any]) -> None:
    task = harbor.task(name="t", **options)(lambda: None)
    assert not task.enqueue().existed, "for a task it is what counts for the jobs that have a key"
    (name,) = options
    with pytest.raises(InvalidInput, match=f"t: {name} .*give key="):
        task.using(**options).enqueue()
    with pytest.raises(InvalidInput, match="give key="):
        harbor.enqueue("elsewhere", **options)
    assert not task.using(**options).using(key="k").enqueue().existed
    assert task.using(key="k").using(**options).enqueue().existed
    task.using(key=None, **options).enqueue()


def test_an_option_that_is_misspelled_is_answered_with_the_nearest(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="unknown option 'prioritty': did you mean 'priority'"):
        harbor.task(name="t")(lambda: None).using(prioritty=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(("field", "option"), [("idempotency_key", "key"), ("tenant_id", "tenant")])
def test_the_name_that_an_option_has_in_a_job_is_answered_with_the_one_it_has_here(
    harbor: Harbor, field: str, option: str
) -> None:
    with pytest.raises(InvalidInput, match=f"unknown option '{field}': did you mean '{option}'"):
        harbor.task(name="t")(lambda: None).using(**{field: "x"})  # type: ignore[typeddict-item]


def test_what_is_said_of_an_id_that_is_taken_helps_at_once(harbor: Harbor) -> None:
    task = harbor.task(name="t")(lambda: None)
    task.using(id="x").enqueue()
    with pytest.raises(InvalidInput, match="the id 'x' exists: leave the id out.* give it a key='…'"):
        task.using(id="x").enqueue()
    assert not task.using(key="k").enqueue().existed
    assert task.using(key="k").enqueue().existed


def test_a_delay_below_zero_is_shown_in_seconds(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="delay must be from 0 to .* days, got -5 s"):
        harbor.task(name="t")(lambda: None).using(delay=-5)


def test_a_bad_tenant_or_key_is_refused_by_the_name_that_the_option_has(harbor: Harbor) -> None:
    task = harbor.task(name="t")(lambda: None)
    for options, said in (
        ({"tenant": 5}, "tenant must be text, got int"),
        ({"tenant": None}, "tenant must be text, got NoneType"),
        ({"tenant": ""}, "tenant must not be empty"),
        ({"key": 5}, "key must be text, got int"),
        ({"key": ""}, "key must not be empty"),
    ):
        with pytest.raises(InvalidInput, match=f"^{said}"):
            task.using(**options)
        with pytest.raises(InvalidInput, match=f"^{said}"):
            harbor.enqueue("elsewhere", **options)
    assert task.using(key=None).enqueue()
