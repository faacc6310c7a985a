"""What was archived comes back as it was, once, and the lake does not take it in again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.archiving import LATER, MONTH, archive_old, finished, grow, lives_of, manifests_of
from tests.pipeline.exact import feed, rows_of, versions
from tests.pipeline.lives import MINUTE, NOON, live
from tests.pipeline.pasts import Pasts

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import HistoryRow, NewJob
from taskharbor.drivers import open_driver
from taskharbor.pipeline import run
from taskharbor.pipeline.archive import archive
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake, LakeError
from taskharbor.pipeline.lock import LakeLock, LakeLocked
from taskharbor.pipeline.restore import restore
from taskharbor.pipeline.store import Selection, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _facts(url: str) -> list[dict[str, object]]:
    """The feed as the pipeline reads it: every column, tokens as their hashes."""
    with open_store(url) as store:
        return [row for batch in store.read_history(None, store.frontier()) for row in batch.to_pylist()]


def _places(rows: list[HistoryRow]) -> list[str]:
    return [row.position for row in rows]


@pytest.mark.timeout(300)
def test_restored_jobs_are_as_they_were_and_new_to_nobody(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    grow(driver)
    run(store_url, lake, spark=spark)
    ids = list(finished(driver))
    before, facts, page = lives_of(driver, ids), _facts(store_url), driver.history(None, 1000)
    gone = archive_old(spark, driver, store_url, lake)
    assert gone.pruned > 0
    assert len(_facts(store_url)) < len(facts)
    report = restore(store_url, lake, everything=True, spark=spark)
    assert (report.restored, report.rows, report.by_status) == (gone.pruned, gone.rows, gone.by_status)
    assert lives_of(driver, ids) == before
    assert _facts(store_url) == facts
    assert _places(feed(driver)) == _places(list(page.rows))
    # Again adds nothing.
    again = restore(store_url, lake, everything=True, spark=spark)
    assert (again.restored, again.rows, again.known) == (0, 0, len(ids))
    assert _facts(store_url) == facts
    # Nobody who has read that far gets them again, the lake least of all.
    assert list(driver.history(page.cursor, 1000).rows) == []
    untouched = versions(lake)
    assert run(store_url, lake, spark=spark).batches == 0
    assert versions(lake) == untouched
    live(driver, first=24 * 39 + 1)
    new = len(_facts(store_url)) - len(facts)
    assert run(store_url, lake, spark=spark).rows == new
    assert len(rows_of(lake, "bronze/history")) == len(facts) + new
    assert all(check.passed for check in audit_lake(spark, Lake(lake)))
    # And they can be archived again.
    second = archive(store_url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert (second.pruned, second.rows, second.days) == (gone.pruned, gone.rows, gone.days)
    assert len(manifests_of(lake)) == 2
    driver.close()
    reopened = open_driver(store_url)
    assert not set(finished(reopened)) & set(gone_ids(before, LATER - MONTH))
    reopened.close()


def gone_ids(lives: dict[str, tuple[object, object]], bound: object) -> list[str]:
    return [id for id, (job, _) in lives.items() if job.completed_at < bound]  # type: ignore[attr-defined]


@pytest.mark.parametrize("store_url", ["json", "sqlite"], indirect=True)  # others keep nothing in the process
def test_a_restored_store_is_the_same_when_it_is_opened_again(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    live(driver, rounds=2)
    run(store_url, tmp_path / "lake", spark=spark)
    ids = list(finished(driver))
    before, places = lives_of(driver, ids), _places(feed(driver))
    archive(store_url, tmp_path / "lake", older_than=MONTH, spark=spark, now=LATER)
    restore(store_url, tmp_path / "lake", ids=ids[:3], spark=spark)
    restore(store_url, tmp_path / "lake", ids=ids, spark=spark)
    driver.close()
    reopened = open_driver(store_url)
    assert lives_of(reopened, ids) == before
    assert _places(feed(reopened)) == places
    [added] = reopened.enqueue([NewJob("next", queue="next")], LATER)
    [leased] = reopened.reserve("next", now=LATER, lease_for=60)
    reopened.ack(leased.job.id, leased.lease.token, now=LATER)
    assert [row.job_id for row in feed(reopened)][-1] == added.id
    assert reopened.prune(LATER, ids=ids) == len(ids)
    reopened.close()


def test_jobs_are_restored_by_what_they_were(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live, rounds=2)
    jobs = finished(driver)
    archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert restore(url, lake, selection=Selection(queue="once"), spark=spark).by_status == {"expired": 2}
    assert restore(url, lake, selection=Selection(tenant="acme"), spark=spark).restored == 2
    since, until = NOON, NOON + 2 * MINUTE
    wanted = {id for id, job in jobs.items() if job.completed_at and since <= job.completed_at < until}
    rehearsal = restore(url, lake, selection=Selection(since=since, until=until), spark=spark, dry_run=True)
    before = set(finished(driver))
    assert (rehearsal.selected, rehearsal.restored) == (len(wanted), len(wanted - before))
    done = restore(url, lake, selection=Selection(since=since, until=until), spark=spark)
    assert (rehearsal.rows, rehearsal.by_status) == (done.rows, done.by_status)
    assert rehearsal.rows >= rehearsal.restored > 0
    assert set(finished(driver)) == before | wanted
    report = restore(url, lake, ids=[*jobs, "nobody"], spark=spark)
    assert report.missing == ["nobody"]
    assert set(finished(driver)) == set(jobs)


def test_an_id_that_was_used_again_brings_back_its_latest_job_alone(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    def live_once(payload: bytes, now: object) -> None:
        sqlite_driver.enqueue([NewJob("t", payload, id="again")], now)  # type: ignore[arg-type]
        [leased] = sqlite_driver.reserve("default", now=now, lease_for=60)  # type: ignore[arg-type]
        sqlite_driver.ack(leased.job.id, leased.lease.token, now=now)  # type: ignore[arg-type]
        run(sqlite_url, lake, spark=spark)

    live_once(b"1", NOON)
    assert archive(sqlite_url, lake, older_than=MONTH, spark=spark, now=LATER).pruned == 1
    live_once(b"2", NOON + MINUTE)
    assert restore(sqlite_url, lake, everything=True, spark=spark).known == 1
    assert archive(sqlite_url, lake, older_than=MONTH, spark=spark, now=LATER).pruned == 1
    assert restore(sqlite_url, lake, everything=True, spark=spark).rows == 1
    assert sqlite_driver.get("again").payload == b"2"


def test_the_key_of_a_restored_job_stays_free(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live)
    archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    restore(url, lake, everything=True, spark=spark)
    [job] = [job for job in finished(driver).values() if job.type == "done"]
    assert job.idempotency_key == "k0"
    [answer] = driver.enqueue([NewJob("done", b"{}", queue="mail", key="k0")], LATER)
    assert not answer.existed


def test_a_restore_needs_a_choice_a_lake_that_knows_the_store_and_the_lake_to_itself(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="say what to restore"):
        restore(sqlite_url, tmp_path / "lake", spark=spark)
    live(sqlite_driver)
    run(sqlite_url, tmp_path / "lake", spark=spark)
    with LakeLock(Lake(tmp_path / "lake")), pytest.raises(LakeLocked):
        restore(sqlite_url, tmp_path / "lake", everything=True, spark=spark)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    driver = open_driver(other)
    driver.migrate()
    driver.close()
    with pytest.raises(LakeError, match="nothing of this store"):
        restore(other, tmp_path / "lake", everything=True, spark=spark)
