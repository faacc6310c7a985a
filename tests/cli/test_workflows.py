"""`taskharbor workflows`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taskharbor.cli import workflows
from taskharbor.core.model import NewJob
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, WorkflowState
from taskharbor.drivers import open_driver


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def started(url: str) -> str:
    steps = [NewStep("fetch", NewJob("fetch"))]
    steps += [NewStep(f"square[{n}]", NewJob("square"), (0,), "square") for n in range(40)]
    steps.append(NewStep("all", NewJob("total"), tuple(range(1, 41))))
    with open_driver(url) as driver:
        driver.migrate()
        id = driver.start_workflow(NewWorkflow("nightly", steps))
        [leased] = driver.reserve("default")
        driver.ack(leased.job.id, leased.lease.token)
        for leased in driver.reserve("default", limit=10):
            driver.ack(leased.job.id, leased.lease.token)
        [leased] = driver.reserve("default")
        driver.fail(leased.job.id, leased.lease.token, reason="boom")
        return id


def test_show_draws_the_graph_with_many_of_a_kind_as_one_line(say: Any, url: str, started: str) -> None:
    heading, fetch, square, last, *_ = say("--url", url, "workflows", "show", started).splitlines()
    assert heading == "nightly  failed  11 of 42 done, 1 failed"
    assert fetch.startswith("✔ fetch  done  ")
    assert square.startswith("  ✘ square x40  █████░")
    assert "10 done, 1 failed, 29 held" in square
    assert square.endswith("← fetch")
    assert last.startswith("    · all  waiting")
    assert last.endswith("← square")


def test_show_and_list_have_the_same_for_programs(run: Any, url: str, started: str) -> None:
    shown = run("--url", url, "workflows", "show", started)
    assert (shown["state"], shown["total"], shown["done"], shown["failed"]) == ("failed", 42, 11, 1)
    assert (len(shown["steps"]), len(shown["edges"]), shown["complete"]) == (42, 80, True)
    assert [each["id"] for each in run("--url", url, "workflows", "list")["workflows"]] == [started]


def test_show_names_the_first_failed_steps_with_their_errors(run: Any, say: Any, url: str) -> None:
    steps = [NewStep(f"child[{n}]", NewJob("child"), (), "child") for n in range(9)]
    with open_driver(url) as driver:
        driver.migrate()
        id = driver.start_workflow(NewWorkflow("many", steps))
        taken = driver.reserve("default", limit=9)
        for number, leased in enumerate(taken[:-1]):
            reason = f"Traceback (most recent call last):\n  …\nValueError: no {number}"
            driver.fail(leased.job.id, leased.lease.token, reason=reason)
        ended = {leased.job.meta["step"]: number for number, leased in enumerate(taken[:-1])}
        jobs = {step.name: step.job_id for step in driver.workflow_steps(id)}
    *_, header, _, first, second, third, fourth, fifth, more = say("--url", url, "workflows", "show", id).splitlines()
    assert header.split("  ")[0] == "failed step"
    for line, name in zip((first, second, third, fourth, fifth), sorted(ended), strict=False):
        assert line.split() == [name, jobs[name], "ValueError:", "no", str(ended[name])]
    assert more.startswith("and 3 more: --json")
    failures = run("--url", url, "workflows", "show", id)["failures"]
    assert [each["step"] for each in failures] == sorted(ended)[:5]
    assert failures[0]["error"].startswith("Traceback")


@pytest.mark.parametrize(("lose", "said"), [("purge", "its job is gone"), ("cancel", "was cancelled")])
def test_show_says_how_a_step_without_an_error_ended(say: Any, url: str, lose: str, said: str) -> None:
    with open_driver(url) as driver:
        driver.migrate()
        id = driver.start_workflow(NewWorkflow("one", [NewStep("only", NewJob("only"))]))
        [step] = driver.workflow_steps(id)
        if lose == "cancel":
            driver.cancel(step.job_id)
        else:
            [leased] = driver.reserve("default")
            driver.fail(leased.job.id, leased.lease.token, reason="boom")
            driver.purge()
    assert say("--url", url, "workflows", "show", id).splitlines()[-1].endswith(said)


@pytest.mark.parametrize(("policy", "said"), [(Policy.FAIL, "failed"), (Policy.CONTINUE, "waiting, cancelled")])
def test_show_tells_of_a_waiting_step_that_was_cancelled(say: Any, url: str, policy: Policy, said: str) -> None:
    with open_driver(url) as driver:
        driver.migrate()
        steps = [NewStep("one", NewJob("one")), NewStep("two", NewJob("two"), (0,))]
        id = driver.start_workflow(NewWorkflow("pair", steps, policy))
        job_id = driver.workflow_steps(id)[1].job_id
        driver.cancel(job_id)
    assert f" two  {said}  {job_id}" in say("--url", url, "workflows", "show", id)


def test_list_takes_states_and_pages(
    run: Any, say: Any, url: str, started: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "_PAGE", 2)
    with open_driver(url) as driver:
        ids = [driver.start_workflow(NewWorkflow("w", [NewStep("one", NewJob("one"))])) for _ in range(5)]
        for id in ids[::2]:
            driver.cancel_workflow(id)

    def listed(*flags: str) -> tuple[list[str], str | None]:
        answer = run("--url", url, "workflows", "list", *flags)
        return [each["id"] for each in answer["workflows"]], answer["cursor"]

    assert listed("--state", "failed") == ([started], None)
    assert listed("--state", "failed", "--state", "running") == ([ids[3], ids[1], started], None)
    assert listed("--state", "cancelled", "--limit", "2") == ([ids[4], ids[2]], ids[2])
    assert listed("--state", "cancelled", "--limit", "2", "--cursor", ids[2]) == ([ids[0]], None)
    assert listed("--limit", "6") == ([*ids[::-1], started], None)
    assert f"there are more: --cursor {ids[3]}" in say("--url", url, "workflows", "list", "--limit", "2")
    assert "no workflow is done or starting" in say(
        "--url", url, "workflows", "list", "--state", "done", "--state", "starting"
    )
    say("--url", url, "workflows", "list", "--state", "broken", code=2)


def test_the_states_to_list_by_are_all_there_are() -> None:
    assert set(workflows.STATES) == set(WorkflowState)


def test_a_cursor_that_is_none_is_refused_with_what_to_do(say: Any, url: str, started: str) -> None:
    said = say("--url", url, "workflows", "list", "--cursor", "nope", code=2)
    assert "'nope' is no id of a workflow" in said
    assert "start without one" in said


def test_a_job_that_waits_for_other_steps_says_so_and_has_no_time(say: Any, url: str, started: str) -> None:
    with open_driver(url) as driver:
        last = driver.workflow_steps(started)[-1].job_id
    shown = say("--url", url, "jobs", "show", last)
    said = f"other steps of its workflow, which is failed: taskharbor workflows show {started}"
    assert [line.split(maxsplit=2)[-1] for line in shown.splitlines() if line.startswith("waits for")] == [said]
    assert "9999" not in shown
    assert not [line for line in shown.splitlines() if line.startswith("due")]


def test_redrive_and_cancel_act_on_the_whole(say: Any, url: str, started: str) -> None:
    assert "goes on" in say("--url", url, "workflows", "redrive", started)
    say("--url", url, "workflows", "redrive", started, code=2)
    assert "is cancelled" in say("--url", url, "workflows", "cancel", started)
    with open_driver(url) as driver:
        assert driver.get_workflow(started).state == "cancelled"
        assert driver.reserve("default") == []


def test_an_unknown_workflow_is_said_to_be_so(say: Any, url: str, started: str) -> None:
    said = say("--url", url, "workflows", "cancel", started, "nobody", code=1)
    assert "no workflow with the id 'nobody'" in said
    with open_driver(url) as driver:
        assert driver.get_workflow(started).state == "failed", "none of them was changed"
