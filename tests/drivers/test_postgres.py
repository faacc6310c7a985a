"""What is particular to PostgreSQL: the plan of a claim, the errors of a server, several queues at once."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from tests.drivers.postgres_stores import driver, url

from taskharbor.core.contract import Driver
from taskharbor.core.errors import SchemaMissing, SchemaTooNew, StoreReadOnly, StoreUnavailable
from taskharbor.core.ids import new_tokens
from taskharbor.core.limiting import LONGEST_BUCKET, Limit
from taskharbor.core.model import Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.drivers.postgres import schema, session
from taskharbor.drivers.sqldesk import key_values
from taskharbor.drivers.sqlfiles import Statements
from taskharbor.testing.helpers import (
    add,
    add_all,
    dead_job,
    done_job,
    facts,
    in_threads,
    leased_job,
    new_job,
    take_all,
    take_ids,
)
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON

__all__ = ["driver", "url"]

FUTURE, DUE, DEAD = 10_000, 5_000, 5_000
MOST_BUFFERS = 400
PER_TENANT = Limit("queue", "default", per="tenant", concurrency=100)
LINE = {"queue": "default", "priority": 0, "tenants": ["a", "b", "\x01"]}


# --- The plan of a claim -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(postgres: Any) -> Iterator[str]:
    """20,000 jobs: half of them scheduled for later at a high priority, a quarter dead, a quarter due."""
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
        driver.set_limit(PER_TENANT)
        driver.enqueue((new_job(priority=9, run_at=NOON + DAY) for _ in range(FUTURE)), NOON)
        driver.enqueue((new_job(type="dead") for _ in range(DEAD)), NOON)
        driver.enqueue((new_job(priority=number % 3) for number in range(DUE)), NOON)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE th_jobs SET status = 'dlq', dlq_failed_at = now() WHERE type = 'dead'")
        connection.execute("VACUUM ANALYZE th_jobs")
    yield url
    postgres.drop_database(url)


def explain(
    url: str, statement: str, values: dict[str, Any], plan_cache_mode: str, *, at_desk: bool = False
) -> dict[str, Any]:
    """The plan of a statement as it ran, rolled back again."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", statement).replace("%%", "%")
    arguments = sql.SQL(", ").join(sql.Literal(values[name]) for name in names)
    with psycopg.connect(url) as connection:
        connection.execute(f"SET plan_cache_mode = {plan_cache_mode}")
        if at_desk:  # every desk says so, also behind a pooler
            connection.execute("SET enable_seqscan = off")
        connection.execute(f"PREPARE claim AS {numbered}")
        run = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE claim({})").format(arguments)
        row = connection.execute(run).fetchone()
        connection.rollback()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return plan[0]["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("plan_cache_mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "name",
    ["claim", "claim_many", "desk_claim", "desk_claim+counted", "desk_claim_many", "claim+tenant", "claim_many+tenant"],
)
def test_a_claim_reads_a_few_pages_of_its_index_whatever_else_waits(
    crowded: str, name: str, plan_cache_mode: str
) -> None:
    values = {
        "queue": "default",
        "queues": ["default", "mail"],
        "now": NOON + MINUTE,
        "until": NOON + HOUR,
        "limit": 10,
        "types": None,
        "secret": new_tokens(1)[0],
        "owner": "worker-1",
        "sweep_first": True,
        "tenant": "default",
        **key_values(PER_TENANT.key),
        "concurrency": PER_TENANT.concurrency,
        "stem": PER_TENANT.stem,
        "longest": LONGEST_BUCKET,
    }
    statement = Statements(schema.PACKAGE, "th_", "pyformat")[name]
    plan = explain(crowded, statement, values, plan_cache_mode, at_desk=name.startswith("desk"))
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "th_jobs" and "Scan" in node["Node Type"]]
    assert "th_jobs_claim" in {node.get("Index Name") for node in nodes(plan)}
    assert [node for node in scans if node["Node Type"] == "Seq Scan"] == []
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in scans) <= 50
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MOST_BUFFERS


@pytest.mark.parametrize("plan_cache_mode", ["force_custom_plan", "force_generic_plan"])
def test_jobs_whose_places_are_known_are_settled_past_every_index(crowded: str, plan_cache_mode: str) -> None:
    values = {
        "ids": ["a", "b"],
        "tokens": ["c", "d"],
        "results": [None, None],
        "starts": [None, None],
        "places": ["(0,1)", "(0,2)"],
        "now": NOON,
    }
    statement = Statements(schema.PACKAGE, "th_", "pyformat")["ack+placed"]
    plan = explain(crowded, statement, values, plan_cache_mode, at_desk=True)
    scans = {node["Node Type"] for node in nodes(plan) if node.get("Relation Name") == "th_jobs"}
    assert scans == {"ModifyTable", "Tid Scan"}


