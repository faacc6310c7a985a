"""Dead jobs in clusters by what went wrong, and one cluster sent back at a time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.lives import MINUTE, NOON

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import JobFilter, NewJob, Status
from taskharbor.pipeline import run
from taskharbor.pipeline import triage as module
from taskharbor.pipeline.store import Selection
from taskharbor.pipeline.triage import Cluster, dead_letters, ready_session, triage
from taskharbor.pipeline.triage_redrive import redrive_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = "ConnectionError: 10.0.0.{n}:5432 refused the connection"
BROKEN = 'Traceback (most recent call last):\n  File "/app/mail.py", line {n}\nValueError: order {n} is odd'


def kill(
    driver: Driver, reason: str, count: int = 1, *, now: datetime = NOON, code: str = "x", **fields: object
) -> None:
    """So many dead jobs, whose errors differ in a number."""
    queue = str(fields.pop("queue", "default"))
    jobs = [NewJob(str(fields.get("type", "t")), b"{}", queue=queue, tenant_id=str(fields.get("tenant", "default")))]
    driver.enqueue(jobs * count, now)
    for number, leased in enumerate(driver.reserve(queue, now=now, lease_for=60, limit=count)):
        driver.fail(leased.job.id, leased.lease.token, now=now, reason=reason.format(n=number), code=code)


@pytest.fixture
def dead(driver: Driver) -> Driver:
    kill(driver, REFUSED, 3, type="mail", queue="mail", tenant="acme")
    kill(driver, REFUSED, 2, type="pay", queue="pay", tenant="beta", now=NOON + 5 * MINUTE)
    kill(driver, BROKEN, 2, type="mail", queue="mail", tenant="acme", now=NOON + MINUTE)
    kill(driver, "", 1, code="no_handler")
    return driver


def by_class(clusters: tuple[Cluster, ...]) -> dict[str | None, Cluster]:
    return {cluster.error_class: cluster for cluster in clusters}


def test_errors_that_differ_in_details_are_one_cluster(spark: SparkSession, dead: Driver, store_url: str) -> None:
    found = triage(store_url, spark=spark)
    assert (found.dead, found.clusters_in_all, [each.size for each in found.clusters]) == (8, 3, [5, 2, 1])
    clusters = by_class(found.clusters)
    refused = clusters["ConnectionError"]
    assert (refused.first_seen, refused.last_seen) == (NOON, NOON + 5 * MINUTE)
    assert (refused.types.count, refused.types.top) == (2, {"mail": 3, "pay": 2})
    assert (refused.queues.top, refused.tenants.top) == ({"mail": 3, "pay": 2}, {"acme": 3, "beta": 2})
    assert refused.sample == "ConnectionError: 10.0.0.0:5432 refused the connection"
    ids = {job.id for job in dead.list(JobFilter(status="dlq", error="refused")).jobs}
    assert (len(refused.jobs), set(refused.jobs)) == (5, ids)
    assert clusters["ValueError"].sample.endswith("is odd")
    assert (clusters[None].codes, clusters[None].sample) == (("no_handler",), "")
    assert len({each.id for each in found.clusters}) == 3
    assert [each.id for each in triage(store_url, spark=spark).clusters] == [each.id for each in found.clusters]


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
def test_a_dlq_that_is_too_much_for_the_driver_is_read_by_executors(
    spark: SparkSession, dead: Driver, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = triage(store_url, spark=spark, selection=Selection(queue="mail"))
    monkeypatch.setattr(module, "FEW_ROWS", 2)
    assert triage(store_url, spark=spark, selection=Selection(queue="mail")) == few
    assert few.dead == 5


def test_a_triage_can_look_at_a_part(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    kill(sqlite_driver, REFUSED, 3, queue="mail", tenant="acme")
    kill(sqlite_driver, REFUSED, 2, queue="pay", type="pay", now=NOON + MINUTE)
    for selection, size in (
        (Selection(queue="mail"), 3),
        (Selection(type="pay"), 2),
        (Selection(tenant="acme"), 3),
        (Selection(since=NOON + MINUTE), 2),
        (Selection(queue="nowhere"), 0),
    ):
        found = triage(sqlite_url, spark=spark, selection=selection)
        assert (found.dead, sum(each.size for each in found.clusters)) == (size, size)


def test_no_payload_is_read(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    columns = dead_letters(ready_session(spark), sqlite_url).columns
    assert not {"payload", "meta", "result"} & set(columns)


def test_a_lake_knows_since_when_and_what_it_cost(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    kill(sqlite_driver, REFUSED, 3)
    run(sqlite_url, tmp_path / "lake", spark=spark)
    sqlite_driver.purge()
    kill(sqlite_driver, REFUSED, 1, now=NOON + 60 * MINUTE)
    [cluster] = triage(sqlite_url, lake=tmp_path / "lake", spark=spark).clusters
    assert (cluster.size, cluster.first_seen) == (1, NOON + 60 * MINUTE)
    assert cluster.in_lake is not None
    assert (cluster.in_lake["first_seen"], cluster.in_lake["dead"]) == (NOON.isoformat(), 3)


# --- Redrive --------------------------------------------------------------------------------------------------------


class Clock:
    """Time passes by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_exactly_the_jobs_of_the_cluster_are_redriven(spark: SparkSession, dead: Driver, store_url: str) -> None:
    refused = by_class(triage(store_url, spark=spark).clusters)["ConnectionError"]
    assert redrive_cluster(store_url, refused.id, spark=spark, dry_run=True).chosen == 5
    assert len(dead.list(JobFilter(status="dlq")).jobs) == 8
    report = redrive_cluster(store_url, refused.id, spark=spark)
    assert (report.chosen, report.redriven, report.gone) == (5, 5, 0)
    statuses = Counter(str(job.status) for job in dead.list(limit=100).jobs)
    assert statuses == {"ready": 5, "dlq": 3}
    assert {dead.get(id).status for id in refused.jobs} == {Status.READY}


