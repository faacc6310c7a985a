"""Unique jobs as applications ask for them."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Batch, DuplicateJob, Enqueued, Harbor, InvalidInput, Task, Unique


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Document:
    number: int
    language: str = "en"
    parts: list[int] = field(default_factory=list)


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
        {"debounce": lambda: True},
        {"throttle": lambda: True},
        {"debounce": lambda: 1, "on_duplicate": lambda: "raise"},
        {"debounce": lambda: 1, "on_duplicate": lambda: "return"},
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


def test_an_argument_that_is_left_out_is_equal_to_its_default(harbor: Harbor) -> None:
    @harbor.task(unique=Unique(by=("customer", "size")))
    def sync(customer: str = "all", size: Size = Size.SMALL, note: str = "") -> None: ...

    first = sync.enqueue()
    for same in (
        sync.enqueue(customer="all"),
        sync.enqueue(size=Size.SMALL, note="again"),
        sync.using(delay=5).enqueue("all", Size.SMALL),
        harbor.enqueue("sync", {"customer": "all"}),
        harbor.enqueue("sync", b'{"size": "small"}'),
        *sync.enqueue_many([{"customer": "all"}]),
    ):
        assert same == Enqueued(first.id, True)
    assert not sync.enqueue(customer="acme").existed
    assert not sync.enqueue(size=Size.LARGE).existed


def test_a_default_that_marks_what_was_left_out_is_equal_to_itself_alone(harbor: Harbor) -> None:
    missing: Any = object()

    @harbor.task(unique=Unique())
    def sync(customer: Any = missing) -> None: ...

    first = sync.enqueue()
    assert sync.enqueue() == Enqueued(first.id, True)
    assert not sync.enqueue(customer="acme").existed


def test_a_batch_task_has_the_defaults_of_its_items(harbor: Harbor) -> None:
    @harbor.task(batch=10, unique=Unique())
    def index(batch: Batch[Document]) -> None: ...

    first = index.enqueue(number=1)
    assert index.enqueue(number=1, language="en") == Enqueued(first.id, True)
    assert index.enqueue(Document(1)) == Enqueued(first.id, True)
    assert not index.enqueue(number=1, parts=[2]).existed


def test_numbers_that_are_equal_are_the_same_however_they_are_written(harbor: Harbor) -> None:
    @harbor.task(unique=Unique())
    def pay(amount: float, parts: list[float], most: float | None = None) -> None: ...

    first = pay.enqueue(amount=1, parts=[2, 3.5], most=10**20)
    assert pay.enqueue(amount=1.0, parts=[2.0, 3.5], most=1e20) == Enqueued(first.id, True)
    assert not pay.enqueue(amount=1.5, parts=[2, 3.5], most=1e20).existed
    assert not pay.enqueue(amount=1, parts=[2, 3.5], most=1e20 + 1e5).existed


def test_a_scope_without_fields_is_that_of_the_tenant(harbor: Harbor) -> None:
    rule = Unique(scope=())

    @harbor.task(unique=rule)
    def sync(customer: str) -> None: ...

    @harbor.task(unique=rule)
    def audit(customer: str) -> None: ...

    first = sync.enqueue("acme")
    assert audit.enqueue("acme") == Enqueued(first.id, True)
    assert not audit.using(tenant="other").enqueue("acme").existed


def test_an_error_about_equal_arguments_speaks_of_no_key(sync: Task[..., None]) -> None:
    first = sync.enqueue(customer="acme")
    with pytest.raises(DuplicateJob, match=f"job {first.id} of type 'sync' counts as the same") as refused:
        sync.using(on_duplicate="raise").enqueue(customer="acme")
    assert "key" not in str(refused.value)


def test_what_to_do_with_a_duplicate_needs_something_that_makes_one(harbor: Harbor) -> None:
    @harbor.task
    def send(to: str) -> None: ...

    with pytest.raises(
        InvalidInput, match="on_duplicate is about jobs with a key, and this one has none: give key='…'"
    ):
        send.using(on_duplicate="raise").enqueue(to="ada")
    assert harbor.driver.counts()["ready"] == 0
    send.using(on_duplicate="raise", key="a").enqueue(to="ada")
    send.using(on_duplicate="raise", unique=Unique()).enqueue(to="ada")
    send.using(on_duplicate="return").enqueue(to="ada")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (True, "Unique(by=('…',))"),
        ("customer", "Unique(by=('customer',))"),
        (("customer", "full"), "Unique(by=('customer', 'full'))"),
        ("tenant", "('tenant', 'type')"),
        (5, "got 5"),
    ],
)
def test_what_is_no_rule_is_refused_with_how_to_write_one(harbor: Harbor, given: Any, told: str) -> None:
    def sync(customer: str, full: bool = False) -> None: ...

    with pytest.raises(InvalidInput, match=re.escape(told)):
        harbor.task(unique=given)(sync)
    with pytest.raises(InvalidInput, match=re.escape(told)):
        harbor.task(sync).using(unique=given)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"by": 5}, "names of arguments, or 'args' for all of them, got 5"),
        ({"by": "customer"}, "names of arguments, ('customer',)"),
        ({"by": ("a", 1)}, "got ('a', 1)"),
        ({"scope": "tenant"}, "names of fields, ('tenant',)"),
        ({"scope": ("customer",)}, "by=('customer',)"),
        ({"scope": None}, "got None"),
        ({"while_in": "ready"}, "write while_in=('ready',)"),
        ({"while_in": "inflight"}, "write while_in=('ready', 'inflight')"),
        ({"while_in": "running"}, "states of a job, of ready"),
        ({"while_in": ("inflight",)}, "must have 'ready' in it"),
        ({"on_duplicate": "replace"}, "replace=True"),
        ({"on_duplicate": "raise"}, "harbor.task(unique=Unique(…), on_duplicate='raise')"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_what_it_takes(rule: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)):
        Unique(**rule)


def test_where_any_names_are_taken_a_rule_may_name_any(harbor: Harbor) -> None:
    @harbor.task(batch=10, unique=Unique(by=("customer",)))
    def index(batch: Batch) -> None: ...

    @harbor.task(unique=Unique(by=("customer",)))
    def note(**arguments: Any) -> None: ...

    for task in (index, note):
        first = task.enqueue(customer="acme", full=True)
        assert task.enqueue(customer="acme") == Enqueued(first.id, True)
        assert not task.enqueue(customer="globex").existed


@pytest.mark.parametrize("rules", [{"unique": None}, {"throttle": None}, {"debounce": None}])
def test_a_rule_can_be_left_out_for_one_call(harbor: Harbor, rules: Any) -> None:
    [option] = rules
    rule: Any = Unique() if option == "unique" else 60

    @harbor.task(**{option: rule})
    def sync(customer: str) -> None: ...

    first = sync.enqueue("acme")
    assert sync.enqueue("acme").existed
    for call in (sync.using(**rules), sync.using(unique=None), sync.using(queue="slow").using(**rules)):
        another = call.enqueue("acme")
        assert (another.existed, harbor.job(another).state) == (False, "ready")
    assert sync.using(**rules).using(unique=Unique(), on_duplicate="return").enqueue("acme").existed
    assert harbor.job(first).state == ("scheduled" if option == "debounce" else "ready")


def test_without_its_debounce_or_throttle_a_task_has_the_rule_that_was_given_beside_it(harbor: Harbor) -> None:
    @harbor.task(unique=Unique(by=("number",)), debounce=60)
    def index(number: int, text: str) -> None: ...

    @harbor.task(unique=Unique(by=("customer",)), throttle=60, on_duplicate="raise")
    def sync(customer: str, full: bool = False) -> None: ...

    call = index.using(debounce=None)
    first = call.enqueue(1, "first")
    assert harbor.job(first).state == "ready"
    assert call.enqueue(1, "second") == Enqueued(first.id, True)
    assert harbor.job(first).arguments == {"number": 1, "text": "first"}
    later = index.using(delay=3600).using(debounce=None).new_job(2, "later")
    assert later.run_at is not None
    assert index.using(throttle=None).new_job(2, "later").on_duplicate == "replace"  # it has none

    job = sync.using(throttle=None).new_job("acme")
    assert (job.key_ttl, job.while_in, job.on_duplicate) == (None, ("ready", "inflight"), "raise")
    assert sync.using(throttle=None).using(throttle=5).new_job("acme").key_ttl == 5
    plain = sync.using(unique=None).new_job("acme")
    assert (plain.idempotency_key, plain.while_in, plain.on_duplicate) == (None, None, "return")


@pytest.mark.parametrize("options", [{"on_duplicate": "replace"}, {"while_in": ("ready",), "on_duplicate": "replace"}])
def test_what_a_task_says_about_keys_waits_for_jobs_that_have_one(harbor: Harbor, options: Any) -> None:
    @harbor.task(**options)
    def sync(customer: str) -> None: ...

    assert not any(sync.enqueue("acme").existed for _ in range(2))
    first = sync.using(key="a").enqueue("acme")
    assert sync.using(key="a").enqueue("globex") == Enqueued(first.id, True)
    assert harbor.job(first).arguments == {"customer": "globex"}


def test_to_replace_may_be_said_by_the_rule_or_by_the_task(harbor: Harbor) -> None:
    @harbor.task(unique=Unique(by=("customer",), replace=True))
    def by_rule(customer: str, full: bool) -> None: ...

    @harbor.task(unique=Unique(by=("customer",)), on_duplicate="replace")
    def by_task(customer: str, full: bool) -> None: ...

    for task in (by_rule, by_task):
        first = task.enqueue("acme", full=False)
        assert task.enqueue("acme", full=True) == Enqueued(first.id, True)
        assert harbor.job(first).arguments == {"customer": "acme", "full": True}
