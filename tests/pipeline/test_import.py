"""Jobs of the four source systems come over with their state and history, once, and then run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.pipeline import seeds

from taskharbor import Harbor, Job, NewJob
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, InvalidURL, StoreMoved
from taskharbor.pipeline.imports.run import FORMATS, ImportReport, import_jobs
from taskharbor.testing.contract.moving import opened, shut_unnoticed

FORMAT_FIXTURES = ("taskharbor-go", "jobs-json", "mq-postgres", "mq-mysql", "task-orchestrator")


@pytest.fixture(scope="session")
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, tuple[str, str]] = {}

    def source(name: str) -> tuple[str, str]:
        if name not in made:
            match name:
                case "jobs-json":
                    made[name] = name, seeds.jobs_file(tmp_path_factory.mktemp("jobs"))
                case "mq-mysql":
                    made[name] = "mq-sql", _filled(request, "mysql", seeds.MQ_MYSQL)
                case "mq-postgres":
                    made[name] = "mq-sql", _filled(request, "postgres", seeds.MQ_POSTGRES)
                case "taskharbor-go":
                    made[name] = name, _filled(request, "postgres", seeds.TASKHARBOR_GO)
                case _:
                    made[name] = name, _filled(request, "postgres", seeds.TASK_ORCHESTRATOR)
        return made[name]

    return source


def _filled(request: pytest.FixtureRequest, server: str, script: str) -> str:
    return seeds.fill(request.getfixturevalue(server).create_database(), script)


def jobs_of(driver: Driver) -> dict[str, Job]:
    return {job.id: job for job in driver.list(limit=1000).jobs}


def bring(sources: Any, name: str, url: str, tmp_path: Path, **options: Any) -> ImportReport:
    format, source = sources(name)
    return import_jobs(format, source, url, rejects=str(tmp_path / "rejects"), **options)


def test_nothing_is_imported_into_a_store_that_is_shut(
    sources: Any, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    moved = shut_unnoticed(driver)
    with pytest.raises(StoreMoved, match="elsewhere"):
        bring(sources, "taskharbor-go", store_url, tmp_path)
    assert (jobs_of(driver), driver.history().rows) == ({}, [])
    opened(moved)
    assert bring(sources, "taskharbor-go", store_url, tmp_path).imported


@pytest.mark.parametrize("name", FORMAT_FIXTURES)
def test_an_import_accounts_for_every_job_and_a_second_one_changes_nothing(
    sources: Any, name: str, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    rehearsal = bring(sources, name, store_url, tmp_path, dry_run=True)
    assert jobs_of(driver) == {}
    first = bring(sources, name, store_url, tmp_path)
    kept = jobs_of(driver)
    facts = len(driver.history().rows)
    assert first.read == first.imported + first.rejected
    assert len(kept) == first.imported == rehearsal.imported
    assert facts == first.facts
    assert rehearsal.by_status == first.by_status
    again = bring(sources, name, store_url, tmp_path)
    assert (again.read, again.imported, again.known, again.rejected) == (first.read, 0, first.imported, first.rejected)
    assert jobs_of(driver) == kept
    assert len(driver.history().rows) == facts
    if first.rejected:
        [row] = pq.read_table(tmp_path / "rejects").to_pylist()
        assert "unknown status" in row["reason"]


def test_taskharbor_go_keeps_states_counters_and_keys(
    sources: Any, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    report = bring(sources, "taskharbor-go", store_url, tmp_path)
    jobs = jobs_of(driver)
    assert report.by_status == {"dlq": 1, "done": 1, "inflight": 1, "ready": 4}
    assert jobs["go-ready"].timeout is not None
    assert jobs["go-ready"].timeout.total_seconds() == 1.5
    assert (jobs["go-ready"].max_attempts, jobs["go-later"].max_attempts) == (3, 5)
    assert jobs["go-later"].run_at is not None
    assert jobs["go-later"].run_at.year == 2099
    assert (jobs["go-retry"].attempts, jobs["go-retry"].last_error) == (2, "timed out")
    assert jobs["go-lease"].status == "inflight"
    dead = jobs["go-dead"]
    assert (dead.dlq_code, dead.dlq_reason, dead.attempts) == ("max_attempts", "boom at last", 3)
    assert jobs["go-done"].completed_at is not None
    [attempt] = driver.attempts("go-done")
    assert (attempt.outcome, attempt.number) == ("succeeded", 2)
    # The key of the first belongs to it; the second with that key came without.
    assert driver.enqueue([NewJob("mail", b'{"n":1}', key="k1")])[0].existed
    assert (jobs["go-same-key"].idempotency_key, jobs["go-same-key"].meta) == (None, {"imported.key": "k1"})
    assert any(note.startswith("idempotency key") for note in report.notes)
    assert any(note.startswith("lease_token") for note in report.notes)


def test_the_json_store_keeps_tenants_results_and_dead_letters(
    sources: Any, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    report = bring(sources, "jobs-json", store_url, tmp_path, type="report.build", queue="old")
    jobs = jobs_of(driver)
    assert (report.read, report.imported, report.rejected) == (7, 6, 1)
    assert {(job.type, job.queue) for job in jobs.values()} == {("report.build", "old")}
    assert (jobs["j-pending"].tenant_id, jobs["j-pending"].idempotency_key) == ("acme", "k1")
    assert jobs["j-running"].started_at is not None
    assert json.loads(jobs["j-done"].result or b"") == {"ok": True}
    assert jobs["j-failed"].dlq_reason == "boom at last"
    assert (jobs["j-gone"].status, jobs["j-gone"].tenant_id, jobs["j-gone"].attempts) == ("dlq", "beta", 2)
    assert any("earlier" not in note and "dead letter" in note for note in report.notes)


def jobs_json(tmp_path: Path, *jobs: Any, **beside: Any) -> str:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"jobs": jobs, **beside}), "utf-8")
    return str(path)


def test_the_json_store_keeps_unknown_fields_in_meta_and_says_what_it_took_for_granted(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    plain = {"status": "pending", "created_at": "2025-01-01T10:00:00Z"}
    odd = {"extra_field": 5, "labels": ["a", "\u00fc"], "empty": None, "note": "as it is"}
    source = jobs_json(
        tmp_path,
        {"id": "a", **plain, **odd},
        {"id": "b", **plain, "created_at": "2025-01-01T10:00:00", "attachment": "x" * 20_000},
        dlq=[{"job_id": "a", "failed_at": "2025-01-01 09:00", "host": "w1"}],
    )
    report = import_jobs("jobs-json", source, sqlite_url)
    jobs = jobs_of(sqlite_driver)
    assert jobs["a"].meta == {
        "imported.field.extra_field": "5",
        "imported.field.labels": '["a", "\u00fc"]',
        "imported.field.note": "as it is",
    }
    assert jobs["b"].meta == {}
    assert jobs["b"].created_at.isoformat() == "2025-01-01T10:00:00+00:00"
    assert {note: times for note, times in report.notes.items() if "unknown" in note or "zone" in note} == {
        "fields that are unknown here: kept in meta, as imported.field.…": 3,
        "fields of a dead letter that are unknown here": 1,
        "the field 'attachment': unknown here, and meta cannot hold it": 1,
        "created_at without a zone: taken for UTC": 1,
        "failed_at without a zone: taken for UTC": 1,
    }


def test_an_entry_of_the_json_store_that_is_no_object_is_a_reject_and_the_others_come_over(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    job = {"id": "a", "status": "pending", "created_at": "2025-01-01T10:00:00Z"}
    letter = {"job_id": "b", "failed_at": "2025-01-01T10:00:00Z"}
    source = jobs_json(tmp_path, job, 5, dlq=["x", letter], workers=["w1"])
    report = import_jobs("jobs-json", source, sqlite_url, rejects=str(tmp_path / "rejects"))
    assert (report.read, report.imported, report.rejected) == (4, 2, 2)
    assert set(jobs_of(sqlite_driver)) == {"a", "b"}
    assert [(row["row"], row["reason"]) for row in pq.read_table(tmp_path / "rejects").to_pylist()] == [
        ('{"entry": 5}', "InvalidInput: jobs 2 in the file is no object: 5"),
        ('{"entry": "x"}', 'InvalidInput: dlq 1 in the file is no object: "x"'),
    ]
    assert "'workers' beside the jobs in the file: it is left there" in report.notes
    with pytest.raises(InvalidInput, match="holds no jobs"):
        import_jobs("jobs-json", jobs_json(tmp_path, 5), sqlite_url)


@pytest.mark.parametrize("inside", [True, False], ids=["an object", "a list"])
def test_dead_letters_in_a_file_beside_the_jobs_come_over(
    sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, inside: bool
) -> None:
    jobs = [{"id": "a", "status": "pending", "created_at": "2025-01-01T10:00:00Z"}]
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": jobs} if inside else jobs))
    (tmp_path / "dlq.json").write_text(json.dumps([{"job_id": "b", "failed_at": "2025-01-01T10:00:00Z"}]))
    assert import_jobs("jobs-json", str(tmp_path), sqlite_url).by_status == {"dlq": 1, "ready": 1}


@pytest.mark.parametrize("name", ["mq-postgres", "mq-mysql"])
def test_mq_keeps_topics_tenants_priorities_expiry_attempts_and_dead_letters(
    sources: Any, name: str, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    report = bring(sources, name, store_url, tmp_path)
    jobs = jobs_of(driver)
    assert (report.read, report.imported, report.rejected) == (10, 9, 1)
    assert report.by_status == {"cancelled": 1, "dlq": 2, "done": 1, "expired": 1, "inflight": 1, "ready": 3}
    queued = jobs["mq-queued"]
    assert (queued.type, queued.queue, queued.tenant_id, queued.priority) == ("mail", "mail", "acme", 30)
    assert queued.meta == {"a": "b", "c": "1"}
    # (tenant, key) is unique there, whatever the topic: another tenant may have the same key.
    assert queued.idempotency_key == jobs["mq-other"].idempotency_key == "d1"
    assert (jobs["mq-other"].attempts, jobs["mq-other"].last_error) == (1, "slow")
    assert jobs["mq-other"].expires_at is not None
    leased = jobs["mq-leased"]
    assert (leased.lease_owner, leased.attempts, leased.deliveries) == ("w-1", 1, 2)
    assert leased.lease_expires_at is not None
    assert leased.lease_expires_at.isoformat() == "2025-01-01T12:00:00+00:00"
    assert [(a.number, a.outcome, a.error) for a in driver.attempts("mq-done")] == [
        (1, "retried", "once"), (2, "succeeded", ""),
    ]  # fmt: skip
    dead = jobs["mq-dead"]
    assert (dead.dlq_code, dead.dlq_reason) == ("max_attempts", "boom for good")
    assert [(a.outcome, a.error) for a in driver.attempts("mq-dead")] == [
        ("retried", "ouch"), ("dead", "first death"), ("dead", "boom for good"),
    ]  # fmt: skip
    assert (jobs["mq-gone"].status, jobs["mq-gone"].dlq_reason) == ("dlq", "long dead")
    assert (jobs["mq-expired"].status, jobs["mq-cancelled"].status) == ("expired", "cancelled")
    assert [times for note, times in report.notes.items() if "whose task is gone" in note] == [2]


def test_the_task_orchestrator_keeps_workers_times_and_reasons(
    sources: Any, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    report = bring(sources, "task-orchestrator", store_url, tmp_path)
    jobs = {job.id[-1]: job for job in jobs_of(driver).values()}
    assert report.by_status == {"dlq": 2, "done": 1, "inflight": 2, "ready": 2}
    assert (jobs["1"].priority, jobs["1"].idempotency_key, jobs["2"].idempotency_key) == (5, "k1", "k1")
    assert (jobs["2"].payload, jobs["2"].attempts) == (b"{}", 1)
    assert jobs["2"].run_at is not None
    assert (jobs["3"].started_at, jobs["3"].lease_owner) == (None, "w-1")
    assert jobs["4"].started_at is not None
    [attempt] = driver.attempts(jobs["5"].id)
    assert (attempt.worker, attempt.number, attempt.started_at.minute, attempt.finished_at.minute) == ("w-2", 2, 2, 3)
    assert (jobs["6"].dlq_code, jobs["7"].dlq_code) == ("no_handler", "max_attempts")
    assert report.notes["workers: they register themselves here when they start"] == 2


WITHOUT_SERVERS = """
import importlib, pkgutil, sys
for name in ("pymysql", "psycopg", "psycopg_pool", "adbc_driver_postgresql", "adbc_driver_manager"):
    sys.modules[name] = None
