"""What is stored and logged of errors where payloads and results are encrypted: nothing that quotes them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

from taskharbor import PREVIOUS, Harbor, InvalidArguments, Keyring, NewJob, chain
from taskharbor.app.batches import Batch
from taskharbor.core.codec import JsonCodec
from taskharbor.testing import inline

SECRET = "s3cr3t"


class Strict(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    number: int = 1


class Talkative(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def refuse(cls, text: str) -> str:
        raise ValueError(f"not {text}")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@dataclass
class Choosy:
    text: str

    def __post_init__(self) -> None:
        raise ValueError(f"not {self.text}")


@pytest.fixture(params=[True, False], ids=["encrypted", "plain"])
def harbor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harbor]:
    ring = Keyring({"k": bytes(range(32))}) if request.param else False
    with Harbor(f"sqlite:///{tmp_path}/jobs.db", encryption=ring, max_attempts=1, migrate=True) as harbor:
        yield harbor


def run(harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """The error of the one job that has failed. Where payloads are encrypted, nothing that is kept quotes them."""
    with caplog.at_level(logging.DEBUG):
        assert harbor.worker(fleet=False).drain().dead == 1
    assert SECRET not in caplog.text
    (job,) = harbor.driver.list().jobs
    assert job.last_error
    if harbor.encryption is not None:
        connection = sqlite3.connect(tmp_path / "jobs.db")
        assert SECRET not in "\n".join(connection.iterdump())
        connection.close()
        assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    return job.last_error


def enqueue_unchecked(harbor: Harbor, type: str, payload: dict[str, Any] | bytes) -> None:
    """As a caller does that has another version of the task, or none."""
    data = payload if isinstance(payload, bytes) else JsonCodec().encode(payload)
    harbor.enqueue_many([NewJob(type, data, max_attempts=1)])


ARGUMENTS: list[tuple[Any, Any, str, str]] = [
    (
        dict[str, int],
        {SECRET: "x"},
        f"argument 'x['{SECRET}']' must be int",
        "something inside argument 'x' must be int",
    ),
    (list[dict[str, int]], [{SECRET: None}], SECRET, "something inside argument 'x' must be int, got None"),
    (dict[int, int], {SECRET: 1}, SECRET, "something inside argument 'x' is not valid (int_parsing)"),
    (Strict, {SECRET: 1}, SECRET, "something inside argument 'x' is not valid (extra_forbidden), got int"),
    (Talkative, {"text": SECRET}, SECRET, "something inside argument 'x' is not valid (value_error), got str"),
    (Pet, {"kind": SECRET}, SECRET, "argument 'x' is not valid (union_tag_invalid), got dict"),
    (int, SECRET, "argument 'x' must be int, got str", "argument 'x' must be int, got str"),
]


@pytest.mark.parametrize(("annotation", "value", "helpful", "discreet"), ARGUMENTS)
def test_an_argument_that_a_task_does_not_take_is_not_quoted(
    harbor: Harbor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    annotation: Any,
    value: Any,
    helpful: str,
    discreet: str,
) -> None:
    def take(x: Any) -> None: ...

    take.__annotations__ = {"x": annotation}
    harbor.task(take)
    enqueue_unchecked(harbor, "take", {"x": value})
    expected = helpful if harbor.encryption is None else discreet
    assert expected in run(harbor, tmp_path, caplog)


def test_the_name_of_an_argument_that_a_task_does_not_have_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @harbor.task
    def take(number: int = 1) -> None: ...

    enqueue_unchecked(harbor, "take", {SECRET: 1})
    expected = f"unexpected argument '{SECRET}'" if harbor.encryption is None else "an unexpected argument"
    assert f"take: {expected}: it takes number" in run(harbor, tmp_path, caplog)


def test_the_name_of_an_argument_of_a_task_that_takes_any_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @harbor.task
    def take(**numbers: int) -> None: ...

    enqueue_unchecked(harbor, "take", {SECRET: "one"})
    expected = f"argument '{SECRET}'" if harbor.encryption is None else "an argument"
    assert f"take: {expected} must be int, got str" in run(harbor, tmp_path, caplog)


@pytest.mark.parametrize("payload", [b'{"x": ' + SECRET.encode(), SECRET.encode(), b'["' + SECRET.encode() + b'"]'])
def test_a_payload_that_is_no_json_object_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    @harbor.task
    def take(x: str) -> None: ...

    enqueue_unchecked(harbor, "take", payload)
    assert "JSON" in run(harbor, tmp_path, caplog)


RESULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: {(SECRET, 1): 1}, "a key is tuple, not text"),
    (lambda: {SECRET: {"inner": {1: SECRET}}}, "a key is int, not text"),
    (lambda: SECRET + "\ud800", "surrogate"),
    (lambda: {SECRET: float("nan")}, "not JSON"),
    (lambda: {SECRET: object()}, "cannot be stored"),
]


@pytest.mark.parametrize(("make", "discreet"), RESULTS)
def test_a_result_that_cannot_be_kept_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[], Any], discreet: str
) -> None:
    @harbor.task
    def give() -> Any:
        return make()

    give.enqueue()
    text = run(harbor, tmp_path, caplog)
    assert "the handler succeeded, but its result cannot be kept: give: its result" in text
    if harbor.encryption is not None:
        assert discreet in text


def test_what_a_batch_handler_answers_for_jobs_that_are_none_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @harbor.task(batch=5)
    def crowd(batch: Batch[dict[str, Any]]) -> dict[str, int]:
        return {SECRET: 1}

    crowd.enqueue(x=SECRET)
    expected = f"'{SECRET}'" if harbor.encryption is None else "a key"
    assert f"a mapping by id, in which {expected} is no job of the batch" in run(harbor, tmp_path, caplog)


@pytest.mark.parametrize("item", [Choosy, Talkative, Strict, dict[str, int]])
def test_an_item_of_a_batch_that_is_refused_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture, item: Any
) -> None:
    def crowd(batch: Any) -> None: ...

    crowd.__annotations__ = {"batch": Batch[item]}
    harbor.task(batch=5)(crowd)
    enqueue_unchecked(harbor, "crowd", {SECRET: "x"} if item in (Strict, dict[str, int]) else {"text": SECRET})
    assert run(harbor, tmp_path, caplog).startswith("InvalidArguments: crowd: ")


@pytest.mark.parametrize("how", ["raised", "as the cause of another", "in a group", "of one item of a batch"])
def test_a_handler_that_enqueues_what_is_refused_leaves_no_quote_behind(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    @harbor.task
    def inner(x: int) -> None: ...

    def enqueue() -> None:
        with pytest.raises(InvalidArguments, match=SECRET):  # whoever calls is told
            harbor.enqueue("inner", {"x": SECRET})
        try:
            harbor.enqueue_many([("inner", {"x": SECRET})])
        except InvalidArguments as error:
            if how == "raised":
                raise
            if how == "in a group":
                raise ExceptionGroup("both", [error, ValueError("other")]) from None
            raise LookupError("no luck") from error

    if how == "of one item of a batch":

        @harbor.task(batch=2, name="outer")
        def outer(batch: Batch[dict[str, Any]]) -> None:
            for item in batch:
                with item:
                    enqueue()
    else:
        harbor.task(name="outer")(enqueue)
    harbor.enqueue("outer")
    text = run(harbor, tmp_path, caplog)
    assert "Traceback" in text
    assert "argument 'x' must be int, got str" in text
    assert (SECRET in text) == (harbor.encryption is None)


def test_the_result_of_a_step_that_the_next_one_does_not_take_is_not_quoted(
    harbor: Harbor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @harbor.task
    def first() -> dict[str, str]:
        return {SECRET: "x"}

    @harbor.task
    def second(x: dict[str, int]) -> None: ...

    harbor.start(chain(first.s(), second.s(x=PREVIOUS)))
    with caplog.at_level(logging.DEBUG):
        assert harbor.worker(fleet=False).drain().dead == 1
    dead = [job.last_error for job in harbor.driver.list().jobs if job.last_error]
    assert len(dead) == 1
    assert (SECRET in dead[0]) == (harbor.encryption is None)
    assert SECRET not in caplog.text


def test_runs_in_tests_keep_the_same_words(harbor: Harbor) -> None:
    @harbor.task
    def take(x: dict[str, int]) -> None: ...

    @harbor.task
    def give() -> Any:
        return {(SECRET, 1): 1}

    @harbor.task(batch=2)
    def crowd(batch: Batch[dict[str, int]]) -> dict[str, int]:
        return {SECRET: 1}

    with inline(harbor):
        enqueue_unchecked(harbor, "take", {"x": {SECRET: "x"}})
        enqueue_unchecked(harbor, "crowd", {SECRET: "x"})
        give.enqueue()
        crowd.enqueue(x=1)
        errors = [job.last_error for job in harbor.driver.list().jobs]
    assert len(errors) == 4
    assert all(errors)
    assert [SECRET in error for error in errors] == [harbor.encryption is None] * 4
