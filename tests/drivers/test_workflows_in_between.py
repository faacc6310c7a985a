"""Workflows with others at work: cancelled in the middle of their start, half cancelled, started by somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor.core.model import NewJob, Settlement
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, StepState, WorkflowState
from taskharbor.drivers import flowing, flowreturning, flows, flowstart, governed, open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.testing.times import DAY, NOON

AT_ONCE = 10
SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("postgres", "mysql")]


class Died(BaseException):
    pass


def url_of(request: pytest.FixtureRequest, name: str, directory: Path) -> str:
    if name == "memory":
        return "memory://"
    if name in ("json", "sqlite"):
        return f"{name}:///{directory}/store"
    return str(request.getfixturevalue(name).create_database())


@pytest.fixture(params=["memory", "json", "sqlite", *SERVERS])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with open_driver(url_of(request, request.param, tmp_path)) as opened:
        opened.migrate()
        yield opened


@pytest.fixture(params=["json", "sqlite", *SERVERS])
def two_drivers(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Any]]:
    """Two processes on one store, so to speak, which look at the rules once and never again by themselves."""
    monkeypatch.setattr(governed, "RULES_LAST_S", 3_600.0)
    url = url_of(request, request.param, tmp_path)
    with open_driver(url) as one, open_driver(url) as other:
        one.migrate()
        yield one, other


def chain(count: int) -> NewWorkflow:
    steps = [NewStep(f"s{n}", NewJob("step"), (n - 1,) if n else ()) for n in range(count)]
    return NewWorkflow("chain", steps)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than a transaction is small here."""
    for module in (flowing, flows, flowreturning, flowstart):
        monkeypatch.setattr(module, "AT_ONCE", AT_ONCE)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("call", [2, 3, 4, 5])
