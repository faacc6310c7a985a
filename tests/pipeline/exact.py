"""What a lake must hold, worked out from the store's own feed, and read back without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from taskharbor.core.contract import Driver
from taskharbor.core.model import Attempt, HistoryRow
from taskharbor.pipeline.lake_schemas import TABLES

BURNED = ("retried", "dead", "lapsed")


def feed(driver: Driver) -> list[HistoryRow]:
    rows: list[HistoryRow] = []
    cursor = None
    while True:
        page = driver.history(cursor, 1000)
        if not page.rows:
            return rows
        rows += page.rows
        cursor = page.cursor


def rows_of(lake: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(lake / name)).to_pyarrow_table().to_pylist()
    return found


def versions(lake: Path) -> dict[str, int]:
    return {name: DeltaTable(str(lake / name)).version() for name in TABLES}


def assert_exact(driver: Driver, lake: Path) -> None:
    """Every fact of the feed is in each layer, once."""
    facts = feed(driver)
    attempts = [row.attempt for row in facts if row.attempt is not None]
    assert sorted(row["position"] for row in rows_of(lake, "bronze/history")) == sorted(row.position for row in facts)
    silver = rows_of(lake, "silver/attempts")
    assert Counter((row["job_id"], row["attempt_no"], row["delivery"], row["outcome"]) for row in silver) == Counter(
        (each.job_id, each.number, each.delivery, str(each.outcome)) for each in attempts
    )
    assert_jobs(facts, rows_of(lake, "silver/jobs"))
    assert_gold(facts, lake)


def ran_s(attempt: Attempt) -> float:
    """A lease that ended before anybody said that the attempt had begun is no run."""
    if attempt.outcome == "lapsed" and attempt.started_at <= attempt.claimed_at:
        return 0.0
    return (attempt.finished_at - max(attempt.started_at, attempt.claimed_at)).total_seconds()


def ended_as(row: HistoryRow) -> str:
    """A lost worker after which its job was dead is a death."""
    return "dead" if row.status == "dlq" else str(row.outcome)


def assert_jobs(facts: list[HistoryRow], jobs: list[dict[str, Any]]) -> None:
    by_job: dict[str, list[HistoryRow]] = {}
    for fact in facts:
        by_job.setdefault(fact.job_id, []).append(fact)
    assert len(jobs) == len(by_job)
    for job in jobs:
        own = by_job[job["job_id"]]
        tried = [row.attempt for row in own if row.attempt]
        assert job["status"] == own[-1].status
        assert job["attempts"] == len(tried)
        assert job["failures"] == sum(each.outcome in BURNED for each in tried)
        assert job["last_at"] == own[-1].at
        assert abs(job["ran_s"] - sum(ran_s(each) for each in tried)) < 1e-6
        assert (job["created_at"] is None) == all(row.job is None for row in own)


def assert_gold(facts: list[HistoryRow], lake: Path) -> None:
    outcomes = Counter(ended_as(row) for row in facts if row.attempt)
    total = sum(outcomes.values())
    made = len({row.job_id for row in facts if row.job})
    for grain in ("minute", "hour", "day"):
        rows = [row for row in rows_of(lake, "gold/throughput") if row["grain"] == grain]
        assert sum(row["started"] for row in rows) == total
        assert sum(row["enqueued"] for row in rows) == made
        for name in ("succeeded", "retried", "dead", "lapsed"):
            assert sum(row[name] for row in rows) == outcomes[name]
        assert len({(row["bucket"], row["queue"], row["type"], row["tenant_id"]) for row in rows}) == len(rows)
    latency = [row for row in rows_of(lake, "gold/latency") if row["grain"] == "day"]
    assert sum(row["attempts"] for row in latency) == total
    for row in latency:
        for histogram in ("wait_histogram", "run_histogram"):
            assert sum(each["count"] for each in row[histogram]) == row["attempts"]
    burned = sum(outcomes[name] for name in BURNED)
    assert sum(row["failures"] for row in rows_of(lake, "gold/failures")) == burned
    tenants = rows_of(lake, "gold/tenants")
    assert (sum(row["attempts"] for row in tenants), sum(row["jobs"] for row in tenants)) == (total, made)
    assert sum(row["attempts"] for row in rows_of(lake, "gold/workers")) == total
    judged = burned + outcomes["succeeded"]
    slo = rows_of(lake, "gold/slo")
    assert sum(row["total"] for row in slo if row["objective"] == "wait") == judged
    assert sum(row["good"] for row in slo if row["objective"] == "success") == outcomes["succeeded"]
    assert sum(row["arrivals"] for row in rows_of(lake, "gold/arrivals")) == made
    assert all(row["passed"] for row in rows_of(lake, "gold/audit"))
