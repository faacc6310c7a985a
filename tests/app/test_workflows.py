"""Workflows as applications write and watch them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taskharbor import (
    PREVIOUS,
    RESULTS,
    Context,
    Harbor,
    InvalidArguments,
    InvalidInput,
    JobFailed,
    Task,
    Unique,
    Unrecoverable,
    WaitTimeout,
    Workflow,
    WorkflowNotFound,
    chain,
    chord,
    group,
)
from taskharbor.drivers import governed


@pytest.fixture
def double(harbor: Harbor) -> Task[..., int]:
    @harbor.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    return double


@pytest.fixture
def add(harbor: Harbor) -> Task[..., int]:
    @harbor.task(name="add")
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    return add


@pytest.fixture
def broken(harbor: Harbor) -> Task[..., int]:
    @harbor.task(name="broken")
    def broken() -> int:
        raise Unrecoverable("out of order")

    return broken


def drained(harbor: Harbor) -> None:
    harbor.worker().drain()


def test_a_chain_hands_each_result_to_the_next(harbor: Harbor, double: Task[..., int]) -> None:
    run = harbor.start(chain(double.s(n=1), double.s(n=PREVIOUS), double.s(n=PREVIOUS)))
    assert (run.state, run.progress) == ("running", 0.0)
    drained(harbor)
    run.wait(0)
    assert (run.state, run.progress) == ("done", 1.0)
    assert run.result("3-double") == 8


def test_a_chord_runs_its_finalizer_once_with_all_results_in_order(
    harbor: Harbor, double: Task[..., int], add: Task[..., int]
) -> None:
    run = harbor.start(chord((double.s(n=n) for n in range(10)), add.s(numbers=RESULTS)))
    drained(harbor)
    assert run.wait(0).result("finalizer") == 90
    assert [step.name for step in run.steps()][:2] == ["children[0]", "children[1]"]


def test_a_group_is_done_when_all_are(harbor: Harbor, double: Task[..., int]) -> None:
    run = harbor.start(group([double.s(n=n) for n in range(3)], name="three"))
    assert run.name == "three"
    drained(harbor)
    assert run.wait(0).state == "done"


def test_a_graph_of_named_steps_goes_by_its_data_and_its_order(harbor: Harbor, double: Task[..., int]) -> None:
    order: list[str] = []

    @harbor.task
    def note(name: str, numbers: list[int] | None = None, *, context: Context) -> int:
        assert context.workflow == run.id
        order.append(name)
        return sum(numbers or [1])

    flow = Workflow("nightly")
    extract = flow.step("extract", note.s(name="extract"))
    left = flow.step("left", note.s(name="left", numbers=[extract.result, 10]))
    right = flow.step("right", note.s(name="right"), after=[extract])
    flow.step("load", note.s(name="load", numbers=[left.result, right.result]))
    run = harbor.start(flow)
    drained(harbor)
    assert (order[0], order[-1], set(order[1:3])) == ("extract", "load", {"left", "right"})
    assert run.wait(0).result("load") == 12


def test_steps_keep_the_options_of_their_calls(harbor: Harbor, double: Task[..., int]) -> None:
    run = harbor.start(chain(double.using(queue="slow", priority=7).s(n=1)))
    [step] = run.steps()
    job = harbor.job(step.job_id)
    assert (job.queue, job.priority) == ("slow", 7)


def test_a_step_is_not_started_in_the_transaction_of_a_caller(harbor: Harbor, double: Task[..., int]) -> None:
    with pytest.raises(InvalidInput, match="started on its own, not in the transaction"):
        double.using(connection=object()).s(n=1)


@pytest.mark.parametrize("key", ["{n}", "of {n[0]}", lambda n: f"{n}"], ids=["text", "part", "function"])
def test_a_limit_key_is_not_made_of_a_result_that_is_still_to_come(
    harbor: Harbor, double: Task[..., int], key: Any
) -> None:
    keyed = double.using(limit_key=key)
    with pytest.raises(InvalidInput, match=r"limit_key is made of 'n', which is a result of another step.*using\("):
        harbor.start(chain(double.s(n=1), keyed.s(n=PREVIOUS)))
    assert not any(harbor.driver.counts().values())
    run = harbor.start(chain(double.s(n=1), double.using(limit_key="all").s(n=PREVIOUS)))
    assert harbor.job(list(run.steps())[1].job_id).meta["limit_key"] == "all"


def test_a_failed_step_stops_the_rest_and_a_redrive_goes_on(
    harbor: Harbor, double: Task[..., int], broken: Task[..., int]
) -> None:
    run = harbor.start(chain(double.s(n=1), broken.s(), double.s(n=PREVIOUS)))
    drained(harbor)
    assert run.wait(0).state == "failed"
    with pytest.raises(JobFailed):
        run.result("2-broken")
    assert run.redrive().state == "running"
    drained(harbor)
    assert run.refresh().state == "failed"
    assert run.cancel().state == "cancelled"


def test_a_step_behind_a_failed_one_says_at_once_what_failed_and_what_to_do(
    harbor: Harbor, double: Task[..., int], broken: Task[..., int]
) -> None:
    run = harbor.start(chain(broken.s(), double.s(n=PREVIOUS)))
    with pytest.raises(WaitTimeout, match="step '2-double' of workflow 'chain' .* has not ended yet: wait"):
        run.result("2-double")
    with pytest.raises(WaitTimeout, match=f"^workflow 'chain' {run.id} has not ended within 0 s"):
        run.wait(0)
    drained(harbor)
    with pytest.raises(JobFailed) as failed:
        run.wait(0).result("2-double")
    said = str(failed.value)
    assert said.startswith(f"workflow 'chain' {run.id} has failed, and its step '2-double' does not run: ")
    assert "step '1-broken' failed, " in said
    assert "out of order" in said
    assert said.endswith("run.redrive()")
    [first, _] = run.steps()
    assert (failed.value.id, failed.value.code) == (first.job_id, "unrecoverable")
    assert "out of order" in failed.value.error
    harbor.driver.purge()
    with pytest.raises(JobFailed, match="is gone. Start a new workflow"):
        run.result("2-double")
    run.cancel()
    with pytest.raises(JobFailed, match="was cancelled"):
        run.result("2-double")


def test_a_step_of_a_workflow_that_was_undone_says_so(
    harbor: Harbor, double: Task[..., int], broken: Task[..., int]
) -> None:
    run = harbor.start(chain(broken.s(), double.s(n=PREVIOUS), on_failure=double.s(n=1)))
    drained(harbor)
    with pytest.raises(JobFailed, match="was undone, and its step '2-double' does not run: .*Start a new workflow"):
        run.wait(0).result("2-double")


def test_to_continue_gives_none_for_what_has_failed(
    harbor: Harbor, double: Task[..., int], broken: Task[..., int]
) -> None:
    seen: list[Any] = []

    @harbor.task
    def look(values: list[int | None]) -> None:
        seen.extend(values)

    run = harbor.start(chord([double.s(n=1), broken.s()], look.s(values=RESULTS), on_failure="continue"))
    drained(harbor)
    assert seen == [2, None]
    assert run.wait(0).state == "failed"


def test_a_compensation_can_see_what_was_done(harbor: Harbor, double: Task[..., int], broken: Task[..., int]) -> None:
    undone: list[str] = []

    @harbor.task
    def undo(reason: str, *, context: Context) -> None:
        assert context.workflow is not None
        undone.extend(step.name for step in harbor.workflow(context.workflow).steps() if step.state == "done")

    run = harbor.start(chain(double.s(n=1), broken.s(), on_failure=undo.s(reason="a step failed")))
    drained(harbor)
    assert run.wait(0).state == "compensated"
    assert undone == ["1-double"]


def test_results_of_another_workflow_cannot_be_asked_for(harbor: Harbor, double: Task[..., int]) -> None:
    """Whoever may write payloads and meta must not read other tenants' results with them."""
    theirs = harbor.start(chain(double.s(n=21)))
    drained(harbor)
    payload = {"n": {"$taskharbor.result": 0}}
    stolen = harbor.driver.enqueue(
        [
            double.new_job(n=1)._replace(
                payload=harbor.codec.encode(payload), tenant_id="evil", meta={"workflow": theirs.id}
            )
        ]
    )[0]
    plain = harbor.driver.enqueue([double.new_job(n=1)._replace(payload=harbor.codec.encode(payload))])[0]
    drained(harbor)
    for id in (stolen.id, plain.id):
        assert harbor.job(id).state == "dlq"
        assert "42" not in (harbor.job(id).record.dlq_reason or "")


