"""Spark executors as workers: every job is run, whatever is lost on the way, and the store says how often."""

from __future__ import annotations

import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.exact import feed

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, InvalidURL
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver
from taskharbor.pipeline import work, work_run
from taskharbor.pipeline.work_app import ApplicationNotFound, WorkFailed, check_store, pack
from taskharbor.pipeline.work_channel import HURRY, STOP, Caller, Listener
from taskharbor.pipeline.work_run import patient
from taskharbor.pipeline.work_task import shares
from taskharbor.testing.servers import postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = """\
import os
import time

import {helper}
from taskharbor import Backoff, Harbor, Unrecoverable

harbor = Harbor(retry=Backoff(base=0.01))


@harbor.task(queue="mail")
def send(n: int) -> int:
    return {helper}.twice(n)


@harbor.task(queue="mail", max_attempts=2)
def poison(n: int) -> None:
    raise Unrecoverable("never")


@harbor.task(queue="mail")
def nap(seconds: float) -> None:
    time.sleep(seconds)


@harbor.task(queue="mail", max_attempts=1)
def crash() -> None:
    os._exit(3)
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> Iterator[str]:
    """An application in a directory that no executor has on its path, with a helper beside it."""
    name = f"shop_{time.monotonic_ns()}"
    (tmp_path / f"{name}_help.py").write_text("def twice(n):\n    return 2 * n\n")
    (tmp_path / f"{name}.py").write_text(APPLICATION.format(helper=f"{name}_help"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TASKHARBOR_URL", sqlite_url)
    yield f"{name}:harbor"
    for module in (name, f"{name}_help"):
        sys.modules.pop(module, None)


def enqueue(driver: Driver, type: str, count: int, payload: bytes = b'{"n": 1}', **more: Any) -> None:
    driver.enqueue([NewJob(type, payload, queue="mail", **more) for _ in range(count)])


def outcomes(driver: Driver) -> Counter[str]:
    return Counter(str(row.outcome) for row in feed(driver) if row.attempt)


def once_a_job_runs(driver: Driver, then: Callable[[], None]) -> threading.Thread:
    def look() -> None:
        ends = time.monotonic() + 60
        while time.monotonic() < ends and not driver.counts()["inflight"]:
            time.sleep(0.05)
        then()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


# --- In this Spark -----------------------------------------------------------------------------------------------


def test_a_queue_is_drained_and_the_store_has_counted(spark: SparkSession, sqlite_driver: Driver, app: str) -> None:
    enqueue(sqlite_driver, "send", 200)
    enqueue(sqlite_driver, "poison", 3)
    seen: list[work_run.Seen] = []
    report = work(app, "mail", slots=5, tasks=2, spark=spark, progress=seen.append)
    assert (report.ended, report.rounds, report.slots, report.tasks) == ("drained", 1, 5, 2)
    assert (report.succeeded, report.dead, report.lapsed, report.left, report.leased) == (200, 3, 0, 0, 0)
    assert outcomes(sqlite_driver) == {"succeeded": 200, "dead": 3}
    assert all(name.startswith(f"{report.run}-elocal-p") for name in report.workers)
    assert not sqlite_driver.workers()
    counts = sqlite_driver.counts()
    assert (counts["done"], counts["dlq"]) == (200, 3)
    assert (seen[-1].ended, seen[-1].total) == (203, 203)
    # Python processes of Spark live on, with the module imported: another run is not disturbed by that.
    enqueue(sqlite_driver, "send", 7)
    assert work(app, ["mail"], slots=1, spark=spark).succeeded == 7


def test_a_job_that_ends_its_process_each_time_ends_in_the_dlq_and_the_others_are_done(
    spark: SparkSession, sqlite_driver: Driver, app: str
) -> None:
    enqueue(sqlite_driver, "crash", 1, b"{}", priority=1)
    enqueue(sqlite_driver, "send", 20)
    said: list[str] = []
    report = work(app, "mail", slots=1, spark=spark, lease_s=1.0, say=said.append)
    assert report.ended == "drained"
    assert report.rounds > 1
    assert any("lost workers run again" in line for line in said)
    counts = sqlite_driver.counts()
    assert (counts["done"], counts["dlq"], counts["inflight"], counts["ready"]) == (20, 1, 0, 0)
    assert outcomes(sqlite_driver)["succeeded"] == report.succeeded == 20
    [dead] = [row for row in feed(sqlite_driver) if row.status == "dlq"]
    assert dead.job is not None
    assert dead.job.dlq_code == "crash_loop"


def test_for_a_time_it_takes_what_comes(spark: SparkSession, sqlite_driver: Driver, app: str) -> None:
    late = threading.Timer(1.0, lambda: enqueue(sqlite_driver, "send", 5))
    late.start()
    report = work(app, "mail", slots=2, for_s=4.0, spark=spark)
    late.join()
    assert (report.ended, report.succeeded, report.left) == ("time", 5, 0)
    assert report.seconds >= 3


@pytest.mark.parametrize("grace_s", [0.2, 30.0], ids=["put back", "finished"])
def test_stopped_it_finishes_or_puts_back_and_leaves_no_lease(
    spark: SparkSession, sqlite_driver: Driver, app: str, grace_s: float
) -> None:
    seconds = 60 if grace_s < 1 else 1.5
    enqueue(sqlite_driver, "nap", 3, b'{"seconds": %g}' % seconds)
    stop = threading.Event()
    waiter = once_a_job_runs(sqlite_driver, stop.set)
    report = work(app, "mail", slots=1, grace_s=grace_s, spark=spark, stop=stop)
    waiter.join()
    assert (report.ended, report.leased, report.lapsed) == ("stopped", 0, 0)
    assert report.succeeded == (0 if grace_s < 1 else 1)
    counts = sqlite_driver.counts()
    assert (counts["ready"], counts["inflight"]) == (3 - report.succeeded, 0)


@pytest.mark.server
def test_a_store_that_is_restarted_in_mid_run_loses_no_job_and_doubles_none(spark: SparkSession, app: str) -> None:
    with postgres_server(fast=True) as server:
        url = server.create_database()
        with open_driver(url) as driver:
            driver.migrate()
            enqueue(driver, "nap", 150, b'{"seconds": 0.05}')
        watching = open_driver(url)

        def restart() -> None:
            watching.close()
            server.restart()

        waiter = once_a_job_runs(watching, restart)
        report = work(app, "mail", slots=3, spark=spark, url=url, lease_s=5.0)
        waiter.join()
        assert report.ended == "drained"
        with open_driver(url) as driver:
            done = Counter(row.job_id for row in feed(driver) if row.attempt and row.attempt.outcome == "succeeded")
            assert (len(done), set(done.values())) == (150, {1})
            assert report.succeeded == 150


def test_an_application_that_executors_do_not_have_is_said_once(
    spark: SparkSession, sqlite_driver: Driver, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(sqlite_driver, "send", 1)
    monkeypatch.setattr("taskharbor.pipeline.work_app.pack", lambda *_: None)
    with pytest.raises(WorkFailed, match="there is no module 'shop_"):
        work(app, "mail", slots=1, spark=spark)
    assert sqlite_driver.counts()["ready"] == 1


# --- Before Spark starts -----------------------------------------------------------------------------------------


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("taskharbor.pipeline.session", refuse)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-q", "mail"], "--slots 8"),
        (["--slots", "2"], "-q mail"),
        (["-q", "mail:3", "--slots", "2"], "without a number"),
        (["-q", "mial", "--slots", "2"], "did you mean mail?"),
        (["-q", "mail", "--slots", "0"], "at least 1"),
        (["-q", "mail", "--slots", "2", "--master", "spark://127.0.0.1:1"], "a file of this machine"),
        (["-q", "mail", "--slots", "2", "--master", "sc://127.0.0.1"], "instead of Spark Connect"),
    ],
)
def test_what_cannot_work_is_wrong_usage(
    no_spark: None, sqlite_driver: Driver, app: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-A", app, "pipeline", "work", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["no_such_shop:harbor", "json:harbor", "json", ""])
def test_an_application_that_is_not_there_is_wrong_usage(
    no_spark: None, sqlite_driver: Driver, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-A", name, "pipeline", "work", "-q", "mail", "--slots", "2"]) == 2
    assert "harbor" in capsys.readouterr().err.lower()
    with pytest.raises(ApplicationNotFound):
        work(name, "mail", slots=1)
    with pytest.raises(ApplicationNotFound, match="__main__"):
        work("__main__:harbor", "mail", slots=1)


@pytest.mark.parametrize(
    ("url", "master", "said"),
    [
        ("memory://", "local[2]", "inside one process"),
        ("memory://shared", "spark://h:7077", "PostgreSQL or MySQL"),
        ("json:///jobs", "local[2]", "one process at a time"),
        ("sqlite:///jobs.db", "yarn", "a file of this machine"),
    ],
)
def test_a_store_that_executors_cannot_share_is_refused(url: str, master: str, said: str) -> None:
    with pytest.raises(InvalidURL, match=said):
        check_store(url, master)


def test_a_file_store_is_named_in_full_because_executors_stand_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = check_store("sqlite:///jobs.db?prefix=a_", "local-cluster[2,1,1024]")
    assert named == f"sqlite:///{tmp_path}/jobs.db?prefix=a_"
    assert check_store("sqlite:////var/jobs.db", "local") == "sqlite:////var/jobs.db"
    with open_driver(named) as driver:  # type: ignore[attr-defined]
        driver.migrate()
    assert (tmp_path / "jobs.db").exists()


def test_slots_are_spread_evenly_and_no_task_is_idle() -> None:
    assert shares(7, 3) == (3, 2, 2)
    assert shares(2, 8) == (1, 1)
    assert shares(1, 1) == (1,)
    with pytest.raises(InvalidInput, match="slots"):
        work("x:y", "mail", slots=0)


def test_one_failed_task_does_not_end_a_run_on_one_machine() -> None:
    assert patient("local[4]") == "local[4,20]"
    assert patient("local") == "local[1,20]"
    for master in ("local[4,3]", "local-cluster[2,1,1024]", "spark://h:7077", "yarn"):
        assert patient(master) == master


# --- What is shipped ---------------------------------------------------------------------------------------------


def test_a_package_is_shipped_whole_with_the_modules_beside_it_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, text in {
        "dockyard/__init__.py": "",
        "dockyard/deep/jobs.py": "import dockhand\n",
        "dockyard/data.sql": "SELECT 1",
        "dockyard/__pycache__/old.pyc": "x",
        "dockhand.py": "",
        "unrelated.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("dockyard.deep.jobs")
    packed = pack("dockyard.deep.jobs", tmp_path)
    assert packed is not None
    with zipfile.ZipFile(packed) as archive:
        assert sorted(archive.namelist()) == [
            "dockhand.py", "dockyard/", "dockyard/__init__.py", "dockyard/data.sql", "dockyard/deep/",
            "dockyard/deep/jobs.py",
        ]  # fmt: skip
    assert pack("json", tmp_path) is None


# --- The driver's word -------------------------------------------------------------------------------------------


def test_workers_hear_the_driver_even_if_they_begin_to_listen_late() -> None:
    caller = Caller("127.0.0.1", "127.0.0.1")
    stopped, hurried, late = threading.Event(), threading.Event(), threading.Event()
    early = Listener(caller.address, stopped.set, hurried.set)
    caller.say(STOP)
    assert stopped.wait(10)
    assert not hurried.is_set()
    caller.say(HURRY)
    assert hurried.wait(10)
    other = Listener(caller.address, lambda: None, late.set)
    assert late.wait(10)
    assert caller.listeners == 2
    early.close()
    other.close()
    caller.close()


def test_a_driver_that_is_gone_means_stop_and_one_out_of_reach_means_nothing() -> None:
    caller = Caller("127.0.0.1", "127.0.0.1")
    stopped = threading.Event()
    listener = Listener(caller.address, stopped.set, lambda: None)
    ends = time.monotonic() + 10
    while not caller.listeners and time.monotonic() < ends:
        time.sleep(0.01)
    caller.close()
    assert stopped.wait(10)
    listener.close()
    assert caller.address is not None
    stopped.clear()
    Listener(caller.address, stopped.set, lambda: None).close()
    Listener(None, stopped.set, lambda: None).close()
    assert not stopped.is_set()
