"""Limits, fair queues and tokens in the files of a JSON store, and stores from before there were any."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from taskharbor.core.limiting import Limit
from taskharbor.core.tokens import new_token
from taskharbor.drivers.jsonfile import driver as json_driver
from taskharbor.drivers.jsonfile.driver import JsonDriver
from taskharbor.testing.helpers import add_all, new_job, nothing_runnable, take, take_ids
from taskharbor.testing.times import DAY, HOUR, NOON


def version(directory: Path) -> int:
    return int(json.loads((directory / "store.json").read_text())["version"])


def test_a_store_without_limits_stays_readable_for_older_versions(tmp_path: Path) -> None:
    with JsonDriver(tmp_path / "store") as driver:
        driver.migrate()
        driver.pause("mail")
        driver.resume("mail")
        assert version(tmp_path / "store") == 1


def test_the_first_limit_and_the_first_fair_queue_make_it_a_store_of_the_new_version(tmp_path: Path) -> None:
    for name, change in (
        ("limit", lambda driver: driver.set_limit(Limit("queue", "mail", concurrency=1))),
        ("fair", lambda driver: driver.set_fair("mail")),
    ):
        with JsonDriver(tmp_path / name) as driver:
            driver.migrate()
            add_all(driver, [new_job()])
            change(driver)
            assert version(tmp_path / name) == 2
            assert driver.counts()["ready"] == 1


def test_the_first_token_makes_it_a_store_of_the_newest_version_and_is_there_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    token, _ = new_token("ci", "acme", "worker", NOON, NOON + DAY)
    with JsonDriver(tmp_path / "store") as driver:
        driver.migrate()
        driver.set_limit(Limit("queue", "mail", concurrency=1))
        assert version(tmp_path / "store") == 2
        driver.add_token(token)
        assert version(tmp_path / "store") == 3
    with JsonDriver(tmp_path / "store") as again:
        assert again.tokens() == [token]
        again.revoke_token(token.id, now=NOON + HOUR)
    with JsonDriver(tmp_path / "store") as last:
        assert last.get_tokens([token.id]) == [replace(token, revoked_at=NOON + HOUR)]


def test_a_change_that_an_older_version_understands_writes_no_snapshot(tmp_path: Path) -> None:
    with JsonDriver(tmp_path / "store") as driver:
        driver.migrate()
        driver.set_limit(Limit("queue", "mail", concurrency=1))
        before = (tmp_path / "store" / "store.json").stat().st_ino
        driver.set_limit(Limit("queue", "mail", concurrency=2))
        add_all(driver, [new_job()])
        assert (tmp_path / "store" / "store.json").stat().st_ino == before


def test_what_waits_and_what_runs_is_known_to_whoever_opens_the_store_next(tmp_path: Path) -> None:
    with JsonDriver(tmp_path / "store") as driver:
        driver.migrate()
        driver.set_fair("default", weights={"b": 2})
        driver.set_limit(Limit("tenant", "a", concurrency=1), now=NOON)
        ids = add_all(driver, [new_job(tenant_id="a"), new_job(tenant_id="a"), new_job(tenant_id="b")])
        leased = take(driver)
        assert leased.job.id == ids[0]
        assert take_ids(driver) == [ids[2]]
    with JsonDriver(tmp_path / "store") as again:
        assert nothing_runnable(again), "one of tenant a runs"
        assert again.get(ids[1]).due_at == NOON
        assert again.get_limits() == [Limit("tenant", "a", concurrency=1)]
        again.ack(ids[0], leased.lease.token, now=NOON)
        assert take_ids(again) == [ids[1]]


def test_a_job_of_a_fair_queue_that_a_limit_held_back_is_found_after_a_snapshot_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_driver, "SMALLEST_COMPACTION", 1)
    with JsonDriver(tmp_path / "store") as driver:
        driver.migrate()
        driver.set_fair("default", now=NOON)
        driver.set_limit(Limit("type", "email.send", concurrency=1), now=NOON)
        _, second = add_all(driver, [new_job(), new_job()])
        leased = take(driver)
        assert nothing_runnable(driver)
        driver.set_limit(Limit("type", "other", concurrency=1), now=NOON)
    with JsonDriver(tmp_path / "store") as driver:
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert take_ids(driver) == [second]
