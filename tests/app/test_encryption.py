"""Encryption of payloads and results, from enqueue to result, on real stores."""

from __future__ import annotations

import asyncio
import base64
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor import (
    PREVIOUS,
    Backoff,
    Context,
    DecryptionFailed,
    EncryptionKeyMissing,
    Harbor,
    IdempotencyConflict,
    Keyring,
    NewJob,
    PayloadTooLarge,
    chain,
)
from taskharbor.app.batches import Batch
from taskharbor.app.unique import Unique
from taskharbor.core.envelope import is_sealed, key_id_of
from taskharbor.core.limits import Limits
from taskharbor.core.model import Status
from taskharbor.core.workflow import compensation_id
from taskharbor.testing import assert_enqueued, inline
from taskharbor.testing.servers import GivenServer, PostgresServer
from taskharbor.worker.scheduler import run_now

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SECRET = "the maiden name of ada"
ECHO = f"{SECRET}, heard"
Make = Callable[..., Harbor]


@pytest.fixture
def encrypted_postgres(postgres: PostgresServer | GivenServer) -> str:
    return postgres.create_database()


@pytest.fixture(params=["memory", "json", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://{tmp_path.name}"
        case "json":
            return f"json:///{tmp_path}/store"
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
    given: str = request.getfixturevalue("encrypted_postgres")
    return given


def ring(*ids: str, active: str | None = None, **options: Any) -> Keyring:
    keys = {"2026-05": OLD, "2026-11": NEW}
    return Keyring({id: keys[id] for id in ids or keys}, active=active or (ids or tuple(keys))[-1], **options)


@pytest.fixture
def make(url: str, tmp_path: Path) -> Iterator[Make]:
    """Applications on one store, each with keys of its own. Their queue is this test's."""
    made: list[Harbor] = []

    def harbor(encryption: Keyring | None, **options: Any) -> Harbor:
        given = False if encryption is None else encryption
        harbor = Harbor(
            url, encryption=given, queue=f"q-{tmp_path.name}", migrate=True, retry=Backoff(base=0), **options
        )
        tasks(harbor)
        made.append(harbor)
        return harbor

    yield harbor
    for each in made:
        each.close()


def tasks(harbor: Harbor) -> None:
    @harbor.task
    def echo(text: str, context: Context) -> str:
        assert SECRET.encode() in context.job.payload  # a handler sees its job in plain
        return f"{text}, heard"

    @harbor.task
    async def gentle(text: str) -> str:
        return f"{text}, heard"

    @harbor.task
    def quiet(text: str) -> None: ...


def work(harbor: Harbor) -> Any:
    return harbor.worker(fleet=False).drain()


def shows_secret(harbor: Harbor, tmp_path: Path) -> bool:
    """Whether somebody who has all bytes of the store can read the secret in them."""
    found = stored_bytes(harbor, tmp_path)
    forms = [SECRET.encode(), SECRET.encode().hex().encode()]
    for start in ('{"text":"', '"'):  # of a payload, and of a result
        whole = f"{start}{SECRET}".encode()
        forms.append(base64.b64encode(whole[: len(whole) // 3 * 3]))
    return any(form in found for form in forms)


def stored_bytes(harbor: Harbor, tmp_path: Path) -> bytes:
    if harbor.url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(harbor.url) as connection:
            tables = [row[0] for row in connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'th\\_%'")]
            found = b""
            for table in tables:
                kind = connection.execute("SELECT relkind FROM pg_class WHERE relname = %s", (table,)).fetchone()
                if kind is not None and kind[0] in ("r", "p"):
                    rows = connection.execute(f"SELECT t.*::text FROM {table} t").fetchall()  # type: ignore[arg-type]
                    found += "\n".join(str(row) for row in rows).encode()
        return found
    if harbor.url.startswith("memory"):
        return repr(harbor.driver.list(limit=1_000)).encode() + repr(harbor.driver.schedules()).encode()
    return b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_job_goes_round_and_the_store_sees_ciphertext_only(make: Make, tmp_path: Path) -> None:
    harbor = make(ring())
    first = harbor.tasks["echo"].enqueue(text=SECRET)
    ids = [
        first.id,
        harbor.enqueue("echo", {"text": SECRET}).id,
        harbor.tasks["echo"].using(priority=3, key=f"k-{tmp_path.name}").enqueue(text=SECRET).id,
        *harbor.tasks["echo"].enqueue_many([{"text": SECRET}] * 3).ids,
        *harbor.enqueue_many([("echo", {"text": SECRET}), harbor.tasks["echo"].new_job(text=SECRET)]).ids,
        asyncio.run(harbor.tasks["gentle"].aenqueue(text=SECRET)).id,
        asyncio.run(harbor.aenqueue("gentle", {"text": SECRET})).id,
        *asyncio.run(harbor.aenqueue_many([("gentle", {"text": SECRET})])).ids,
        *asyncio.run(harbor.tasks["gentle"].aenqueue_many([{"text": SECRET}])).ids,
    ]
    assert all(key_id_of(harbor.driver.get(id).payload) == "2026-11" for id in ids)
    assert harbor.job(first).arguments == {"text": SECRET}
    assert work(harbor).done == len(ids)
    for id in ids:
        assert harbor.job(id).result == harbor.wait(id) == ECHO
        assert key_id_of(harbor.driver.get(id).result) == "2026-11"
    assert asyncio.run(harbor.await_result(first)) == ECHO
    assert not shows_secret(harbor, tmp_path)
    make(None).tasks["echo"].enqueue(text=SECRET)
    assert shows_secret(harbor, tmp_path)  # so this test would have seen it


def test_a_job_in_the_callers_transaction_is_encrypted_too(tmp_path: Path, encrypted_postgres: str) -> None:
    import psycopg

    sqlite = f"sqlite:///{tmp_path}/jobs.db"
    openers: dict[str, Callable[[], Any]] = {
        sqlite: lambda: sqlite3.connect(tmp_path / "jobs.db"),
        encrypted_postgres: lambda: psycopg.connect(encrypted_postgres),
    }
    for url, connect in openers.items():
        with Harbor(url, encryption=ring(), queue=tmp_path.name, migrate=True) as harbor:
            tasks(harbor)
            assert harbor.now()
            connection = connect()
            gone = harbor.tasks["echo"].using(connection=connection).enqueue(text=SECRET)
            connection.rollback()
            kept = harbor.tasks["echo"].using(connection=connection).enqueue(text=SECRET)
            connection.commit()
            connection.close()
            assert is_sealed(harbor.driver.get(kept.id).payload)
            assert work(harbor).done == 1
            assert harbor.wait(kept) == ECHO
            assert gone.id != kept.id


def test_a_job_that_is_replaced_in_the_callers_transaction_opens_too(tmp_path: Path, encrypted_postgres: str) -> None:
    import psycopg

    openers: dict[str, Callable[[], Any]] = {
        f"sqlite:///{tmp_path}/jobs.db": lambda: sqlite3.connect(tmp_path / "jobs.db"),
        encrypted_postgres: lambda: psycopg.connect(encrypted_postgres),
    }
    for url, connect in openers.items():
        with Harbor(url, encryption=ring(), queue=tmp_path.name, migrate=True) as harbor:
            tasks(harbor)
            first = harbor.tasks["echo"].using(key="last", on_duplicate="replace").enqueue(text="before")
            connection = connect()
            last = harbor.tasks["echo"].using(key="last", on_duplicate="replace", connection=connection)
            assert last.enqueue(text=SECRET) == (first.id, True)
            connection.commit()
            connection.close()
            assert work(harbor).done == 1
            assert harbor.wait(first) == ECHO


def test_a_result_of_none_stays_none(make: Make) -> None:
    harbor = make(ring())
    job = harbor.tasks["quiet"].enqueue(text=SECRET)
    work(harbor)
    assert harbor.driver.get(job.id).result is None
    assert harbor.wait(job) is None


def test_the_jobs_of_a_batch_are_opened_and_answered_one_by_one(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, harbor = make(ring("2026-05")), make(ring("2026-11"))
    for each in (old, harbor):

        @each.task(batch=10, name="crowd")
        def crowd(batch: Batch[dict[str, Any]]) -> list[str]:
            return [f"{item.arguments['text']}, heard" for item in batch]

    jobs = harbor.enqueue_many([("crowd", {"text": SECRET})] * 3)
    unknown = old.enqueue("crowd", {"text": SECRET}, max_attempts=1)
    tally = work(harbor)
    assert (tally.done, tally.snoozed, tally.dead) == (3, 1, 0)
    assert [harbor.wait(job) for job in jobs] == [ECHO] * 3
    assert all(is_sealed(harbor.driver.get(id).result) for id in jobs.ids)
    assert harbor.job(unknown).failures == 0
    assert "'2026-05'" in caplog.text
    assert not shows_secret(harbor, tmp_path)


# --- Keys come and go --------------------------------------------------------------------------------------


def test_what_was_written_before_a_rotation_opens_after_it(make: Make) -> None:
    before = make(ring("2026-05")).tasks["echo"].enqueue(text=SECRET)
    harbor = make(ring())
    after = harbor.tasks["echo"].enqueue(text=SECRET)
    assert work(harbor).done == 2
    assert harbor.wait(before) == harbor.wait(after) == ECHO
    assert [key_id_of(harbor.driver.get(job.id).payload) for job in (before, after)] == ["2026-05", "2026-11"]
    assert key_id_of(harbor.driver.get(before.id).result) == "2026-11"


@pytest.mark.parametrize("lacking", ["the key", "any ring"])
def test_a_worker_without_the_key_puts_the_job_back_and_burns_nothing(
    make: Make, lacking: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = make(ring()).tasks["echo"].using(max_attempts=1).enqueue(text=SECRET)
    poor = make(ring("2026-05") if lacking == "the key" else None)
    with caplog.at_level(logging.ERROR, "taskharbor"):
        assert work(poor).snoozed == 1
    found = poor.job(job)
    assert (found.state, found.failures, found.error) == ("scheduled", 0, "")
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "'2026-11'" in line
    assert "TASKHARBOR_ENCRYPTION_KEYS" in line
    with pytest.raises(EncryptionKeyMissing, match="2026-11"):
        assert found.arguments


def test_a_job_is_put_back_for_longer_each_time_up_to_a_bound() -> None:
    from tests.unit.test_envelope import Place

    from taskharbor.core.outcome import Snoozed
    from taskharbor.worker.executor import Executor
    from taskharbor.worker.held import Held

    with Harbor("memory://", encryption=False) as poor:
        tasks(poor)
        pauses = []
        for forgiven in (0, 1, 3, 50, 10_000):
            job = Place("acme", "1", "echo").job(ring().seal_payload(b"{}", tenant="acme", id="1", type="echo"))
            held = Held.__new__(Held)
            held.job, held.task, held.cancelled = job._replace(forgiven=forgiven), poor.tasks["echo"], False
            ending = Executor(Limits()).call(held)
            assert isinstance(ending, Snoozed)
            pauses.append(ending.delay.total_seconds())
    assert pauses == [5, 10, 40, 300, 300]


def test_another_key_under_the_same_id_burns_nothing_either(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    job = make(ring("2026-11")).tasks["echo"].using(max_attempts=1).enqueue(text=SECRET)
    wrong = make(Keyring({"2026-11": OLD}))
    assert work(wrong).snoozed == 1
    assert wrong.job(job).state == "scheduled"
    assert "another key than the one that is called '2026-11' here" in caplog.text


def test_jobs_from_before_encryption_run_and_are_answered_in_ciphertext(make: Make) -> None:
    job = make(None).tasks["echo"].enqueue(text=SECRET)
    harbor = make(ring())
    assert harbor.job(job).arguments == {"text": SECRET}
    assert work(harbor).done == 1
    assert harbor.wait(job) == ECHO
    assert is_sealed(harbor.driver.get(job.id).result)


def test_an_application_that_takes_encrypted_jobs_only_puts_others_into_the_dlq(make: Make) -> None:
    job = make(None).tasks["echo"].enqueue(text=SECRET)
    strict = make(ring(accept_plain=False))
    assert work(strict).dead == 1
    assert strict.job(job).reason == "bad_payload"
    assert "not encrypted" in strict.job(job).error
    with pytest.raises(DecryptionFailed):
        assert strict.job(job).arguments


# --- Duplicates --------------------------------------------------------------------------------------------


def test_the_same_key_with_the_same_payload_is_the_same_job_and_with_another_a_conflict(
    make: Make, tmp_path: Path
) -> None:
    harbor = make(ring("2026-05"))
    key = f"welcome-{tmp_path.name}"
    first = harbor.tasks["echo"].using(key=key).enqueue(text=SECRET)
    again = harbor.tasks["echo"].using(key=key).enqueue(text=SECRET)
    assert (again.id, again.existed) == (first.id, True)
    with pytest.raises(IdempotencyConflict):
        harbor.tasks["echo"].using(key=key).enqueue(text="something else")
    rotated = make(ring())
    assert rotated.tasks["echo"].using(key=key).enqueue(text=SECRET) == (first.id, True)
    many = rotated.enqueue_many([{"type": "echo", "payload": {"text": SECRET}, "key": key}] * 2)
    assert [answer.id for answer in many] == [first.id] * 2
    assert work(rotated).done == 1
    assert rotated.tasks["echo"].using(key=key).enqueue(text=SECRET) == (first.id, True)


def test_a_job_that_takes_the_place_of_another_opens_under_the_id_of_that_one(make: Make, tmp_path: Path) -> None:
    harbor = make(ring())
    task = harbor.tasks["echo"].using(key=f"last-{tmp_path.name}", on_duplicate="replace")
    first = task.enqueue(text=f"{SECRET} once")
    assert task.enqueue(text=f"{SECRET} twice") == (first.id, True)
    call = {"type": "echo", "key": f"last-{tmp_path.name}", "on_duplicate": "replace"}
    many = [{**call, "payload": {"text": f"{SECRET} {number}"}} for number in range(3)]
    assert [answer.id for answer in harbor.enqueue_many(many)] == [first.id] * 3
    assert harbor.job(first).arguments == {"text": f"{SECRET} 2"}
    assert work(harbor).done == 1
    assert harbor.wait(first) == f"{SECRET} 2, heard"


def test_jobs_that_are_unique_by_their_arguments_stay_so_and_the_store_cannot_try_which(make: Make) -> None:
    plain, sealed, rotated = make(None), make(ring("2026-05")), make(ring())
    jobs = [
        harbor.tasks["echo"].using(unique=Unique(), delay=3600).enqueue(text=SECRET)
        for harbor in (plain, sealed, rotated)
    ]
    assert [job.existed for job in jobs] == [False, False, True]
    assert jobs[1].id == jobs[2].id
    assert plain.job(jobs[0]).key != sealed.job(jobs[1]).key
    other = sealed.tasks["echo"].using(unique=Unique(), delay=3600, tenant="other").enqueue(text=SECRET)
    assert sealed.job(other).key != sealed.job(jobs[1]).key


# --- Tampering ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "payload = (SELECT payload FROM th_jobs WHERE id = :other)",
        "tenant_id = 'other'",
        "type = 'quiet'",
        "payload = CAST(substr(payload, 1, length(payload) - 1) || x'00' AS BLOB)",
        "payload = substr(payload, 1, 20)",
    ],
)
def test_what_was_changed_in_the_store_does_not_run(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Harbor(f"sqlite:///{tmp_path}/jobs.db", encryption=ring()) as harbor:
        tasks(harbor)
        job = harbor.tasks["echo"].enqueue(text=SECRET)
        other = harbor.tasks["echo"].using(queue="elsewhere").enqueue(text="other words")
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            sql = f"UPDATE th_jobs SET {change} WHERE id = :id"
            assert connection.execute(sql, {"id": job.id, "other": other.id}).rowcount == 1
        connection.close()
        assert harbor.worker("default", fleet=False).drain().dead == 1
        found = harbor.job(job)
        assert (found.state, found.reason) == ("dlq", "bad_payload")
        assert "damaged, or were changed or moved here" in found.error
        assert SECRET not in found.error + caplog.text
        with pytest.raises(DecryptionFailed):
            assert found.arguments


def test_the_payload_of_a_debounced_job_does_not_run_as_another_even_with_its_key(tmp_path: Path) -> None:
    with Harbor(f"sqlite:///{tmp_path}/jobs.db", encryption=ring(accept_plain=False)) as harbor:
        tasks(harbor)
        call = harbor.tasks["echo"].using(unique=Unique(), debounce=0.001)
        for text in (f"{SECRET} once", f"{SECRET} once"):
            paid = call.enqueue(text=text)
        other = call.enqueue(text=f"{SECRET} twice")
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            sql = "SELECT payload, idempotency_key FROM th_jobs WHERE id = ?"
            payload, key = connection.execute(sql, (paid.id,)).fetchone()
            connection.execute(
                "UPDATE th_jobs SET payload = ?, idempotency_key = ? WHERE id = ?", (payload, key, other.id)
            )
            connection.execute("UPDATE th_jobs SET due_at = 0")
        connection.close()
        assert (tally := work(harbor)).done == 1
        assert tally.dead == 1
        assert harbor.wait(paid) == f"{SECRET} once, heard"
        assert harbor.job(other).reason == "bad_payload"


@pytest.mark.parametrize("instead", ["a plain result", "the result of another tenant"])
def test_a_step_is_not_given_a_result_that_was_slipped_in(tmp_path: Path, instead: str) -> None:
    with Harbor(f"sqlite:///{tmp_path}/jobs.db", encryption=ring(accept_plain=False), max_attempts=1) as harbor:
        ran: list[str] = []

        @harbor.task
        def first() -> str:
            return SECRET

        @harbor.task(queue="later")
        def second(text: str) -> None:
            ran.append(text)

        foreign = harbor.tasks["first"].using(tenant="other").enqueue()
        harbor.start(chain(first.s(), second.s(text=PREVIOUS)))
        assert harbor.worker("default", fleet=False).drain().done == 2
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            if instead == "a plain result":
                sql = "UPDATE th_history SET result = CAST('\"mine\"' AS BLOB) WHERE result IS NOT NULL AND job_id <> ?"
            else:
                sql = "UPDATE th_steps SET job_id = ? WHERE number = 0"
            assert connection.execute(sql, (foreign.id,)).rowcount == 1
        connection.close()
        assert harbor.worker("later", fleet=False).drain().dead == 1
        assert ran == []


def test_a_job_that_was_mended_is_redriven_and_runs(tmp_path: Path) -> None:
    with Harbor(f"sqlite:///{tmp_path}/jobs.db", encryption=ring()) as harbor:
        tasks(harbor)
        job = harbor.tasks["echo"].enqueue(text=SECRET)
        for tenant in ("other", "default"):
            with sqlite3.connect(tmp_path / "jobs.db") as connection:
                connection.execute("UPDATE th_jobs SET tenant_id = ?", (tenant,))
            connection.close()
            work(harbor)
            if tenant == "other":
                harbor.retry(job, reset_attempts=True)
                with sqlite3.connect(tmp_path / "jobs.db") as connection:
                    connection.execute("UPDATE th_jobs SET tenant_id = 'default'")
                connection.close()
        assert harbor.wait(job) == ECHO


# --- Schedules, copies, limits, helpers --------------------------------------------------------------------


def test_the_arguments_of_a_schedule_are_encrypted_and_whoever_enqueues_its_ticks_needs_no_key(
    make: Make, tmp_path: Path
) -> None:
    harbor = make(ring())
    name = f"nightly-{tmp_path.name}"
    harbor.periodic("0 3 * * *", name=name, arguments={"text": SECRET})(harbor.tasks["echo"])
    worker = harbor.worker()
    worker.start()
    worker.stop()
    assert is_sealed(harbor.driver.get_schedule(name).payload)
    assert not shows_secret(harbor, tmp_path)
    poor = make(None)
    id = run_now(poor.driver, name, poor.now())
    assert work(harbor).done == 1
    assert harbor.wait(id) == ECHO


def test_a_copy_of_a_dead_job_opens_under_its_new_id(make: Make) -> None:
    harbor = make(ring())
    queue = harbor.tasks["echo"].queue
    dead = []
    for _ in range(3):
        dead.append(harbor.tasks["echo"].enqueue(text=SECRET))
        leased = harbor.driver.reserve(queue)[0]
        harbor.driver.fail(leased.job.id, leased.lease.token, reason="boom")
    copies = harbor.redrive(queue=queue, clone=True, limit=2)
    assert len(copies) == 2
    assert not {job.id for job in dead} & set(copies)
    assert work(harbor).done == 2
    assert [harbor.wait(id) for id in copies] == [ECHO] * 2
    assert all(harbor.job(job).state == "dlq" for job in dead)
    assert list(harbor.redrive(queue=queue)) == [job.id for job in dead]
    assert work(harbor).done == 3


def test_a_compensation_is_encrypted_and_opens_when_its_workflow_has_failed(make: Make, tmp_path: Path) -> None:
    harbor = make(ring())

    @harbor.task(max_attempts=1)
    def broken() -> None:
        raise ValueError("boom")

    echo = harbor.tasks["echo"]
    run = harbor.start(chain(echo.s(text=SECRET), broken.s(), on_failure=echo.s(text=SECRET)))
    assert not shows_secret(harbor, tmp_path)
    work(harbor)
    assert run.wait(0).state == "compensated"
    assert harbor.wait(compensation_id(run.id)) == ECHO
    assert not shows_secret(harbor, tmp_path)


def test_the_limit_counts_what_is_stored(make: Make) -> None:
    harbor = make(ring(), limits=Limits(max_payload_bytes=100))
    payload = b'{"text":"' + b"x" * 70 + b'"}'
    with pytest.raises(PayloadTooLarge):
        harbor.enqueue("echo", payload)
    assert make(None, limits=Limits(max_payload_bytes=100)).enqueue("echo", payload).id


def test_a_job_that_the_store_refuses_is_refused_in_the_same_words(make: Make) -> None:
    plain, sealed = make(None), make(ring())
    for job in (NewJob("echo", "text"), NewJob(""), NewJob("echo", tenant_id="\0"), NewJob("echo", id="x" * 65)):  # type: ignore[arg-type]
        said = []
        for harbor in (plain, sealed):
            with pytest.raises(ValueError, match=".") as error:
                harbor.enqueue_many([job])
            said.append((type(error.value), str(error.value)))
        assert said[0] == said[1]


def test_the_helpers_for_tests_see_encrypted_jobs_in_plain() -> None:
    with Harbor("memory://", encryption=ring()) as harbor:
        tasks(harbor)
        harbor.tasks["echo"].enqueue(text=SECRET)
        assert_enqueued(harbor, "echo", text=SECRET)
        with inline(harbor):
            job = harbor.tasks["echo"].enqueue(text=SECRET)
            assert harbor.wait(job) == ECHO
            assert harbor.job(job).status is Status.DONE
