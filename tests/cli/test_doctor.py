"""`doctor` and `bench`: what they find, and that they leave nothing behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.cli.conftest import killed

from taskharbor import Harbor
from taskharbor.cli import doctor_files
from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, Schedule
from taskharbor.drivers import open_driver

Run = Callable[..., Any]


def levels(found: Any) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in found["findings"]}


def cures(found: Any) -> dict[str, str]:
    return {finding["check"]: finding["cure"] for finding in found["findings"]}


def test_a_healthy_store_has_no_problems(run: Run, driver: Driver) -> None:
    found = run("doctor")
    assert found["problems"] == 0
    assert {"reachable", "tables", "clock", "version", "journal mode", "file system", "disk"} <= levels(found).keys()


@pytest.mark.parametrize("url", ["memory://", "json:///store"])
def test_the_doctor_knows_every_embedded_store(url: str, run: Run) -> None:
    if url.startswith("json"):
        with open_driver(url) as store:  # type: ignore[attr-defined]
            store.migrate()
    assert run("doctor", "--url", url)["problems"] == 0


def test_missing_tables_are_a_problem_with_its_cure_and_are_not_made(run: Run) -> None:
    found = run("doctor", "--url", "sqlite:///nothing.db", code=1)
    assert levels(found)["tables"] == "problem"
    assert "migrate" in cures(found)["tables"]
    assert "nothing.db does not exist" in str(found)
    assert not Path("nothing.db").exists()


def test_a_server_that_is_not_there_is_a_problem_without_its_password(run: Run) -> None:
    found = run("doctor", "--url", "postgresql://u:s3cr3t@127.0.0.1:1/x", code=1)
    assert levels(found) == {"reachable": "problem"}
    assert "s3cr3t" not in str(found)


def test_a_journal_that_is_not_wal_is_a_problem(run: Run, driver: Driver) -> None:
    driver.close()
    with closing(sqlite3.connect("taskharbor.db")) as connection:
        connection.execute("PRAGMA journal_mode = delete")
    assert levels(run("doctor", code=1))["journal mode"] == "problem"


def test_what_was_forgotten_is_a_warning(run: Run, driver: Driver) -> None:
    past = driver.now() - timedelta(days=30)
    killed(driver, 1)
    (dead,) = driver.enqueue([NewJob("x", queue="old")], past)
    (leased,) = driver.reserve("old", now=past)
    driver.fail(dead.id, leased.lease.token, now=past, reason="long ago")
    driver.enqueue([NewJob("x", queue="stuck"), NewJob("x", queue="closed")], past)
    driver.reserve("stuck", now=past)
    driver.pause("closed")
    driver.heartbeat(Worker("ada"), now=past)
    found = run("doctor")
    for check in ("workers", "leases", "paused queues", "DLQ"):
        assert levels(found)[check] == "warning"
        assert cures(found)[check]


def test_limits_and_shares_of_names_that_look_misspelt_are_a_warning(run: Run, driver: Driver) -> None:
    driver.enqueue([NewJob("send", b"{}", queue="reports", tenant_id="acme")])
    driver.set_limit(Limit("queue", "reports", concurrency=1))
    driver.set_limit(Limit("type", "quite_another", rate=1))
    assert levels(run("doctor"))["limits and shares"] == "ok", "what comes before its jobs is no slip"
    driver.set_limit(Limit("queue", "reprots", concurrency=1))
    driver.set_fair("reports", weights={"amce": 2})
    found = run("doctor")
    assert levels(found)["limits and shares"] == "warning"
    assert "queue reprots, but reports" in str(found)
    assert "tenant amce, but acme" in str(found)
    assert "queues limit" in cures(found)["limits and shares"]


def test_workers_over_rest_never_lead_and_that_matters_only_to_schedules(run: Run, driver: Driver) -> None:
    driver.heartbeat(Worker("rest:node-1", version="rest"))
    assert levels(run("doctor"))["leader"] == "ok"
    driver.put_schedule(Schedule("nightly", "@daily", "a"))
    assert levels(run("doctor"))["leader"] == "warning"


def test_workers_without_a_leader_are_a_warning(run: Run, driver: Driver) -> None:
    driver.heartbeat(Worker("ada"))
    assert levels(run("doctor"))["leader"] == "warning"
    driver.elect("fleet", "ada")
    assert levels(run("doctor"))["leader"] == "ok"


@pytest.mark.parametrize("url", ["sqlite:///taskharbor.db", "json:///store"])
def test_jobs_that_no_living_worker_will_take_are_a_warning(url: str, run: Run) -> None:
    def said() -> list[str]:
        return [finding["said"] for finding in run("doctor", "--url", url)["findings"] if finding["check"] == "served"]

    with open_driver(url) as store:  # type: ignore[attr-defined]
        store.migrate()
        later = store.now() + timedelta(hours=1)
        jobs = [NewJob("a"), NewJob("b"), NewJob("a", queue="mial"), NewJob("a", queue="closed")]
        store.enqueue([*jobs, NewJob("z", run_at=later)])
        store.pause("closed")
        assert said() == [], "there are no workers at all, which another check says"
        store.heartbeat(Worker("ada", queues=("default",), meta={"types": "a,c"}))
        assert said() == [
            "type b in queue default: 1 job due, and no living worker handles it",
            "queue mial: 1 job due, and no living worker serves it",
        ]
        store.heartbeat(Worker("bob", queues=("default", "mial")))
        assert said() == ["a living worker serves every queue and type that has jobs due"]


def test_a_worker_says_what_it_handles(driver: Driver) -> None:
    harbor = Harbor("sqlite:///taskharbor.db")
    harbor.task(name="email.send")(lambda: None)
    harbor.task(name="report.build")(lambda: None)
    with harbor:
        for options, types in [({}, "email.send,report.build"), ({"take_all": True}, "*")]:
            worker = harbor.worker(**options)
            worker.start()
            (row,) = driver.workers()
            worker.stop()
            assert row.meta == {"types": types}


def test_a_file_that_is_no_database_has_a_cure_of_its_own(run: Run) -> None:
    Path("notes.db").write_text("dear diary " * 100)
    found = run("doctor", "--url", "sqlite:///notes.db", code=1)
    assert "not an SQLite database" in str(found)
    assert "login" not in str(found)


def test_a_file_that_cannot_be_opened_is_not_answered_with_login_and_network(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    found = run("doctor", "--url", "sqlite:///folder", code=1)
    assert "must be a file" in str(found)
    assert "path" in cures(found)["reachable"]
    assert "login" not in str(found)


def test_a_store_that_is_opened_only_to_read_is_a_problem(run: Run, driver: Driver) -> None:
    found = run("doctor", "--url", "sqlite:///taskharbor.db?mode=ro", code=1)
    assert levels(found)["writable"] == "problem"
    assert "leave mode=ro out" in cures(found)["writable"]
    assert levels(run("doctor"))["writable"] == "ok"


@pytest.mark.parametrize("url", ["sqlite:///taskharbor.db", "json:///store"])
def test_a_file_that_may_not_be_written_is_a_problem(url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_driver(url) as store:  # type: ignore[attr-defined]
        store.migrate()
    asked: list[Path] = []

    def access(path: Path, *_: Any, **__: Any) -> bool:  # root may write anything
        asked.append(path)
        return False

    monkeypatch.setattr(doctor_files.os, "access", access)
    monkeypatch.setattr(doctor_files.os, "supports_effective_ids", {access})
    found = run("doctor", "--url", url, code=1)
    assert levels(found)["writable"] == "problem"
    assert asked[0].name in str(found)
    assert "right to write" in cures(found)["writable"]


def test_file_systems_are_told_apart(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "root / ext4 rw 0 0\nserver:/x /srv/my\\040share nfs4 rw 0 0\ntmp /srv/my\\040share/ram tmpfs rw 0 0\n"
    )
    kinds = {
        place: doctor_files.kind_at(Path(place), mounts)
        for place in ("/var/x", "/srv/my share/jobs", "/srv/my share/ram/a", "/srv/my shares")
    }
    assert list(kinds.values()) == ["ext4", "nfs4", "tmpfs", "ext4"]
    assert doctor_files.file_system("nfs4").level == "problem"
    assert doctor_files.file_system("tmpfs").level == "warning"
    assert doctor_files.file_system("ext4").level == doctor_files.file_system("").level == "ok"


def test_a_full_disk_is_a_problem() -> None:
    assert [doctor_files.room(free).level for free in (10**6, 5 * 10**8, 10**12)] == ["problem", "warning", "ok"]


# --- servers -----------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_postgres(postgres: Any) -> str:
    url: str = postgres.create_database()
    with open_driver(url) as store:  # type: ignore[attr-defined]
        store.migrate()
    return url


@pytest.fixture
def fresh_mysql(mysql: Any) -> str:
    url: str = mysql.create_database()
    with open_driver(url) as store:  # type: ignore[attr-defined]
        store.migrate()
    return url


def test_a_postgres_server_is_looked_into(run: Run, fresh_postgres: str) -> None:
    found = run("doctor", "--url", fresh_postgres)
    assert {"version", "autovacuum", "transactions", "NOTIFY"} <= levels(found).keys()
    assert levels(found)["NOTIFY"] == levels(found)["transactions"] == levels(found)["autovacuum"] == "ok"


def test_a_postgres_role_that_may_only_read_is_a_problem_with_the_grant(run: Run, fresh_postgres: str) -> None:
    import psycopg

    parts = urlsplit(fresh_postgres)
    role = f"reader_{parts.path[-12:]}"
    reader = urlunsplit(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}"))
    assert levels(run("doctor", "--url", fresh_postgres))["writable"] == "ok"
    with psycopg.connect(fresh_postgres) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    found = run("doctor", "--url", reader, code=1)
    assert levels(found)["writable"] == "problem"
    assert "INSERT is not granted on th_history, th_jobs, th_keys" in str(found)
    with psycopg.connect(fresh_postgres) as connection:
        connection.execute(cures(found)["writable"])
    assert levels(run("doctor", "--url", reader))["writable"] == "ok", "the cure cures"


def test_postgres_transactions_that_only_read_are_a_problem(run: Run, fresh_postgres: str) -> None:
    found = run("doctor", "--url", f"{fresh_postgres}?options=-c%20default_transaction_read_only%3Don", code=1)
    assert levels(found)["writable"] == "problem"
    assert "default_transaction_read_only" in cures(found)["writable"]


def test_a_postgres_standby_is_a_problem(run: Run, fresh_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.cli.doctor_postgres._READ_ONLY", "SELECT 'on', true, current_user")
    found = run("doctor", "--url", fresh_postgres, code=1)
    assert "primary" in cures(found)["writable"]


def test_a_transaction_that_holds_back_the_feed_is_named(
    run: Run, fresh_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr("taskharbor.cli.doctor_postgres.LONG_S", 0)
    with psycopg.connect(fresh_postgres, application_name="the culprit") as connection:
        connection.execute("INSERT INTO th_queues (name) VALUES ('x')")
        found = run("doctor", "--url", fresh_postgres)
        said = str([finding for finding in found["findings"] if finding["check"] == "transactions"])
        connection.rollback()
    assert "the culprit" in said
    assert "history feed" in said
    assert "pg_terminate_backend" in said


def test_autovacuum_switched_off_for_our_table_is_a_problem(run: Run, fresh_postgres: str) -> None:
    import psycopg

    with psycopg.connect(fresh_postgres) as connection:
        connection.execute("ALTER TABLE th_jobs SET (autovacuum_enabled = false)")
    assert levels(run("doctor", "--url", fresh_postgres, code=1))["autovacuum"] == "problem"


def test_a_pooler_in_between_is_noticed(run: Run, pgbouncer_url: str) -> None:
    with open_driver(pgbouncer_url) as store:  # type: ignore[attr-defined]
        store.migrate()
    assert levels(run("doctor", "--url", pgbouncer_url))["NOTIFY"] == "warning"


def test_a_mysql_server_is_looked_into(run: Run, fresh_mysql: str) -> None:
    found = run("doctor", "--url", fresh_mysql)
    assert {"version", "sql_mode", "isolation", "transactions", "packets"} <= levels(found).keys()
    assert levels(found)["isolation"] == "ok"


@pytest.mark.server
@pytest.mark.parametrize("server", ["fresh_postgres", "fresh_mysql"])
def test_stats_and_lists_work_on_servers(server: str, run: Run, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(server)
    with open_driver(url) as store:  # type: ignore[attr-defined]
        killed(store, 1)
        store.enqueue([NewJob("x", queue="a")])
    found = run("stats", "--url", url)
    assert found["recent"]["failed"] == 1
    assert {queue["name"]: queue["oldest_ready_s"] is None for queue in found["queues"]} == {"a": False, "mail": True}
    assert len(run("jobs", "list", "--url", url)["jobs"]) == 2


# --- bench -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory://", "json:///store", "sqlite:///jobs.db"])
def test_the_bench_leaves_nothing_behind(url: str, run: Run) -> None:
    found = run("bench", "--url", url, "--jobs", "50", "--batch", "20")
    assert set(found["measured"]) == {"one_by_one", "in_bulk", "drained"}
    assert not list(Path().iterdir())


@pytest.mark.server
@pytest.mark.parametrize("server", ["fresh_postgres", "fresh_mysql"])
def test_the_bench_leaves_no_tables_on_a_server(server: str, run: Run, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(server)
    before = tables(url)
    run("bench", "--url", url, "--jobs", "50")
    assert tables(url) == before
    with open_driver(url) as store:  # type: ignore[attr-defined]
        assert sum(store.counts().values()) == 0


def tables(url: str) -> list[str]:
    from taskharbor.cli.peek import select

    with open_driver(url) as store:  # type: ignore[attr-defined]
        rows = select(store, "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%jobs%'")
    return sorted(str(row[0]) for row in rows)