import taskharbor.pipeline
for found in pkgutil.walk_packages(taskharbor.pipeline.__path__, "taskharbor.pipeline."):
    if not found.name.endswith(("_postgres", "_mysql")):
        importlib.import_module(found.name)
from taskharbor.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.process
def test_a_store_that_needs_no_server_needs_no_client_of_one(sqlite_url: str, tmp_path: Path) -> None:
    """As with the extra `spark` alone: all of the pipeline can be imported, and an import works."""
    words = ["--url", sqlite_url, "pipeline", "import", "--from", "jobs-json", seeds.jobs_file(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVERS, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["imported"]


@pytest.mark.parametrize("name", FORMAT_FIXTURES)
def test_imported_jobs_run_with_a_worker(sources: Any, name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    report = bring(sources, name, url, tmp_path)
    harbor = Harbor(url)
    ran: list[int] = []

    def handler(n: int = 0) -> str:
        ran.append(n)
        return "ok"

    for kind in ("mail", "sms", "job", "task:backup", "task:other"):
        harbor.task(name=kind)(handler)
    harbor.worker(queues={"q": 2, "default": 2, "mail": 2, "sms": 2}).drain()
    counts = {job.id: str(job.status) for job in jobs_of(harbor.driver).values()}
    waiting = [id for id, status in counts.items() if status in ("ready", "inflight")]
    later = {"taskharbor-go": ["go-later"], "task-orchestrator": ["00000000-0000-0000-0000-000000000002"]}
    assert waiting == later.get(name, [])
    late = 1 if name.startswith("mq") else 0
    expected = report.by_status["ready"] + report.by_status["inflight"] - len(waiting) - late
    assert len(ran) == expected > 0
    harbor.close()


def test_a_dead_job_that_was_imported_can_be_redriven(
    sources: Any, driver: Driver, store_url: str, tmp_path: Path
) -> None:
    bring(sources, "taskharbor-go", store_url, tmp_path)
    assert driver.redrive() == ["go-dead"]
    assert "go-dead" in [leased.job.id for leased in driver.reserve("q", limit=10)]


def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, sqlite_url: str, postgres_url: str) -> None:
    broken = tmp_path / "jobs.json"
    broken.write_text("{")
    with pytest.raises(InvalidInput, match="is no JSON"):
        import_jobs("jobs-json", str(broken), sqlite_url)
    with pytest.raises(InvalidInput, match="cannot read"):
        import_jobs("jobs-json", str(tmp_path / "absent.json"), sqlite_url)
    with pytest.raises(InvalidInput, match="no table mq_tasks"):
        import_jobs("mq-sql", postgres_url, sqlite_url)
    with pytest.raises(InvalidURL, match="no database"):
        import_jobs("mq-sql", "file.txt", sqlite_url)
    with pytest.raises(InvalidInput, match=", ".join(FORMATS)):
        import_jobs("celery", "x", sqlite_url)