def test_a_workflow_that_is_cancelled_while_it_starts_stays_cancelled(
    driver: Any, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    calls = 0
    at_desk = BaseDriver._at_flow_desk

    def interrupted(self: Any, work: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            [found] = driver.list_workflows()
            assert found.state is WorkflowState.STARTING
            driver.cancel_workflow(found.id, now=NOON)
        return at_desk(self, work)

    steps = [NewStep(f"s{number}", NewJob("child")) for number in range(2 * AT_ONCE)]
    steps.append(NewStep("last", NewJob("last"), tuple(range(2 * AT_ONCE))))
    monkeypatch.setattr(BaseDriver, "_at_flow_desk", interrupted)
    id = driver.start_workflow(NewWorkflow("large", steps), now=NOON)
    flow = driver.get_workflow(id)
    assert (flow.state, flow.ended_at) == (WorkflowState.CANCELLED, NOON)
    assert driver.counts()["ready"] == 0
    assert {each.state for each in driver.workflow_counts(id)} == {StepState.CANCELLED}
    driver.mend_workflows(now=NOON)
    assert driver.reserve("default", now=NOON + DAY) == []


@pytest.mark.usefixtures("small_parts")
def test_steps_of_a_large_workflow_keep_their_times(driver: Any) -> None:
    steps = [NewStep(f"s{number}", NewJob("child")) for number in range(AT_ONCE)]
    steps.append(NewStep("later", NewJob("later", run_at=NOON + DAY)))
    id = driver.start_workflow(NewWorkflow("large", steps), now=NOON)
    [later] = [step.job_id for step in driver.workflow_steps(id, AT_ONCE - 1)]
    assert driver.get(later).due_at == NOON + DAY


def test_a_cancel_that_died_half_way_is_finished_by_mending(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [NewStep(f"s{number}", NewJob("child")) for number in range(20)]
    steps.append(NewStep("last", NewJob("last"), tuple(range(20))))
    id = driver.start_workflow(NewWorkflow("w", steps), now=NOON)
    calls = 0
    cancel = type(driver)._cancel

    def dying(self: Any, job_id: str, now: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise Died
        return cancel(self, job_id, now)

    with monkeypatch.context() as patched:
        patched.setattr(type(driver), "_cancel", dying)
        with pytest.raises(Died):
            driver.cancel_workflow(id, now=NOON)
    half = driver.get_workflow(id)
    assert (half.state, half.ended_at) == (WorkflowState.CANCELLING, None)
    driver.forget_rules()
    driver.recover(NOON)
    flow = driver.get_workflow(id)
    assert (flow.state, flow.ended_at) == (WorkflowState.CANCELLED, NOON)
    assert driver.counts()["ready"] == 0
    assert driver.counts()["cancelled"] == 21
    assert driver.mend_workflows(now=NOON) == 0


def test_what_a_half_cancelled_workflow_still_runs_lets_nothing_go(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = driver.start_workflow(chain(2), now=NOON)
    [leased] = driver.reserve("default", now=NOON)
    with monkeypatch.context() as patched:
        patched.setattr(type(driver), "_cancel", lambda *_: (_ for _ in ()).throw(Died()))
        with pytest.raises(Died):
            driver.cancel_workflow(id, now=NOON)
    driver.ack(leased.job.id, leased.lease.token, now=NOON)
    assert driver.reserve("default", now=NOON + DAY) == []
    assert driver.cancel_workflow(id, now=NOON).state is WorkflowState.CANCELLED


def test_mending_cancels_a_bounded_number_of_steps_at_a_time(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "AT_ONCE", 4)
    id = driver.start_workflow(NewWorkflow("w", [NewStep(f"s{n}", NewJob("child")) for n in range(3)]), now=NOON)
    other = driver.start_workflow(chain(3), now=NOON)
    with monkeypatch.context() as patched:
        patched.setattr(type(driver), "_cancel", lambda *_: (_ for _ in ()).throw(Died()))
        for each in (id, other):
            with pytest.raises(Died):
                driver.cancel_workflow(each, now=NOON)
    driver.forget_rules()
    driver.mend_workflows(now=NOON)
    assert driver.counts()["ready"] == 2
    driver.mend_workflows(now=NOON)
    assert driver.counts()["ready"] == 0
    assert {driver.get_workflow(each).state for each in (id, other)} == {WorkflowState.CANCELLED}


def two_levels(width: int) -> NewWorkflow:
    """Those of the second level have the lower numbers, and each of them comes after one of the first."""
    seconds = [NewStep(f"second {n}", NewJob("second"), (width + n,)) for n in range(width)]
    firsts = [NewStep(f"first {n}", NewJob("first")) for n in range(width)]
    return NewWorkflow("levels", [*seconds, *firsts], Policy.CONTINUE)


def run_all(driver: Any, *, ok: bool) -> list[str]:
    """Run what is there to run, and what comes after that, each of them once; the types in order."""
    ran = []
    while leased := driver.reserve("default", now=NOON, limit=1_000):
        ran += [item.job.type for item in leased]
        keys = [(item.job.id, item.lease.token) for item in leased]
        driver.settle([Settlement.ack(*key) if ok else Settlement.fail(*key, reason="boom") for key in keys], now=NOON)
    return ran


@pytest.mark.usefixtures("small_parts")
def test_what_waits_again_does_so_however_many_come_back(driver: Any) -> None:
    width = 2 * AT_ONCE
    id = driver.start_workflow(two_levels(width), now=NOON)
    assert run_all(driver, ok=False) == ["first"] * width + ["second"] * width
    driver.redrive_workflow(id, now=NOON)
    assert run_all(driver, ok=True) == ["first"] * width + ["second"] * width
    assert driver.get_workflow(id).state is WorkflowState.DONE


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_redrive_that_died_half_way_goes_on_in_the_right_order(
    driver: Any, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    width = 2 * AT_ONCE
    id = driver.start_workflow(two_levels(width), now=NOON)
    run_all(driver, ok=False)
    left = calls
    advance = type(driver).advance

    def dying(self: Any, ids: Any, **fields: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Died
        advance(self, ids, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(type(driver), "advance", dying)
        with pytest.raises(Died):
            driver.redrive_workflow(id, now=NOON)
    assert driver.reserve("default", now=NOON) == [], "nobody knows yet what waits for what"
    monkeypatch.setattr(flows, "LOST_AT_ONCE", AT_ONCE - 1)
    for _ in range(9):
        driver.recover(NOON)
    assert run_all(driver, ok=True) == ["first"] * width + ["second"] * width
    assert driver.get_workflow(id).state is WorkflowState.DONE


def test_a_waiting_step_of_another_process_that_is_cancelled_fails_its_workflow(two_drivers: tuple[Any, Any]) -> None:
    starter, other = two_drivers
    assert other.reserve("default", now=NOON) == []
    id = starter.start_workflow(chain(3), now=NOON)
    other.cancel(starter.workflow_steps(id)[2].job_id, now=NOON)
    assert starter.get_workflow(id).state is WorkflowState.FAILED


@pytest.mark.usefixtures("small_parts")
def test_a_step_that_is_cancelled_while_its_workflow_starts_is_met_when_it_is_let_go(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_rest = BaseDriver._store_rest

    def interrupted(self: Any, id: str, *parts: Any) -> bool:
        driver.cancel(driver.workflow_steps(id)[0].job_id, now=NOON)
        assert driver.get_workflow(id).state is WorkflowState.STARTING
        return store_rest(self, id, *parts)

    monkeypatch.setattr(BaseDriver, "_store_rest", interrupted)
    id = driver.start_workflow(chain(2 * AT_ONCE), now=NOON)
    driver.recover(NOON)
    flow = driver.get_workflow(id)
    assert (flow.state, flow.failed) == (WorkflowState.FAILED, 1)
    assert len(driver.workflow_steps(id)) == 2 * AT_ONCE


def test_a_workflow_of_another_process_moves_on_with_the_settle(two_drivers: tuple[Any, Any]) -> None:
    starter, worker = two_drivers
    assert worker.reserve("default", now=NOON) == []
    id = starter.start_workflow(chain(4), now=NOON)
    for _ in range(4):
        [leased] = worker.reserve("default", now=NOON)
        worker.settle([Settlement.ack(leased.job.id, leased.lease.token)], now=NOON)
    assert starter.get_workflow(id).state is WorkflowState.DONE


def test_a_workflow_of_another_process_fails_with_the_settle(two_drivers: tuple[Any, Any]) -> None:
    starter, worker = two_drivers
    assert worker.reserve("default", now=NOON) == []
    id = starter.start_workflow(chain(3), now=NOON)
    [leased] = worker.reserve("default", now=NOON)
    worker.settle_and_reserve([Settlement.fail(leased.job.id, leased.lease.token, reason="boom")], "default", now=NOON)
    assert starter.get_workflow(id).state is WorkflowState.FAILED


def test_jobs_outside_of_workflows_never_make_the_rules_be_read_again(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governed, "RULES_LAST_S", 3_600.0)
    reads = 0
    read_rules = type(driver)._read_rules

    def counted(self: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_rules(self)

    monkeypatch.setattr(type(driver), "_read_rules", counted)
    driver.enqueue([NewJob("plain", meta={"trace": "1"}) for _ in range(10)], NOON)
    monkeypatch.setattr(type(driver), "_at_flow_desk", None)
    while leased := driver.reserve("default", now=NOON, limit=3):
        driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased], now=NOON)
    assert reads == 1
