"""Unique jobs as applications ask for them."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import DuplicateJob, Enqueued, Harbor, InvalidInput, Task, Unique


@pytest.fixture
def sync(harbor: Harbor) -> Task[..., None]:
    @harbor.task(name="sync", unique=Unique(by=("customer",)))
    def sync(customer: str, full: bool = False) -> None: ...

    return sync


def test_a_rule_and_an_error_for_duplicates_may_be_given_in_one_call() -> None:
    with Harbor("memory://") as harbor:

        @harbor.task
        def sync(customer: str) -> None: ...

        call = sync.using(unique=Unique(by=("customer",)), on_duplicate="raise")
        first = call.enqueue("acme")
        with pytest.raises(DuplicateJob) as refused:
            call.enqueue("acme")
        assert refused.value.existing_id == first.id


def test_calls_with_equal_arguments_are_one_job(harbor: Harbor) -> None:
    @harbor.task(unique=Unique())
    def build(month: str, parts: list[int]) -> None: ...

    first = build.enqueue(month="05", parts=[1, 2])
    assert build.enqueue("05", [1, 2]) == Enqueued(first.id, True)
    assert not build.enqueue(month="05", parts=[2, 1]).existed


def test_only_the_named_arguments_count(harbor: Harbor, sync: Task[..., None]) -> None:
    first = sync.enqueue(customer="acme")
    assert sync.enqueue(customer="acme", full=True) == Enqueued(first.id, True)
    assert not sync.enqueue(customer="globex").existed
    assert not sync.using(tenant="other").enqueue(customer="acme").existed


def test_once_it_is_done_the_next_one_is_new(harbor: Harbor, sync: Task[..., None]) -> None:
    first = sync.enqueue(customer="acme")
    harbor.worker().drain()
    assert sync.enqueue(customer="acme").id != first.id


def test_by_name_it_is_as_unique_as_by_task(harbor: Harbor, sync: Task[..., None]) -> None:
    first = sync.enqueue(customer="acme")
    assert harbor.enqueue("sync", {"customer": "acme"}) == Enqueued(first.id, True)
    assert harbor.enqueue_many([("sync", {"customer": "acme"})]).existed == 1


def test_many_at_once_keep_the_first(harbor: Harbor, sync: Task[..., None]) -> None:
    answers = sync.enqueue_many([{"customer": "acme", "full": full} for full in (False, True, True)])
    assert (answers.new, answers.existed) == (1, 2)


def test_debounce_runs_the_last_after_a_rest(harbor: Harbor) -> None:
    seen: list[str] = []

    @harbor.task(unique=Unique(by=("document",)), debounce=0.05)
    def index(document: int, text: str) -> None:
        seen.append(text)

    first = index.enqueue(document=1, text="first")
    before = harbor.driver.get(first.id).due_at
    assert index.enqueue(document=1, text="last") == Enqueued(first.id, True)
    assert harbor.driver.get(first.id).due_at > before
    while not seen:
        harbor.worker().drain()
    assert seen == ["last"]


def test_debounce_by_a_key_of_ones_own(harbor: Harbor) -> None:
    @harbor.task(debounce=60)
    def note(text: str) -> None: ...

    first = note.using(key="board").enqueue(text="a")
    assert note.using(key="board").enqueue(text="b") == Enqueued(first.id, True)
    assert b'"b"' in harbor.driver.get(first.id).payload


def test_throttle_lets_the_first_win_even_when_it_is_done(harbor: Harbor) -> None:
    @harbor.task(throttle=timedelta(hours=1))
    def alert(service: str) -> None: ...

    first = alert.enqueue(service="billing")
    harbor.worker().drain()
    assert alert.enqueue(service="billing") == Enqueued(first.id, True)
    assert not alert.enqueue(service="mail").existed


def test_a_duplicate_can_be_an_error(sync: Task[..., None]) -> None:
    sync.enqueue(customer="acme")
    with pytest.raises(DuplicateJob):
        sync.using(on_duplicate="raise").enqueue(customer="acme")


def test_a_job_of_a_transaction_that_is_rolled_back_holds_no_key(tmp_path: Path) -> None:
    with Harbor(f"sqlite:///{tmp_path}/jobs.db") as harbor:

        @harbor.task(unique=Unique(replace=True, while_in=("ready",)))
        def send(to: str) -> None: ...

        first = send.enqueue(to="ada")
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        assert send.using(connection=connection).enqueue(to="ada") == Enqueued(first.id, True)
        held = send.using(connection=connection).enqueue(to="bob")
        connection.execute("ROLLBACK")
        connection.close()
        again = send.enqueue(to="bob")
        assert not again.existed
        assert again.id != held.id


@pytest.mark.parametrize(
    "options",
    [
        {"unique": lambda: Unique(by="customer")},
        {"unique": lambda: Unique(by=())},
        {"unique": lambda: Unique(by=("nobody",))},
        {"unique": lambda: Unique(while_in=("running",))},
        {"unique": lambda: Unique(period=0)},
        {"debounce": lambda: 0},
        {"debounce": lambda: -1},
        {"throttle": lambda: 0},
        {"debounce": lambda: 1, "throttle": lambda: 1},
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(harbor: Harbor, options: dict[str, Any]) -> None:
    def sync(customer: str) -> None: ...

    with pytest.raises(InvalidInput):
        harbor.task(**{name: value() for name, value in options.items()})(sync)
    assert "sync" not in harbor.tasks


def test_the_message_about_an_unknown_argument_names_those_there_are(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="no such argument; it has customer, full"):

        @harbor.task(unique=Unique(by=("client",)))
        def sync(customer: str, full: bool = False) -> None: ...
