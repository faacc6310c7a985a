"""Bad input by name, for the suite to try: each entry must be refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limits import MAX_BATCH, MAX_ID, MAX_KEY, MAX_META_BYTES, MAX_NAME, MAX_TENANT
from taskharbor.core.model import Extension, JobFilter, NewJob, Progress, RetryUpdate, Schedule, Settlement
from taskharbor.core.tokens import new_token
from taskharbor.testing.helpers import add, new_job
from taskharbor.testing.times import NOON

NAIVE: Final = datetime(2026, 6, 1, 12)  # noqa: DTZ001 - naive on purpose
FAR_OFF: Final = [
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(1969, 12, 31, tzinfo=UTC),
]
UNSTORABLE: Final = ["a\x00b", "\x00", "a\ud800", "\udfff"]


def new_schedule(**fields: Any) -> Schedule:
    return Schedule(**{"name": "s", "spec": "@daily", "type": "t", **fields})


def put_schedule(driver: Driver, **fields: Any) -> Schedule:
    return driver.put_schedule(new_schedule(**fields), now=NOON)


TIMED: Final[dict[str, Callable[[Driver, datetime], Any]]] = {
    "enqueue": lambda driver, moment: driver.enqueue([new_job()], moment),
    "run_at": lambda driver, moment: driver.enqueue([new_job(run_at=moment)], NOON),
    "expires_at": lambda driver, moment: driver.enqueue([new_job(expires_at=moment)], NOON),
    "reserve": lambda driver, moment: driver.reserve("default", now=moment),
    "settle": lambda driver, moment: driver.settle([Settlement.ack("a", "b")], now=moment),
    "ack": lambda driver, moment: driver.ack("a", "b", now=moment),
    "started_at": lambda driver, moment: driver.settle([Settlement.ack("a", "b", started_at=moment)], now=NOON),
    "update.run_at": lambda driver, moment: driver.retry("a", "b", now=NOON, update=RetryUpdate(moment)),
    "update.failed_at": lambda driver, moment: driver.retry("a", "b", now=NOON, update=RetryUpdate(failed_at=moment)),
    "snooze": lambda driver, moment: driver.settle([Settlement.snooze("a", "b", run_at=moment)], now=NOON),
    "extend": lambda driver, moment: driver.extend_lease("a", "b", now=moment),
    "extend.started_at": lambda driver, moment: driver.extend([Extension("a", "b", started_at=moment)], now=NOON),
    "cancel": lambda driver, moment: driver.cancel("a", now=moment),
    "census": lambda driver, moment: driver.census(moment),
    "revoke_token": lambda driver, moment: driver.revoke_token("a", now=moment),
    "redrive": lambda driver, moment: driver.redrive(now=moment),
    "redrive.run_at": lambda driver, moment: driver.redrive(now=NOON, run_at=moment),
    "heartbeat": lambda driver, moment: driver.heartbeat(Worker("w"), now=moment),
    "heartbeat.started_at": lambda driver, moment: driver.heartbeat(Worker("w", started_at=moment), now=NOON),
    "elect": lambda driver, moment: driver.elect("leader", "ann", moment),
    "recover": lambda driver, moment: driver.recover(moment),
    "prune": lambda driver, moment: driver.prune(moment),
    "put_schedule": lambda driver, moment: driver.put_schedule(new_schedule(), now=moment),
    "schedule.next_run_at": lambda driver, moment: put_schedule(driver, next_run_at=moment),
    "schedule.last_run_at": lambda driver, moment: put_schedule(driver, last_run_at=moment),
    "pause_schedule": lambda driver, moment: driver.pause_schedule("s", paused=True, now=moment),
    "advance_schedule": lambda driver, moment: driver.advance_schedule(
        "s", expected=None, next_run_at=None, now=moment
    ),
    "advance.expected": lambda driver, moment: driver.advance_schedule("s", expected=moment, next_run_at=None),
    "advance.next_run_at": lambda driver, moment: driver.advance_schedule("s", expected=None, next_run_at=moment),
    "advance.last_run_at": lambda driver, moment: driver.advance_schedule(
        "s", expected=None, next_run_at=None, last_run_at=moment
    ),
}
"""Everything that takes a time, called with this one."""

WRONG_JOBS: Final[dict[str, NewJob]] = {
    "empty type": NewJob(type=""),
    "empty queue": new_job(queue=""),
    "empty tenant": new_job(tenant_id=""),
    "empty id": new_job(id=""),
    "empty key": new_job(idempotency_key=""),
    "long type": new_job(type="t" * (MAX_NAME + 1)),
    "long queue": new_job(queue="q" * (MAX_NAME + 1)),
    "long tenant": new_job(tenant_id="t" * (MAX_TENANT + 1)),
    "long id": new_job(id="i" * (MAX_ID + 1)),
    "long key": new_job(idempotency_key="k" * (MAX_KEY + 1)),
    "large meta": new_job(meta={"a": "b" * MAX_META_BYTES}),
    "priority as bool": new_job(priority=True),
    "priority as float": new_job(priority=1.5),
    "huge priority": new_job(priority=2**31),
    "tiny priority": new_job(priority=-(2**31)),
    "payload as text": new_job(payload="{}"),
    "payload as None": new_job(payload=None),
    "type as number": new_job(type=7),
    "queue as None": new_job(queue=None),
    "meta with a number": new_job(meta={"a": 1}),
    "meta with a number as key": new_job(meta={1: "a"}),
    "negative max_attempts": new_job(max_attempts=-1),
    "max_attempts as bool": new_job(max_attempts=True),
    "huge max_attempts": new_job(max_attempts=2**31),
    "negative timeout": new_job(timeout=-1),
    "timeout not a number": new_job(timeout=float("nan")),
    "endless timeout": new_job(timeout=float("inf")),
    "timeout as text": new_job(timeout="soon"),
    "timeout as bool": new_job(timeout=True),
    "key_ttl as bool": new_job(idempotency_key="k", key_ttl=True),
    "unknown field in unique": new_job(idempotency_key="k", unique=("payload",)),
    "unknown on_duplicate": new_job(on_duplicate="replace"),
    "negative key_ttl": new_job(idempotency_key="k", key_ttl=-1),
    "run_at as text": new_job(run_at="tomorrow"),
}
"""Jobs that no store takes."""

WRONG_CALLS: Final[dict[str, Callable[[Driver], Any]]] = {
    "reserve nothing": lambda driver: driver.reserve("default", now=NOON, limit=0),
    "reserve a negative number": lambda driver: driver.reserve("default", now=NOON, limit=-1),
    "reserve too many": lambda driver: driver.reserve("default", now=NOON, limit=MAX_BATCH + 1),
    "reserve a bool": lambda driver: driver.reserve("default", now=NOON, limit=True),
    "reserve a fraction": lambda driver: driver.reserve("default", now=NOON, limit=1.5),  # type: ignore[arg-type]
    "reserve from an empty name": lambda driver: driver.reserve("", now=NOON),
    "reserve an empty type": lambda driver: driver.reserve("default", now=NOON, types=[""]),
    "reserve for an empty tenant": lambda driver: driver.reserve("default", now=NOON, tenant=""),
    "reserve for a tenant that is no text": lambda driver: driver.reserve("default", now=NOON, tenant=7),  # type: ignore[arg-type]
    "reserve for a long owner": lambda driver: driver.reserve("default", now=NOON, owner="o" * (MAX_NAME + 1)),
    "list a negative number": lambda driver: driver.list(limit=-1),
    "list nothing": lambda driver: driver.list(limit=0),
    "history of a negative number": lambda driver: driver.history(limit=-1),
    "latest of nothing": lambda driver: driver.latest(limit=0),
    "latest of too many": lambda driver: driver.latest(limit=MAX_BATCH + 1),
    "count up to nothing": lambda driver: driver.count(limit=0),
    "count by a dictionary": lambda driver: driver.count({"status": "dlq"}),  # type: ignore[arg-type]
    "get tokens by a number": lambda driver: driver.get_tokens(7),  # type: ignore[arg-type]
    "get tokens by numbers": lambda driver: driver.get_tokens([7]),  # type: ignore[list-item]
    "add a token that is text": lambda driver: driver.add_token("secret"),  # type: ignore[arg-type]
    "revoke a token by a number": lambda driver: driver.revoke_token(7, now=NOON),  # type: ignore[arg-type]
    "redrive a negative number": lambda driver: driver.redrive(now=NOON, limit=-1),
    "redrive at no rate": lambda driver: driver.redrive(now=NOON, rate=0),
    "redrive at a negative rate": lambda driver: driver.redrive(now=NOON, rate=-1),
    "redrive at a rate that is no number": lambda driver: driver.redrive(now=NOON, rate=float("nan")),
    "purge a negative number": lambda driver: driver.purge(limit=-1),
    "prune a negative number": lambda driver: driver.prune(NOON, limit=-1),
    "pause an empty name": lambda driver: driver.pause(""),
    "resume an empty name": lambda driver: driver.resume(""),
    "heartbeat of nobody": lambda driver: driver.heartbeat(Worker(""), now=NOON),
    "elect nobody": lambda driver: driver.elect("leader", "", NOON),
    "elect to nothing": lambda driver: driver.elect("", "ann", NOON),
    "elect for no time": lambda driver: driver.elect("leader", "ann", NOON, 0),
    "elect for less than no time": lambda driver: driver.elect("leader", "ann", NOON, -1),
    "recover with a negative silence": lambda driver: driver.recover(NOON, dead_after=-1),
    "fail with an empty code": lambda driver: driver.fail("a", "b", now=NOON, reason="boom", code=""),
    "retry with negative attempts": lambda driver: driver.retry("a", "b", now=NOON, update=RetryUpdate(attempts=-1)),
    "retry with too many attempts": lambda driver: driver.retry("a", "b", now=NOON, update=RetryUpdate(attempts=2**31)),
    "retry with a fraction of attempts": lambda driver: driver.retry(
        "a",
        "b",
        now=NOON,
        update=RetryUpdate(attempts=1.5),  # type: ignore[arg-type]
    ),
    "fail with a reason that is no text": lambda driver: driver.fail("a", "b", now=NOON, reason=None),  # type: ignore[arg-type]
    "get with an id that is no text": lambda driver: driver.get(7),  # type: ignore[arg-type]
    "heartbeat with a huge pid": lambda driver: driver.heartbeat(Worker("w", pid=2**40), now=NOON),
    "heartbeat for an empty queue": lambda driver: driver.heartbeat(Worker("w", queues=("",)), now=NOON),
    "renew with a huge epoch": lambda driver: driver.elect("leader", "ann", NOON, epoch=2**70),
    "redrive too slowly to end": lambda driver: driver.redrive(now=NOON, rate=1e-300),
    "enqueue one job without a list": lambda driver: driver.enqueue(new_job(), NOON),  # type: ignore[arg-type]
    "enqueue nothing at all": lambda driver: driver.enqueue(None, NOON),  # type: ignore[arg-type]
    "enqueue a dictionary": lambda driver: driver.enqueue([new_job(), {"type": "a"}], NOON),  # type: ignore[list-item]
    "enqueue text": lambda driver: driver.enqueue("abc", NOON),  # type: ignore[arg-type]
    "enqueue through what is no connection": lambda driver: driver.enqueue([new_job()], NOON, connection=object()),
    "reserve from None": lambda driver: driver.reserve(None, now=NOON),  # type: ignore[arg-type]
    "reserve from a number": lambda driver: driver.reserve(7, now=NOON),  # type: ignore[arg-type]
    "reserve types by a number": lambda driver: driver.reserve("default", now=NOON, types=7),  # type: ignore[arg-type]
    "settle a number": lambda driver: driver.settle(1, now=NOON),  # type: ignore[arg-type]
    "settle a list of numbers": lambda driver: driver.settle([1], now=NOON),  # type: ignore[list-item]
    "settle one without a list": lambda driver: driver.settle(Settlement.ack("a", "b"), now=NOON),  # type: ignore[arg-type]
    "settle pairs": lambda driver: driver.settle([("a", "b")], now=NOON),  # type: ignore[list-item]
    "settle nothing at all": lambda driver: driver.settle(None, now=NOON),  # type: ignore[arg-type]
    "retry with a dictionary": lambda driver: driver.retry("a", "b", now=NOON, update={}),  # type: ignore[arg-type]
    "retry without an update": lambda driver: driver.retry("a", "b", now=NOON, update=None),  # type: ignore[arg-type]
    "extend a number": lambda driver: driver.extend(1, now=NOON),  # type: ignore[arg-type]
    "extend one without a list": lambda driver: driver.extend(Extension("a", "b"), now=NOON),  # type: ignore[arg-type]
    "extend pairs": lambda driver: driver.extend([("a", "b")], now=NOON),  # type: ignore[list-item]
    "extend with a number as progress": lambda driver: driver.extend([Extension("a", "b", progress=1)], now=NOON),  # type: ignore[arg-type]
    "extend with a huge progress": lambda driver: driver.extend(
        [Extension("a", "b", progress=Progress(10**400))], now=NOON
    ),
    "extend with a huge total": lambda driver: driver.extend(
        [Extension("a", "b", progress=Progress(1, 10**400))], now=NOON
    ),
    "list from behind no id": lambda driver: driver.list(cursor="after:"),
    "look for a long text": lambda driver: driver.count(JobFilter(text="x" * 65_537)),
    "list by a dictionary": lambda driver: driver.list({"status": "dlq"}),  # type: ignore[arg-type]
    "list by a number as ids": lambda driver: driver.list(JobFilter(ids=7)),  # type: ignore[arg-type]
    "list a status there is not": lambda driver: driver.list(JobFilter(status="dead")),
    "redrive a list of ids": lambda driver: driver.redrive(["a"], now=NOON),  # type: ignore[arg-type]
    "redrive an id": lambda driver: driver.redrive("a", now=NOON),  # type: ignore[arg-type]
    "purge a list of ids": lambda driver: driver.purge(["a"]),  # type: ignore[arg-type]
    "heartbeat of None": lambda driver: driver.heartbeat(None, now=NOON),  # type: ignore[arg-type]
    "heartbeat with a list as meta": lambda driver: driver.heartbeat(Worker("w", meta=["a"]), now=NOON),  # type: ignore[arg-type]
    "ack with a result that is no bytes": lambda driver: driver.ack("a", "b", now=NOON, result="{}"),  # type: ignore[arg-type]
    "listen to an empty name": lambda driver: driver.listen(""),
    "listen to None": lambda driver: driver.listen(None),  # type: ignore[arg-type]
    "put None as a schedule": lambda driver: driver.put_schedule(None, now=NOON),  # type: ignore[arg-type]
    "put a job as a schedule": lambda driver: driver.put_schedule(new_job(), now=NOON),  # type: ignore[arg-type]
    "get a schedule by a number": lambda driver: driver.get_schedule(7),  # type: ignore[arg-type]
    "remove a schedule by None": lambda driver: driver.remove_schedule(None),  # type: ignore[arg-type]
    "pause a schedule a little": lambda driver: driver.pause_schedule("s", paused=1, now=NOON),  # type: ignore[arg-type]
    "advance to an empty job id": lambda driver: driver.advance_schedule(
        "s", expected=None, next_run_at=None, last_job_id=""
    ),
    "advance to a long job id": lambda driver: driver.advance_schedule(
        "s", expected=None, next_run_at=None, last_job_id="i" * (MAX_ID + 1)
    ),
}
"""Calls that make no sense."""

WRONG_SCHEDULES: Final[dict[str, dict[str, Any]]] = {
    "empty name": {"name": ""},
    "long name": {"name": "n" * (MAX_NAME + 1)},
    "name as None": {"name": None},
    "empty spec": {"spec": ""},
    "long spec": {"spec": "*" * (MAX_NAME + 1)},
    "spec as a number": {"spec": 5},
    "empty timezone": {"timezone": ""},
    "long timezone": {"timezone": "z" * (MAX_NAME + 1)},
    "timezone as None": {"timezone": None},
    "empty type": {"type": ""},
    "long type": {"type": "t" * (MAX_NAME + 1)},
    "empty queue": {"queue": ""},
    "long tenant": {"tenant_id": "t" * (MAX_TENANT + 1)},
    "payload as text": {"payload": "{}"},
    "priority as bool": {"priority": True},
    "huge priority": {"priority": 2**31},
    "negative max_attempts": {"max_attempts": -1},
    "negative timeout": {"timeout": -1},
    "timeout as text": {"timeout": "soon"},
    "meta as a list": {"meta": ["a"]},
    "large meta": {"meta": {"a": "b" * MAX_META_BYTES}},
    "unknown overlap": {"overlap": "queue"},
    "overlap as None": {"overlap": None},
    "paused as text": {"paused": "yes"},
    "next_run_at as text": {"next_run_at": "tomorrow"},
    "last_run_at as a number": {"last_run_at": 7},
    "empty last_job_id": {"last_job_id": ""},
    "long last_job_id": {"last_job_id": "i" * (MAX_ID + 1)},
}
"""Schedules that no store takes, by what is wrong with them."""

TEXTS: Final[dict[str, Callable[[Driver, str], Any]]] = {
    "type": lambda driver, text: add(driver, type=text),
    "queue": lambda driver, text: add(driver, queue=text),
    "tenant": lambda driver, text: add(driver, tenant_id=text),
    "id": lambda driver, text: add(driver, id=text),
    "key": lambda driver, text: add(driver, idempotency_key=text),
    "meta key": lambda driver, text: add(driver, meta={text: "a"}),
    "meta value": lambda driver, text: add(driver, meta={"a": text}),
    "reserve": lambda driver, text: driver.reserve(text, now=NOON),
    "types": lambda driver, text: driver.reserve("default", now=NOON, types=[text]),
    "owner": lambda driver, text: driver.reserve("default", now=NOON, owner=text),
    "reserve for a tenant": lambda driver, text: driver.reserve("default", now=NOON, tenant=text),
    "name of a token": lambda driver, text: driver.add_token(new_token(text, "acme", "viewer", NOON)[0]),
    "tenant of a token": lambda driver, text: driver.add_token(new_token("ci", text, "viewer", NOON)[0]),
    "pause": lambda driver, text: driver.pause(text),
    "worker": lambda driver, text: driver.heartbeat(Worker(text), now=NOON),
    "hostname": lambda driver, text: driver.heartbeat(Worker("w", hostname=text), now=NOON),
    "leader": lambda driver, text: driver.elect(text, "ann", NOON),
    "holder": lambda driver, text: driver.elect("leader", text, NOON),
    "schedule": lambda driver, text: put_schedule(driver, name=text),
    "schedule spec": lambda driver, text: put_schedule(driver, spec=text),
    "schedule timezone": lambda driver, text: put_schedule(driver, timezone=text),
    "schedule type": lambda driver, text: put_schedule(driver, type=text),
    "schedule meta": lambda driver, text: put_schedule(driver, meta={"a": text}),
    "schedule last job": lambda driver, text: put_schedule(driver, last_job_id=text),
    "listen": lambda driver, text: driver.listen(text),
}
"""Everything that would store this text."""

LOOKUPS: Final[dict[str, Callable[[Driver, str], Any]]] = {
    "get": lambda driver, text: driver.get(text),
    "attempts": lambda driver, text: driver.attempts(text),
    "cancel": lambda driver, text: driver.cancel(text, now=NOON),
    "history": lambda driver, text: driver.history(text),
    "list": lambda driver, text: driver.list(None, text),
    "latest": lambda driver, text: driver.latest(text),
    "filter": lambda driver, text: driver.list(JobFilter(error=text)),
    "filter by text": lambda driver, text: driver.list(JobFilter(text=text)),
    "count": lambda driver, text: driver.count(JobFilter(tenant_id=text)),
    "count by text": lambda driver, text: driver.count(JobFilter(text=text)),
    "get_tokens": lambda driver, text: driver.get_tokens([text]),
    "revoke_token": lambda driver, text: driver.revoke_token(text, now=NOON),
    "redrive": lambda driver, text: driver.redrive(JobFilter(ids=(text,)), now=NOON),
    "purge": lambda driver, text: driver.purge(JobFilter(queue=text)),
    "ack": lambda driver, text: driver.ack(text, "token", now=NOON),
    "token": lambda driver, text: driver.ack("a", text, now=NOON),
    "extend": lambda driver, text: driver.extend_lease(text, "token", now=NOON),
    "extend by a token": lambda driver, text: driver.extend_lease("a", text, now=NOON),
    "get_workflow": lambda driver, text: driver.get_workflow(text),
    "workflows": lambda driver, text: driver.list_workflows(text),
    "results of steps": lambda driver, text: driver.step_results(text),
    "deregister": lambda driver, text: driver.deregister(text),
    "resign": lambda driver, text: driver.resign(text, "ann", 1),
    "get_schedule": lambda driver, text: driver.get_schedule(text),
    "pause_schedule": lambda driver, text: driver.pause_schedule(text, paused=True, now=NOON),
    "remove_schedule": lambda driver, text: driver.remove_schedule(text),
    "advance_schedule": lambda driver, text: driver.advance_schedule(text, expected=None, next_run_at=None, now=NOON),
}
"""Everything that looks for this text and stores nothing."""
