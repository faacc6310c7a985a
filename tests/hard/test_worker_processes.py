"""Workers that are killed, frozen, misled and cut off: nothing is lost, and nothing is settled twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.hard.crew import new_store
from tests.hard.worker_crew import HERE, STORES, Site, children, family, is_running, site
from tests.waiting import until

from taskharbor.testing.servers import PostgresServer, ServerUnavailable, postgres_server

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(150),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]


@pytest.fixture(params=STORES)
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site(new_store(request, request.param, tmp_path), tmp_path) as made:
        yield made


ON_SQLITE = pytest.mark.parametrize("here", ["sqlite"], indirect=True)
"""For what lies between processes alone, and is the same on every store."""


def outcomes(here: Site, job: str) -> list[str]:
    return [str(attempt.outcome) for attempt in here.driver.attempts(job)]


# --- Killed, frozen ----------------------------------------------------------------------------------------


def test_what_a_killed_worker_held_is_taken_over_by_others(here: Site) -> None:
    held = here.enqueue("gated", 3)
    victim = here.worker("--concurrency", "4")
    until(lambda: len(here.noted("begin")) == 3, "the victim is in mid-job")
    victim.kill()
    victim.wait()
    more = here.enqueue("quick", 20) + here.enqueue("aquick", 20)
    here.worker("--concurrency", "4")
    here.wait_for_ends(held + more)
    here.check(held + more, done=43)
    assert {job: outcomes(here, job) for job in held} == {job: ["lapsed", "succeeded"] for job in held}
    assert {here.get(job).result for job in held} == {b'"fence 2"'}
    assert Counter(here.noted("quick") + here.noted("aquick")) == dict.fromkeys(more, 1)


def test_workers_killed_again_and_again_under_load_lose_and_repeat_nothing(here: Site) -> None:
    jobs = here.enqueue("quick", 400) + here.enqueue("aquick", 400) + here.enqueue("slow", 60, b'{"seconds": 0.02}')
    for round in range(4):
        victims = [here.worker("--concurrency", "4") for _ in range(2)]
        before = len(here.ran())
        until(lambda before=before: len(here.ran()) > before + 60, f"round {round} is at work")  # type: ignore[misc]
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.wait()
    here.worker("--concurrency", "4")
    here.worker("--concurrency", "4")
    here.wait_for_ends(jobs)
    here.check(jobs, done=len(jobs))


def test_a_worker_frozen_past_its_lease_finds_its_writes_refused(here: Site) -> None:
    [job] = here.enqueue("gated")
    frozen = here.worker("--concurrency", "2")
    until(lambda: here.noted("begin"), "it is in mid-job")
    here.freeze(frozen)
    other = here.worker("--concurrency", "2")
    until(lambda: here.get(job).result, "the other one has done the job")
    here.go()
    frozen.send_signal(signal.SIGCONT)
    until(lambda: len(here.noted("end")) == 2, "the frozen handler goes on and ends")
    frozen.send_signal(signal.SIGTERM)
    assert frozen.wait(30) == 0
    more = here.enqueue("quick", 10)
    here.wait_for_ends([job, *more])
    here.check([job, *more], done=11)
    assert here.get(job).result == b'"fence 2"'
    assert outcomes(here, job) == ["lapsed", "succeeded"]
    owners = {attempt.worker for attempt in here.driver.attempts(job)}
    assert len(owners) == 2
    assert other.poll() is None


def test_a_frozen_worker_does_not_begin_what_waited_in_it(here: Site) -> None:
    jobs = here.enqueue("quick", 300)
    blocker = here.enqueue("gated")
    behind = here.enqueue("quick", 40)
    frozen = here.worker("--concurrency", "1")
    until(lambda: here.noted("begin"), "it is in mid-job")
    here.freeze(frozen)
    here.worker("--concurrency", "4")
    here.wait_for_ends(jobs + blocker + behind)
    here.go()
    frozen.send_signal(signal.SIGCONT)
    until(lambda: len(here.noted("end")) == 2, "the frozen handler goes on and ends")
    frozen.send_signal(signal.SIGTERM)
    assert frozen.wait(30) == 0
    here.check(jobs + blocker + behind, done=341)
    warned = [line for line in here.logs().splitlines() if "WARNING" in line and "lease" in line]
    assert not [job for job in behind if any(job in line for line in warned)], "nothing of theirs is done twice"
    assert "before a handler began here" in here.logs()
    assert Counter(job for job in here.noted("quick") if job in set(behind)) == dict.fromkeys(behind, 1)


# --- Handlers that bring their process down ----------------------------------------------------------------


def test_a_handler_that_kills_its_process_ends_in_the_dlq_and_all_others_run(here: Site) -> None:
    before = here.enqueue("quick", 30) + here.enqueue("slow", 10, b'{"seconds": 0.05}')
    killers = here.enqueue("suicide", 2, max_attempts=2)
    beside = here.enqueue("aquick", 30) + here.enqueue("slow", 10, b'{"seconds": 0.05}')
    parent = here.worker("--processes", "2", "--concurrency", "4")
    here.wait_for_ends(before + killers + beside, 120)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(40) == 0
    here.check(before + killers + beside, done=80, dlq=2)
    for job in killers:
        dead = here.get(job)
        assert (dead.dlq_code, dead.attempts) == ("crash_loop", 0)
        assert dead.deliveries - dead.forgiven == 4, "max_attempts and the allowance for crashes"
        assert Counter(here.noted("suicide"))[job] <= 4
    assert list(here.driver.workers()) == [] or all(not is_running(worker.pid) for worker in here.driver.workers()), (
        "only those that were killed are still on the list"
    )


# --- Stopping ----------------------------------------------------------------------------------------------


def test_sigterm_in_mid_job_releases_it_and_ends_in_good_order(here: Site) -> None:
    jobs = here.enqueue("gated", 2) + here.enqueue("agated", 2)
    worker = here.worker("--concurrency", "8", "--grace", "0.5s", lease="30s")
    until(lambda: len(here.noted("begin")) == 4, "it is in mid-job")
    assert len(here.driver.workers()) == 1
    worker.send_signal(signal.SIGTERM)
    # How long that takes depends on the disk and on what else runs here. It is much less than the lease all the same,
    # so that whatever is ready below was put back, and did not lapse.
    assert worker.wait(25) == 0
    assert list(here.driver.workers()) == []
    for job in jobs:
        left = here.get(job)
        assert (left.status, left.attempts, left.forgiven, outcomes(here, job)) == ("ready", 0, 1, ["released"])
    here.go()
    here.worker("--drain").wait(30)
    here.check(jobs, done=4)


def test_sigterm_lets_a_handler_end_within_the_grace_time(here: Site) -> None:
    [job] = here.enqueue("gated")
    worker = here.worker("--grace", "30s", lease="30s")
    until(lambda: here.noted("begin"), "it is in mid-job")
    worker.send_signal(signal.SIGTERM)
    more = here.enqueue("quick", 5)
    here.go()
    assert worker.wait(20) == 0
    assert outcomes(here, job) == ["succeeded"]
    here.worker("--drain").wait(30)
    here.check([job, *more], done=6)


@ON_SQLITE
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_worker_at_once_and_safely(here: Site, second: signal.Signals) -> None:
    jobs = here.enqueue("gated", 2)
    worker = here.worker("--grace", "600s", lease="600s")
    until(lambda: len(here.noted("begin")) == 2, "it is in mid-job")
    worker.send_signal(signal.SIGTERM)
    until(lambda: "stopping: 2 jobs" in here.logs(), "it waits for its handlers")
    began = time.monotonic()
    worker.send_signal(second)
    assert worker.wait(20) == 0
    assert time.monotonic() - began < 8
    assert {here.get(job).status for job in jobs} == {"ready"}
    assert list(here.driver.workers()) == []


@ON_SQLITE
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_signal_to_every_process_of_a_service_is_one_signal(
    here: Site, processes: str, number: signal.Signals
) -> None:
    jobs = here.enqueue("gated", max_attempts=1) + here.enqueue("agated", max_attempts=1) + here.enqueue("pgated")
    worker = here.worker("--processes", processes, "--concurrency", "3", "--grace", "100s", lease="30s")
    until(lambda: len(here.noted("begin")) == 3, "they are in mid-job")
    until(lambda: len(here.driver.workers()) == int(processes), "all have started")
    for pid in family(worker.pid):
        os.kill(pid, number)
    until(lambda: "stopping: " in here.logs(), "it waits for its handlers")
    with pytest.raises(subprocess.TimeoutExpired):  # the same signal, come twice, would end it
        worker.wait(0.5)
    here.go()
    assert worker.wait(20) == 0
    here.check(jobs, done=3)
    assert {job: outcomes(here, job) for job in jobs} == {job: ["succeeded"] for job in jobs}
    assert "Traceback" not in here.logs()


def test_a_second_signal_to_the_supervisor_ends_its_workers_at_once(here: Site) -> None:
    jobs = here.enqueue("gated", 2) + here.enqueue("pgated")
    parent = here.worker("--processes", "2", "--concurrency", "2", "--grace", "600s", lease="600s")
    until(lambda: len(here.noted("begin")) == 3, "they are in mid-job")
    parent.send_signal(signal.SIGTERM)
    until(lambda: here.logs().count("stopping: ") == 2, "both wait for their handlers")
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(20) == 0
    assert {here.get(job).status for job in jobs} == {"ready"}
    assert {here.get(job).attempts for job in jobs} == {0}
    assert list(here.driver.workers()) == []


@ON_SQLITE
@pytest.mark.parametrize("mode", [["--drain"], []])
def test_killing_the_supervisor_stops_its_children(here: Site, mode: list[str]) -> None:
    jobs = here.enqueue("slow", 40, b'{"seconds": 0.3}')
    parent = here.worker("--processes", "2", "--concurrency", "1", "--grace", "20s", *mode)
    workers = until(lambda: here.noted("begin") and len(pids := children(parent.pid)) == 2 and pids, "both work")
    parent.kill()
    parent.wait()
    until(lambda: not any(is_running(pid) for pid in workers), "the children end", 30)
    assert here.driver.counts()["ready"], "they stopped before all was done"
    here.worker("--drain").wait(40)
    here.wait_for_ends(jobs)
    here.check(jobs, done=40)


def test_killing_a_worker_ends_the_processes_of_its_handlers(here: Site) -> None:
    here.enqueue("heavy")
    worker = here.worker("--concurrency", "1")
    until(lambda: here.noted("begin"), "the handler runs")
    [(_, _, pid, _)] = here.ran()
    assert pid != worker.pid
    worker.kill()
    worker.wait()
    until(lambda: not is_running(pid), "the handler's process is gone", 15)


# --- A wrong clock -----------------------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize("offset_s", [3600, -3600])
def test_a_worker_whose_clock_is_wrong_neither_steals_nor_starts_early(
    postgres: PostgresServer, tmp_path: Path, offset_s: int
) -> None:
    """On a server, whose clock is the one that counts. SQLite has no clock but that of the machine."""
    with site(postgres.create_database(), tmp_path) as here:
        [held] = here.enqueue("gated")
        here.worker("--concurrency", "2", lease="2s")
        until(lambda: here.noted("begin"), "the good worker is in mid-job")
        later = here.enqueue("quick", 5, run_at=here.driver.now() + timedelta(minutes=30), queue="wrong")
        soon = here.enqueue("quick", 1, run_at=here.driver.now() + timedelta(seconds=1), queue="wrong")
        ready = here.enqueue("quick", 20, queue="wrong")
        here.worker(
            "-q", "default:2,wrong:2",
            lease="2s",
            script=[str(HERE / "apps" / "wrong_clock.py")],
            CREW_CLOCK_OFFSET_S=str(offset_s),
        )  # fmt: skip
        until(lambda: len(here.noted("quick")) == 21, "the other worker does what is due, and no later than it is")
        until(lambda: here.get(soon[0]).status == "done", "and has told the store")
        due = here.get(soon[0])
        assert due.run_at is not None
        assert due.started_at is not None
        assert timedelta(0) <= due.started_at - due.run_at < timedelta(seconds=5)
        until(lambda: here.driver.now() > due.due_at + timedelta(seconds=3), "more than a lease has passed")
        assert (here.get(held).deliveries, here.get(held).status) == (1, "inflight"), "nothing is stolen"
        here.go()
        until(lambda: here.get(held).result, "the good worker ends its job")
        assert here.get(held).result == b'"fence 1"'
        assert outcomes(here, held) == ["succeeded"]
        assert {here.get(job).deliveries for job in later} == {0}, "nothing starts early"
        assert {outcomes(here, job)[0] for job in ready} == {"succeeded"}


# --- A database that goes away -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apart() -> Iterator[PostgresServer]:
    try:
        server = postgres_server()
        if not getattr(server, "controllable", False):
            pytest.skip("the PostgreSQL that was given is not ours to restart")
        with server as started:
            yield started  # type: ignore[misc]
    except ServerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def own_server(apart: PostgresServer) -> PostgresServer:
    """A server that a test may stop: it runs again when the next one begins."""
    apart.start()
    return apart


@pytest.mark.server
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_that_starts_before_its_database_waits_for_it_and_says_so_once(
    own_server: PostgresServer, tmp_path: Path, processes: str
) -> None:
    with site(own_server.create_database(), tmp_path) as here:
        jobs = here.enqueue("quick", 5)
        own_server.stop()
        worker = here.worker("--processes", processes)
        until(lambda: here.logs().count("the store cannot be used") == int(processes), "each says that it waits")
        time.sleep(1.0)
        assert worker.poll() is None
        own_server.start()
        until(lambda: len(here.noted("quick")) == 5, "the jobs run")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(40) == 0
        here.driver.close()
        with site(here.url, tmp_path) as again:
            again.check(jobs, done=5)
    assert here.logs().count("the store cannot be used") == int(processes)
    assert "Traceback" not in here.logs()


@pytest.mark.server
@pytest.mark.parametrize("wrong", ["password", "user", "database", "no tables"])
def test_what_waiting_cannot_cure_ends_a_worker_at_once_with_a_cure(
    own_server: PostgresServer, tmp_path: Path, wrong: str
) -> None:
    good = urlsplit(own_server.create_database())
    user, password, path = good.username, good.password, good.path
    if wrong == "password":
        password = "mistaken"
    elif wrong == "user":
        user = "nobody_here"
    elif wrong == "database":
        path = "/nowhere"
    url = urlunsplit(good._replace(netloc=f"{user}:{password}@{good.hostname}:{good.port}", path=path))
    with site(f"sqlite:///{tmp_path}/unused", tmp_path) as here:
        worker = here.worker(TASKHARBOR_URL=url)
        assert worker.wait(30) == 1
        cure = {
            "password": "check the user and password",
            "user": "check the user and password",
            "database": "there is no such database",
            "no tables": "migrate",
        }[wrong]
        assert cure in here.logs()
        assert "the store cannot be used" not in here.logs()


@pytest.mark.server
@pytest.mark.parametrize("how", ["restart", "crash", "backends"])
def test_a_database_restart_under_load_loses_and_repeats_nothing(
    own_server: PostgresServer, tmp_path: Path, how: str
) -> None:
    with site(own_server.create_database(), tmp_path) as here:
        jobs = here.enqueue("slow", 600, b'{"seconds": 0.01}')
        jobs += here.enqueue("quick", 1_500) + here.enqueue("aquick", 1_500)
        workers = [here.worker("--concurrency", "4", lease="5s") for _ in range(2)]
        until(lambda: len(here.driver.workers()) == 2, "both have started")
        for round in range(3):
            before = len(here.ran())
            until(lambda before=before: len(here.ran()) > before + 100, f"round {round} is at work")  # type: ignore[misc]
            match how:
                case "restart":
                    own_server.restart()
                case "crash":
                    own_server.kill()
                    own_server.start()
                case "backends":
                    for _ in range(5):
                        end_backends(own_server)
        here.driver.close()
        with site(here.url, tmp_path) as again:
            again.wait_for_ends(jobs, 90)
            assert all(worker.poll() is None for worker in workers), "no worker gave up"
            again.check(jobs, done=len(jobs))
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            assert [worker.wait(40) for worker in workers] == [0, 0]
            assert list(again.driver.workers()) == []
    logs = here.logs()
    assert "Traceback" not in logs
    assert own_server.password not in logs


def end_backends(server: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
    threading.Event().wait(0.05)
