"""A store that an earlier version made, with jobs in it, after `migrate`."""

from __future__ import annotations

import importlib
import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.hard.crew import new_store

from taskharbor.core.errors import SchemaMissing
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, QueueSettings, Status
from taskharbor.core.tokens import new_token
from taskharbor.drivers import open_driver
from taskharbor.testing import emptying
from taskharbor.testing.times import HOUR, MINUTE, NOON

STORES = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server),
    pytest.param("mysql", marks=pytest.mark.server),
]
LATER = datetime(2200, 1, 1, tzinfo=UTC)
TOKEN = "0123456789abcdef0123456789abcdef"


def connect(url: str) -> Any:
    """Behind the driver's back."""
    path = url.removeprefix("sqlite:///")
    return emptying.connect(url) if path == url else sqlite3.connect(path)


def first_version(url: str, kind: str, patch: pytest.MonkeyPatch) -> None:
    """A store with the tables of the first migration alone: jobs that wait, one that runs, and a paused queue."""
    module = {"postgresql": "postgres"}.get(kind, kind)
    schema = importlib.import_module(f"taskharbor.drivers.{module}.schema")
    every = schema.migrations
    with patch.context() as patched, open_driver(url) as driver:
        patched.setattr(schema, "migrations", lambda *given: every(*given)[:1])
        driver.migrate()
        driver_of_then: Any = driver
        driver_of_then._rules_until = math.inf  # it knew of no limits
        driver.enqueue(
            [
                NewJob("old", id="first", queue="q", meta={"limit_key": "a"}),
                NewJob("old", id="second", queue="q", meta={"limit_key": "a"}),
                NewJob("old", id="later", queue="q", run_at=LATER),
                NewJob("old", id="running", queue="q", expires_at=NOON + HOUR, tenant_id="acme"),
            ],
            NOON,
        )
        driver.pause("other")
    sql = (
        f"UPDATE th_jobs SET status = 'inflight', lease_token = '{TOKEN}', lease_owner = 'w', deliveries = 1, "
        "lease_expires_at = expires_at, claimed_at = due_at WHERE id = 'running'"
    )
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(sql)
        connection.commit()


@pytest.mark.parametrize("kind", STORES)
def test_a_store_of_the_first_version_goes_on_with_everything_in_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_store(request, kind, tmp_path)
    first_version(url, kind, monkeypatch)
    with open_driver(url) as driver:
        with pytest.raises(SchemaMissing):
            driver.get("first")
        driver.migrate()
        driver.migrate()
        assert driver.queues() == [QueueSettings("other", paused=True)]
        assert (driver.get("running").status, driver.get("running").due_at) == (Status.INFLIGHT, NOON)
        assert (driver.counts().scheduled, driver.get("later").due_at) == (1, LATER)
        driver.set_limit(Limit("queue", "q", per="key", concurrency=1), now=NOON)
        driver.set_fair("q", now=NOON)
        (leased,) = driver.reserve("q", now=NOON + MINUTE, limit=10)
        assert (leased.job.id, leased.job.due_at) == ("first", NOON)
        assert driver.counts().scheduled == 1, "what a limit holds back is not scheduled"
        driver.ack("running", TOKEN, now=NOON + MINUTE)
        driver.ack("first", leased.lease.token, now=NOON + MINUTE)
        assert [each.job.id for each in driver.reserve("q", now=LATER, limit=10)] == ["second", "later"]
        assert {row.job_id for row in driver.history().rows} == {"running", "first"}
        token, _ = new_token("ci", "acme", "viewer", NOON)
        driver.add_token(token)
        assert driver.get_tokens([token.id]) == [token]
        assert [row.tenant_id for row in driver.census(NOON)] == ["acme", "default", "default"]


@pytest.mark.parametrize("kind", STORES)
def test_the_view_of_all_jobs_shows_the_true_due_times(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = new_store(request, kind, tmp_path)
    with open_driver(url) as driver:
        driver.migrate()
        driver.set_fair("q", now=NOON)
        driver.set_limit(Limit("type", "t", concurrency=1), now=NOON)
        driver.enqueue([NewJob("t", id=f"job-{number}", queue="q") for number in range(3)], NOON)
        assert len(driver.reserve("q", now=NOON, limit=3)) == 1
        driver.enqueue([NewJob("other", id="tagged", queue="q")], NOON)
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(DISTINCT due_at), count(*) FROM th_all_jobs")
        assert cursor.fetchall()[0] == (1, 4)
        cursor.execute("SELECT count(DISTINCT due_at), count(*) FROM th_jobs")
        assert cursor.fetchall()[0] == (3, 4), "due, on the bench, and with a tag"
