"""A store that is not there, or that cannot be written: one class everywhere, a way out, and nothing lost."""

from __future__ import annotations

import errno
import os
import re
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import (
    InvalidURL,
    MissingExtra,
    SchemaMissing,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from taskharbor.core.fleet import Worker
from taskharbor.core.model import Settlement
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import connect
from taskharbor.testing.helpers import add, everything, leased_job, new_job, take_ids
from taskharbor.testing.times import MINUTE, NOON

SERVERS = {"postgresql": "postgres", "mysql": "mysql"}
ON_SERVERS = [pytest.param(kind, marks=pytest.mark.server) for kind in SERVERS]


@contextmanager
def nothing_changes(driver: Driver) -> Iterator[None]:
    before = everything(driver), driver.history().rows, driver.workers(), driver.queues(), driver.leaders()
    yield
    assert (everything(driver), driver.history().rows, driver.workers(), driver.queues(), driver.leaders()) == before


# --- Where the store is ----------------------------------------------------------------------------------------

HOSTILE_PREFIXES = ["th_; DROP TABLE jobs --", 'th"', "th'", "TH_", "1th", "", "th-", "t" * 25, "th_\0", "thé", "th_\n"]


@pytest.mark.parametrize("scheme", ["memory", "json", "sqlite", "postgresql", "mysql"])
@pytest.mark.parametrize("prefix", HOSTILE_PREFIXES)
def test_a_hostile_table_prefix_is_refused_before_anything_is_opened(scheme: str, prefix: str) -> None:
    with pytest.raises(InvalidURL, match="for example prefix=th_"):
        open_driver(f"{scheme}://user@127.0.0.1:1/x?prefix={quote(prefix)}")


@pytest.mark.parametrize("url", ["redis://localhost", "POSTGRES", "", "sqlite", "sqlite://jobs.db", "json://jobs"])
def test_a_url_that_names_no_store_says_what_would(url: str) -> None:
    with pytest.raises(InvalidURL, match=r"sqlite:///|:///jobs|known are memory://"):
        open_driver(url)


@pytest.mark.parametrize("scheme", ["json", "sqlite"])
def test_a_path_with_a_zero_byte_is_a_wrong_url(scheme: str) -> None:
    with pytest.raises(InvalidURL, match="has a %00 in its path"):
        open_driver(f"{scheme}:////tmp/a%00.db")


@pytest.mark.parametrize("scheme", ["json", "sqlite"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("n" * 300, "too long"),
        ("deep/" * 900 + "x", "too long|than 511 bytes"),
        ("loop", "links"),
        ("file/x", "Not a d"),
    ],
)
def test_where_no_store_can_be_nobody_is_told_to_try_again(scheme: str, path: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    with open_driver(f"{scheme}:///{tmp_path}/{path}") as driver:
        with pytest.raises(StoreRefused, match=why):
            driver.migrate()
        with pytest.raises((StoreRefused, SchemaMissing)):
            add(driver)


def test_sqlite_says_that_a_path_is_too_long_for_it(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["directory"] * 60)
    deep.mkdir(parents=True)
    with open_driver(f"sqlite:///{deep}/jobs.db") as driver:
        for call in (driver.migrate, driver.counts):
            with pytest.raises(StoreRefused, match="more than 511 bytes"):
                call()


@pytest.mark.parametrize(
    ("scheme", "library", "extra"),
    [("postgresql", "psycopg", "postgres"), ("mysql", "pymysql", "mysql"), ("mariadb", "pymysql", "mysql")],
)
def test_a_missing_extra_is_named(scheme: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == library or name.startswith(f"taskharbor.drivers.{extra}"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=re.escape(f"{scheme}:// needs an extra: pip install 'taskharbor[{extra}]'")):
        open_driver(f"{scheme}://127.0.0.1:1/x")


@pytest.fixture(params=ON_SERVERS)
def server_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(SERVERS[request.param]).create_database()
    return url


def refused(url: str, error: type[Exception], message: str) -> str:
    with open_driver(url) as driver:
        for call in (driver.migrate, lambda: add(driver), driver.counts, driver.now):
            with pytest.raises(error, match=message) as caught:
                call()
            assert type(caught.value) is error
            text = f"{caught.value}"
    return text


def test_a_wrong_password_is_refused_and_never_printed(server_url: str) -> None:
    parts = urlsplit(server_url)
    wrong = parts._replace(netloc=f"{parts.username}:hush-secret@{parts.hostname}:{parts.port}").geturl()
    assert "hush" not in refused(wrong, StoreRefused, "check the user and password in the URL")


def test_a_database_that_is_not_there_is_named_as_the_trouble(server_url: str) -> None:
    wrong = urlsplit(server_url)._replace(path="/nowhere").geturl()
    refused(wrong, StoreRefused, "no such database: create it")


def test_a_server_that_is_not_running_is_named_as_the_trouble(server_url: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        parts = urlsplit(server_url)
        wrong = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()
        refused(wrong, StoreUnavailable, "is it running")


@pytest.mark.parametrize("kind", ["json", "sqlite", *ON_SERVERS])
def test_a_store_that_was_never_migrated_asks_for_it(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"{kind}:///{tmp_path}/store"
    if kind in SERVERS:
        url = request.getfixturevalue(SERVERS[kind]).create_database()
    with open_driver(url) as driver:
        for call in (
            lambda: add(driver),
            lambda: driver.reserve("default", now=NOON),
            lambda: driver.settle([Settlement.ack("a", "b")], now=NOON),
            lambda: driver.get("a"),
            driver.history,
            driver.counts,
            lambda: driver.heartbeat(Worker("w"), now=NOON),
            lambda: driver.recover(NOON),
        ):
            with pytest.raises(SchemaMissing, match="taskharbor --url … migrate") as caught:
                call()
            assert type(caught.value) is SchemaMissing
        driver.migrate()
        assert add(driver)


# --- A store that cannot be written ----------------------------------------------------------------------------


def writes_are_refused(driver: Driver, token: str, error: type[Exception], message: str) -> None:
    with nothing_changes(driver):
        for call in (
            lambda: driver.enqueue([new_job(id=f"new-{number}", payload=bytes(50_000)) for number in range(20)], NOON),
            lambda: driver.enqueue([new_job(id="new", idempotency_key="k", payload=bytes(900_000))], NOON),
        ):
            with pytest.raises(error, match=message) as caught:
                call()
            assert type(caught.value) is error
    assert driver.get("held").lease_token == token


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user may look into, but only its owner may write."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@contextmanager
def without_write_access(directory: Path) -> Iterator[None]:
    """Permissions do not stop root, so root becomes somebody else for a while."""
    places = [directory, *directory.rglob("*")]
    modes = {place: place.stat().st_mode for place in places}
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for place, mode in modes.items():
            if place.exists():
                place.chmod(mode)


@pytest.mark.parametrize("kind", ["json", "sqlite"])
def test_a_read_only_file_is_refused_for_writing_and_nothing_is_lost(kind: str, open_to_all: Path) -> None:
    url = f"{kind}:///{open_to_all}/store"
    with open_driver(url) as driver:
        driver.migrate()
        token = leased_job(driver, id="held").lease.token
        add(driver, id="waiting")
    with without_write_access(open_to_all), open_driver(url) as driver:
        for call in (
            lambda: add(driver),
            lambda: driver.ack("held", token, now=NOON),
            lambda: driver.reserve("default", now=NOON),
        ):
            with pytest.raises(StoreReadOnly, match="permissions") as caught:
                call()
            assert type(caught.value) is StoreReadOnly
    with open_driver(url) as driver:
        assert take_ids(driver, now=NOON) == ["waiting"]
        driver.ack("held", token, now=NOON)


@pytest.mark.parametrize("kind", ["json", "sqlite"])
def test_a_store_that_cannot_be_created_is_not_answered_with_migrate(kind: str, open_to_all: Path) -> None:
    with (
        without_write_access(open_to_all),
        open_driver(f"{kind}:///{open_to_all}/new") as driver,
        pytest.raises(StoreReadOnly, match="cannot be (created|written)") as caught,
    ):
        driver.migrate()
    assert "migrate" not in f"{caught.value}"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory in which nobody can make a file")
def test_a_place_where_nobody_can_write_is_named(tmp_path: Path) -> None:
    with open_driver("sqlite:////proc/jobs.db") as driver, pytest.raises(StoreReadOnly, match="cannot be created"):
        driver.migrate()
    with open_driver(f"sqlite:///{tmp_path}/no/jobs.db") as driver, pytest.raises(StoreRefused, match="directory"):
        driver.migrate()


def test_a_migration_that_may_only_read_says_so_or_has_nothing_to_do(tmp_path: Path) -> None:
    with open_driver(f"sqlite:///{tmp_path}/store?mode=ro") as reader:
        with pytest.raises(StoreReadOnly, match="mode=ro"):
            reader.migrate()
        assert not (tmp_path / "store").exists()
        with open_driver(f"sqlite:///{tmp_path}/store") as driver:
            driver.migrate()
        reader.migrate()
        assert reader.counts()["ready"] == 0


READ_ONLY_SERVER = {
    "postgresql": "ALTER DATABASE {name} SET default_transaction_read_only = on",
    "mysql": "CREATE TRIGGER no_writes BEFORE INSERT ON th_jobs FOR EACH ROW "
    "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'running with the --read-only option'",
}
FULL_SERVER = {
    "postgresql": "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$; "
    "CREATE TRIGGER no_room AFTER INSERT ON th_jobs FOR EACH STATEMENT EXECUTE FUNCTION no_room()",
    "mysql": "CREATE TRIGGER no_room AFTER INSERT ON th_jobs FOR EACH ROW "
    "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'",
}


@pytest.mark.parametrize(
    ("trouble", "error", "message"),
    [(READ_ONLY_SERVER, StoreReadOnly, "connect to the primary"), (FULL_SERVER, StoreFull, "nothing of this call")],
    ids=["read-only", "full"],
)
def test_a_server_that_cannot_write_keeps_what_it_has(
    server_url: str, trouble: dict[str, str], error: type[Exception], message: str
) -> None:
    with open_driver(server_url) as driver:
        driver.migrate()
        token = leased_job(driver, id="held").lease.token
    parts = urlsplit(server_url)
    connection = connect(server_url)
    connection.cursor().execute(trouble[parts.scheme].format(name=parts.path.strip("/")))
    connection.commit()
    connection.close()
    with open_driver(server_url) as driver:
        writes_are_refused(driver, token, error, message)


def reader_of(server_url: str) -> str:
    """The URL of a user who may only read what is there."""
    parts = urlsplit(server_url)
    database = parts.path.strip("/")
    name = database[-20:]
    grants = {
        "postgresql": [f"CREATE USER {name} PASSWORD 'x'", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"],
        "mysql": [f"CREATE USER {name} IDENTIFIED BY 'x'", f"GRANT SELECT ON {database}.* TO {name}"],
    }
    connection = connect(server_url)
    if parts.scheme == "postgresql":
        connection.cursor().execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as PostgreSQL 15 has it
    for statement in grants[parts.scheme]:
        connection.cursor().execute(statement)
    connection.commit()
    connection.close()
    return parts._replace(netloc=f"{name}:x@{parts.hostname}:{parts.port}").geturl()


def test_a_user_that_may_only_read_is_told_so(server_url: str) -> None:
    with open_driver(server_url) as driver:
        driver.migrate()
        token = leased_job(driver, id="held").lease.token
    with open_driver(reader_of(server_url)) as driver:
        writes_are_refused(driver, token, StoreReadOnly, "grant")
        driver.migrate()  # there is nothing to do


def test_a_user_that_may_not_make_tables_is_told_which_right_that_takes(server_url: str) -> None:
    with (
        open_driver(reader_of(server_url)) as driver,
        pytest.raises(StoreReadOnly, match="may not make or change tables: grant it CREATE"),
    ):
        driver.migrate()


def test_a_full_disk_keeps_what_sqlite_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/store"
    with open_driver(url) as driver:
        driver.migrate()
        token = leased_job(driver, id="held").lease.token
    real = sqlite3.connect

    def connect_to_a_small_disk(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = real(*arguments, **options)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect_to_a_small_disk)
        with open_driver(url) as driver:
            writes_are_refused(driver, token, StoreFull, "free some space")
            driver.ack("held", token, now=NOON)


def test_a_full_disk_keeps_what_a_json_store_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_driver(f"json:///{tmp_path}/store") as driver:
        driver.migrate()
        token = leased_job(driver, id="held").lease.token
        real, room = os.pwrite, 100_000

        def pwrite_on_a_small_disk(descriptor: int, data: Any, offset: int) -> int:
            if offset >= room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(descriptor, data[: room - offset], offset)

        monkeypatch.setattr(os, "pwrite", pwrite_on_a_small_disk)
        writes_are_refused(driver, token, StoreFull, "free some space")
        driver.ack("held", token, now=NOON + MINUTE / 2)