@pytest.fixture(scope="module")
def eventful(postgres: Any) -> Iterator[str]:
    """A feed of a thousand rows."""
    url = postgres.create_database()
    with open_driver(url) as driver:
        driver.migrate()
        driver.enqueue([new_job(expires_at=NOON + MINUTE) for _ in range(1_000)], NOON)
        driver.recover(NOON + HOUR)
    yield url
    postgres.drop_database(url)


@pytest.mark.parametrize("plan_cache_mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["history", "latest", "latest_behind"])
def test_a_page_of_the_feed_reads_what_it_shows(eventful: str, name: str, plan_cache_mode: str) -> None:
    statement = Statements(schema.PACKAGE, "th_", "pyformat")[name]
    plan = explain(eventful, statement, {"xid": 0, "seq": 0, "limit": 10}, plan_cache_mode, at_desk=True)
    assert "th_history_pkey" in {node.get("Index Name") for node in nodes(plan)}
    assert max(node["Actual Rows"] for node in nodes(plan)) == 10
    assert [node["Node Type"] for node in nodes(plan) if "Sort" in node["Node Type"]] == []


# --- Several queues ----------------------------------------------------------------------------------------


def test_a_claim_from_several_queues_keeps_one_order_over_all_of_them(driver: Driver) -> None:
    for number in range(30):
        add(driver, queue=f"queue-{number % 3}", priority=number % 5, now=NOON + number * MINUTE)
    moment = NOON + HOUR
    waiting = sorted(driver.list(limit=100).jobs, key=lambda job: (-job.priority, job.due_at, job.id))
    first = [item.job.id for item in take_all(driver, ["queue-2", "queue-0", "queue-1"], now=moment, limit=11)]
    rest = take_ids(driver, ["queue-0", "queue-1", "queue-2"], now=moment)
    assert first + rest == [job.id for job in waiting]


def test_a_lapsed_lease_in_one_queue_is_found_while_another_queue_has_work(driver: Driver) -> None:
    lapsed = leased_job(driver, queue="mail", priority=5, lease_for=MINUTE)
    waiting = [add(driver, queue="sms") for _ in range(3)]
    assert take_ids(driver, ["sms", "mail"], now=NOON + HOUR) == [lapsed.job.id, *waiting]


# --- Errors ------------------------------------------------------------------------------------------------


def with_parts(url: str, *, password: str | None = None, port: int | None = None, database: str | None = None) -> str:
    parts = urlsplit(url)
    netloc = f"{parts.username}:{password or parts.password}@{parts.hostname}:{port or parts.port}"
    return urlunsplit(parts._replace(netloc=netloc, path=f"/{database}" if database else parts.path))


CALLS: list[Callable[[Driver], Any]] = [
    lambda driver: driver.migrate(),
    lambda driver: driver.now(),
    lambda driver: driver.enqueue([new_job()]),
    lambda driver: driver.enqueue([new_job(), new_job()], NOON),
    lambda driver: driver.reserve("default", now=NOON),
    lambda driver: driver.get("a"),
]


def test_a_wrong_password_is_told_without_showing_it(url: str) -> None:
    with open_driver(with_parts(url, password="s3cret-and-wrong")) as driver:
        for call in CALLS:
            with pytest.raises(StoreUnavailable, match="password") as caught:
                call(driver)
            assert "s3cret" not in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with open_driver(with_parts(url, port=closed.getsockname()[1])) as driver:
            for call in CALLS:
                with pytest.raises(StoreUnavailable, match="reached"):
                    call(driver)


def test_a_database_that_is_not_there_is_unavailable(url: str) -> None:
    with open_driver(with_parts(url, database="taskharbor_test_nowhere")) as driver:
        for call in CALLS:
            with pytest.raises(StoreUnavailable, match="database"):
                call(driver)


def test_missing_tables_are_told_with_the_command_that_makes_them(url: str) -> None:
    with open_driver(url) as driver:
        for call in CALLS[2:]:
            with pytest.raises(SchemaMissing, match="no TaskHarbor tables .* yet: run `taskharbor --url … migrate`"):
                call(driver)


def test_tables_of_a_newer_version_are_left_alone(driver: Driver, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO th_migrations (version, name) VALUES (999, 'from_the_future')")
    with pytest.raises(SchemaTooNew, match="upgrade"):
        driver.migrate()


def test_a_database_that_takes_no_writes_is_read_only_and_can_still_be_read(driver: Driver, url: str) -> None:
    done, waiting = done_job(driver), leased_job(driver)
    database = sql.Identifier(urlsplit(url).path[1:])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(database))
    with open_driver(url) as reader:
        assert reader.get(done).status is Status.DONE
        assert len(reader.list().jobs) == 2
        writes: list[Callable[[], Any]] = [
            lambda: add(reader),
            lambda: add_all(reader, [new_job(), new_job(idempotency_key="k")]),
            lambda: reader.reserve("default", now=NOON),
            lambda: reader.ack(waiting.job.id, waiting.lease.token, now=NOON),
            lambda: reader.pause("default"),
            lambda: reader.elect("leader", "ann", NOON),
        ]
        for write in writes:
            with pytest.raises(StoreReadOnly):
                write()
    assert driver.get(waiting.job.id) == waiting.job


def test_a_driver_comes_back_after_its_connections_were_cut(driver: Driver, url: str) -> None:
    job_id = add(driver)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    seen = set()
    for _ in range(20):
        try:
            seen.add(driver.get(job_id).id)
        except StoreUnavailable:
            continue
    assert seen == {job_id}


# --- Forgetting --------------------------------------------------------------------------------------------


def test_a_claim_of_a_fair_queue_whose_jobs_have_tags_is_one_statement(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.set_fair("default")
    ids = add_all(driver, [new_job(tenant_id=tenant) for tenant in ("a", "a", "b")])
    with monkeypatch.context() as patch:
        patch.setattr(driver._governing, "at_desk", None)
        assert take_ids(driver) == [ids[0], ids[2], ids[1]]
    tags = {row[0]: row[1] for row in driver._queueing._session.run("desk_tags", LINE)}
    assert tags["\x01"] == tags["b"], "the line has come as far as what it took last"


def test_a_job_without_a_tag_gets_one_before_a_claim_goes_past_it(driver: Any) -> None:
    driver.set_fair("default")
    first, second = add_all(driver, [new_job(tenant_id="a"), new_job(tenant_id="a")])
    late = add(driver, tenant_id="b", run_at=NOON + HOUR)
    assert take_ids(driver, now=NOON + HOUR) == [first, late, second]


def test_claims_and_tags_of_several_priorities_do_not_wait_for_each_other_in_a_circle(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TRIES", 1)  # a deadlock is an error then, and not tried again
    driver.set_fair("default")

    def work(number: int) -> None:
        for round in range(20):
            add_all(driver, [new_job(tenant_id=f"t{number % 3}", priority=(number + each) % 3) for each in range(3)])
            leased = driver.reserve("default", now=NOON, limit=4, lease_for=60)
            back = [Settlement.release(job.id, lease.token) for job, lease in leased[: round % 3]]
            driver.settle(back, now=NOON)

    in_threads(6, work)


def test_chosen_jobs_are_forgotten_by_one_statement(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [done_job(driver), done_job(driver)]
    session: Any = driver._fleet._session
    start, asked = session._start, []
    monkeypatch.setattr(
        session, "_start", lambda connection, name, params: asked.append(name) or start(connection, name, params)
    )
    assert driver.prune(NOON + DAY, ids=ids) == 2
    assert asked == ["hold_fence", "is_shut", "prune"]


def test_what_a_purged_id_records_when_it_is_used_again_is_not_forgotten_with_its_past(
    driver: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_job(driver, id="x")
    driver.purge()
    run = driver._fleet._session.run

    def interrupted(name: str, params: Any) -> Any:
        found = run(name, params)
        if name == "prune_window" and any(is_over for *_, is_over in found):
            with open_driver(url) as other:
                done_job(other, id="x", now=NOON + DAY)
        return found

    monkeypatch.setattr(driver._fleet._session, "run", interrupted)
    assert driver.prune(NOON + HOUR) == 0
    assert [fact.at for fact in facts(driver, 2)] == [NOON, NOON + DAY]


def test_transactions_see_what_is_new_whatever_the_database_has_for_a_default(driver: Driver) -> None:
    used: session.Session = driver._session  # type: ignore[attr-defined]

    def look(connection: Any) -> Any:
        # As behind a pooler, where no setting of ours may stay.
        connection.execute("SET default_transaction_isolation = 'repeatable read'")
        with connection.transaction():
            return connection.execute("SHOW transaction_isolation").fetchone()

    assert used.transact(look) == ("read committed",)
