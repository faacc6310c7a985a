"""The tables of the MySQL and MariaDB driver, and what it says when it cannot use them."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit

import pytest
from tests.drivers.mysql.stores import changed, connect, run

from taskharbor.core.errors import (
    InvalidURL,
    SchemaMissing,
    SchemaTooNew,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from taskharbor.drivers import open_driver
from taskharbor.drivers.mysql import connecting, schema
from taskharbor.drivers.mysql.address import Address
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.sqlfiles import migrations
from taskharbor.testing.helpers import add, in_threads, leased_job
from taskharbor.testing.times import NOON

# --- The schema --------------------------------------------------------------------------------------------


def test_a_migration_that_broke_off_can_be_run_again(empty_url: str) -> None:
    steps = list(schema.statements(migrations(schema.PACKAGE, "th_")[0].sql))
    for half in (1, len(steps) // 2, len(steps)):
        with closing(connect(empty_url, autocommit=True)) as connection:
            for step in steps[:half]:
                run(connection, step)
        with open_driver(empty_url) as driver:
            driver.migrate()
            add(driver)
        with closing(connect(empty_url, autocommit=True)) as connection:
            run(connection, "DELETE FROM th_migrations")


def test_the_printed_migration_makes_a_working_store(empty_url: str) -> None:
    with closing(connect(empty_url, autocommit=True)) as connection:
        for statement in schema.statements(schema.migration_sql("my_")):
            run(connection, statement)
    with open_driver(f"{empty_url}?prefix=my_") as driver:
        leased = leased_job(driver)
        driver.ack(leased.job.id, leased.lease.token, now=NOON)
        assert [row.job_id for row in driver.history().rows] == [leased.job.id]


def test_the_views_show_attempts_and_dead_letters_in_the_words_of_the_seeds(
    driver: MysqlDriver, mysql_url: str
) -> None:
    leased = leased_job(driver, tenant_id="acme")
    driver.fail(leased.job.id, leased.lease.token, now=NOON, reason="broken")
    with closing(connect(mysql_url)) as connection:
        dead = run(connection, "SELECT job_id, topic, tenant_id, payload, retries, reason FROM th_dlq")
        tries = run(connection, "SELECT job_id, attempt_no, reason, success FROM th_attempts")
    assert dead == [(leased.job.id, "default", "acme", b"{}", 1, "broken")]
    assert tries == [(leased.job.id, 1, "broken", 0)]


def test_a_store_without_tables_says_to_migrate(empty_url: str) -> None:
    with open_driver(empty_url) as driver, pytest.raises(SchemaMissing, match="taskharbor --url … migrate"):
        add(driver)


def test_tables_of_a_newer_version_are_left_alone(empty_url: str) -> None:
    with open_driver(empty_url) as driver:
        driver.migrate()
    with closing(connect(empty_url, autocommit=True)) as connection:
        run(connection, "INSERT INTO th_migrations (version, name) VALUES (999, 'later')")
    with open_driver(empty_url) as driver:
        with pytest.raises(SchemaTooNew, match="upgrade"):
            add(driver)
        with pytest.raises(SchemaTooNew, match="upgrade"):
            driver.migrate()


@pytest.mark.concurrency
def test_twenty_processes_may_migrate_at_once(empty_url: str) -> None:
    def migrate(number: int) -> None:
        with open_driver(empty_url) as driver:
            driver.migrate()
            add(driver)

    in_threads(20, migrate)
    with open_driver(empty_url) as driver:
        assert driver.counts()["ready"] == 20


# --- Refusals ----------------------------------------------------------------------------------------------


def test_a_wrong_password_is_a_clear_refusal_that_does_not_repeat_it(mysql_url: str) -> None:
    with open_driver(changed(mysql_url, password="s3cret-guess")) as driver:
        with pytest.raises(StoreUnavailable, match="password") as refused:
            add(driver)
        assert "s3cret-guess" not in str(refused.value)


def test_a_server_that_is_not_there_is_a_clear_refusal(mysql_url: str) -> None:
    with open_driver(changed(mysql_url, port=1)) as driver, pytest.raises(StoreUnavailable, match="running"):
        add(driver)


def test_a_database_that_is_not_there_is_a_clear_refusal(mysql_url: str) -> None:
    with open_driver(changed(mysql_url, database="nowhere")) as driver, pytest.raises(StoreUnavailable, match="create"):
        add(driver)


def test_a_user_who_may_only_read_is_told_so(driver: MysqlDriver, mysql_url: str) -> None:
    database = urlsplit(mysql_url).path[1:]
    with closing(connect(mysql_url, autocommit=True)) as admin:
        run(admin, "CREATE USER IF NOT EXISTS th_reader IDENTIFIED BY 'reader'")
        run(admin, f"GRANT SELECT ON {database}.* TO th_reader")
        try:
            with open_driver(changed(mysql_url, user="th_reader", password="reader")) as reader:
                assert reader.counts()["ready"] == 0
                with pytest.raises(StoreReadOnly, match="grant"):
                    add(reader)
        finally:
            run(admin, "DROP USER th_reader")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user@host",
        "mysql://user@host/",
        "mysql://user@host/a/b",
        "mysql://user:secret@host:port/db",
        "mysql://user:secret@host/db?pool_size=none",
        "mariadb://user:secret@host/db?autocommit=yes",
    ],
)
def test_a_url_that_does_not_fit_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(InvalidURL) as refused:
        open_driver(url)
    assert "secret" not in str(refused.value)


def test_every_part_of_the_url_reaches_the_client() -> None:
    address = Address("mysql://me%40x:p%3Ass@[::1]:3307/my%20db?unix_socket=/run/s&ssl_ca=/ca.pem&connect_timeout=3")
    expected = {
        "host": "::1",
        "port": 3307,
        "user": "me@x",
        "password": "p:ss",
        "database": "my db",
        "unix_socket": "/run/s",
        "ssl_ca": "/ca.pem",
        "connect_timeout": 3,
    }
    assert expected.items() <= address.arguments.items()
    assert "p:ss" not in str(address)
    assert "p%3Ass" not in str(address)


@pytest.mark.parametrize(
    ("version", "collation"),
    [
        ("10.6.0-MariaDB", "utf8mb4_nopad_bin"),
        ("5.5.5-10.11.6-MariaDB-log", "utf8mb4_nopad_bin"),
        ("11.4.2-MariaDB", "utf8mb4_nopad_bin"),
        ("8.0.17", "utf8mb4_0900_bin"),
        ("9.1.0-commercial", "utf8mb4_0900_bin"),
    ],
)
def test_text_compares_as_bytes_on_both_kinds_of_server(version: str, collation: str) -> None:
    assert connecting._collation(version) == collation


@pytest.mark.parametrize("version", ["10.5.20-MariaDB", "5.7.44-log", "8.0.16", "unknown"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(StoreError, match="needs MySQL"):
        connecting._collation(version)
