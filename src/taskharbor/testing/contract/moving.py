"""What a store that is shut for a move promises: nothing comes in, nothing begins, and nothing is changed by hand,
however long ago whoever tries it has looked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from taskharbor.core.carrying import DRAINING, GONE, MOVING, NOTE, Departure, departure_of
from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreMoved
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import JobFilter, Overlap, Schedule, Settlement, Status
from taskharbor.core.tokens import new_token
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, WorkflowState
from taskharbor.drivers.base import BaseDriver
from taskharbor.testing.helpers import add, dead_job, done_job, everything, leased_job, new_job, take, take_all
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON, SECOND

FLOW: Final = NewWorkflow("nightly", [NewStep("one", new_job()), NewStep("two", new_job(), (0,))])
UNIQUE: Final[dict[str, Any]] = {"while_in": ("ready",)}
DEBOUNCED: Final[dict[str, Any]] = {"idempotency_key": "held", "while_in": ("ready",), "on_duplicate": "replace"}

WAYS_IN: Final[dict[str, Callable[[Driver], Any]]] = {
    "one job": lambda driver: driver.enqueue([new_job()], NOON),
    "one job with a time": lambda driver: driver.enqueue([new_job(run_at=NOON + HOUR, meta={"a": "b"})], NOON),
    "one job with a key": lambda driver: driver.enqueue([new_job(idempotency_key="fresh")], NOON),
    "one job with a key whose time is over": lambda driver: driver.enqueue([new_job(idempotency_key="old")], NOON),
    "one job with an id": lambda driver: driver.enqueue([new_job(id="mine")], NOON),
    "a batch": lambda driver: driver.enqueue([new_job(), new_job(idempotency_key="fresh")], NOON),
    "thousands": lambda driver: driver.enqueue([new_job() for _ in range(2_500)], NOON),
    "a unique job": lambda driver: driver.enqueue([new_job(idempotency_key="u", **UNIQUE)], NOON),
    "a job in place of another": lambda driver: driver.enqueue([new_job(payload=b'{"to":2}', **DEBOUNCED)], NOON),
    "a workflow": lambda driver: driver.start_workflow(FLOW, now=NOON),
}
BY_HAND: Final[dict[str, Callable[[Driver], Any]]] = {
    "pause": lambda driver: driver.pause("mail"),
    "resume": lambda driver: driver.resume("stopped"),
    "set_limit": lambda driver: driver.set_limit(Limit("queue", "mail", concurrency=1), now=NOON),
    "drop_limit": lambda driver: driver.drop_limit("queue", "slow", now=NOON),
    "set_fair": lambda driver: driver.set_fair("mail", now=NOON),
    "cancel": lambda driver: driver.cancel("waiting", now=NOON),
    "redrive": lambda driver: driver.redrive(JobFilter(queue="failed"), now=NOON),
    "redrive of copies": lambda driver: driver.redrive(now=NOON, clone=True),
    "purge": lambda driver: driver.purge(),
    "prune": lambda driver: driver.prune(NOON + DAY),
    "prune of some": lambda driver: driver.prune(NOON + DAY, ids=["done"]),
    "cancel_workflow": lambda driver: driver.cancel_workflow("running", now=NOON),
    "redrive_workflow": lambda driver: driver.redrive_workflow("broken", now=NOON),
    "put_schedule": lambda driver: driver.put_schedule(Schedule("new", "@daily", "t"), now=NOON),
    "pause_schedule": lambda driver: driver.pause_schedule("kept", paused=True, now=NOON),
    "remove_schedule": lambda driver: driver.remove_schedule("kept"),
    "add_token": lambda driver: driver.add_token(new_token("ci", "acme", "viewer", NOON)[0]),
    "revoke_token": lambda driver: driver.revoke_token(driver.tokens()[0].id, now=NOON),
}


def shut_unnoticed(driver: Driver) -> BaseDriver:
    """Somebody else shuts the store, and this driver goes by what it knew before: it was stopped in between."""
    if not isinstance(driver, BaseDriver):
        pytest.skip("only the built-in stores can be moved")
    driver._rules()
    driver._rules_until = float("inf")
    driver.carrier().write_notes({NOTE: '{"to": "1", "to_url": "elsewhere"}'})
    driver._set_paused(MOVING, True)
    return driver


def opened(driver: BaseDriver) -> None:
    driver.shut(False)
    driver.carrier().write_notes({NOTE: None})


def furnish(driver: Driver) -> None:
    """One of everything that can be changed by hand."""
    add(driver, id="waiting")
    add(driver, id="holder", payload=b'{"to":1}', **DEBOUNCED)
    done_job(driver, id="done")
    dead_job(driver, id="dead", queue="failed")
    driver.pause("stopped")
    driver.set_limit(Limit("queue", "slow", concurrency=1), now=NOON)
    driver.put_schedule(Schedule("kept", "@daily", "t", overlap=Overlap.SKIP), now=NOON)
    driver.add_token(new_token("ops", "acme", "viewer", NOON)[0])
    for id in ("running", "broken"):
        steps = [NewStep("one", new_job(queue=id)), NewStep("two", new_job(queue=id), (0,))]
        driver.start_workflow(NewWorkflow(id, steps, id=id), now=NOON)
    broken = take(driver, "broken")
    driver.fail(broken.job.id, broken.lease.token, now=NOON, reason="boom")


def state_of(driver: Driver) -> dict[str, Any]:
    return {
        "jobs": everything(driver),
        "queues": driver.queues(),
        "limits": driver.get_limits(),
        "schedules": driver.schedules(),
        "tokens": driver.tokens(),
        "workflows": [(flow, driver.workflow_steps(flow.id)) for flow in driver.list_workflows()],
    }


class MovingContract:
    """A store that is shut, as a move has it: `StoreMoved`, and where to go."""

    @pytest.mark.parametrize("way", WAYS_IN)
    def test_a_producer_that_was_stopped_on_its_way_in_gets_nothing_into_a_store_that_is_shut(
        self, driver: Driver, way: str
    ) -> None:
        add(driver, id="holder", payload=b'{"to":1}', **DEBOUNCED)
        driver.enqueue([new_job(id="past", idempotency_key="old", key_ttl=MINUTE)], NOON - HOUR)
        driver.enqueue([new_job(id="warm")], NOON)  # the next one goes the quick way, where there is one
        before = everything(driver)
        moved = shut_unnoticed(driver)
        with pytest.raises(StoreMoved, match="elsewhere"):
            WAYS_IN[way](driver)
        assert everything(driver) == before
        assert not driver.list_workflows()
        opened(moved)
        WAYS_IN[way](driver)
        assert everything(driver) != before

    @pytest.mark.parametrize("queues", [["default"], ["default", "mail"]], ids=["one queue", "two queues"])
    @pytest.mark.parametrize("governed", [False, True], ids=["plain", "limited"])
    def test_a_worker_that_was_stopped_on_its_way_to_a_claim_gets_nothing_from_a_store_that_is_shut(
        self, driver: Driver, queues: list[str], governed: bool
    ) -> None:
        if governed:
            driver.set_limit(Limit("queue", "default", concurrency=5), now=NOON)
        running = leased_job(driver)
        ids = [add(driver), add(driver, queue="mail", priority=3)]
        moved = shut_unnoticed(driver)
        assert driver.reserve(queues, now=NOON + SECOND, limit=10) == []
        assert driver.reserve(queues, now=NOON + SECOND, limit=10, tenant="default") == []
        done = Settlement.ack(running.job.id, running.lease.token)
        settled, leased = driver.settle_and_reserve([done], queues, now=NOON + SECOND, limit=10)
        assert (settled, leased) == ([Status.DONE], [])
        assert {driver.get(id).status for id in ids} == {Status.READY}
        opened(moved)
        assert {leased.job.id for leased in take_all(driver, ["default", "mail"])} == set(ids)

    @pytest.mark.parametrize("known", [True, False], ids=["known", "not known yet"])
    @pytest.mark.parametrize("verb", BY_HAND)
    def test_nothing_is_changed_by_hand_in_a_store_that_is_shut(self, driver: Driver, verb: str, known: bool) -> None:
        furnish(driver)
        before = state_of(driver)
        moved = shut_unnoticed(driver)
        if known:
            moved.forget_rules()
        with pytest.raises(StoreMoved, match="elsewhere"):
            BY_HAND[verb](driver)
        assert state_of(driver) == before
        opened(moved)
        BY_HAND[verb](driver)
        assert state_of(driver) != before

    def test_a_store_says_whether_it_is_being_moved_or_was_and_where_to_without_a_password(
        self, driver: Driver
    ) -> None:
        assert departure_of(driver) is None
        moved = shut_unnoticed(driver)
        later = "this store is being moved to elsewhere: use that one when the move has ended"
        assert departure_of(driver) == Departure(later, shut=True, gone=False)
        moved.set_mark(GONE, True)
        assert departure_of(driver) == Departure("this store was moved to elsewhere: use that one", True, gone=True)
        with pytest.raises(StoreMoved, match="was moved to elsewhere"):
            add(driver)
        opened(moved)
        assert departure_of(driver) is None
        moved.carrier().write_notes({NOTE: '{"to": "1", "to_url": "mysql://app:secret@db/shop", "live": true}'})
        moved.set_mark(DRAINING, True)
        live = "this store is being moved to mysql://app:***@db/shop: use that one"
        assert departure_of(driver) == Departure(live, shut=False, gone=False)
        moved.set_mark(DRAINING, False)
        opened(moved)

    def test_what_runs_in_a_store_that_is_shut_may_end(self, driver: Driver) -> None:
        undone = NewWorkflow("w", [NewStep("one", new_job())], Policy.COMPENSATE, new_job(type="undo"))
        id = driver.start_workflow(undone, now=NOON)
        leased = take(driver)
        moved = shut_unnoticed(driver)
        moved.forget_rules()
        driver.heartbeat(Worker("w1"), now=NOON)
        driver.extend_lease(leased.job.id, leased.lease.token, now=NOON + SECOND, lease_for=HOUR)
        driver.fail(leased.job.id, leased.lease.token, now=NOON + MINUTE, reason="boom")
        assert driver.get(leased.job.id).status is Status.DLQ
        # Its workflow goes on as far as it can: that moves as it is.
        assert driver.get_workflow(id).state is WorkflowState.COMPENSATING
        opened(moved)
        assert take(driver, now=NOON + HOUR).job.type == "undo"
