"""`enqueue`: one job, or a file of them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.model import JobFilter

Run = Callable[..., Any]
Say = Callable[..., str]


def feed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_every_flag_reaches_the_job(run: Run, driver: Driver) -> None:
    words = ["--queue", "mail", "--priority", "7", "--tenant", "acme", "--key", "k", "--max-attempts", "3"]
    words += ["--timeout", "1m", "--expires-at", "2900-01-01T00:00:00Z", "--meta", "a=1", "--meta", "b=2=3"]
    words += ["--run-at", "2800-01-01T01:00:00+01:00"]
    answer = run("enqueue", "email.send", '{"to": "ada", "a": 1}', *words)
    job = driver.get(answer["id"])
    assert (job.type, job.queue, job.priority, job.tenant_id, job.max_attempts) == ("email.send", "mail", 7, "acme", 3)
    assert job.payload == b'{"a":1,"to":"ada"}'
    assert job.timeout == timedelta(minutes=1)
    assert dict(job.meta) == {"a": "1", "b": "2=3"}
    assert job.run_at == datetime(2800, 1, 1, tzinfo=UTC)
    assert job.expires_at == datetime(2900, 1, 1, tzinfo=UTC)
    again = run("enqueue", "email.send", '{"a": 1, "to": "ada"}', *words)
    assert again == {"id": job.id, "existed": True}, "the same arguments in another order are the same job"


def test_a_delay_is_from_now(run: Run, driver: Driver) -> None:
    job = driver.get(run("enqueue", "x", "--delay", "1h30m")["id"])
    assert timedelta(minutes=89) < job.due_at - driver.now() < timedelta(minutes=91)


def test_the_payload_may_come_from_standard_input(run: Run, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    feed('{"to": "ada"}\n', monkeypatch)
    assert driver.get(run("enqueue", "x", "-")["id"]).payload == b'{"to":"ada"}'


def test_jobs_with_equal_arguments_are_one_while_the_first_waits_or_runs(run: Run, driver: Driver) -> None:
    words = ["--unique", "customer", "--unique-for", "1h", "--limit-key", "c-{customer}"]
    first = run("enqueue", "sync", '{"customer": "acme", "full": false}', *words)
    assert run("enqueue", "sync", '{"customer": "acme", "full": true}', *words) == {"id": first["id"], "existed": True}
    assert not run("enqueue", "sync", '{"customer": "globex"}', *words)["existed"]
    assert driver.get(first["id"]).meta["limit_key"] == "c-acme"
    leased = driver.reserve("default", limit=2)
    assert run("enqueue", "sync", '{"customer": "acme"}', *words)["existed"], "it runs"
    assert not run("enqueue", "sync", '{"customer": "acme"}', *words, "--while", "ready")["existed"]
    driver.ack(first["id"], next(each.lease.token for each in leased if each.job.id == first["id"]))
    assert not run("enqueue", "sync", "{}", "--unique", "args")["existed"]
    assert run("enqueue", "sync", "{}", "--unique", "args")["existed"]


def test_a_job_that_waits_is_replaced_put_off_or_named_in_an_error(run: Run, driver: Driver, say: Say) -> None:
    first = run("enqueue", "index", '{"text": "a"}', "--key", "doc-1", "--while", "ready", "--on-duplicate", "replace")
    again = run("enqueue", "index", '{"text": "b"}', "--key", "doc-1", "--while", "ready", "--on-duplicate", "replace")
    assert again == {"id": first["id"], "existed": True}
    assert driver.get(first["id"]).payload == b'{"text":"b"}'
    said = say("enqueue", "index", '{"text": "b"}', "--key", "doc-1", "--on-duplicate", "raise", code=1)
    assert first["id"] in said
    assert "on_duplicate" not in said
    assert run("enqueue", "other", '{"n": 1}', "--unique", "args", "--on-duplicate", "return")["existed"] is False
    said = say("enqueue", "other", '{"n": 1}', "--unique", "args", "--on-duplicate", "raise", code=1)
    assert "counts as the same as this one" in said
    assert "give --on-duplicate return" in said
    assert "on_duplicate" not in said
    late = run("enqueue", "index", '{"text": "a"}', "--unique", "text", "--debounce", "1h")
    assert run("enqueue", "index", '{"text": "a"}', "--unique", "text", "--debounce", "2h")["existed"]
    assert driver.get(late["id"]).due_at - driver.now() > timedelta(minutes=110)
    run("enqueue", "alert", "--throttle", "1h")
    assert run("enqueue", "alert", "--throttle", "1h")["existed"]


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["x", "--while", "ready"], "--unique or --key"),
        (["x", "--unique-for", "1h"], "--unique or --key"),
        (["x", "--on-duplicate", "replace"], "--unique or --key"),
        (["x", "--unique", "a,,b"], "list of names"),
        (["x", '{"customer": 1}', "--unique", "custmer"], "no such argument; it has customer"),
        (["x", "--unique", "args", "--while", "asleep"], "states of a job"),
        (["x", "--debounce", "1h", "--delay", "1h"], "says when by itself"),
        (["x", "--throttle", "1h", "--while", "ready"], "leave that out"),
        (["x", "{"], "not JSON at character 2"),
        (["x", "[1]"], "must be a JSON object"),
        (["x", '{"a": NaN}'], "not JSON"),
        (["x", "{}", "--delay", "1h", "--run-at", "2800-01-01T00:00:00Z"], "both say when"),
        (["x", "{}", "--many", "f"], "leave the JSON out"),
        (["x", "--many", "f", "--key", "k"], "all lines one job"),
        (["x", "--envelope"], "--many"),
        (["x", "--many", "missing.jsonl"], "cannot read missing.jsonl"),
        (["x", "--expires-at", "1999-01-01T00:00:00Z"], "expires_at"),
        (["", "{}"], "type must not be empty"),
    ],
)
def test_what_cannot_be_enqueued_is_wrong_usage_in_one_line(words: list[str], cure: str, say: Say) -> None:
    said = say("enqueue", *words, code=2)
    assert cure in said
    assert said.count("\n") == 1


# --- with an application -----------------------------------------------------------------------------------


def test_the_application_says_where_its_jobs_go(run: Run, driver: Driver, app: str) -> None:
    job = driver.get(run("-A", f"{app}:harbor", "enqueue", "email.send", '{"to": "ada"}')["id"])
    assert (job.queue, job.priority) == ("mail", 5)


@pytest.mark.parametrize("source", ["environment", "file"])
def test_an_application_from_anywhere_counts_for_a_store_in_words_too(
    source: str, run: Run, say: Say, driver: Driver, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "file":
        Path("taskharbor.toml").write_text(f'app = "{app}"\n')
    else:
        monkeypatch.setenv("TASKHARBOR_APP", app)
    words = ["--url", "sqlite:///taskharbor.db", "enqueue"]
    assert driver.get(run(*words, "email.send", '{"to": "ada"}')["id"]).queue == "mail"
    assert "did you mean 'email.send'?" in say(*words, "email.sent", code=2)
    assert driver.get(run(*words, "email.sent", "--no-check")["id"]).queue == "default"


def test_where_a_task_takes_any_names_those_of_the_payload_count(run: Run, say: Say, driver: Driver, app: str) -> None:
    with Path(f"{app}.py").open("a") as module:
        module.write("\n\n@harbor.task(batch=10)\ndef index(batch) -> None: ...\n")
    words = ["-A", app, "--url", "sqlite:///taskharbor.db", "enqueue", "index"]
    assert not run(*words, '{"document": 1, "text": "a"}', "--unique", "document")["existed"]
    assert run(*words, '{"document": 1, "text": "b"}', "--unique", "document")["existed"]
    assert "no such argument; it has document" in say(*words, '{"document": 1}', "--unique", "docment", code=2)


@pytest.mark.parametrize(("words", "timeout"), [([], timedelta(seconds=30)), (["--timeout", "0"], None)])
def test_no_timeout_wins_over_that_of_the_task(
    words: list[str], timeout: timedelta | None, run: Run, driver: Driver, app: str
) -> None:
    text = Path(f"{app}.py").read_text("utf-8")
    Path(f"{app}.py").write_text(text.replace('name="report.build"', 'name="report.build", timeout=30'))
    assert driver.get(run("-A", app, "enqueue", "report.build", *words)["id"]).timeout == timeout


def test_flags_win_over_the_application(run: Run, driver: Driver, app: str) -> None:
    job = driver.get(
        run("-A", app, "enqueue", "email.send", '{"to": "ada"}', "--queue", "slow", "--priority", "1")["id"]
    )
    assert (job.queue, job.priority) == ("slow", 1)


@pytest.mark.parametrize("payload", ['{"too": "ada"}', "{}", '{"to": 5}'])
def test_a_payload_that_the_function_does_not_take_is_refused(payload: str, say: Say, app: str) -> None:
    assert "'to" in say("-A", app, "enqueue", "email.send", payload, code=2)


def test_a_type_without_a_task_is_most_often_a_slip(run: Run, driver: Driver, say: Say, app: str) -> None:
    assert "did you mean 'email.send'?" in say("-A", app, "enqueue", "email.sent", "{}", code=2)


def test_a_type_without_a_task_is_taken_when_one_insists(run: Run, driver: Driver, app: str) -> None:
    assert driver.get(run("-A", app, "enqueue", "email.sent", "{}", "--no-check")["id"]).type == "email.sent"


# --- many --------------------------------------------------------------------------------------------------


def lines(*objects: Any) -> None:
    Path("many.jsonl").write_text("".join(json.dumps(each) + "\n" for each in objects))


def test_each_line_is_a_payload(run: Run, driver: Driver) -> None:
    Path("many.jsonl").write_text('\ufeff{"n": 1}\n\n  {"n": 2}  \n{"n": 3}')
    found = run("enqueue", "x", "--many", "many.jsonl", "--queue", "bulk")
    assert (found["lines"], found["enqueued"], found["bad"]) == (3, 3, 0)
    assert driver.counts().queues["bulk"]["ready"] == 3


def test_a_bad_line_holds_back_its_chunk_and_no_other(
    run: Run, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.cli.bulk.CHUNK_LINES", 2)
    Path("many.jsonl").write_text('{"n":1}\n{"n":2}\n{"n":3}\n{"n":\n{"n":5}\n')
    found = run("enqueue", "x", "--many", "many.jsonl", code=1)
    assert (found["lines"], found["enqueued"], found["bad"], found["held_back"]) == (5, 3, 1, 1)
    assert found["errors"][0]["line"] == 4
    assert {job.payload for job in driver.list(JobFilter()).jobs} == {b'{"n":1}', b'{"n":2}', b'{"n":5}'}


def test_no_complaint_quotes_a_payload(say: Say) -> None:
    Path("many.jsonl").write_text('{"secret": "hunter2" oops}\n')
    said = say("enqueue", "x", "--many", "many.jsonl", code=1)
    assert "line 1" in said
    assert "hunter2" not in said


def test_an_envelope_says_where_its_job_goes(run: Run, driver: Driver) -> None:
    lines(
        {"payload": {"n": 1}, "queue": "a", "key": "k", "delay": "1h", "meta": {"from": "file"}, "tenant": "acme"},
        {"payload": {"n": 1}, "queue": "a", "key": "k", "delay": "1h", "meta": {"from": "file"}, "tenant": "acme"},
        {"payload": {"n": 2}, "type": "y", "priority": 3, "max_attempts": 2, "timeout": 90},
    )
    found = run("enqueue", "x", "--many", "many.jsonl", "--envelope", "--queue", "b")
    assert (found["enqueued"], found["existed"]) == (2, 1)
    second, first = driver.list(JobFilter()).jobs
    assert (first.type, first.queue, first.tenant_id, dict(first.meta)) == ("x", "a", "acme", {"from": "file"})
    assert (second.type, second.queue, second.priority, second.timeout) == ("y", "b", 3, timedelta(seconds=90))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"payload": {}, "quue": "a"}, "quue"),
        ({"payload": 5}, "payload must be"),
        ({"payload": {}, "delay": "soon"}, "delay"),
        ({"payload": {}, "delay": 5, "run_at": "2800-01-01T00:00:00Z"}, "both say when"),
        ({"payload": {}, "priority": "high"}, "priority"),
        ({"payload": {}, "meta": 5}, "meta"),
        ({"payload": {}, "type": 5}, "type"),
        ({"payload": {}, "key": 5}, "key must be text"),
    ],
)
def test_an_envelope_with_a_mistake_is_named_by_its_line(line: Any, problem: str, run: Run) -> None:
    lines({"payload": {}}, line)
    found = run("enqueue", "x", "--many", "many.jsonl", "--envelope", code=1)
    assert found["enqueued"] == 0
    assert found["errors"][0]["line"] == 2
    assert problem in found["errors"][0]["error"]


def test_a_key_that_is_taken_names_its_line(run: Run) -> None:
    run("enqueue", "x", '{"n": 1}', "--key", "k")
    lines({"payload": {"n": 1}}, {"payload": {"n": 2}, "key": "k"})
    found = run("enqueue", "x", "--many", "many.jsonl", "--envelope", code=1)
    assert (found["errors"][0]["line"], found["held_back"]) == (2, 1)


def test_a_line_too_long_to_be_a_payload_is_passed_over(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.cli.bulk.LONGEST_LINE", 64)
    monkeypatch.setattr("taskharbor.cli.bulk.CHUNK_LINES", 1)
    Path("many.jsonl").write_text('{"n":1}\n{"n":"' + "x" * 300 + '"}\n{"n":3}\n')
    found = run("enqueue", "x", "--many", "many.jsonl", code=1)
    assert (found["enqueued"], found["bad"], found["errors"][0]["line"]) == (2, 1, 2)


def test_only_the_first_bad_lines_are_listed(run: Run) -> None:
    Path("many.jsonl").write_text("oops\n" * 100)
    found = run("enqueue", "x", "--many", "many.jsonl", code=1)
    assert (found["bad"], len(found["errors"])) == (100, 20)
