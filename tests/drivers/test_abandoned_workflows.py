"""A workflow whose caller died before all of it was stored never runs, and does not stay for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.core.model import NewJob
from taskharbor.core.workflow import NewStep, NewWorkflow, WorkflowState
from taskharbor.drivers import open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.testing.servers import PostgresServer
from taskharbor.testing.times import NOON

HOURS = timedelta(hours=2)
COUNT = 5_001


class Died(Exception):
    pass


@pytest.fixture(params=["memory", "sqlite"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with open_driver(url) as opened:
        opened.migrate()
        yield opened


def check(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    at_desk = BaseDriver._at_flow_desk

    def dying(self: Any, work: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Died
        return at_desk(self, work)

    steps = [NewStep(f"s{number}", NewJob("child")) for number in range(COUNT)]
    with monkeypatch.context() as patched:
        patched.setattr(BaseDriver, "_at_flow_desk", dying)
        with pytest.raises(Died):
            driver.start_workflow(NewWorkflow("large", steps), now=NOON)
    driver.forget_rules()
    [flow] = driver.list_workflows()
    assert flow.state is WorkflowState.STARTING
    driver.recover(NOON)
    assert driver.reserve("default", now=NOON + HOURS) == []
    for _ in range(2):  # each cancels a bounded number of steps
        driver.recover(NOON + HOURS)
    assert driver.get_workflow(flow.id).state is WorkflowState.CANCELLED
    assert driver.counts()["ready"] == 0


def test_what_never_started_is_cancelled_after_an_hour(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(driver, monkeypatch)


@pytest.mark.server
def test_what_never_started_is_cancelled_after_an_hour_on_postgresql(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_driver(postgres.create_database()) as driver:
        driver.migrate()
        check(driver, monkeypatch)
