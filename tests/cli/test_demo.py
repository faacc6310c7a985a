"""The demo: real workers, a real kill, and nothing told that was not seen to be true."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from taskharbor import Harbor
from taskharbor.cli import demo, demo_app, demo_chapters, demo_lake, demo_orders, main, story
from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.drivers import open_driver

pytestmark = pytest.mark.process

ENDS = {
    "email.send": "done",
    "card.charge": "done",
    "digest.send": "done",
    "invoice.send": "done",
    "report.build": "done",
    "video.encode": "done",
    "primes.count": "done",
    "feed.fetch": "done",
    "backup.run": "cancelled",
}


def test_the_demo_shows_a_life_of_every_kind_and_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", "sqlite:///precious.db")
    began = time.monotonic()
    assert main(["demo"]) == 0
    took_s = time.monotonic() - began
    said = capsys.readouterr()
    for promise in (
        "its key gave the same job back",
        "took report.build first",
        "mail server busy), was tried again",
        "it is in the dead-letter queue",
        "redriven: done on its third attempt",
        "was killed (SIGKILL)",
        "video.encode was taken over, delivery 2",
        "an ack with her token is refused (",
        "backup.run was cancelled while it ran",
        "5,000 quick jobs",
        "dead: to the dlq",
        "the lease ended before the worker settled it",
        "Counts: 10 done, 1 cancelled; beside them",
        "The file is thrown away.",
    ):
        assert promise in said.out
    assert said.err == ""
    assert took_s < 60, "on an idle machine it takes five seconds"
    assert not list(Path().iterdir()), "the demo left something behind, or touched the store of the environment"


def test_a_job_that_succeeded_in_the_end_does_not_look_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--url", "memory://"]) == 0
    story, tables = capsys.readouterr().out.split("\nJobs\n")
    assert "there is no process to kill" in story
    jobs, attempts = tables.split("\nAttempts of the eventful ones")
    assert "mail server busy" not in jobs
    assert "mail server busy" in attempts


@pytest.mark.parametrize(("url", "times"), [("json:///store", 1), ("sqlite:///jobs.db", 2)])
def test_the_demo_as_json_is_the_same_on_every_store_and_may_be_run_again(
    url: str, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(times):
        assert main(["demo", "--json", "--url", url]) == 0
        said = capsys.readouterr()
        data = json.loads(said.out)
        assert said.err == ""
        assert data["came_true"] is True
        assert {job["type"]: job["status"] for job in data["jobs"]} == ENDS
        assert data["counts"] == {"done": 10, "cancelled": 1}
        assert data["ticks"] >= 3
        assert data["burst"] is None, "thousands of jobs were left in a store that somebody uses"
        outcomes = sorted(attempt["outcome"] for attempt in data["attempts"])
        assert outcomes == ["cancelled", "dead", "lapsed", "retried", "retried"] + ["succeeded"] * 10
        with open_driver(url) as driver:
            assert not driver.workers()
            assert not driver.schedules(), "the schedule would go on for ever"
            assert driver.get(data["jobs"][0]["id"]).status == "done"


def test_what_is_kept_can_be_looked_into_with_the_commands_that_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_chapters, "BURST_JOBS", 50)
    assert main(["demo", "--keep", "a place", "--without-spark"]) == 0
    text = capsys.readouterr().out
    assert Path("a place/demo.db").exists()
    commands = [line.strip() for line in text.splitlines() if line.startswith("  taskharbor --url")]
    assert len(commands) == 5
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command.replace("taskharbor", f"{sys.executable} -m taskharbor", 1)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
    with closing(sqlite3.connect("a place/demo.db")) as connection:
        assert connection.execute("SELECT count(*) FROM th_all_jobs WHERE queue LIKE '%-burst'").fetchone() == (50,)


def test_the_help_of_the_demo_does_not_promise_the_store_of_the_environment(say: Callable[..., str]) -> None:
    said = say("demo", "--help")
    assert "default: a throw-away SQLite file" in said
    assert "TASKHARBOR_URL does not count here" in said


def test_a_store_of_yours_and_a_file_to_keep_do_not_go_together(say: Callable[..., str]) -> None:
    assert "give one of them" in say("demo", "--url", "memory://", "--keep", "x", code=2)
    assert not list(Path().iterdir())


# --- When it does not come true ----------------------------------------------------------------------------


def test_a_promise_that_is_broken_is_exit_code_1_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "PATIENCE_S", 2.0)
    monkeypatch.setattr(demo_app.gateway_works, "set", lambda: None)  # the fix that mends nothing
    assert main(["demo", "--url", "memory://"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("taskharbor: the demo did not come true: card.charge ends done, but it is dlq: ")
    assert "the payment gateway refuses us" in said.err
    assert "redriven: done" not in said.out, "it told what did not happen"
    assert "dlq" in said.out.partition("\nJobs\n")[2]


def test_a_worker_process_that_does_not_start_is_named_with_its_last_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_app, "orders", lambda *_: {})
    assert main(["demo", "--json"]) == 1
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert data["came_true"] is False
    assert "the worker process runs, but it ended with 1" in data["failed"]
    assert "the worker process said:" in data["failed"]
    assert said.err == f"taskharbor: the demo did not come true: {data['failed']}\n"


@pytest.mark.spark
def test_the_second_half_makes_jobs_of_a_file_and_a_lake_and_a_report_of_their_history(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    command = [sys.executable, "-m", "taskharbor", "demo", "--keep", str(place), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    data = told["data"]
    assert told["came_true"]
    assert sum(data["counts"].values()) == demo_orders.ORDERS - demo_orders.BAD_ROWS
    assert data["tables"]["bronze/history"] == data["tables"]["silver/attempts"] > demo_orders.ORDERS
    crashed = [cluster for cluster in data["clusters"] if cluster["codes"] == ["crash_loop"]]
    assert [cluster["size"] for cluster in crashed] == [demo_orders.HEAVY_ORDERS]
    assert "<svg" in Path(data["report"]).read_text("utf-8")
    assert sorted(path.name for path in place.iterdir() if not path.name.startswith("demo.db")) == [
        "lake",
        "orders.jsonl",
        "report.html",
    ]


def test_processes_that_were_brought_down_are_signed_off_for(driver: Driver) -> None:
    driver.heartbeat(Worker("ours", queues=("orders",)))
    driver.heartbeat(Worker("theirs", queues=("mail",)))
    driver.elect("fleet", "ours")
    with ExitStack() as cleanup, Harbor(driver=driver) as harbor:
        demo_lake._sign_off(story.Story(harbor, "orders", demo._hush, cleanup), "orders")
        assert [worker.id for worker in driver.workers()] == ["theirs"]
        assert driver.elect("fleet", "theirs") is not None, "the leader that was brought down still leads"
