"""`jobs`, `dlq`, `queues`, `workers`, `schedules` and `stats` on a store with jobs in it."""

from __future__ import annotations

import base64
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import enqueued, killed

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Extension, JobFilter, NewJob, RetryUpdate, Schedule, Settlement
from taskharbor.drivers.sqlfiles import migrations

Run = Callable[..., Any]
Say = Callable[..., str]


def test_listing_what_is_not_there_says_so_and_creates_nothing(say: Say) -> None:
    assert "migrate" in say("jobs", "list", "--url", "sqlite:///typo.db", code=1)
    assert not Path("typo.db").exists()


ONLY_READ = [
    ["jobs", "list"],
    ["jobs", "show", "x"],
    ["jobs", "wait", "x"],
    ["stats"],
    ["queues", "list"],
    ["workers"],
    ["schedules", "list"],
    ["dlq", "list"],
    ["dlq", "redrive", "--all", "--dry-run"],
    ["dlq", "purge", "--all", "--dry-run"],
    ["workflows", "list"],
    ["token", "list"],
]


@pytest.mark.parametrize("words", ONLY_READ, ids=" ".join)
def test_whoever_only_reads_writes_nothing_to_what_is_no_store(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect("foreign.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")
    Path("empty.db").touch()
    Path("directory").mkdir()
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    for url in ("sqlite:///foreign.db", "sqlite:///empty.db", "json:///directory", "sqlite:///foreign.db?mode=ro"):
        assert main([*words, "--url", url]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "no JSON store at" in said.err if url.startswith("json") else "holds no TaskHarbor tables" in said.err
        assert "run `taskharbor --url … migrate`" in said.err
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


def test_whoever_only_reads_the_store_of_an_application_creates_nothing(app: str, say: Say) -> None:
    before = sorted(Path().iterdir())
    assert "`taskharbor -A … migrate`" in say("-A", app, "jobs", "list", code=1)
    assert sorted(Path().iterdir()) == before
    Path("taskharbor.db").touch()
    assert "holds no TaskHarbor tables" in say("-A", app, "stats", code=1)
    assert Path("taskharbor.db").stat().st_size == 0
    say("-A", app, "migrate")
    del sys.modules[app]  # as for another process: its harbor was closed
    assert "no jobs" in say("-A", app, "jobs", "list")


def test_a_store_of_an_earlier_version_is_brought_up_to_date_to_be_read(say: Say) -> None:
    first = migrations("taskharbor.drivers.sqlite", "th_")[0]
    with closing(sqlite3.connect("old.db")) as connection:
        connection.executescript(first.sql)
        connection.execute("INSERT INTO th_migrations (version, name, applied_at) VALUES (1, 'x', 0)")
        connection.commit()
    assert "no jobs" in say("jobs", "list", "--url", "sqlite:///old.db")


def test_a_directory_that_is_not_there_is_named_to_whoever_reads(say: Say) -> None:
    said = say("jobs", "list", "--url", "sqlite:///nowhere/jobs.db", code=1)
    assert f"the directory {Path('nowhere').absolute()} does not exist: create it" in said


def test_the_list_is_paged_by_its_cursor(driver: Driver, run: Run, say: Say) -> None:
    ids = enqueued(driver, *(NewJob("x") for _ in range(5)))
    first = run("jobs", "list", "--limit", "3")
    rest = run("jobs", "list", "--limit", "3", "--cursor", first["cursor"])
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == ids[::-1]
    assert rest["cursor"] is None
    assert first["cursor"] in say("jobs", "list", "--limit", "3")


def test_the_list_takes_every_filter(driver: Driver, run: Run) -> None:
    (wanted,) = enqueued(driver, NewJob("a", queue="mail", tenant_id="acme"))
    enqueued(driver, NewJob("a"), NewJob("b", queue="mail", tenant_id="acme"))
    words = ("--status", "ready", "--queue", "mail", "--type", "a", "--tenant", "acme")
    assert [job["id"] for job in run("jobs", "list", *words)["jobs"]] == [wanted]


def test_payloads_are_json_where_they_are_and_base64_where_not(driver: Driver, run: Run, say: Say) -> None:
    plain, odd, nan = enqueued(driver, NewJob("x", b'{"a":1}'), NewJob("x", b"\xff\0"), NewJob("x", b"NaN"))
    job = run("jobs", "show", plain)["job"]
    assert (job["payload"], job["payload_encoding"]) == ({"a": 1}, "json")
    job = run("jobs", "show", odd)["job"]
    assert (base64.b64decode(job["payload"]), job["payload_encoding"]) == (b"\xff\0", "base64")
    assert run("jobs", "show", nan)["job"]["payload_encoding"] == "base64"
    assert "not JSON" in say("jobs", "show", odd)


def test_a_payload_nested_as_deeply_as_can_be_read_is_shown(driver: Driver, run: Run, say: Say) -> None:
    (deep,) = enqueued(driver, NewJob("x", b"[" * 900 + b"]" * 900))
    assert run("jobs", "show", deep)["job"]["id"] == deep
    say("jobs", "show", deep)


def test_show_has_the_whole_timeline(driver: Driver, run: Run, say: Say) -> None:
    (id,) = enqueued(driver, NewJob("x"))
    now = driver.now()
    (leased,) = driver.reserve("default", now=now, owner="ada")
    update = RetryUpdate(run_at=now, attempts=1, last_error="Traceback (most recent call last):\nOSError: mail is down")
    driver.retry(id, leased.lease.token, now=now + timedelta(seconds=2), update=update)
    (leased,) = driver.reserve("default", now=now + timedelta(seconds=3), owner="bob")
    driver.ack(id, leased.lease.token, now=now + timedelta(seconds=4), result=b'{"pages":12}')
    attempts = run("jobs", "show", id)["attempts"]
    assert [(each["outcome"], each["worker"]) for each in attempts] == [("retried", "ada"), ("succeeded", "bob")]
    assert attempts[0]["ran_s"] == 2
    said = say("jobs", "show", id)
    for word in ("OSError: mail is down", "retried", "succeeded", '"pages": 12', "ada", "bob", id):
        assert word in said


def test_the_list_knows_the_parts_of_a_state(driver: Driver, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.cli.jobs._PHASE_PAGE", 2)
    later = driver.now() + timedelta(hours=1)
    scheduled = enqueued(driver, *(NewJob("x", run_at=later) for _ in range(5)), NewJob("x"))[:5]
    running, claimed = enqueued(driver, NewJob("x", queue="a"), NewJob("x", queue="b"))
    (leased,) = driver.reserve("a")
    driver.extend([Extension(running, leased.lease.token, started_at=driver.now())])
    driver.reserve("b")
    first = run("jobs", "list", "--status", "scheduled", "--limit", "3")
    rest = run("jobs", "list", "--status", "scheduled", "--limit", "3", "--cursor", first["cursor"])
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == scheduled[::-1]
    assert (len(first["jobs"]), rest["cursor"]) == (3, None)
    assert [job["id"] for job in run("jobs", "list", "--status", "running")["jobs"]] == [running]
    assert [job["id"] for job in run("jobs", "list", "--status", "claimed")["jobs"]] == [claimed]


def test_a_job_that_never_failed_has_no_last_error(driver: Driver, run: Run) -> None:
    (id,) = enqueued(driver, NewJob("x"))
    assert run("jobs", "show", id)["job"]["last_error"] is None


def test_the_dlq_says_why_and_when_a_job_died(driver: Driver, say: Say) -> None:
    killed(driver, 1)
    said = say("dlq", "list")
    for word in ("code", "unrecoverable", "died", "now", "no such host"):
        assert word in said


def test_failures_beyond_the_limit_are_explained(driver: Driver, say: Say) -> None:
    (id,) = enqueued(driver, NewJob("x", max_attempts=1))
    for _ in range(2):
        (leased,) = driver.reserve("default")
        driver.fail(id, leased.lease.token, reason="no")
        driver.redrive()
    assert "2: sent back from the DLQ" in say("jobs", "show", id)


def test_show_says_what_a_job_that_is_due_waits_for(driver: Driver, run: Run, say: Say) -> None:
    id = driver.enqueue([NewJob("send", b"{}", queue="mail")])[0].id
    later = driver.enqueue([NewJob("send", b"{}", queue="mail", run_at=driver.now() + timedelta(hours=1))])[0].id
    assert run("jobs", "show", id)["waits_for"] == ["a worker: none that is alive serves queue mail"]
    assert run("jobs", "show", later)["waits_for"] == []
    driver.heartbeat(Worker("w", queues=("mail",), meta={"types": "other"}))
    assert run("jobs", "show", id)["waits_for"] == ["a worker: none that is alive handles the type send"]
    driver.set_limit(Limit("queue", "mail", rate=1 / 3600))
    assert "the limit of queue mail: 1/h" in say("jobs", "show", id)
    driver.pause("mail")
    assert "queue mail is paused (taskharbor queues resume mail)" in say("jobs", "show", id)
    driver.resume("mail")
    driver.drop_limit("queue", "mail")
    driver.reserve("mail")
    assert run("jobs", "show", id)["waits_for"] == []


def test_what_would_move_the_cursor_of_a_terminal_is_shown_and_not_obeyed(driver: Driver, say: Say) -> None:
    killed(driver, 1, reason="\x1b[2Jgone\x07")
    assert "\x1b" not in say("dlq", "list")
    assert "\\x1b[2Jgone" in say("dlq", "list")


def test_wait_says_why_a_job_was_cancelled_and_no_error_before_that(driver: Driver, say: Say) -> None:
    reasoned, by_hand = killed(driver, 2, reason="the old error")
    driver.redrive(JobFilter(ids=[reasoned]))
    [leased] = driver.reserve(driver.get(reasoned).queue)
    driver.settle([Settlement.cancel(reasoned, leased.lease.token, reason="sold out")])
    assert say("jobs", "wait", reasoned, code=1) == f"{reasoned} is cancelled: sold out\n"
    driver.redrive(JobFilter(ids=[by_hand]))
    driver.cancel(by_hand)
    assert say("jobs", "wait", by_hand, code=1) == f"{by_hand} is cancelled\n"


def test_names_with_control_characters_forge_no_lines(driver: Driver, say: Say) -> None:
    type, queue, tenant = "x\nforged-id  add\tdefault", "q\r\nforged", "t\u2028forged"
    said = say("enqueue", type, "--queue", queue, "--tenant", tenant)
    assert said.splitlines() == [said.rstrip("\n")]
    assert said.endswith(r" enqueued in q\r\nforged" + "\n")
    listed = say("jobs", "list").splitlines()
    assert len(listed) == 3, listed
    assert r"x\nforged-id  add\tdefault" in listed[2]
    [job] = driver.list(JobFilter(), None, 10).jobs
    shown = say("jobs", "show", job.id).splitlines()
    assert r"x\nforged-id" in "\n".join(shown)
    assert not [line for line in shown if line.startswith("forged")]
    assert not [line for line in say("queues", "list").splitlines() if line.startswith("forged")]
    id = "a\nforged is done"
    driver.enqueue([NewJob("t", b"{}", id=id)])
    assert say("jobs", "cancel", id) == "a\\nforged is done is cancelled\n"
    assert say("jobs", "wait", id, code=1) == "a\\nforged is done is cancelled\n"


def test_an_unknown_job_is_exit_code_1_in_one_line(driver: Driver, say: Say) -> None:
    for words in (["show", "nope"], ["wait", "nope"]):
        assert say("jobs", *words, code=1).count("\n") == 1
    assert "does not exist" in say("jobs", "retry", "nope", code=1)
    assert "does not exist" in say("jobs", "cancel", "nope", code=1)


def test_only_dead_jobs_are_retried(driver: Driver, run: Run, say: Say) -> None:
    (dead,) = killed(driver, 1)
    (waiting,) = enqueued(driver, NewJob("x"))
    assert "only jobs in the DLQ" in say("jobs", "retry", waiting, code=1)
    assert run("jobs", "retry", dead)["jobs"] == [{"id": dead, "retried": True, "status": "ready"}]
    assert driver.get(dead).status == "ready"


def test_what_could_not_be_done_is_told_on_standard_error(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    (dead,) = killed(driver, 1)
    first, second = enqueued(driver, NewJob("x"), NewJob("x"))
    for words, told in (
        (["jobs", "cancel", first, "nope"], f"{first} is cancelled\n"),
        (["jobs", "retry", dead, "nope"], f"{dead} is ready again\n"),
        (["token", "revoke", "nope"], ""),
    ):
        assert main(words) == 1
        said = capsys.readouterr()
        assert said.out == told
        assert said.err.startswith("taskharbor: nope ")
        assert said.err.count("\n") == 1
    assert main(["--json", "jobs", "retry", second, "nope"]) == 1
    said = capsys.readouterr()
    assert [answer["retried"] for answer in json.loads(said.out)["jobs"]] == [False, False]
    assert said.err.count("taskharbor: ") == 2


def test_a_waiting_job_is_cancelled_and_a_running_one_told_to_stop(driver: Driver, run: Run, say: Say) -> None:
    first, second = enqueued(driver, NewJob("x"), NewJob("x"))
    driver.reserve("default", limit=1)
    assert "was told to stop" in say("jobs", "cancel", first)
    assert run("jobs", "cancel", second)["jobs"][0]["status"] == "cancelled"


def test_wait_is_0_for_done_and_1_for_anything_else(driver: Driver, run: Run, say: Say) -> None:
    (dead,) = killed(driver, 1)
    done, waiting = enqueued(driver, NewJob("x", queue="a"), NewJob("x", queue="b"))
    (leased,) = driver.reserve("a")
    driver.ack(done, leased.lease.token, result=b'{"ok":true}')
    assert run("jobs", "wait", done)["job"]["result"] == {"ok": True}
    assert "no such host" in say("jobs", "wait", dead, code=1)
    assert run("jobs", "wait", waiting, "--timeout", "30ms", code=1)["ended"] is False


# --- dlq ---------------------------------------------------------------------------------------------------


def test_nothing_is_redriven_or_purged_without_a_choice(driver: Driver, say: Say) -> None:
    (id,) = killed(driver, 1)
    for verb in ("redrive", "purge"):
        assert "--all" in say("dlq", verb, code=2)
        assert "not both" in say("dlq", verb, id, "--queue", "mail", code=2)
    assert "--yes" in say("dlq", "purge", "--all", code=2)
    assert driver.get(id).status == "dlq"


def test_a_dry_run_says_how_many_and_shows_some(driver: Driver, run: Run, say: Say) -> None:
    ids = killed(driver, 12)
    found = run("dlq", "redrive", "--error", "such host", "--dry-run")
    assert (found["jobs"], len(found["sample"])) == (12, 10)
    assert {job["id"] for job in found["sample"]} == set(ids[:10]), "the oldest"
    assert "12 jobs would be removed" in say("dlq", "purge", "--all", "--dry-run")
    assert driver.counts()["dlq"] == 12


def test_redrive_takes_the_oldest_first_and_minds_the_limit(driver: Driver, run: Run) -> None:
    ids = killed(driver, 5)
    assert run("dlq", "redrive", "--all", "--limit", "2")["ids"] == ids[:2]


def test_redrive_spreads_jobs_over_time_across_its_own_batches(
    driver: Driver, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.cli.dlq._CHUNK", 2)
    ids = killed(driver, 5)
    assert run("dlq", "redrive", "--type", "email.send", "--rate", "1/s")["redriven"] == 5
    due = [driver.get(id).due_at for id in ids]
    gaps = [round((later - earlier).total_seconds(), 3) for earlier, later in pairwise(due)]
    assert gaps == [1, 1, 1, 1]


def test_ids_that_are_not_in_the_dlq_are_named(driver: Driver, say: Say) -> None:
    (dead,) = killed(driver, 1)
    said = say("dlq", "redrive", dead, "nope", code=1)
    assert "redriven: 1 job" in said
    assert "nope is not in the DLQ" in said


def test_the_environment_confirms_no_purge(driver: Driver, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(driver, 1)
    monkeypatch.setenv("TASKHARBOR_YES", "1")
    monkeypatch.setenv("TASKHARBOR_ALL", "1")
    assert "say what to purge" in say("dlq", "purge", code=2)
    assert "confirm with --yes" in say("dlq", "purge", "--all", code=2)
    assert driver.counts()["dlq"] == 1


def test_purge_removes_for_good_what_was_chosen(driver: Driver, run: Run) -> None:
    killed(driver, 3)
    kept = killed(driver, 1, type="other")
    assert run("dlq", "purge", "--type", "email.send", "--yes")["removed"] == 3
    assert [job["id"] for job in run("dlq", "list")["jobs"]] == kept


# --- queues, workers, schedules, stats ---------------------------------------------------------------------


def test_queues_are_paused_and_resumed(driver: Driver, run: Run, say: Say) -> None:
    enqueued(driver, NewJob("x", queue="mail"))
    assert "mail is paused" in say("queues", "pause", "mail")
    (queue,) = run("queues", "list")["queues"]
    assert (queue["name"], queue["paused"], queue["counts"]["ready"]) == ("mail", True, 1)
    assert driver.reserve("mail") == []
    say("queues", "resume", "mail")
    assert len(driver.reserve("mail")) == 1


def test_workers_are_alive_or_silent(driver: Driver, run: Run, say: Say) -> None:
    driver.heartbeat(Worker("ada", hostname="h", pid=1, queues=("mail",), slots=3))
    driver.heartbeat(Worker("bob"), now=driver.now() - timedelta(minutes=5))
    driver.elect("fleet", "ada")
    found = run("workers")
    assert {worker["id"]: worker["alive"] for worker in found["workers"]} == {"ada": True, "bob": False}
    assert found["leaders"][0]["holder"] == "ada"
    said = say("workers")
    assert "silent" in said
    assert "leader (fleet): ada, epoch 1, its term ends in " in said
    driver.resign("fleet", "ada", 1)
    (leader,) = run("workers")["leaders"]
    assert (leader["holder"], leader["until"], leader["current"]) == ("ada", None, False)


def test_a_queue_that_nothing_uses_is_paused_with_a_doubt(driver: Driver, run: Run, say: Say) -> None:
    enqueued(driver, NewJob("x", queue="mail"))
    driver.heartbeat(Worker("ada", queues=("slow",)))
    assert "nothing uses a queue mial yet: did you mean mail?" in say("queues", "pause", "mial")
    for name in ("mial", "mail", "slow"):
        assert "nothing uses" not in say("queues", "resume", name)


def test_a_mistyped_queue_that_is_resumed_is_not_listed_any_more(driver: Driver, run: Run, say: Say) -> None:
    enqueued(driver, NewJob("x", queue="mail"))
    say("queues", "pause", "mial")
    assert [queue["name"] for queue in run("queues", "list")["queues"]] == ["mail", "mial"]
    say("queues", "resume", "mial")
    assert [queue["name"] for queue in run("queues", "list")["queues"]] == ["mail"]
    assert "nothing uses a queue mial yet" in say("queues", "pause", "mial")


def test_a_schedule_is_removed_and_an_unknown_one_named(driver: Driver, run: Run, say: Say) -> None:
    driver.put_schedule(Schedule("nightly", "0 3 * * *", type="x", payload=b"{}"))
    for verb in ("pause", "resume", "run", "remove"):
        assert "did you mean 'nightly'?" in say("schedules", verb, "nigthly", code=1)
        assert "`taskharbor schedules list`" in say("schedules", verb, "zzz", code=1)
    assert run("schedules", "remove", "nightly")["schedules"] == [{"name": "nightly", "removed": True}]
    assert driver.schedules() == []


def test_schedules_are_listed_paused_resumed_and_run(driver: Driver, run: Run, say: Say) -> None:
    driver.put_schedule(Schedule("nightly", "0 3 * * *", "report.build", b"{}"))
    assert "nightly is paused" in say("schedules", "pause", "nightly")
    (schedule,) = run("schedules", "list")["schedules"]
    assert (schedule["name"], schedule["spec"], schedule["paused"]) == ("nightly", "0 3 * * *", True)
    say("schedules", "resume", "nightly")
    (job,) = run("schedules", "run", "nightly")["jobs"]
    assert driver.get(job["id"]).type == "report.build"
    assert "nope" in say("schedules", "pause", "nope", code=1)


@pytest.mark.parametrize("url", ["sqlite:///taskharbor.db", "json:///store"])
def test_stats_count_and_rate_what_happened(url: str, run: Run, say: Say) -> None:
    from taskharbor.drivers import open_driver

    store = open_driver(url)
    store.migrate()
    killed(store, 1)
    enqueued(store, NewJob("x", queue="a"), NewJob("x", queue="a", run_at=store.now() + timedelta(hours=1)))
    store.pause("a")
    found = run("stats", "--url", url)
    store.close()
    assert found["counts"]["ready"] == 2
    assert found["counts"]["scheduled"] == 1
    by_name = {queue["name"]: queue for queue in found["queues"]}
    assert by_name["a"]["paused"]
    assert by_name["a"]["oldest_ready_s"] >= 0
    assert by_name["mail"]["oldest_ready_s"] is None
    assert (found["recent"]["attempts"], found["recent"]["failure_rate"]) == (1, 1.0)
    assert "100.0% failed" in say("stats", "--url", url)


def test_every_list_is_a_sentence_when_it_is_empty(driver: Driver, say: Say) -> None:
    for words in (["jobs", "list"], ["dlq", "list"], ["queues", "list"], ["workers"], ["schedules", "list"]):
        assert say(*words).startswith("no ")
