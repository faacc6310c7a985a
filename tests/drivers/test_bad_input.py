"""Bad input: the same class on every store, a message that says what to do, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from taskharbor.core.clock import EPOCH, LATEST
from taskharbor.core.codec import JsonCodec
from taskharbor.core.contract import Driver
from taskharbor.core.errors import (
    AlreadyExpired,
    InvalidInput,
    InvalidPayload,
    InvalidTime,
    PayloadTooLarge,
)
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Extension, JobFilter, Progress, RetryUpdate, Settlement
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import empty_store
from taskharbor.testing.helpers import add, everything, leased_job, new_job
from taskharbor.testing.times import NOON

SERVERS = {"postgresql": "postgres", "mysql": "mysql"}
LOCAL = ["memory", "json", "sqlite"]
ON_SERVERS = [pytest.param(kind, marks=pytest.mark.server) for kind in SERVERS]

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what this is about
ANCIENT = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
REMOTE = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)


@pytest.fixture(scope="module")
def databases() -> dict[str, str]:
    """One migrated database per kind of server, emptied for each test."""
    return {}


@pytest.fixture(params=[*LOCAL, *ON_SERVERS])
def driver(request: pytest.FixtureRequest, tmp_path: Path, databases: dict[str, str]) -> Iterator[Driver]:
    kind = request.param
    if kind in SERVERS:
        if kind not in databases:
            databases[kind] = request.getfixturevalue(SERVERS[kind]).create_database()
            with open_driver(databases[kind]) as first:
                first.migrate()
        empty_store(databases[kind])
        url = databases[kind]
    else:
        url = "memory://" if kind == "memory" else f"{kind}:///{tmp_path}/store"
    with open_driver(url) as driver:
        driver.migrate()
        yield driver


@contextmanager
def nothing_changes(driver: Driver) -> Iterator[None]:
    before = everything(driver), driver.history().rows, driver.workers(), driver.queues(), driver.leaders()
    yield
    assert (everything(driver), driver.history().rows, driver.workers(), driver.queues(), driver.leaders()) == before


# --- What callers pass in -----------------------------------------------------------------------------------

Call = Callable[[Driver, str], Any]
"""A call on a driver with a job "held" whose token is given."""


def enqueue(**fields: Any) -> Call:
    # A good job goes first: it must not stay behind when the bad one is refused.
    return lambda driver, _: driver.enqueue([new_job(id="good"), new_job(**fields)], NOON)


def listing(**fields: Any) -> Call:
    return lambda driver, _: driver.list(JobFilter(**fields))


def settle(**fields: Any) -> Call:
    return lambda driver, token: driver.settle([Settlement.ack("held", token), Settlement(**fields)], now=NOON)


def extend(**fields: Any) -> Call:
    return lambda driver, token: driver.extend([Extension("held", token), Extension("held", token, **fields)], now=NOON)


BAD_CALLS: dict[str, tuple[Call, type[Exception], str]] = {
    "oversize payload": (enqueue(payload=bytes(1_048_577)), PayloadTooLarge, "1,048,577 .* enqueue a reference"),
    "oversize result": (
        lambda driver, token: driver.ack("held", token, now=NOON, result=bytes(1_048_577)),
        PayloadTooLarge,
        "store the data elsewhere",
    ),
    "text as payload": (enqueue(payload="text"), InvalidPayload, r"JsonCodec\(\)\.encode\(value\)"),
    "nul in a type": (enqueue(type="a\0b"), InvalidInput, "remove it"),
    "nul in a queue": (enqueue(queue="a\0b"), InvalidInput, "remove it"),
    "surrogate in a tenant": (enqueue(tenant_id="a\ud800"), InvalidInput, "remove it"),
    "surrogate in an id": (enqueue(id="\udfff"), InvalidInput, "remove it"),
    "nul in a key": (enqueue(idempotency_key="\0"), InvalidInput, "remove it"),
    "surrogate in meta": (enqueue(meta={"a": "\ud800"}), InvalidInput, "remove it"),
    "nul in an owner": (lambda driver, _: driver.reserve("default", owner="\0"), InvalidInput, "remove it"),
    "nul in a worker": (
        lambda driver, _: driver.heartbeat(Worker("w", hostname="\0"), now=NOON),
        InvalidInput,
        "remove it",
    ),
    "surrogate in an election": (lambda driver, _: driver.elect("main", "\ud800", NOON), InvalidInput, "remove it"),
    "an id that is too long": (enqueue(id="x" * 65), InvalidInput, "65 characters, the limit is 64"),
    "naive run_at": (enqueue(run_at=NAIVE), InvalidTime, "give it a time zone"),
    "naive expires_at": (enqueue(expires_at=NAIVE), InvalidTime, "give it a time zone"),
    "naive now": (lambda driver, _: driver.reserve("default", now=NAIVE), InvalidTime, "give it a time zone"),
    "naive now in recover": (lambda driver, _: driver.recover(NAIVE), InvalidTime, "give it a time zone"),
    "naive time in a retry": (
        lambda driver, token: driver.retry("held", token, now=NOON, update=RetryUpdate(NAIVE, 1)),
        InvalidTime,
        "give it a time zone",
    ),
    "a time in year one": (enqueue(run_at=ANCIENT), InvalidTime, "from 1970 to 8999"),
    "a time in year 9999": (enqueue(expires_at=REMOTE), InvalidTime, "from 1970 to 8999"),
    "a snooze to year 9999": (
        lambda driver, token: driver.settle([Settlement.snooze("held", token, run_at=REMOTE)], now=NOON),
        InvalidTime,
        "from 1970 to 8999",
    ),
    "now in year 9999": (lambda driver, _: driver.reserve("default", now=REMOTE), InvalidTime, "1970 to 8999"),
    "already expired": (enqueue(expires_at=NOON), AlreadyExpired, "not after now"),
    "nan in a progress": (extend(progress=Progress(float("nan"))), InvalidInput, "finite number"),
    "infinity in a progress": (extend(progress=Progress(1, float("inf"))), InvalidInput, "finite number"),
    "nan as a duration": (enqueue(timeout=float("nan")), InvalidInput, "number of seconds"),
    "nan as a rate": (lambda driver, _: driver.redrive(rate=float("nan"), now=NOON), InvalidInput, "rate"),
    "a rate near zero": (lambda driver, _: driver.redrive(rate=1e-300, now=NOON), InvalidInput, "rate"),
    "a priority that is no number": (enqueue(priority=1.5), InvalidInput, "whole number"),
    "one job without its list": (
        lambda driver, _: driver.enqueue(new_job(), NOON),  # type: ignore[arg-type]
        InvalidInput,
        r"takes a list of NewJob, got NewJob: enqueue\(\[NewJob",
    ),
    "ids in place of a filter": (
        lambda driver, _: driver.redrive(["held"], now=NOON),  # type: ignore[arg-type]
        InvalidInput,
        r'JobFilter\(ids=\("…",\)\)',
    ),
    "a dictionary as an update": (
        lambda driver, token: driver.retry("held", token, now=NOON, update={}),  # type: ignore[arg-type]
        InvalidInput,
        r"RetryUpdate\(run_at=",
    ),
    "numbers to settle": (lambda driver, _: driver.settle([1], now=NOON), InvalidInput, r"Settlement\.ack"),  # type: ignore[list-item]
    "a status there is not": (listing(status="dead"), InvalidInput, "one of ready, inflight, done"),
    "a priority of 33 bits": (enqueue(priority=2**32), InvalidInput, "32 bits"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_refused_with_one_class_and_changes_nothing(driver: Driver, name: str) -> None:
    call, error, message = BAD_CALLS[name]
    token = leased_job(driver, id="held").lease.token
    with nothing_changes(driver):
        with pytest.raises(error, match=message) as caught:
            call(driver, token)
        assert type(caught.value) is error
    driver.ack("held", token, now=NOON)


def test_error_text_of_any_kind_is_mended_instead_of_refused(driver: Driver) -> None:
    token = leased_job(driver, id="held").lease.token
    driver.fail("held", token, now=NOON, reason="nul \0, half a pair \ud83d, emoji \N{PILE OF POO} " + "x" * 20_000)
    reason = driver.get("held").dlq_reason
    assert reason is not None
    assert reason.startswith(
        "nul \N{REPLACEMENT CHARACTER}, half a pair \N{REPLACEMENT CHARACTER}, emoji \U0001f4a9 xxx"
    )
    assert len(reason) <= 8_192
    assert driver.attempts("held")[0].error == reason


def test_a_progress_note_of_any_kind_is_mended_instead_of_refused(driver: Driver) -> None:
    token = leased_job(driver, id="held").lease.token
    driver.extend([Extension("held", token, 60, progress=Progress(1, 2, "nul \0"))], now=NOON)
    assert driver.get("held").progress == Progress(1, 2, "nul \N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("payload", [b"NaN", b'"\\u0000"', b'"\\ud800"', b"\x00\xff\xfe", b"'; DROP TABLE th_jobs; --"])
def test_payloads_are_bytes_to_a_store_whatever_they_hold(driver: Driver, payload: bytes) -> None:
    add(driver, id="a", payload=payload, meta={"'; --": '"\\%_'})
    assert driver.get("a").payload == payload
    assert driver.get("a").meta == {"'; --": '"\\%_'}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1: 2}, b"bytes", object()])
def test_what_is_not_json_is_refused_before_it_reaches_a_store(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        JsonCodec().encode({"value": [value]})


def test_the_first_and_the_last_time_allowed_are_kept_to_the_microsecond(driver: Driver) -> None:
    nearly = LATEST - timedelta(microseconds=1)
    driver.enqueue([new_job(id="a", run_at=EPOCH, expires_at=LATEST), new_job(id="b", run_at=nearly)], EPOCH)
    assert (driver.get("a").run_at, driver.get("a").expires_at, driver.get("b").run_at) == (EPOCH, LATEST, nearly)
    (leased,) = driver.reserve("default", now=EPOCH, lease_for=timedelta(days=3650))
    assert leased.lease.expires_at == EPOCH + timedelta(days=3650)
    assert [item.job.id for item in driver.reserve("default", now=LATEST, lease_for=timedelta(days=3650))] == ["b"]
    assert driver.get("b").lease_expires_at == LATEST + timedelta(days=3650)
    driver.recover(LATEST)