def test_a_redrive_keeps_to_its_rate_and_its_limit(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    kill(sqlite_driver, REFUSED, 25)
    [cluster] = triage(sqlite_url, spark=spark).clusters
    clock = Clock()
    seen: list[int] = []

    def moved(count: int, total: int) -> None:
        seen.append(count)
        assert total == 23

    report = redrive_cluster(
        sqlite_url, cluster.id, rate=10.0, limit=23, spark=spark, clock=clock, sleep=clock.sleep, on_moved=moved
    )
    assert (report.redriven, seen, clock.slept, report.seconds) == (23, [10, 10, 3], [1.0, 1.0], 2.0)
    assert (report.size, report.chosen) == (25, 23)
    assert len(sqlite_driver.list(JobFilter(status="dlq")).jobs) == 2


def test_jobs_that_fail_again_meanwhile_are_not_taken_again(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str
) -> None:
    kill(sqlite_driver, REFUSED, 6)
    [cluster] = triage(sqlite_url, spark=spark).clusters
    clock = Clock()

    def fail_again(seconds: float) -> None:
        clock.sleep(seconds)
        now = sqlite_driver.now() + 10 * MINUTE
        for leased in sqlite_driver.reserve("default", now=now, lease_for=60, limit=100):
            sqlite_driver.fail(leased.job.id, leased.lease.token, now=now, reason=REFUSED.format(n=9))

    report = redrive_cluster(sqlite_url, cluster.id, rate=2.0, spark=spark, clock=clock, sleep=fail_again)
    assert (report.redriven, report.gone) == (6, 0)
    assert len(sqlite_driver.list(JobFilter(status="dlq")).jobs) == 4


def test_jobs_that_are_gone_meanwhile_are_counted(spark: SparkSession, sqlite_driver: Driver, sqlite_url: str) -> None:
    kill(sqlite_driver, REFUSED, 4)
    [cluster] = triage(sqlite_url, spark=spark).clusters
    clock = Clock()

    def purge(seconds: float) -> None:
        clock.sleep(seconds)
        sqlite_driver.purge(limit=1)

    report = redrive_cluster(sqlite_url, cluster.id, rate=3.0, spark=spark, clock=clock, sleep=purge)
    assert (report.redriven, report.gone) == (3, 1)


def test_a_cluster_that_is_not_there_is_refused_with_those_that_are(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str
) -> None:
    with pytest.raises(InvalidInput, match="no dead job is left"):
        redrive_cluster(sqlite_url, "00000000", spark=spark)
    kill(sqlite_driver, REFUSED, 2)
    [cluster] = triage(sqlite_url, spark=spark).clusters
    for name in ("00000000", "nothing", "", "'; --"):
        with pytest.raises(InvalidInput, match=rf"there is {cluster.id} \(2 ConnectionError\)"):
            redrive_cluster(sqlite_url, name, spark=spark)


# --- The command ----------------------------------------------------------------------------------------------------


def test_the_command_shows_clusters_and_redrives_one(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill(sqlite_driver, REFUSED, 3, type="mail")
    words = ["--url", sqlite_url, "pipeline", "triage", "--master", "local[1]"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [cluster] = found["clusters"]
    assert (found["dead"], cluster["size"], cluster["types"]) == (3, 3, {"count": 1, "top": {"mail": 3}})
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "3 dead jobs in 1 cluster" in said
    assert f"--redrive {cluster['id']}" in said
    assert main([*words, "--redrive", cluster["id"], "--dry-run"]) == 0
    assert "3 of 3 jobs of cluster" in capsys.readouterr().out
    assert main([*words, "--redrive", cluster["id"], "--limit", "2", "--dry-run"]) == 0
    assert "2 of 3 jobs of cluster" in capsys.readouterr().out
    assert main([*words, "--redrive", cluster["id"], "--limit", "2", "--reset-attempts"]) == 0
    said = capsys.readouterr()
    assert f"redriven: 2 of 3 jobs of cluster {cluster['id']}; 1 left for later" in said.out
    assert said.err.splitlines()[:2] == ["starting Spark", "reading the DLQ"]
    assert main([*words, "--redrive", "feedbeef"]) == 2
    assert f"there is {cluster['id']}" in capsys.readouterr().err
    sqlite_driver.purge()
    assert main(words) == 0
    assert "no dead jobs" in capsys.readouterr().out
    assert main([*words, "--lake", str(tmp_path / "none")]) == 1
    assert "there is no lake" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "5/s"], "only with --redrive"),
        (["--dry-run"], "only with --redrive"),
        (["--since", "soon"], "must be a time"),
        (["--redrive", "abcd", "--rate", "fast"], "not a rate"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(
    sqlite_url: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["--url", sqlite_url, "pipeline", "triage", *words]) == 2
    assert said in capsys.readouterr().err