def _given(task: Task[..., int], chosen: Any) -> Workflow:
    flow = Workflow("w")
    one, many = flow.step("one", task.s(n=1)), flow.group("many", [task.s(n=2)])
    flow.step("last", task.s(n=chosen(one, many)))
    return flow


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (lambda _: chain(), "no steps"),
        (lambda _: group([]), "no steps"),
        (lambda task: chain(task.s(n=PREVIOUS)), "PREVIOUS makes sense in a chain, behind its first step"),
        (lambda task: chain(task.s(n=1), on_failure=task.s(n=PREVIOUS)), "takes the result of a step"),
        (lambda task: Workflow("w").group("many", task.s(n=1)), "takes a list of calls"),
        (lambda task: group(task.s(n=1), task.s(n=2)), r"one list: write group\(\[a.s\(\), b.s\(\)\]\)"),
        (lambda task: chord(task.s(n=1), task.s(n=2), task.s(n=3)), r"write chord\(\[a.s\(\), b.s\(\)\], last"),
        (lambda task: chain(group([task.s(n=1)]), task.s(n=2)), "'group', 1 steps.* is a workflow.*flow.group"),
        (lambda task: Workflow("w").step("a", task.s(n=1), after="later"), "'later', which is no step"),
        (lambda task: Workflow("w").step("a", task.s(n=1), after="a"), "cannot come after each other"),
        (lambda task: chain(task.s(n=1), task.s(n=RESULTS)), "RESULTS makes sense in the last step of a chord"),
        (lambda task: chain(task.s(n=Workflow("other").step("a", task.s(n=1)).result)), "none of workflow"),
        (lambda task: _given(task, lambda step, _: step), "'last' is given 'one' itself.*: give step.result"),
        (lambda task: _given(task, lambda _, many: [many]), "'last' is given 'many' itself.*: give group.results"),
        (lambda _: Workflow("w").step("a", 3), "a call of a task"),
        (lambda _: Workflow("w", on_failure="ignore"), "on_failure takes"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_stored(
    harbor: Harbor, double: Task[..., int], flow: Any, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        harbor.start(flow(double))
    assert harbor.driver.list_workflows() == []


def test_bad_arguments_are_refused_at_the_start_and_name_the_argument(harbor: Harbor, double: Task[..., int]) -> None:
    for bad in (double.s(n="x"), double.s(), double.s(n=1, m=2)):
        with pytest.raises(InvalidArguments, match="double"):
            harbor.start(chain(double.s(n=1), bad))
    with pytest.raises(InvalidArguments, match="'m'"):
        harbor.start(chain(double.s(n=1), double.s(n=1, m=PREVIOUS)))
    assert harbor.driver.counts()["ready"] == 0


def test_a_result_of_the_wrong_kind_ends_in_the_dlq_like_any_bad_argument(harbor: Harbor, add: Task[..., int]) -> None:
    run = harbor.start(chain(add.s(numbers=[1]), add.s(numbers=PREVIOUS)))
    drained(harbor)
    assert run.wait(0).state == "failed"


def test_an_unknown_workflow_is_not_found(harbor: Harbor) -> None:
    with pytest.raises(WorkflowNotFound):
        harbor.workflow("nobody")


def test_a_worker_that_has_just_looked_drains_a_whole_chain_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governed, "RULES_LAST_S", 3_600.0)
    ran = []

    def application() -> tuple[Harbor, Task[..., None]]:
        harbor = Harbor(f"sqlite:///{tmp_path}/jobs.db")

        @harbor.task(name="note")
        def note(n: int) -> None:
            ran.append(n)

        return harbor, note

    starter, note = application()
    starter.driver.migrate()
    worker, _ = application()
    worker.worker().drain()
    run = starter.start(chain(note.s(n=1), note.s(n=2), note.s(n=3)))
    worker.worker().drain()
    assert (run.wait(0).state, ran) == ("done", [1, 2, 3])
    starter.close()
    worker.close()


def test_a_step_comes_after_others_by_what_they_gave_back_or_by_name(harbor: Harbor) -> None:
    ran: list[str] = []

    @harbor.task
    def note(name: str) -> None:
        ran.append(name)

    flow = Workflow("named")
    first = flow.step("first", note.s(name="first"))
    flow.group("many", [note.s(name="one"), note.s(name="two")], after=first)
    flow.step("last", note.s(name="last"), after="many")
    harbor.start(flow)
    harbor.worker().drain()
    assert (ran[0], sorted(ran[1:3]), ran[3]) == ("first", ["one", "two"], "last")


@pytest.mark.parametrize("rule", [{"unique": Unique()}, {"debounce": 60}, {"throttle": 60}])
def test_a_step_of_a_task_with_a_rule_is_refused_with_what_to_do_and_runs_without_it(
    harbor: Harbor, double: Task[..., int], rule: Any
) -> None:
    @harbor.task(name="sync", **rule)
    def sync(n: int) -> int:
        return n

    [option] = rule
    told = rf"has {option}=….*sync.using\(unique=None\).s\(…\)"
    with pytest.raises(InvalidInput, match="step '1-sync': sync " + told):
        harbor.start(chain(sync.s(n=1)))
    with pytest.raises(InvalidInput, match="step 'compensation': sync " + told):
        harbor.start(chain(double.s(n=1), on_failure=sync.s(n=1)))
    assert harbor.driver.list_workflows() == []
    for none in ("unique", option):
        options: Any = {none: None}
        run = harbor.start(chain(sync.using(**options).s(n=1), sync.using(**options).s(n=PREVIOUS)))
        drained(harbor)
        assert run.wait(0).result("2-sync") == 1


def test_steps_have_the_names_that_the_documents_say(harbor: Harbor, double: Task[..., int]) -> None:
    @harbor.task(name="undo")
    def undo() -> None: ...

    @harbor.task(name="broken")
    def broken(numbers: list[int]) -> None:
        raise Unrecoverable("out of order")

    run = harbor.start(chord([double.s(n=1), double.s(n=2)], broken.s(numbers=RESULTS), on_failure=undo.s()))
    drained(harbor)
    assert run.wait(0).state == "compensated"
    assert sorted(step.name for step in run.steps()) == ["children[0]", "children[1]", "compensation", "finalizer"]
    assert run.result("children[1]") == 4
